//! One provider and model: its cap, its resources, its fair queue.
//!
//! ```text
//! ProviderModel --- cap over all domains
//!      +-- Resource (one a domain): Controller (limit, cooldown, grants), budgets
//!      +-- WaitQueue: one fair queue, a FIFO for each group and resource
//! ```
//!
//! Nothing here depends on another provider or model: a pause, a full cap or an outage of one delays no waiter of another,
//! whatever groups they share. What all of them need, leases and timers among it, is in [`Shared`].

mod controller;
mod cooldown;
mod emit;
mod resource;
mod serve;
mod wait_queue;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

pub(super) use controller::Since;
pub(super) use emit::Ended;
pub(super) use resource::{Block, Held, Resource};
pub(super) use serve::Joining;

use super::answer::Denial;
use super::keys::{Domain, ProviderModelId, Request, ResourceId};
use super::shared::Shared;
use crate::call::Completion;
use crate::fair_queue::GroupId as QueueGroup;
use crate::limit::AimdConfig;
use crate::time::Instant;
use crate::yielding::TaskResources;
use wait_queue::WaitQueue;

/// The task resources of the caller, where they are at hand.
pub(super) type TaskSide<'a> = Option<&'a mut dyn TaskResources>;

/// Reborrows the task side for one call.
pub(super) fn reborrow<'a>(tasks: &'a mut TaskSide<'_>) -> TaskSide<'a> {
    match tasks {
        Some(tasks) => Some(&mut **tasks),
        None => None,
    }
}

#[derive(Debug)]
pub(super) struct ProviderModel {
    pub(super) id: ProviderModelId,
    pub(super) provider: String,
    pub(super) model: String,
    pub(super) aliases: Vec<(String, u32)>,
    /// The lowest cap of all aliases.
    pub(super) cap: u32,
    /// Calls out over all domains.
    pub(super) in_flight: u32,
    pub(super) resources: Vec<Resource>,
    /// The wake-up that is armed for its waiters, if any.
    pub(super) wake_at: Option<Instant>,
    queue: WaitQueue,
}

/// Registration.
impl ProviderModel {
    pub(super) fn new(id: ProviderModelId, provider: &str, model: &str, cap: u32) -> Self {
        Self {
            id,
            provider: provider.to_string(),
            model: model.to_string(),
            aliases: Vec::new(),
            cap,
            in_flight: 0,
            resources: Vec::new(),
            wake_at: None,
            queue: WaitQueue::default(),
        }
    }

    /// Sets the cap of one alias. The lowest of all aliases holds.
    pub(super) fn set_alias(&mut self, alias: &str, cap: u32) {
        match self.aliases.iter_mut().find(|(name, _)| name == alias) {
            Some((_, known)) => *known = cap,
            None => self.aliases.push((alias.to_string(), cap)),
        }
        self.cap = self.aliases.iter().map(|(_, cap)| *cap).min().unwrap_or(cap);
    }

    /// Applies the cap to every resource. `lifts`: a limit that stood at its old maximum and was never cut may follow it up.
    pub(super) fn apply_cap(&mut self, now: Instant, lifts: bool, shared: &mut Shared) {
        for slot in 0..self.resources.len() {
            self.emit_ramp_steps(now, slot, shared);
            self.resources[slot].controller.set_cap(now, self.cap, lifts);
            self.emit_limit(now, slot, shared);
        }
        self.unblock_all();
    }

    pub(super) fn find(&self, domain: &Domain) -> Option<ResourceId> {
        self.resources.iter().find(|resource| resource.domain == *domain).map(|resource| resource.id)
    }

    /// Adds a resource and returns its slot.
    pub(super) fn add_resource(&mut self, id: ResourceId, domain: Domain, config: AimdConfig) -> u32 {
        let place = self.queue.add_resource();
        self.resources.push(Resource::new(id, domain, place, config, self.cap));
        self.resources.len() as u32 - 1
    }
}

/// Groups.
impl ProviderModel {
    /// The queue's group of a request: that of its request group, or the resource's own.
    #[inline]
    pub(super) fn group(&mut self, slot: usize, named: Option<(u32, f64)>) -> QueueGroup {
        match named {
            None => self.resources[slot].place.own_group,
            Some((index, weight)) => self.queue.group(index, weight),
        }
    }

    /// Follows a change of a request group's weight.
    pub(super) fn set_group_weight(&mut self, index: u32, weight: f64) {
        self.queue.set_weight(index, weight);
    }

    /// Sets the weight of a resource's own group. The weight was validated.
    pub(super) fn set_own_weight(&mut self, slot: usize, weight: f64) {
        let _ = self.queue.fair.set_weight(self.resources[slot].place.own_group, weight);
    }
}

/// Room.
impl ProviderModel {
    #[inline]
    pub(super) fn is_cap_full(&self) -> bool {
        self.in_flight >= self.cap
    }

    pub(super) fn has_waiters(&self) -> bool {
        !self.queue.fair.is_empty()
    }

    /// Why a request could not go out at `now`, waiters aside.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a tenth of an uncontended call is otherwise spent on entering it")]
    pub(super) fn blocked(&self, now: Instant, slot: usize, request: &Request) -> Option<Denial> {
        let resource = &self.resources[slot];
        let block = resource.block(now, self.is_cap_full(), request.estimate)?;
        Some(resource.denial(now, block))
    }

    /// Whether serving the waiters, or a grant, or the end of a call may depend on the time, which is not before `latest`.
    #[inline]
    pub(super) fn uses_time(&self, latest: Instant) -> bool {
        self.resources.iter().any(|resource| resource.uses_time(latest))
    }

    /// When waiters have to be looked at again because of the time alone.
    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let waited = self.resources.iter().filter(|resource| resource.waiters > 0);
        waited.filter_map(|resource| resource.next_change(now)).min()
    }

    /// Lets the waiters of all resources be offered again.
    pub(super) fn unblock_all(&mut self) {
        for resource in &self.resources {
            self.queue.unblock(resource.place.blocked_set);
        }
    }

    /// Lets the waiters of one resource be offered again.
    pub(super) fn unblock(&mut self, slot: usize) {
        self.queue.unblock(self.resources[slot].place.blocked_set);
    }

    /// Lets the waiters be offered again that were blocked by their workers' task resources.
    pub(super) fn unblock_yielded(&mut self, set: crate::fair_queue::BlockedSetId) {
        self.queue.unblock(set);
    }
}

/// Calls.
impl ProviderModel {
    /// A request is about to be granted, queued or refused.
    #[inline]
    pub(super) fn on_attempt(&mut self, now: Instant, slot: usize, shared: &mut Shared) {
        self.resources[slot].controller.on_attempt(now);
        self.emit_ramp_steps(now, slot, shared);
    }

    /// The armed wake-up fell due: waiters may be free to go.
    pub(super) fn wake(&mut self, now: Instant, shared: &mut Shared) {
        for slot in 0..self.resources.len() {
            if self.resources[slot].waiters > 0 {
                self.emit_ramp_steps(now, slot, shared);
                self.unblock(slot);
            }
        }
    }

    /// A call has ended.
    #[inline]
    pub(super) fn end(&mut self, now: Instant, slot: usize, held: &Held, done: &Completion) {
        self.resources[slot].end(now, held, done);
        self.in_flight -= 1;
    }
}
