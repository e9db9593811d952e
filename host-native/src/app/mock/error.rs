//! Error responses in the format of the OpenAI API: `{"error": {"message", "type", "param", "code"}}`.
//!
//! Official clients choose their exception class by the status code, and show the message.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

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

    #[cfg(test)]
    pub(super) fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self { status, kind, code, param, message } = self;
        let error = json!({ "message": message, "type": kind, "param": param, "code": code });
        (status, Json(json!({ "error": error }))).into_response()
    }
}
