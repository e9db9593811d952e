//! A limit that finds what a provider bears from its refusals: how many calls at once, how many a minute, or
//! neither.
//!
//! [`Aimd`](super::Aimd) reads a refusal as a collapse: it stops, cuts by a quarter, and climbs for hundreds
//! of calls. Here it is news: with `n` calls out, one too many was refused, so `n - 1` are borne.
//!
//! ```text
//!            success: +1                        refused with n out
//!         ┌────────────┐        ┌──────────────────────────────────────────────┐
//!         │   Climb    │────────┤  limit = min(n - 1, limit - 2^k)             │
//!         └────────────┘        │  k: refusals before with nothing let through │
//!               ▲               └──────────────────────────────────────────────┘
//!  let through  │                                      ▲     │
//!         ┌─────┴──────┐            refused            │     ▼
//!         │   Probe    │───────────────────────────────┤  ┌──────────┐
//!         │  limit + 1 │◀──────────────────────────────┼──│   Hold   │
//!         └────────────┘     after enough successes    └──└──────────┘
//! ```
//!
//! - **Climb** starts at ten calls, one each millisecond (TCP's initial window of RFC 6928), and doubles the
//!   limit each round trip, up to twice what was made use of, as TCP does in slow start (Jacobson, 1988). A
//!   round trip is the time of a call, or a quarter of a second without a refusal, for refusals come sooner
//!   than that. Once a refusal has been seen, one more goes out in the time in which one would have come
//!   back, then twice as many each time, up to an eighth of the limit. Calls are spaced over that time, so
//!   that a refusal is heard before many others have followed the refused call.
//! - **Hold** stays at what is known to be borne: this is where the time is spent, at the ceiling and not
//!   below it, which CUBIC (Ha, Rhee and Xu, 2008) and BBR (Cardwell et al., 2016) do with the window and the
//!   rate that they remember.
//! - **Probe** tries one call more. It waits for `probe_after x 2^failures` successes, up to
//!   `probe_after_most` (and up to 32 for each call of the limit, so that a narrow one is not stuck for
//!   long), so that a probe in vain is one call in 240. One that passes begins a climb. Below what was borne
//!   before, a probe comes as often in time as there, for it may find much; each one in vain takes a
//!   sixteenth of that memory away.
//!
//! A call counts as let through when it is answered, or has been out for three times as long as refusals take
//! (`watch`).
//!
//! A refusal may mean four things, and each has its part:
//!
//! | it means | how it is told | what follows | part |
//! | --- | --- | --- | --- |
//! | too many at once | the same number is refused again | the limit is cut | here |
//! | too soon | the same number is let through a little later, or one that is alone is refused at equal distances | the limit stays, and calls are spaced | `same_load`, `alone`, `pace`, `doubt`, `reached` |
//! | neither: a share of all calls | calls are refused that are out alone | the limit grows on | `share` |
//! | closed for now | four in a row, and nothing let through | a wait, then a climb | here |
//!
//! **Sustained refusal.** Until a call granted after a cut is let through, each refusal cuts twice as much as
//! the one before, up to `decrease_factor`. A refusal of a call that was out at the last cut (the rest of its
//! cascade) cuts nothing. After four, the provider lets nothing through at all, which is not for a want of
//! slots: calls are tried one by one, each after a quarter of the time since the first refusal, up to
//! `longest_pause`. At a limit of 1 the first refusals pause for a quarter of a call's time, doubled each
//! time.
//!
//! **No storm.** Probes and quicker paces are paid from a budget of two refusals a second, and a surplus of
//! refusals stops all calls until what is under way has come back (`storm`).
//!
//! **Retry-After.** Whether it stops the resource or only the refused call is found out (`scope`), or
//! [set](TideConfig::retry_after).
//!
//! **After a pause** the calls in flight are let up step by step, 1, 2, 4, ..., one step each time that a
//! refusal would have come back by, so that a ceiling that fell meanwhile costs one or two refusals and not a
//! burst (`restart`).
//!
//! **Queues.** Where nothing has been refused for long, mean latencies of batches of calls are compared with
//! those of calls that did not queue, and the limit is held where they are up to `latency_tolerance` times as
//! long (`queueing`).
//!
//! It knows nothing but grants, ends of calls, and time. So it cannot
//!
//! - tell a ceiling that rose without trying;
//! - see an outage: 5xx and timeouts change nothing;
//! - keep refusals below one in a hundred where fewer than a few hundred calls are made: it has to find out
//!   first;
//! - tell the knee itself from a little past it: where throughput falls past the knee, some of it is lost.
//!
//! How it does beside the others, provider by provider, is in `docs/control.md`.

