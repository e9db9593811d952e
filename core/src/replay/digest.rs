//! A hash over decisions, equal on every target.

use core::hash::Hasher;

use crate::id::FixedHasher;
use crate::lease::LeaseId;
use crate::pipeline::{Effect as RunEffect, FinishedRowGroup, Task};
use crate::request::{Acquire, Denial, Effect as RequestEffect};

/// Hashes decisions one after another.
#[derive(Clone, Copy, Default)]
pub(crate) struct Digest(FixedHasher);

impl core::fmt::Debug for Digest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:016x}", self.0.finish())
    }
}

impl Digest {
    /// One number for two digests.
    pub(crate) fn and(self, other: Self) -> u64 {
        let mut both = self;
        both.words([other.0.finish()]);
        both.0.finish()
    }

    fn words<const N: usize>(&mut self, words: [u64; N]) {
        for word in words {
            self.0.write_u64(word);
        }
    }

    /// So many effects had been made before the next command.
    pub(crate) fn made(&mut self, effects: u64) {
        self.words([4, effects]);
    }

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

    pub(crate) fn request(&mut self, effect: &RequestEffect) {
        match effect {
            RequestEffect::Granted { waiter, lease } => self.granted(waiter.to_bits(), lease.id()),
            RequestEffect::Refused { waiter, denial } => self.denied(waiter.to_bits(), denial),
        }
    }

    fn granted(&mut self, waiter: u64, lease: LeaseId) {
        self.words([1, waiter, lease.key.to_bits(), u64::from(lease.item)]);
    }

    fn denied(&mut self, waiter: u64, denial: &Denial) {
        let changes_at = denial.changes_at.map_or(u64::MAX, crate::time::Instant::as_nanos);
        self.words([3, waiter, denial.reason as u64, changes_at]);
    }

    pub(crate) fn run(&mut self, effect: &RunEffect) {
        match effect {
            RunEffect::Spawn(task) => self.task(task),
            RunEffect::PreBatch(batch) => self.words([11, u64::from(batch.row_group)]),
            RunEffect::PostBatch(group) => self.row_group(12, group),
            RunEffect::Checkpoint(group) => self.row_group(13, group),
            RunEffect::Abort(worker) => self.words([14, worker.to_bits()]),
            RunEffect::Warn(warning) => {
                warning.group.iter().for_each(|part| self.0.write(part.as_bytes()));
                self.words([15, u64::from(warning.retryable)]);
            }
            RunEffect::Finished => self.words([16]),
        }
    }

    fn task(&mut self, task: &Task) {
        let row = task.row.map_or(u64::MAX, u64::from);
        let place = [u64::from(task.row_group), task.column.index() as u64, row];
        self.words([10, task.worker.to_bits(), u64::from(task.attempt)]);
        self.words(place);
    }

    fn row_group(&mut self, kind: u64, group: &FinishedRowGroup) {
        self.words([kind, u64::from(group.row_group), group.live.len() as u64]);
        group.live.iter().for_each(|row| self.0.write_u64(u64::from(*row)));
        group.dropped.iter().for_each(|row| self.words([u64::from(row.row), row.column.index() as u64]));
    }
}
