//! The leader: it owns the limit and divides it between the members. The [parent module](super) defines the
//! terms.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::budgets::{Claimant, SharedBudgets};
use super::config::{SessionSettings, ShareConfig};
use super::fairness::{Demand, divide};
use super::member_record::{MemberRecord, StartedCall};
use super::message::{
    Decide, Decided, Decision, EndedCall, GroupDemand, HIGH_VERSION, KnownMember, Lead, LeaderSnapshot, MAX_NUMBER,
    MAX_VERSION, MemberId, MemberReport, MemberShare, Term,
};
use crate::budget::BudgetConfig;
use crate::call::{Completion, Outcome};
use crate::error::ConfigError;
use crate::limit::controller::Controller;
use crate::limit::{LimitChoice, LimitConfig};
use crate::time::{Duration, Instant, Monotonic};

/// How long the slots that cannot be divided evenly stay with the same members.
const TURN: Duration = Duration::from_secs(1);

/// The number of latest latencies from which the 95th percentile is taken.
const LATENCIES: usize = 128;

/// The longest time between two calls that a leader takes over. A longer one is damaged.
const MAX_INTERVAL: Duration = Duration::from_secs(3_600);

/// The parts into which a rate is divided between members.
const PACE_PARTS: u32 = 1 << 16;

/// How many beats a member counts as one with waiting calls after a report of them: at the moment of a later
/// report, all its calls may be in flight.
const WAITS_FOR: u64 = 3;

/// What the host of the leader does next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CoordinatorEffect {
    /// Read the reports written since the last time, and pass them to [`Coordinator::on_reports`].
    ReadReports,
    /// Write this decision, and pass the reply to [`Coordinator::on_decided`].
    Decide(Decide),
}

/// A command of a [`Coordinator`] that can change its decisions, for recording and replay, with the arguments
/// of the method. [`Coordinator::handle_timeout`] is none: it decides only when the reports are read.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[expect(missing_docs, reason = "the arguments of the method of that name")]
#[non_exhaustive]
pub enum LeaderCommand {
    TakeOver { settings: Box<SessionSettings>, cap: u32, lead: Box<Lead> },
    SetCap(u32),
    SetBudgets(Vec<BudgetConfig>),
    OnReports(Vec<MemberReport>),
    OnDecided(Decided),
    Leave,
}

/// The leader. See the [module documentation](super).
#[derive(Debug)]
pub struct Coordinator {
    config: ShareConfig,
    term: Term,
    time: Monotonic,
    /// When this leader took over.
    began: Instant,
    /// The limit algorithm and its cooldowns.
    controller: Controller,
    budgets: SharedBudgets,
    members: BTreeMap<MemberId, MemberRecord>,
    /// The sum of [`MemberRecord::peak`] over the members.
    peaks: u64,
    /// The version of the newest decision.
    version: u64,
    /// The first version of this leader.
    first_version: u64,
    /// Calls started under a lower version belong to the cascade of the last cut.
    cut_version: u64,
    /// The number of grants of the controller at that cut; 0 if another leader made it.
    cut_grants: u64,
    /// If it is set, no share rises before this instant.
    no_raise_until: Option<Instant>,
    /// Whether that time ends when all members have adopted a decision of this leader.
    ends_early: bool,
    /// The limit in the newest decision.
    last_limit: u32,
    /// The number of the turn, which lasts for [`TURN`].
    turn: usize,
    /// Until when the beat is the fast one, because of a pause or the limit.
    fast_until: Instant,
    /// Since when members have waited for slots that others hold.
    unsettled_since: Option<Instant>,
    /// Whether the newest decision has a pause.
    was_paused: bool,
    next_beat: Instant,
    /// When a provider that limits the rate accepts the next call, after its last refusal.
    refills_at: Instant,
    /// The latest latencies of answered calls in milliseconds.
    latencies: VecDeque<u32>,
    effect: Option<CoordinatorEffect>,
    /// Whether it stops with the next decision.
    leaves: bool,
}