mod alone;
mod config;
mod doubt;
mod pace;
mod queueing;
mod reached;
mod restart;
mod same_load;
mod scope;
mod share;
mod storm;
#[cfg(test)]
mod tests;
mod watch;

use self::pace::{Pace, Refusal};
use self::queueing::{Queueing, Sight};
use self::restart::Restart;
use self::same_load::SameLoad;
use self::scope::{Scope, Stops};
use self::share::Share;
use self::storm::Storm;
use self::watch::{Watch, Watched};
use super::{CallReport, LimitAlgorithm, LimitState, scaled_down};
use crate::call::Outcome;
use crate::error::ConfigError;
use crate::time::{Duration, Instant};

pub use config::{RetryAfterStops, TideConfig};

/// Successes since the last refusal, in longest waits for a probe, after which latency counts again.
const WAITS_OF_TRUST: u32 = 8;

/// Successes to wait for before a probe, at most, for each call of the limit.
const TRIPS: u32 = 32;
/// What part of the limit is given up to measure what calls take alone.
const DRAIN: u32 = 5;
/// The fewest successes between two probes where more was borne before: one call in five is a probe.
const LEAST_PATIENCE: f64 = 4.0;
/// What part of the difference to the most that was borne a probe in vain takes away.
const FORGETTING: f64 = 16.0;
/// The shortest and the longest time between two calls at the start, in nanoseconds: refusals take no longer.
const TICKS: (f64, f64) = (1e6, 1e8);
/// Nanoseconds below which calls are not held apart.
const SPACE: f64 = 1e6;
/// What part of the limit a climb adds at most, once the provider has refused.
const STEP: u32 = 8;
/// Slots by which a climb must have risen to count as a change and not as one more step.
const LEAP: u32 = 4;
/// Refusals in a row, with nothing let through between them, that are for no want of slots.
const CLOSED: u32 = 4;
/// What part of the time since the first of them is waited before the next call: with a quarter, ten seconds
/// take 25 calls.
const CLOSED_PART: u64 = 4;
/// How long a trial is waited for at first, in times that a refusal takes; and at most, in nanoseconds.
const FIRST_TRIAL: f64 = 4.0;
const LAST_TRIAL: f64 = 4e9;
/// Trials at the same load in a row that have to pass for a rate to be believed.
const PASSES: u32 = 2;

/// What the limit does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Grows by one for each success.
    Climb { from: u32 },
    /// Stays, for so many successes.
    Hold,
    /// Has one more than `floor`, which is known to be borne.
    Probe { floor: u32 },
}

/// See the [module documentation](self).
#[derive(Clone, Debug)]
pub struct Tide {
    config: TideConfig,
    max: u32,
    limit: u32,
    phase: Phase,
    /// Grants that had been given when the phase began.
    since: u64,
    /// Grants that had been given at the last cut.
    known: u64,
    granted: u64,
    /// The most calls that were out in this phase.
    peak: u32,
    /// Refusals that were news, since the last call granted after a cut was answered.
    streak: u32,
    /// When the first of them was.
    refused_since: Instant,
    /// Probes in vain in a row.
    failures: u32,
    /// The most calls that were borne at once, forgotten with probes in vain.
    best: f64,
    successes: u32,
    /// What was refused first.
    first_ceiling: u32,
    /// The end of the pause that the refusal leaves behind that is told next.
    paused_until: Option<Instant>,
    restart: Option<Restart>,
    /// In a climb, no call before this.
    spaced_until: Instant,
    /// How long calls take, in nanoseconds; 0 while it is unknown.
    latency: f64,
    watch: Watch,
    pace: Pace,
    scope: Scope,
    same_load: SameLoad,
    share: Share,
    queueing: Queueing,
    /// Successes since the last refusal; starts as if it were long ago.
    unrefused: u32,
    /// Whether latency, and not a refusal, was what last cut.
    is_queueing: bool,
    /// What the limit becomes again once it is known what calls take alone.
    resume: u32,
    /// The limit before the first of a row of cuts for latency.
    uncut: u32,
    storm: Storm,
}

