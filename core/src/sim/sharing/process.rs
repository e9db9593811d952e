//! A process: what it does once something reaches it.
//!
//! Each step handles one thing (its timer, a reply of the store, an instant to send a call, or the end of a
//! call), and ends with `after`, as a host does after each command.

use alloc::collections::BTreeMap;
use alloc::string::String;

use tidegate_local_lock::LocalLock;

use super::budgets::ProcessBudgets;
use super::{DriftingClock, Sent, SharingConfig, SharingEventKind, SharingObserver, SharingWorld, Step};
use crate::budget::Usage;
use crate::call::{Completion, Outcome};
use crate::error::ConfigError;
use crate::limit::{CallReport, LimitAlgorithm};
use crate::share::{GroupDemand, MemberHandle, MemberId, Role, Session, SessionSettings, StoreReply, StoreStep, Term};
use crate::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Process {
    /// The number in samples, events and changes.
    pub(super) number: usize,
    pub(super) id: MemberId,
    pub(super) session: Session<LocalLock>,
    /// The member of the session, as the limit of the process.
    pub(super) member: MemberHandle<LocalLock>,
    /// The step of each role whose reply is awaited.
    awaited: [Option<Sent>; Role::ALL.len()],
    /// The term that the process has requested last.
    requested: Term,
    pub(super) is_alive: bool,
    pub(super) leaves: bool,
    pub(super) suspended_until: Instant,
    pub(super) clock: DriftingClock,
    /// The granted calls: the local instant, the limit and the calls in flight after the grant, the estimate.
    granted: BTreeMap<u64, (Instant, u32, u32, Usage)>,
    budgets: ProcessBudgets,
    /// The number of grants so far.
    grants: u64,
    /// The demand: its calls in flight or waiting.
    pub(super) demand: u32,
    /// The earliest instant for which its timer is set.
    pub(super) wake_at: Instant,
}

impl Process {
    /// Creates a process, in the place with this number. Returns an error if a setting is out of range.
    pub(super) fn new(
        config: &SharingConfig,
        number: usize,
        id: MemberId,
        clock: DriftingClock,
        now: Instant,
        demand: u32,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        let local = clock.local(now);
        let settings = SessionSettings { share: config.share, choice: config.choice, limit: SharingConfig::aimd() };
        // The clock counts the time in which the process is suspended.
        let mut member = settings.member(local, id, config.cap, seed)?;
        member.set_max(local, config.cap, false);
        let member = MemberHandle::new(member);
        Ok(Self {
            number,
            id,
            session: Session::new(member.clone(), settings),
            member,
            awaited: [None; Role::ALL.len()],
            requested: Term::default(),
            is_alive: true,
            leaves: false,
            suspended_until: Instant::ZERO,
            clock,
            granted: BTreeMap::new(),
            budgets: ProcessBudgets::new(local, &config.budgets),
            grants: 0,
            demand,
            wake_at: Instant::MAX,
        })
    }

    /// Returns the number of calls in flight.
    fn in_flight(&self) -> u32 {
        self.granted.len() as u32
    }

    /// Returns the number of calls that wait.
    pub(super) fn waiting(&self) -> u32 {
        self.demand.saturating_sub(self.in_flight())
    }

    /// Makes the steps that are due, as [`SharedLimit::update`](crate::gate::SharedLimit::update) does.
    fn update(&mut self, local: Instant, (group, weight): (u64, u32), cap: u32) {
        if self.session.poll_timeout().is_none_or(|at| at > local) {
            return;
        }
        self.lease_budgets(local);
        if self.session.is_member_due(local) {
            let room = self.member.with(|member| member.limit(local)).saturating_sub(self.in_flight());
            let wallets = self.budgets.report(local, self.waiting(), room);
            self.session.set_wallets(wallets);
        }
        self.session.set_budgets(self.budgets.configs.clone());
        let demand = GroupDemand { group, weight, demand: self.demand.max(self.in_flight()) };
        self.session.handle_timeout(local, &[demand], cap);
    }

    /// Applies the present lease of the budgets.
    fn lease_budgets(&mut self, local: Instant) {
        self.budgets.lease(local, self.grants, &self.session.wallet_lease(local));
    }
}

