//! Holders: other clients of the same models, which hold request slots for some time.

use alloc::vec::Vec;

use super::World;
use crate::map::Map;
use crate::request::{AcquireResult, Outcome, Request, RequestLease, WaiterId};
use crate::sim::scenario::Holder;

/// The leases and waiters of all holders.
#[derive(Default)]
pub(super) struct Holders {
    /// The holders, each with the index of its model.
    specs: Vec<(usize, Holder)>,
    /// The granted slots, each with the index of its holder.
    leases: Vec<(usize, RequestLease)>,
    /// The slots that are waited for, each with the index of its holder.
    waiting: Vec<(usize, WaiterId)>,
    /// The holder of each waiter, by the number of the waiter.
    by_waiter: Map<u64, usize>,
}

impl Holders {
    pub(super) fn new(specs: Vec<(usize, Holder)>) -> Self {
        Self { specs, ..Self::default() }
    }

    pub(super) fn specs(&self) -> impl Iterator<Item = &Holder> {
        self.specs.iter().map(|(_, spec)| spec)
    }

    /// Stores a lease that was granted to a waiter of a holder.
    ///
    /// # Errors
    /// Returns the lease if the waiter belongs to no holder.
    pub(super) fn take(&mut self, waiter: WaiterId, lease: RequestLease) -> Result<(), RequestLease> {
        let Some(holder) = self.by_waiter.remove(&waiter.to_bits()) else { return Err(lease) };
        self.waiting.retain(|(_, other)| *other != waiter);
        self.leases.push((holder, lease));
        Ok(())
    }
}

impl World {
    /// Requests the slots of a holder.
    pub(super) fn hold(&mut self, holder: usize) {
        let Some((provider, spec)) = self.holders.specs.get(holder) else { return };
        let (request, slots) = (Request::new(self.providers[*provider].resource), spec.slots);
        for _ in 0..slots {
            match self.admission.acquire(self.now, &request) {
                AcquireResult::Granted(lease) => self.holders.leases.push((holder, lease)),
                AcquireResult::Waiting(waiter) => {
                    self.holders.waiting.push((holder, waiter));
                    self.holders.by_waiter.insert(waiter.to_bits(), holder);
                }
                AcquireResult::Denied(_) => {}
            }
        }
    }

    /// Releases the leases of a holder and cancels its waiters.
    pub(super) fn release_holder(&mut self, holder: usize) {
        self.release_where(|other| other == holder);
    }

    /// Releases the leases of all holders and cancels their waiters, because the run has ended.
    pub(super) fn release_all_holders(&mut self) {
        self.release_where(|_| true);
    }

    fn release_where(&mut self, is_released: impl Fn(usize) -> bool) {
        for (_, waiter) in self.holders.waiting.extract_if(.., |(holder, _)| is_released(*holder)) {
            self.holders.by_waiter.remove(&waiter.to_bits());
            self.admission.cancel(self.now, waiter);
        }
        for (_, lease) in self.holders.leases.extract_if(.., |(holder, _)| is_released(*holder)) {
            let _ = self.admission.release(self.now, lease, &Outcome::Success.into());
        }
    }
}