impl Tide {
    /// A limit that has seen nothing yet.
    pub fn new(config: TideConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            config,
            max: u32::MAX,
            limit: config.initial_limit,
            phase: Phase::Climb { from: 0 },
            since: 0,
            known: 0,
            granted: 0,
            peak: 0,
            streak: 0,
            refused_since: Instant::ZERO,
            failures: 0,
            best: 1.0,
            successes: 0,
            first_ceiling: 0,
            paused_until: None,
            restart: None,
            spaced_until: Instant::ZERO,
            latency: 0.0,
            watch: Watch::default(),
            pace: Pace::default(),
            scope: Scope::default(),
            same_load: SameLoad::default(),
            share: Share::default(),
            queueing: Queueing::default(),
            unrefused: u32::MAX,
            is_queueing: false,
            resume: 0,
            uncut: 1,
            storm: Storm::default(),
        })
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = self.granted;
        self.successes = 0;
        self.peak = 0;
    }

    /// Successes to wait for before the next probe.
    fn patience(&self) -> u32 {
        let doubled = u64::from(self.config.probe_after.min(self.limit.saturating_mul(4))) << self.failures.min(32);
        let most = self.config.probe_after_most.min(self.limit.saturating_mul(TRIPS)).max(self.config.probe_after);
        let patience = doubled.min(u64::from(most)) as f64;
        // As often in time as where the most is borne: then a probe costs little beside what it may find.
        let part = f64::from(self.limit) / self.best.max(f64::from(self.limit));
        (patience * part).max(LEAST_PATIENCE.min(patience)) as u32
    }

    /// Whether a refusal says nothing of the limit.
    fn is_usual(&self) -> bool {
        !self.pace.is_known() && self.share.is_usual()
    }

    /// What a refusal stops.
    fn stops(&self, now: Instant, call: &CallReport) -> Stops {
        let Some(asked) = call.retry_after.filter(|_| !self.pace.is_testing()) else { return Stops::Call };
        match self.config.retry_after {
            RetryAfterStops::Learned => self.scope.of(now, call, asked, self.pace.is_long(asked)),
            RetryAfterStops::Resource => Stops::Resource(asked),
            RetryAfterStops::Call => Stops::Call,
        }
    }

    /// How long a refusal stops everything whose Retry-After does not: not at all while there is something to
    /// cut.
    fn own_pause(&self, now: Instant, call: &CallReport) -> Duration {
        if self.storm.stops_all(self.limit) {
            return self.watch.way();
        }
        if call.grant < self.known || self.is_usual() {
            return Duration::ZERO;
        }
        let nanos = if self.streak >= CLOSED {
            ((now - self.refused_since).as_nanos() / CLOSED_PART).max(self.first_trial().as_nanos())
        } else if self.limit > 1 {
            0
        } else {
            let base = if self.latency > 0.0 { self.latency / 4.0 } else { 5e7 };
            (base * f64::from(1_u32 << self.streak.saturating_sub(1).min(16))) as u64
        };
        Duration::from_nanos(nanos).min(self.config.longest_pause)
    }

    /// How long a trial at the same load is waited for at first.
    fn first_trial(&self) -> Duration {
        Duration::from_nanos((FIRST_TRIAL * self.watch.refusal()).max(1e6) as u64)
    }

    /// How long one is worth waiting for: until a call ends, there is nothing else to be done.
    fn last_trial(&self) -> Duration {
        let longest = if self.latency > 0.0 { self.latency.min(LAST_TRIAL) } else { LAST_TRIAL };
        Duration::from_nanos(longest as u64)
    }

    fn tick(&self) -> Duration {
        // Twice a refusal's way, but never so long that the climb is felt.
        let longest = self.latency / 8.0;
        let refusal = self.watch.refusal();
        let tick = if refusal > 0.0 { (2.0 * refusal).min(longest) } else { longest };
        Duration::from_nanos(tick.clamp(TICKS.0, TICKS.1) as u64)
    }

    /// How far apart calls go out in a climb: twice as fast as they come back, as Linux paces TCP in slow
    /// start.
    fn space(&self) -> Duration {
        // The first to come back are the short ones: go by what a refusal may take.
        if self.granted < 2 * u64::from(self.config.initial_limit) {
            return self.tick();
        }
        // Those that replace others go twice as fast as others come back; those that are added, in the time
        // of a refusal.
        let back = 2.0 * f64::from(self.limit) / self.latency.max(1.0);
        let added = f64::from(self.growth()) / self.watch.way().as_nanos() as f64;
        let space = 1.0 / (back + added);
        if space < SPACE { Duration::ZERO } else { Duration::from_nanos(space as u64) }
    }

    /// Calls that a climb adds once those before have been let through: after a refusal one, then twice as
    /// many each time.
    fn growth(&self) -> u32 {
        match self.phase {
            _ if self.first_ceiling == 0 => self.limit,
            Phase::Climb { from } => self.limit.saturating_sub(from).min(self.limit / STEP).max(1),
            Phase::Hold | Phase::Probe { .. } => 1,
        }
    }

    fn on_success(&mut self, now: Instant, call: &CallReport) {
        follow(&mut self.latency, call.latency);
        self.storm.on_success();
        self.scope.on_success(call.grant, sent_at(now, call));
        if let Some(watched) = self.watch.on_success(call.grant) {
            self.on_let_through(&watched);
        }
        if call.grant >= self.known {
            self.reopen();
            self.unrefused = self.unrefused.saturating_add(1);
        }
        if self.is_queueing {
            return;
        }
        let is_of_phase = call.grant >= self.since;
        if is_of_phase {
            self.best = self.best.max(f64::from(call.admitted_in_flight));
        }
        match self.phase {
            // As TCP in slow start: to twice what was made use of.
            Phase::Climb { .. } => {
                if self.share.is_known() && !self.share.is_far(self.limit) {
                    self.enter(Phase::Hold);
                } else if is_of_phase && self.limit < self.peak.saturating_mul(2) {
                    self.limit = self.limit.saturating_add(1).min(self.max);
                }
            }
            Phase::Hold => {
                self.successes = self.successes.saturating_add(1);
                let is_due = self.successes >= self.patience();
                if is_due && self.storm.may_risk(now) && call.admitted_in_flight >= self.limit && self.limit < self.max
                {
                    let floor = self.limit;
                    self.limit += 1;
                    self.enter(Phase::Probe { floor });
                }
            }
            Phase::Probe { floor } => {
                if is_of_phase && call.admitted_in_flight > floor {
                    self.enter(Phase::Climb { from: floor });
                }
            }
        }
    }

    /// A call that is out has not been refused.
    fn on_let_through(&mut self, call: &Watched) {
        self.pace.on_let_through(call.grant, call.at_once, call.since);
        if call.grant >= self.known {
            self.reopen();
        }
        if matches!(self.phase, Phase::Climb { .. })
            && call.grant >= self.since
            && (!self.share.is_known() || self.share.is_far(self.limit))
            && call.at_once >= self.limit - self.limit / 4
            && !self.is_queueing
        {
            self.limit =
                self.limit.saturating_add(self.growth()).min(self.peak.saturating_mul(2)).max(self.limit).min(self.max);
        }
        if let Phase::Probe { floor } = self.phase
            && call.grant >= self.since
            && call.at_once > floor
        {
            self.enter(Phase::Climb { from: floor });
        }
        if self.pace.is_known() && call.at_once >= self.limit {
            self.limit = self.limit.saturating_add(1).min(self.max);
        }
    }

    /// A call granted after the last cut is let through.
    fn reopen(&mut self) {
        if core::mem::take(&mut self.streak) >= CLOSED {
            self.enter(Phase::Climb { from: self.limit });
        }
    }

    /// Obeys a batch of latencies.
    fn steer(&mut self, sight: Sight, in_flight: u32) {
        let trusted = self.config.probe_after_most.saturating_mul(WAITS_OF_TRUST);
        if self.unrefused < trusted {
            return;
        }
        match sight {
            Sight::Clear(share) if self.is_queueing && in_flight >= self.limit => {
                self.limit = self.limit.saturating_add((self.limit / share).max(1)).min(self.max);
            }
            Sight::Relearn if self.is_queueing => {
                self.resume = self.limit;
                self.limit = (self.limit - self.limit / DRAIN).max(1);
            }
            Sight::Learned if self.is_queueing => self.limit = self.resume.min(self.max),
            Sight::Clear(_) | Sight::Relearn | Sight::Learned => {}
            Sight::Filling => {
                if self.phase != Phase::Hold {
                    self.enter(Phase::Hold);
                }
            }
            Sight::InVain => self.limit = self.uncut.min(self.max),
            Sight::Queueing { ratio, is_first } => {
                if is_first {
                    self.uncut = self.limit;
                }
                let midway = 1.0 + (self.config.latency_tolerance - 1.0) / 2.0;
                self.resume = scaled_down(self.limit, (midway / ratio).min(1.0));
                self.limit = scaled_down(self.limit, 1.0 / ratio);
                self.known = self.granted;
                self.is_queueing = true;
                self.enter(Phase::Hold);
            }
        }
    }

    fn on_refused(&mut self, now: Instant, call: &CallReport) {
        if !self.is_usual() {
            self.storm.on_refused(now);
        }
        self.share.on_refused(call.grant, call.admitted_in_flight);
        self.watch.on_refused(call.grant, call.latency);
        self.unrefused = 0;
        self.is_queueing = false;
        self.queueing.forget_batch();
        let stops = self.stops(now, call);
        if let Some(end) = self.paused_until.take() {
            self.restart = Some(Restart { end, out: call.in_flight, tick: self.tick() });
        }
        // One that stops the refused call only says nothing about when the next may go.
        let is_said = |asked: &Duration| match stops {
            Stops::Call => false,
            Stops::Unknown => !self.pace.is_known() || !self.pace.is_long(*asked),
            Stops::Resource(_) => true,
        };
        let asked = call.retry_after.filter(is_said).unwrap_or_default();
        let said = call.retry_after.unwrap_or_default();
        let refusal = Refusal {
            grant: call.grant,
            sent: sent_at(now, call),
            asked,
            said,
            at_once: call.admitted_in_flight,
            is_share: self.share.is_known(),
            may_risk: self.storm.may_risk(now),
        };
        let is_by_pace = self.pace.on_refused(now, &refusal);
        if let Some(share) = self.pace.take_refused_share() {
            self.share.learn(share);
        }
        if let Some(asked) = call.retry_after {
            let first = now + self.own_pause(now, call);
            self.scope.on_refused(now, call, asked, stops, first);
        }
        if is_by_pace {
            // So what was cut before was not the limit's fault.
            self.limit = self.limit.max(self.pace.level()).min(self.max);
            self.known = self.granted;
            self.same_load.forget();
        } else if self.is_usual() {
            self.streak = 0;
            self.same_load.forget();
            if self.phase == Phase::Hold && self.share.is_far(self.limit) {
                self.enter(Phase::Climb { from: self.limit });
            }
        } else if self.same_load.on_refused(now, &refusal, self.last_trial()) {
            self.known = self.granted;
        } else if call.grant >= self.known {
            self.on_too_many(now, call);
            if !self.pace.is_known() {
                let is_lower = self.limit + 1 < call.admitted_in_flight;
                self.same_load.on_cut(now, &refusal, is_lower, self.first_trial());
            }
        }
    }

    /// A refusal that is news: so many are too many, as far as is known.
    fn on_too_many(&mut self, now: Instant, call: &CallReport) {
        self.watch.start_over();
        self.known = self.granted;
        if self.streak < CLOSED {
            self.cut(call);
        }
        if self.streak == 0 {
            self.refused_since = now;
        }
        self.streak = self.streak.saturating_add(1);
    }

    fn cut(&mut self, call: &CallReport) {
        let limit = self.limit;
        let ceiling = if self.share.is_known() {
            // Any of those that are refused at any load may have been the one that was heard of.
            self.share.on_cut(limit);
            limit.saturating_sub((limit / 4).max(1))
        } else {
            call.admitted_in_flight.saturating_sub(1).clamp(1, limit)
        };
        // One less, then two, four, eight while nothing is let through.
        let less = limit.saturating_sub(1 << self.streak.min(31));
        let least = scaled_down(limit, self.config.decrease_factor);
        self.limit = ceiling.min(less.max(least)).max(1);
        if self.first_ceiling == 0 {
            self.first_ceiling = call.admitted_limit;
        }
        self.failures = match self.phase {
            Phase::Probe { floor } => {
                self.best -= (self.best - f64::from(floor)).max(0.0) / FORGETTING;
                self.failures + 1
            }
            // Much has changed: look again soon. Or a little: somewhat sooner than before.
            Phase::Climb { from } if self.limit >= from.saturating_add(LEAP) => 0,
            Phase::Hold if self.streak > 0 => self.failures.min(1),
            Phase::Climb { .. } | Phase::Hold => self.failures.saturating_sub(1),
        };
        self.enter(Phase::Hold);
    }

    /// A call was let through at the load that was refused: it was too soon, and not too many.
    fn on_same_load(&mut self, now: Instant, at_once: u32, refused: Instant) {
        self.reopen();
        self.known = self.granted;
        self.limit = self.limit.max(at_once.saturating_add(1)).min(self.max);
        if self.same_load.passes() >= PASSES {
            self.pace.adopt(now, now - refused);
        }
        self.enter(Phase::Climb { from: self.limit });
    }

    /// Does what time alone has brought.
    fn settle(&mut self, now: Instant) {
        self.scope.settle(now);
        if let Some((at_once, refused)) = self.same_load.take(now) {
            self.on_same_load(now, at_once, refused);
        }
        if let Some(watched) = self.watch.take(now) {
            self.on_let_through(&watched);
        }
        // It no longer holds anything up.
        if self.restart.is_some_and(|restart| now >= restart.end && restart.allowed(now) >= self.limit) {
            self.restart = None;
        }
    }
}

