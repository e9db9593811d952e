//! Clients of models: OpenAI-compatible endpoints, Anthropic's, HTTP judges, and commands on this machine.
//!
//! A client makes one attempt per call. The core decides whether and when to retry; this module only
//! classifies the response (see [`answer`]). A request that a new connection closed without taking is no
//! attempt: until the server has responded, it is sent on another connection.

pub(crate) mod address;
pub mod answer;
pub mod batch;
pub mod chat;
pub mod command;
pub mod completion;
pub mod conversation;
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
#[cfg(test)]
mod tests_answers;
pub mod token_limit;
pub mod tool_calls;

use serde::Deserialize;
use tidegate_core::budget::Usage;

pub use answer::CallError;
pub use chat::{ChatClient, ChatEndpoint, ChatRequest};
pub use key::ApiKey;
pub(crate) use rate_feedback::with_rate_feedback;

use crate::app::token_counts::TokenCounts;

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

/// Returns the token usage in a response body of an unexpected form.
fn usage_in_body(body: &[u8]) -> Option<Usage> {
    #[derive(Deserialize)]
    struct UsageOnly {
        #[serde(default)]
        usage: TokenCounts,
    }
    serde_json::from_slice::<UsageOnly>(body).ok()?.usage.known()
}
