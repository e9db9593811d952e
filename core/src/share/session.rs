//! The order of the steps of one process at the store: those of its member, and those of its leader while
//! it leads. The [parent module](super) defines the terms.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use lock_api::RawMutex;

use super::config::SessionSettings;
use super::coordinator::{Coordinator, CoordinatorEffect, LeaderCommand};
use super::handle::MemberHandle;
use super::member::{Member, MemberCommand, MemberEffect};
use super::message::{Decide, Decided, Decision, GroupDemand, Lead, MemberId, Term};
use super::steps::{Role, StoreReply, StoreStep};
use crate::budget::{BudgetConfig, BudgetKey, WalletLease, WalletReport};
use crate::error::ConfigError;
use crate::limit::{Aimd, MemberState};
use crate::time::Instant;

impl SessionSettings {
    /// Creates a member whose limit on its own has these settings, with a maximum of `cap`. `seed` is that of
    /// [`Member::new`]. Returns an error if a setting is out of range.
    pub fn member(&self, now: Instant, id: MemberId, cap: u32, seed: u64) -> Result<Member, ConfigError> {
        let own = match self.choice.make()? {
            Some(algorithm) => algorithm,
            None => Box::new(Aimd::new(self.limit.clone(), cap)?),
        };
        Member::new(now, id, self.share, own, seed)
    }
}

/// A command that a session has given to one of its two machines, to be recorded.
#[derive(Debug)]
pub(crate) enum SessionCommand {
    /// One of the member, which the limit of the resource depends on.
    Member(MemberCommand),
    /// One of the leader, with the leader's instant and the decision that it made.
    Leader { now: Instant, command: LeaderCommand, decide: Option<Box<Decide>> },
}

/// The commands of a session since they were taken last. `None` if they are not recorded.
#[derive(Debug, Default)]
struct CommandLog(Option<Vec<SessionCommand>>);

impl CommandLog {
    fn member(&mut self, command: impl FnOnce() -> MemberCommand) {
        if let Some(commands) = &mut self.0 {
            commands.push(SessionCommand::Member(command()));
        }
    }

    fn leader(&mut self, now: Instant, command: LeaderCommand, decide: Option<&Decide>) {
        if let Some(commands) = &mut self.0 {
            commands.push(SessionCommand::Leader { now, command, decide: decide.cloned().map(Box::new) });
        }
    }
}

/// What a step does. The error of each is kept until it succeeds or is not needed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StepKind {
    Report,
    ReadDecision,
    TakeLead,
    ReadReports,
    Decide,
    /// The leader reads the snapshot of the one before.
    ReadSnapshot,
}

/// A step whose reply is awaited.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    kind: StepKind,
    /// Whether it is the last report of a member that leaves.
    is_last: bool,
}

/// The part of one process in a shared limit: drives its member, and a leader while it leads.
///
/// A decision of its own leader that the store has kept goes to the member directly, so a process that leads
/// does not read it again.
///
/// It does no input or output. The host calls [`Session::handle_timeout`] at the instant of
/// [`Session::poll_timeout`], carries out the steps that [`Session::poll_step`] returns for either role, and
/// passes each reply to [`Session::on_reply`]. A step that fails is not repeated: the next beat makes a new
/// one.
///
/// All instants are those of the host.
pub struct Session<L: RawMutex> {
    member: MemberHandle<L>,
    settings: SessionSettings,
    /// The budgets of the resource.
    budgets: Vec<BudgetConfig>,
    /// The steps of the member that are due, in their order.
    steps: VecDeque<StoreStep>,
    /// The newest decision that the member has got.
    newest: (Term, u64),
    awaited_by_member: Option<Awaited>,
    /// Whether the last report of the member is written.
    has_left: bool,
    /// The leadership that this process has been given, until its leader is created.
    new_lead: Option<Lead>,
    leadership: Option<Leadership>,
    awaited_by_leader: Option<Awaited>,
    errors: BTreeMap<StepKind, String>,
    log: CommandLog,
}

/// A leadership of this process.
struct Leadership {
    leader: Coordinator,
    /// The position in the reports up to which they are read.
    read: u64,
    /// Until when it is shown that the snapshot could not be read.
    anew_until: Instant,
    /// The decision that is being written.
    writes: Option<Decision>,
    /// Whether the member has one that it has not yet looked for.
    has_passed_on: bool,
    /// Whether it ends with the next decision.
    leaves: bool,
}

