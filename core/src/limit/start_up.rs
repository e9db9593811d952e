//! The start-up ramp of a resource, for algorithms without a ramp of their own.
//!
//! While the ramp runs, the limit is the lower of the ramp's and the algorithm's. The ramp depends on time
//! alone. A rate-limited call ends it, and the algorithm continues from the limit that the ramp had reached.
//! [`Aimd`](super::Aimd) has its own ramp, which reproduces the recorded traces, and does not use this one.

use super::ramp::Ramp;
use super::{LimitConfig, RampState};
use crate::time::{Duration, Instant};

/// A ramp that is running, or may start again after an idle time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartUp {
    span: Duration,
    after_idle: Option<Duration>,
    ramp: Option<Ramp>,
    last_active: Instant,
    was_used: bool,
}

impl StartUp {
    /// Creates the ramp of these settings, from 1 to `target`. Returns `None` if the settings have no ramp.
    pub(crate) fn new(config: &LimitConfig, target: u32) -> Option<Self> {
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

    /// Returns the highest limit that the ramp allows at `now`, or `None` while no ramp is running.
    pub(crate) fn limit(&self, now: Instant) -> Option<u32> {
        self.ramp?.limit(now)
    }

    /// Returns when the ramp's limit next rises, or `None` if no ramp is running.
    pub(crate) fn next_step(&self, now: Instant) -> Option<Instant> {
        self.ramp?.next_step(now)
    }

    /// Returns the ramp's state for a snapshot, or `None` while no ramp is running.
    pub(crate) fn state(&self, now: Instant) -> Option<RampState> {
        self.ramp?.state(now)
    }

    /// Returns whether the ramp is over and can never start again.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.after_idle.is_none() && self.ramp.is_none_or(|ramp| ramp.limit(now).is_none())
    }

    /// Changes the target of a running ramp, to `target` or to the ramp's start if that is higher.
    pub(crate) fn set_target(&mut self, target: u32) {
        if let Some(ramp) = &mut self.ramp {
            ramp.target = target.max(ramp.from);
        }
    }

    /// Handles an acquire attempt while `in_flight` calls are in flight and the algorithm's limit is `limit`.
    ///
    /// The first attempt starts the ramp. An attempt after a long idle time starts another one, from half the
    /// limit.
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

    /// Handles a grant.
    pub(crate) fn on_grant(&mut self, now: Instant) {
        self.last_active = now;
    }

    /// Handles the end of a call.
    pub(crate) fn on_end(&mut self, now: Instant) {
        self.last_active = now;
        self.was_used = true;
    }

    /// Ends the ramp after a rate-limited call. Returns the limit that it had reached, or `None` if no ramp
    /// was running.
    pub(crate) fn abort(&mut self, now: Instant) -> Option<u32> {
        let reached = self.limit(now);
        self.ramp = None;
        reached
    }
}
