//! Clients of models: OpenAI-compatible endpoints, Anthropic's, HTTP judges, and commands on this machine.
//!
//! A client makes one attempt per call and never retries. The core decides whether and when to retry; this
//! module only classifies the response (see [`answer`]).

pub(crate) mod address;
pub mod answer;
pub mod batch;
pub mod chat;
pub mod command;
pub mod completion;
pub mod cost;
pub mod embedding;
pub mod http;
pub mod image;
pub mod key;
pub mod media;
pub(crate) mod messages;
pub mod probe;
mod rate_feedback;
mod reasoning;
pub(crate) mod redact;
pub(crate) mod responses;
pub mod tool_calls;

use serde::Deserialize;
use tidegate_core::budget::Usage;

pub use answer::CallError;
pub use chat::{ChatClient, ChatEndpoint, ChatRequest};
pub use key::ApiKey;
pub(crate) use rate_feedback::with_rate_feedback;

/// The result of a successful call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallOutput<T> {
    /// The value.
    pub value: T,
    /// The token usage, if the provider reported it.
    pub usage: Option<Usage>,
}

/// The client of one model.
#[derive(Clone, Debug)]
pub enum Client {
    /// A chat model.
    Chat(ChatClient),
    /// A chat model whose requests go in batches.
    Batch(Box<batch::BatchClient>),
    /// An embedding model.
    Embedding(embedding::EmbeddingClient),
    /// A model that generates images.
    Image(Box<image::ImageClient>),
    /// A judge that is an HTTP endpoint.
    Http(http::HttpClient),
    /// A judge that is a command on this machine.
    Command(command::Command),
}

impl Client {
    /// Returns the client of a chat model.
    #[must_use]
    pub fn chat(&self) -> Option<&ChatClient> {
        match self {
            Self::Chat(chat) => Some(chat),
            Self::Batch(batch) => Some(batch.chat()),
            _ => None,
        }
    }
}

/// The field `usage` of a response. Providers omit counts, or the whole field.
#[derive(Clone, Copy, Debug, Default)]
struct TokenCounts(Option<Usage>);

impl TokenCounts {
    fn known(self) -> Option<Usage> {
        self.0
    }
}

/// Returns the token usage in a response body of an unexpected form.
fn usage_in_body(body: &[u8]) -> Option<Usage> {
    #[derive(Deserialize)]
    struct UsageOnly {
        #[serde(default)]
        usage: TokenCounts,
    }
    serde_json::from_slice::<UsageOnly>(body).ok()?.usage.known()
}

impl<'de> Deserialize<'de> for TokenCounts {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A `usage` field of another form is ignored, since the rest of the response may be valid.
        let usage = serde_json::Value::deserialize(deserializer)?;
        let count = |key: &str| usage[key].as_u64().map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        // Anthropic counts the tokens that were written to its cache or read from it beside the others.
        let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"].into_iter().filter_map(count);
        let input = count("input_tokens").map(|input| cached.fold(input, u32::saturating_add));
        let input = count("prompt_tokens").or(input);
        let output = count("completion_tokens").or(count("output_tokens"));
        // Some providers count reasoning beside the completion tokens, and some in the total only. It has the
        // price of output.
        let in_total = count("total_tokens").map(|total| total.saturating_sub(input.unwrap_or(0)));
        let output = output.map(|output| output.max(in_total.unwrap_or(0)));
        let usage = Usage::tokens(input.unwrap_or(0), output.unwrap_or(0));
        Ok(Self(input.or(output).map(|_| usage)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_another_form_are_ignored_and_so_is_a_usage_that_is_no_object() {
        for (usage, expected) in [
            (r#"{"prompt_tokens": 7, "details": {"a": [1, "b"]}, "completion_tokens": 2}"#, Some((7, 2))),
            (r#"{"prompt_tokens": 7, "completion_tokens": "2"}"#, Some((7, 0))),
            (r#"{"prompt_tokens": {"a": 1}, "output_tokens": 99999999999}"#, Some((0, u32::MAX))),
            (r#"{"input_tokens": 7, "cache_read_input_tokens": 2, "output_tokens": 1.5}"#, Some((9, 0))),
            (r#"{"prompt_tokens": -1, "completion_tokens": null}"#, None),
            ("{}", None),
            ("null", None),
            ("true", None),
            ("7", None),
            ("-7", None),
            ("0.5", None),
            (r#""7""#, None),
            (r#"[7, {"prompt_tokens": 2}]"#, None),
        ] {
            let read = |body: &str| serde_json::from_str::<TokenCounts>(body).unwrap().known();
            assert_eq!(read(usage), expected.map(|(input, output)| Usage::tokens(input, output)), "{usage}");
        }
    }
}
