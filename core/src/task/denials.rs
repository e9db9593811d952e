//! Records the refusals of one round of dispatching, if they are needed.

use alloc::vec::Vec;

use super::admission::TaskDenialReason;
use super::dispatch::Dispatcher;
use super::policy::TaskPolicy;
use super::resources::TaskResourceId;
use crate::fair_queue::Candidate;

/// A group's first task that was considered and not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denied {
    pub(crate) task: u64,
    pub(crate) reason: TaskDenialReason,
    /// The resource that is short or that the policy refused.
    pub(crate) resource: Option<TaskResourceId>,
}

/// The first refusal of each group in a round, while recording is on.
#[derive(Debug, Default)]
pub(super) struct Denials {
    is_on: bool,
    round: u64,
    /// By group: the last round in which it was refused, plus 1.
    recorded: Vec<u64>,
    pending: Vec<Denied>,
}

impl Denials {
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

/// Denials.
impl<P: TaskPolicy> Dispatcher<P> {
    /// Turns the recording of refusals on or off. While it is on, the caller takes them in every round.
    pub(crate) fn watch_denials(&mut self, is_on: bool) {
        self.denials = Denials { is_on, ..Denials::default() };
    }

    /// Appends the refusals since the last call to `into`.
    pub(crate) fn take_denials(&mut self, into: &mut Vec<Denied>) {
        into.append(&mut self.denials.pending);
    }

    /// Starts the next round. The next refusal of each group is recorded again.
    pub(crate) fn end_round(&mut self) {
        self.denials.round += 1;
    }
}
