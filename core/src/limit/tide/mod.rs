//! A limit that learns from refusals how many concurrent calls and how many calls a minute a provider
//! accepts.
//!
//! A refusal is an answer with the outcome [`RateLimited`](crate::call::Outcome::RateLimited), such as HTTP
//! 429. [`Aimd`](super::Aimd) treats it as congestion: it cools down, cuts the limit by a quarter, and climbs
//! for hundreds of calls. Here a refusal is a measurement: if a call is refused with `n` calls in flight,
//! `n - 1` are accepted.
//!
//! The algorithm has four parts: *concurrency* bounds the calls in flight, *pace* spaces them in time,
//! *queueing* bounds latency where nothing is refused, and *memory* holds what each of them has learned.
//! Each success and each refusal concerns one of these parts, or none.
//!
//! # Concurrency
//!
//! ```text
//!            success: +1                        refused with n in flight
//!         ┌────────────┐        ┌──────────────────────────────────────────────┐
//!         │   Climb    │────────┤  limit = min(n - 1, limit - 2^k)             │
//!         └────────────┘        │  k: refusals before with nothing accepted    │
//!               ▲               └──────────────────────────────────────────────┘
//!    accepted   │                                      ▲     │
//!         ┌─────┴──────┐            refused            │     ▼
//!         │   Probe    │───────────────────────────────┤  ┌──────────┐
//!         │  limit + 1 │◀──────────────────────────────┼──│   Hold   │
//!         └────────────┘     after enough successes    └──└──────────┘
//! ```
//!
//! - **Climb** starts at ten calls, one each millisecond (TCP's initial window, RFC 6928). It doubles the
//!   limit each round trip, up to twice the calls in flight, as TCP does in slow start (Jacobson, 1988). A
//!   round trip is the latency of a call, or 250 ms while nothing has been refused, because refusals arrive
//!   sooner. After the first refusal, the climb adds one call in the time in which a refusal would have
//!   arrived, then twice as many each time, up to an eighth of the limit. Calls are spaced over that time, so
//!   that a refusal arrives before many others have followed the refused call. If outcomes are reported
//!   together, as at the leader of a shared limit, those of one report raise the limit by an eighth at most.
//! - **Hold** stays at the limit that is known to be accepted. Most time is spent here, at the ceiling and
//!   not below it, like the window and the rate that CUBIC (Ha, Rhee and Xu, 2008) and BBR (Cardwell et al.,
//!   2016) remember.
//! - **Probe** tries one call more. It waits for `probe_after x 2^failures` successes, up to
//!   `probe_after_most` (and up to 32 for each call of the limit, so that a narrow limit does not wait long).
//!   At a ceiling of eight calls or more, one call in 240 is then a failed probe. A probe that passes
//!   begins a climb.
//!
//! A call counts as accepted when it is answered, or when it is in flight for three times the latency of a
//! refusal.
//!
//! A refusal has one of four causes, each with its own response:
//!
//! | cause | how it is detected | response |
//! | --- | --- | --- |
//! | too many concurrent calls | the same number is refused again | the limit is cut |
//! | too many calls a minute | the same number is accepted a little later | calls are paced |
//! | a share of all calls | calls alone in flight are refused | the limit continues to grow |
//! | the provider is closed | four in a row, with nothing accepted | a wait, then a climb |
//!
//! Where calls alone in flight are refused, equal times between the accepted ones show a limit of calls a
//! minute, and not a share.
//!
//! **Sustained refusal.** Until a call granted after a cut is accepted, each refusal cuts twice as much as
//! the one before, down to `decrease_factor` of the limit. A refusal of a call that was in flight at the last
//! cut belongs to the same cascade and cuts nothing. After four cuts the provider counts as closed: calls are
//! tried one by one, each after a quarter of the time since the first refusal, up to `longest_pause`. At a
//! limit of 1, the first refusals cause a cooldown of a quarter of a call's latency, doubled each time.
//!
//! **Retry-After.** Whether it stops the resource or only the refused call is learned from calls sent before
//! it ends, or [set](TideConfig::retry_after).
//!
//! **Restart.** After a cooldown, the calls in flight are raised step by step, 1, 2, 4, ..., each time a
//! refusal would have arrived. So a ceiling that fell during the cooldown costs one or two refusals and not a
//! burst. The same holds when a refusal ends a pace, because the limit may have grown far beyond the calls in
//! flight.
//!
//! **Overdue calls.** While an eighth of the limit is in flight for five times the mean latency, one call
//! more is allowed: a call that hangs until it times out may hold no slot of the provider.
//!
//! # Pace
//!
//! The interval between calls is the time between two refusals, or between the ends of their Retry-After,
//! divided by the calls accepted between them. Each refusal corrects it, and successes *quicken* it: the
//! interval becomes shorter. A pace that is not a rate is given up: if calls sent at eight times the pace are
//! hardly refused more often, or if the pace is three times slower than what was accepted before.
//!
//! Probes and quickened paces may cost two refusals a second on average. If there are more, all calls stop
//! until every refusal in flight has arrived.
//!
//! # Queueing
//!
//! Where nothing has been refused for long, the mean latency of a batch of calls is compared with that of
//! calls that did not queue. The limit is held where latency is up to `latency_tolerance` times as long.
//!
//! # Memory
//!
//! The most calls that were accepted at once are remembered. Below that number, probes come as often per
//! second as at it, because one may gain much. Each failed probe lowers the remembered number by a sixteenth
//! of its distance to the limit. The pace, the
//! share, what a Retry-After stops and the baseline of latency are remembered likewise, each until refusals
//! or latencies contradict it.
//!
//! # Limits of the algorithm
//!
//! Its only inputs are grants, ends of calls, and time. So it cannot
//!
//! - detect a ceiling that rose without a probe;
//! - detect an outage: 5xx and timeouts change nothing;
//! - keep refusals below one in a hundred where fewer than a few hundred calls are made, because learning
//!   costs some;
//! - distinguish the knee from a point a little above it: where throughput falls above the knee, some of it
//!   is lost.
//!
//! `docs/control.md` compares it with other algorithms for each kind of provider.

