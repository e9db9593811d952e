//! The settings of sharing. All processes that share a limit must use the same.

use crate::error::{ConfigError, require};
use crate::limit::{LimitChoice, LimitConfig};
use crate::time::Duration;

/// What a member does when it has lost the others, for example because the store is unreachable.
///
/// This applies once the lease has lapsed and no decision was adopted for a TTL. Between the two, no call
/// starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum OnLoss {
    /// Starts calls within its own adaptive limit and within its equal part of the last limit: the limit of
    /// the last adopted decision, divided by the number of members in it. Without such a decision it starts
    /// none.
    #[default]
    Share,
    /// Starts no call.
    Stop,
    /// Starts calls within its own adaptive limit, as if it shared nothing.
    Alone,
}

/// The settings of sharing. A setting out of range is an error of [`Member::new`](super::Member::new) and
/// [`Coordinator::take_over`](super::Coordinator::take_over).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ShareConfig {
    /// How long a lease lasts, above `beat`. Default 5 s.
    pub ttl: Duration,
    /// The time between two reports of a member, and between two decisions, at least `fast_beat`. Default 100
    /// ms.
    pub beat: Duration,
    /// Replaces `beat` while shares move: see [`share`](super). Above zero, at most `beat`. Default 20 ms.
    pub fast_beat: Duration,
    /// How long `fast_beat` applies at a time, at most. Zero means never. Default 1 s.
    pub fast_for: Duration,
    /// How long a member reads no new decision before it takes the lead, above `beat`. Default 1.5 s.
    pub takeover_after: Duration,
    /// The most that a member adds at random to `takeover_after`, so that not all try at the same time.
    /// Default 300 ms.
    pub takeover_jitter: Duration,
    /// The time after which a caller ends a call. The slots of the calls of a killed member are reserved for
    /// no longer. Default 10 minutes.
    pub call_timeout: Duration,
    /// What a member does when it has lost the others. Default [`OnLoss::Share`].
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
            takeover_jitter: Duration::from_millis(300),
            call_timeout: Duration::from_secs(600),
            on_loss: OnLoss::Share,
        }
    }
}

impl ShareConfig {
    /// Returns so many halves of `beat`.
    pub(super) fn half_beats(&self, halves: u64) -> Duration {
        Duration::from_nanos(self.beat.as_nanos().saturating_mul(halves) / 2)
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        require(!self.fast_beat.is_zero(), "fast_beat", self.fast_beat, "above zero")?;
        require(self.beat >= self.fast_beat, "beat", self.beat, "at least `fast_beat`")?;
        require(self.ttl > self.beat, "ttl", self.ttl, "longer than `beat`")?;
        require(self.takeover_after > self.beat, "takeover_after", self.takeover_after, "longer than `beat`")
    }

    /// Returns the time after which the leader reclaims a lease: TTL x 1.01, since the clocks of two machines
    /// may run at rates that differ by up to one percent.
    pub(super) fn reclaim_after(&self) -> Duration {
        let nanos = self.ttl.as_nanos();
        Duration::from_nanos(nanos.saturating_add(nanos / 100))
    }
}

/// The settings with which a limit is shared. All processes that share it use the same.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SessionSettings {
    /// Those of the member and the leader.
    pub share: ShareConfig,
    /// The algorithm of the limit.
    pub choice: LimitChoice,
    /// Its further settings.
    pub limit: LimitConfig,
}
