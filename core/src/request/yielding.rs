//! The waiters whose workers can yield: return their task resources while they wait. See
//! [`yielding`](crate::yielding).
//!
//! A yielding waiter is *holding* its task resources or has *yielded* them. Waiters of one resource and run
//! with equal task resources share a class of the queue, so that a shortage of these task resources blocks
//! exactly these waiters.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::keys::{ProviderModelId, ResourceId};
use super::waiter::Waiter;
use crate::fair_queue::{BlockedSetId, ClassId};
use crate::id::{SlotKey, Slots};
use crate::map::Map;
use crate::time::Instant;
use crate::yielding::{TaskResources, TaskToken};

/// The yielding part of a waiter.
#[derive(Clone, Copy, Debug)]
pub(super) struct YieldingWaiter {
    pub(super) token: TaskToken,
    pub(super) class: YieldClass,
    pub(super) state: YieldState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum YieldState {
    /// Its worker holds no task resources while it waits.
    Yielded,
    /// Its worker keeps its task resources while it waits. The value is its arrival number.
    Holding(u64),
}

/// The queue class of the waiters of one resource, run and demand. Waiters that were undecided on
/// arrival have a separate class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct YieldClass {
    pub(super) class: ClassId,
    /// The blocked set of waiters whose call could start but whose task resources are not free.
    pub(super) blocked_set: BlockedSetId,
}

/// A blocked set of yielded waiters, with the token of one waiter in it.
#[derive(Clone, Copy, Debug)]
struct BlockedYield {
    provider: ProviderModelId,
    set: BlockedSetId,
    token: TaskToken,
}

/// Waiters that hold task resources and may yield them, by run, resource, demand and arrival.
type Holding = BTreeMap<(u32, ResourceId, Option<u32>, u64), SlotKey>;

/// All yielding waiters of one request admission.
#[derive(Clone, Debug, Default)]
pub(super) struct YieldingWaiters {
    classes: Map<(ResourceId, u32, Option<u32>, bool), YieldClass>,
    entries: Map<SlotKey, YieldingWaiter>,
    holding: Holding,
    blocked: Vec<BlockedYield>,
    /// The number of yielded waiters, by the index of their resource.
    yielded: Vec<u32>,
    arrivals: u64,
    /// The index of the provider and model whose yielded waiter was served last. The next pass starts after
    /// it, so that no provider always comes first when all compete for the same task resources.
    pub(super) last_resumed: usize,
    /// Whether [`TaskResources`] are needed: a yielded waiter is next in turn and must get its task resources
    /// back, or [holding waiters must yield](Self::must_yield).
    pub(super) needs_resume: bool,
    /// Whether a provider went down and waiters that hold task resources may wait for it.
    must_yield: bool,
}

/// Classes and blocked sets.
impl YieldingWaiters {
    pub(super) fn class(&self, resource: ResourceId, token: &TaskToken, is_undecided: bool) -> Option<YieldClass> {
        self.classes.get(&(resource, token.run.slot, token.demand, is_undecided)).copied()
    }

    pub(super) fn add_class(&mut self, resource: ResourceId, token: &TaskToken, is_undecided: bool, class: YieldClass) {
        self.classes.insert((resource, token.run.slot, token.demand, is_undecided), class);
    }

    /// Returns whether there ever was a yielding request.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        !self.classes.is_empty()
    }

    /// Records that the waiters in `set` are blocked because the task resources of `token` are not free.
    pub(super) fn block(&mut self, provider: ProviderModelId, set: BlockedSetId, token: TaskToken) {
        if !self.blocked.iter().any(|known| known.provider == provider && known.set == set) {
            self.blocked.push(BlockedYield { provider, set, token });
        }
    }

    /// Removes and unblocks the blocked sets for whose token `can_resume` returns `true`.
    pub(super) fn unblock(
        &mut self,
        mut can_resume: impl FnMut(&TaskToken) -> bool,
        mut unblock: impl FnMut(ProviderModelId, BlockedSetId),
    ) {
        self.blocked.retain(|blocked| {
            let is_open = can_resume(&blocked.token);
            if is_open {
                unblock(blocked.provider, blocked.set);
            }
            !is_open
        });
    }
}

/// Waiters.
impl YieldingWaiters {
    /// Returns the number of the next arrival, counted from 1.
    pub(super) fn next_arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    pub(super) fn get(&self, key: SlotKey) -> Option<YieldingWaiter> {
        self.entries.get(&key).copied()
    }

    #[inline]
    pub(super) fn is_yielded(&self, key: SlotKey) -> bool {
        !self.entries.is_empty() && self.get(key).is_some_and(|entry| entry.state == YieldState::Yielded)
    }

