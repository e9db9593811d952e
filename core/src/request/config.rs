//! Settings of request admission.

use crate::error::{ConfigError, require};
use crate::limit::AimdConfig;
use crate::time::Duration;

/// Settings of a [`RequestAdmission`](super::RequestAdmission).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct RequestConfig {
    /// The limit settings of resources that have none of their own.
    pub aimd: AimdConfig,
    /// When a provider counts as down, and how it is probed then; `None`: never. The defaults of
    /// [`HealthConfig`].
    ///
    /// A refused key closes every model of the same provider name, so callers with different keys need
    /// different provider names, or none of this.
    pub health: Option<HealthConfig>,
    /// How long a request without a timeout of its own may wait; `None` is for ever.
    pub default_timeout: Option<Duration>,
    /// Number of this controller, so that a lease of another one is recognised.
    pub controller: u32,
    /// Whether calls are paced to the rates that a provider states in the headers of its answers, in
    /// dimensions for which the resource has no budget; on. Off as well in compatibility mode.
    pub rate_limit_headers: bool,
    /// As in the recorded traces, a raised cap never lifts a current limit and a timeout of zero is always
    /// refused. Off: a raised cap lifts a limit that stood at its old maximum and was never cut, and a
    /// timeout of zero is granted what is free.
    pub compatibility: bool,
}

impl Default for RequestConfig {
    fn default() -> Self {
        Self {
            aimd: AimdConfig::default(),
            health: Some(HealthConfig::default()),
            default_timeout: None,
            controller: 0,
            rate_limit_headers: true,
            compatibility: false,
        }
    }
}

/// When a provider and model counts as down, and how it is probed then: see
/// [`HealthState`](super::HealthState).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct HealthConfig {
    /// Counted failures in a row that take a provider down. At least 1; 5.
    pub failures: u32,
    /// For so long nothing must have succeeded, too. 1 s.
    #[cfg_attr(feature = "serde", serde(rename = "quiet_ms", with = "crate::millis"))]
    pub quiet: Duration,
    /// The first pause of an outage; each further one is twice as long. Above zero; 0.5 s.
    #[cfg_attr(feature = "serde", serde(rename = "first_pause_ms", with = "crate::millis"))]
    pub first_pause: Duration,
    /// The longest pause. At least the first; 30 s.
    #[cfg_attr(feature = "serde", serde(rename = "longest_pause_ms", with = "crate::millis"))]
    pub longest_pause: Duration,
    /// How long a limit takes from 1 to what it was, once the provider is back. 1 s.
    #[cfg_attr(feature = "serde", serde(rename = "recovery_ms", with = "crate::millis"))]
    pub recovery: Duration,
    /// Successes after which the next outage begins with the first pause again, and its patience anew. So
    /// does one that comes more than ten longest pauses after the last failure. At least 1; 20.
    pub calm: u32,
    /// How long an outage may last, from its first failure, before the provider counts as unavailable and
    /// everything that waits for it is rejected; `None`: for ever. 10 min.
    #[cfg_attr(feature = "serde", serde(rename = "patience_ms", with = "crate::millis::option"))]
    pub patience: Option<Duration>,
    /// How long a provider may answer nothing but rate limits, before it counts as unavailable, as it does at
    /// once if it asks to be left alone for as long; `None`: for ever. `None`.
    #[cfg_attr(feature = "serde", serde(rename = "rate_limit_patience_ms", with = "crate::millis::option"))]
    pub rate_limit_patience: Option<Duration>,
    /// How long a provider may answer nothing but rate limits, before calls that have
    /// [fallbacks](super::RequestAdmission::fallbacks) go elsewhere. 30 s.
    #[cfg_attr(feature = "serde", serde(rename = "fallback_after_ms", with = "crate::millis"))]
    pub fallback_after: Duration,
    /// How long an unavailable provider rejects every call, unless it asked for a pause, before one call goes
    /// out to find out whether it can be used again; `None`: until
    /// [`reopen`](super::RequestAdmission::reopen). Above zero; 1 min.
    #[cfg_attr(feature = "serde", serde(rename = "recheck_ms", with = "crate::millis::option"))]
    pub recheck: Option<Duration>,
    /// Makes the jitter of one process differ from that of another. Any number; 0.
    pub seed: u64,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            failures: 5,
            quiet: Duration::from_secs(1),
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(30),
            recovery: Duration::from_secs(1),
            calm: 20,
            patience: Some(Duration::from_secs(600)),
            rate_limit_patience: None,
            fallback_after: Duration::from_secs(30),
            recheck: Some(Duration::from_secs(60)),
            seed: 0,
        }
    }
}

impl HealthConfig {
    /// Refuses a value out of range, naming its field.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require(self.failures > 0, "failures", 0, "at least 1")?;
        require(!self.first_pause.is_zero(), "first_pause", self.first_pause, "longer than zero")?;
        require(self.longest_pause >= self.first_pause, "longest_pause", self.longest_pause, "at least `first_pause`")?;
        let is_pause = self.recheck.is_none_or(|pause| !pause.is_zero());
        require(is_pause, "recheck", Duration::ZERO, "longer than zero, or none")?;
        require(self.calm > 0, "calm", 0, "at least 1")
    }
}
