//! A generic weighted fair queue. It decides which group is served next.
//!
//! A *group* has a *weight* and one or more *FIFOs*. The items of one FIFO are served in order of arrival. A
//! *turn* is one service of a group. There is one virtual time `V`, which starts at 0, and each group has a
//! *finish tag*:
//!
//! ```text
//! a group becomes non-empty     tag = its last finish tag, or V if it never had one
//! the order of service          ascending (tag, activation sequence)
//! one of its heads is served    V = max(V, tag);  tag = V + cost / weight
//! ```
//!
//! The head of each FIFO is a candidate. The FIFOs of a group share its tag. A group that waits for several
//! things at the same time therefore gets the share of one group, and a blocked FIFO does not delay the
//! others. The activation sequence orders the FIFOs of one group: a FIFO is activated when it becomes
//! non-empty and again by each of its own services, so the FIFOs take turns. Most groups have one FIFO.
//!
//! This is start-time fair queueing (Goyal, Vin, Cheng 1996) with the service itself as the clock: the tag at
//! which a service of a group ends is the one at which its next service starts. While one
//! of a group's heads can always be served, the service of the group follows `V` to within one item, in units
//! of cost per weight:
//!
//! ```text
//! |served_i / w_i - advance of V|      <=  Q_i + r_i            Q_i  its largest cost / weight
//! |served_i / w_i - served_j / w_j|    <=  Q_i + Q_j + r_i + r_j
//! r_i = (n_i + 1) (2^-33 + Q_i 2^-51)                           the rounding error of n_i services
//! ```
//!
//! This holds over *every* interval, regardless of which other groups come, go or are blocked. The
//! [proof](self#why-the-bound-holds) is below. A group that was idle keeps its old tag, which gives it at
//! most one early turn. After that its tag follows `V`.
//!
//! ## Work is proportional to the changes
//!
//! Items of one *class* (one demand of tasks, or one request resource) are either all admissible or all
//! blocked. FIFOs are grouped by the class of their head. When the caller's predicate reports that a class is
//! blocked, the whole class moves to a *blocked set* in O(log classes). A blocked set holds everything that
//! waits for one thing. It is not offered again until the caller [unblocks](FairQueue::unblock) it. An
//! unblocked set takes part in selection until its first member is rejected again. A release therefore offers
//! as many heads as it makes room for, plus one, regardless of how many wait.
//!
//! ## Refunds
//!
//! A turn may have no result for its group, because the provider refuses the call for a rate limit. A
//! [refund](FairQueue::refund) then returns the cost of the turn, so groups share *answered* calls. Without
//! refunds, a group may take all its turns at the wrong instants. For example, let a provider answer only the
//! first call of each burst of 24, and let two groups alternate. Since 24 is even, the same group starts
//! every burst, and only that group is answered.
//!
//! ```text
//! F = max(tag, V - lag)               where the group's next service begins
//! a turn of this cost is refunded     tag = F - cost / weight;  lag = max(0, V - tag)
//! one of its heads is served          V = max(V, F);  tag = F + cost / weight;
//!                                     lag = min(lag, max(0, V - tag))
//! ```
//!
//! `lag` is how far below `V` refunds may have taken the group. Without refunds it is 0, and the order is the
//! one above. `V` never moves back. An idle group keeps its lag but gains no more, and a new group begins at
//! `V`, after the refunded turns of others.
//!
//! The refunds of a group are bounded. Otherwise a group whose calls are all refused, because its own limit
//! at the provider is reached, would always be first and take all slots. Refunds may change *which* turns a
//! group has, but not how many.
//!
//! - `G` is the allowance: the cost per unit of weight that each group may have been refunded so far.
//! - `lead_i` is how far the refunds of group `i` are ahead of `G`.
//! - `S` is the weight of all groups that wait when the turn is taken.
//! - `most` is an argument of [`FairQueue::refund`]: the turns that the group has in flight.
//! - A turn is answered when [`FairQueue::answered`] is called for it.
//!
//! ```text
//! a turn of group i is refunded     lead_i = max(0, lead_i - change of G since the last refund)
//!                                            + cost / w_i - cost / S
//!                                   G = G + cost / S
//! the refund is rejected            if lead_i would exceed `most` times cost / w_i
//! a turn of any group is answered   G = G + 2 cost / S
//! ```
//!
//! A group is therefore refunded its share of all refunds, and of two more turns for each answered one. If
//! all groups are refused alike, `lead` stays near 0 and every refused turn is refunded. Groups that are
//! always refused, however many, get at most three times their share of turns, plus a fixed number.
#![doc = include_str!("fairness.md")]

