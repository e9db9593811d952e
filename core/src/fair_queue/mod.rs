//! One generic weighted fair queue: whose turn is it?
//!
//! Items wait in first-in-first-out order inside a *group*; a group has a *weight*. There is one virtual time `V`,
//! starting at 0, and each group has a *finish tag*:
//!
//! ```text
//! a group becomes non-empty     tag = its last finish tag, or V if it never had one
//! the order of service          ascending (tag, activation sequence)
//! its head is served            V = max(V, tag);  tag = V + cost / weight
//! ```
//!
//! This is start-time fair queueing (Goyal, Vin, Cheng 1996) with the service itself as the clock. While a group always
//! has an item that may go, its service follows `V` to within one item, in units of cost per weight:
//!
//! ```text
//! |served_i / w_i - advance of V|      <=  Q_i + r_i            Q_i  its largest cost / weight
//! |served_i / w_i - served_j / w_j|    <=  Q_i + Q_j + r_i + r_j
//! r_i = (n_i + 1) (2^-33 + Q_i 2^-51)                           what n_i services may round away
//! ```
//!
//! over *every* interval, whoever else comes, goes or is blocked. The [proof](self#why-the-bound-holds) is below. A group
//! that was idle keeps its old tag, which is at most one early turn; then its tag follows `V`.
//!
//! ## Work is proportional to what moved
//!
//! Items of one *class* (one vector of resources, one request resource) are admissible together or not at all. Groups
//! are kept by the class of their head. When the caller's judge answers that a class is blocked, the whole class moves
//! to a *set*, the set of what waits for one thing, in O(log classes), and is not offered again until the caller
//! [opens](FairQueue::unblock) that set. An open set takes part in selection until its first member is refused again,
//! so a release re-offers as many groups as it makes room for and one more, however many wait.
//!
#![doc = include_str!("fairness.md")]

mod facts;
mod items;
mod nodes;
mod records;
mod scheduling;
mod work;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_work;

use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::error::{ConfigError, require};
use nodes::Nodes;
use records::{BlockedSet, Class, Group, NOWHERE};
use scheduling::{SchedulingHeap, SchedulingKey};

/// The smallest weight and the smallest cost: 2^-20.
pub const MIN_WEIGHT: f64 = 1.0 / 1_048_576.0;
/// The largest weight and the largest cost: 2^20.
pub const MAX_WEIGHT: f64 = 1_048_576.0;

/// Virtual time at which tags are rebased.
const REBASE_AT: f64 = 1_048_576.0;

/// A fairness group of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GroupId(pub(crate) u32);

/// Items that are admissible together or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub(crate) u32);

/// What blocked classes wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockedSetId(pub(crate) u32);

impl GroupId {
    /// The group's number, in order of registration from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The group with this number, to come back across a language boundary. A request in one that was never made is answered
    /// with [`DenialReason::Unregistered`](crate::request::DenialReason::Unregistered); a queue has to be given groups of its own.
    #[must_use]
    pub const fn from_index(index: u32) -> Self {
        Self(index)
    }
}

impl ClassId {
    /// The class's number, in order of registration from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The head of a group, offered to the judge of [`FairQueue::select`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The item's id.
    pub item: u64,
    /// Its group.
    pub group: GroupId,
    /// Its class.
    pub class: ClassId,
    /// Its cost.
    pub cost: f64,
}

/// The judge's answer about a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eligibility {
    /// Select it.
    Accept,
    /// Nothing of this class, nor of any other class in that set, can go until the set is opened.
    ClassBlocked(BlockedSetId),
    /// This group cannot go until it is [unparked](FairQueue::unpark).
    GroupBlocked,
    /// Not in this selection. The group keeps its turn and is offered again in the next.
    Skip,
    /// Nothing of this class in this selection. Its groups keep their turns and are offered again in the next.
    SkipClass,
}

/// An accepted candidate. It holds until the queue changes; [`FairQueue::commit`] refuses it after that.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Selection {
    /// What was selected.
    pub candidate: Candidate,
    version: u64,
}

/// A selection that was made before the queue changed. Nothing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue changed after this selection was made")]
pub struct StaleSelection;