/// Commands.
impl Coordinator {
    /// Creates the leader of the term in `lead`. [`Member::on_lead`](super::Member::on_lead) must have
    /// returned `true` for this term.
    ///
    /// It continues from the limit and the rate in the snapshot with a new algorithm, which `choice` selects.
    /// `limit_config` has its further settings. `cap` is the highest limit; 0 counts as 1. Returns an error
    /// if a setting is out of range.
    pub fn take_over(
        now: Instant,
        config: ShareConfig,
        choice: LimitChoice,
        limit_config: &LimitConfig,
        cap: u32,
        lead: Lead,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        limit_config.validate()?;
        let (choice, limit_config) = match &lead.snapshot {
            None => (choice, limit_config.clone()),
            Some(snapshot) => from_limit(choice, limit_config, snapshot.limit),
        };
        let mut controller = Controller::new(limit_config, cap.max(1));
        if let Some(algorithm) = choice.make()? {
            controller.set_algorithm(now, Some(algorithm), Some(choice));
        }
        let interval = lead.snapshot.as_ref().and_then(|snapshot| snapshot.interval_ns).map(Duration::from_nanos);
        if let Some(interval) = interval.filter(|interval| *interval <= MAX_INTERVAL) {
            controller.set_interval(now, interval);
        }
        let has_snapshot = lead.snapshot.is_some();
        let last_limit = lead.snapshot.as_ref().map_or(controller.limit(now), |snapshot| snapshot.limit);
        let cut_version = lead.snapshot.as_ref().map_or(0, |snapshot| snapshot.cut_version);
        let amounts = lead.snapshot.as_ref().map(|snapshot| snapshot.budgets.clone());
        let (version, members) = lead.snapshot.map_or((0, BTreeMap::new()), |snapshot| {
            let version = if snapshot.version > MAX_VERSION { HIGH_VERSION } else { snapshot.version };
            let record = |(id, known)| (id, MemberRecord::new(now, version, &known));
            (version, snapshot.members.into_iter().map(record).collect())
        });
        let mut time = Monotonic::default();
        time.observe(now);
        Ok(Self {
            term: lead.term,
            time,
            began: now,
            last_limit,
            turn: 0,
            controller,
            budgets: SharedBudgets::new(amounts.or(lead.is_damaged.then(BTreeMap::new))),
            members,
            peaks: 0,
            version,
            first_version: version + 1,
            cut_version: cut_version.min(version + 1),
            cut_grants: 0,
            // Leases of the last leader may be valid. A readable snapshot has all of them, so the wait can
            // end once every member has adopted a decision. If it is damaged, only the full wait is safe.
            no_raise_until: (has_snapshot || lead.is_damaged).then(|| now + config.reclaim_after()),
            ends_early: !lead.is_damaged,
            fast_until: now,
            unsettled_since: None,
            was_paused: false,
            next_beat: now,
            refills_at: now,
            latencies: VecDeque::new(),
            effect: Some(CoordinatorEffect::ReadReports),
            leaves: false,
            config,
        })
    }

    /// Handles the timeout. At a beat, the next effect is to read the reports. An early call has no effect.
    pub fn handle_timeout(&mut self, now: Instant) {
        // A replay does not have this call, so the time of the decisions must not depend on it.
        let now = self.time.peek(now);
        if now >= self.next_beat {
            self.next_beat = now + self.beat(now);
            self.effect = Some(CoordinatorEffect::ReadReports);
        }
    }

    /// Processes the reports that were read, also if there are none, and makes a decision, which is the next
    /// effect.
    ///
    /// Reports may be old, repeated and in any order. A report whose number is above 2^53, or whose version
    /// is above 2^53 - 2^39, is ignored. The [parent module](super) has the cost.
    pub fn on_reports(&mut self, now: Instant, reports: &[MemberReport]) {
        let now = self.time.observe(now);
        self.controller.on_time(now);
        self.set_peaks(reports);
        for report in reports {
            self.on_report(now, report);
        }
        self.reclaim(now);
        self.decide(now);
    }

