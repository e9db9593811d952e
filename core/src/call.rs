//! One call to a provider: its estimated usage, its actual usage and its outcome.
//!
//! Limits, budgets and request admission share these types. They hold data only and make no decisions.

use crate::time::Duration;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Outcome {
    /// The provider answered normally.
    Success,
    /// The provider refused the call because there were too many calls, for example with status 429.
    RateLimited,
    /// The provider failed: a 5xx status, or a response that is incomplete or cannot be parsed.
    ProviderFailure,
    /// The provider did not respond in time.
    ProviderTimeout,
    /// The caller cancelled the call. Every host reports interrupts with this outcome.
    LocalCancelled,
    /// The caller's own deadline passed.
    LocalTimeout,
    /// Something else went wrong on the caller's side.
    Unexpected,
    /// There was no response: the connection was refused, reset, or never established.
    ConnectionFailed,
    /// The provider rejected this request and would reject it again, as with most 4xx statuses.
    RequestRejected,
    /// The provider rejected the key. Any other request with this key would be rejected as well.
    KeyRejected,
    /// The account of the key has no funds or no quota left.
    QuotaExhausted,
    /// The provider has no such model.
    ModelNotFound,
    /// TLS could not be set up: the certificate of the server is not accepted, only one side uses TLS, or the
    /// server requires another version or a certificate of its clients. Any other connection to this address
    /// would fail as well.
    TlsFailed,
}

impl Outcome {
    /// Every outcome, in the order of the numbers that foreign-language bindings use.
    pub const ALL: [Self; 13] = [
        Self::Success,
        Self::RateLimited,
        Self::ProviderFailure,
        Self::ProviderTimeout,
        Self::LocalCancelled,
        Self::LocalTimeout,
        Self::Unexpected,
        Self::ConnectionFailed,
        Self::RequestRejected,
        Self::KeyRejected,
        Self::QuotaExhausted,
        Self::ModelNotFound,
        Self::TlsFailed,
    ];

    /// Returns the name used in recordings and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::RateLimited => "rate_limited",
            Self::ProviderFailure => "provider_failure",
            Self::ProviderTimeout => "provider_timeout",
            Self::LocalCancelled => "local_cancelled",
            Self::LocalTimeout => "local_timeout",
            Self::Unexpected => "unexpected",
            Self::ConnectionFailed => "connection_failed",
            Self::RequestRejected => "request_rejected",
            Self::KeyRejected => "key_rejected",
            Self::QuotaExhausted => "quota_exhausted",
            Self::ModelNotFound => "model_not_found",
            Self::TlsFailed => "tls_failed",
        }
    }

    /// Returns the outcome to record for a gate whose callers bring their own keys.
    ///
    /// Rejections of a key, an account or a model concern only the request of that caller, so they become
    /// [`Outcome::RequestRejected`]. Other outcomes are unchanged.
    #[must_use]
    pub const fn of_own_key(self) -> Self {
        if self.is_rejection() { Self::RequestRejected } else { self }
    }

    /// Returns whether the outcome suggests that the provider is unreachable or failing: no connection, no
    /// response in time, or a server failure. A rate limit or a rejection is an answer, so it does not count.
    pub(crate) const fn is_counted_failure(self) -> bool {
        matches!(self, Self::ConnectionFailed | Self::ProviderFailure | Self::ProviderTimeout)
    }

    /// Returns whether the call ended on the caller's side, which gives no information about the provider.
    pub(crate) const fn is_local(self) -> bool {
        matches!(self, Self::LocalCancelled | Self::LocalTimeout | Self::Unexpected)
    }

    /// Returns whether the provider answered without doing any work. It then counted one request and no
    /// tokens.
    pub(crate) const fn is_rejection(self) -> bool {
        matches!(self, Self::RequestRejected | Self::KeyRejected | Self::QuotaExhausted | Self::ModelNotFound)
    }
}

/// The outcome of a call with the details that the provider reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Completion {
    /// How the call ended.
    pub outcome: Outcome,
    /// The provider's `Retry-After` value, if it stated one. It is used for the cooldown after a rate limit,
    /// as the shortest pause of an outage, and for the delays of [`Backoff`](crate::backoff::Backoff).
    #[cfg_attr(feature = "serde", serde(default))]
    pub retry_after: Option<Duration>,
    /// The tokens that the call used, if known. They replace the request's estimate in the budgets of the
    /// resource.
    #[cfg_attr(feature = "serde", serde(default))]
    pub usage: Option<Usage>,
}

impl Completion {
    /// Creates a completion with `outcome` and no details.
    #[must_use]
    pub const fn new(outcome: Outcome) -> Self {
        Self { outcome, retry_after: None, usage: None }
    }

    /// Creates the completion of a rate-limited call, with the provider's `Retry-After` if there was one.
    #[must_use]
    pub const fn rate_limited(retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..Self::new(Outcome::RateLimited) }
    }

    /// Returns the provider's `Retry-After`, if it is longer than zero.
    pub(crate) fn positive_retry_after(&self) -> Option<Duration> {
        self.retry_after.filter(|wait| !wait.is_zero())
    }

    /// Returns this completion with `usage`.
    #[must_use]
    pub const fn used(self, usage: Usage) -> Self {
        Self { usage: Some(usage), ..self }
    }
}

impl From<Outcome> for Completion {
    fn from(outcome: Outcome) -> Self {
        Self::new(outcome)
    }
}

/// The quantity that a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Dimension {
    /// Calls.
    Requests,
    /// Tokens sent.
    InputTokens,
    /// Tokens received.
    OutputTokens,
    /// Tokens sent and received.
    TotalTokens,
}

impl Dimension {
    /// Every dimension, in the order of the numbers that foreign-language bindings use.
    pub const ALL: [Self; 4] = [Self::Requests, Self::InputTokens, Self::OutputTokens, Self::TotalTokens];
}

/// The tokens that one call uses or is estimated to use. Every call also counts as one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Usage {
    /// Tokens sent.
    pub input_tokens: u32,
    /// Tokens received.
    pub output_tokens: u32,
}

impl Usage {
    /// Creates a usage of `input` tokens sent and `output` tokens received.
    #[must_use]
    pub const fn tokens(input: u32, output: u32) -> Self {
        Self { input_tokens: input, output_tokens: output }
    }

    /// Returns the larger number of tokens of each kind.
    pub(crate) fn max_of_each(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.max(other.input_tokens),
            output_tokens: self.output_tokens.max(other.output_tokens),
        }
    }

    /// Returns the amount in one dimension.
    pub(crate) fn of(self, dimension: Dimension) -> u64 {
        match dimension {
            Dimension::Requests => 1,
            Dimension::InputTokens => u64::from(self.input_tokens),
            Dimension::OutputTokens => u64::from(self.output_tokens),
            Dimension::TotalTokens => u64::from(self.input_tokens) + u64::from(self.output_tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_outcomes_and_dimensions_are_in_the_order_of_their_numbers() {
        assert!(Outcome::ALL.into_iter().map(|outcome| outcome as usize).eq(0..Outcome::ALL.len()));
        assert!(Dimension::ALL.into_iter().map(|dimension| dimension as usize).eq(0..Dimension::ALL.len()));
    }
}
