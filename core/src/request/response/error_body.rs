//! Reads codes, message and delay from the error bodies of the known providers. [`ErrorDetails`] documents
//! what they mean.
//!
//! ```text
//! {"error": {"message": .., "type": .., "code": ..}}              OpenAI, Azure, OpenRouter, vLLM, llama.cpp
//! {"error": {.., "metadata": {"headers": {"X-RateLimit-Reset": ..}}}} OpenRouter, for a rate limit
//! {"type": "error", "error": {"type": .., "message": ..}}             Anthropic
//! {"error": {"code": .., "status": .., "details": [{"reason": ..}]}}  Google, also as the only list item
//! {"message": .., "type": .., "code": ..}                             Mistral, older vLLM
//! {"error": ".."}, {"detail": ".."}                                   Ollama, gateways
//! {"detail": [{"type": .., "msg": ..}]}, also as the message          Mistral, for an invalid request
//! ```

use alloc::string::String;
use alloc::vec::Vec;

use super::{ErrorDetails, ResponseInfo, seconds};
use crate::time::Duration;

/// A JSON value in the representation of the host.
pub trait JsonValue: Sized {
    /// Returns the field `name` of an object, or `None` if the value is not an object or has no such field.
    fn field(&self, name: &str) -> Option<Self>;

    /// Returns the item of a list at `index`, counted from 0, or `None` if the value is not a list or is too
    /// short.
    fn item(&self, index: usize) -> Option<Self>;

    /// Returns a string as it is and a number as its digits, or `None` for any other value.
    fn text(&self) -> Option<String>;

    /// Returns whether the value is a string.
    fn is_string(&self) -> bool;
}

/// The codes, message and delay in the body of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorBody {
    codes: Vec<String>,
    /// The human-readable message, unchanged. Empty if there is none.
    pub message: String,
    retry_delay: Option<Duration>,
}

impl ErrorBody {
    /// Reads the body of a response that is not a success. `until` returns the time until a reset; pass
    /// [`reset_after`](super::reset_after) with the headers of the same response.
    pub fn read(root: impl JsonValue, until: impl Fn(&str) -> Option<Duration>) -> Self {
        let root = root.item(0).unwrap_or(root);
        let error = root.field("error").filter(|error| !error.is_string());
        Self::of(&error.unwrap_or(root), until)
    }

    /// Reads the error that some gateways send with status 200. Returns `None` if the body contains no error.
    pub fn in_success(root: &impl JsonValue) -> Option<Self> {
        let error = Self::of(&root.field("error")?, |_| None);
        (error != Self::default()).then_some(error)
    }

    fn of<J: JsonValue>(error: &J, until: impl Fn(&str) -> Option<Duration>) -> Self {
        let items = |list: &J| (0..).map_while(|index| list.item(index)).collect::<Vec<J>>();
        let details: Vec<J> = error.field("details").iter().flat_map(items).collect();
        // A list of validation errors, each with a location in the request. FastAPI sends them, and therefore
        // Mistral.
        let in_message = || error.field("message")?.field("detail");
        let validation_errors: Vec<J> = error
            .field("detail")
            .filter(|list| list.item(0).is_some())
            .or_else(in_message)
            .iter()
            .flat_map(items)
            .collect();
        let fields = ["code", "type", "status", "reason"].into_iter().filter_map(|name| error.field(name)?.text());
        let reasons = details.iter().filter_map(|detail| detail.field("reason")?.text());
        let types = validation_errors.iter().filter_map(|error| error.field("type")?.text());
        let string = |value: Option<J>| value.filter(J::is_string)?.text();
        let own = if error.is_string() { error.text() } else { None };
        let named = || ["message", "error", "detail"].into_iter().find_map(|name| string(error.field(name)));
        let first_validation_message =
            || validation_errors.iter().find_map(|validation_error| string(validation_error.field("msg")));
        // The JSON form of a Protocol Buffers duration: `34s`, `1.5s`.
        let delay = |detail: &J| seconds(string(detail.field("retryDelay"))?.strip_suffix('s')?);
        let reset = || until(&error.field("metadata")?.field("headers")?.field("X-RateLimit-Reset")?.text()?);
        Self {
            codes: fields.chain(reasons).chain(types).collect(),
            message: own.or_else(named).or_else(first_validation_message).unwrap_or_default(),
            retry_delay: details.iter().find_map(delay).or_else(reset),
        }
    }

    /// Refines `info` by the error, as [`ResponseInfo::refine`] does.
    pub fn refine(&self, info: &mut ResponseInfo) {
        let codes: Vec<&str> = self.codes.iter().map(String::as_str).collect();
        info.refine(&ErrorDetails { codes: &codes, message: &self.message, retry_delay: self.retry_delay });
    }
}
