//! How many calls may be in flight: one trait, several algorithms.
//!
//! | algorithm | for providers that | grows | shrinks |
//! | --- | --- | --- | --- |
//! | [`Aimd`] (the core's reference and default) | answer 429 when they have enough | by a step for each so many successes | by a factor, once per cascade of refusals |
//! | [`Fixed`] | bear what they promise | never | never |
//! | [`Vegas`] | queue instead of refusing (the vLLM shape) | while calls take no longer than alone | when they queue, or on a refusal |
//! | [`Tide`] (the default of the hosts) | any of these, and rates per minute | back to where the ceiling was, and gently past it | to what the refusal showed |
//!
//! A [start-up ramp](AimdConfig::ramp) may precede any of them: it bounds the limit by time, until it is over
//! or a call is refused.
//!
//! A Retry-After stops the whole resource, unless the algorithm has [found out](LimitAlgorithm::pause) that
//! it stops the refused call only.

pub mod aimd;
mod choice;
mod config;
pub mod fixed;
mod ramp;
mod start_up;
pub mod tide;
pub mod vegas;

use core::fmt;

use crate::call::Outcome;
use crate::time::{Duration, Instant};

pub use aimd::Aimd;
pub use choice::LimitChoice;
pub use config::{AimdConfig, CooldownRule, CutRule};
pub use fixed::Fixed;
pub(crate) use start_up::StartUp;
pub use tide::{RetryAfterStops, Tide, TideConfig};
pub use vegas::{Vegas, VegasConfig};

/// What a call that ended tells about the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallReport {
    /// How it ended.
    pub outcome: Outcome,
    /// The number of its grant among all grants of the resource, from 0.
    pub grant: u64,
    /// The limit it was admitted under.
    pub admitted_limit: u32,
    /// Calls of the resource that were out once it was granted, itself included.
    pub admitted_in_flight: u32,
    /// What a refusal asked for.
    pub retry_after: Option<Duration>,
    /// From grant to end; zero where the algorithm does not [use the time](LimitAlgorithm::uses_time).
    pub latency: Duration,
    /// Calls of the resource that are still out.
    pub in_flight: u32,
    /// Whether the resource was cooling down when it ended, the cooldown this call itself began included.
    pub is_cooling_down: bool,
}

/// A start-up ramp on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RampState {
    /// The limit it climbs to.
    pub target: u32,
    /// When it is there; `None` until the first request, from which it counts.
    pub ends: Option<Instant>,
}

/// What a snapshot shows of an algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitState {
    /// The start-up ramp that runs, if one does.
    pub ramp: Option<RampState>,
    /// The limit the first cut found too high; 0 before any.
    pub rate_limit_ceiling: u32,
    /// Successes counted towards the next increase.
    pub success_streak: u32,
}

/// Decides how many calls of one resource may be in flight.
///
/// A plain state machine: it MUST depend on its inputs alone, and answer equally for equal inputs. The
/// controller clamps what it answers to `1..=max`. Every method is O(1).
pub trait LimitAlgorithm: Send {
    /// The limit in force at `now`. Reading it changes nothing.
    fn limit(&self, now: Instant) -> u32;

    /// When the limit next changes by time alone, if it will.
    fn next_change(&self, _now: Instant) -> Option<Instant> {
        None
    }

    /// Somebody asks for a permit while `in_flight` calls are out.
    fn on_attempt(&mut self, _now: Instant, _in_flight: u32) {}

    /// The instant that [`LimitAlgorithm::next_change`] named has come, and somebody waits.
    fn on_time(&mut self, _now: Instant) {}

    /// Grant number `grant` was given; `in_flight` counts it.
    fn on_grant(&mut self, _now: Instant, _grant: u64, _in_flight: u32) {}

    /// A call ended.
    fn on_outcome(&mut self, now: Instant, call: &CallReport);

    /// How long a refusal stops the resource: zero is not at all, `None` as long as the settings say. Where
    /// there is no Retry-After, never longer than the settings say. Asked before
    /// [`LimitAlgorithm::on_outcome`]; the report's cooldown is that of the refusals before. Unless an
    /// algorithm knows better: as long as the Retry-After says, if there is one.
    fn pause(&self, _now: Instant, call: &CallReport) -> Option<Duration> {
        call.retry_after
    }

    /// A refusal, whose [`LimitAlgorithm::on_outcome`] is next, leaves the resource stopped until `until`.
    fn on_pause(&mut self, _now: Instant, _until: Instant) {}

    /// The instant before which no call goes out, whatever the limit; `None`: they go at once. For those that
    /// space calls in time. [`LimitAlgorithm::next_change`] MUST name that instant, unless an earlier one is
    /// due. Asked of those only that [use time](LimitAlgorithm::uses_time).
    fn opens_at(&self, _now: Instant) -> Option<Instant> {
        None
    }

    /// The most the limit may become is `max` from now on. `lifts`: a limit that stood at its old maximum and
    /// was never cut may follow it up.
    fn set_max(&mut self, now: Instant, max: u32, lifts: bool);

    /// The resource's settings are `config` from now on. What the limit has found out so far stays. Nothing,
    /// for those that have settings of their own.
    fn reconfigure(&mut self, _now: Instant, _config: &AimdConfig) {}

    /// Whether any answer from now on may depend on an instant or on a call's latency. Where none does, and
    /// nothing else needs the time, no clock is read.
    ///
    /// One that has answered `false` MUST go on answering `false` until it is
    /// [reconfigured](LimitAlgorithm::reconfigure), and its limit MUST change there, in
    /// [`LimitAlgorithm::on_outcome`] and in [`LimitAlgorithm::set_max`] only.
    fn uses_time(&self) -> bool {
        true
    }

    /// What a snapshot shows.
    fn state(&self, _now: Instant) -> LimitState {
        LimitState::default()
    }
}

/// Not by a supertrait: what every algorithm says of itself would be part of a module for browsers, where
/// nobody reads it.
impl fmt::Debug for dyn LimitAlgorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LimitAlgorithm")
    }
}

/// Tells the refusals that are news from those of a burst that was already out at the last cut.
#[derive(Clone, Copy, Debug, Default)]
struct Cascade {
    /// Grants that had been given at the last cut.
    known: u64,
    /// Grants that have been given.
    granted: u64,
    /// Cuts so far.
    cuts: u64,
}

impl Cascade {
    fn on_grant(&mut self, grant: u64) {
        self.granted = grant + 1;
    }

    /// Whether the call was granted after the last cut.
    fn is_news(&self, call: &CallReport) -> bool {
        call.grant >= self.known
    }

    fn cut(&mut self) {
        self.known = self.granted;
        self.cuts += 1;
    }
}

/// `max(1, floor(limit x factor))`, for a factor below 1.
fn scaled_down(limit: u32, factor: f64) -> u32 {
    // A limit is below 2^32, so the product is exact enough to floor and the cast is in range.
    ((f64::from(limit) * factor) as u32).max(1)
}