mod items;
mod nodes;
mod records;
mod refund;
mod scheduling;
mod service_order;
mod stats;
mod work;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_refund;
#[cfg(test)]
mod tests_work;

use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::error::{ConfigError, require};
use nodes::Nodes;
use records::{BlockedSet, Class, Fifo, Group, NOWHERE};
pub use refund::ServiceRecord;
use scheduling::SchedulingHeap;

/// The smallest weight and the smallest cost: 2^-20.
pub const MIN_WEIGHT: f64 = 1.0 / 1_048_576.0;
/// The largest weight and the largest cost: 2^20.
pub const MAX_WEIGHT: f64 = 1_048_576.0;

/// The virtual time at which tags are rebased.
const REBASE_AT: f64 = 1_048_576.0;

/// A fairness group of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct QueueGroupId(pub(crate) u32);

/// A first-in-first-out queue of a group. The FIFOs of a group share its weight and its finish tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FifoId(pub(crate) u32);

/// A class of items that are either all admissible or all blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub(crate) u32);

/// A set of classes that are blocked by the same thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockedSetId(pub(crate) u32);

impl QueueGroupId {
    /// Returns the number of the group, in order of registration from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl ClassId {
    /// Returns the number of the class, in order of registration from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The head of a FIFO, offered to the predicate of [`FairQueue::select`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The id of the item.
    pub item: u64,
    /// The group of the item.
    pub group: QueueGroupId,
    /// The class of the item.
    pub class: ClassId,
    /// The cost of the item.
    pub cost: f64,
}

/// The predicate's answer about a candidate.
///
/// Exhaustive on purpose: callers create it, and only the queue reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eligibility {
    /// Select the candidate.
    Accept,
    /// No item of this class, nor of any other class in that set, is admissible until the set is
    /// [unblocked](FairQueue::unblock).
    ClassBlocked(BlockedSetId),
    /// This group is not admissible until it is [unparked](FairQueue::unpark).
    GroupBlocked,
    /// Skip the candidate in this selection. The group keeps its turn and is offered again in the next
    /// selection.
    Skip,
    /// Skip every candidate of this class in this selection. Its groups keep their turns and are offered
    /// again in the next selection.
    SkipClass,
}

/// An accepted candidate. It is valid until the queue changes, and [`FairQueue::commit`] rejects it after
/// that.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Selection {
    /// The selected candidate.
    pub candidate: Candidate,
    fifo: u32,
    version: u64,
}

/// The error for a selection that was made before the queue changed. The queue is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue changed after this selection was made")]
pub struct StaleSelection;

/// The bytes that a queued item uses: its node, and its entry in the index by id.
#[cfg(test)]
pub(crate) const ITEM_BYTES: usize = size_of::<records::Node>() + size_of::<(u64, u32)>();

/// A weighted fair queue. See the [module documentation](self) for the order of service.
#[derive(Clone, Debug, Default)]
pub struct FairQueue {
    virtual_time: f64,
    sequence: u64,
    version: u64,
    nodes: Nodes,
    groups: Vec<Group>,
    fifos: Vec<Fifo>,
    classes: Vec<Class>,
    blocked_sets: Vec<BlockedSet>,
    /// The unblocked sets, in no particular order.
    open_sets: Vec<u32>,
    ready: SchedulingHeap,
    /// The weight of the groups that have items, in [`WEIGHT_UNITS`](refund::WEIGHT_UNITS).
    waiting_weight: u64,
    /// The refunds that each group may have, in cost per weight: its share of all refunds, and of some more
    /// for each answer. This is `G` in the module documentation.
    allowed: f64,
    /// The FIFOs of groups with the answer [`Eligibility::GroupBlocked`], in order of turn.
    parked: SchedulingHeap,
    /// The FIFOs skipped by the current selection. Empty between calls.
    set_aside: Vec<u32>,
    /// The classes skipped by the current selection. Empty between calls.
    skipped_classes: Vec<u32>,
}

