//! One call of a provider: what it is expected to use, what it used and how it ended.
//!
//! The vocabulary that limits, budgets and request admission share. Nothing here decides anything.

use crate::time::Duration;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Outcome {
    /// The provider answered.
    Success,
    /// The provider refused for too many calls: 429 and the like.
    RateLimited,
    /// The provider failed: 5xx, or an answer that breaks off or cannot be read.
    ProviderFailure,
    /// The provider did not answer in time.
    ProviderTimeout,
    /// The caller gave up. Interruptions are this in every host.
    LocalCancelled,
    /// The caller's own deadline passed.
    LocalTimeout,
    /// Something else went wrong on the caller's side.
    Unexpected,
    /// No answer at all: the connection was refused, reset, or never made.
    ConnectionFailed,
    /// The provider refused this one request, and would refuse it again: most 4xx.
    RequestRefused,
    /// The provider refused the key, whatever it is asked with it.
    KeyRefused,
    /// The account behind the key is out of funds or of quota.
    QuotaExhausted,
    /// The provider has no such model.
    ModelNotFound,
}

impl Outcome {
    /// All, in the order of their numbers in foreign languages.
    pub const ALL: [Self; 12] = [
        Self::Success,
        Self::RateLimited,
        Self::ProviderFailure,
        Self::ProviderTimeout,
        Self::LocalCancelled,
        Self::LocalTimeout,
        Self::Unexpected,
        Self::ConnectionFailed,
        Self::RequestRefused,
        Self::KeyRefused,
        Self::QuotaExhausted,
        Self::ModelNotFound,
    ];

    /// The name in recordings and metrics.
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
            Self::RequestRefused => "request_refused",
            Self::KeyRefused => "key_refused",
            Self::QuotaExhausted => "quota_exhausted",
            Self::ModelNotFound => "model_not_found",
        }
    }

    /// What the outcome is to a gate whose callers bring keys of their own: what their provider says about a
    /// key, an account or what it may call is about that caller's request alone.
    #[must_use]
    pub const fn of_own_key(self) -> Self {
        if self.is_refusal() { Self::RequestRefused } else { self }
    }

    /// Whether the provider may be unreachable: no connection, no answer in time, a failing server. A rate
    /// limit and a refusal are answers.
    pub(crate) const fn is_counted_failure(self) -> bool {
        matches!(self, Self::ConnectionFailed | Self::ProviderFailure | Self::ProviderTimeout)
    }

    /// Whether the call ended on the caller's side, which says nothing about the provider.
    pub(crate) const fn is_local(self) -> bool {
        matches!(self, Self::LocalCancelled | Self::LocalTimeout | Self::Unexpected)
    }

    /// Whether the provider answered without doing any work: it has counted one request, and no tokens.
    pub(crate) const fn is_refusal(self) -> bool {
        matches!(self, Self::RequestRefused | Self::KeyRefused | Self::QuotaExhausted | Self::ModelNotFound)
    }
}

/// An outcome with what the provider said about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Completion {
    /// How the call ended.
    pub outcome: Outcome,
    /// The provider's Retry-After, for a rate-limited answer.
    #[cfg_attr(feature = "serde", serde(default))]
    pub retry_after: Option<Duration>,
    /// What the call used, if that is known: it takes the place of the request's estimate in the resource's
    /// budgets.
    #[cfg_attr(feature = "serde", serde(default))]
    pub usage: Option<Usage>,
}

impl Completion {
    /// A call that ended so.
    #[must_use]
    pub const fn new(outcome: Outcome) -> Self {
        Self { outcome, retry_after: None, usage: None }
    }

    /// A refusal for too many calls, with the provider's Retry-After if it gave one.
    #[must_use]
    pub const fn rate_limited(retry_after: Option<Duration>) -> Self {
        Self { retry_after, ..Self::new(Outcome::RateLimited) }
    }

    /// The pause that the provider asked for: its Retry-After, if that is more than zero.
    pub(crate) fn asked(&self) -> Option<Duration> {
        self.retry_after.filter(|wait| !wait.is_zero())
    }

    /// The same, having used this much.
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

/// What a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

/// What one call uses, or is estimated to use, besides being one request.
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
    /// So many tokens each way.
    #[must_use]
    pub const fn tokens(input: u32, output: u32) -> Self {
        Self { input_tokens: input, output_tokens: output }
    }

    /// The amount in one dimension.
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
    fn an_outcome_stands_at_its_number_in_the_list() {
        for (number, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, number);
        }
    }
}