mod alone;
mod ceiling;
mod config;
mod inflow;
mod intervals;
mod overdue;
mod pace;
mod pace_check;
mod queueing;
mod reached;
mod refusal;
mod restart;
mod same_load;
mod scope;
mod share;
mod storm;
mod success;
#[cfg(test)]
mod tests;
mod watch;

use self::ceiling::Ceiling;
use self::overdue::Overdue;
use self::pace::Pace;
use self::queueing::Queueing;
use self::restart::Restart;
use self::same_load::SameLoad;
use self::scope::{Scope, Stops};
use self::share::RefusedShare;
use self::storm::Storm;
use self::watch::Watch;
use super::{CallReport, LimitAlgorithm, LimitState, scaled_down};
use crate::call::Outcome;
use crate::error::ConfigError;
use crate::time::{Duration, Instant};

pub use config::{RetryAfterStops, TideConfig};

/// A limit that learns from refusals. See the [module documentation](self).
#[derive(Clone, Debug)]
pub struct Tide {
    config: TideConfig,
    max: u32,
    limit: u32,
    ceiling: Ceiling,
    /// Refusals that changed the limit, since a call granted after a cut was last accepted.
    refusal_streak: u32,
    /// When the first of them arrived.
    refused_since: Instant,
    /// The end of the cooldown that the next reported refusal causes.
    cooldown_until: Option<Instant>,
    restart: Option<Restart>,
    /// The earliest time of the next call in a climb.
    spaced_until: Instant,
    /// The mean latency of calls, in nanoseconds; 0 if unknown.
    latency: f64,
    watch: Watch,
    pace: Pace,
    scope: Scope,
    same_load: SameLoad,
    share: RefusedShare,
    queueing: Queueing,
    /// Successes since the last refusal. Starts at the maximum, as if it were long ago.
    unrefused: u32,
    /// Whether latency, and not a refusal, caused the last cut.
    is_queueing: bool,
    /// The limit after the baseline of latency has been measured, and `is_queueing` then.
    limit_after_measuring: u32,
    was_queueing: bool,
    /// The limit before the first of the cuts in a row for latency.
    limit_before_cuts: u32,
    storm: Storm,
    overdue: Overdue,
    /// The limit when the present batch of outcomes began. `None` if they are reported as they happen.
    limit_before_batch: Option<u32>,
}

impl Tide {
    /// Creates a limit that has learned nothing. Returns an error if a setting is out of range.
    pub fn new(config: TideConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            config,
            max: u32::MAX,
            limit: config.initial_limit,
            ceiling: Ceiling::default(),
            refusal_streak: 0,
            refused_since: Instant::ZERO,
            cooldown_until: None,
            restart: None,
            spaced_until: Instant::ZERO,
            latency: 0.0,
            watch: Watch::default(),
            pace: Pace::default(),
            scope: Scope::default(),
            same_load: SameLoad::default(),
            share: RefusedShare::default(),
            queueing: Queueing::default(),
            unrefused: u32::MAX,
            is_queueing: false,
            limit_after_measuring: 0,
            was_queueing: false,
            limit_before_cuts: 1,
            storm: Storm::default(),
            overdue: Overdue::default(),
            limit_before_batch: None,
        })
    }

    /// Returns how many calls may be in flight, if neither a restart nor the pace or a trial allows fewer.
    fn most(&self, now: Instant) -> u32 {
        let limit = self.limit.saturating_add(self.overdue.extra(now, self.latency, self.limit));
        limit.max(self.same_load.allowed(now)).min(self.max)
    }

    /// Returns the limit up to which a climb may grow.
    fn most_of_climb(&self) -> u32 {
        let step = |limit: u32| limit.saturating_add(self.ceiling.step(limit));
        self.ceiling.most().min(self.limit_before_batch.map_or(u32::MAX, step))
    }

    /// Applies the changes that are due at `now`.
    fn advance(&mut self, now: Instant) {
        self.scope.advance(now);
        if let Some((in_flight, refused)) = self.same_load.take_passed(now) {
            self.on_same_load(now, in_flight, refused);
        }
        if let Some(watched) = self.watch.take(now) {
            self.on_accepted(&watched);
        }
        // The restart no longer limits anything.
        if self.restart.is_some_and(|restart| now >= restart.end && restart.allowed(now) >= self.limit) {
            self.restart = None;
        }
    }
}

