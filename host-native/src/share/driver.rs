//! The task that drives one shared limit: its member, and its leader while this process leads.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_core::gate::Gate;
use tidegate_core::limit::{AimdConfig, LimitChoice};
use tidegate_core::request::ResourceId;
use tidegate_core::runtime::Timer as _;
use tidegate_core::share::{
    Coordinator, CoordinatorEffect, Lead, MemberEffect, MemberHandle, ShareConfig, TakeLead, Term,
};
use tidegate_core::time::{Clock as _, Instant};
use tokio::sync::{mpsc, watch};

use super::store::{Store, StoreError};
use crate::host::TokioHost;

/// The steps at the store. The error of each is kept until it succeeds or is not needed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Report,
    ReadDecision,
    TakeLead,
    ReadReports,
    Decide,
    /// The leader reads the snapshot of the one before.
    ReadSnapshot,
}

/// The last error of each step.
pub(super) type StepErrors = Mutex<BTreeMap<Step, String>>;

/// A handle to a member on tokio.
pub(super) type Member = MemberHandle<parking_lot::RawMutex>;

/// The settings with which a leader is created.
#[derive(Clone, Debug)]
pub(super) struct LeaderSettings {
    pub(super) share: ShareConfig,
    pub(super) choice: LimitChoice,
    pub(super) aimd: AimdConfig,
}

/// Drives the member of one resource, and the leader if this process takes the lead.
pub(super) struct Driver<S> {
    pub(super) gate: Gate<TokioHost>,
    pub(super) resource: ResourceId,
    pub(super) member: Member,
    pub(super) settings: LeaderSettings,
    pub(super) store: S,
    pub(super) errors: Arc<StepErrors>,
    /// Becomes true when the member leaves.
    pub(super) leaves: watch::Receiver<bool>,
}

impl<S: Store> Driver<S> {
    /// Runs until the member has left. The future can be dropped at any time: the other processes then treat
    /// the member as killed.
    pub(super) async fn run(self) {
        let (leads, new_leads) = mpsc::channel(1);
        // Both wait for the store, and neither delays the other. The leader stops after the member.
        tokio::join!(self.drive_member(leads), self.drive_leader(new_leads));
    }

    /// Returns the instant by the clock of the member, which the leader uses, too.
    fn now(&self) -> Instant {
        self.member.to_member(self.gate.host().now())
    }

    /// Sleeps until an instant by the clock of the member.
    async fn sleep_until(&self, at: Instant) {
        self.gate.host().sleep_until(self.member.to_host(at)).await;
    }

    /// Records the error of a step, for people. The next beat tries again.
    fn record<T>(&self, step: Step, end: Result<T, StoreError>) -> Option<T> {
        let mut errors = self.errors.lock();
        match &end {
            Ok(_) => errors.remove(&step),
            Err(error) => errors.insert(step, error.to_string()),
        };
        end.ok()
    }

    /// Forgets the errors of steps that are not repeated any more.
    fn forget_errors(&self, steps: &[Step]) {
        self.errors.lock().retain(|step, _| !steps.contains(step));
    }

    async fn drive_member(&self, leads: mpsc::Sender<Lead>) {
        let mut leaves = self.leaves.clone();
        let mut is_leaving = false;
        // The newest decision that was read.
        let mut newest = (Term::default(), 0);
        loop {
            let demand = self.gate.with(|machine, _| machine.demand(self.resource));
            let now = self.now();
            let (effects, has_ended) = self.member.with(|member| {
                member.set_demand(&demand);
                member.handle_timeout(now);
                let effects: Vec<_> = std::iter::from_fn(|| member.poll_effect()).collect();
                (effects, member.in_flight() == 0)
            });
            for effect in effects {
                match effect {
                    MemberEffect::Report(report) => {
                        let is_written = self.record(Step::Report, self.store.report(report).await).is_some();
                        if is_leaving && has_ended && is_written {
                            return;
                        }
                    }
                    MemberEffect::ReadDecision => self.read_decision(&mut newest).await,
                    MemberEffect::TakeLead(request) => self.take_lead(request, &leads).await,
                    _ => {}
                }
            }
            let next = self.member.with(|member| member.poll_timeout()).unwrap_or(Instant::MAX);
            tokio::select! {
                () = self.sleep_until(next) => {}
                _ = leaves.wait_for(|leaves| *leaves), if !is_leaving => {
                    is_leaving = true;
                    let now = self.now();
                    self.member.with(|member| member.leave(now));
                    self.refresh();
                }
            }
        }
    }

