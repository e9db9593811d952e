//! Refines the outcome of a response by the body of its error.

use super::{OVERLOADED, ResponseInfo, of_status};
use crate::call::{Completion, Outcome};
use crate::time::Duration;

/// The reason why the provider rejected a request that it would reject again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RejectionReason {
    /// The request is longer than the model accepts, or than the account may send at once.
    TooLong,
    /// The model does not accept one of the parameters.
    UnsupportedParameter,
    /// The request is not permitted: for this key, or from this country or region.
    Forbidden,
    /// A content filter rejected the prompt or the answer.
    ContentFiltered,
    /// The URL does not exist.
    NotFound,
    /// Any other reason.
    Other,
}

impl RejectionReason {
    /// Returns why a call with this status was rejected, if `outcome` is [`Outcome::RequestRejected`].
    pub(super) fn of(status: u16, outcome: Outcome) -> Option<Self> {
        (outcome == Outcome::RequestRejected).then_some(match status {
            403 => Self::Forbidden,
            404 => Self::NotFound,
            413 => Self::TooLong,
            _ => Self::Other,
        })
    }
}

/// The parts of the body of an error that a host has read. Parts that the body does not have stay empty.
///
/// The first rule that applies decides the outcome:
///
/// - *A success whose body is an error:* the status in the body replaces that of the response, or the status
///   of its code, or else 500. The outcome is that of the new status, and the other rules apply to it.
/// - *Quota exhausted:* a code such as `insufficient_quota`, `billing_error` or `BILLING_DISABLED`; or status
///   400, 402 or 403 with a message about funds or quota.
/// - *Key rejected:* a code such as `invalid_api_key`, `authentication_error` or `API_KEY_INVALID`.
/// - *Model not found:* below status 500, a code such as `model_not_found` or `DeploymentNotFound`; or status
///   400 or 404 with a message about a missing model.
/// - *Request rejected, too long:* a code about the length of the request; or below status 500 a message
///   about it, also with status 429.
/// - *Request rejected, unsupported parameter:* a code such as `unsupported_parameter` or `extra_forbidden`;
///   or status 400 or 422 with a message about a parameter.
/// - *Request rejected, content filtered:* below status 500, `content_filter` or `content_policy_violation`.
/// - *Rate limited, with the wait of the body:* status 429 or 503 with a wait in the body and none in the
///   headers.
/// - *Rate limited:* status 503 with a message such as `Slow down` or `server busy`.
///
/// The codes are those of `OpenAI`, Anthropic, Azure, Google, Mistral, `OpenRouter`, `vLLM`, Ollama and
/// `llama.cpp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorDetails<'a> {
    /// All codes of the error: the values of the fields `code`, `type`, `status` and `reason`, wherever they
    /// are. A number is written as its digits.
    pub codes: &'a [&'a str],
    /// The human-readable message.
    pub message: &'a str,
    /// The wait that the body states, as in Google's `retryDelay`.
    pub retry_delay: Option<Duration>,
}

const KEY_CODES: &[&str] = &[
    "invalid_api_key",
    "invalid_authentication",
    "authentication_error",
    "account_deactivated",
    "UNAUTHENTICATED",
    // Google's codes for a key that is rejected for every request.
    "ACCESS_TOKEN_EXPIRED",
    "API_KEY_HTTP_REFERRER_BLOCKED",
    "API_KEY_INVALID",
    "API_KEY_IP_ADDRESS_BLOCKED",
    "API_KEY_SERVICE_BLOCKED",
    "CONSUMER_SUSPENDED",
    "SERVICE_DISABLED",
];

const QUOTA_CODES: &[&str] = &[
    "insufficient_quota",
    "insufficient_balance",
    "billing_hard_limit_reached",
    "billing_not_active",
    "billing_error",
    "BILLING_DISABLED",
];

const MODEL_CODES: &[&str] = &["model_not_found", "invalid_model", "DeploymentNotFound"];

const LENGTH_CODES: &[&str] =
    &["context_length_exceeded", "exceed_context_size_error", "request_too_large", "string_above_max_length"];

const PARAMETER_CODES: &[&str] =
    &["unsupported_parameter", "unsupported_value", "unknown_parameter", "extra_forbidden"];

const FILTER_CODES: &[&str] = &["content_filter", "content_policy_violation"];

/// Codes of errors that have a status of their own, for an error that is sent with a success status.
const RATE_CODES: &[&str] = &["rate_limit_error", "rate_limit_exceeded", "rate_limited", "RESOURCE_EXHAUSTED"];
const OVERLOAD_CODES: &[&str] = &["overloaded_error"];

