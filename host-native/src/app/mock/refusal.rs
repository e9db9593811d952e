//! Errors in the form of the OpenAI API: `{"error": {"message", "type", "param", "code"}}`. Official clients choose
//! their error class by the status, and show the message.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// A call that gets an error for its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// The family, such as `invalid_request_error`.
    kind: &'static str,
    code: Option<&'static str>,
    /// The field of the request that is to blame.
    param: Option<String>,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, kind: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, code: Some(code), param: None, message: message.into() }
    }

    /// The request is wrong: 400.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        let (status, kind) = (StatusCode::BAD_REQUEST, "invalid_request_error");
        Self { status, kind, code: None, param: None, message: message.into() }
    }

    /// One field of the request is wrong: 400.
    pub(super) fn field(param: &str, message: impl Into<String>) -> Self {
        Self { param: Some(param.to_string()), ..Self::invalid(message) }
    }

    #[cfg(test)]
    pub(super) fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { status, kind, code, param, message } = self;
        let error = json!({ "message": message, "type": kind, "param": param, "code": code });
        (status, Json(json!({ "error": error }))).into_response()
    }
}
