//! The Vegas limit: it follows latency, for providers that queue calls instead of rejecting them.
//!
//! ```text
//! base     the lowest latency since the last measurement
//! queued   limit x (1 - base / mean latency of the window)        calls that wait inside the provider
//!
//! queued < alpha               limit + 1, or limit x 2 until the first queue; only if the limit was reached
//! queued > beta                limit x base / mean + alpha, at least 1
//! rate limited, or timed out   max(1, floor(limit x 0.75)), once per cascade
//! ```
//!
//! The algorithm is that of TCP Vegas (Brakmo and Peterson, 1995), with concurrency in place of the
//! congestion window. A window is as many successes as the limit, so the limit changes about once per round
//! trip.
//!
//! A provider may become slower permanently, so the base latency is measured again every
//! [`windows_until_relearned`](VegasConfig::windows_until_relearned) windows. A measurement while own calls
//! queue would include their queueing time and let the limit creep up. The limit is therefore halved for two
//! short windows: one drains the queue and one measures. This is the idea of BBR's minimum-round-trip probe.
//! At the default of 60 windows it costs about two per cent of the slots.

use super::{CallReport, Cascade, LimitAlgorithm, scaled_down};
use crate::call::Outcome;
use crate::error::{ConfigError, require};
use crate::time::{Duration, Instant};

/// The factor of a cut after a rate-limited or timed-out call.
const CUT_FACTOR: f64 = 0.75;

/// The settings of [`Vegas`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct VegasConfig {
    /// The limit to start at, at least 1. Default 4.
    pub initial_limit: u32,
    /// The number of queued calls below which the limit grows, above 0 and at most 10^6. Default 1.
    pub alpha: f64,
    /// The number of queued calls above which the limit shrinks, from `alpha` to 10^6. Default 3.
    pub beta: f64,
    /// The number of windows after which the base latency is measured again, at least 2. Default 60.
    pub windows_until_relearned: u32,
}

impl Default for VegasConfig {
    fn default() -> Self {
        Self { initial_limit: 4, alpha: 1.0, beta: 3.0, windows_until_relearned: 60 }
    }
}

impl VegasConfig {
    /// Returns an error that names the first field whose value is out of range.
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

/// The successes of the present window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    calls: u32,
    total: Duration,
    was_full: bool,
}

/// The purpose of the present window. `resume` is the limit after the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowPurpose {
    /// Adjusts the limit.
    Adjust,
    /// Lets the queue inside the provider drain.
    Drain { resume: u32 },
    /// Measures the base latency.
    Measure { resume: u32 },
}

/// A limit that follows latency. See the [module documentation](self).
#[derive(Clone, Debug)]
pub struct Vegas {
    config: VegasConfig,
    max: u32,
    limit: u32,
    cascade: Cascade,
    purpose: WindowPurpose,
    window: Window,
    /// Windows since the base latency was last measured.
    windows: u32,
    base_latency: Option<Duration>,
    /// The lowest latency of this window.
    window_latency: Option<Duration>,
    /// Whether calls ever queued or the limit was ever cut: the limit no longer doubles.
    has_queued: bool,
}

impl Vegas {
    /// Creates a limit that has not measured anything yet. Returns an error if a setting is out of range.
    pub fn new(config: VegasConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            config,
            max: u32::MAX,
            limit: config.initial_limit,
            cascade: Cascade::default(),
            purpose: WindowPurpose::Adjust,
            window: Window::default(),
            windows: 0,
            base_latency: None,
            window_latency: None,
            has_queued: false,
        })
    }

    fn on_success(&mut self, call: &CallReport) {
        let lowest = |lowest: Option<Duration>| Some(lowest.map_or(call.latency, |lowest| lowest.min(call.latency)));
        self.base_latency = lowest(self.base_latency);
        self.window_latency = lowest(self.window_latency);
        self.window.calls += 1;
        self.window.total = self.window.total + call.latency;
        if self.window.calls >= self.limit {
            self.close_window();
        }
    }

    fn close_window(&mut self) {
        let window = core::mem::take(&mut self.window);
        let window_latency = self.window_latency.take();
        match self.purpose {
            WindowPurpose::Adjust => {
                self.update_limit(&window);
                self.windows += 1;
                if self.windows >= self.config.windows_until_relearned {
                    self.windows = 0;
                    self.purpose = WindowPurpose::Drain { resume: self.limit };
                    self.limit = (self.limit / 2).max(1);
                }
            }
            WindowPurpose::Drain { resume } => self.purpose = WindowPurpose::Measure { resume },
            WindowPurpose::Measure { resume } => {
                self.base_latency = window_latency;
                self.limit = resume.min(self.max);
                self.purpose = WindowPurpose::Adjust;
            }
        }
    }

    /// Adjusts the limit to the latencies of a window.
    fn update_limit(&mut self, window: &Window) {
        let base = self.base_latency.unwrap_or(Duration::ZERO).as_nanos() as f64;
        let mean = window.total.as_nanos() as f64 / f64::from(window.calls);
        // A provider that answers in no time has no queue.
        let share = if mean > 0.0 { base / mean } else { 1.0 };
        let queued = f64::from(self.limit) * (1.0 - share);
        if queued > self.config.beta {
            let target = f64::from(self.limit) * share + self.config.alpha;
            self.limit = (target as u32).clamp(1, self.limit);
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
            Outcome::RateLimited | Outcome::ProviderTimeout if self.cascade.was_granted_after_cut(call) => {
                self.cascade.cut();
                self.has_queued = true;
                self.limit = scaled_down(self.limit, CUT_FACTOR);
                self.window = Window::default();
                if let WindowPurpose::Drain { resume } | WindowPurpose::Measure { resume } = &mut self.purpose {
                    *resume = scaled_down(*resume, CUT_FACTOR);
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
