//! A member: one process that starts calls within its share. The [parent module](super) defines the terms.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::hash::Hasher as _;

use super::config::{OnLoss, ShareConfig};
use super::hurry::Hurry;
use super::message::{
    Decision, EndedCall, GroupDemand, MAX_NUMBER, MAX_VERSION, MemberId, MemberReport, TakeLead, Term,
};
use crate::budget::{BudgetKey, WalletLease, WalletMode, WalletReport};
use crate::call::Outcome;
use crate::error::ConfigError;
use crate::limit::{CallReport, LimitAlgorithm, MemberState};
use crate::portable_hasher::PortableHasher;
use crate::time::{Duration, Instant, Monotonic};

/// The most groups that a report names. The others count as one group more.
const GROUPS: usize = 32;

/// The most ended calls that a report repeats. Older ones still count as ended, but their outcome is lost.
const ENDS: usize = 1_024;

/// A call that is late by at most 1/`LATE` of the interval does not shift the schedule of the pace.
const LATE: u64 = 4;

/// What the host of a member does next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberEffect {
    /// Write this report. Replaces a report that was not yet written.
    Report(MemberReport),
    /// Read the newest decision, and pass it to [`Member::on_decision`].
    ReadDecision,
    /// Try to take the lead, and pass the term in the reply to [`Member::on_lead`].
    TakeLead(TakeLead),
}

/// A command of a [`Member`] that can change what it allows, for recording and replay. The other commands of
/// a host change only its reports and its requests for the lead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum MemberCommand {
    /// [`Member::handle_timeout`].
    HandleTimeout,
    /// [`Member::set_demand`] that returned `true`. The demand itself changes only reports.
    Hurry,
    /// [`Member::on_decision`]. The shares of the other members are empty: a member uses only their number
    /// and order.
    OnDecision(Decision),
    /// [`Member::leave`].
    Leave,
}

/// What a member had last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Balance {
    /// Calls that waited for slots.
    Lacks,
    /// Idle slots.
    Spares,
}

/// One process that shares a limit. See the [module documentation](super).
///
/// As a [`LimitAlgorithm`], it is the limit of the process: [`Member::room`].
///
/// A lease must lapse while a machine is suspended, and the clocks of most hosts stop then. So the clock of
/// the member is that of the host plus the time of [`LimitAlgorithm::set_suspended`]. As a limit algorithm,
/// it takes and returns instants of the host; all its other methods use instants of its own clock.
#[derive(Debug)]
pub struct Member {
    id: MemberId,
    config: ShareConfig,
    seed: u64,
    time: Monotonic,
    /// How far its clock is ahead of that of the host.
    suspended: Duration,
    /// The limit of this process on its own. It learns from all calls, and applies only after a loss.
    own: Box<dyn LimitAlgorithm>,
    /// The maximum that request admission sets.
    max: u32,

    /// The highest version adopted.
    version: u64,
    /// The share in that decision.
    share: u32,
    /// The lease has lapsed from this instant on.
    lease_until: Instant,
    paused_until: Instant,
    /// The limit and the number of members in that decision.
    limit: u32,
    members: u32,
    /// When it was adopted. `None` if no decision was.
    adopted: Option<Instant>,
    /// The equal part of the limit in that decision, for [`OnLoss::Share`].
    part: u32,
    /// From this instant on, the others count as lost. The next beat notices it.
    lost_at: Instant,
    /// Whether they do, so that [`OnLoss`] applies.
    is_lost: bool,

    /// The number of the latest report.
    seq: u64,
    /// The reports that a decision may acknowledge, oldest first: number, time of sending, ended calls in it.
    /// Those older than a TTL give no lease and are dropped.
    sent: VecDeque<(u64, Instant, u64)>,
    /// The calls in flight by grant, with their numbers and the versions under which they started.
    calls: BTreeMap<u64, (u64, u64)>,
    /// The number of calls started so far.
    started: u64,
    /// The number of calls ended so far.
    ended: u64,
    /// The last of the ended calls: those that no decision has acknowledged. With the instants of their ends.
    ends: VecDeque<(Instant, EndedCall)>,
    /// The refused calls whose slots are frozen, at most the last 1024. The number of a call is that of the
    /// calls that ended before it.
    frozen: VecDeque<u64>,
    /// The time between the starts of two calls; zero if there is no bound.
    pace: Duration,
    /// When the next call is due at this pace. Without a pace, when the last call started.
    due: Instant,
    groups: Vec<GroupDemand>,
    /// What was granted of each budget in the adopted decision.
    granted: BTreeMap<BudgetKey, u64>,
    /// Whether a member waits for an amount of a budget.
    is_scarce: bool,
    wallets: BTreeMap<BudgetKey, WalletReport>,
    leaves: bool,
    /// The beat that the leader has set.
    beat: Duration,
    next_beat: Instant,
    balance: Balance,
    /// The fast beat because slots move from or to this member.
    hurry: Hurry,

