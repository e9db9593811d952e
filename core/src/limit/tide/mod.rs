//! A limit that remembers where the ceiling was, and what a refusal showed.
//!
//! [`Aimd`](super::Aimd) reads a refusal as a collapse: it stops, cuts by a quarter, and climbs for hundreds of calls. Here it
//! is news: with `n` calls out, one too many was refused, so `n - 1` are borne.
//!
//! ```text
//!            success: +1                        refused with n out
//!         ┌────────────┐        ┌──────────────────────────────────────────────┐
//!         │   Climb    │────────┤  limit = min(n - 1, limit - 2^k)             │
//!         └────────────┘        │  k: refusals before with nothing let through │
//!               ▲               └──────────────────────────────────────────────┘
//!      answered │                                      ▲     │
//!         ┌─────┴──────┐            refused            │     ▼
//!         │   Probe    │───────────────────────────────┤  ┌──────────┐
//!         │  limit + 1 │◀──────────────────────────────┼──│   Hold   │
//!         └────────────┘     after enough successes    └──└──────────┘
//! ```
//!
//! - **Climb** starts at ten calls, one each millisecond (TCP's initial window of RFC 6928), and doubles the limit each round
//!   trip, up to twice what was made use of, as TCP does in slow start (Jacobson, 1988). Calls go out at most twice as fast as
//!   they come back, so that a refusal is heard before many others have followed the refused call.
//! - **Hold** stays at what is known to be borne: this is where the time is spent, at the ceiling and not below it, which
//!   CUBIC (Ha, Rhee and Xu, 2008) and BBR (Cardwell et al., 2016) do with the window and the rate that they remember.
//! - **Probe** tries one call more. It waits for `probe_after x 2^failures` successes, up to `probe_after_most` (and up to 32
//!   for each call of the limit, so that a narrow one is not stuck for long), so that a probe in vain is one call in 240. A
//!   probe that cost a pause is also followed by none for 8 such pauses, then 16, up to 128; for fewer where the highest ceiling
//!   remembered is far above, and at once for 32 after a return there.
//! - A probe that passes begins a climb. What ends it tells how soon to look again: at once after a leap of four slots or
//!   more, half as long as before after less.
//!
//! **Sustained refusal.** Until a call granted after a cut has been out for three times a refusal's way, or was answered,
//! each refusal cuts twice as much as the one before, up to `decrease_factor`. A refusal of a call that was out at the last
//! cut (the rest of its cascade) cuts nothing. At a limit of 1 a refusal pauses for a quarter of a call's time, doubled each
//! time, up to `longest_pause`. Above it a refusal that asks for no pause causes none: nothing goes out anyway before the calls
//! in flight have come down to the limit.
//!
//! **After a pause** the calls in flight are let up step by step, 1, 2, 4, ..., one step each time that a refusal would have
//! come back by, so that a ceiling that fell meanwhile costs one or two refusals and not a burst. A ceiling that falls again
//! and again, and asks for a pause each time, is kept at a distance. One that moves steadily, down or up, is followed without
//! trying.
//!
//! **Rates.** A provider that counts calls per minute refuses at whatever concurrency. Two of its refusals tell the
//! [interval](TideConfig#rates) between calls, and grants are spaced by it ([`opens_at`](LimitAlgorithm::opens_at)).
//!
//! **Queues.** Where nothing has been refused for long, mean latencies of batches of calls are compared with those of calls
//! that did not queue, and the limit is held where they are up to `latency_tolerance` times as long.
//!
//! It knows nothing but grants, ends of calls, and time. So it cannot
//!
//! - tell a ceiling that rose without trying: under a Retry-After of 500 ms each try costs half a second of everything;
//! - pace a rate whose refusals carry no Retry-After (its limit settles where the rate is borne on the average);
//! - see an outage: 5xx and timeouts change nothing;
//! - keep refusals below one in a hundred where fewer than two hundred calls are made: it has to find out first;
//! - tell the knee itself from a little past it: where throughput falls past the knee, some of it is lost.
//!
//! How it does beside the others, provider by provider, is in `docs/control.md`.

mod config;
mod pace;
mod queueing;
mod restart;
#[cfg(test)]
mod tests;
mod trend;

