//! A process: what it does once something reaches it.
//!
//! Each step handles one thing (its timer, a reply of the store, an instant to send a call, or the end of a
//! call), and ends with `after`, as a host does after each command.

use alloc::collections::BTreeMap;

use super::budgets::ProcessBudgets;
use super::{
    DriftingClock, Request, SharingConfig, SharingEventKind, SharingObserver, SharingWorld, Step, StoreResponse,
};
use crate::budget::Usage;
use crate::call::{Completion, Outcome};
use crate::limit::{CallReport, LimitAlgorithm};
use crate::share::{Coordinator, CoordinatorEffect, GroupDemand, Member, MemberEffect, MemberId, Term};
use crate::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Process {
    /// The number in samples, events and changes.
    pub(super) number: usize,
    pub(super) id: MemberId,
    pub(super) member: Member,
    pub(super) leader: Option<Coordinator>,
    /// The position in the reports that the leader has read.
    pub(super) read: u64,
    /// The term and the version of the newest decision that it has read.
    pub(super) newest: (Term, u64),
    pub(super) is_alive: bool,
    pub(super) leaves: bool,
    pub(super) suspended_until: Instant,
    pub(super) clock: DriftingClock,
    /// The granted calls: the local instant, the limit and the calls in flight after the grant, the estimate.
    pub(super) granted: BTreeMap<u64, (Instant, u32, u32, Usage)>,
    pub(super) budgets: ProcessBudgets,
    /// The number of grants so far.
    pub(super) grants: u64,
    /// The demand: its calls in flight or waiting.
    pub(super) demand: u32,
    /// The earliest instant for which its timer is set.
    pub(super) wake_at: Instant,
}

impl Process {
    /// Applies the present lease of the budgets, and passes their states to the member.
    pub(super) fn report_budgets(&mut self, local: Instant) {
        self.budgets.lease(local, self.grants, &self.member);
        let in_flight = self.granted.len() as u32;
        let waiting = self.demand.saturating_sub(in_flight);
        let room = self.member.limit(local).saturating_sub(in_flight);
        self.budgets.report(local, waiting, room, &mut self.member);
    }
}

impl<O: SharingObserver> SharingWorld<O> {
    pub(super) fn at_process(&mut self, p: usize, answer: StoreResponse) {
        if self.is_disconnected(p) {
            return;
        }
        let local = self.local(p);
        match answer {
            StoreResponse::Decision(decision) => {
                let process = &mut self.processes[p];
                process.newest = (decision.term, decision.version);
                if process.member.on_decision(local, &decision) {
                    process.budgets.lease(local, process.grants, &process.member);
                    self.observer.on_adopted(process.id, local, &decision);
                }
            }
            StoreResponse::Lead(lead) => {
                if self.processes[p].member.on_lead(lead.term) {
                    let process = self.processes[p].number;
                    self.emit(SharingEventKind::Leads { process, epoch: lead.term.epoch });
                    self.observer.on_leader(lead.term, lead.snapshot.as_ref().map(|snapshot| snapshot.version));
                    let config = &self.config;
                    let mut leader = Coordinator::take_over(
                        local,
                        config.share,
                        config.choice,
                        &SharingConfig::aimd(),
                        config.cap,
                        lead,
                    )
                    .expect("valid");
                    leader.set_budgets(local, &config.budgets);
                    (self.processes[p].leader, self.processes[p].read) = (Some(leader), 0);
                }
            }
            StoreResponse::Reports(term, reports) => {
                let process = &mut self.processes[p];
                if let Some(leader) = process.leader.as_mut().filter(|leader| leader.term() == term) {
                    leader.on_reports(local, &reports.reports);
                    process.read = reports.next;
                    self.observer.on_reports(self.now, term, local, &reports.reports);
                }
            }
            StoreResponse::Decided(term, decided) => {
                let leader = &mut self.processes[p].leader;
                if leader.as_mut().is_some_and(|leader| leader.term() == term && !leader.on_decided(decided)) {
                    *leader = None;
                }
            }
        }
        self.after(p);
    }

