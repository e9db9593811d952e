//! What a refusal shows about a rate: when its bucket is empty, and how many calls were accepted until then.
//!
//! ```text
//! ready    = when the refused call was sent + its Retry-After
//! inflow   = calls accepted between two refusals, in the time from one `ready` to the next
//! interval = that time / these calls
//! ```

use crate::time::{Duration, Instant};

/// A refused call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    /// The grant of the call.
    pub(super) grant: u64,
    /// When the call was sent.
    pub(super) sent: Instant,
    /// The Retry-After if it may stop the resource; else zero.
    pub(super) retry_after: Duration,
    /// The Retry-After, whatever it stops; zero if there is none.
    pub(super) stated_retry_after: Duration,
    /// Calls in flight when the call was sent, itself included.
    pub(super) in_flight: u32,
    /// Whether the provider refuses a share of all calls.
    pub(super) is_share: bool,
    /// Whether a refusal may be risked.
    pub(super) may_risk: bool,
}

impl Refusal {
    /// Returns when the bucket holds enough for the refused call.
    pub(super) fn ready(&self) -> Instant {
        self.sent + self.retry_after
    }

    /// Returns whether the Retry-After may have been rounded to seconds.
    pub(super) fn is_rounded(&self) -> bool {
        is_rounded(self.retry_after)
    }

    /// Returns whether the Retry-After is about the time of one call. Only a bucket states that.
    pub(super) fn is_about_one_call(&self, interval: u64) -> bool {
        !self.retry_after.is_zero() && self.retry_after.as_nanos() <= interval.saturating_mul(2)
    }
}

/// A sample of the inflow: a time, and the calls accepted in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inflow {
    pub(super) nanos: u64,
    pub(super) calls: u64,
}

impl Inflow {
    /// Returns the mean time between two calls in nanoseconds; 0 if there is no call.
    pub(super) fn interval(self) -> u64 {
        self.nanos.checked_div(self.calls).unwrap_or(0)
    }
}

/// Returns whether a time may have been rounded to seconds.
pub(super) fn is_rounded(time: Duration) -> bool {
    time.as_nanos().is_multiple_of(1_000_000_000)
}

/// Returns whether `figure` differs from `other` by at most `other / parts`.
pub(super) fn is_near(figure: u64, other: u64, parts: u64) -> bool {
    figure.abs_diff(other) <= other / parts
}