    /// Handles the store's reply to a decision. Returns whether this is still the leader. If it is not, the
    /// host drops it.
    ///
    /// If the store has a decision with a higher version, which a leader without a readable snapshot does not
    /// know, the versions of this leader continue from there.
    pub fn on_decided(&mut self, decided: Decided) -> bool {
        if decided.version > self.version && decided.version <= MAX_VERSION {
            self.learn_version(decided.version);
        }
        decided.term == self.term
    }

    /// Sets the highest limit; 0 counts as 1. Returns whether it has changed.
    pub fn set_cap(&mut self, now: Instant, cap: u32) -> bool {
        let before = self.controller.effective_max();
        if cap.max(1) != before {
            self.controller.set_cap(self.time.observe(now), cap.max(1), true);
        }
        self.controller.effective_max() != before
    }

    /// Sets the budgets that all members share: those of the resource, which are valid. They must be set
    /// before the first reports are processed. Returns whether they have changed.
    ///
    /// A new leader continues from the amounts in the snapshot, and a budget that it does not contain begins
    /// empty. Without a snapshot, the first budgets that are set begin full. They are emptied if a report
    /// shows that there was another leader. If the snapshot is damaged, they begin empty. Budgets that are
    /// added later begin empty.
    pub fn set_budgets(&mut self, now: Instant, budgets: &[BudgetConfig]) -> bool {
        // A replay has only the calls that change something.
        self.budgets.set(self.time.peek(now), budgets)
    }

    /// Stops: the next effect is to read the reports once more, for a last decision. It makes another member
    /// take the lead at once. The host drops the leader once that decision is written.
    pub fn leave(&mut self, now: Instant) {
        self.time.observe(now);
        self.leaves = true;
        self.effect = Some(CoordinatorEffect::ReadReports);
    }

    /// Applies a recorded command to the leader of a process, and returns the decision that it makes. `now`
    /// is an instant of the leader. Without a leader, only [`LeaderCommand::TakeOver`] has an effect.
    pub(crate) fn apply(leader: &mut Option<Self>, now: Instant, command: &LeaderCommand) -> Option<Decide> {
        if let LeaderCommand::TakeOver { settings, cap, lead } = command {
            let SessionSettings { share, choice, limit } = &**settings;
            *leader = Self::take_over(now, *share, *choice, limit, *cap, (**lead).clone()).ok();
        }
        let leader = leader.as_mut()?;
        match command {
            LeaderCommand::TakeOver { .. } => {}
            LeaderCommand::SetCap(cap) => {
                leader.set_cap(now, *cap);
            }
            LeaderCommand::SetBudgets(budgets) => {
                // A log may be damaged.
                if budgets.iter().try_for_each(BudgetConfig::validate).is_ok() {
                    leader.set_budgets(now, budgets);
                }
            }
            LeaderCommand::OnReports(reports) => {
                leader.on_reports(now, reports);
                return leader.decision().cloned();
            }
            LeaderCommand::OnDecided(decided) => {
                leader.on_decided(*decided);
            }
            LeaderCommand::Leave => leader.leave(now),
        }
        None
    }
}

/// Output and state.
impl Coordinator {
    /// Returns what the host does next.
    pub fn poll_effect(&mut self) -> Option<CoordinatorEffect> {
        self.effect.take()
    }

    /// Returns the decision that the next effect writes.
    pub(super) fn decision(&self) -> Option<&Decide> {
        match self.effect.as_ref()? {
            CoordinatorEffect::Decide(decide) => Some(decide),
            CoordinatorEffect::ReadReports => None,
        }
    }

    /// Returns when to call [`Coordinator::handle_timeout`]. It is never `None`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        Some(self.next_beat)
    }

    /// Returns the term of this leader.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    /// Returns the limit in force at `now`.
    #[must_use]
    pub fn limit(&self, now: Instant) -> u32 {
        self.controller.limit(self.time.peek(now))
    }

    /// Returns the number of starts that the algorithm has learned from.
    #[cfg(all(test, feature = "sim"))]
    pub(super) fn grants(&self) -> u64 {
        self.controller.grants()
    }

    fn beat(&self, now: Instant) -> Duration {
        let is_settling = self.unsettled_since.is_some_and(|since| now - since < self.config.fast_for);
        if now < self.fast_until || is_settling { self.config.fast_beat } else { self.config.beat }
    }
}

