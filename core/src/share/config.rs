//! The settings of sharing. All processes that share a limit must use the same.

use crate::error::{ConfigError, require};
use crate::time::Duration;

/// What a member does when its lease has lapsed, for example because the store is unreachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum OnLoss {
    /// Starts calls within its equal part of the last limit, and within its own adaptive limit.
    #[default]
    Share,
    /// Starts no call.
    Stop,
    /// Starts calls within its own adaptive limit, as if it shared nothing.
    Alone,
}

/// The settings of sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareConfig {
    /// How long a lease lasts, above `beat`. Default 5 s.
    pub ttl: Duration,
    /// The time between two reports or decisions, above zero. Default 100 ms.
    pub beat: Duration,
    /// The same for a while after a pause or a move of the limit by more than one. Above zero, at most
    /// `beat`. Default 20 ms.
    pub fast_beat: Duration,
    /// How long `fast_beat` applies. Default 1 s.
    pub fast_for: Duration,
    /// How long the newest decision stays unchanged until a member takes the lead, above `beat`. Default 1.5
    /// s.
    pub takeover_after: Duration,
    /// The most that a member adds at random to `takeover_after`. Default 500 ms.
    pub takeover_jitter: Duration,
    /// The longest time that a call takes, after which the caller ends it. Default 10 minutes.
    pub call_timeout: Duration,
    /// What a member does when its lease has lapsed.
    pub on_loss: OnLoss,
}

impl Default for ShareConfig {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(5),
            beat: Duration::from_millis(100),
            fast_beat: Duration::from_millis(20),
            fast_for: Duration::from_secs(1),
            takeover_after: Duration::from_millis(1_500),
            takeover_jitter: Duration::from_millis(500),
            call_timeout: Duration::from_secs(600),
            on_loss: OnLoss::Share,
        }
    }
}

impl ShareConfig {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        require(!self.fast_beat.is_zero(), "fast_beat", self.fast_beat, "above zero")?;
        require(self.beat >= self.fast_beat, "beat", self.beat, "at least `fast_beat`")?;
        require(self.ttl > self.beat, "ttl", self.ttl, "longer than `beat`")?;
        require(self.takeover_after > self.beat, "takeover_after", self.takeover_after, "longer than `beat`")
    }

    /// Returns the time after which the leader reclaims a lease: TTL x 1.01.
    pub(super) fn reclaim_after(&self) -> Duration {
        let nanos = self.ttl.as_nanos();
        Duration::from_nanos(nanos.saturating_add(nanos / 100))
    }
}
