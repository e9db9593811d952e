//! The body of an error: where in it providers say what. What that means is one table, [`ErrorDetails`].
//!
//! ```text
//! {"error": {"message": .., "type": .., "code": ..}}                      OpenAI, Azure, OpenRouter, vLLM, llama.cpp
//! {"error": {.., "metadata": {"headers": {"X-RateLimit-Reset": ..}}}}     OpenRouter, of a rate limit
//! {"type": "error", "error": {"type": .., "message": ..}}                 Anthropic
//! {"error": {"code": .., "status": .., "details": [{"reason": ..}]}}      Google, also as the only element of a list
//! {"message": .., "type": .., "code": ..}                                 Mistral, older vLLM
//! {"error": ".."}, {"detail": ".."}                                       Ollama, gateways
//! {"detail": [{"type": .., "msg": ..}]}, also as the message              Mistral, of the form of a request
//! ```

use alloc::string::String;
use alloc::vec::Vec;

use super::{ErrorDetails, ResponseInfo, seconds};
use crate::time::Duration;

/// A JSON value, in whatever form a host has it.
pub trait JsonValue: Sized {
    /// The field of an object; `None` if it is no object or has none of this name.
    fn field(&self, name: &str) -> Option<Self>;

    /// The item of a list, counted from 0; `None` if it is no list or ends before.
    fn item(&self, index: usize) -> Option<Self>;

    /// A string as it is, a number as its digits; `None` for anything else.
    fn text(&self) -> Option<String>;

    /// Whether it is a string.
    fn is_string(&self) -> bool;
}

/// What the body of an error says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorBody {
    codes: Vec<String>,
    /// The message for people, as it came; empty if there is none.
    pub message: String,
    retry_delay: Option<Duration>,
}

impl ErrorBody {
    /// Reads the body of an answer that is no success. `until` says how long it is until a moment:
    /// [`reset_after`](super::reset_after) with the headers of the same answer.
    pub fn read(root: impl JsonValue, until: impl Fn(&str) -> Option<Duration>) -> Self {
        let root = root.item(0).unwrap_or(root);
        let error = root.field("error").filter(|error| !error.is_string());
        Self::of(&error.unwrap_or(root), until)
    }

    /// Reads the error that some gateways answer with status 200; `None` if the body holds none.
    pub fn in_success(root: &impl JsonValue) -> Option<Self> {
        let error = Self::of(&root.field("error")?, |_| None);
        (error != Self::default()).then_some(error)
    }

    fn of<J: JsonValue>(error: &J, until: impl Fn(&str) -> Option<Duration>) -> Self {
        let items = |list: &J| (0..).map_while(|index| list.item(index)).collect::<Vec<J>>();
        let details: Vec<J> = error.field("details").iter().flat_map(items).collect();
        // What a list of complaints is about, each with a place in the request: of FastAPI, and so of
        // Mistral.
        let in_message = || error.field("message")?.field("detail");
        let complaints: Vec<J> = error
            .field("detail")
            .filter(|list| list.item(0).is_some())
            .or_else(in_message)
            .iter()
            .flat_map(items)
            .collect();
        let fields = ["code", "type", "status", "reason"].into_iter().filter_map(|name| error.field(name)?.text());
        let reasons = details.iter().filter_map(|detail| detail.field("reason")?.text());
        let types = complaints.iter().filter_map(|complaint| complaint.field("type")?.text());
        let string = |value: Option<J>| value.filter(J::is_string)?.text();
        let own = if error.is_string() { error.text() } else { None };
        let named = || ["message", "error", "detail"].into_iter().find_map(|name| string(error.field(name)));
        let complained = || complaints.iter().find_map(|complaint| string(complaint.field("msg")));
        // As protocol buffers write a span: `34s`, `1.5s`.
        let delay = |detail: &J| seconds(string(detail.field("retryDelay"))?.strip_suffix('s')?);
        let reset = || until(&error.field("metadata")?.field("headers")?.field("X-RateLimit-Reset")?.text()?);
        Self {
            codes: fields.chain(reasons).chain(types).collect(),
            message: own.or_else(named).or_else(complained).unwrap_or_default(),
            retry_delay: details.iter().find_map(delay).or_else(reset),
        }
    }

    /// Takes what was read into what is known of the answer.
    pub fn refine(&self, info: &mut ResponseInfo) {
        let codes: Vec<&str> = self.codes.iter().map(String::as_str).collect();
        info.refine(&ErrorDetails { codes: &codes, message: &self.message, retry_delay: self.retry_delay });
    }
}
