//! Waiting without holding: a worker gives its task-stage resources back while it waits for a request lease.
//!
//! A request that is made through [`RequestAdmission::acquire_tied`](super::RequestAdmission::acquire_tied) is *tied* to
//! the worker that makes it. If it must wait, the worker is *suspended*: it holds no resource of the task stage, so a
//! provider that pauses keeps no slot from work that could go elsewhere. It is granted its request lease only together
//! with all it gave back, in one transaction: it never holds the one while it waits for the other.
//!
//! - At most [`YIELD_FACTOR`] x effective max workers are suspended for each resource as they come. Those beyond wait with
//!   what they hold, and give it up when a suspended worker of their run could go if it had that: whoever would give it
//!   up for the same resource first, and of those the last to come.
//! - Suspended workers resume before anything new is started: see
//!   [`RequestAdmission::serve_tied`](super::RequestAdmission::serve_tied).
//! - The tied waiters of a run stand in a group of their own beside the request group, of the same weight: who waits with
//!   empty hands never keeps others from going that need nothing else.
//! - A worker that was refused (its deadline passed, say) stays suspended until its next tied request is granted or it ends.
//!
//! Request admission knows of the task stage only what [`TaskStage`] says; the [pipeline](crate::pipeline::Pipeline) is one.

use alloc::vec::Vec;

use crate::fair_queue::{ClassId, GroupId, LotId};
use crate::handle::{FixedMap, SlotKey};
use crate::order::WordMap;
use crate::time::Instant;

use super::keys::ResourceId;

/// How many workers may be suspended for each call that a resource can ever have out.
pub const YIELD_FACTOR: u32 = 2;

/// The worker behind a tied request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tie {
    /// The run, among those that share the controller. A number that is used again needs another generation.
    pub run: SlotKey,
    /// The worker, among those of its run.
    pub worker: SlotKey,
    /// What it holds, as a number of its run: workers of equal vectors have equal numbers. Small numbers, please: every
    /// pair of resource and vector that ever waited is remembered.
    pub vector: u32,
}

/// The task stage, as request admission sees it.
pub trait TaskStage {
    /// Takes back all that a worker holds. False if it goes on holding it: it may not yield, or it is unknown.
    fn suspend(&mut self, now: Instant, tie: &Tie) -> bool;

    /// Gives a worker all that it gave back, or nothing. True too for a worker that holds it still.
    fn resume(&mut self, now: Instant, tie: &Tie) -> bool;

    /// Whether [`TaskStage::resume`] would answer true.
    fn can_resume(&self, tie: &Tie) -> bool;

    /// Whether `other` holds some of what a worker that cannot resume is short of.
    fn is_kept_by(&self, tie: &Tie, other: &Tie) -> bool;
}

/// A tied waiter's part of its entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tied {
    pub(super) tie: Tie,
    pub(super) place: TiePlace,
    pub(super) state: TieState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TieState {
    /// It holds nothing while it waits.
    Suspended,
    /// It waits with all it holds, and came in this order.
    Holding(u64),
}

/// Where the tied waiters of one resource and vector stand in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TiePlace {
    pub(super) class: ClassId,
    /// For those whose request lease is free and whose vector is not.
    pub(super) lot: LotId,
}

/// Waiters that hold what they would give up, by run, resource and vector, in order of arrival.
#[derive(Clone, Debug, Default)]
struct Holding(WordMap);

impl Holding {
    /// The words that begin the keys of a run's workers who wait alike.
    fn alike(run: u32, resource: ResourceId, vector: u32) -> [u64; 2] {
        [u64::from(run), u64::from(resource.0) << 32 | u64::from(vector)]
    }

    fn key_of(resource: ResourceId, tie: &Tie, arrival: u64) -> [u64; 3] {
        let [run, alike] = Self::alike(tie.run.slot, resource, tie.vector);
        [run, alike, arrival]
    }

    fn insert(&mut self, resource: ResourceId, tie: &Tie, arrival: u64, waiter: SlotKey) {
        self.0.insert(Self::key_of(resource, tie, arrival), waiter.to_bits());
    }