    /// The newest decision that was read.
    newest: (Term, u64),
    /// The present term as far as it is known.
    term: Term,
    /// The term of the latest request for the lead, unless it has succeeded.
    requested: Option<Term>,
    /// The latest term of this process as the leader.
    led: Option<Term>,
    /// When the member takes the lead, unless it reads a new decision before.
    takes_lead_at: Instant,
    effects: VecDeque<MemberEffect>,
}

/// Commands.
impl Member {
    /// Creates a member. It has no share until it adopts its first decision.
    ///
    /// `own` is the limit of the process without others, for [`OnLoss`]. `seed` must be random and different
    /// in each process: it gives the nonces of terms and the random part of the time until the member takes
    /// the lead. Returns an error if a setting is out of range.
    pub fn new(
        now: Instant,
        id: MemberId,
        config: ShareConfig,
        own: Box<dyn LimitAlgorithm>,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        let mut time = Monotonic::default();
        time.observe(now);
        Ok(Self {
            id,
            seed,
            time,
            suspended: Duration::ZERO,
            own,
            max: u32::MAX,
            version: 0,
            share: 0,
            lease_until: Instant::ZERO,
            paused_until: Instant::ZERO,
            limit: 0,
            members: 0,
            adopted: None,
            part: 0,
            lost_at: now + config.ttl,
            is_lost: false,
            seq: 0,
            sent: VecDeque::new(),
            calls: BTreeMap::new(),
            started: 0,
            ended: 0,
            ends: VecDeque::new(),
            frozen: VecDeque::new(),
            pace: Duration::ZERO,
            due: Instant::ZERO,
            groups: Vec::new(),
            granted: BTreeMap::new(),
            is_scarce: false,
            wallets: BTreeMap::new(),
            leaves: false,
            beat: config.beat,
            next_beat: now,
            balance: Balance::Spares,
            hurry: Hurry::default(),
            newest: (Term::default(), 0),
            term: Term::default(),
            requested: None,
            led: None,
            // The first process takes the lead at once. Any other gets the present term as the reply.
            takes_lead_at: now,
            effects: VecDeque::new(),
            config,
        })
    }