/// The queue. See the [module documentation](self) for the order of service.
#[derive(Clone, Debug, Default)]
pub struct FairQueue {
    virtual_time: f64,
    sequence: u64,
    version: u64,
    nodes: Nodes,
    groups: Vec<Group>,
    classes: Vec<Class>,
    blocked_sets: Vec<BlockedSet>,
    /// In no particular order.
    open_sets: Vec<u32>,
    ready: SchedulingHeap,
    /// Groups judged [`Eligibility::GroupBlocked`], in order of turn.
    parked: SchedulingHeap,
    /// Groups passed over by the selection in progress; empty between calls.
    set_aside: Vec<u32>,
    /// Classes passed over by it; empty between calls.
    skipped_classes: Vec<u32>,
}

/// Registration.
impl FairQueue {
    /// An empty queue at virtual time 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a group. `weight` must lie in `MIN_WEIGHT..=MAX_WEIGHT`.
    pub fn add_group(&mut self, weight: f64) -> Result<GroupId, ConfigError> {
        check_weight(weight)?;
        let group = self.add_unit_group();
        self.groups[group.index()].weight = weight;
        Ok(group)
    }

    /// Adds a group of weight 1.
    pub fn add_unit_group(&mut self) -> GroupId {
        let id = GroupId(self.groups.len() as u32);
        self.groups.push(Group {
            weight: 1.0,
            finish: None,
            tag: 0.0,
            sequence: 0,
            head: NOWHERE,
            tail: NOWHERE,
            len: 0,
            place: NOWHERE,
            is_parked: false,
            demand: SmallVec::new(),
        });
        id
    }

    /// Changes a group's weight from its next service on.
    pub fn set_weight(&mut self, group: GroupId, weight: f64) -> Result<(), ConfigError> {
        check_weight(weight)?;
        self.groups[group.index()].weight = weight;
        Ok(())
    }

    /// Adds a class.
    pub fn add_class(&mut self) -> ClassId {
        let id = ClassId(self.classes.len() as u32);
        self.classes.push(Class { place: NOWHERE, set: NOWHERE, ..Class::default() });
        id
    }

    /// Adds a closed, empty set.
    pub fn add_blocked_set(&mut self) -> BlockedSetId {
        let id = BlockedSetId(self.blocked_sets.len() as u32);
        self.blocked_sets.push(BlockedSet::default());
        id
    }
}

/// Commands.
impl FairQueue {
    /// Offers heads in order of turn until the judge accepts one. Changes no turn.
    ///
    /// O(log groups) for each refusal that parks something; a skipped group costs as much and is offered again next
    /// time.
    pub fn select(&mut self, mut judge: impl FnMut(&Candidate) -> Eligibility) -> Option<Selection> {
        let selected = loop {
            let Some((group, class)) = self.front() else { break None };
            let candidate = self.candidate(group);
            work::offer();
            work::steps(3);
            match judge(&candidate) {
                Eligibility::Accept => break Some(Selection { candidate, version: self.version }),
                Eligibility::ClassBlocked(set) => self.park_class(class, set.0),
                Eligibility::GroupBlocked => {
                    self.exit(group);
                    self.groups[group as usize].is_parked = true;
                    self.parked.push(self.turn(group), group, &mut self.groups);
                }
                Eligibility::Skip => {
                    self.exit(group);
                    self.set_aside.push(group);
                }
                Eligibility::SkipClass => {
                    // What was offered is blocked by no set.
                    self.unseat(class);
                    self.classes[class as usize].set = NOWHERE;
                    self.skipped_classes.push(class);
                }
            }
        };
        while let Some(group) = self.set_aside.pop() {
            self.insert(group);
        }
        while let Some(class) = self.skipped_classes.pop() {
            self.reseat(class);
        }
        selected
    }

    /// Serves a selection: removes the item, advances virtual time, gives the group its next tag. O(log groups).
    ///
    /// # Errors
    /// [`StaleSelection`] if anything was enqueued, discarded or committed since; then nothing changes.
    pub fn commit(&mut self, selection: &Selection) -> Result<(), StaleSelection> {
        if selection.version != self.version {
            return Err(StaleSelection);
        }
        self.version += 1;
        let group = selection.candidate.group.0;
        // Mostly the next item is of the same class: then the group only moves among those of its class.
        let stays = self.stays_in_class(group, selection.candidate.class.0);
        if !stays {
            self.leave(group);
        }
        let entry = &mut self.groups[group as usize];
        self.virtual_time = self.virtual_time.max(entry.tag);
        entry.tag = self.virtual_time + selection.candidate.cost / entry.weight;
        entry.finish = Some(entry.tag);
        entry.sequence = self.sequence;
        self.sequence += 1;
        let (head, place) = (entry.head, entry.place);
        self.unlink(head);
        if stays {
            let (class, turn) = (selection.candidate.class.0, self.turn(group));
            self.classes[class as usize].groups.update(place, turn, &mut self.groups);
            self.reseat(class);
        } else if self.groups[group as usize].len > 0 {
            self.insert(group);
        }
        if self.virtual_time >= REBASE_AT {
            self.rebase();
        }
        Ok(())
    }

