//! Storage for the outcomes of waiting acquires.
//!
//! A waiter has two numbers. The future keeps its [`WaiterSlot`], where it finds its outcome without a
//! search. The machine identifies the waiter by its [`WaiterId`], whose slot the machine reuses as soon as it
//! has granted or denied the request. The gate stores every outcome before it releases its lock. Two waiters
//! with the same machine slot therefore exist only within one command: when the machine decides the earlier
//! one and then queues the later one.

use alloc::vec::Vec;
use core::task::Waker;

use slab::Slab;

use crate::id::{SecondaryMap, SlotKey};
use crate::request::{Denial, RequestLease, WaiterId};

/// What was decided about a waiter.
pub(super) type WaiterOutcome = Result<RequestLease, Denial>;

/// The slot of one waiter, from its first poll until its outcome is taken or it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaiterSlot(usize);

enum Entry {
    /// Not answered. The waker is `None` until the first poll has set one.
    Waiting(WaiterId, Option<Waker>),
    Decided(WaiterOutcome),
}

impl Entry {
    /// Stores the outcome. Returns the waker of a waiter that had none yet.
    #[inline]
    fn set_outcome(&mut self, outcome: WaiterOutcome) -> Option<Waker> {
        match core::mem::replace(self, Self::Decided(outcome)) {
            Self::Waiting(_, waker) => waker,
            Self::Decided(_) => None,
        }
    }
}

/// The state of a waiter when it was removed.
pub(super) enum Removed {
    Waiting(WaiterId, Option<Waker>),
    Decided(WaiterOutcome),
}

/// The waiters of one gate.
#[derive(Default)]
pub(super) struct WaiterSlab {
    entries: Slab<Entry>,
    /// The entries that are waiting, by the key of their waiter in the machine.
    waiting: SecondaryMap<usize>,
    /// The entries whose slot in the machine was reused before their outcome was stored. Empty between two
    /// commands.
    displaced: Vec<(SlotKey, usize)>,
}

impl WaiterSlab {
    /// Adds a waiter. O(1) amortised; allocates only past the largest number of waiters so far.
    #[inline]
    pub(super) fn insert(&mut self, waiter: WaiterId) -> WaiterSlot {
        let number = self.entries.insert(Entry::Waiting(waiter, None));
        if let Some(before) = self.waiting.insert(waiter.key(), number) {
            self.displaced.push(before);
        }
        WaiterSlot(number)
    }

    /// Stores an outcome and returns the waker to wake. Returns the outcome as an error if this slab does not
    /// contain the waiter.
    #[inline]
    pub(super) fn decide(&mut self, waiter: WaiterId, outcome: WaiterOutcome) -> Result<Option<Waker>, WaiterOutcome> {
        let number = self.waiting.remove(waiter.key()).or_else(|| self.take_displaced(waiter.key()));
        match number.and_then(|number| self.entries.get_mut(number)) {
            Some(entry) => Ok(entry.set_outcome(outcome)),
            None => Err(outcome),
        }
    }

    #[cold]
    fn take_displaced(&mut self, waiter: SlotKey) -> Option<usize> {
        let position = self.displaced.iter().position(|(key, _)| *key == waiter)?;
        Some(self.displaced.swap_remove(position).1)
    }

    /// Takes the outcome in a slot, if there is one, and frees the slot. The caller must then not use the
    /// slot again.
    #[inline]
    pub(super) fn take_outcome(&mut self, slot: WaiterSlot) -> Option<WaiterOutcome> {
        if !matches!(self.entries.get(slot.0), Some(Entry::Decided(_))) {
            return None;
        }
        match self.entries.remove(slot.0) {
            Entry::Decided(outcome) => Some(outcome),
            Entry::Waiting(..) => None,
        }
    }

    /// Sets the waker that the outcome wakes, and returns the previous one. Returns `waker` as an error if
    /// the outcome is already stored.
    #[inline]
    pub(super) fn set_waker(&mut self, slot: WaiterSlot, waker: Waker) -> Result<Option<Waker>, Waker> {
        match self.entries.get_mut(slot.0) {
            Some(Entry::Waiting(_, current)) => Ok(current.replace(waker)),
            _ => Err(waker),
        }
    }