    /// Handles the timeout: reports, reads the newest decision, and takes the lead if decisions have stopped.
    /// An early call has no effect. O(groups + ends of calls not acknowledged).
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.time.observe(now);
        if now >= self.next_beat {
            if self.is_overdue(now) {
                // The process was suspended, and could read no decision. The others may all be there.
                self.lost_at = self.lost_at.max(now + self.config.ttl);
            }
            self.is_lost = now >= self.lost_at;
            let hurries = self.hurry.lasts(now, &self.config);
            self.next_beat = now + if hurries { self.config.fast_beat } else { self.beat };
            self.report(now);
            self.effects.push_back(MemberEffect::ReadDecision);
        }
        if now >= self.takes_lead_at && !self.leaves {
            self.await_decision(now);
            // A damaged epoch counts as none.
            let epoch = self.term.epoch.checked_add(1).filter(|epoch| *epoch < MAX_NUMBER).unwrap_or(1);
            let term = Term { epoch, nonce: self.random(1) };
            self.requested = Some(term);
            self.effects.push_back(MemberEffect::TakeLead(TakeLead { expected: self.term, term }));
        }
    }

    /// Handles a decision, which may be old or repeated. Returns whether the member adopted it, which it does
    /// if the version is higher than that of all before. O(members).
    pub fn on_decision(&mut self, now: Instant, decision: &Decision) -> bool {
        let now = self.time.observe(now);
        if self.newest != (decision.term, decision.version) {
            self.newest = (decision.term, decision.version);
            self.term = decision.term;
            self.await_decision(now);
            if decision.leader_leaves {
                self.takes_lead_at = now + self.part_of(self.config.fast_beat);
            }
        }
        if decision.version <= self.version || decision.version > MAX_VERSION {
            return false;
        }
        self.version = decision.version;
        (self.lost_at, self.is_lost) = (now + self.config.ttl, false);
        let given = decision.shares.get(&self.id);
        self.set_pace(now, given.map_or(Duration::ZERO, |given| Duration::from_nanos(given.pace_ns)));
        self.paused_until = now + Duration::from_millis(u64::from(decision.pause_ms));
        let beat = Duration::from_millis(u64::from(decision.beat_ms));
        self.beat = beat.max(self.config.fast_beat).min(self.config.beat);
        self.next_beat = self.next_beat.min(now + self.beat);
        self.part = equal_part(decision, self.id);
        self.limit = decision.limit;
        self.members = u32::try_from(decision.shares.len()).unwrap_or(u32::MAX);
        self.adopted = Some(now);
        self.share = given.map_or(0, |given| given.share);
        self.is_scarce = decision.is_scarce;
        self.granted = given.map_or(BTreeMap::new(), |given| given.granted.clone());
        self.granted.values_mut().for_each(|granted| *granted = (*granted).min(MAX_NUMBER));
        if decision.pause_ms > 0 {
            self.begin_pace_after_pause(decision);
        }
        // A report that is not in `sent` is too old for a lease.
        let seen = given.and_then(|given| self.sent.iter().find(|(seq, ..)| *seq == given.seen_seq).copied());
        self.lease_until = seen.map_or(Instant::ZERO, |(_, sent, _)| sent + self.config.ttl);
        if let Some((seq, _, ended)) = seen {
            self.sent.retain(|(other, ..)| *other >= seq);
            self.frozen.retain(|number| *number >= ended);
            let unseen = usize::try_from(self.ended - ended).unwrap_or(usize::MAX);
            self.ends.drain(..self.ends.len().saturating_sub(unseen));
        }
        true
    }

    /// Handles the present term, which is the store's reply to a request for the lead. Returns whether it is
    /// that of the latest request. This process is then the leader, and the host creates a
    /// [`Coordinator`](super::Coordinator).
    pub fn on_lead(&mut self, term: Term) -> bool {
        self.term = term;
        let is_leader = self.requested.take_if(|requested| *requested == term).is_some();
        if is_leader {
            self.led = Some(term);
        }
        is_leader
    }

    /// Sets the demand: for each group, the calls in flight or waiting. `groups` contains each group at most
    /// once. The groups beyond the 32 largest count as one. O(n log n) for n groups.
    ///
    /// If calls wait where slots were idle, or the other way round, slots move between this member and
    /// others, which takes a few beats. So the beat is the fast one then, for two beats in a second at most.
    /// Returns whether it has become so.
    pub fn set_demand(&mut self, now: Instant, groups: &[GroupDemand]) -> bool {
        self.groups = groups.to_vec();
        self.groups.sort_by_key(|group| (core::cmp::Reverse(group.demand), group.group));
        if self.groups.len() > GROUPS {
            let others = self.groups.split_off(GROUPS);
            let weight = others.iter().map(|group| group.weight.max(1)).fold(0, u32::saturating_add);
            let demand = GroupDemand::sum(&others);
            self.groups.push(GroupDemand { group: 0, weight, demand });
        }
        let now = self.time.peek(now);
        let hurries = self.has_moved() && self.hurry.may_begin(now, &self.config);
        if hurries {
            self.hurry.begin(now);
        }
        hurries
    }

    /// Sets the states of the shared budgets, which the next report contains.
    /// [`RequestAdmission::report_budgets`](crate::request::RequestAdmission::report_budgets) returns them.
    pub fn set_wallets(&mut self, wallets: BTreeMap<BudgetKey, WalletReport>) {
        self.wallets = wallets;
    }

    /// Leaves: no more calls start, and the others get the share. The host drives the member on until its
    /// calls have ended, and then for one more beat, so that its last report is written.
    pub fn leave(&mut self, now: Instant) {
        let now = self.time.observe(now);
        self.leaves = true;
        self.next_beat = now;
    }

    /// Applies a recorded command at an instant of the host, and discards its effects: there is no store.
    pub(crate) fn apply(&mut self, now: Instant, command: &MemberCommand) {
        let now = self.to_member(now);
        match command {
            MemberCommand::HandleTimeout => self.handle_timeout(now),
            MemberCommand::Hurry => self.hurry.begin(self.time.peek(now)),
            MemberCommand::OnDecision(decision) => {
                self.on_decision(now, decision);
            }
            MemberCommand::Leave => self.leave(now),
        }
        self.effects.clear();
    }
}