/// Reports.
impl Coordinator {
    /// Sets the most calls that each member had in flight at once since the report before these, as far as
    /// these show it.
    fn set_peaks(&mut self, reports: &[MemberReport]) {
        for record in self.members.values_mut() {
            record.peak = record.in_flight;
        }
        for report in reports.iter().filter(|report| !report.is_damaged()) {
            if let Some(record) = self.members.get_mut(&report.member).filter(|record| report.seq > record.seq) {
                record.peak = record.peak.max(report.most_in_flight(record.ended));
            }
        }
        self.peaks = self.members.values().map(|record| u64::from(record.peak)).sum();
    }

    fn on_report(&mut self, now: Instant, report: &MemberReport) {
        if report.is_damaged() {
            return;
        }
        if report.version > self.version {
            // The store has lost decisions, and with them other members may have got more than is known.
            self.learn_version(report.version);
            self.no_raise_until = Some(now + self.config.reclaim_after());
            self.ends_early = false;
        }
        let is_new = !self.members.contains_key(&report.member);
        if is_new && report.leaves && report.in_flight() == 0 {
            return;
        }
        // The calls of a new member that have ended give no information about the present limit.
        let known = KnownMember { seq: 0, ended: report.ended, in_flight: 0, occupied: 0, budgets: BTreeMap::new() };
        let record = self.members.entry(report.member).or_insert_with(|| MemberRecord::new(now, 0, &known));
        if is_new {
            record.peak = report.in_flight();
            self.peaks += u64::from(record.peak);
        }
        if report.seq <= record.seq {
            return;
        }
        record.seq = report.seq;
        record.received = now;
        record.groups.clone_from(&report.groups);
        if record.demanded() > report.in_flight() {
            record.waits_until = now + Duration::from_nanos(self.config.beat.as_nanos().saturating_mul(WAITS_FOR));
        }
        record.has_adopted |= report.version >= self.first_version;
        record.reclaimed = None;
        record.leaves = report.leaves;
        record.held = report.share;
        self.budgets.on_report(now, &mut record.budgets, &report.budgets);
        while record.pending.front().is_some_and(|(version, _)| *version <= report.version) {
            record.pending.pop_front();
        }
        let ended = report.ended.saturating_sub(record.ended);
        record.ended = record.ended.max(report.ended);
        record.in_flight = report.in_flight();
        if !report.groups.is_empty() {
            self.controller.on_attempt(now);
        }
        let ended = usize::try_from(ended).unwrap_or(usize::MAX);
        // Ends that are not in the report were acknowledged by another leader, or were too many to report.
        // Their outcome is unknown.
        for _ in 0..ended.saturating_sub(report.ends.len()) {
            let Some((_, call)) = record.calls.pop_first() else { break };
            self.controller.end(now, &call.grant, &Outcome::LocalCancelled.into(), true);
        }
        // The starts and ends since the last report, in their order: the algorithm needs to know how many
        // calls were in flight at each start.
        let skipped = report.ends.len() - ended.min(report.ends.len());
        let unseen = self.members.get(&report.member).map_or(0, |record| self.unseen_calls(record));
        // The member had adopted no decision with the last cut when it sent the report.
        let cut = (report.version < self.cut_version && self.cut_grants > 0).then_some(self.cut_grants);
        for end in &report.ends[skipped..] {
            let Some(record) = self.members.get_mut(&report.member) else { return };
            record.grant_until(now, end.started.min(report.started), cut, unseen, &mut self.controller);
            let Some(call) = record.take_call(end.call) else { continue };
            self.on_end(now, &call, end);
        }
        let Some(record) = self.members.get_mut(&report.member) else { return };
        record.grant_until(now, report.started, cut, unseen, &mut self.controller);
        // After lost reports, calls can be left over that have ended.
        while record.calls.len() as u64 > u64::from(record.in_flight) {
            let Some((_, call)) = record.calls.pop_first() else { break };
            self.controller.end(now, &call.grant, &Outcome::LocalCancelled.into(), true);
        }
    }