use self::pace::{Pace, Refusal};
use self::queueing::{Queueing, Sight};
use self::restart::Restart;
use self::trend::Trend;
use super::{CallReport, LimitAlgorithm, LimitState, scaled_down};
use crate::call::Outcome;
use crate::error::ConfigError;
use crate::time::{Duration, Instant};

pub use config::TideConfig;

/// Successes since the last refusal, in longest waits for a probe, after which latency counts again.
const WAITS_OF_TRUST: u32 = 8;

/// Successes to wait for before a probe, at most, for each call of the limit.
const TRIPS: u32 = 32;
/// Pauses between two probes, times `limit / (highest - limit)`; and the fewest.
const NEAR: u64 = 16;
const FEWEST_PAUSES: u64 = 4;
/// Probes in vain that a return to the highest ceiling counts for.
const BACK: u32 = 2;
/// What part of the way to the present one the highest ceiling comes down with each refusal.
const FORGETTING: u32 = 16;
/// What part of the limit is given up to measure what calls take alone.
const DRAIN: u32 = 5;
/// Nanoseconds below which calls are not held apart.
const SPACE: f64 = 1e6;
/// Slots by which a climb must have risen to count as a change and not as one more step.
const LEAP: u32 = 4;
/// Pauses within which a ceiling that falls again counts as falling.
const FALLING: u64 = 8;
/// How many times a refusal's way a call must have been out to count as let through.
const SURVIVAL: f64 = 3.0;

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

