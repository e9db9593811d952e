//! Checks that no call waits while its model has room for it.
//!
//! A call may start if all of these hold:
//!
//! - No cooldown of its request resource is in force.
//! - Fewer calls of the resource are in flight than its limit.
//! - Fewer calls of its provider and model are in flight, over all [domains](crate::request::Domain), than
//!   the cap.
//!
//! If they hold and nothing else is due, the resource must have no waiter. This is so for every fairness
//! group, and whatever waits for other models or domains.
//!
//! Three kinds of resource are not checked:
//!
//! - Resources of a provider that is not healthy. [`Law::Outages`] covers them.
//! - Resources with a waiter whose worker has yielded. That call also needs the task resources that the
//!   worker released, and later calls of the same group wait behind it.
//! - Resources whose algorithm spaces calls in time, or whose provider states a rate that is used up.

use alloc::format;

use super::{Check, CheckResult, Law, ensure};
use crate::map::Map;
use crate::request::event::{EventScope, RequestEvent, RequestEventPayload};
use crate::request::{ProviderModelId, ResourceId};
use crate::time::Instant;

/// The limits of one resource at an instant at which nothing is due.
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
    /// The number of waiters whose workers have yielded: they hold no task resources.
    pub yielded: u32,
    /// Whether the algorithm spaces calls in time, or the rate that the provider states is used up.
    pub is_spaced: bool,
    /// Whether the provider and model is healthy and has no undecided failure.
    pub is_up: bool,
}

/// The calls in flight and the waiters, by resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    in_flight: Map<ResourceId, u32>,
    waiters: Map<ResourceId, u32>,
}

impl Room {
    fn in_flight(&self, resource: ResourceId) -> u32 {
        self.in_flight.get(&resource).copied().unwrap_or(0)
    }

    /// Checks all resources at `at`, an instant at which nothing more is due. O(resources^2).
    pub(super) fn check_quiescent(&self, at: Instant, all_limits: &[ResourceLimits]) -> CheckResult {
        for limits in all_limits {
            let waiters = self.waiters.get(&limits.resource).copied().unwrap_or(0);
            let is_checked = limits.yielded == 0 && !limits.is_spaced && limits.is_up;
            let is_cooling_down = limits.blocked_until.is_some_and(|end| end > at);
            if waiters == 0 || !is_checked || is_cooling_down {
                continue;
            }
            let in_flight = self.in_flight(limits.resource);
            let of_model = all_limits.iter().filter(|other| other.model == limits.model);
            let of_model: u32 = of_model.map(|other| self.in_flight(other.resource)).sum();
            let has_room = in_flight < limits.limit && of_model < limits.cap;
            ensure(!has_room, || {
                let ResourceLimits { resource, limit, cap, .. } = limits;
                format!(
                    "{waiters} calls of resource {} wait while {in_flight} of {limit} are in flight, and {of_model} of {cap} of its model",
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
        let EventScope::Resource(resource) = event.scope else { return Ok(()) };
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
                let in_flight = self.in_flight.entry(resource).or_default();
                *in_flight = in_flight.saturating_sub(1);
            }
            _ => {}
        }
        Ok(())
    }
}
