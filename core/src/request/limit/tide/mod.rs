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
//! - **Climb** doubles the limit each round trip, up to twice what was made use of, as TCP does in slow start (Jacobson, 1988).
//! - **Hold** stays at what is known to be borne: this is where the time is spent, at the ceiling and not below it, which
//!   CUBIC (Ha, Rhee and Xu, 2008) and BBR (Cardwell et al., 2016) do with the window and the rate that they remember.
//! - **Probe** tries one call more. It waits for `probe_after x 2^failures` successes, up to `probe_after_most` (and up to 32
//!   for each call of the limit, so that a narrow one is not stuck for long), so that a probe in vain is one call in 240. A
//!   probe that cost a pause is also followed by none for up to 32 such pauses.
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
//! and again, and asks for a pause each time, is kept at a distance.
//!
//! **Rates.** A provider that counts calls per minute refuses at whatever concurrency. Of its refusals the
//! [interval](TideConfig#rates) between calls is learned, and grants are spaced by it
//! ([`opens_at`](LimitAlgorithm::opens_at)).
//!
//! **Queues.** Where nothing has been refused for long, mean latencies of batches of calls are compared with those of a batch
//! that did not queue, and the limit is held where they are `latency_tolerance` times as long at most.
//!
//! It knows nothing but grants, ends of calls, and time. So it cannot
//!
//! - tell a ceiling that rose without trying: under a Retry-After of 500 ms each try costs half a second of everything;
//! - pace a rate whose refusals carry no Retry-After (its limit settles where the rate is borne on the average);
//! - see an outage: 5xx and timeouts change nothing;
//! - keep refusals below one in a hundred where only a few hundred calls are made: it has to find out first.
//!
//! How it does beside the others, provider by provider, is in `docs/control.md`.

mod config;
mod pace;
mod queueing;
mod restart;
#[cfg(test)]
mod tests;

use self::pace::Pace;
use self::queueing::{Queueing, Sight};
use self::restart::Restart;
use super::{CallReport, LimitAlgorithm, LimitState, scaled_down};
use crate::error::ConfigError;
use crate::request::outcome::Outcome;
use crate::time::{Duration, Instant};

pub use config::TideConfig;

/// Successes since the last refusal, in longest waits for a probe, after which latency counts again.
const WAITS_OF_TRUST: u32 = 8;

/// Successes to wait for before a probe, at most, for each call of the limit.
const TRIPS: u32 = 32;
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
    /// How long calls and refusals take, in nanoseconds; 0 while it is unknown.
    latency: f64,
    refusal: f64,
    pace: Pace,
    queueing: Queueing,
    /// Successes since the last refusal; starts as if it were long ago.
    unrefused: u32,
    /// Whether latency, and not a refusal, was what last cut.
    is_queueing: bool,
    /// The limit before half of it was taken to learn what calls take alone.
    resume: u32,
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
            first_news: None,
            failures: 0,
            successes: 0,
            quiet_until: Instant::ZERO,
            falls: 0,
            falling_until: Instant::ZERO,
            first_ceiling: 0,
            pause: None,
            restart: None,
            latency: 0.0,
            refusal: 0.0,
            pace: Pace::default(),
            queueing: Queueing::default(),
            unrefused: u32::MAX,
            is_queueing: false,
            resume: 0,
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

    fn on_success(&mut self, now: Instant, call: &CallReport) {
        follow(&mut self.latency, call.latency);
        self.pace.on_success(call.grant, call.admitted_in_flight);
        if call.grant >= self.known {
            self.streak = 0;
            if now >= self.quiet_until {
                self.unrefused = self.unrefused.saturating_add(1);
            }
        }
        if self.is_queueing {
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
                self.limit = (self.limit / 2).max(1);
            }
            Sight::Learned if self.is_queueing => self.limit = self.resume.min(self.max),
            Sight::Clear(_) | Sight::Relearn | Sight::Learned => {}
            Sight::Filling => {
                if self.phase != Phase::Hold {
                    self.enter(Phase::Hold);
                }
            }
            Sight::Queueing(ratio) => {
                self.limit = scaled_down(self.limit, 1.0 / ratio);
                self.known = self.granted;
                self.is_queueing = true;
                self.enter(Phase::Hold);
            }
        }
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
            Some(Pause { until, asked: Some(asked) }) => {
                self.pace.on_refused(until, asked, call.grant, call.admitted_in_flight, self.granted)
            }
            _ => false,
        };
        if call.grant < self.known || by_pace {
            self.known = if by_pace { self.granted } else { self.known };
            return;
        }
        self.cut(now, call, pause);
    }

    fn cut(&mut self, now: Instant, call: &CallReport, pause: Option<Pause>) {
        let ceiling = call.admitted_in_flight.saturating_sub(1).clamp(1, self.limit);
        // One less, then two, four, eight while nothing is let through.
        let less = self.limit.saturating_sub(1 << self.streak.min(31));
        let least = scaled_down(self.limit, self.config.decrease_factor);
        self.limit = ceiling.min(less.max(least)).max(1);
        self.first_news = None;
        self.streak = self.streak.saturating_add(1);
        self.known = self.granted;
        if self.first_ceiling == 0 {
            self.first_ceiling = call.admitted_limit;
        }
        self.failures = match self.phase {
            Phase::Probe { .. } => self.failures + 1,
            // Much has changed: look again soon. Or a little: somewhat sooner than before.
            Phase::Climb { from } if self.limit >= from.saturating_add(LEAP) => 0,
            Phase::Hold if self.streak > 1 => self.failures.min(1),
            Phase::Climb { .. } | Phase::Hold => self.failures.saturating_sub(1),
        };
        if let Some(Pause { until, .. }) = pause {
            if self.phase == Phase::Hold {
                self.fall(now, ceiling);
            }
            let pauses = (8_u64 << self.failures.min(16)).min(u64::from(self.config.pauses_between_probes));
            let pause = (until - now).as_nanos();
            self.quiet_until = until + Duration::from_nanos(pause.saturating_mul(pauses));
            self.falling_until = until + Duration::from_nanos(pause.saturating_mul(FALLING));
        }
        self.enter(Phase::Hold);
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
        self.pace.opens_at().filter(|at| *at > now)
    }

    fn on_attempt(&mut self, now: Instant, _in_flight: u32) {
        self.settle(now);
    }

    fn on_grant(&mut self, now: Instant, grant: u64, in_flight: u32) {
        self.peak = self.peak.max(in_flight);
        self.pace.on_grant(now, grant);
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
        if let Some(sight) = self.queueing.on_end(call.grant, latency, self.config.latency_tolerance) {
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