    /// Does what a host does after each command: drains the effects, starts calls and arms the timer.
    pub(super) fn after(&mut self, p: usize) {
        let local = self.local(p);
        let process = &mut self.processes[p];
        let group = GroupDemand {
            group: p as u64 % self.config.groups.max(1),
            weight: 1,
            demand: process.demand.max(process.granted.len() as u32),
        };
        process.member.set_demand(&[group]);
        while let Some(effect) = self.processes[p].member.poll_effect() {
            let request = match effect {
                MemberEffect::Report(report) => {
                    self.observer.on_report_sent(local, &report);
                    Request::Report(report)
                }
                MemberEffect::ReadDecision => {
                    let (term, version) = self.processes[p].newest;
                    Request::ReadDecision(term, version)
                }
                MemberEffect::TakeLead(request) => Request::TakeLead(request),
            };
            self.send(p, &request);
        }
        while let Some(leader) = &mut self.processes[p].leader {
            let (term, Some(effect)) = (leader.term(), leader.poll_effect()) else { break };
            let read = self.processes[p].read;
            let request = match effect {
                CoordinatorEffect::ReadReports => Request::ReadReports(term, read),
                CoordinatorEffect::Decide(decide) => {
                    self.observer.on_decision_made(self.now, local, &decide.decision);
                    Request::Decide(decide, read)
                }
            };
            self.send(p, &request);
        }
        self.start_calls(p, local);
        self.emit_lease(p, local);
        let process = &self.processes[p];
        let leader = process.leader.as_ref().and_then(Coordinator::poll_timeout);
        let waits = process.demand > process.granted.len() as u32;
        let change = if waits { process.member.next_change(local) } else { None };
        let fits = process.budgets.fits_at(local).filter(|at| waits && *at < Instant::MAX);
        let next = [process.member.poll_timeout(), leader, change, fits].into_iter().flatten().min();
        let at = next.map_or(Instant::MAX, |next| process.clock.true_time(next));
        if at < self.processes[p].wake_at {
            self.processes[p].wake_at = at.max(self.now);
            self.schedule(at, Step::Wake(p));
        }
    }

    fn start_calls(&mut self, p: usize, local: Instant) {
        loop {
            let process = &mut self.processes[p];
            let in_flight = process.granted.len() as u32;
            let member = &mut process.member;
            if in_flight >= process.demand || in_flight >= member.limit(local) || member.opens_at(local).is_some() {
                return;
            }
            if process.budgets.fits_at(local).is_some() {
                return;
            }
            member.on_attempt(local, in_flight);
            let grant = process.grants;
            process.grants += 1;
            let estimate = process.budgets.reserve(local, grant, self.config.most_tokens, &mut self.rng);
            process.granted.insert(grant, (local, member.limit(local), in_flight + 1, estimate));
            member.on_grant(local, grant, in_flight + 1);
            self.observer.on_granted(process.id, local, grant, in_flight + 1);
            let amounts = process.budgets.amounts(estimate);
            self.observer.on_reserved(process.id, self.now, grant, &amounts, process.budgets.is_alone);
            if self.config.stops_before_send && self.rng.below(2_000) == 0 {
                // The process stops between the grant and the first byte.
                let span = Duration::from_nanos(self.rng.below(2 * self.config.share.ttl.as_nanos()));
                self.suspend(p, span);
                self.schedule(self.now + span, Step::Send(p, grant));
                return;
            }
            self.send_call(p, grant);
        }
    }

    pub(super) fn send_call(&mut self, p: usize, call: u64) {
        let local = self.local(p);
        if !self.processes[p].member.may_send(local) {
            self.finish(p, call, Outcome::LocalCancelled, None);
            return;
        }
        let process = &self.processes[p];
        let granted = process.granted.len() as u32;
        self.observer.on_call(process.id, self.now, call, granted);
        self.numbers[process.number].in_flight += 1;
        let end = self.provider.start(self.now, &self.config, &mut self.rng);
        self.schedule(end.at, Step::CallEnds(p, call, end));
    }

    pub(super) fn finish(&mut self, p: usize, call: u64, outcome: Outcome, retry_after: Option<Duration>) {
        let local = self.local(p);
        let process = &mut self.processes[p];
        let (since, limit, in_flight, estimate) = process.granted.remove(&call).expect("the call is out");
        let report = CallReport {
            outcome,
            grant: call,
            admitted_limit: limit,
            admitted_in_flight: in_flight,
            retry_after,
            latency: local - since,
            in_flight: process.granted.len() as u32,
            is_cooling_down: false,
        };
        process.member.on_outcome(local, &report);
        let done = Completion { outcome, retry_after, usage: None };
        let returned = process.budgets.settle(local, call, estimate, done);
        self.observer.on_returned(process.id, call, &returned);
        self.observer.on_finished(process.id, call, outcome);
    }
}