    /// Returns how many more calls than the leader counts the members other than this one may have had in
    /// flight.
    fn unseen_calls(&self, member: &MemberRecord) -> u32 {
        let most = self.peaks.saturating_sub(u64::from(member.peak));
        let counted = u64::from(self.controller.in_flight()).saturating_sub(member.calls.len() as u64);
        u32::try_from(most.saturating_sub(counted)).unwrap_or(u32::MAX)
    }

    /// Continues the versions from that of a decision which this leader did not make. Earlier calls do not
    /// cut the limit.
    fn learn_version(&mut self, version: u64) {
        self.version = version;
        self.cut_version = version + 1;
        self.budgets.empty(self.time.latest());
    }

    /// Gives the end of a call to the limit algorithm.
    fn on_end(&mut self, now: Instant, call: &StartedCall, end: &EndedCall) {
        let grant = call.grant;
        // An algorithm separates the calls before and after a cut by the numbers of their grants. Grants are
        // made when a report arrives, which is too late. So the number is moved to the side of the cut on
        // which the call started, by its version.
        let number = if end.version < self.cut_version {
            grant.number.min(self.cut_grants.saturating_sub(1))
        } else {
            grant.number.max(self.cut_grants)
        };
        let is_refused = end.outcome == Outcome::RateLimited;
        let mut latency = Duration::from_millis(u64::from(end.latency_ms));
        if is_refused {
            // An algorithm computes when the call was sent from the time until the refusal arrives, and takes
            // other calls for accepted after this time. A refusal waits for a report and for its reader: for
            // one beat on average, and for two at most.
            let age = Duration::from_millis(u64::from(end.age_ms));
            latency = latency + age.max(Duration::from_nanos(self.config.beat.as_nanos().saturating_mul(3) / 2));
        }
        let since = Instant::from_nanos(now.as_nanos().saturating_sub(latency.as_nanos()));
        let done = Completion {
            outcome: end.outcome,
            retry_after: end.retry_after_ms.map(|wait| Duration::from_millis(u64::from(wait))),
            usage: None,
        };
        if end.outcome == Outcome::Success {
            if self.latencies.len() == LATENCIES {
                self.latencies.pop_front();
            }
            self.latencies.push_back(end.latency_ms);
        }
        let before = self.controller.limit(now);
        // A call that started without a lease is no measurement of the shared limit. And the algorithm of
        // this leader does not know a cut of another leader, and would cut again.
        let is_hidden = end.version == 0 || end.version < self.cut_version && self.cut_grants == 0;
        // Calls at a learned pace are refused for their rate, and not for their number.
        let is_counted = is_refused && self.controller.interval().is_none();
        let in_flight = if is_counted { call.most_in_flight } else { grant.in_flight() };
        self.controller.end(now, &grant.as_reported(number, since, in_flight), &done, is_hidden);
        if is_refused
            && !is_hidden
            && let Some(at) = self.controller.opens_at(now)
        {
            self.refills_at = at;
        }
        if is_refused && self.controller.limit(now) < before {
            self.cut_version = self.version + 1;
            self.cut_grants = self.controller.grants();
        }
    }

    /// Reclaims lapsed leases, and drops members whose calls are no longer reserved.
    fn reclaim(&mut self, now: Instant) {
        let (lease, hold) = (self.config.reclaim_after(), self.hold());
        let mut dropped = Vec::new();
        for (id, record) in &mut self.members {
            if record.leaves && record.in_flight == 0 {
                dropped.push(*id);
                continue;
            }
            if now - record.received >= lease {
                let since = *record.reclaimed.get_or_insert(now);
                self.budgets.reclaim(now, &mut record.budgets);
                record.held = 0;
                record.pending.clear();
                record.share = 0;
                record.groups.clear();
                if now - since >= hold || record.in_flight == 0 {
                    dropped.push(*id);
                }
            }
        }
        for id in dropped {
            let Some(mut record) = self.members.remove(&id) else { continue };
            self.budgets.reclaim(now, &mut record.budgets);
            for call in record.calls.into_values() {
                self.controller.end(now, &call.grant, &Outcome::LocalCancelled.into(), true);
            }
        }
    }