/// The pause that a refusal leaves behind.
#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    asked: Option<Duration>,
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
    /// The highest ceiling, as far as it is remembered.
    highest: u32,
    trend: Trend,
    /// When the first call after the last cut went out.
    first_news: Option<Instant>,
    /// Probes in vain in a row.
    failures: u32,
    successes: u32,
    /// No probe before this.
    quiet_until: Instant,
    /// Falls of the ceiling close to each other, and until when another one counts as close.
    falls: u32,
    falling_until: Instant,
    /// What was refused first.
    first_ceiling: u32,
    /// What is known of the refusal that is told next.
    pause: Option<Pause>,
    restart: Option<Restart>,
    /// In a climb, no call before this.
    spaced_until: Instant,
    /// How long calls and refusals take, in nanoseconds; 0 while it is unknown.
    latency: f64,
    refusal: f64,
    pace: Pace,
    queueing: Queueing,
    /// Successes since the last refusal; starts as if it were long ago.
    unrefused: u32,
    /// Whether latency, and not a refusal, was what last cut.
    is_queueing: bool,
    /// What the limit becomes again once it is known what calls take alone.
    resume: u32,
    /// The limit before the first of a row of cuts for latency.
    uncut: u32,
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
            highest: 0,
            trend: Trend::default(),
            first_news: None,
            failures: 0,
            successes: 0,
            quiet_until: Instant::ZERO,
            falls: 0,
            falling_until: Instant::ZERO,
            first_ceiling: 0,
            pause: None,
            restart: None,
            spaced_until: Instant::ZERO,
            latency: 0.0,
            refusal: 0.0,
            pace: Pace::default(),
            queueing: Queueing::default(),
            unrefused: u32::MAX,
            is_queueing: false,
            resume: 0,
            uncut: 1,
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
        let doubled = u64::from(self.config.probe_after.min(self.limit.saturating_mul(8))) << self.failures.min(32);
        let most = self.config.probe_after_most.min(self.limit.saturating_mul(TRIPS)).max(self.config.probe_after);
        doubled.min(u64::from(most)) as u32
    }

    fn tick(&self) -> Duration {
        // Twice a refusal's way, but never so long that the climb is felt.
        let longest = self.latency / 8.0;
        let tick = if self.refusal > 0.0 { (2.0 * self.refusal).min(longest) } else { longest };
        Duration::from_nanos(tick.clamp(1e6, 1e9) as u64)
    }

    /// How far apart calls go out in a climb: twice as fast as they come back, as Linux paces TCP in slow start.
    fn space(&self) -> Duration {
        // The first to come back are the short ones: go by what a refusal may take.
        if self.granted < 2 * u64::from(self.config.initial_limit) {
            return self.tick();
        }
        let space = self.latency / f64::from(self.limit.max(1)) / 2.0;
        if space < SPACE { Duration::ZERO } else { Duration::from_nanos(space as u64) }
    }

    fn on_success(&mut self, now: Instant, call: &CallReport) {
        follow(&mut self.latency, call.latency);
        self.pace.on_success(call.grant, call.admitted_in_flight, self.latency);
        if call.grant >= self.known {
            self.streak = 0;
            if now >= self.quiet_until {
                self.unrefused = self.unrefused.saturating_add(1);
            }
        }
        if self.is_queueing {
            return;
        }
        if self.phase == Phase::Hold
            && let Some(followed) = self.trend.follow(now, self.limit)
        {
            self.successes = if followed == self.limit { self.successes } else { 0 };
            self.limit = followed.min(self.max);
            return;
        }
        let is_of_phase = call.grant >= self.since;
        match self.phase {
            // As TCP in slow start: to twice what was made use of.
            Phase::Climb { .. } => {
                if is_of_phase && self.limit < self.peak.saturating_mul(2) {
                    self.limit = self.limit.saturating_add(1).min(self.max);
                }
            }
            Phase::Hold => {
                self.successes = self.successes.saturating_add(1);
                let is_due = self.successes >= self.patience() && now >= self.quiet_until;
                if is_due && call.admitted_in_flight >= self.limit && self.limit < self.max {
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

    /// Pauses between two probes, at most: the fewer, the farther the limit is below what was once borne, for the more is to
    /// be had.
    fn most_pauses(&self) -> u64 {
        let most = u64::from(self.config.pauses_between_probes);
        let room = u64::from(self.highest.saturating_sub(self.limit));
        (NEAR * u64::from(self.limit)).checked_div(room).map_or(most, |near| near.clamp(FEWEST_PAUSES.min(most), most))
    }

    fn on_refused(&mut self, now: Instant, call: &CallReport) {
        follow(&mut self.refusal, call.latency);
        self.unrefused = 0;
        self.is_queueing = false;
        self.queueing.forget_batch();
        let pause = self.pause.take();
        if let Some(Pause { until, .. }) = pause {
            self.restart = Some(Restart { end: until, out: call.in_flight, tick: self.tick() });
        }
        let by_pace = match pause {
            Some(Pause { asked: Some(asked), .. }) => {
                let sent = Instant::from_nanos(now.as_nanos().saturating_sub(call.latency.as_nanos()));
                let at_once = call.admitted_in_flight;
                self.pace.on_refused(&Refusal { grant: call.grant, sent, asked, at_once })
            }
            _ => false,
        };
        if by_pace {
            // So what was cut before was not the limit's fault.
            self.limit = self.limit.max(self.pace.level()).min(self.max);
            self.known = self.granted;
        } else if call.grant >= self.known {
            self.cut(now, call, pause);
        }
    }

    fn cut(&mut self, now: Instant, call: &CallReport, pause: Option<Pause>) {
        let ceiling = call.admitted_in_flight.saturating_sub(1).clamp(1, self.limit);
        // One less, then two, four, eight while nothing is let through.
        let less = self.limit.saturating_sub(1 << self.streak.min(31));
        let least = scaled_down(self.limit, self.config.decrease_factor);
        self.limit = ceiling.min(less.max(least)).max(1);
        let is_back = self.remember();
        self.first_news = None;
        self.streak = self.streak.saturating_add(1);
        self.known = self.granted;
        if self.first_ceiling == 0 {
            self.first_ceiling = call.admitted_limit;
        }
        self.failures = match self.phase {
            Phase::Probe { .. } => self.failures + 1,
            // Much has changed: look again soon. Or a little: somewhat sooner than before.
            Phase::Climb { from } if self.limit >= from.saturating_add(LEAP) => BACK * u32::from(is_back),
            Phase::Hold if self.streak > 1 => self.failures.min(1),
            Phase::Climb { .. } | Phase::Hold => self.failures.saturating_sub(1),
        };
        if let Some(Pause { until, .. }) = pause {
            self.trend.on_ceiling(now, ceiling);
            if self.phase == Phase::Hold {
                self.fall(now, ceiling);
            }
            let pauses = (8_u64 << self.failures.min(16)).min(self.most_pauses());
            let pause = (until - now).as_nanos();
            self.quiet_until = until + Duration::from_nanos(pause.saturating_mul(pauses));
            self.falling_until = until + Duration::from_nanos(pause.saturating_mul(FALLING));
        }
        self.enter(Phase::Hold);
    }

    /// Remembers the highest ceiling, and forgets some of it; answers whether the limit is back there.
    fn remember(&mut self) -> bool {
        let (limit, before) = (self.limit, self.highest);
        self.highest = limit.max(before - before.saturating_sub(limit) / FORGETTING);
        (limit - limit / 4..=limit.saturating_add(limit / 8)).contains(&before)
    }

    /// A ceiling that keeps falling costs a pause for each slot: stay the farther below it, the sooner it falls again.
    fn fall(&mut self, now: Instant, ceiling: u32) {
        self.falls = if now < self.falling_until { (self.falls + 1).min(4) } else { self.falls.saturating_sub(1) };
        let margin = ((1 << self.falls) - 1).min(ceiling / 8);
        self.limit = self.limit.min(ceiling - margin).max(1);
    }

    /// Forgets a restart that no longer holds anything up.
    fn settle(&mut self, now: Instant) {
        if self.restart.is_some_and(|restart| now >= restart.end && restart.allowed(now) >= self.limit) {
            self.restart = None;
        }
    }
}

impl LimitAlgorithm for Tide {
    fn limit(&self, now: Instant) -> u32 {
        let allowed = self.restart.map_or(u32::MAX, |restart| restart.allowed(now));
        self.limit.min(self.max).min(allowed)
    }

    fn next_change(&self, now: Instant) -> Option<Instant> {
        let restart = self.restart.filter(|restart| restart.allowed(now) < self.limit.min(self.max));
        let step = restart.map(|restart| restart.next_step(now));
        let opens = self.opens_at(now);
        [step, opens].into_iter().flatten().min()
    }

    fn opens_at(&self, now: Instant) -> Option<Instant> {
        let climb = matches!(self.phase, Phase::Climb { .. }).then_some(self.spaced_until);
        self.pace.opens_at().max(climb).filter(|at| *at > now)
    }

    fn on_attempt(&mut self, now: Instant, _in_flight: u32) {
        self.settle(now);
    }

    fn on_grant(&mut self, now: Instant, grant: u64, in_flight: u32) {
        self.peak = self.peak.max(in_flight);
        self.pace.on_grant(now);
        self.spaced_until = now + self.space();
        self.queueing.on_grant(grant, self.limit);
        self.first_news.get_or_insert(now);
        self.granted = grant + 1;
    }

    fn on_outcome(&mut self, now: Instant, call: &CallReport) {
        self.settle(now);
        let survived = Duration::from_nanos((SURVIVAL * self.refusal) as u64);
        if self.refusal > 0.0 && self.first_news.is_some_and(|first| now > first + survived) {
            self.streak = 0;
        }
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

    /// None while there is something to cut; then a quarter of a call's time, doubled each time.
    fn pause(&self, _now: Instant, call: &CallReport) -> Option<Duration> {
        if call.grant < self.known || self.limit > 1 {
            return Some(Duration::ZERO);
        }
        let doublings = self.streak.saturating_sub(1).min(16);
        let base = if self.latency > 0.0 { self.latency / 4.0 } else { 5e7 };
        let pause = base * f64::from(1_u32 << doublings);
        Some(Duration::from_nanos(pause as u64).min(self.config.longest_pause))
    }

    fn on_pause(&mut self, _now: Instant, until: Instant, asked: Option<Duration>) {
        self.pause = Some(Pause { until, asked });
    }

    fn set_max(&mut self, _now: Instant, max: u32, _lifts: bool) {
        self.max = max;
        self.limit = self.limit.min(max);
    }

    fn state(&self, _now: Instant) -> LimitState {
        LimitState { ramp: None, rate_limit_ceiling: self.first_ceiling, success_streak: self.successes }
    }
}

/// Moves a mean an eighth of the way towards what was seen.
fn follow(mean: &mut f64, seen: Duration) {
    let seen = seen.as_nanos() as f64;
    *mean = if *mean > 0.0 { *mean + (seen - *mean) / 8.0 } else { seen };
}
