//! The steps of a process at the store. The [parent module](super) defines the terms.
//!
//! The five steps are values, and not methods of a trait: hosts carry them out with different kinds of
//! waiting, such as futures and promises, and a simulation delays, repeats and loses them.

use super::message::{Decide, Decided, Decision, Lead, MemberReport, TakeLead, Term};
use super::store::{MemoryStore, Reports};

/// Which of the two machines of a process makes a step.
///
/// Exhaustive on purpose: a process has exactly these two.
///
/// The steps of one role follow one another. The two roles do not wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The member.
    Member,
    /// The leader, while the process leads.
    Leader,
}

impl Role {
    /// Both roles.
    pub const ALL: [Self; 2] = [Self::Member, Self::Leader];
}

/// A step at the store. Each is atomic, and repeating it is harmless.
///
/// Exhaustive on purpose: a host carries out every step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreStep {
    /// [`MemoryStore::report`].
    Report(MemberReport),
    /// [`MemoryStore::decisions_since`].
    DecisionsSince {
        /// The term of the last decision that was read.
        term: Term,
        /// Its version.
        version: u64,
    },
    /// [`MemoryStore::take_lead`].
    TakeLead(TakeLead),
    /// [`MemoryStore::reports_since`], with the position.
    ReportsSince(u64),
    /// [`MemoryStore::decide`].
    Decide {
        /// The decision and the snapshot.
        decide: Decide,
        /// The position up to which the leader has read the reports.
        read: u64,
    },
}

/// The reply of the store to a [`StoreStep`].
///
/// Exhaustive on purpose, as the steps are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreReply {
    /// To [`StoreStep::Report`].
    Reported,
    /// To [`StoreStep::DecisionsSince`].
    Decision(Option<Decision>),
    /// To [`StoreStep::TakeLead`].
    Lead(Lead),
    /// To [`StoreStep::ReportsSince`].
    Reports(Reports),
    /// To [`StoreStep::Decide`].
    Decided(Decided),
}

impl MemoryStore {
    /// Carries out one step.
    pub fn run(&mut self, step: StoreStep) -> StoreReply {
        match step {
            StoreStep::Report(report) => {
                self.report(report);
                StoreReply::Reported
            }
            StoreStep::DecisionsSince { term, version } => StoreReply::Decision(self.decisions_since(term, version)),
            StoreStep::TakeLead(request) => StoreReply::Lead(self.take_lead(request)),
            StoreStep::ReportsSince(position) => StoreReply::Reports(self.reports_since(position)),
            StoreStep::Decide { decide, read } => StoreReply::Decided(self.decide(decide, read)),
        }
    }
}