impl LimitAlgorithm for Tide {
    fn limit(&self, now: Instant) -> u32 {
        let allowed = self.restart.map_or(u32::MAX, |restart| restart.allowed(now));
        self.limit
            .max(self.same_load.allowed(now))
            .min(self.max)
            .min(self.pace.most())
            .min(allowed)
            .min(self.scope.allowed(now))
    }

    fn next_change(&self, now: Instant) -> Option<Instant> {
        let restart = self.restart.filter(|restart| restart.allowed(now) < self.limit.min(self.max));
        let step = restart.map(|restart| restart.next_step(now));
        let opens = self.opens_at(now);
        let passes = [self.watch.passes_at(), self.same_load.next_change()].map(|at| at.filter(|at| *at > now));
        [step, opens, self.scope.ends_at(now)].into_iter().chain(passes).flatten().min()
    }

    fn opens_at(&self, now: Instant) -> Option<Instant> {
        let climb = matches!(self.phase, Phase::Climb { .. }).then_some(self.spaced_until);
        let trials = self.scope.opens_at(now).max(self.same_load.opens_at());
        self.pace.opens_at().max(climb).max(trials).filter(|at| *at > now)
    }

    fn on_attempt(&mut self, now: Instant, _in_flight: u32) {
        self.settle(now);
    }

