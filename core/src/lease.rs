//! The lease ledger: records which leases exist and that each is released exactly once.
//!
//! A machine of request or task admission creates a lease. A [`LeaseId`] contains the number of the machine,
//! the slot, the generation of the slot and the item. The ledger compares all four, so it distinguishes a
//! second release from a forged one without storing released leases. Memory is bounded by the largest
//! number of leases that were live at the same time.

use crate::id::{KeyState, SlotKey, Slots};

/// Identifies one lease. It is a plain value that is checked at run time, so it can cross a language
/// boundary.
///
/// Rust callers hold the owning lease types ([`RequestLease`](crate::request::RequestLease),
/// [`TaskLease`](crate::task::TaskLease)) instead. They wrap a `LeaseId` and cannot be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LeaseId {
    /// The number of the machine that created the lease.
    pub controller: u32,
    /// The slot and generation within the machine.
    pub key: SlotKey,
    /// What the lease is for: the index of a request resource, or a task id folded to 32 bits.
    pub item: u32,
}

/// The result of a release. Only [`ReleaseResult::Released`] changes a counter of leases.
///
/// Exhaustive on purpose: a release ends in one of these ways, and a caller may check each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[must_use]
pub enum ReleaseResult {
    /// The lease was live and is now released.
    Released,
    /// The lease had been released before.
    Duplicate,
    /// The lease is live, but for another item than the one named in the release.
    Stale,
    /// The lease was never created.
    UnknownLease,
    /// Another machine created the lease.
    WrongController,
}

/// Counts of irregular releases by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ReleaseDiagnostics {
    /// Releases of a lease that had been released before.
    pub duplicate: u64,
    /// Releases of a live lease that named another item.
    pub stale: u64,
    /// Releases of a lease that was never created.
    pub unknown_lease: u64,
    /// Releases of a lease that another machine created.
    pub wrong_controller: u64,
}

impl ReleaseDiagnostics {
    /// Counts one result. [`ReleaseResult::Released`] is not counted.
    pub(crate) fn count(&mut self, result: ReleaseResult) {
        match result {
            ReleaseResult::Released => {}
            ReleaseResult::Duplicate => self.duplicate += 1,
            ReleaseResult::Stale => self.stale += 1,
            ReleaseResult::UnknownLease => self.unknown_lease += 1,
            ReleaseResult::WrongController => self.wrong_controller += 1,
        }
    }
}

/// The leases of one machine, each with the value that it holds.
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
    /// Creates an empty ledger for machine number `controller`. The machines of one process need
    /// different numbers.
    #[must_use]
    pub fn new(controller: u32) -> Self {
        Self { controller, slots: Slots::default(), diagnostics: ReleaseDiagnostics::default() }
    }

    /// Creates a lease that holds `value` for `item`. O(1); allocates only past the high-water mark.
    pub fn grant(&mut self, item: u32, value: T) -> LeaseId {
        LeaseId { controller: self.controller, key: self.slots.insert(LeaseEntry { item, value }), item }
    }

    /// Ends a live lease and returns the value that it held. O(1).
    ///
    /// # Errors
    ///
    /// Returns why nothing was released, and counts it, if the lease is not live, is live for another item,
    /// or belongs to another machine. The error is never [`ReleaseResult::Released`].
    pub fn release(&mut self, lease: LeaseId) -> Result<T, ReleaseResult> {
        if lease.controller == self.controller
            && let Some(held) = self.slots.remove_if(lease.key, |held| held.item == lease.item)
        {
            return Ok(held.value);
        }
        Err(self.reject(lease))
    }

    /// Counts and returns the reason why a release has no effect.
    #[cold]
    fn reject(&mut self, lease: LeaseId) -> ReleaseResult {
        let result = self.judge(lease);
        self.diagnostics.count(result);
        result
    }

    /// Returns the result that [`Ledger::release`] would have, without changing anything.
    pub fn judge(&self, lease: LeaseId) -> ReleaseResult {
        if lease.controller != self.controller {
            return ReleaseResult::WrongController;
        }
        match self.slots.state(lease.key) {
            KeyState::Unknown => ReleaseResult::UnknownLease,
            KeyState::Spent => ReleaseResult::Duplicate,
            KeyState::Live if self.slots.get(lease.key).is_some_and(|held| held.item == lease.item) => {
                ReleaseResult::Released
            }
            KeyState::Live => ReleaseResult::Stale,
        }
    }

    /// Returns the value of a live lease, or `None` for any other lease.
    #[must_use]
    pub fn get(&self, lease: LeaseId) -> Option<&T> {
        if self.judge(lease) == ReleaseResult::Released {
            self.slots.get(lease.key).map(|held| &held.value)
        } else {
            None
        }
    }

    /// Returns a mutable reference to the value of a live lease, or `None` for any other lease.
    pub fn get_mut(&mut self, lease: LeaseId) -> Option<&mut T> {
        if self.judge(lease) == ReleaseResult::Released {
            self.slots.get_mut(lease.key).map(|held| &mut held.value)
        } else {
            None
        }
    }

    /// Iterates over the values of all live leases, in no particular order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|(_, held)| &held.value)
    }

    /// Returns the number of live leases.
    #[must_use]
    pub fn active(&self) -> usize {
        self.slots.len()
    }

    /// Returns the counts of irregular releases.
    #[must_use]
    pub fn diagnostics(&self) -> ReleaseDiagnostics {
        self.diagnostics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_release_has_its_own_result_and_only_the_first_returns_the_value() {
        let mut ledger = Ledger::new(1);
        let lease = ledger.grant(7, "slot");
        let other_controller = LeaseId { controller: 2, ..lease };
        let other_item = LeaseId { item: 8, ..lease };
        let never_issued = LeaseId { key: SlotKey { generation: 1, ..lease.key }, ..lease };
        assert_eq!(ledger.release(other_controller), Err(ReleaseResult::WrongController));
        assert_eq!(ledger.release(other_item), Err(ReleaseResult::Stale));
        assert_eq!(ledger.release(never_issued), Err(ReleaseResult::UnknownLease));
        assert_eq!(ledger.active(), 1);
        assert_eq!(ledger.release(lease), Ok("slot"));
        assert_eq!(ledger.release(lease), Err(ReleaseResult::Duplicate));
        let counted = ReleaseDiagnostics { duplicate: 1, stale: 1, unknown_lease: 1, wrong_controller: 1 };
        assert_eq!((ledger.active(), ledger.diagnostics()), (0, counted));
    }
}