    /// Returns the number of waiters of a resource that have yielded.
    pub(super) fn yielded(&self, resource: ResourceId) -> u32 {
        self.yielded.get(resource.index()).copied().unwrap_or(0)
    }

    pub(super) fn insert(&mut self, resource: ResourceId, key: SlotKey, entry: &YieldingWaiter) {
        self.entries.insert(key, *entry);
        match entry.state {
            YieldState::Yielded => *self.yielded_mut(resource) += 1,
            YieldState::Holding(arrival) => {
                self.holding.insert(holding_key(resource, &entry.token, arrival), key);
            }
        }
    }

    pub(super) fn remove(&mut self, resource: ResourceId, key: SlotKey) {
        if let Some(entry) = self.entries.remove(&key) {
            match entry.state {
                YieldState::Yielded => *self.yielded_mut(resource) -= 1,
                YieldState::Holding(_) => self.remove_holding(resource, &entry),
            }
        }
    }

    /// Records that a provider went down: the waiters of that provider must yield their task resources.
    pub(super) fn mark_down(&mut self) {
        self.must_yield = !self.holding.is_empty();
        self.needs_resume |= self.must_yield;
    }

    /// Returns all waiters that hold task resources, if a provider went down since the last call of this
    /// function.
    pub(super) fn holders_after_outage(&mut self) -> Vec<SlotKey> {
        if core::mem::take(&mut self.must_yield) { self.holding.values().copied().collect() } else { Vec::new() }
    }

    /// Records that the worker of a waiter has returned its task resources.
    pub(super) fn set_yielded(&mut self, resource: ResourceId, key: SlotKey) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let before = YieldingWaiter { state: core::mem::replace(&mut entry.state, YieldState::Yielded), ..*entry };
        if before.state != YieldState::Yielded {
            *self.yielded_mut(resource) += 1;
            self.remove_holding(resource, &before);
        }
    }

    fn yielded_mut(&mut self, resource: ResourceId) -> &mut u32 {
        let index = resource.index();
        if self.yielded.len() <= index {
            self.yielded.resize(index + 1, 0);
        }
        &mut self.yielded[index]
    }

    /// Removes a waiter from the candidates to yield.
    fn remove_holding(&mut self, resource: ResourceId, entry: &YieldingWaiter) {
        if let YieldState::Holding(arrival) = entry.state {
            self.holding.remove(&holding_key(resource, &entry.token, arrival));
        }
    }
}

/// Resuming.
impl YieldingWaiters {
    /// Gets the task resources of a yielded worker back. Returns whether that succeeded. If resources are
    /// missing, waiters that hold them yield them, one waiter at a time.
    pub(super) fn resume(
        &mut self,
        now: Instant,
        tasks: &mut dyn TaskResources,
        token: &TaskToken,
        resource: ResourceId,
        waiters: &Slots<Waiter>,
    ) -> bool {
        while !tasks.resume(now, token) {
            let Some(key) = self.victim(resource, token, tasks) else { return false };
            let (Some(other), Some(at)) = (self.get(key), waiters.get(key).map(|waiter| waiter.resource)) else {
                return false;
            };
            if tasks.yield_resources(now, &other.token) {
                self.set_yielded(at, key);
            } else {
                // This worker cannot yield. Do not try it again.
                self.remove_holding(at, &other);
            }
        }
        true
    }

    /// Returns the waiter to yield so that `token` can resume: the last to arrive among the waiters for the
    /// same resource, or else the last to arrive of all. O(pairs of resource and demand that waiters of its
    /// run hold).
    fn victim(&self, resource: ResourceId, token: &TaskToken, tasks: &dyn TaskResources) -> Option<SlotKey> {
        let blocks = |waiter: &SlotKey| self.entries.get(waiter).is_some_and(|other| tasks.blocks(&other.token, token));
        let candidates = self.latest_holders(token.run.slot).filter(|(.., waiter)| blocks(waiter));
        candidates.max_by_key(|(of, arrival, _)| (*of == resource, *arrival)).map(|(.., waiter)| waiter)
    }

    /// Returns, for each resource and demand held by waiters of `run`, the waiter that arrived last. O(log
    /// waiters) per item.
    fn latest_holders(&self, run: u32) -> impl Iterator<Item = (ResourceId, u64, SlotKey)> {
        let lowest = (run, ResourceId::new(0, 0), None, 0);
        let mut below = (run + 1, ResourceId::new(0, 0), None, 0);
        core::iter::from_fn(move || {
            let ((_, resource, demand, arrival), waiter) = self.holding.range(lowest..below).next_back()?;
            below = (run, *resource, *demand, 0);
            Some((*resource, *arrival, *waiter))
        })
    }
}

fn holding_key(resource: ResourceId, token: &TaskToken, arrival: u64) -> (u32, ResourceId, Option<u32>, u64) {
    (token.run.slot, resource, token.demand, arrival)
}