    fn on_time(&mut self, now: Instant) {
        self.settle(now);
    }

    fn on_grant(&mut self, now: Instant, grant: u64, in_flight: u32) {
        self.peak = self.peak.max(in_flight);
        let passes = now + self.watch.way();
        self.pace.on_grant(now, grant, in_flight, passes, self.latency, self.storm.may_risk(now));
        self.scope.on_grant(grant, passes);
        self.same_load.on_grant(now, grant, in_flight, passes);
        self.share.on_grant(in_flight);
        self.watch.on_grant(now, grant, in_flight);
        self.spaced_until = now + self.space();
        self.queueing.on_grant(grant, self.limit);
        self.granted = grant + 1;
    }

    fn on_outcome(&mut self, now: Instant, call: &CallReport) {
        self.settle(now);
        match call.outcome {
            Outcome::Success => self.on_success(now, call),
            Outcome::RateLimited => self.on_refused(now, call),
            _ => {}
        }
        let latency = (call.outcome == Outcome::Success).then_some(call.latency);
        if let Some(sight) = self.queueing.on_end(call, latency, self.config.latency_tolerance) {
            self.steer(sight, call.admitted_in_flight);
        }
        if let Some(restart) = &mut self.restart
            && now < restart.end
        {
            restart.out = call.in_flight;
        }
    }

    fn pause(&self, now: Instant, call: &CallReport) -> Option<Duration> {
        Some(match self.stops(now, call) {
            Stops::Resource(pause) => pause,
            Stops::Call => self.own_pause(now, call),
            Stops::Unknown => Duration::ZERO,
        })
    }

    fn on_pause(&mut self, _now: Instant, until: Instant) {
        self.storm.on_pause();
        self.paused_until = Some(until);
    }

    fn set_max(&mut self, _now: Instant, max: u32, _lifts: bool) {
        self.max = max;
        self.limit = self.limit.min(max);
    }

    fn state(&self, _now: Instant) -> LimitState {
        LimitState { ramp: None, rate_limit_ceiling: self.first_ceiling, success_streak: self.successes }
    }
}

/// When a call that ends at `now` went out.
fn sent_at(now: Instant, call: &CallReport) -> Instant {
    Instant::from_nanos(now.as_nanos().saturating_sub(call.latency.as_nanos()))
}

/// Moves a mean an eighth of the way towards what was seen.
fn follow(mean: &mut f64, seen: Duration) {
    let seen = seen.as_nanos() as f64;
    *mean = if *mean > 0.0 { *mean + (seen - *mean) / 8.0 } else { seen };
}