    /// Returns how long the slots of a member's calls stay reserved after its lease was reclaimed.
    fn hold(&self) -> Duration {
        let mut latencies: Vec<u32> = self.latencies.iter().copied().collect();
        latencies.sort_unstable();
        let p95 = latencies.get(latencies.len() * 95 / 100).copied().unwrap_or(0);
        self.config.call_timeout.min(self.config.ttl.max(Duration::from_millis(2 * u64::from(p95))))
    }
}

/// Decisions.
impl Coordinator {
    /// Makes the next decision and its snapshot.
    fn decide(&mut self, now: Instant) {
        let limit = self.controller.limit(now);
        let interval = self.controller.interval();
        let pause = self.controller.blocked_until(now).map_or(Duration::ZERO, |until| until - now);
        let pause = interval.map_or(pause, |_| pause.max(self.refills_at - now));
        let is_paused = !pause.is_zero();
        if limit.abs_diff(self.last_limit) > 1 || (is_paused && !self.was_paused) {
            self.fast_until = now + self.config.fast_for;
        }
        (self.last_limit, self.was_paused) = (limit, is_paused);
        self.version += 1;
        let is_settled = self.assign(now, limit);
        self.unsettled_since = (!is_settled).then(|| self.unsettled_since.unwrap_or(now));
        let parts = self.parts(now);
        let is_scarce = self.grant_budgets(now, &parts);
        let share = |id: &MemberId, record: &MemberRecord| {
            let pace_ns = interval.and_then(|interval| Some(pace(interval, *parts.get(id)?))).unwrap_or(0);
            MemberShare { share: record.share, pace_ns, seen_seq: record.seq, granted: record.budgets.granted() }
        };
        let decision = Decision {
            term: self.term,
            version: self.version,
            limit,
            pause_ms: millis_up(pause),
            beat_ms: millis_up(self.beat(now)),
            leader_leaves: self.leaves,
            is_scarce,
            shares: self.members.iter().map(|(id, record)| (*id, share(id, record))).collect(),
        };
        let members = self.members.iter().map(|(id, record)| (*id, record.known())).collect();
        let interval_ns = interval.map(Duration::as_nanos);
        let (version, cut_version) = (self.version, self.cut_version);
        let budgets = self.budgets.amounts(now);
        let snapshot = LeaderSnapshot { version, limit, interval_ns, cut_version, members, budgets };
        self.next_beat = now + self.beat(now);
        self.effect = Some(CoordinatorEffect::Decide(Decide { decision, snapshot }));
    }

    /// Returns the part of each member in a rate, in parts of [`PACE_PARTS`].
    ///
    /// Members with waiting calls divide it by weighted max-min fairness between their groups, and others
    /// have next to nothing of it. Without waiting calls, the members have equal parts.
    fn parts(&self, now: Instant) -> BTreeMap<MemberId, u32> {
        let waiting = |record: &MemberRecord| {
            record.waiting_groups(now).map(|group| GroupDemand { demand: u32::MAX, ..*group }).collect()
        };
        let open = self.members.iter().filter(|(_, record)| record.is_open());
        let groups: BTreeMap<MemberId, Vec<GroupDemand>> = open.map(|(id, record)| (*id, waiting(record))).collect();
        let demands = groups.iter().map(|(id, groups)| (*id, Demand { groups, served: 0 })).collect();
        divide(PACE_PARTS, &demands, 0)
    }