impl LimitAlgorithm for Tide {
    fn limit(&self, now: Instant) -> u32 {
        let allowed = self.restart.map_or(u32::MAX, |restart| restart.allowed(now));
        self.most(now).min(self.pace.most()).min(allowed).min(self.scope.allowed(now))
    }

    fn next_change(&self, now: Instant) -> Option<Instant> {
        let restart = self.restart.filter(|restart| restart.allowed(now) < self.most(now));
        let step = restart.map(|restart| restart.next_step(now));
        let opens = self.opens_at(now);
        let accepted_at = [self.watch.accepted_at(), self.same_load.next_change()].map(|at| at.filter(|at| *at > now));
        let overdue = self.overdue.due_at(self.latency).filter(|at| *at > now);
        [step, opens, overdue, self.scope.ends_at(now)].into_iter().chain(accepted_at).flatten().min()
    }

    fn opens_at(&self, now: Instant) -> Option<Instant> {
        let climb = self.ceiling.is_climbing().then_some(self.spaced_until);
        let trials = self.scope.opens_at(now).max(self.same_load.opens_at());
        self.pace.opens_at().max(climb).max(trials).filter(|at| *at > now)
    }

    fn interval(&self) -> Option<Duration> {
        self.pace.interval()
    }

    fn set_interval(&mut self, now: Instant, interval: Duration) {
        self.pace.guess(now, interval.as_nanos().max(1));
    }

    fn on_attempt(&mut self, now: Instant, _in_flight: u32) {
        self.advance(now);
    }

    fn on_time(&mut self, now: Instant) {
        self.advance(now);
    }

    fn on_grant(&mut self, now: Instant, grant: u64, in_flight: u32) {
        self.ceiling.on_grant(in_flight);
        self.overdue.on_grant(now, grant, in_flight);
        let accepted_at = now + self.watch.acceptance_delay();
        self.pace.on_grant(now, grant, in_flight, accepted_at, self.latency, self.storm.may_risk(now));
        self.scope.on_grant(now, grant, accepted_at);
        self.same_load.on_grant(now, grant, in_flight, accepted_at);
        self.share.on_grant(in_flight);
        self.watch.on_grant(now, grant, in_flight);
        self.spaced_until = now + self.space();
        self.queueing.on_grant(now, grant, self.limit);
        self.ceiling.set_next_grant(grant + 1);
    }

    fn on_outcome(&mut self, now: Instant, call: &CallReport) {
        self.overdue.on_end(call.grant, call.in_flight);
        self.advance(now);
        match call.outcome {
            Outcome::Success => self.on_success(now, call),
            Outcome::RateLimited => self.on_refused(now, call),
            _ => {}
        }
        let latency = (call.outcome == Outcome::Success).then_some(call.latency);
        let rules = self.batch_rules();
        if let Some(result) = self.queueing.on_end(now, call, latency, &rules)
            && rules.may_cut
        {
            self.on_batch(result, call.admitted_in_flight);
        }
        if let Some(restart) = &mut self.restart
            && now < restart.end
        {
            restart.in_flight = call.in_flight;
        }
    }

    fn cooldown(&self, now: Instant, call: &CallReport) -> Option<Duration> {
        Some(match self.stops(now, call) {
            Stops::Resource(cooldown) => cooldown,
            Stops::Call => self.own_cooldown(now, call),
            Stops::Unknown => Duration::ZERO,
        })
    }

    fn on_cooldown(&mut self, _now: Instant, until: Instant) {
        self.storm.on_cooldown();
        self.cooldown_until = Some(until);
    }

    fn begin_batch(&mut self) {
        self.limit_before_batch = Some(self.limit);
    }

    fn set_max(&mut self, _now: Instant, max: u32, _lifts: bool) {
        self.max = max;
        self.limit = self.limit.min(max);
    }

    fn state(&self, _now: Instant) -> LimitState {
        LimitState { ramp: None, rate_limit_ceiling: self.ceiling.first(), success_streak: self.ceiling.successes() }
    }
}

/// Returns when a call that ends at `now` was sent.
fn sent_at(now: Instant, call: &CallReport) -> Instant {
    Instant::from_nanos(now.as_nanos().saturating_sub(call.latency.as_nanos()))
}

/// Moves a mean an eighth of the way towards a sample.
fn follow(mean: &mut f64, seen: Duration) {
    let seen = seen.as_nanos() as f64;
    *mean = if *mean > 0.0 { *mean + (seen - *mean) / 8.0 } else { seen };
}