/// Commands.
impl<L: RawMutex> Session<L> {
    /// Creates the session of a member that is new. The settings must be in range.
    #[must_use]
    pub fn new(member: MemberHandle<L>, settings: SessionSettings) -> Self {
        Self {
            member,
            settings,
            budgets: Vec::new(),
            steps: VecDeque::new(),
            newest: (Term::default(), 0),
            awaited_by_member: None,
            has_left: false,
            new_lead: None,
            leadership: None,
            awaited_by_leader: None,
            errors: BTreeMap::new(),
            log: CommandLog::default(),
        }
    }

    /// Starts to keep the commands of both machines for [`Session::take_commands`].
    pub(crate) fn start_recording(&mut self) {
        self.log.0 = Some(Vec::new());
    }

    /// Takes the commands since the last call, in their order.
    pub(crate) fn take_commands(&mut self) -> Vec<SessionCommand> {
        self.log.0.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Sets the budgets of the resource
    /// ([`RequestAdmission::budgets`](crate::request::RequestAdmission::budgets)), before
    /// [`Session::handle_timeout`]. Without budgets it need not be called.
    pub fn set_budgets(&mut self, budgets: Vec<BudgetConfig>) {
        self.budgets = budgets;
    }

    /// Sets the states of the budgets
    /// ([`RequestAdmission::report_budgets`](crate::request::RequestAdmission::report_budgets)), before
    /// [`Session::handle_timeout`] if [`Session::is_member_due`]. Without budgets it need not be called.
    pub fn set_wallets(&mut self, wallets: BTreeMap<BudgetKey, WalletReport>) {
        self.member.with(|member| member.set_wallets(wallets));
    }

    /// Handles the timeout of both roles: [`Session::handle_member_timeout`] and
    /// [`Session::handle_leader_timeout`].
    pub fn handle_timeout(&mut self, now: Instant, demand: &[GroupDemand], cap: u32) {
        self.handle_member_timeout(now, demand);
        self.handle_leader_timeout(now, cap);
    }

    /// Makes the steps of the member if it [is due](Session::is_member_due). `demand` is that of the resource
    /// ([`RequestAdmission::demand`](crate::request::RequestAdmission::demand)).
    pub fn handle_member_timeout(&mut self, now: Instant, demand: &[GroupDemand]) {
        if !self.is_member_due(now) {
            return;
        }
        let now = self.member.to_member(now);
        let steps = &mut self.steps;
        let newest = self.newest;
        let has_newest = self.leadership.as_mut().is_some_and(|lead| core::mem::take(&mut lead.has_passed_on));
        let log = &mut self.log;
        self.member.with(|member| {
            if member.set_demand(now, demand) {
                log.member(|| MemberCommand::Hurry);
            }
            member.handle_timeout(now);
            while let Some(effect) = member.poll_effect() {
                steps.push_back(match effect {
                    MemberEffect::Report(report) => StoreStep::Report(report),
                    MemberEffect::ReadDecision if has_newest => continue,
                    MemberEffect::ReadDecision => StoreStep::DecisionsSince { term: newest.0, version: newest.1 },
                    MemberEffect::TakeLead(request) => StoreStep::TakeLead(request),
                });
            }
        });
        self.log.member(|| MemberCommand::HandleTimeout);
    }

    /// Makes the steps of the leader that are due, if the process leads. `cap` is the highest limit of the
    /// resource. An early call has no effect.
    pub fn handle_leader_timeout(&mut self, now: Instant, cap: u32) {
        if self.awaited_by_leader.is_some() {
            return;
        }
        let now = self.member.to_member(now);
        let SessionSettings { share, choice, limit } = &self.settings;
        if let Some(lead) = self.new_lead.take() {
            let settings = Box::new(self.settings.clone());
            self.log.leader(now, LeaderCommand::TakeOver { settings, cap, lead: Box::new(lead.clone()) }, None);
            // A new leadership replaces the one before. The settings are in range.
            let leader = Coordinator::take_over(now, *share, *choice, limit, cap, lead).ok();
            let anew_until = now + share.ttl;
            self.leadership = leader.map(|leader| Leadership {
                leader,
                read: 0,
                anew_until,
                writes: None,
                has_passed_on: false,
                leaves: false,
            });
        }
        let Some(leadership) = &mut self.leadership else { return };
        let leader = &mut leadership.leader;
        if self.has_left {
            if !core::mem::replace(&mut leadership.leaves, true) {
                leader.leave(now);
                self.log.leader(now, LeaderCommand::Leave, None);
            }
            return;
        }
        if leader.set_cap(now, cap) {
            self.log.leader(now, LeaderCommand::SetCap(cap), None);
        }
        if leader.set_budgets(now, &self.budgets) {
            self.log.leader(now, LeaderCommand::SetBudgets(self.budgets.clone()), None);
        }
        leader.handle_timeout(now);
        if now >= leadership.anew_until {
            self.errors.remove(&StepKind::ReadSnapshot);
        }
    }

    /// Handles the store's reply to the last step of `role`, or the text of the error if it failed. Returns
    /// the decision that the member has adopted, if there is one: the limit of the process may have changed.
    pub fn on_reply(&mut self, now: Instant, role: Role, reply: Result<StoreReply, String>) -> Option<Decision> {
        let now = self.member.to_member(now);
        let awaited = match role {
            Role::Member => self.awaited_by_member.take(),
            Role::Leader => self.awaited_by_leader.take(),
        };
        let Awaited { kind, is_last } = awaited?;
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                self.errors.insert(kind, error);
                return None;
            }
        };
        self.errors.remove(&kind);
        match reply {
            StoreReply::Reported => self.has_left |= is_last,
            StoreReply::Decision(None) => {}
            StoreReply::Decision(Some(decision)) => return self.on_decision(now, decision),
            StoreReply::Lead(lead) => self.on_lead(lead),
            StoreReply::Reports(reports) => {
                if let Some(leadership) = &mut self.leadership {
                    leadership.read = reports.next;
                    leadership.leader.on_reports(now, &reports.reports);
                    let command = LeaderCommand::OnReports(reports.reports);
                    self.log.leader(now, command, leadership.leader.decision());
                }
            }
            StoreReply::Decided(decided) => return self.on_decided(now, decided),
        }
        None
    }

    /// Passes a decision to the member. Returns it if the member has adopted it.
    fn on_decision(&mut self, now: Instant, decision: Decision) -> Option<Decision> {
        self.newest = (decision.term, decision.version);
        // There is a leader again, and its decision can be read.
        self.errors.retain(|kind, _| !matches!(kind, StepKind::TakeLead | StepKind::ReadDecision));
        let (id, has_adopted) = self.member.with(|member| (member.id(), member.on_decision(now, &decision)));
        self.log.member(|| MemberCommand::OnDecision(decision.part_of(id)));
        has_adopted.then_some(decision)
    }

    fn on_decided(&mut self, now: Instant, decided: Decided) -> Option<Decision> {
        self.log.leader(now, LeaderCommand::OnDecided(decided), None);
        let leadership = self.leadership.as_mut()?;
        let written = leadership.writes.take();
        if !leadership.leader.on_decided(decided) {
            self.leadership = None;
            // Its steps are not repeated.
            let ended = [StepKind::ReadReports, StepKind::Decide, StepKind::ReadSnapshot];
            self.errors.retain(|kind, _| !ended.contains(kind));
            return None;
        }
        let is_kept = |decision: &Decision| (decision.term, decision.version) == (decided.term, decided.version);
        // The reply to a read that is awaited may be an older decision, and one that has arrived a newer one.
        let reads = self.awaited_by_member.is_some_and(|awaited| awaited.kind == StepKind::ReadDecision);
        let is_newest = |decision: &Decision| is_kept(decision) && !reads && decision.version > self.newest.1;
        let decision = written.filter(is_newest)?;
        leadership.has_passed_on = true;
        self.on_decision(now, decision)
    }

    fn on_lead(&mut self, lead: Lead) {
        if !self.member.with(|member| member.on_lead(lead.term)) {
            return;
        }
        if lead.is_damaged {
            let error = "its snapshot cannot be read, so the limit is learned anew".to_string();
            self.errors.insert(StepKind::ReadSnapshot, error);
        }
        self.new_lead = Some(lead);
    }

    /// Leaves: no more calls start, and the others get the share. The host drives the session on until
    /// [`Session::has_ended`], which waits for the calls of the process. The limit of the process changes.
    pub fn leave(&mut self, now: Instant) {
        let now = self.member.to_member(now);
        self.member.with(|member| member.leave(now));
        self.log.member(|| MemberCommand::Leave);
    }
}

