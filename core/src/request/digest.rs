//! What the digest of decisions takes in of request admission.

use super::answer::{Acquire, Denial, Effect};
use crate::lease::LeaseId;
use crate::recording::Digest;

impl Digest {
    pub(crate) fn acquired(&mut self, answer: &Acquire) {
        match answer {
            Acquire::Granted(lease) => self.granted(0, lease.id()),
            Acquire::Waiting(waiter) => self.words([2, waiter.to_bits()]),
            Acquire::Denied(denial) => self.denied(0, denial),
        }
    }

    pub(crate) fn tried<L>(&mut self, answer: &Result<L, Denial>, id: impl FnOnce(&L) -> LeaseId) {
        match answer {
            Ok(lease) => self.granted(0, id(lease)),
            Err(denial) => self.denied(0, denial),
        }
    }

    pub(crate) fn request(&mut self, effect: &Effect) {
        match effect {
            Effect::Granted { waiter, lease } => self.granted(waiter.to_bits(), lease.id()),
            Effect::Refused { waiter, denial } => self.denied(waiter.to_bits(), denial),
        }
    }

    fn granted(&mut self, waiter: u64, lease: LeaseId) {
        self.words([1, waiter, lease.key.to_bits(), u64::from(lease.item)]);
    }

    fn denied(&mut self, waiter: u64, denial: &Denial) {
        let changes_at = denial.changes_at.map_or(u64::MAX, crate::time::Instant::as_nanos);
        self.words([3, waiter, denial.reason as u64, changes_at]);
    }
}
