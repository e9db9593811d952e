//! Where the answers to those who wait arrive.
//!
//! A seat has a number, which its future keeps: there it finds its answer without a search. Until there is one, the seat is
//! found by its waiter too, by the slot that the machine keeps it in. A slot is the machine's to use again once its waiter is
//! answered, and the news of that may be still on its way: the entries of one slot are a list, nearly always of one.

use alloc::vec::Vec;
use core::task::{Poll, Waker};

use super::shared::Answer;
use crate::request::{Denial, DenialReason, WaiterId};

/// The end of a list.
const END: u32 = u32::MAX;

/// The number of a seat.
pub(super) type WaiterSlot = u32;

enum State {
    Free,
    /// Not answered. Without a waker only between the command and the end of the same poll.
    Waiting(Option<Waker>),
    Answered(Answer),
}

struct Entry {
    waiter: WaiterId,
    /// The seat after this one in the list of its slot, or among those that are free.
    next: u32,
    state: State,
}

/// What was at a seat that was given up.
pub(super) enum Removed {
    Waiting(WaiterId, Option<Waker>),
    Answered(Answer),
}

/// The waiters of one gate.
pub(super) struct WaiterSlab {
    slab: Vec<Entry>,
    free: u32,
    /// The entries that wait, by the slot of their waiter.
    by_slot: Vec<u32>,
}

impl WaiterSlab {
    pub(super) const fn new() -> Self {
        Self { slab: Vec::new(), free: END, by_slot: Vec::new() }
    }

    /// A seat for a waiter that is not answered. O(1) amortised.
    #[inline]
    pub(super) fn take(&mut self, waiter: WaiterId, waker: Option<Waker>) -> WaiterSlot {
        let slot = waiter.slot();
        if slot >= self.by_slot.len() {
            self.by_slot.resize(slot + 1, END);
        }
        let seat = Entry { waiter, next: self.by_slot[slot], state: State::Waiting(waker) };
        let mut number = self.free;
        if let Some(unused) = self.slab.get_mut(number as usize) {
            self.free = unused.next;
            *unused = seat;
        } else {
            number = self.slab.len() as u32;
            self.slab.push(seat);
        }
        self.by_slot[slot] = number;
        number
    }

    /// Puts an answer where its waiter will look; gives it back if nobody waits for it any more.
    #[inline]
    pub(super) fn answer(&mut self, waiter: WaiterId, answer: Answer) -> Result<Option<Waker>, Answer> {
        let Some(seat) = self.unlist(waiter) else { return Err(answer) };
        match core::mem::replace(&mut seat.state, State::Answered(answer)) {
            State::Waiting(waker) => Ok(waker),
            State::Free | State::Answered(_) => Ok(None),
        }
    }

    /// The answer at a seat, which is free from then on.
    #[inline]
    pub(super) fn take_answer(&mut self, number: WaiterSlot) -> Option<Answer> {
        if let State::Waiting(_) = self.slab[number as usize].state {
            return None;
        }
        Some(match self.free(number) {
            State::Answered(answer) => answer,
            // A seat is only ever left by the one future that has its number; without it there is nothing to wait for.
            State::Free | State::Waiting(_) => Err(Denial { reason: DenialReason::Cancelled, changes_at: None }),
        })
    }

    /// The same, or leaves `waker` there. Also returns a waker to drop once the lock is open.
    pub(super) fn poll(&mut self, number: WaiterSlot, waker: Waker) -> (Poll<Answer>, Option<Waker>) {
        if let State::Waiting(kept) = &mut self.slab[number as usize].state {
            return (Poll::Pending, kept.replace(waker));
        }
        (self.take_answer(number).map_or(Poll::Pending, Poll::Ready), Some(waker))
    }

