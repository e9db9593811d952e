//! The start-up ramp of a resource, whatever algorithm decides its limit.
//!
//! While the ramp runs, the limit is the lower of the ramp's and the algorithm's. Time alone moves the ramp.
//! A refusal ends it: the algorithm goes on from the limit that the ramp had reached. [`Aimd`](super::Aimd)
//! has a ramp of its own, as the recorded traces have it, and does without this one.

use super::ramp::Ramp;
use super::{AimdConfig, RampState};
use crate::time::{Duration, Instant};

/// A ramp that runs, or may run again after an idle time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartUp {
    span: Duration,
    after_idle: Option<Duration>,
    ramp: Option<Ramp>,
    last_active: Instant,
    was_used: bool,
}

impl StartUp {
    /// The ramp of these settings from 1 to `target`; `None` if they have none.
    pub(crate) fn new(config: &AimdConfig, target: u32) -> Option<Self> {
        let span = config.ramp;
        if span.is_zero() {
            return None;
        }
        Some(Self {
            span,
            after_idle: config.ramp_after_idle,
            ramp: (target > 1).then_some(Ramp { from: 1, target, span, started: None }),
            last_active: Instant::ZERO,
            was_used: false,
        })
    }

    /// The most that the limit may be at `now`; `None` while no ramp runs.
    pub(crate) fn limit(&self, now: Instant) -> Option<u32> {
        self.ramp?.limit(now)
    }

    /// When that is next more.
    pub(crate) fn next_step(&self, now: Instant) -> Option<Instant> {
        self.ramp?.next_step(now)
    }

    /// What a snapshot shows.
    pub(crate) fn state(&self, now: Instant) -> Option<RampState> {
        self.ramp?.state(now)
    }

    /// Whether it has nothing more to do, ever.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.after_idle.is_none() && self.ramp.is_none_or(|ramp| ramp.limit(now).is_none())
    }

    /// The most that the limit may become is `target` from now on.
    pub(crate) fn set_target(&mut self, target: u32) {
        if let Some(ramp) = &mut self.ramp {
            ramp.target = target.max(ramp.from);
        }
    }

    /// Somebody asks for a permit while `in_flight` calls are out and the algorithm's limit is `limit`. The
    /// first one begins the ramp. One after a long idle time begins another, from half the limit.
    pub(crate) fn on_attempt(&mut self, now: Instant, in_flight: u32, limit: u32) {
        if let Some(ramp) = &mut self.ramp {
            ramp.started.get_or_insert(now);
        }
        if self.limit(now).is_none() {
            self.ramp = None;
            let is_idle = |idle: Duration| in_flight == 0 && self.was_used && now - self.last_active > idle;
            if limit > 1 && self.after_idle.is_some_and(is_idle) {
                let from = (limit / 2).max(1);
                self.ramp = Some(Ramp { from, target: limit, span: self.span, started: Some(now) });
            }
        }
        self.last_active = now;
    }

    /// A call was granted.
    pub(crate) fn on_grant(&mut self, now: Instant) {
        self.last_active = now;
    }

    /// A call ended.
    pub(crate) fn on_end(&mut self, now: Instant) {
        self.last_active = now;
        self.was_used = true;
    }

    /// A refusal ends the ramp. Returns the limit that it had reached; `None` if no ramp ran.
    pub(crate) fn abort(&mut self, now: Instant) -> Option<u32> {
        let reached = self.limit(now);
        self.ramp = None;
        reached
    }
}
