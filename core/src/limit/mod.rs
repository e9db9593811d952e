//! Limit algorithms: how many calls of one resource may be in flight at once.
//!
//! [`LimitAlgorithm`] is the trait. These types implement it:
//!
//! | algorithm | for providers that | the limit grows | the limit shrinks |
//! | --- | --- | --- | --- |
//! | [`Aimd`] | answer 429 above their capacity | by a step after some successes | by a factor per cascade |
//! | [`Fixed`] | have a known capacity | never | never |
//! | [`Vegas`] | queue calls, as vLLM does | while latency is low | on a queue, a 429 or a timeout |
//! | [`Tide`] | do any of these or limit rates | to the last ceiling, then past it | to the load at the 429 |
//!
//! [`Aimd`] is the default of the core, and its reference. [`Tide`] is the default of the hosts. A *cascade*
//! is the group of calls that were in flight when the provider began to answer 429.
//!
//! A [start-up ramp](LimitConfig::ramp) can be combined with any of them. It bounds the limit by time until
//! it reaches its target or a call is rate limited.
//!
//! A rate-limited call starts a *cooldown*, in which no call of the resource starts. Its length is the
//! Retry-After, or a configured time if there is none. An algorithm can shorten it if it has measured that
//! the Retry-After applies to the refused call only: see [`LimitAlgorithm::cooldown`].

pub mod aimd;
mod choice;
mod config;
pub(crate) mod controller;
mod cooldown;
pub mod fixed;
pub(crate) mod member_state;
mod ramp;
mod start_up;
pub mod tide;
pub mod vegas;

use core::any::Any;
use core::fmt;

use crate::call::Outcome;
use crate::time::{Duration, Instant};

pub use aimd::Aimd;
pub use choice::LimitChoice;
pub use config::{CooldownRule, CutRule, LimitConfig};
pub use fixed::Fixed;
pub use member_state::MemberState;
pub use tide::{RetryAfterStops, Tide, TideConfig};
pub use vegas::{Vegas, VegasConfig};

/// The report of a finished call to the limit algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallReport {
    /// How the call ended.
    pub outcome: Outcome,
    /// The sequence number of its grant among all grants of the resource, from 0.
    pub grant: u64,
    /// The limit in force when the call was granted.
    pub admitted_limit: u32,
    /// The calls of the resource in flight right after the grant, this call included.
    pub admitted_in_flight: u32,
    /// The Retry-After of a rate-limited call, if it had one.
    pub retry_after: Option<Duration>,
    /// The time from grant to end. It is zero if the algorithm does not [use
    /// time](LimitAlgorithm::uses_time), and for a call that did not succeed and was granted before the
    /// algorithm was installed.
    pub latency: Duration,
    /// The calls of the resource still in flight, without this one.
    pub in_flight: u32,
    /// Whether the resource is cooling down when the call ends. A cooldown that this call starts counts.
    pub is_cooling_down: bool,
}

/// The state of a running start-up ramp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RampState {
    /// The limit at the end of the ramp.
    pub target: u32,
    /// When the ramp reaches its target. `None` until the first request, which starts the ramp.
    pub ends: Option<Instant>,
}

/// The state of a limit algorithm, for snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitState {
    /// The running start-up ramp, if any.
    pub ramp: Option<RampState>,
    /// The limit at which the first cut happened. 0 before the first cut.
    pub rate_limit_ceiling: u32,
    /// The number of successes counted towards the next increase.
    pub success_streak: u32,
}

/// Decides how many calls of one resource may be in flight.
///
/// An implementation is a deterministic state machine: its results MUST depend on its inputs alone, and equal
/// inputs MUST give equal results. Request admission clamps the returned limit to `1..=max`. It
/// calls most methods for each call, so each should cost O(1), or O(log n) for n calls in flight.
///
/// An algorithm of your own is installed with
/// [`RequestAdmission::set_algorithm`](crate::request::RequestAdmission::set_algorithm), which a
/// [`GateControl`](crate::gate::GateControl) has, too. To try it in virtual time first, use
/// `sim::world::World::with_limit` (feature `sim`).
pub trait LimitAlgorithm: Any + Send {
    /// Returns the limit in force at `now`.
    fn limit(&self, now: Instant) -> u32;

    /// Returns when the limit next changes by time alone, or `None` if it does not.
    fn next_change(&self, _now: Instant) -> Option<Instant> {
        None
    }

    /// Handles an attempt to acquire a permit while `in_flight` calls are in flight.
    fn on_attempt(&mut self, _now: Instant, _in_flight: u32) {}

    /// Handles the passing of time. While a waiter waits, this is called at the instant that
    /// [`LimitAlgorithm::next_change`] returned. It may be called at any other instant, too.
    fn on_time(&mut self, _now: Instant) {}

    /// Handles grant number `grant`. `in_flight` includes the granted call.
    fn on_grant(&mut self, _now: Instant, _grant: u64, _in_flight: u32) {}

    /// Handles the end of a call.
    ///
    /// An algorithm that [uses time](LimitAlgorithm::uses_time) gets no report of a success whose latency is
    /// unknown, which is one of a call that was granted before the algorithm was installed.
    fn on_outcome(&mut self, now: Instant, call: &CallReport);

