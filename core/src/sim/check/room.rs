//! Checks that no call waits while its model has room for it.
//!
//! A call may start if no pause is in force, fewer calls of its resource are in flight than the limit, and
//! fewer of its provider and model than the cap. If all of that holds and nothing else is due, the resource
//! must have no waiter, whichever group a waiter belongs to and whatever waits for other models or domains.
//!
//! Three kinds of resource are not checked:
//!
//! - Resources of a provider that is not healthy. The law for them is in `outages`.
//! - Resources with a waiter whose worker has given back its task resources. That call needs those resources
//!   too, and later calls of the same group wait behind it.
//! - Resources whose algorithm spaces calls in time, or whose provider states a rate that is used up.

use alloc::format;

use super::{Check, CheckResult, Law, hold};
use crate::map::Map;
use crate::request::event::{EventScope, RequestEvent, RequestEventPayload};
use crate::request::{ProviderModelId, ResourceId};
use crate::time::Instant;

/// What limits the calls of one resource, after everything that was due has been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceLimits {
    /// The resource.
    pub resource: ResourceId,
    /// The provider and model of the resource.
    pub model: ProviderModelId,
    /// The cap of the provider and model over all domains.
    pub cap: u32,
    /// The limit in force.
    pub limit: u32,
    /// The end of the cooldown in force.
    pub blocked_until: Option<Instant>,
    /// The number of waiters whose workers have given back their task resources.
    pub suspended: u32,
    /// Whether the algorithm spaces calls in time, or the rate that the provider states is used up.
    pub is_spaced: bool,
    /// Whether the provider and model is healthy, and none of its calls is undecided.
    pub is_up: bool,
}

/// The calls in flight and the waiters, by resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    in_flight: Map<ResourceId, u32>,
    waiters: Map<ResourceId, u32>,
}

impl Room {
    fn out(&self, resource: ResourceId) -> u32 {
        self.in_flight.get(&resource).copied().unwrap_or(0)
    }

    /// Checks all resources at `at`. Nothing happens from then until time has passed.
    pub(super) fn check_quiescent(&self, at: Instant, all_limits: &[ResourceLimits]) -> CheckResult {
        for limits in all_limits {
            let waiters = self.waiters.get(&limits.resource).copied().unwrap_or(0);
            let is_checked = limits.suspended == 0 && !limits.is_spaced && limits.is_up;
            let is_paused = limits.blocked_until.is_some_and(|end| end > at);
            if waiters == 0 || !is_checked || is_paused {
                continue;
            }
            let out = self.out(limits.resource);
            let of_model = all_limits.iter().filter(|other| other.model == limits.model);
            let out_of_model: u32 = of_model.map(|other| self.out(other.resource)).sum();
            let has_room = out < limits.limit && out_of_model < limits.cap;
            hold(!has_room, || {
                let ResourceLimits { resource, limit, cap, .. } = limits;
                format!(
                    "{waiters} calls of resource {} wait while {out} of {limit} are in flight, and {out_of_model} of {cap} of its model",
                    resource.index()
                )
            })?;
        }
        Ok(())
    }
}

impl Check for Room {
    const LAW: Law = Law::Room;

    fn on_request(&mut self, event: &RequestEvent) -> CheckResult {
        let EventScope::Resource(resource) = event.place else { return Ok(()) };
        match event.payload {
            RequestEventPayload::WaitStarted { waiter: Some(_) } => *self.waiters.entry(resource).or_default() += 1,
            RequestEventPayload::WaitCompleted { waiter: Some(_), .. }
            | RequestEventPayload::WaitTimeout { waiter: Some(_), .. }
            | RequestEventPayload::WaitCancelled { .. } => {
                let waiters = self.waiters.entry(resource).or_default();
                *waiters = waiters.saturating_sub(1);
            }
            RequestEventPayload::LeaseAcquired { .. } => *self.in_flight.entry(resource).or_default() += 1,
            RequestEventPayload::LeaseReleased { .. } => {
                let out = self.in_flight.entry(resource).or_default();
                *out = out.saturating_sub(1);
            }
            _ => {}
        }
        Ok(())
    }
}
