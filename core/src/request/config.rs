//! Settings of request admission.

use crate::error::{ConfigError, require};
use crate::limit::LimitConfig;
use crate::time::Duration;

/// Settings of a [`RequestAdmission`](super::RequestAdmission).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct RequestConfig {
    /// The limit settings of resources that have no settings of their own.
    #[cfg_attr(feature = "serde", serde(rename = "aimd"))]
    pub limit: LimitConfig,
    /// When a provider counts as down, and how it is probed. `None` disables health tracking: a provider
    /// never counts as down. The default is [`HealthConfig::default`].
    ///
    /// A rejected API key makes every model of the same provider name unavailable. Callers with different
    /// keys therefore need different provider names, or must disable health tracking.
    pub health: Option<HealthConfig>,
    /// How long a request without a timeout of its own may wait. `None`, the default, means without limit.
    pub default_timeout: Option<Duration>,
    /// The number of the machine, which its leases and ids contain, so that it recognises those of other
    /// machines. The default is 0.
    pub controller: u32,
    /// Whether calls are paced to the rates that a provider states in its response headers, in dimensions for
    /// which the resource has no budget. The default is `true`. It is always off in compatibility mode.
    pub rate_limit_headers: bool,
    /// Whether admission behaves like the earlier scheduler whose recorded traces the tests replay. Only
    /// those tests use it: a raised cap never raises a current limit, and a request with a timeout of zero is
    /// always denied. By default it is `false`: a raised cap raises a limit that was at its old maximum and
    /// was never cut, and a request with a timeout of zero is granted if there is capacity.
    pub compatibility: bool,
}

impl Default for RequestConfig {
    fn default() -> Self {
        Self {
            limit: LimitConfig::default(),
            health: Some(HealthConfig::default()),
            default_timeout: None,
            controller: 0,
            rate_limit_headers: true,
            compatibility: false,
        }
    }
}

/// When a provider and model counts as down, and how it is probed. See [`HealthState`](super::HealthState).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct HealthConfig {
    /// The number of counted failures in a row after which a provider counts as down. At least 1; the default
    /// is 5.
    pub failures: u32,
    /// The time without a success after which a provider with enough failures in a row counts as down.
    /// Calls to it are spaced until then. The default is 1 s.
    #[cfg_attr(feature = "serde", serde(rename = "quiet_ms", with = "crate::millis::Millis"))]
    pub quiet: Duration,
    /// The first pause of an outage. Each further pause is twice as long. Above zero; the default is 0.5 s.
    #[cfg_attr(feature = "serde", serde(rename = "first_pause_ms", with = "crate::millis::Millis"))]
    pub first_pause: Duration,
    /// The longest pause of an outage. At least `first_pause`; the default is 30 s.
    #[cfg_attr(feature = "serde", serde(rename = "longest_pause_ms", with = "crate::millis::Millis"))]
    pub longest_pause: Duration,
    /// How long a limit takes to climb from 1 to its previous value after an outage. The default is 1 s.
    #[cfg_attr(feature = "serde", serde(rename = "recovery_ms", with = "crate::millis::Millis"))]
    pub recovery: Duration,
    /// The number of successes after which the next outage starts again with the first pause and its full
    /// patience. The same applies to an outage that begins at least ten longest pauses after the last
    /// failure. At least 1; the default is 20.
    pub calm: u32,
    /// How long an outage may last, from its first failure, before the provider becomes unavailable and all
    /// its waiters are denied. `None` means without limit. The default is 10 min. Retries before an outage is
    /// shown are at most `patience / failures` apart.
    #[cfg_attr(feature = "serde", serde(rename = "patience_ms", with = "crate::millis::OptionalMillis"))]
    pub patience: Option<Duration>,
    /// How long a provider may respond only with rate limits before it becomes unavailable. It becomes
    /// unavailable at once if its Retry-After is at least this long. `None`, the default, means without
    /// limit.
    #[cfg_attr(feature = "serde", serde(rename = "rate_limit_patience_ms", with = "crate::millis::OptionalMillis"))]
    pub rate_limit_patience: Option<Duration>,
    /// How long a provider may respond only with rate limits before requests with
    /// [fallbacks](super::RequestAdmission::fallbacks) use the next resource in their list. The default is
    /// 30 s.
    #[cfg_attr(feature = "serde", serde(rename = "fallback_after_ms", with = "crate::millis::Millis"))]
    pub fallback_after: Duration,
    /// How long all calls to an unavailable provider are denied before one call is sent as a probe. A
    /// Retry-After replaces it. `None` means until
    /// [`reopen`](super::RequestAdmission::reopen). Above zero; the default is 1 min.
    #[cfg_attr(feature = "serde", serde(rename = "recheck_ms", with = "crate::millis::OptionalMillis"))]
    pub recheck: Option<Duration>,
    /// The seed of the jitter, which makes the pauses of one process differ from those of another. Any
    /// number; the default is 0.
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
    /// Returns an error that names the field if a value is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        require(self.failures > 0, "failures", 0, "at least 1")?;
        require(!self.first_pause.is_zero(), "first_pause", self.first_pause, "longer than zero")?;
        require(self.longest_pause >= self.first_pause, "longest_pause", self.longest_pause, "at least `first_pause`")?;
        let is_pause = self.recheck.is_none_or(|pause| !pause.is_zero());
        require(is_pause, "recheck", Duration::ZERO, "longer than zero, or none")?;
        require(self.calm > 0, "calm", 0, "at least 1")
    }
}
