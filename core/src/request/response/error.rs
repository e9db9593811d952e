//! What the body of an error adds to its status.

use super::{OVERLOADED, ResponseInfo, of_status};
use crate::call::{Completion, Outcome};
use crate::time::Duration;

/// Why the provider refused one request that it would refuse again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Refusal {
    /// It is longer than the model takes, or than the account may ever send at once.
    TooLong,
    /// The model does not take one of its parameters.
    UnsupportedParameter,
    /// It may not be asked: by this key, from this place, or in these words.
    Forbidden,
    /// There is nothing at this address.
    NotFound,
    /// Anything else.
    Other,
}

impl Refusal {
    /// Why a call of this status was refused, if that is its outcome.
    pub(super) fn of(status: u16, outcome: Outcome) -> Option<Self> {
        (outcome == Outcome::RequestRefused).then_some(match status {
            403 => Self::Forbidden,
            404 => Self::NotFound,
            413 => Self::TooLong,
            _ => Self::Other,
        })
    }
}

/// What a host read in the body of an error. Whatever is not there stays empty.
///
/// | said | outcome |
/// | --- | --- |
/// | a code of a refused key, such as `invalid_api_key`, `authentication_error`, `API_KEY_INVALID` | key refused |
/// | a code of funds or quota, such as `insufficient_quota`, `billing_error`, `BILLING_DISABLED`; 400 or 403 with a message that says so | quota exhausted |
/// | a code of a missing model, such as `model_not_found`, `DeploymentNotFound`; 400 or 404 with a message that says so | model not found |
/// | a code or message of a request that is too long, also with 429 | request refused: too long |
/// | a code of a parameter, such as `unsupported_parameter`, `extra_forbidden`; 400 or 422 with a message that says so | request refused: unsupported parameter |
/// | `content_filter`, `content_policy_violation` | request refused: forbidden |
/// | 429 or 503 with a delay in the body and none in the headers | rate limited for so long |
/// | 503 with a message such as `Slow down` or `server busy` | rate limited |
/// | a success whose body is an error | what the status in the body says, or its code, or provider failure |
///
/// The codes are those of `OpenAI`, Anthropic, Azure, Google, Mistral, `OpenRouter`, `vLLM`, Ollama and
/// `llama.cpp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorDetails<'a> {
    /// Every short text that names the error: the fields `code`, `type`, `status` and `reason`, wherever they
    /// stand. A number counts as its digits.
    pub codes: &'a [&'a str],
    /// The message for people.
    pub message: &'a str,
    /// How long the body asks to wait, as in Google's `retryDelay`.
    pub retry_delay: Option<Duration>,
}

const KEY_CODES: &[&str] = &[
    "invalid_api_key",
    "invalid_authentication",
    "authentication_error",
    "account_deactivated",
    "UNAUTHENTICATED",
    // Of Google, for a key that is refused whatever is asked.
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

const FORBIDDEN_CODES: &[&str] = &["content_filter", "content_policy_violation"];

/// Codes of what has a status of its own, where it comes without one.
const RATE_CODES: &[&str] = &["rate_limit_error", "rate_limit_exceeded", "rate_limited", "RESOURCE_EXHAUSTED"];
const OVERLOAD_CODES: &[&str] = &["overloaded_error"];

/// Parts of messages of providers that give no code for it, in small letters.
const QUOTA_WORDS: &[&str] = &[
    "credit balance is too low",
    "insufficient credits",
    "key limit exceeded",
    "out of call volume quota",
    "reached your specified api usage limits",
];
const MODEL_WORDS: &[&str] = &["not found", "does not exist", "is not a valid model", "invalid model"];
/// Of a 404 that names the model and not the word.
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
/// Of a 503 that is no failure.
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

    /// The HTTP status of an error that came as a success.
    fn status(&self) -> u16 {
        let status = self.codes.iter().filter_map(|code| code.parse().ok()).find(|status| (400..600).contains(status));
        status.unwrap_or_else(|| match () {
            () if self.has_code(RATE_CODES) => 429,
            () if self.has_code(OVERLOAD_CODES) => OVERLOADED,
            () => 500,
        })
    }

    /// What is refused for good, if that is what an error of this status means.
    fn refused(&self, status: u16) -> Option<(Outcome, Option<Refusal>)> {
        let refused = |why| Some((Outcome::RequestRefused, Some(why)));
        let may_be_account = matches!(status, 400 | 402 | 403);
        if self.has_code(QUOTA_CODES) || may_be_account && self.has_words(QUOTA_WORDS) {
            return Some((Outcome::QuotaExhausted, None));
        }
        if self.has_code(KEY_CODES) {
            return Some((Outcome::KeyRefused, None));
        }
        let names_model = || contains_ignoring_case(self.message, "model");
        let is_model = self.has_code(MODEL_CODES)
            || status == 404 && (names_model() || self.has_words(NO_MODEL_WORDS))
            || status == 400 && names_model() && self.has_words(MODEL_WORDS);
        if is_model && status < 500 {
            return Some((Outcome::ModelNotFound, None));
        }
        if self.has_code(LENGTH_CODES) || status < 500 && self.has_words(LENGTH_WORDS) {
            return refused(Refusal::TooLong);
        }
        if self.has_code(PARAMETER_CODES) || matches!(status, 400 | 422) && self.has_words(PARAMETER_WORDS) {
            return refused(Refusal::UnsupportedParameter);
        }
        if self.has_code(FORBIDDEN_CODES) && status < 500 {
            return refused(Refusal::Forbidden);
        }
        None
    }
}

impl ResponseInfo {
    /// Takes in what the body of an error says. Details without a code or a message change nothing.
    pub fn refine(&mut self, error: &ErrorDetails<'_>) {
        if error.is_empty() {
            return;
        }
        if self.status < 400 {
            self.status = error.status();
            self.completion = of_status(self.status, None);
            self.refusal = Refusal::of(self.status, self.completion.outcome);
        }
        if let Some((outcome, refusal)) = error.refused(self.status) {
            (self.completion, self.refusal) = (outcome.into(), refusal);
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

/// Whether `text` has `part`, which is in small ASCII letters, in any case.
fn contains_ignoring_case(text: &str, part: &str) -> bool {
    text.as_bytes().windows(part.len()).any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}
