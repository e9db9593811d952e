//! A limit that remembers where the ceiling was.

mod config;
mod pace;
mod queueing;
mod restart;

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

/// What the limit does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Grows by one for each success, up to `until`.
    Climb { until: u32 },
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
    /// Refusals that were news, since the last call granted after a cut was answered.
    streak: u32,
    /// Probes in vain in a row.
    failures: u32,
    successes: u32,
    /// No probe before this.
    quiet_until: Instant,
    /// What was refused first.
    first_ceiling: u32,
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
            phase: Phase::Climb { until: u32::MAX },
            since: 0,
            known: 0,
            granted: 0,
            streak: 0,
            failures: 0,
            successes: 0,
            quiet_until: Instant::ZERO,
            first_ceiling: 0,
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
    }

    /// Successes to wait for before the next probe.
    fn patience(&self) -> u32 {
        let doubled = u64::from(self.config.probe_after) << self.failures.min(32);
        doubled.min(u64::from(self.config.probe_after_most)) as u32
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
            Phase::Climb { until } => {
                // As TCP in slow start: only a limit that is made use of grows.
                if call.admitted_in_flight > self.limit / 2 {
                    self.limit = self.limit.saturating_add(1).min(until).min(self.max);
                }
                if self.limit >= until {
                    self.enter(Phase::Hold);
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
                    self.failures = 0;
                    self.enter(Phase::Climb { until: u32::MAX });
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
        if let Some(end) = call.blocked_until {
            let tick = self.tick();
            self.restart = Some(Restart { end, out: call.in_flight, tick });
        }
        let by_pace = match (call.retry_after, call.blocked_until) {
            (Some(_), Some(end)) => self.pace.on_refused(end, call.grant, call.admitted_in_flight, self.granted),
            _ => false,
        };
        if call.grant < self.known || by_pace {
            self.known = if by_pace { self.granted } else { self.known };
            return;
        }
        self.cut(now, call);
    }

    fn cut(&mut self, now: Instant, call: &CallReport) {
        let ceiling = call.admitted_in_flight.saturating_sub(1).clamp(1, self.limit);
        self.limit = if self.streak == 0 {
            ceiling
        } else {
            ceiling.min(scaled_down(self.limit, self.config.decrease_factor))
        };
        self.streak = self.streak.saturating_add(1);
        self.known = self.granted;
        if self.first_ceiling == 0 {
            self.first_ceiling = call.admitted_limit;
        }
        let was_probe = matches!(self.phase, Phase::Probe { .. });
        self.failures = if was_probe { self.failures + 1 } else { 0 };
        if let Some(end) = call.blocked_until {
            let pauses = (4_u64 << self.failures.min(16)).min(u64::from(self.config.pauses_between_probes));
            self.quiet_until = end + Duration::from_nanos((end - now).as_nanos().saturating_mul(pauses));
        }
        self.enter(if self.limit < ceiling { Phase::Climb { until: ceiling } } else { Phase::Hold });
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

    fn on_grant(&mut self, now: Instant, grant: u64, _in_flight: u32) {
        self.pace.on_grant(now, grant);
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
        if let Some(sight) = self.queueing.on_end(call.grant, latency, self.config.latency_tolerance) {
            self.steer(sight, call.admitted_in_flight);
        }
        if let Some(restart) = &mut self.restart
            && now < restart.end
        {
            restart.out = call.in_flight;
        }
    }

    /// None after a lone refusal; from the third in a row on, half a call's time, doubled each time.
    fn pause(&self, _now: Instant, call: &CallReport) -> Option<Duration> {
        if call.grant < self.known || self.streak < 3 {
            return Some(Duration::ZERO);
        }
        let doublings = (self.streak - 3).min(16);
        let base = if self.latency > 0.0 { self.latency / 2.0 } else { 5e7 };
        let pause = base * f64::from(1_u32 << doublings);
        Some(Duration::from_nanos(pause as u64).min(self.config.longest_pause))
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
