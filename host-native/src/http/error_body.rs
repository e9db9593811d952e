//! Parsing of JSON error bodies for the core.

use std::time::SystemTime;

use http::HeaderMap;
use serde_json::{Value, json};
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

/// Reads the error that some providers and gateways send with status 200. Returns `None` if the body contains
/// no error.
#[must_use]
pub fn error_in_success(body: &[u8]) -> Option<ErrorBody> {
    let value: Value = serde_json::from_slice(body).ok()?;
    ErrorBody::in_success(&Json(&value)).or_else(|| ErrorBody::in_success(&Json(&of_minimax(&value)?)))
}

/// Returns the error of `MiniMax`, `{"base_resp": {"status_code": .., "status_msg": ..}}`, with the HTTP
/// status that other providers send for the same.
///
/// Sources: <https://platform.minimax.io/docs/api-reference/errorcode.md>, and for 1028, 1030 and 2061
/// `src/errors/api.ts` of <https://github.com/MiniMax-AI/cli>.
fn of_minimax(body: &Value) -> Option<Value> {
    let error = body.get("base_resp")?;
    let (status, kind) = match error["status_code"].as_u64()? {
        0 => return None,
        1001 => (504, "timeout"),
        // Of calls, of tokens, of connections, and of the growth of the rate.
        1002 | 1039 | 1041 | 2045 => (429, "rate_limited"),
        1004 | 2049 => (401, "invalid_api_key"),
        // Also the usage limits of a plan, for hours.
        1008 | 1028 | 1030 | 2056 => (402, "insufficient_balance"),
        1026 | 1027 => (400, "content_filter"),
        1042 | 2013 => (400, "invalid_request_error"),
        2061 => (404, "model_not_found"),
        _ => (500, "server_error"),
    };
    Some(json!({ "error": { "code": status, "type": kind, "message": error["status_msg"] } }))
}