/// Output and state.
impl Member {
    pub(crate) fn id(&self) -> MemberId {
        self.id
    }

    /// Converts an instant of the host to one of the member.
    pub(super) fn to_member(&self, at: Instant) -> Instant {
        at + self.suspended
    }

    /// Converts an instant of the member to one of the host.
    pub(super) fn to_host(&self, at: Instant) -> Instant {
        Instant::from_nanos(at.as_nanos().saturating_sub(self.suspended.as_nanos()))
    }

    /// Returns what the host does next.
    pub fn poll_effect(&mut self) -> Option<MemberEffect> {
        self.effects.pop_front()
    }

    /// Returns when to call [`Member::handle_timeout`]. It is never `None`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        Some(if self.leaves { self.next_beat } else { self.next_beat.min(self.takes_lead_at) })
    }

    /// Returns how many calls may be in flight at `now`, at most the maximum of request admission.
    ///
    /// | state of the member | calls |
    /// | --- | --- |
    /// | its lease is valid | the share, less the frozen slots |
    /// | its lease has lapsed | none |
    /// | at its last beat, a TTL had passed as well since it adopted a decision | by [`OnLoss`] |
    /// | its beat is overdue by a TTL (the process was suspended), and for a TTL from the next beat | none |
    /// | it leaves | none |
    #[must_use]
    pub fn room(&self, now: Instant) -> u32 {
        let now = self.time.peek(now);
        if self.leaves {
            0
        } else if now < self.lease_until {
            let frozen = u32::try_from(self.frozen.len()).unwrap_or(u32::MAX);
            self.share.saturating_sub(frozen).min(self.max)
        } else if !self.is_alone(now) {
            0
        } else {
            match self.config.on_loss {
                OnLoss::Share => self.part.min(self.own.limit(now)).min(self.max),
                OnLoss::Stop => 0,
                OnLoss::Alone => self.own.limit(now).min(self.max),
            }
        }
    }

    /// Returns what the process may spend of the shared budgets at `now`, for
    /// [`RequestAdmission::lease_budgets`](crate::request::RequestAdmission::lease_budgets). O(budgets).
    #[must_use]
    pub fn wallet_lease(&self, now: Instant) -> WalletLease {
        let now = self.time.peek(now);
        let mode = if self.leaves {
            WalletMode::Closed
        } else if now < self.lease_until {
            if self.is_scarce { WalletMode::Scarce } else { WalletMode::Plentiful }
        } else {
            match self.config.on_loss {
                OnLoss::Share if self.is_alone(now) && self.part > 0 => WalletMode::Alone { parts: self.members },
                OnLoss::Alone if self.is_alone(now) => WalletMode::Alone { parts: 1 },
                _ => WalletMode::Closed,
            }
        };
        WalletLease { granted: self.granted.clone(), mode }
    }

    /// Returns the state at `now`, to show.
    #[must_use]
    pub fn state(&self, now: Instant) -> MemberState {
        let now = self.time.peek(now);
        MemberState {
            members: self.members,
            limit: self.limit,
            share: self.share,
            room: self.room(now),
            has_lease: now < self.lease_until,
            leader_number: self.term.leader_number(),
            is_leader: self.led == Some(self.term),
            age: self.adopted.map(|adopted| now - adopted),
        }
    }

    /// Returns how much longer the lease is valid at `now`, or zero if it has lapsed.
    #[must_use]
    pub fn lease_left(&self, now: Instant) -> Duration {
        self.lease_until - self.time.peek(now)
    }

    /// Returns the number of calls in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.calls.len()
    }

    /// Returns the number of frozen slots.
    #[cfg(all(test, feature = "sim"))]
    pub(super) fn frozen(&self) -> usize {
        self.frozen.len()
    }

    /// Returns the highest version adopted, or 0 if there is none.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }
}