    /// Returns the length of the cooldown of the resource after a rate-limited call.
    ///
    /// Zero means no cooldown. `None` means the configured [cooldown](LimitConfig::cooldown), which is also
    /// the upper bound if the call has no Retry-After. The default implementation returns the Retry-After.
    ///
    /// Request admission calls this before [`LimitAlgorithm::on_outcome`], so [`CallReport::is_cooling_down`]
    /// covers only the cooldowns of earlier calls here.
    fn cooldown(&self, _now: Instant, call: &CallReport) -> Option<Duration> {
        call.retry_after
    }

    /// Handles a cooldown: after a rate-limited call, no call of the resource starts before `until`. The
    /// call's [`LimitAlgorithm::on_outcome`] follows.
    fn on_cooldown(&mut self, _now: Instant, _until: Instant) {}

    /// Returns the instant before which no call may start, whatever the limit, or `None` if calls may start
    /// at once.
    ///
    /// Algorithms that space calls in time implement this. [`LimitAlgorithm::next_change`] MUST return this
    /// instant or an earlier one. It is called only if the algorithm [uses
    /// time](LimitAlgorithm::uses_time).
    fn opens_at(&self, _now: Instant) -> Option<Instant> {
        None
    }

    /// Returns the time between two calls at the rate that the algorithm has learned, or `None` if it has
    /// learned none. The leader of a [shared](crate::share) limit divides the rate between the members.
    fn interval(&self) -> Option<Duration> {
        None
    }

    /// Continues at a rate that the last leader of a [shared](crate::share) limit has learned. Refusals
    /// correct it. The default does nothing.
    fn set_interval(&mut self, _now: Instant, _interval: Duration) {}

    /// Returns whether a call that was granted may be sent now.
    ///
    /// It is `false` only for a limit that can lapse between the grant and the first byte of the call, such
    /// as a leased [share](crate::share). The default is `true`.
    fn may_send(&self, _now: Instant) -> bool {
        true
    }

    /// Handles that the clock of the host has stopped, for example while the machine was suspended.
    /// `suspended` is the time for which it has done so in all. A limit that lapses by another clock, such as
    /// a leased [share](crate::share), adds it to each instant. The default does nothing.
    fn set_suspended(&mut self, _suspended: Duration) {}

    /// Returns what this process has of a limit that several [share](crate::share), or `None` if the limit is
    /// its own, which is the default.
    fn member_state(&self, _now: Instant) -> Option<MemberState> {
        None
    }

    /// Announces that the outcomes until the next call of this are reported together, after they happened, as
    /// at the leader of a shared [limit](crate::share). The refusals of calls that start because of these
    /// outcomes are in a later batch. A limit that rises with each answer should rise by a step at most. The
    /// default does nothing.
    fn begin_batch(&mut self) {}

    /// Sets the maximum of the limit to `max` from now on. If `lifts` is true, a limit that equals its old
    /// maximum and was never cut may rise to the new one.
    fn set_max(&mut self, now: Instant, max: u32, lifts: bool);

    /// Replaces the settings of the resource and keeps what the limit has learned so far. Algorithms with
    /// settings of their own ignore this call, which is the default implementation.
    fn reconfigure(&mut self, _now: Instant, _config: &LimitConfig) {}

    /// Returns whether any later result may depend on an instant or on the latency of a call. No clock is
    /// read if this is `false` and nothing else needs the time.
    ///
    /// After it has returned `false`, it MUST return `false` until [`LimitAlgorithm::reconfigure`] is called.
    /// The limit MUST then change only in that method, in [`LimitAlgorithm::on_outcome`] and in
    /// [`LimitAlgorithm::set_max`]. The default is `true`, which is always correct.
    fn uses_time(&self) -> bool {
        true
    }

    /// Returns the state to show in a snapshot. The default shows nothing.
    fn state(&self, _now: Instant) -> LimitState {
        LimitState::default()
    }
}

/// Prints the trait's name only. `Debug` is not a supertrait, because the `Debug` code of every algorithm
/// would then be part of the WebAssembly module, where nothing prints it.
impl fmt::Debug for dyn LimitAlgorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LimitAlgorithm")
    }
}

/// Separates rate-limited calls granted after the last cut from those that were in flight at that cut. Only
/// the former justify another cut.
#[derive(Clone, Copy, Debug, Default)]
struct Cascade {
    /// The number of grants at the last cut.
    granted_at_last_cut: u64,
    /// The number of grants so far.
    granted: u64,
    /// The number of cuts so far.
    cuts: u64,
}

impl Cascade {
    fn on_grant(&mut self, grant: u64) {
        self.granted = grant + 1;
    }

    fn was_granted_after_cut(&self, call: &CallReport) -> bool {
        call.grant >= self.granted_at_last_cut
    }

    fn cut(&mut self) {
        self.granted_at_last_cut = self.granted;
        self.cuts += 1;
    }
}

/// Returns `max(1, floor(limit x factor))`, for a factor below 1.
fn scaled_down(limit: u32, factor: f64) -> u32 {
    // A limit is below 2^32, so the product is exact enough to floor and the cast is in range.
    ((f64::from(limit) * factor) as u32).max(1)
}