    fn remove(&mut self, resource: ResourceId, tie: &Tie, arrival: u64) {
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
pub(super) struct Ties {
    places: FixedMap<(ResourceId, u32, u32), TiePlace>,
    /// The groups of the runs, ascending by request group and run. Few, and never removed.
    groups: Vec<(GroupId, u32, GroupId)>,
    /// The waiters.
    waiting: FixedMap<SlotKey, Tied>,
    holding: Holding,
    /// Lots in which somebody waits for a vector, each with one who does.
    shut: Vec<(LotId, Tie)>,
    arrivals: u64,
    /// A suspended waiter is next in turn and the task stage must be asked.
    pub(super) wants_stage: bool,
}

/// Places in the queue.
impl Ties {
    pub(super) fn place(&self, resource: ResourceId, tie: &Tie) -> Option<TiePlace> {
        self.places.get(&(resource, tie.run.slot, tie.vector)).copied()
    }

    pub(super) fn add_place(&mut self, resource: ResourceId, tie: &Tie, place: TiePlace) {
        self.places.insert((resource, tie.run.slot, tie.vector), place);
    }

    /// The group that the tied waiters of a run have beside a request group.
    pub(super) fn group(&self, beside: GroupId, tie: &Tie) -> Option<GroupId> {
        self.place_of_group(beside, tie.run.slot).ok().map(|place| self.groups[place].2)
    }

    pub(super) fn add_group(&mut self, beside: GroupId, tie: &Tie, group: GroupId) {
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

    pub(super) fn shut(&mut self, lot: LotId, tie: Tie) {
        if !self.shut.iter().any(|(known, _)| *known == lot) {
            self.shut.push((lot, tie));
        }
    }

    /// The lots that are worth another look; they count as open from now on.
    pub(super) fn reopen(&mut self, mut is_open: impl FnMut(&Tie) -> bool, mut open: impl FnMut(LotId)) {
        self.shut.retain(|(lot, tie)| {
            let opens = is_open(tie);
            if opens {
                open(*lot);
            }
            !opens
        });
    }
}

/// Who holds what.
impl Ties {
    /// The number of one more arrival.
    pub(super) fn arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    pub(super) fn get(&self, key: SlotKey) -> Option<Tied> {
        self.waiting.get(&key).copied()
    }

    #[inline]
    pub(super) fn is_suspended(&self, key: SlotKey) -> bool {
        !self.waiting.is_empty() && self.get(key).is_some_and(|tied| tied.state == TieState::Suspended)
    }

    pub(super) fn enter(&mut self, resource: ResourceId, key: SlotKey, tied: &Tied) {
        self.waiting.insert(key, *tied);
        if let TieState::Holding(arrival) = tied.state {
            self.holding.insert(resource, &tied.tie, arrival, key);
        }
    }

    pub(super) fn leave(&mut self, resource: ResourceId, key: SlotKey) -> Option<Tied> {
        let tied = self.waiting.remove(&key)?;
        self.forget(resource, &tied);
        Some(tied)
    }

    /// It has given up what it held.
    pub(super) fn suspend(&mut self, resource: ResourceId, key: SlotKey) {
        let Some(tied) = self.waiting.get_mut(&key) else { return };
        let before = core::mem::replace(&mut tied.state, TieState::Suspended);
        let held = Tied { state: before, ..*tied };
        self.forget(resource, &held);
    }

    /// It holds nothing that it would give up.
    pub(super) fn forget(&mut self, resource: ResourceId, tied: &Tied) {
        if let TieState::Holding(arrival) = tied.state {
            self.holding.remove(resource, &tied.tie, arrival);
        }
    }

    /// Who is to give up what `tie` is short of. O(resources and vectors that workers of its run hold and wait with).
    pub(super) fn in_the_way(&self, resource: ResourceId, tie: &Tie, stage: &dyn TaskStage) -> Option<SlotKey> {
        let is_in_the_way =
            |waiter: &SlotKey| self.waiting.get(waiter).is_some_and(|other| stage.is_kept_by(tie, &other.tie));
        let in_the_way = self.holding.latest(tie.run.slot, resource).filter(|(.., waiter)| is_in_the_way(waiter));
        in_the_way.max_by_key(|(is_alike, arrival, _)| (*is_alike, *arrival)).map(|(.., waiter)| waiter)
    }
}