/// Registration.
impl FairQueue {
    /// Creates an empty queue at virtual time 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a group. `weight` must lie in `MIN_WEIGHT..=MAX_WEIGHT`.
    pub fn add_group(&mut self, weight: f64) -> Result<QueueGroupId, ConfigError> {
        check_weight(weight)?;
        let group = self.add_unit_group();
        self.groups[group.index()].weight = weight;
        Ok(group)
    }

    /// Adds a group of weight 1.
    pub fn add_unit_group(&mut self) -> QueueGroupId {
        let id = QueueGroupId(self.groups.len() as u32);
        self.groups.push(Group {
            weight: 1.0,
            finish: None,
            tag: 0.0,
            lag: 0.0,
            lead: 0.0,
            allowed_seen: self.allowed,
            len: 0,
            fifos: SmallVec::new(),
            demand: SmallVec::new(),
        });
        self.add_fifo(id);
        id
    }

    /// Adds a FIFO to a group. A group starts with one.
    pub fn add_fifo(&mut self, group: QueueGroupId) -> FifoId {
        let id = FifoId(self.fifos.len() as u32);
        self.groups[group.index()].fifos.push(id.0);
        self.fifos.push(Fifo {
            group: group.0,
            sequence: 0,
            head: NOWHERE,
            tail: NOWHERE,
            len: 0,
            heap_index: NOWHERE,
            is_parked: false,
        });
        id
    }

    /// Returns the FIFO that a group starts with.
    #[must_use]
    pub fn first_fifo(&self, group: QueueGroupId) -> FifoId {
        FifoId(self.groups[group.index()].fifos[0])
    }

    /// Changes the weight of a group, from its next service on.
    pub fn set_weight(&mut self, group: QueueGroupId, weight: f64) -> Result<(), ConfigError> {
        check_weight(weight)?;
        let entry = &mut self.groups[group.index()];
        if entry.len > 0 {
            self.waiting_weight =
                self.waiting_weight.wrapping_sub(refund::units(entry.weight)).wrapping_add(refund::units(weight));
        }
        entry.weight = weight;
        Ok(())
    }

    /// Adds a class.
    pub fn add_class(&mut self) -> ClassId {
        let id = ClassId(self.classes.len() as u32);
        self.classes.push(Class { heap_index: NOWHERE, blocked_set: NOWHERE, ..Class::default() });
        id
    }

    /// Adds an empty blocked set.
    pub fn add_blocked_set(&mut self) -> BlockedSetId {
        let id = BlockedSetId(self.blocked_sets.len() as u32);
        self.blocked_sets.push(BlockedSet::default());
        id
    }
}

/// Commands.
impl FairQueue {
    /// Offers heads in order of service until `predicate` accepts one. Changes no tag.
    ///
    /// Each answer that blocks a class or a group costs O(log groups). A skipped candidate costs as much and
    /// is offered again in the next selection.
    pub fn select(&mut self, mut predicate: impl FnMut(&Candidate) -> Eligibility) -> Option<Selection> {
        let selected = loop {
            let Some((fifo, class)) = self.front() else { break None };
            let candidate = self.candidate(fifo);
            work::offer();
            work::steps(3);
            match predicate(&candidate) {
                Eligibility::Accept => break Some(Selection { candidate, fifo, version: self.version }),
                Eligibility::ClassBlocked(set) => self.park_class(class, set.0),
                Eligibility::GroupBlocked => {
                    self.exit(fifo);
                    self.fifos[fifo as usize].is_parked = true;
                    self.parked.push(self.key(fifo), fifo, &mut self.fifos);
                }
                Eligibility::Skip => {
                    self.exit(fifo);
                    self.set_aside.push(fifo);
                }
                Eligibility::SkipClass => {
                    // An offered class is in no blocked set from here on.
                    self.clear_position(class);
                    self.classes[class as usize].blocked_set = NOWHERE;
                    self.skipped_classes.push(class);
                }
            }
        };
        while let Some(fifo) = self.set_aside.pop() {
            self.insert(fifo);
        }
        while let Some(class) = self.skipped_classes.pop() {
            self.restore_position(class);
        }
        selected
    }

