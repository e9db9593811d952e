//! The leader: it owns the limit and divides it between the members. The [parent module](super) defines the
//! terms.
//!
//! At each beat, it learns from the reports of the members (`reports`), and makes a decision (`decisions`).

mod decisions;
mod reports;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::budgets::SharedBudgets;
use super::config::{SessionSettings, ShareConfig};
use super::hurry::Hurry;
use super::member_record::MemberRecord;
use super::message::{Decide, Decided, HIGH_VERSION, Lead, MAX_VERSION, MemberId, MemberReport, Term};
use crate::budget::BudgetConfig;
use crate::error::ConfigError;
use crate::limit::controller::Controller;
use crate::limit::{LimitChoice, LimitConfig};
use crate::time::{Duration, Instant, Monotonic};

/// The longest time between two calls that a leader takes over. A longer one is damaged.
const MAX_INTERVAL: Duration = Duration::from_secs(3_600);

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
    /// The fast beat because the limit has moved by one.
    hurry: Hurry,
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
            hurry: Hurry::default(),
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
        self.controller.begin_batch();
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
        if now < self.fast_until || is_settling || self.hurry.lasts(now, &self.config) {
            self.config.fast_beat
        } else {
            self.config.beat
        }
    }
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