    /// Accounts for an item that is served the moment it arrives, exactly as `enqueue`, `select` and `commit` would.
    ///
    /// Only meaningful while nothing is queued that could go first. O(1).
    pub fn serve_directly(&mut self, group: GroupId, cost: f64) {
        debug_assert_eq!(self.groups[group.index()].len, 0, "an item that is queued in the same group goes first");
        self.version += 1;
        let entry = &mut self.groups[group.index()];
        self.virtual_time = self.virtual_time.max(entry.finish.unwrap_or(self.virtual_time));
        entry.finish = Some(self.virtual_time + cost / entry.weight);
        self.sequence += 2;
        if self.virtual_time >= REBASE_AT {
            self.rebase();
        }
    }

    /// Lets the classes of `set` take part in selection again, until the first of them is refused.
    pub fn unblock(&mut self, set: BlockedSetId) {
        work::steps(1);
        let entry = &mut self.blocked_sets[set.0 as usize];
        if !entry.open && !entry.classes.is_empty() {
            entry.open = true;
            self.open_sets.push(set.0);
        }
    }

    /// Moves a class to `set` and closes that, as if the first item of the class were offered and judged
    /// [`Eligibility::ClassBlocked`].
    #[inline]
    pub(crate) fn block_class(&mut self, class: ClassId, set: BlockedSetId) {
        if self.classes[class.index()].place != NOWHERE {
            self.park_class(class.0, set.0);
        }
    }

    /// Whether [`FairQueue::select`] may have anything to offer.
    #[inline]
    pub(crate) fn has_offers(&self) -> bool {
        !self.ready.is_empty() || !self.open_sets.is_empty()
    }

    /// Lets a group that was judged [`Eligibility::GroupBlocked`] take part again; harmless for any other.
    pub fn unpark(&mut self, group: GroupId) {
        if self.forget_parked(group.0) {
            self.insert(group.0);
        }
    }

    /// [Unparks](Self::unpark) every group.
    pub fn unpark_all(&mut self) {
        while let Some((_, group)) = self.parked.peek() {
            self.unpark(GroupId(group));
        }
    }

    /// Selects the first in turn of the groups that were judged [`Eligibility::GroupBlocked`]. O(1).
    #[must_use]
    pub fn select_parked(&self) -> Option<Selection> {
        let (_, group) = self.parked.peek()?;
        Some(Selection { candidate: self.candidate(group), version: self.version })
    }
}

/// The machinery of turns.
impl FairQueue {
    /// The group and class next in turn among ready classes and open blocked_sets.
    #[inline]
    fn front(&mut self) -> Option<(u32, u32)> {
        let mut best = self.ready.peek();
        let mut at = 0;
        while at < self.open_sets.len() {
            work::steps(1);
            let set = &mut self.blocked_sets[self.open_sets[at] as usize];
            let Some(entry) = set.classes.peek() else {
                set.open = false;
                self.open_sets.swap_remove(at);
                continue;
            };
            if best.is_none_or(|(turn, _)| entry.0.cmp(&turn).is_lt()) {
                best = Some(entry);
            }
            at += 1;
        }
        let (_, class) = best?;
        let (_, group) = self.classes[class as usize].groups.peek()?;
        Some((group, class))
    }

    fn candidate(&self, group: u32) -> Candidate {
        let node = &self.nodes[self.groups[group as usize].head];
        Candidate { item: node.id, group: GroupId(group), class: ClassId(node.class), cost: node.cost }
    }

    fn head_class(&self, group: u32) -> u32 {
        self.nodes[self.groups[group as usize].head].class
    }

    /// Whether a group that is in turn will be in turn among the same class when its head is gone.
    fn stays_in_class(&self, group: u32, class: u32) -> bool {
        let entry = &self.groups[group as usize];
        let heir = self.nodes[entry.head].next;
        !entry.is_parked && heir != NOWHERE && self.nodes[heir].class == class
    }