/// Parts of the messages of providers that send no code for the error, in lower case.
const QUOTA_WORDS: &[&str] = &[
    "credit balance is too low",
    "insufficient credits",
    "key limit exceeded",
    "out of call volume quota",
    "reached your specified api usage limits",
];
const MODEL_WORDS: &[&str] = &["not found", "does not exist", "is not a valid model", "invalid model"];
/// Parts of a 404 message about a missing model that does not contain the word "model".
const NO_MODEL_WORDS: &[&str] = &["no endpoints found for"];
const LENGTH_WORDS: &[&str] = &[
    "maximum context length",
    "prompt is too long",
    "exceeds the available context size",
    "exceeds the context length",
    "exceeds the maximum number of tokens",
    "request too large",
];
const PARAMETER_WORDS: &[&str] =
    &["extra inputs are not permitted", "invalid json payload received. unknown name", "unrecognized request argument"];
/// Parts of a 503 message that means a rate limit and not a failure.
const BUSY_WORDS: &[&str] = &["slow down", "server busy"];

impl ErrorDetails<'_> {
    fn has_code(&self, known: &[&str]) -> bool {
        self.codes.iter().any(|code| known.contains(code))
    }

    fn has_words(&self, known: &[&str]) -> bool {
        known.iter().any(|words| contains_ignoring_case(self.message, words))
    }

    fn is_empty(&self) -> bool {
        self.codes.is_empty() && self.message.is_empty()
    }

    /// Returns the HTTP status of an error that was sent with a success status.
    fn status(&self) -> u16 {
        let status = self.codes.iter().filter_map(|code| code.parse().ok()).find(|status| (400..600).contains(status));
        status.unwrap_or_else(|| match () {
            () if self.has_code(RATE_CODES) => 429,
            () if self.has_code(OVERLOAD_CODES) => OVERLOADED,
            () => 500,
        })
    }

    /// Returns the outcome of an error with this status if a retry cannot succeed.
    fn permanent_error(&self, status: u16) -> Option<(Outcome, Option<RejectionReason>)> {
        let rejected = |why| Some((Outcome::RequestRejected, Some(why)));
        let may_be_account = matches!(status, 400 | 402 | 403);
        if self.has_code(QUOTA_CODES) || may_be_account && self.has_words(QUOTA_WORDS) {
            return Some((Outcome::QuotaExhausted, None));
        }
        if self.has_code(KEY_CODES) {
            return Some((Outcome::KeyRejected, None));
        }
        let names_model = || contains_ignoring_case(self.message, "model");
        let is_model = self.has_code(MODEL_CODES)
            || status == 404 && (names_model() || self.has_words(NO_MODEL_WORDS))
            || status == 400 && names_model() && self.has_words(MODEL_WORDS);
        if is_model && status < 500 {
            return Some((Outcome::ModelNotFound, None));
        }
        if self.has_code(LENGTH_CODES) || status < 500 && self.has_words(LENGTH_WORDS) {
            return rejected(RejectionReason::TooLong);
        }
        if self.has_code(PARAMETER_CODES) || matches!(status, 400 | 422) && self.has_words(PARAMETER_WORDS) {
            return rejected(RejectionReason::UnsupportedParameter);
        }
        if self.has_code(FILTER_CODES) && status < 500 {
            return rejected(RejectionReason::ContentFiltered);
        }
        None
    }
}

impl ResponseInfo {
    /// Refines the outcome by the body of an error. Details without a code and without a message change
    /// nothing.
    pub fn refine(&mut self, error: &ErrorDetails<'_>) {
        if error.is_empty() {
            return;
        }
        if self.status < 400 {
            self.status = error.status();
            self.completion = of_status(self.status, None);
            self.rejection = RejectionReason::of(self.status, self.completion.outcome);
        }
        if let Some((outcome, rejection)) = error.permanent_error(self.status) {
            (self.completion, self.rejection) = (outcome.into(), rejection);
        } else if matches!(self.status, 429 | 503)
            && self.completion.retry_after.is_none()
            && error.retry_delay.is_some()
        {
            self.completion = Completion::rate_limited(error.retry_delay);
        } else if self.status == 503 && error.has_words(BUSY_WORDS) {
            self.completion = Completion::rate_limited(self.completion.retry_after);
        }
    }
}

/// Returns whether `text` contains `part`, ignoring ASCII case.
fn contains_ignoring_case(text: &str, part: &str) -> bool {
    text.as_bytes().windows(part.len()).any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}