/// Output and state.
impl<L: RawMutex> Session<L> {
    /// Returns the next step of a role, unless the reply to its last one is awaited or none is due.
    pub fn poll_step(&mut self, role: Role) -> Option<StoreStep> {
        match role {
            Role::Member => self.poll_step_of_member(),
            Role::Leader => self.poll_step_of_leader(),
        }
    }

    fn poll_step_of_member(&mut self) -> Option<StoreStep> {
        if self.awaited_by_member.is_some() || self.has_left {
            return None;
        }
        let step = self.steps.pop_front()?;
        let (kind, is_last) = match &step {
            StoreStep::Report(report) => (StepKind::Report, report.leaves && report.in_flight() == 0),
            StoreStep::TakeLead(_) => (StepKind::TakeLead, false),
            _ => (StepKind::ReadDecision, false),
        };
        self.awaited_by_member = Some(Awaited { kind, is_last });
        Some(step)
    }

    fn poll_step_of_leader(&mut self) -> Option<StoreStep> {
        if self.awaited_by_leader.is_some() {
            return None;
        }
        let leadership = self.leadership.as_mut()?;
        let (kind, step) = match leadership.leader.poll_effect() {
            Some(CoordinatorEffect::ReadReports) => (StepKind::ReadReports, StoreStep::ReportsSince(leadership.read)),
            Some(CoordinatorEffect::Decide(decide)) => {
                leadership.writes = Some(decide.decision.clone());
                (StepKind::Decide, StoreStep::Decide { decide, read: leadership.read })
            }
            None => {
                if leadership.leaves {
                    self.leadership = None;
                }
                return None;
            }
        };
        self.awaited_by_leader = Some(Awaited { kind, is_last: false });
        Some(step)
    }