impl Member {
    /// Makes the next report.
    fn report(&mut self, now: Instant) {
        self.seq += 1;
        while self.sent.front().is_some_and(|(_, sent, _)| now - *sent > self.config.ttl) {
            self.sent.pop_front();
        }
        self.sent.push_back((self.seq, now, self.ended));
        // A report that the host has not written yet is superseded.
        self.effects.clear();
        self.effects.push_back(MemberEffect::Report(MemberReport {
            member: self.id,
            seq: self.seq,
            version: self.version,
            share: if now < self.lease_until { self.share } else { 0 },
            started: self.started,
            ended: self.ended,
            ends: self.ends.iter().map(|(at, end)| EndedCall { age_ms: millis(now - *at), ..*end }).collect(),
            groups: self.groups.clone(),
            leaves: self.leaves,
            budgets: self.wallets.clone(),
        }));
    }

    /// Returns whether calls wait where slots were idle, or the other way round. One call or slot does not
    /// count.
    fn has_moved(&mut self) -> bool {
        let wanted = GroupDemand::sum(&self.groups);
        let balance = if wanted > self.share.saturating_add(1) {
            Balance::Lacks
        } else if wanted.saturating_add(1) < self.share {
            Balance::Spares
        } else {
            self.balance
        };
        core::mem::replace(&mut self.balance, balance) != balance
    }

    /// Returns whether the beat is overdue by a TTL, so that the process was suspended for at least this
    /// long.
    fn is_overdue(&self, now: Instant) -> bool {
        now >= self.next_beat + self.config.ttl
    }

    /// Returns whether [`OnLoss`] applies, if there is no lease.
    fn is_alone(&self, now: Instant) -> bool {
        self.is_lost && !self.is_overdue(now)
    }

    /// Restarts the time after which the member takes the lead.
    fn await_decision(&mut self, now: Instant) {
        self.takes_lead_at = now + self.config.takeover_after + self.part_of(self.config.takeover_jitter);
    }

    /// Returns a random part of `most`.
    fn part_of(&self, most: Duration) -> Duration {
        // The random number is a fraction of 2^53.
        let part = u128::from(most.as_nanos()) * u128::from(self.random(2));
        Duration::from_nanos((part >> 53) as u64)
    }

    /// Sets the pace. The part of the interval that is left stays the same: a member that had a small part of
    /// the rate gets no credit for the time in which others had the rest.
    fn set_pace(&mut self, now: Instant, pace: Duration) {
        let (old, from) = (self.pace, now.max(self.paused_until));
        if old.is_zero() {
            self.due += pace;
        } else if self.due > from {
            let left = u128::from((self.due - from).as_nanos()) * u128::from(pace.as_nanos());
            let left = (left / u128::from(old.as_nanos())).min(u128::from(u64::MAX));
            self.due = from + Duration::from_nanos(left as u64);
        }
        self.pace = pace;
    }

    /// Restarts the pace at the end of a pause. The members start one after the other, in the order of
    /// their ids, because a provider that limits the rate accepts one call then.
    fn begin_pace_after_pause(&mut self, decision: &Decision) {
        let Some(place) = decision.shares.keys().position(|id| *id == self.id) else { return };
        let later = u128::from(self.pace.as_nanos()) * place as u128 / decision.shares.len() as u128;
        self.due = self.due.max(self.paused_until + Duration::from_nanos(later as u64));
    }

    /// Returns when the next call may start at the pace of the decision.
    fn paced_until(&self) -> Option<Instant> {
        (!self.pace.is_zero()).then_some(self.due)
    }

    /// Returns a number below 2^53 that is random for each instant and `purpose`: 1 for a nonce, 2 for a
    /// time. It is a hash of these and the seed, so that a recorded run can be replayed.
    fn random(&self, purpose: u64) -> u64 {
        let mut hasher = PortableHasher::default();
        for word in [self.seed, self.id.0, self.time.latest().as_nanos(), purpose] {
            hasher.write_u64(word);
        }
        hasher.finish() >> 11
    }

    /// Returns when the next call may start, if not at `now`.
    ///
    /// Request admission uses a limit of at least 1, so a room of 0 does not block calls by itself. This
    /// instant does: it is then the next beat, and moves on with each beat.
    fn opens(&self, now: Instant) -> Option<Instant> {
        if self.room(now) == 0 {
            return Some(self.next_beat.max(now + self.config.fast_beat));
        }
        let paced = if now < self.lease_until { self.paced_until() } else { self.own.opens_at(now) };
        paced.max(Some(self.paused_until)).filter(|at| *at > now)
    }
}

impl LimitAlgorithm for Member {
    fn limit(&self, now: Instant) -> u32 {
        self.room(self.to_member(now))
    }

