//! Clients of what a model can be: OpenAI-compatible endpoints, a judge behind an address, a command on this machine.
//! One attempt per call, no retry of their own.
//!
//! Whether and when to call again is decided by the core; this module only says what an answer meant (see [`answer`]).

pub mod answer;
pub mod chat;
pub mod command;
pub mod cost;
pub mod embedding;
pub mod http;
pub mod key;
pub mod probe;
mod stated;
pub mod usage;

use serde::Deserialize;
use tidegate_core::budget::Usage;

pub use answer::CallError;
pub use chat::{ChatClient, ChatEndpoint, ChatRequest};
pub use key::ApiKey;
pub(crate) use stated::with_stated_rates;

/// What a call brought, and what it used.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer<T> {
    /// What it brought.
    pub value: T,
    /// The tokens it took, where the provider said so.
    pub usage: Option<Usage>,
}

/// The client of one model.
#[derive(Clone, Debug)]
pub enum Client {
    /// A chat model.
    Chat(ChatClient),
    /// An embedding model.
    Embedding(embedding::EmbeddingClient),
    /// A judge behind an address of its own.
    Http(http::HttpClient),
    /// A judge that is a command of this machine.
    Command(command::Command),
}

/// `usage` of an answer. Providers leave out what they do not count, or all of it.
#[derive(Clone, Copy, Debug, Default)]
struct TokenCounts(Option<Usage>);

impl TokenCounts {
    fn known(self) -> Option<Usage> {
        self.0
    }
}

/// `usage` of an answer that has not the form it should have.
fn usage_said(body: &[u8]) -> Option<Usage> {
    #[derive(Deserialize)]
    struct Bill {
        #[serde(default)]
        usage: TokenCounts,
    }
    serde_json::from_slice::<Bill>(body).ok()?.usage.known()
}

impl<'de> Deserialize<'de> for TokenCounts {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // An answer is not worth less because its bill is written in another form.
        let said = serde_json::Value::deserialize(deserializer)?;
        let count = |key: &str| said[key].as_u64().map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let (input, output) = (count("prompt_tokens"), count("completion_tokens"));
        let usage = Usage::tokens(input.unwrap_or(0), output.unwrap_or(0));
        Ok(Self(input.or(output).map(|_| usage)))
    }
}