    /// Removes a waiter, answered or not. The caller must not use the slot again.
    pub(super) fn remove(&mut self, slot: WaiterSlot) -> Option<Removed> {
        Some(match self.entries.try_remove(slot.0)? {
            Entry::Decided(outcome) => Removed::Decided(outcome),
            Entry::Waiting(waiter, waker) => {
                if self.waiting.remove(waiter.key()).is_none() {
                    self.take_displaced(waiter.key());
                }
                Removed::Waiting(waiter, waker)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::LeaseId;
    use crate::request::DenialReason;

    const CANCELLED: WaiterOutcome = Err(Denial { reason: DenialReason::Cancelled, changes_at: None });
    const SHUTDOWN: WaiterOutcome = Err(Denial { reason: DenialReason::Shutdown, changes_at: None });

    fn waiter(slot: u32, generation: u32) -> WaiterId {
        WaiterId::from_bits(SlotKey { slot, generation }.to_bits())
    }

    fn lease(slot: u32) -> RequestLease {
        RequestLease::from_id(LeaseId { controller: 0, key: SlotKey { slot, generation: 0 }, item: 0 })
    }

    #[test]
    fn reuse_of_a_machine_slot_keeps_earlier_answers() {
        let mut waiters = WaiterSlab::default();
        let first = waiters.insert(waiter(5, 0));
        assert!(matches!(waiters.decide(waiter(5, 0), Ok(lease(1))), Ok(None)));
        let second = waiters.insert(waiter(5, 1));
        assert_eq!(waiters.take_outcome(second), None);
        assert!(waiters.decide(waiter(5, 1), SHUTDOWN).is_ok());
        assert_eq!(waiters.take_outcome(first), Some(Ok(lease(1))));
        assert_eq!(waiters.take_outcome(second), Some(SHUTDOWN));
    }

    #[test]
    fn waiters_that_share_a_machine_slot_within_one_command_each_get_their_own_answer() {
        let mut waiters = WaiterSlab::default();
        let slots = [0, 1, 2].map(|generation| waiters.insert(waiter(5, generation)));
        assert!(waiters.decide(waiter(5, 1), Ok(lease(1))).is_ok());
        assert!(waiters.decide(waiter(5, 0), SHUTDOWN).is_ok());
        assert_eq!(waiters.take_outcome(slots[2]), None);
        assert!(waiters.decide(waiter(5, 2), CANCELLED).is_ok());
        assert!(waiters.displaced.is_empty());
        let outcomes = slots.map(|slot| waiters.take_outcome(slot));
        assert_eq!(outcomes, [Some(SHUTDOWN), Some(Ok(lease(1))), Some(CANCELLED)]);
    }

    #[test]
    fn an_answer_wakes_the_waker_that_was_set_last() {
        let mut waiters = WaiterSlab::default();
        let slot = waiters.insert(waiter(0, 0));
        assert!(matches!(waiters.set_waker(slot, Waker::noop().clone()), Ok(None)));
        assert!(matches!(waiters.set_waker(slot, Waker::noop().clone()), Ok(Some(_))));
        assert!(matches!(waiters.decide(waiter(0, 0), CANCELLED), Ok(Some(_))));
        assert!(waiters.set_waker(slot, Waker::noop().clone()).is_err(), "the outcome is stored");
        assert_eq!(waiters.take_outcome(slot), Some(CANCELLED));
    }

    #[test]
    fn an_answer_to_a_removed_waiter_is_returned_to_the_caller() {
        let mut waiters = WaiterSlab::default();
        let slot = waiters.insert(waiter(0, 0));
        assert!(matches!(waiters.remove(slot), Some(Removed::Waiting(id, None)) if id == waiter(0, 0)));
        assert!(matches!(waiters.decide(waiter(0, 0), SHUTDOWN), Err(outcome) if outcome == SHUTDOWN));
        assert!(matches!(waiters.decide(waiter(9, 0), SHUTDOWN), Err(outcome) if outcome == SHUTDOWN));
        let slot = waiters.insert(waiter(0, 1));
        assert!(waiters.decide(waiter(0, 1), SHUTDOWN).is_ok());
        assert!(matches!(waiters.remove(slot), Some(Removed::Decided(outcome)) if outcome == SHUTDOWN));
        assert!(waiters.remove(slot).is_none());
    }

    #[test]
    fn memory_is_bounded_by_the_number_of_concurrent_waiters() {
        let mut waiters = WaiterSlab::default();
        for generation in 0..1_000 {
            let slot = waiters.insert(waiter(0, generation));
            assert!(waiters.decide(waiter(0, generation), SHUTDOWN).is_ok());
            assert_eq!(waiters.take_outcome(slot), Some(SHUTDOWN));
        }
        assert!(waiters.entries.capacity() <= 4);
    }
}
