//! Parsing of JSON error bodies for the core.

use std::time::SystemTime;

use http::HeaderMap;
use serde_json::Value;
use tidegate_core::request::response::{self, ErrorBody, JsonValue};

use super::HeaderLookup;

struct Json<'a>(&'a Value);

impl JsonValue for Json<'_> {
    fn field(&self, name: &str) -> Option<Self> {
        self.0.get(name).map(Json)
    }

    fn item(&self, index: usize) -> Option<Self> {
        self.0.get(index).map(Json)
    }

    fn text(&self) -> Option<String> {
        match self.0 {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    fn is_string(&self) -> bool {
        self.0.is_string()
    }
}

/// Reads the body of a response that is not a success.
///
/// `headers` are those of the same response, and `now` is the wall-clock time at which it arrived; dates in
/// the body count from them as in [`read_head`](super::read_head). Returns an empty [`ErrorBody`], which
/// refines nothing, if `body` is not JSON.
#[must_use]
pub fn read_error_body(body: &[u8], headers: &HeaderMap, now: SystemTime) -> ErrorBody {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return ErrorBody::default() };
    ErrorBody::read(Json(&value), |moment| response::reset_after(&HeaderLookup::new(headers, now), moment))
}

/// Reads the error that some gateways send with status 200. Returns `None` if the body contains no error.
#[must_use]
pub fn error_in_success(body: &[u8]) -> Option<ErrorBody> {
    ErrorBody::in_success(&Json(&serde_json::from_slice::<Value>(body).ok()?))
}
