//! Settings of request admission.

use crate::limit::AimdConfig;
use crate::time::Duration;

/// Settings of a [`RequestAdmission`](super::RequestAdmission).
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct RequestConfig {
    /// The limit settings of resources that have none of their own.
    pub aimd: AimdConfig,
    /// How long a request without a timeout of its own may wait; `None` is for ever.
    pub default_timeout: Option<Duration>,
    /// Number of this controller, so that a lease of another one is recognised.
    pub controller: u32,
    /// As in the recorded traces, a raised cap never lifts a current limit and a timeout of zero is always refused. Off:
    /// a raised cap lifts a limit that stood at its old maximum and was never cut, and a timeout of zero is granted
    /// what is free.
    pub compatibility: bool,
}