    async fn read_decision(&self, newest: &mut (Term, u64)) {
        let (term, version) = *newest;
        let Some(Some(decision)) = self.record(Step::ReadDecision, self.store.decisions_since(term, version).await)
        else {
            return;
        };
        *newest = (decision.term, decision.version);
        // There is a leader again.
        self.forget_errors(&[Step::TakeLead]);
        let now = self.now();
        if self.member.with(|member| member.on_decision(now, &decision)) {
            self.refresh();
        }
    }

    /// Serves the waiters of the gate after a change of the share.
    fn refresh(&self) {
        // The resource is one of the gate's.
        let _ = self.gate.with(|machine, now| machine.refresh_limit(now, self.resource));
    }

    async fn take_lead(&self, request: TakeLead, leads: &mpsc::Sender<Lead>) {
        let Some(lead) = self.record(Step::TakeLead, self.store.take_lead(request).await) else { return };
        if self.member.with(|member| member.on_lead(lead.term)) {
            if lead.is_damaged {
                let error = "its snapshot cannot be read, so the limit is learned anew".to_string();
                self.errors.lock().insert(Step::ReadSnapshot, error);
            }
            // The receiver lives as long as this future.
            let _ = leads.send(lead).await;
        }
    }

    /// Drives each leadership of this process, one after the other, until the member has left. The last one ends
    /// with a decision of which another process takes the lead at once.
    async fn drive_leader(&self, mut leads: mpsc::Receiver<Lead>) {
        let mut next = leads.recv().await;
        while let Some(lead) = next.take() {
            let Some(mut leader) = self.new_leader(lead) else { return };
            let mut read = 0;
            let anew_until = self.now() + self.settings.share.ttl;
            next = loop {
                let is_leader = self.carry_out(&mut leader, &mut read).await;
                if !is_leader {
                    self.forget_errors(&[Step::ReadReports, Step::Decide, Step::ReadSnapshot]);
                }
                let at = leader.poll_timeout().filter(|_| is_leader).unwrap_or(Instant::MAX);
                tokio::select! {
                    lead = leads.recv() => {
                        if lead.is_none() && is_leader {
                            leader.leave(self.now());
                            self.carry_out(&mut leader, &mut read).await;
                        }
                        break lead;
                    }
                    () = self.sleep_until(at) => {
                        let now = self.now();
                        if now >= anew_until {
                            self.forget_errors(&[Step::ReadSnapshot]);
                        }
                        leader.set_cap(now, self.cap());
                        leader.handle_timeout(now);
                    }
                }
            };
        }
    }

    /// Returns the highest limit.
    fn cap(&self) -> u32 {
        self.gate.with(|machine, now| machine.stats(now, self.resource)).map_or(1, |stats| stats.effective_max)
    }

    /// Creates the leader of the term in `lead`. Returns `None` if a setting is out of range, which
    /// [`Share::join`](super::Share::join) has checked.
    fn new_leader(&self, lead: Lead) -> Option<Coordinator> {
        let LeaderSettings { share, choice, aimd } = &self.settings;
        Coordinator::take_over(self.now(), *share, *choice, aimd, self.cap(), lead).ok()
    }

    /// Carries out the effects of a leader. `read` is the position in the reports. Returns whether it is still
    /// the leader.
    async fn carry_out(&self, leader: &mut Coordinator, read: &mut u64) -> bool {
        while let Some(effect) = leader.poll_effect() {
            match effect {
                CoordinatorEffect::ReadReports => {
                    let Some(reports) = self.record(Step::ReadReports, self.store.reports_since(*read).await) else {
                        continue;
                    };
                    *read = reports.next;
                    leader.on_reports(self.now(), &reports.reports);
                }
                CoordinatorEffect::Decide(decide) => {
                    let Some(decided) = self.record(Step::Decide, self.store.decide(decide, *read).await) else {
                        continue;
                    };
                    if !leader.on_decided(decided) {
                        return false;
                    }
                }
                _ => {}
            }
        }
        true
    }
}