impl<O: SharingObserver> SharingWorld<O> {
    /// Handles a reply or a failure, unless it is not that of the awaited step.
    pub(super) fn at_process(&mut self, sent: Sent, reply: Result<StoreReply, String>) {
        let Sent { p, role, .. } = sent;
        let is_lost = reply.is_ok() && self.is_disconnected(p);
        if is_lost || self.processes[p].awaited[role as usize].take_if(|awaited| *awaited == sent).is_none() {
            return;
        }
        let local = self.local(p);
        let process = &mut self.processes[p];
        let (number, leads) = (process.number, process.session.leads());
        let adopted = process.session.on_reply(local, role, reply.clone());
        process.lease_budgets(local);
        if let Some(decision) = &adopted {
            self.observer.on_adopted(process.id, local, decision);
        }
        match reply {
            Ok(StoreReply::Lead(lead)) if lead.term == process.requested => {
                self.observer.on_leader(lead.term, lead.snapshot.as_ref().map(|snapshot| snapshot.version));
                self.emit(SharingEventKind::Leads { process: number, epoch: lead.term.epoch });
            }
            Ok(StoreReply::Reports(reports)) => {
                if let Some(term) = leads {
                    self.observer.on_reports(self.now, term, local, &reports.reports);
                }
            }
            _ => {}
        }
        self.after(p);
    }

    /// Does what a host does after each command: makes the steps that are due, sends them, starts calls and
    /// arms the timer.
    pub(super) fn after(&mut self, p: usize) {
        let local = self.local(p);
        let (group, cap) = (p % self.config.weights.len().max(1), self.config.cap);
        let weight = self.config.weights.get(group).copied().unwrap_or(1);
        self.processes[p].update(local, (group as u64, weight), cap);
        for role in Role::ALL {
            let Some(step) = self.processes[p].session.poll_step(role) else { continue };
            match &step {
                StoreStep::Report(report) => self.observer.on_report_sent(local, report),
                StoreStep::TakeLead(request) => self.processes[p].requested = request.term,
                StoreStep::Decide { decide, .. } => self.observer.on_decision_made(self.now, local, decide),
                StoreStep::DecisionsSince { .. } | StoreStep::ReportsSince(_) => {}
            }
            self.processes[p].awaited[role as usize] = Some(self.send(p, role, &step));
        }
        self.start_calls(p, local);
        self.emit_lease(p, local);
        let process = &self.processes[p];
        let waits = process.waiting() > 0;
        let change = if waits { process.member.with(|member| member.next_change(local)) } else { None };
        let fits = process.budgets.fits_at(local).filter(|at| waits && *at < Instant::MAX);
        let next = [process.session.poll_timeout(), change, fits].into_iter().flatten().min();
        let at = next.map_or(Instant::MAX, |next| process.clock.true_time(next));
        if at < self.processes[p].wake_at {
            self.processes[p].wake_at = at.max(self.now);
            self.schedule(at, Step::Wake(p));
        }
    }

    fn start_calls(&mut self, p: usize, local: Instant) {
        loop {
            let process = &mut self.processes[p];
            let in_flight = process.in_flight();
            let (limit, opens_at) = process.member.with(|member| (member.limit(local), member.opens_at(local)));
            let has_room = in_flight < process.demand.min(limit) && opens_at.is_none();
            if !has_room || process.budgets.fits_at(local).is_some() {
                return;
            }
            let grant = process.grants;
            process.grants += 1;
            process.member.with(|member| {
                member.on_attempt(local, in_flight);
                member.on_grant(local, grant, in_flight + 1);
            });
            let estimate = process.budgets.reserve(local, grant, self.config.most_tokens, &mut self.rng);
            process.granted.insert(grant, (local, limit, in_flight + 1, estimate));
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
        if !self.processes[p].member.with(|member| member.may_send(local)) {
            self.finish(p, call, Outcome::LocalCancelled, None);
            return;
        }
        let process = &self.processes[p];
        self.observer.on_call(process.id, self.now, call, process.in_flight());
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
            in_flight: process.in_flight(),
            is_cooling_down: false,
        };
        process.member.with(|member| member.on_outcome(local, &report));
        let done = Completion { outcome, retry_after, usage: None };
        let returned = process.budgets.settle(local, call, estimate, done);
        self.observer.on_returned(process.id, call, &returned);
        self.observer.on_finished(process.id, call, outcome);
    }
}
