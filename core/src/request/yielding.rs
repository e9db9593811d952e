//! The waiters of request admission whose workers yield: see [`yielding`](crate::yielding).

use alloc::vec::Vec;

use super::keys::ResourceId;
use crate::fair_queue::{BlockedSetId, ClassId, GroupId};
use crate::id::{FixedMap, SlotKey};
use crate::order::WordMap;
use crate::yielding::{TaskResources, YieldToken};

/// A tied waiter's part of its entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct YieldingWaiter {
    pub(super) tie: YieldToken,
    pub(super) place: YieldClass,
    pub(super) state: YieldState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum YieldState {
    /// It holds nothing while it waits.
    Suspended,
    /// It waits with all it holds, and came in this order.
    Holding(u64),
}

/// Where the tied waiters of one resource and vector stand in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct YieldClass {
    pub(super) class: ClassId,
    /// For those whose request lease is free and whose vector is not.
    pub(super) set: BlockedSetId,
}

/// Waiters that hold what they would give up, by run, resource and vector, in order of arrival.
#[derive(Clone, Debug, Default)]
struct Holding(WordMap);

impl Holding {
    /// The words that begin the keys of a run's workers who wait alike.
    fn alike(run: u32, resource: ResourceId, vector: u32) -> [u64; 2] {
        [u64::from(run), u64::from(resource.0) << 32 | u64::from(vector)]
    }

    fn key_of(resource: ResourceId, tie: &YieldToken, arrival: u64) -> [u64; 3] {
        let [run, alike] = Self::alike(tie.run.slot, resource, tie.vector);
        [run, alike, arrival]
    }

    fn insert(&mut self, resource: ResourceId, tie: &YieldToken, arrival: u64, waiter: SlotKey) {
        self.0.insert(Self::key_of(resource, tie, arrival), waiter.to_bits());
    }

    fn remove(&mut self, resource: ResourceId, tie: &YieldToken, arrival: u64) {
        self.0.remove(Self::key_of(resource, tie, arrival));
    }

    /// The last to come of each resource and vector that workers of `run` wait with, and hold: whether it waits for
    /// `resource`, when it came, and who it is. O(log waiters) for each.
    fn latest(&self, run: u32, resource: ResourceId) -> impl Iterator<Item = (bool, u64, SlotKey)> {
        let run = u64::from(run);
        let mut below = [run + 1, 0, 0];
        core::iter::from_fn(move || {
            let ([of, alike, arrival], waiter) = self.0.last_before(below)?;
            below = [run, alike, 0];
            (of == run).then(|| (alike >> 32 == u64::from(resource.0), arrival, SlotKey::from_bits(waiter)))
        })
    }
}

/// All ties of a controller.
#[derive(Clone, Debug, Default)]
pub(super) struct YieldingWaiters {
    places: FixedMap<(ResourceId, u32, u32), YieldClass>,
    /// The groups of the runs, ascending by request group and run. Few, and never removed.
    groups: Vec<(GroupId, u32, GroupId)>,
    /// The waiters.
    waiting: FixedMap<SlotKey, YieldingWaiter>,
    holding: Holding,
    /// Lots in which somebody waits for a vector, each with one who does.
    shut: Vec<(BlockedSetId, YieldToken)>,
    arrivals: u64,
    /// A suspended waiter is next in turn and the task stage must be asked.
    pub(super) needs_resume: bool,
}

/// Places in the queue.
impl YieldingWaiters {
    pub(super) fn place(&self, resource: ResourceId, tie: &YieldToken) -> Option<YieldClass> {
        self.places.get(&(resource, tie.run.slot, tie.vector)).copied()
    }

    pub(super) fn add_place(&mut self, resource: ResourceId, tie: &YieldToken, place: YieldClass) {
        self.places.insert((resource, tie.run.slot, tie.vector), place);
    }

    /// The group that the tied waiters of a run have beside a request group.
    pub(super) fn group(&self, beside: GroupId, tie: &YieldToken) -> Option<GroupId> {
        self.place_of_group(beside, tie.run.slot).ok().map(|place| self.groups[place].2)
    }

