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

use super::{Check, Law, Verdict, hold};
use crate::map::Map;
use crate::request::event::{EventPlace, RequestEvent, RequestFact};
use crate::request::{ProviderModelId, ResourceId};
use crate::time::Instant;

/// What keeps calls of one resource from going out, once everything that was due is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
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
    pub(super) fn at_rest(&self, at: Instant, standings: &[Standing]) -> Verdict {
        for standing in standings {
            let waiters = self.waiters.get(&standing.resource).copied().unwrap_or(0);
            let is_judged = standing.suspended == 0 && !standing.is_spaced && standing.is_up;
            let is_paused = standing.blocked_until.is_some_and(|end| end > at);
            if waiters == 0 || !is_judged || is_paused {
                continue;
            }
            let out = self.out(standing.resource);
            let of_model = standings.iter().filter(|other| other.model == standing.model);
            let out_of_model: u32 = of_model.map(|other| self.out(other.resource)).sum();
            let has_room = out < standing.limit && out_of_model < standing.cap;
            hold(!has_room, || {
                let Standing { resource, limit, cap, .. } = standing;
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

    fn on_request(&mut self, event: &RequestEvent) -> Verdict {
        let EventPlace::Resource(resource) = event.place else { return Ok(()) };
        match event.fact {
            RequestFact::WaitStarted { waiter: Some(_) } => *self.waiters.entry(resource).or_default() += 1,
            RequestFact::WaitCompleted { waiter: Some(_), .. }
            | RequestFact::WaitTimeout { waiter: Some(_), .. }
            | RequestFact::WaitCancelled { .. } => {
                let waiters = self.waiters.entry(resource).or_default();
                *waiters = waiters.saturating_sub(1);
            }
            RequestFact::LeaseAcquired { .. } => *self.in_flight.entry(resource).or_default() += 1,
            RequestFact::LeaseReleased { .. } => {
                let out = self.in_flight.entry(resource).or_default();
                *out = out.saturating_sub(1);
            }
            _ => {}
        }
        Ok(())
    }
}
