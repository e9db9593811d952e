//! The lease ledger: who holds what, exactly once.
//!
//! A lease is made by an admission and released exactly once. A [`LeaseId`] names the controller, the slot,
//! the slot's generation and the item it was made for; the ledger compares all four, so it can tell a second
//! release from a forged one without remembering leases that are gone. Memory is bounded by the leases live
//! at once.

use crate::id::{KeyState, SlotKey, Slots};

/// Names one lease. A plain value, checked at run time, so that it can cross a language boundary.
///
/// The owning lease types ([`RequestLease`](crate::request::RequestLease),
/// [`TaskLease`](crate::task::TaskLease)) wrap it, are not copyable, and are what Rust callers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LeaseId {
    /// Which controller made it.
    pub controller: u32,
    /// Slot and generation within the controller.
    pub key: SlotKey,
    /// What it was made for: the task or the request resource.
    pub item: u32,
}

/// The answer to a release. Only [`ReleaseAnswer::Released`] changed a counter.
///
/// Exhaustive on purpose: a release ends in one of these ways, and a caller may check each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[must_use]
pub enum ReleaseAnswer {
    /// The lease was live and is now gone.
    Released,
    /// The lease had been released before.
    Duplicate,
    /// The live lease of that slot is for another item.
    Stale,
    /// No such lease was ever made.
    UnknownLease,
    /// Another controller made it.
    WrongController,
}

/// How often each irregular release was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ReleaseDiagnostics {
    /// Second releases.
    pub duplicate: u64,
    /// Releases of a live lease in the name of another item.
    pub stale: u64,
    /// Releases of a lease never made.
    pub unknown_lease: u64,
    /// Releases at the wrong controller.
    pub wrong_controller: u64,
}

impl ReleaseDiagnostics {
    /// Counts one answer; a regular release is none.
    pub(crate) fn count(&mut self, answer: ReleaseAnswer) {
        match answer {
            ReleaseAnswer::Released => {}
            ReleaseAnswer::Duplicate => self.duplicate += 1,
            ReleaseAnswer::Stale => self.stale += 1,
            ReleaseAnswer::UnknownLease => self.unknown_lease += 1,
            ReleaseAnswer::WrongController => self.wrong_controller += 1,
        }
    }
}

/// The leases of one controller, each with what it holds.
#[derive(Clone, Debug)]
pub struct Ledger<T> {
    controller: u32,
    slots: Slots<LeaseEntry<T>>,
    diagnostics: ReleaseDiagnostics,
}

#[derive(Clone, Debug)]
struct LeaseEntry<T> {
    item: u32,
    value: T,
}

impl<T> Ledger<T> {
    /// An empty ledger of the controller with this number. Give controllers of one process different numbers.
    #[must_use]
    pub fn new(controller: u32) -> Self {
        Self { controller, slots: Slots::default(), diagnostics: ReleaseDiagnostics::default() }
    }

    /// Records that `value` is held for `item`. O(1); allocates only past the high-water mark.
    pub fn grant(&mut self, item: u32, value: T) -> LeaseId {
        LeaseId { controller: self.controller, key: self.slots.insert(LeaseEntry { item, value }), item }
    }

    /// Ends a lease and gives back what it held. Any other answer changes no counter but its own diagnostic.
    /// O(1).
    pub fn release(&mut self, lease: LeaseId) -> Result<T, ReleaseAnswer> {
        if lease.controller == self.controller
            && let Some(held) = self.slots.remove_if(lease.key, |held| held.item == lease.item)
        {
            return Ok(held.value);
        }
        Err(self.refuse(lease))
    }

    /// Counts a release that changes nothing.
    #[cold]
    fn refuse(&mut self, lease: LeaseId) -> ReleaseAnswer {
        let answer = self.judge(lease);
        self.diagnostics.count(answer);
        answer
    }

    /// What [`Ledger::release`] would answer.
    pub fn judge(&self, lease: LeaseId) -> ReleaseAnswer {
        if lease.controller != self.controller {
            return ReleaseAnswer::WrongController;
        }
        match self.slots.state(lease.key) {
            KeyState::Unknown => ReleaseAnswer::UnknownLease,
            KeyState::Spent => ReleaseAnswer::Duplicate,
            KeyState::Live if self.slots.get(lease.key).is_some_and(|held| held.item == lease.item) => {
                ReleaseAnswer::Released
            }
            KeyState::Live => ReleaseAnswer::Stale,
        }
    }

    /// What a live lease holds.
    #[must_use]
    pub fn get(&self, lease: LeaseId) -> Option<&T> {
        if self.judge(lease) == ReleaseAnswer::Released {
            self.slots.get(lease.key).map(|held| &held.value)
        } else {
            None
        }
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, lease: LeaseId) -> Option<&mut T> {
        if self.judge(lease) == ReleaseAnswer::Released {
            self.slots.get_mut(lease.key).map(|held| &mut held.value)
        } else {
            None
        }
    }

    /// What every live lease holds, in no particular order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|(_, held)| &held.value)
    }

    /// Leases that are out.
    #[must_use]
    pub fn active(&self) -> usize {
        self.slots.len()
    }

    /// Counts of irregular releases.
    #[must_use]
    pub fn diagnostics(&self) -> ReleaseDiagnostics {
        self.diagnostics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_release_has_its_answer_and_only_the_first_gives_something_back() {
        let mut ledger = Ledger::new(1);
        let lease = ledger.grant(7, "seat");
        let elsewhere = LeaseId { controller: 2, ..lease };
        let other_item = LeaseId { item: 8, ..lease };
        let to_come = LeaseId { key: SlotKey { generation: 1, ..lease.key }, ..lease };
        assert_eq!(ledger.release(elsewhere), Err(ReleaseAnswer::WrongController));
        assert_eq!(ledger.release(other_item), Err(ReleaseAnswer::Stale));
        assert_eq!(ledger.release(to_come), Err(ReleaseAnswer::UnknownLease));
        assert_eq!(ledger.active(), 1);
        assert_eq!(ledger.release(lease), Ok("seat"));
        assert_eq!(ledger.release(lease), Err(ReleaseAnswer::Duplicate));
        let counted = ReleaseDiagnostics { duplicate: 1, stale: 1, unknown_lease: 1, wrong_controller: 1 };
        assert_eq!((ledger.active(), ledger.diagnostics()), (0, counted));
    }
}