    /// Takes a group out of turn because its head goes away.
    fn leave(&mut self, group: u32) {
        if !self.forget_parked(group) {
            self.exit(group);
        }
    }

    /// Puts an active group in turn.
    fn insert(&mut self, group: u32) {
        work::steps(1);
        let class = self.head_class(group);
        let turn = self.turn(group);
        self.classes[class as usize].groups.push(turn, group, &mut self.groups);
        self.reseat(class);
    }

    fn turn(&self, group: u32) -> SchedulingKey {
        let Group { tag, sequence, .. } = self.groups[group as usize];
        SchedulingKey { tag, sequence }
    }

    /// Takes a group out of turn.
    fn exit(&mut self, group: u32) {
        work::steps(1);
        let class = self.head_class(group);
        let place = core::mem::replace(&mut self.groups[group as usize].place, NOWHERE);
        self.classes[class as usize].groups.remove(place, &mut self.groups);
        self.reseat(class);
    }

    fn forget_parked(&mut self, group: u32) -> bool {
        work::steps(1);
        let entry = &mut self.groups[group as usize];
        if !core::mem::take(&mut entry.is_parked) {
            return false;
        }
        let place = core::mem::replace(&mut entry.place, NOWHERE);
        self.parked.remove(place, &mut self.groups);
        true
    }

    /// Moves a blocked class to `set`, and closes the set: what blocks this class blocks all that wait there.
    #[inline]
    fn park_class(&mut self, class: u32, set: u32) {
        if self.classes[class as usize].set != set {
            self.unseat(class);
            self.classes[class as usize].set = set;
            self.reseat(class);
        }
        if core::mem::replace(&mut self.blocked_sets[set as usize].open, false) {
            work::steps(self.open_sets.len());
            if let Some(at) = self.open_sets.iter().position(|open| *open == set) {
                self.open_sets.swap_remove(at);
            }
        }
    }

    /// Brings a class's place among its peers up to date with its first group.
    fn reseat(&mut self, class: u32) {
        work::steps(1);
        let Class { ref groups, place, set, .. } = self.classes[class as usize];
        let Some((turn, _)) = groups.peek() else {
            self.unseat(class);
            self.classes[class as usize].set = NOWHERE;
            return;
        };
        let heap = if set == NOWHERE { &mut self.ready } else { &mut self.blocked_sets[set as usize].classes };
        if place == NOWHERE {
            heap.push(turn, class, &mut self.classes);
        } else {
            heap.update(place, turn, &mut self.classes);
        }
    }

    fn unseat(&mut self, class: u32) {
        work::steps(1);
        let entry = &mut self.classes[class as usize];
        let place = core::mem::replace(&mut entry.place, NOWHERE);
        if place == NOWHERE {
            return;
        }
        let heap =
            if entry.set == NOWHERE { &mut self.ready } else { &mut self.blocked_sets[entry.set as usize].classes };
        heap.remove(place, &mut self.classes);
    }

    /// Moves the origin of virtual time, so that tags keep their precision. O(groups), once in 2^20 of virtual time.
    fn rebase(&mut self) {
        // A multiple of 2^20 subtracts exactly from every tag at or above it.
        let base = REBASE_AT * ((self.virtual_time / REBASE_AT) as u64 as f64);
        // A tag far in the past only says "first"; bounding it keeps the subtraction meaningful for ever.
        let shift = |tag: f64| (tag - base).max(-4.0 * REBASE_AT);
        self.virtual_time = shift(self.virtual_time);
        work::steps(self.groups.len());
        for group in &mut self.groups {
            group.tag = shift(group.tag);
            group.finish = group.finish.map(shift);
        }
        for at in 0..self.classes.len() {
            let mut heap = core::mem::take(&mut self.classes[at].groups);
            heap.rewrite_tags(shift, &mut self.groups);
            self.classes[at].groups = heap;
        }
        self.parked.rewrite_tags(shift, &mut self.groups);
        self.ready.rewrite_tags(shift, &mut self.classes);
        for set in &mut self.blocked_sets {
            set.classes.rewrite_tags(shift, &mut self.classes);
        }
    }
}

fn check_weight(weight: f64) -> Result<(), ConfigError> {
    require((MIN_WEIGHT..=MAX_WEIGHT).contains(&weight), "weight", weight, "a number from 2^-20 to 2^20")
}
