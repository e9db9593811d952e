//! Error responses in the format of the OpenAI API: `{"error": {"message", "type", "param", "code"}}`.
//!
//! Official clients choose their exception class by the status code, and show the message.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    /// The `type` of the error, such as `invalid_request_error`.
    kind: &'static str,
    code: Option<&'static str>,
    /// The invalid field of the request.
    param: Option<String>,
    pub(super) message: String,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, kind: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, code: Some(code), param: None, message: message.into() }
    }

    /// Creates an error of an invalid request: 400.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        let (status, kind) = (StatusCode::BAD_REQUEST, "invalid_request_error");
        Self { status, kind, code: None, param: None, message: message.into() }
    }

    /// Creates an error of an invalid field of a request: 400.
    pub(super) fn field(param: &str, message: impl Into<String>) -> Self {
        Self { param: Some(param.to_string()), ..Self::invalid(message) }
    }

    /// Creates the error of a prompt that a content filter rejects.
    pub(super) fn prompt_filter() -> Self {
        let message = "the prompt was rejected by a content filter";
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", "content_filter", message)
    }

    /// Returns the body of the response.
    pub(super) fn body(&self) -> Value {
        let Self { kind, code, param, message, .. } = self;
        json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
    }

    #[cfg(test)]
    pub(super) fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body())).into_response()
    }
}
