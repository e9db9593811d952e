//! Futures that wait for one slot, polled by hand: what a hand-off costs without the turn of an executor.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// One slot, and a ring of futures that wait for it, the oldest first.
pub(crate) struct Parked<F: Future, M> {
    make: M,
    held: Option<F::Output>,
    ring: Vec<Pin<Box<Option<F>>>>,
}

impl<F: Future, M: FnMut() -> F> Parked<F, M> {
    pub(crate) fn new(waiters: usize, make: M) -> Self {
        let ring = (0..waiters).map(|_| Box::pin(None)).collect();
        let mut parked = Self { make, held: None, ring };
        parked.held = parked.park_at(0);
        for at in 0..waiters {
            assert!(parked.park_at(at).is_none(), "there is one slot, and it is taken");
        }
        parked
    }

    /// Starts to wait in place `at`. Answers what it got at once, if anything.
    fn park_at(&mut self, at: usize) -> Option<F::Output> {
        let future = (self.make)();
        self.ring[at].set(Some(future));
        self.poll(at)
    }

    fn poll(&mut self, at: usize) -> Option<F::Output> {
        let future = self.ring[at].as_mut().as_pin_mut()?;
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// Gives the slot back, takes it as the oldest waiter, and waits anew at the end of the line.
    pub(crate) fn pass_on(&mut self, ops: u64, mut give_back: impl FnMut(F::Output)) {
        for op in 0..ops {
            // A batch is a multiple of the ring, so the oldest waiter of a new batch is in place 0 again.
            let at = (op % self.ring.len() as u64) as usize;
            give_back(self.held.take().expect("the slot is always held between two hand-offs"));
            self.held = self.poll(at);
            assert!(self.park_at(at).is_none(), "there is one slot, and it is taken");
        }
    }
}