    /// Grants amounts of the budgets. `parts` contains the members that may get some. Returns whether one
    /// waits.
    ///
    /// A call that was denied does not wait, so its member has next to no part. It gets that of a member with
    /// waiting calls, on average: else its next try would succeed after thousands of calls of the others.
    fn grant_budgets(&mut self, now: Instant, parts: &BTreeMap<MemberId, u32>) -> bool {
        let with_waiting = self.members.values().filter(|record| record.is_open() && record.has_waiting_calls(now));
        let mean_part = PACE_PARTS.checked_div(u32::try_from(with_waiting.count()).unwrap_or(u32::MAX));
        let (mut claimants, mut outstanding) = (Vec::new(), BTreeMap::new());
        for (id, record) in &mut self.members {
            record.budgets.add_outstanding(&mut outstanding);
            if let Some(part) = parts.get(id) {
                let is_denied = record.budgets.has_next_call() && !record.has_waiting_calls(now);
                let weight = mean_part.filter(|_| is_denied).unwrap_or(*part);
                claimants.push(Claimant { budgets: &mut record.budgets, weight });
            }
        }
        self.budgets.grant(now, &mut claimants, &outstanding)
    }

    /// Sets the shares of the decision `self.version`, as far as other members leave room. Returns whether
    /// they do, but for one slot: a slot that cannot be divided moves each second. O(members) and the cost of
    /// [`divide`].
    fn assign(&mut self, now: Instant, limit: u32) -> bool {
        let all_adopted = self.ends_early && self.members.values().all(|record| record.has_adopted);
        self.no_raise_until = self.no_raise_until.filter(|until| now < *until && !all_adopted);
        let may_raise = self.no_raise_until.is_none();
        let turn = ((now - self.began).as_nanos() / TURN.as_nanos()) as usize;
        if turn != self.turn {
            for record in self.members.values_mut().filter(|record| record.share > 0) {
                record.served = self.turn as u64 + 1;
            }
            self.turn = turn;
        }
        let open = self.members.iter().filter(|(_, record)| record.is_open());
        let targets = divide(limit, &open.map(|(id, record)| (*id, record.demand())).collect(), turn);
        // The sum of what all members occupy. For a member that has its new share, it is `max(occupied,
        // share)`.
        let mut total: u64 = self.members.values().map(|record| u64::from(record.occupied())).sum();
        let mut lacking = 0;
        for (id, record) in &mut self.members {
            let target = targets.get(id).copied().unwrap_or(0);
            let occupied = record.occupied();
            let others = total - u64::from(occupied);
            let room = u32::try_from(u64::from(limit).saturating_sub(others)).unwrap_or(u32::MAX);
            let mut share = target.min(room);
            lacking += u64::from(target.min(record.demanded()).saturating_sub(share));
            if !may_raise {
                share = share.min(record.usable_share());
            }
            if record.reclaimed.is_none() {
                record.issue(self.version, share);
            }
            total = others + u64::from(occupied.max(share));
        }
        lacking <= 1
    }
}

/// Returns the time between two calls of a member with this part of the rate of one call in each `interval`,
/// in nanoseconds. The members together keep to the rate.
fn pace(interval: Duration, part: u32) -> u64 {
    let nanos = u128::from(interval.as_nanos()) * u128::from(PACE_PARTS);
    u64::try_from(nanos.div_ceil(u128::from(part.max(1)))).unwrap_or(MAX_NUMBER).min(MAX_NUMBER)
}

/// Returns the settings of an algorithm that starts at `limit`, without a ramp: the limit is already learned.
fn from_limit(choice: LimitChoice, limit_config: &LimitConfig, limit: u32) -> (LimitChoice, LimitConfig) {
    let limit = limit.max(1);
    let limit_config = LimitConfig { initial_limit: Some(limit), ramp: Duration::ZERO, ..limit_config.clone() };
    let choice = match choice {
        LimitChoice::Tide(mut config) => {
            config.initial_limit = limit;
            LimitChoice::Tide(config)
        }
        LimitChoice::Vegas(mut config) => {
            config.initial_limit = limit;
            LimitChoice::Vegas(config)
        }
        other => other,
    };
    (choice, limit_config)
}

/// Returns a span in milliseconds, rounded up.
fn millis_up(span: Duration) -> u32 {
    u32::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}