    /// Gives a seat up, answered or not.
    pub(super) fn leave(&mut self, number: WaiterSlot) -> Option<Removed> {
        let waiter = self.slab[number as usize].waiter;
        if let State::Waiting(_) = self.slab[number as usize].state {
            self.unlist(waiter);
        }
        match self.free(number) {
            State::Free => None,
            State::Waiting(waker) => Some(Removed::Waiting(waiter, waker)),
            State::Answered(answer) => Some(Removed::Answered(answer)),
        }
    }

    fn free(&mut self, number: WaiterSlot) -> State {
        let seat = &mut self.slab[number as usize];
        seat.next = core::mem::replace(&mut self.free, number);
        core::mem::replace(&mut seat.state, State::Free)
    }

    /// Takes the seat of `waiter` out of the list of its slot.
    #[inline]
    fn unlist(&mut self, waiter: WaiterId) -> Option<&mut Entry> {
        let first = self.by_slot.get_mut(waiter.slot())?;
        let (mut before, mut number) = (END, *first);
        let mut seat = self.slab.get(number as usize)?;
        while seat.waiter != waiter {
            before = core::mem::replace(&mut number, seat.next);
            seat = self.slab.get(number as usize)?;
        }
        let next = seat.next;
        match self.slab.get_mut(before as usize) {
            None => *first = next,
            Some(before) => before.next = next,
        }
        self.slab.get_mut(number as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SlotKey;
    use crate::lease::LeaseId;
    use crate::request::RequestLease;

    const CANCELLED: Answer = Err(Denial { reason: DenialReason::Cancelled, changes_at: None });
    const SHUT: Answer = Err(Denial { reason: DenialReason::Shutdown, changes_at: None });

    fn waiter(slot: u32, generation: u32) -> WaiterId {
        WaiterId::from_bits(SlotKey { slot, generation }.to_bits())
    }

    #[test]
    fn waiters_of_one_slot_whose_news_is_still_on_its_way_each_find_their_own() {
        let mut waiters = WaiterSlab::new();
        let numbers: Vec<_> = (0..3).map(|generation| waiters.take(waiter(5, generation), None)).collect();
        assert!(waiters.answer(waiter(5, 1), Ok(RequestLease::from_id(lease(1)))).is_ok());
        assert!(waiters.answer(waiter(5, 0), SHUT).is_ok());
        assert_eq!(waiters.take_answer(numbers[2]), None);
        assert!(waiters.answer(waiter(5, 2), CANCELLED).is_ok());
        assert_eq!(waiters.take_answer(numbers[0]), Some(SHUT));
        assert_eq!(waiters.take_answer(numbers[1]), Some(Ok(RequestLease::from_id(lease(1)))));
        assert_eq!(waiters.take_answer(numbers[2]), Some(CANCELLED));
    }

    #[test]
    fn an_answer_to_somebody_who_left_comes_back() {
        let mut waiters = WaiterSlab::new();
        let number = waiters.take(waiter(0, 0), None);
        let behind = waiters.take(waiter(0, 1), None);
        assert!(matches!(waiters.leave(number), Some(Removed::Waiting(who, None)) if who == waiter(0, 0)));
        assert!(matches!(waiters.answer(waiter(0, 0), SHUT), Err(answer) if answer == SHUT));
        assert!(matches!(waiters.answer(waiter(9, 0), SHUT), Err(answer) if answer == SHUT));
        assert!(waiters.answer(waiter(0, 1), SHUT).is_ok());
        assert!(matches!(waiters.leave(behind), Some(Removed::Answered(answer)) if answer == SHUT));
    }

    #[test]
    fn a_seat_is_used_again() {
        let mut waiters = WaiterSlab::new();
        for generation in 0..1_000 {
            let number = waiters.take(waiter(0, generation), None);
            assert!(waiters.answer(waiter(0, generation), SHUT).is_ok());
            assert_eq!(waiters.take_answer(number), Some(SHUT));
        }
        assert_eq!((waiters.slab.len(), waiters.by_slot.len()), (1, 1));
    }

    fn lease(slot: u32) -> LeaseId {
        LeaseId { controller: 0, key: SlotKey { slot, generation: 0 }, item: 0 }
    }
}