    fn next_change(&self, now: Instant) -> Option<Instant> {
        let now = self.to_member(now);
        let own = if self.is_lost { self.own.next_change(now) } else { None };
        let times = [Some(self.lease_until), own, self.opens(now)];
        times.into_iter().flatten().filter(|at| *at > now).min().map(|at| self.to_host(at))
    }

    fn on_attempt(&mut self, now: Instant, in_flight: u32) {
        self.own.on_attempt(self.to_member(now), in_flight);
    }

    fn on_time(&mut self, now: Instant) {
        self.own.on_time(self.to_member(now));
    }

    fn on_grant(&mut self, now: Instant, grant: u64, in_flight: u32) {
        let now = self.time.observe(self.to_member(now));
        self.own.on_grant(now, grant, in_flight);
        // A call without a lease gives no information about the shared limit. Version 0 puts it before the
        // last cut.
        let version = if now < self.lease_until { self.version } else { 0 };
        // A call that starts a little late keeps to the schedule, so that the mean interval is that of the
        // pace. Without a lease, a call may also start before it is due.
        let is_late = now - self.due > Duration::from_nanos(self.pace.as_nanos() / LATE);
        self.due = if is_late { now } else { self.due.min(now) } + self.pace;
        self.calls.insert(grant, (self.started, version));
        self.started += 1;
    }

    fn on_outcome(&mut self, now: Instant, call: &CallReport) {
        let now = self.time.observe(self.to_member(now));
        self.own.on_outcome(now, call);
        // A call that started before the member was installed is not among its calls.
        let Some((number, version)) = self.calls.remove(&call.grant) else { return };
        if call.outcome == Outcome::RateLimited {
            if self.frozen.len() == ENDS {
                self.frozen.pop_front();
            }
            self.frozen.push_back(self.ended);
        }
        self.ended += 1;
        if self.ends.len() == ENDS {
            self.ends.pop_front();
        }
        let end = EndedCall {
            call: number,
            started: self.started,
            outcome: call.outcome,
            latency_ms: millis(call.latency),
            age_ms: 0,
            version,
            retry_after_ms: call.retry_after.map(millis),
        };
        self.ends.push_back((now, end));
    }

    fn cooldown(&self, now: Instant, call: &CallReport) -> Option<Duration> {
        self.own.cooldown(self.to_member(now), call)
    }

    fn on_cooldown(&mut self, now: Instant, until: Instant) {
        self.own.on_cooldown(self.to_member(now), self.to_member(until));
    }

    fn opens_at(&self, now: Instant) -> Option<Instant> {
        self.opens(self.to_member(now)).map(|at| self.to_host(at))
    }

    /// Returns whether a call that was granted may be sent now. A host calls this just before the first byte,
    /// because the process may have been suspended since the grant.
    ///
    /// It is `true` while the lease is valid, and otherwise if the calls in flight, this one included, are
    /// within [`Member::room`]. If it is `false`, the host ends the call as
    /// [`Outcome::LocalCancelled`].
    fn may_send(&self, now: Instant) -> bool {
        let now = self.time.peek(self.to_member(now));
        now < self.lease_until || self.calls.len() as u64 <= u64::from(self.room(now))
    }

    fn set_suspended(&mut self, suspended: Duration) {
        self.suspended = suspended;
    }

    fn member_state(&self, now: Instant) -> Option<MemberState> {
        Some(self.state(self.to_member(now)))
    }

    fn set_max(&mut self, now: Instant, max: u32, lifts: bool) {
        self.max = max;
        self.own.set_max(self.to_member(now), max, lifts);
    }
}

/// Returns the equal part of the limit that a member has after a loss, or 0 if the decision does not contain
/// it. The remainder goes to the members with the lowest ids, so the parts of all members add up to the
/// limit.
fn equal_part(decision: &Decision, id: MemberId) -> u32 {
    let Some(place) = decision.shares.keys().position(|member| *member == id) else { return 0 };
    let members = u32::try_from(decision.shares.len()).unwrap_or(u32::MAX);
    let is_among_first = (place as u64) < u64::from(decision.limit % members);
    decision.limit / members + u32::from(is_among_first)
}

/// Returns a span in milliseconds, rounded down.
fn millis(span: Duration) -> u32 {
    u32::try_from(span.as_nanos() / 1_000_000).unwrap_or(u32::MAX)
}
