//! The refusals of one round of dispatching, for a host that wants to know.

use alloc::vec::Vec;

use super::admission::DenialReason;
use super::dispatch::Dispatcher;
use super::policy::TaskPolicy;
use super::resources::ResourceId;
use crate::fair_queue::Candidate;

/// A head that was looked at and not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denied {
    pub(crate) task: u64,
    pub(crate) reason: DenialReason,
    /// The resource that is short or refused.
    pub(crate) resource: Option<ResourceId>,
}

/// The first refusal of each group in a round, if anybody wants them.
#[derive(Debug, Default)]
pub(super) struct Denials {
    is_on: bool,
    round: u64,
    /// By group: one more than the last round in which it was refused.
    recorded: Vec<u64>,
    waiting: Vec<Denied>,
}

impl Denials {
    #[inline]
    pub(super) fn record(&mut self, candidate: &Candidate, reason: DenialReason, resource: Option<ResourceId>) {
        if self.is_on {
            self.keep(candidate, Denied { task: candidate.item, reason, resource });
        }
    }

    #[cold]
    fn keep(&mut self, candidate: &Candidate, denied: Denied) {
        let group = candidate.group.0 as usize;
        self.recorded.resize(self.recorded.len().max(group + 1), 0);
        if core::mem::replace(&mut self.recorded[group], self.round + 1) <= self.round {
            self.waiting.push(denied);
        }
    }
}

/// Refusals.
impl<P: TaskPolicy> Dispatcher<P> {
    /// Keeps refusals from now on, or no more. Whoever asks for them takes them in every round.
    pub(crate) fn watch_denials(&mut self, is_on: bool) {
        self.denials = Denials { is_on, ..Denials::default() };
    }

    /// Moves what was refused since the last call to the end of `into`.
    pub(crate) fn take_denials(&mut self, into: &mut Vec<Denied>) {
        into.append(&mut self.denials.waiting);
    }

    /// Begins another round: each group's next refusal is news again.
    pub(crate) fn end_round(&mut self) {
        self.denials.round += 1;
    }
}