    /// Returns when to call [`Session::handle_timeout`], or `None` while only replies of the store are
    /// awaited. An instant in the past is due now.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let of_member = if self.is_member_idle() { self.member.with(|member| member.poll_timeout()) } else { None };
        let of_leader = match &self.leadership {
            _ if self.awaited_by_leader.is_some() => None,
            _ if self.new_lead.is_some() => Some(Instant::ZERO),
            Some(leadership) if leadership.leaves => None,
            Some(_) if self.has_left => Some(Instant::ZERO),
            Some(leadership) => leadership.leader.poll_timeout(),
            None => None,
        };
        of_member.into_iter().chain(of_leader).min().map(|at| self.member.to_host(at))
    }

    /// Returns whether [`Session::handle_member_timeout`] at `now` makes steps.
    #[must_use]
    pub fn is_member_due(&self, now: Instant) -> bool {
        let now = self.member.to_member(now);
        self.is_member_idle() && self.member.with(|member| member.poll_timeout()).is_some_and(|at| at <= now)
    }

    /// Returns whether the process has left: no step follows.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_left && self.new_lead.is_none() && self.leadership.is_none()
    }

    /// Returns the term in which the process leads, or `None` while it has no leader.
    #[must_use]
    pub fn leads(&self) -> Option<Term> {
        self.leadership.as_ref().map(|leadership| leadership.leader.term())
    }

    /// Returns what the process may spend of the budgets at `now`: see
    /// [`Member::wallet_lease`](super::Member::wallet_lease).
    #[must_use]
    pub fn wallet_lease(&self, now: Instant) -> WalletLease {
        let now = self.member.to_member(now);
        self.member.with(|member| member.wallet_lease(now))
    }

    /// Returns the state of the member at `now`, to show.
    #[must_use]
    pub fn state(&self, now: Instant) -> MemberState {
        let now = self.member.to_member(now);
        self.member.with(|member| member.state(now))
    }

    /// Returns the error of a step that has not succeeded since, if there is one.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.errors.values().next().map(String::as_str)
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &SessionSettings {
        &self.settings
    }

    fn is_member_idle(&self) -> bool {
        self.awaited_by_member.is_none() && self.steps.is_empty() && !self.has_left
    }
}

