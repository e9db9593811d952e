//! The decisions of each machine that the digest includes.

use alloc::collections::BTreeMap;
use core::hash::Hash as _;

use super::recorder::Digest;
use crate::budget::{BudgetKey, WalletReport};
use crate::lease::LeaseId;
use crate::pipeline::{FinishedRowGroup, PipelineEffect, Task};
use crate::request::{self, AcquireResult, AfterCall, Denial, RequestLease};
use crate::share::Decide;
use crate::time::Instant;

/// The decisions of a pipeline.
impl Digest {
    pub(super) fn pipeline_effect(&mut self, effect: &PipelineEffect) {
        match effect {
            PipelineEffect::Spawn(task) => self.task(task),
            PipelineEffect::PreBatch(batch) => self.hash_words([11, u64::from(batch.row_group)]),
            PipelineEffect::PostBatch(group) => self.row_group(12, group),
            PipelineEffect::Checkpoint(group) => self.row_group(13, group),
            PipelineEffect::ClaimRowGroup => self.hash_words([18]),
            PipelineEffect::Abort(worker) => self.hash_words([14, worker.to_bits()]),
            PipelineEffect::Warn(warning) => {
                warning.group.iter().for_each(|part| self.bytes(part.as_bytes()));
                self.hash_words([15, u64::from(warning.retryable)]);
            }
            PipelineEffect::Finished => self.hash_words([16]),
        }
    }

    fn task(&mut self, task: &Task) {
        let row = task.row.map_or(u64::MAX, u64::from);
        let cell = [u64::from(task.row_group), task.column.index() as u64, row];
        self.hash_words([10, task.worker.to_bits(), u64::from(task.attempt)]);
        self.hash_words(cell);
        if let Some(batch) = task.batch {
            self.hash_words([17, u64::from(batch.lead), u64::from(batch.size)]);
        }
    }

    fn row_group(&mut self, kind: u64, group: &FinishedRowGroup) {
        self.hash_words([kind, u64::from(group.row_group), group.live.len() as u64]);
        group.live.iter().for_each(|row| self.hash_words([u64::from(*row)]));
        group.dropped.iter().for_each(|row| self.hash_words([u64::from(row.row), row.column.index() as u64]));
        group.unmade.iter().for_each(|row| self.hash_words([u64::from(*row)]));
    }
}

/// The decisions of request admission.
impl Digest {
    pub(super) fn acquired(&mut self, answer: &AcquireResult) {
        match answer {
            AcquireResult::Granted(lease) => self.granted(0, lease.id()),
            AcquireResult::Waiting(waiter) => self.hash_words([2, waiter.to_bits()]),
            AcquireResult::Denied(denial) => self.denied(0, denial),
        }
    }

    pub(super) fn finished(&mut self, after: AfterCall) {
        self.hash_words([match after {
            AfterCall::Final => 4,
            AfterCall::Retry(_) => 5,
            AfterCall::Unavailable => 6,
        }]);
    }

    pub(super) fn try_acquired(&mut self, answer: &Result<RequestLease, Denial>) {
        match answer {
            Ok(lease) => self.granted(0, lease.id()),
            Err(denial) => self.denied(0, denial),
        }
    }

    pub(super) fn request_effect(&mut self, effect: &request::RequestEffect) {
        match effect {
            request::RequestEffect::Granted { waiter, lease } => self.granted(waiter.to_bits(), lease.id()),
            request::RequestEffect::Denied { waiter, denial } => self.denied(waiter.to_bits(), denial),
            request::RequestEffect::HealthCall { lease } => self.granted(u64::MAX, lease.id()),
        }
    }

    /// Adds the limit of a resource after a command of its member, or `None` if there is no such resource.
    pub(super) fn room(&mut self, limit: Option<u32>) {
        self.hash_words([8, limit.map_or(u64::MAX, u64::from)]);
    }

    pub(super) fn wallets(&mut self, wallets: &BTreeMap<BudgetKey, WalletReport>) {
        self.hash_words([9, wallets.len() as u64]);
        for (key, WalletReport { granted, left, spent, call, need }) in wallets {
            self.hash_words([key.number(), *granted, *left, *spent, *call, *need]);
        }
    }

    /// Adds the decision of a leader after one of its commands, or `None` if there is none.
    pub(super) fn decide(&mut self, decide: Option<&Decide>) {
        self.hash_words([5]);
        decide.hash(&mut self.0);
    }

    fn granted(&mut self, waiter: u64, lease: LeaseId) {
        self.hash_words([1, waiter, lease.key.to_bits(), u64::from(lease.item)]);
    }

    fn denied(&mut self, waiter: u64, denial: &Denial) {
        let changes_at = denial.changes_at.map_or(u64::MAX, Instant::as_nanos);
        self.hash_words([3, waiter, denial.reason as u64, changes_at]);
    }
}