    /// Serves a selection: removes the item, advances virtual time and sets the group's next tag.
    /// O(log groups).
    ///
    /// # Errors
    ///
    /// Returns [`StaleSelection`], and changes nothing, if an item was enqueued, removed or served, or a turn
    /// was refunded, since the selection was made.
    pub fn commit(&mut self, selection: &Selection) -> Result<(), StaleSelection> {
        if selection.version != self.version {
            return Err(StaleSelection);
        }
        self.version += 1;
        let (fifo, class) = (selection.fifo, selection.candidate.class.0);
        // The next item usually has the same class. The FIFO then only moves within its class.
        let stays = self.stays_in_class(fifo, class);
        if !stays {
            self.leave(fifo);
        }
        let group = &mut self.groups[selection.candidate.group.index()];
        self.virtual_time = group.serve(group.tag, selection.candidate.cost, self.virtual_time);
        let entry = &mut self.fifos[fifo as usize];
        entry.sequence = self.sequence;
        self.sequence += 1;
        let (head, heap_index) = (entry.head, entry.heap_index);
        self.unlink(head);
        if stays {
            let key = self.key(fifo);
            self.classes[class as usize].fifos.update(heap_index, key, &mut self.fifos);
            self.restore_position(class);
        } else if self.fifos[fifo as usize].len > 0 {
            self.insert(fifo);
        }
        let group = &self.groups[selection.candidate.group.index()];
        if group.len > self.fifos[fifo as usize].len {
            self.move_fifos(selection.candidate.group, Some(fifo));
        }
        if self.virtual_time >= REBASE_AT {
            self.rebase();
        }
        Ok(())
    }

    /// Accounts for an item that is served at the moment it arrives, exactly as `enqueue`, `select` and
    /// `commit` would. O(1).
    ///
    /// Only meaningful while nothing is queued that could be served first.
    pub fn serve_directly(&mut self, group: QueueGroupId, cost: f64) {
        debug_assert_eq!(self.groups[group.index()].len, 0, "an item that is queued in the same group goes first");
        self.version += 1;
        let entry = &mut self.groups[group.index()];
        let tag = entry.finish.unwrap_or(self.virtual_time);
        self.virtual_time = entry.serve(tag, cost, self.virtual_time);
        self.sequence += 2;
        if self.virtual_time >= REBASE_AT {
            self.rebase();
        }
    }

    /// Makes the classes of `set` take part in selection again, until the first of them is rejected.
    pub fn unblock(&mut self, set: BlockedSetId) {
        work::steps(1);
        let entry = &mut self.blocked_sets[set.0 as usize];
        if !entry.open && !entry.classes.is_empty() {
            entry.open = true;
            self.open_sets.push(set.0);
        }
    }

    /// Moves a class to `set` and blocks the set, as if the first item of the class were offered and answered
    /// with [`Eligibility::ClassBlocked`].
    #[inline]
    pub(crate) fn block_class(&mut self, class: ClassId, set: BlockedSetId) {
        if self.classes[class.index()].heap_index != NOWHERE {
            self.park_class(class.0, set.0);
        }
    }

    /// Returns whether [`FairQueue::select`] may have anything to offer.
    #[inline]
    pub(crate) fn has_offers(&self) -> bool {
        !self.ready.is_empty() || !self.open_sets.is_empty()
    }

    /// Makes a group with the answer [`Eligibility::GroupBlocked`] take part in selection again. Has no
    /// effect on any other group.
    pub fn unpark(&mut self, group: QueueGroupId) {
        for at in 0..self.groups[group.index()].fifos.len() {
            let fifo = self.groups[group.index()].fifos[at];
            if self.unlink_parked(fifo) {
                self.insert(fifo);
            }
        }
    }

    /// Unparks every group: see [`Self::unpark`].
    pub fn unpark_all(&mut self) {
        while let Some((_, fifo)) = self.parked.peek() {
            self.unlink_parked(fifo);
            self.insert(fifo);
        }
    }

    /// Selects the first in order of turn among the groups with the answer [`Eligibility::GroupBlocked`].
    /// O(1).
    #[must_use]
    pub fn select_parked(&self) -> Option<Selection> {
        let (_, fifo) = self.parked.peek()?;
        Some(Selection { candidate: self.candidate(fifo), fifo, version: self.version })
    }
}

/// Returns an error if a weight is out of range.
pub(crate) fn check_weight(weight: f64) -> Result<(), ConfigError> {
    require((MIN_WEIGHT..=MAX_WEIGHT).contains(&weight), "weight", weight, "a number from 2^-20 to 2^20")
}