impl<L: RawMutex> fmt::Debug for Session<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("settings", &self.settings)
            .field("error", &self.error())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::call::Outcome;
    use crate::limit::{CallReport, Fixed, LimitAlgorithm, LimitChoice, LimitConfig};
    use crate::share::{MemoryStore, OnLoss, ShareConfig, TakeLead};
    use crate::time::Duration;

    const CAP: u32 = 8;

    type TestSession = Session<parking_lot::RawMutex>;

    fn session(seed: u64) -> (TestSession, MemberHandle<parking_lot::RawMutex>) {
        let share = ShareConfig { on_loss: OnLoss::Stop, ..ShareConfig::default() };
        let own = Box::new(Fixed::new(CAP));
        let member = Member::new(Instant::ZERO, MemberId(seed), share, own, seed).unwrap();
        let member = MemberHandle::new(member);
        let limit = LimitConfig { ramp: Duration::ZERO, ..LimitConfig::default() };
        let settings = SessionSettings { share, choice: LimitChoice::Fixed { limit: CAP }, limit };
        (Session::new(member.clone(), settings), member)
    }

    fn demand(calls: u32) -> Vec<GroupDemand> {
        vec![GroupDemand::new("", 1.0, calls)]
    }

    /// Carries out every step that is due until `end`. `reply_to` is the store. Returns the last instant.
    fn run_with(
        session: &mut TestSession,
        mut now: Instant,
        end: Instant,
        mut reply_to: impl FnMut(StoreStep) -> Result<StoreReply, String>,
    ) -> Instant {
        while now < end {
            session.handle_timeout(now, &demand(CAP), CAP);
            while let Some((role, step)) = Role::ALL.into_iter().find_map(|role| Some((role, session.poll_step(role)?)))
            {
                session.on_reply(now, role, reply_to(step));
                session.handle_timeout(now, &demand(CAP), CAP);
            }
            if session.has_ended() {
                return now;
            }
            now = session.poll_timeout().unwrap().max(now + Duration::from_millis(1));
        }
        now
    }

    fn run(session: &mut TestSession, now: Instant, end: Instant, store: &mut MemoryStore) -> Instant {
        run_with(session, now, end, |step| Ok(store.run(step)))
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_process_alone_takes_the_lead_and_gets_the_whole_limit() {
        let (mut session, _) = session(1);
        let mut store = MemoryStore::default();
        let now = run(&mut session, Instant::ZERO, at(1_000), &mut store);
        let state = session.state(now);
        assert!(state.is_leader && state.has_lease && (state.share, state.members) == (CAP, 1), "{state:?}");
        assert_eq!((session.leads(), session.error()), (Some(store.term()), None));
    }

    #[test]
    fn a_step_of_one_role_does_not_wait_for_the_other_and_early_timeouts_have_no_effect() {
        let (mut session, _) = session(1);
        let mut store = MemoryStore::default();
        let now = run(&mut session, Instant::ZERO, at(1_000), &mut store);
        assert!(session.is_member_due(now));
        session.handle_timeout(now, &demand(1), CAP);
        let member = session.poll_step(Role::Member);
        assert!(matches!(member, Some(StoreStep::Report(_))), "{member:?}");
        assert_eq!(session.poll_step(Role::Member), None, "a reply is awaited");
        let later = now + Duration::from_millis(200);
        session.handle_timeout(later, &demand(1), CAP);
        let leader = session.poll_step(Role::Leader);
        assert!(matches!(leader, Some(StoreStep::ReportsSince(_))), "{leader:?}");
        assert!(!session.is_member_due(later), "the reply to its step is awaited");
        assert_eq!(session.poll_timeout(), None, "both replies are awaited");
        assert_eq!(session.on_reply(later, Role::Member, Err("it is unreachable".to_string())), None);
        let member = session.poll_step(Role::Member);
        assert_eq!(member, None, "it has the newest decision, of its own leader");
        assert_eq!(session.on_reply(later, Role::Leader, Err("it is unreachable".to_string())), None);
        session.handle_timeout(later, &demand(1), CAP);
        let member = session.poll_step(Role::Member);
        assert!(matches!(member, Some(StoreStep::Report(_))), "{member:?}");
        session.on_reply(later, Role::Member, Ok(StoreReply::Reported));
        let member = session.poll_step(Role::Member);
        assert!(matches!(member, Some(StoreStep::DecisionsSince { .. })), "its leader has made none since: {member:?}");
    }

    #[test]
    fn a_process_that_leads_reads_no_decision_but_after_one_that_the_store_did_not_keep() {
        let (mut session, _) = session(1);
        let mut store = MemoryStore::default();
        let now = run(&mut session, Instant::ZERO, at(1_000), &mut store);
        let mut count = |session: &mut TestSession, now, end, fails: bool| {
            let mut steps = (0, 0);
            let end = run_with(session, now, at(end), |step| {
                steps.0 += u32::from(matches!(step, StoreStep::DecisionsSince { .. }));
                let is_decision = matches!(step, StoreStep::Decide { .. });
                steps.1 += u32::from(is_decision);
                if is_decision && fails { Err("it is unreachable".to_string()) } else { Ok(store.run(step)) }
            });
            (end, steps)
        };
        let (now, (reads, decisions)) = count(&mut session, now, 3_000, false);
        assert!(reads == 0 && decisions >= 19, "{reads} {decisions}");
        assert!(session.state(now).has_lease && session.state(now).age < Some(Duration::from_millis(110)));
        let (_, (reads, decisions)) = count(&mut session, now, 4_000, true);
        assert!(reads >= 9 && decisions >= 9, "{reads} {decisions}");
    }

    #[test]
    fn a_step_that_succeeds_does_not_hide_the_error_of_another() {
        let (mut session, _) = session(1);
        let mut store = MemoryStore::default();
        let now = run_with(&mut session, Instant::ZERO, at(1_000), |step| match step {
            StoreStep::Report(_) => Err("it is read-only".to_string()),
            step => Ok(store.run(step)),
        });
        assert_eq!(session.error(), Some("it is read-only"));
        run(&mut session, now, at(2_000), &mut store);
        assert_eq!(session.error(), None);
    }

    #[test]
    fn a_damaged_snapshot_is_an_error_for_the_time_of_a_lease() {
        let (mut session, _) = session(1);
        let mut store = MemoryStore::default();
        let mut damage = |step| match store.run(step) {
            StoreReply::Lead(lead) => Ok(StoreReply::Lead(Lead { is_damaged: true, ..lead })),
            reply => Ok(reply),
        };
        let now = run_with(&mut session, Instant::ZERO, at(4_000), &mut damage);
        assert_eq!(session.error(), Some("its snapshot cannot be read, so the limit is learned anew"));
        run_with(&mut session, now, at(6_000), damage);
        assert_eq!(session.error(), None);
    }

    #[test]
    fn a_process_that_leaves_reports_the_end_of_its_calls_and_then_ends_its_leadership() {
        let (mut session, mut member) = session(1);
        let mut store = MemoryStore::default();
        let now = run(&mut session, Instant::ZERO, at(1_000), &mut store);
        member.on_grant(now, 1, 1);
        session.leave(now);
        assert_eq!(session.state(now).room, 0);
        let now = run(&mut session, now, at(2_000), &mut store);
        assert!(!session.has_ended(), "a call is in flight");
        let call = CallReport {
            outcome: Outcome::Success,
            grant: 1,
            admitted_limit: CAP,
            admitted_in_flight: 1,
            retry_after: None,
            latency: Duration::ZERO,
            in_flight: 0,
            is_cooling_down: false,
        };
        member.on_outcome(now, &call);
        let ended = run(&mut session, now, at(3_000), &mut store);
        assert!(session.has_ended() && ended < at(2_500), "{ended:?}");
        let decision = store.decisions_since(Term::default(), 0).unwrap();
        assert!(decision.leader_leaves && decision.shares.is_empty(), "{decision:?}");
        let report = store.reports_since(0).reports.into_iter().next();
        assert!(report.is_none_or(|report| report.leaves && report.started == report.ended));
    }

    #[test]
    fn a_leader_whose_steps_fail_for_a_second_goes_on() {
        let (mut session, _) = session(1);
        let mut store = MemoryStore::default();
        let now = run(&mut session, Instant::ZERO, at(1_000), &mut store);
        let term = session.leads();
        let now = run_with(&mut session, now, at(2_000), |step| match step {
            StoreStep::ReportsSince(_) | StoreStep::Decide { .. } => Err("it is unreachable".to_string()),
            step => Ok(store.run(step)),
        });
        assert_eq!((session.leads(), session.error()), (term, Some("it is unreachable")));
        let version = store.decisions_since(Term::default(), 0).unwrap().version;
        run(&mut session, now, at(3_000), &mut store);
        assert_eq!((session.leads(), session.error()), (term, None));
        assert!(store.decisions_since(Term::default(), 0).unwrap().version > version);
    }

    #[test]
    fn a_leadership_that_another_process_takes_ends_without_an_error() {
        let (mut session, _) = session(1);
        let mut store = MemoryStore::default();
        let now = run(&mut session, Instant::ZERO, at(1_000), &mut store);
        let term = Term { epoch: store.term().epoch + 1, nonce: 99 };
        store.take_lead(TakeLead { expected: store.term(), term });
        let now = run(&mut session, now, at(1_500), &mut store);
        assert_eq!((session.leads(), session.error()), (None, None));
        // It leads again, as the other process writes no decision.
        let now = run(&mut session, now, at(5_000), &mut store);
        assert!(session.state(now).is_leader);
    }
}