    pub(super) fn add_group(&mut self, beside: GroupId, tie: &YieldToken, group: GroupId) {
        match self.place_of_group(beside, tie.run.slot) {
            Ok(place) => self.groups[place].2 = group,
            Err(place) => self.groups.insert(place, (beside, tie.run.slot, group)),
        }
    }

    /// The groups of all runs beside a request group.
    pub(super) fn groups_beside(&self, group: GroupId) -> impl Iterator<Item = GroupId> {
        let first = self.groups.partition_point(|(beside, ..)| *beside < group);
        self.groups[first..].iter().take_while(move |(beside, ..)| *beside == group).map(|(_, _, of_run)| *of_run)
    }

    fn place_of_group(&self, beside: GroupId, run: u32) -> Result<usize, usize> {
        self.groups.binary_search_by(|(group, of, _)| (*group, *of).cmp(&(beside, run)))
    }

    /// Whether there ever was a tied request.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        !self.places.is_empty()
    }

    pub(super) fn shut(&mut self, set: BlockedSetId, tie: YieldToken) {
        if !self.shut.iter().any(|(known, _)| *known == set) {
            self.shut.push((set, tie));
        }
    }

    /// The blocked_sets that are worth another look; they count as open from now on.
    pub(super) fn reopen(&mut self, mut is_open: impl FnMut(&YieldToken) -> bool, mut open: impl FnMut(BlockedSetId)) {
        self.shut.retain(|(set, tie)| {
            let opens = is_open(tie);
            if opens {
                open(*set);
            }
            !opens
        });
    }
}

/// Who holds what.
impl YieldingWaiters {
    /// The number of one more arrival.
    pub(super) fn arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    pub(super) fn get(&self, key: SlotKey) -> Option<YieldingWaiter> {
        self.waiting.get(&key).copied()
    }

    #[inline]
    pub(super) fn is_suspended(&self, key: SlotKey) -> bool {
        !self.waiting.is_empty() && self.get(key).is_some_and(|tied| tied.state == YieldState::Suspended)
    }

    pub(super) fn enter(&mut self, resource: ResourceId, key: SlotKey, tied: &YieldingWaiter) {
        self.waiting.insert(key, *tied);
        if let YieldState::Holding(arrival) = tied.state {
            self.holding.insert(resource, &tied.tie, arrival, key);
        }
    }

    pub(super) fn leave(&mut self, resource: ResourceId, key: SlotKey) -> Option<YieldingWaiter> {
        let tied = self.waiting.remove(&key)?;
        self.forget(resource, &tied);
        Some(tied)
    }

    /// It has given up what it held.
    pub(super) fn suspend(&mut self, resource: ResourceId, key: SlotKey) {
        let Some(tied) = self.waiting.get_mut(&key) else { return };
        let before = core::mem::replace(&mut tied.state, YieldState::Suspended);
        let held = YieldingWaiter { state: before, ..*tied };
        self.forget(resource, &held);
    }

    /// It holds nothing that it would give up.
    pub(super) fn forget(&mut self, resource: ResourceId, tied: &YieldingWaiter) {
        if let YieldState::Holding(arrival) = tied.state {
            self.holding.remove(resource, &tied.tie, arrival);
        }
    }

    /// Who is to give up what `tie` is short of. O(resources and vectors that workers of its run hold and wait with).
    pub(super) fn in_the_way(
        &self,
        resource: ResourceId,
        tie: &YieldToken,
        stage: &dyn TaskResources,
    ) -> Option<SlotKey> {
        let is_in_the_way =
            |waiter: &SlotKey| self.waiting.get(waiter).is_some_and(|other| stage.is_kept_by(tie, &other.tie));
        let in_the_way = self.holding.latest(tie.run.slot, resource).filter(|(.., waiter)| is_in_the_way(waiter));
        in_the_way.max_by_key(|(is_alike, arrival, _)| (*is_alike, *arrival)).map(|(.., waiter)| waiter)
    }
}
