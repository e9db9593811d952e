//! No call waits while its model has room for it.
//!
//! A call may go out while no pause is in force, fewer calls of its resource are out than the limit, and
//! fewer of its provider and model than the cap. Where all of that holds and nothing else is due, the
//! resource has no waiter: whichever group it belongs to, and whatever waits for other models or domains.
//!
//! Three kinds of resource are not judged. A provider that is not healthy has a law of its own: `outages`.
//! Where a worker has given its task resources back, its call needs those too, and what came later in the
//! same group waits behind it. An algorithm that spaces calls in time keeps them apart by a rule of its own,
//! and so does a rate that the provider states while it is used up.

use alloc::format;

use super::{Check, CheckResult, Law, hold};
use crate::map::Map;
use crate::request::event::{EventPlace, RequestEvent, RequestEventPayload};
use crate::request::{ProviderModelId, ResourceId};
use crate::time::Instant;

/// What keeps calls of one resource from going out, once everything that was due is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceLimits {
    /// The resource.
    pub resource: ResourceId,
    /// Its provider and model.
    pub model: ProviderModelId,
    /// The cap of the provider and model over all domains.
    pub cap: u32,
    /// The limit in force.
    pub limit: u32,
    /// The end of the cooldown in force.
    pub blocked_until: Option<Instant>,
    /// Waiters whose workers have given their task resources back.
    pub suspended: u32,
    /// Whether its algorithm spaces calls in time, or the rate that its provider states is used up.
    pub is_spaced: bool,
    /// Whether its provider and model is healthy, and no call of that is undecided.
    pub is_up: bool,
}

/// How many calls are out and how many wait, by resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    in_flight: Map<ResourceId, u32>,
    waiters: Map<ResourceId, u32>,
}

impl Room {
    fn out(&self, resource: ResourceId) -> u32 {
        self.in_flight.get(&resource).copied().unwrap_or(0)
    }

    /// Nothing happens from `at` until time has passed.
    pub(super) fn check_quiescent(&self, at: Instant, all_limits: &[ResourceLimits]) -> CheckResult {
        for limits in all_limits {
            let waiters = self.waiters.get(&limits.resource).copied().unwrap_or(0);
            let is_judged = limits.suspended == 0 && !limits.is_spaced && limits.is_up;
            let is_paused = limits.blocked_until.is_some_and(|end| end > at);
            if waiters == 0 || !is_judged || is_paused {
                continue;
            }
            let out = self.out(limits.resource);
            let of_model = all_limits.iter().filter(|other| other.model == limits.model);
            let out_of_model: u32 = of_model.map(|other| self.out(other.resource)).sum();
            let has_room = out < limits.limit && out_of_model < limits.cap;
            hold(!has_room, || {
                let ResourceLimits { resource, limit, cap, .. } = limits;
                format!(
                    "{waiters} calls of resource {} wait while {out} of {limit} are out, and {out_of_model} of {cap} of its model",
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
        let EventPlace::Resource(resource) = event.place else { return Ok(()) };
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
