//! What can be seen of a world from outside of its processes.

use crate::call::Outcome;
use crate::share::{Decide, Decision, Lead, MemberId, MemberReport, Term};
use crate::time::Instant;

/// Sees what crosses the borders of the processes: messages, clocks and calls. Each method is called as it
/// happens; by default it does nothing.
///
/// An instant named `local` is by the clock of the process, `now` is true time.
#[expect(unused_variables, reason = "the names of the parameters are their documentation")]
pub trait SharingObserver {
    /// A process starts.
    fn on_member(&mut self, id: MemberId, now: Instant, clock: DriftingClock) {}
    /// A member sends a report.
    fn on_report_sent(&mut self, local: Instant, report: &MemberReport) {}
    /// A member adopts a decision.
    fn on_adopted(&mut self, id: MemberId, local: Instant, decision: &Decision) {}
    /// A leader takes the lead in the store.
    fn on_lead(&mut self, now: Instant, lead: &Lead) {}
    /// A process learns that it is the leader, and the version of the snapshot that it got.
    fn on_leader(&mut self, term: Term, snapshot: Option<u64>) {}
    /// A leader processes reports, and makes a decision next.
    fn on_reports(&mut self, now: Instant, term: Term, local: Instant, reports: &[MemberReport]) {}
    /// A leader has made a decision, and sends it to the store.
    fn on_decision_made(&mut self, now: Instant, local: Instant, decide: &Decide) {}
    /// The store accepts a decision.
    fn on_published(&mut self, now: Instant, decision: &Decision) {}
    /// The store has this term now.
    fn on_term(&mut self, now: Instant, term: Term) {}
    /// The store has lost all decisions that it accepted but the first `kept`, and has this term now.
    fn on_lost_writes(&mut self, now: Instant, kept: usize, term: Term) {}
    /// A call is granted. `in_flight` counts the granted calls of the member, this one included.
    fn on_granted(&mut self, id: MemberId, local: Instant, call: u64, in_flight: u32) {}
    /// A granted call takes an amount of each budget, of a process that has lost the others if `is_alone`.
    fn on_reserved(&mut self, id: MemberId, now: Instant, call: u64, amounts: &[u64], is_alone: bool) {}
    /// A call that ends returns an amount to each budget, before [`Self::on_finished`].
    fn on_returned(&mut self, id: MemberId, call: u64, amounts: &[u64]) {}
    /// A granted call is sent to the provider.
    fn on_call(&mut self, id: MemberId, now: Instant, call: u64, in_flight: u32) {}
    /// The provider ends a call.
    fn on_call_ended(&mut self, id: MemberId, call: u64) {}
    /// The member handles the end of a call.
    fn on_finished(&mut self, id: MemberId, call: u64, outcome: Outcome) {}
}

impl SharingObserver for () {}

/// The clock of a process: it starts at `origin` and runs at `rate` parts per million.
#[derive(Clone, Copy, Debug)]
pub struct DriftingClock {
    /// What it shows at the true time zero, in nanoseconds.
    pub origin: u64,
    /// Its rate in parts per million.
    pub rate: u64,
}

impl DriftingClock {
    /// Returns what the clock shows at the true time `at`.
    #[must_use]
    pub fn local(self, at: Instant) -> Instant {
        let nanos = u128::from(at.as_nanos()) * u128::from(self.rate) / 1_000_000;
        Instant::from_nanos(self.origin + nanos as u64)
    }

    /// Returns the true time at which the clock shows `local`, or just after it.
    #[must_use]
    pub fn true_time(self, local: Instant) -> Instant {
        let nanos = u128::from(local.as_nanos().saturating_sub(self.origin)) * 1_000_000;
        Instant::from_nanos(nanos.div_ceil(u128::from(self.rate)) as u64 + 1)
    }
}
