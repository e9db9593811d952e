//! A limit that watches latency, for providers that queue instead of refusing.
//!
//! ```text
//! alone   the shortest latency seen lately
//! queued  limit x (1 - alone / mean latency of the window)        calls that wait inside the provider
//!
//! queued < alpha   limit + 1, or doubled until the first queue was seen; only if the limit was reached
//! queued > beta    limit x alone / mean + alpha, at least 1
//! refused          max(1, floor(limit x 0.75)), once per cascade
//! ```
//!
//! After TCP Vegas (Brakmo and Peterson, 1995), with concurrency in the place of the congestion window. A
//! window is as many successes as the limit, so the limit moves about once per round trip.
//!
//! A provider may become slower for good, so "alone" is learned anew every so many windows. Learning it
//! beside one's own queue would count that queue as the provider's speed and let the limit creep up, so the
//! limit is halved for two short windows: one that drains the queue and one that measures (the idea of BBR's
//! minimum-round-trip probe). At the default of 60 windows that costs about two per cent of the slots.

use super::{CallReport, Cascade, LimitAlgorithm, scaled_down};
use crate::call::Outcome;
use crate::error::{ConfigError, require};
use crate::time::{Duration, Instant};

/// What a refusal leaves of the limit.
const REFUSAL_FACTOR: f64 = 0.75;

/// Settings of [`Vegas`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct VegasConfig {
    /// The limit to start at. At least 1; 4.
    pub initial_limit: u32,
    /// Queued calls below which the limit grows. Above 0; 1.
    pub alpha: f64,
    /// Queued calls above which the limit shrinks. At least `alpha`; 3.
    pub beta: f64,
    /// Windows after which the shortest latency is learned anew. At least 2; 60.
    pub windows_until_relearned: u32,
}

impl Default for VegasConfig {
    fn default() -> Self {
        Self { initial_limit: 4, alpha: 1.0, beta: 3.0, windows_until_relearned: 60 }
    }
}

impl VegasConfig {
    /// Refuses a value out of range, naming its field.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require(self.initial_limit > 0, "initial_limit", 0, "at least 1")?;
        require(self.alpha > 0.0 && self.alpha <= 1e6, "alpha", self.alpha, "a number above 0, at most 10^6")?;
        let beta = self.beta;
        require(beta >= self.alpha && beta <= 1e6, "beta", beta, "a number from `alpha` to 10^6")?;
        require(
            self.windows_until_relearned >= 2,
            "windows_until_relearned",
            self.windows_until_relearned,
            "at least 2",
        )
    }
}

/// The successes since the limit last moved.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    calls: u32,
    total: Duration,
    was_full: bool,
}

/// What the present window is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowPurpose {
    /// To move the limit.
    Cruise,
    /// To let the queue inside the provider drain, before the limit becomes `resume` again.
    Drain { resume: u32 },
    /// To learn what a call takes alone.
    Learn { resume: u32 },
}

/// See the [module documentation](self).
#[derive(Clone, Debug)]
pub struct Vegas {
    config: VegasConfig,
    max: u32,
    limit: u32,
    cascade: Cascade,
    phase: WindowPurpose,
    window: Window,
    windows: u32,
    alone: Option<Duration>,
    /// The shortest latency of this window.
    fresh: Option<Duration>,
    has_queued: bool,
}

impl Vegas {
    /// A limit that has seen nothing yet.
    pub fn new(config: VegasConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            config,
            max: u32::MAX,
            limit: config.initial_limit,
            cascade: Cascade::default(),
            phase: WindowPurpose::Cruise,
            window: Window::default(),
            windows: 0,
            alone: None,
            fresh: None,
            has_queued: false,
        })
    }

    fn on_success(&mut self, call: &CallReport) {
        let shortest = |known: Option<Duration>| Some(known.map_or(call.latency, |known| known.min(call.latency)));
        (self.alone, self.fresh) = (shortest(self.alone), shortest(self.fresh));
        self.window.calls += 1;
        self.window.total = self.window.total + call.latency;
        if self.window.calls >= self.limit {
            self.close_window();
        }
    }

    fn close_window(&mut self) {
        let window = core::mem::take(&mut self.window);
        let shortest = self.fresh.take();
        match self.phase {
            WindowPurpose::Cruise => {
                self.update_limit(&window);
                self.windows += 1;
                if self.windows >= self.config.windows_until_relearned {
                    self.windows = 0;
                    self.phase = WindowPurpose::Drain { resume: self.limit };
                    self.limit = (self.limit / 2).max(1);
                }
            }
            WindowPurpose::Drain { resume } => self.phase = WindowPurpose::Learn { resume },
            WindowPurpose::Learn { resume } => {
                self.alone = shortest;
                self.limit = resume.min(self.max);
                self.phase = WindowPurpose::Cruise;
            }
        }
    }

    /// Moves the limit by what a window showed.
    fn update_limit(&mut self, window: &Window) {
        let alone = self.alone.unwrap_or(Duration::ZERO).as_nanos() as f64;
        let mean = window.total.as_nanos() as f64 / f64::from(window.calls);
        // An instant provider has no queue.
        let share = if mean > 0.0 { alone / mean } else { 1.0 };
        let queued = f64::from(self.limit) * (1.0 - share);
        if queued > self.config.beta {
            let bearable = f64::from(self.limit) * share + self.config.alpha;
            self.limit = (bearable as u32).clamp(1, self.limit);
        } else if queued < self.config.alpha && window.was_full {
            let step = if self.has_queued { 1 } else { self.limit };
            self.limit = self.limit.saturating_add(step).min(self.max);
        }
        self.has_queued |= queued >= self.config.alpha;
    }
}

impl LimitAlgorithm for Vegas {
    fn limit(&self, _now: Instant) -> u32 {
        self.limit.min(self.max)
    }

    fn on_grant(&mut self, _now: Instant, grant: u64, in_flight: u32) {
        self.cascade.on_grant(grant);
        self.window.was_full |= in_flight >= self.limit;
    }

    fn on_outcome(&mut self, _now: Instant, call: &CallReport) {
        match call.outcome {
            Outcome::Success => self.on_success(call),
            Outcome::RateLimited | Outcome::ProviderTimeout if self.cascade.is_news(call) => {
                self.cascade.cut();
                self.has_queued = true;
                self.limit = scaled_down(self.limit, REFUSAL_FACTOR);
                self.window = Window::default();
                if let WindowPurpose::Drain { resume } | WindowPurpose::Learn { resume } = &mut self.phase {
                    *resume = scaled_down(*resume, REFUSAL_FACTOR);
                }
            }
            _ => {}
        }
    }

    fn set_max(&mut self, _now: Instant, max: u32, _lifts: bool) {
        self.max = max;
        self.limit = self.limit.min(max);
    }
}
