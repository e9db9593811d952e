//! The store: what all processes can reach. It passes on messages, accepts decisions of one leader at a time,
//! and keeps the snapshot for the next leader.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::message::{Decide, Decided, Decision, Lead, LeaderSnapshot, MemberId, MemberReport, TakeLead, Term};

/// The reports that [`MemoryStore::reports_since`] returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    /// The newest report of each member that wrote one after the position `since`, in any order.
    pub reports: Vec<MemberReport>,
    /// The value of `since` for the next read: the position of the latest report. The store numbers the
    /// reports that it accepts from 1, over all members.
    pub next: u64,
}

/// A store in memory: the reference of what a store does. A clone is a copy of its state, as of a backup.
///
/// It keeps the newest report of each member, the newest decision, the present term and a snapshot. Each
/// method is one atomic step. A step whose reply is lost may have run; repeating it is harmless.
///
/// The machines call no store, so a host with a store over a network does the same five steps in its own way,
/// also asynchronously. A step that failed is ignored, and the next beat tries again.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    term: Option<Term>,
    decision: Option<Decision>,
    snapshot: Option<LeaderSnapshot>,
    /// The newest report of each member, with its position.
    reports: BTreeMap<MemberId, (u64, MemberReport)>,
    /// The position of the latest report.
    position: u64,
}

impl MemoryStore {
    /// Returns the present term, or the default if there is none.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term.unwrap_or_default()
    }
}

/// The five steps.
impl MemoryStore {
    /// Keeps `report`, unless the store has this or a newer one of the same member. [`MemoryStore::decide`]
    /// drops the reports of members that are gone.
    pub fn report(&mut self, report: MemberReport) {
        let is_old = self.reports.get(&report.member).is_some_and(|(_, newest)| newest.seq >= report.seq);
        if !is_old {
            self.position += 1;
            self.reports.insert(report.member, (self.position, report));
        }
    }

    /// Returns the reports written since the position `since`, which is 0 at first. A store that has lost
    /// writes returns all its reports.
    #[must_use]
    pub fn reports_since(&self, since: u64) -> Reports {
        let since = if since > self.position { 0 } else { since };
        let newer = self.reports.values().filter(|(position, _)| *position > since);
        Reports { reports: newer.map(|(_, report)| report.clone()).collect(), next: self.position }
    }

    /// Keeps the decision and its snapshot if its term is the present one and its version is higher than that
    /// of the newest decision. A store without a term takes that of the decision. Returns the present term,
    /// and the version of the newest decision.
    ///
    /// If the decision is kept, drops the reports of members that the snapshot does not contain, up to the
    /// position `read`: the leader has processed those, and has dropped the members.
    pub fn decide(&mut self, decide: Decide, read: u64) -> Decided {
        let Decide { decision, snapshot } = decide;
        let term = *self.term.get_or_insert(decision.term);
        let is_newer = self.decision.as_ref().is_none_or(|newest| newest.version < decision.version);
        if term == decision.term && is_newer {
            self.reports.retain(|id, (position, _)| *position > read || snapshot.members.contains_key(id));
            (self.decision, self.snapshot) = (Some(decision), Some(snapshot));
        }
        Decided { term, version: self.decision.as_ref().map_or(0, |newest| newest.version) }
    }

    /// Replaces the present term if it is the expected one, or if there is none. Returns the present term and
    /// the snapshot.
    pub fn take_lead(&mut self, request: TakeLead) -> Lead {
        let term = self.term.get_or_insert(request.expected);
        if *term == request.expected {
            *term = request.term;
        }
        Lead { term: *term, snapshot: self.snapshot.clone(), is_damaged: false }
    }

    /// Returns the newest decision if its term or version differs from the given ones, which are those of the
    /// last decision that the caller read.
    #[must_use]
    pub fn decisions_since(&self, term: Term, version: u64) -> Option<Decision> {
        self.decision.clone().filter(|newest| (newest.term, newest.version) != (term, version))
    }
}
