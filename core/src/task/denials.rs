//! Records the denials of each round of dispatching, while a caller needs them for events.
//!
//! A round is one call of the pipeline: it dispatches one task after another until none may start. The same
//! group may be denied before each of these tasks, so only the first denial of each group in a round is
//! recorded.

use alloc::vec::Vec;

use super::admission::TaskDenialReason;
use super::resources::TaskResourceId;
use crate::fair_queue::Candidate;

/// A group's first task that was considered and not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denied {
    pub(crate) task: u64,
    pub(crate) reason: TaskDenialReason,
    /// The resource that is short, or for which the policy denied the task.
    pub(crate) resource: Option<TaskResourceId>,
}

/// The first denial of each group in a round, while recording is on.
#[derive(Debug, Default)]
pub(super) struct Denials {
    is_on: bool,
    /// The number of rounds that have ended.
    round: u64,
    /// By group: the latest round in which it was denied, plus 1. 0 if it never was.
    recorded: Vec<u64>,
    pending: Vec<Denied>,
}

impl Denials {
    /// Turns the recording on or off, and discards what was recorded.
    pub(super) fn watch(&mut self, is_on: bool) {
        *self = Self { is_on, ..Self::default() };
    }

    /// Appends the denials since the last call to `into`.
    pub(super) fn take(&mut self, into: &mut Vec<Denied>) {
        into.append(&mut self.pending);
    }

    /// Starts the next round. The next denial of each group is recorded again.
    pub(super) fn end_round(&mut self) {
        self.round += 1;
    }

    #[inline]
    pub(super) fn record(&mut self, candidate: &Candidate, reason: TaskDenialReason, resource: Option<TaskResourceId>) {
        if self.is_on {
            self.push_first(candidate, Denied { task: candidate.item, reason, resource });
        }
    }

    #[cold]
    fn push_first(&mut self, candidate: &Candidate, denied: Denied) {
        let group = candidate.group.0 as usize;
        self.recorded.resize(self.recorded.len().max(group + 1), 0);
        if core::mem::replace(&mut self.recorded[group], self.round + 1) <= self.round {
            self.pending.push(denied);
        }
    }
}
