//! The body of an error, read for the core: what its fields are called differs from provider to provider, what they mean is one
//! table ([`ErrorDetails`]).
//!
//! ```text
//! {"error": {"message": .., "type": .., "code": ..}}                      OpenAI, Azure, OpenRouter, vLLM, llama.cpp
//! {"type": "error", "error": {"type": .., "message": ..}}                 Anthropic
//! {"error": {"code": .., "status": .., "details": [{"reason": ..}]}}      Google, also as the only element of a list
//! {"message": .., "type": .., "code": ..}                                 Mistral, older vLLM
//! {"error": ".."}, {"detail": ".."}                                       Ollama, gateways
//! ```

use serde_json::Value;
use tidegate_core::request::response::{self, ErrorDetails, ResponseInfo};
use tidegate_core::time::Duration;

/// What the body of an error says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorBody {
    codes: Vec<String>,
    /// The message for people, as it came; empty if there is none.
    pub message: String,
    retry_delay: Option<Duration>,
}

impl ErrorBody {
    /// Reads the body of an answer that is no success. What is no JSON says nothing.
    #[must_use]
    pub fn read(body: &[u8]) -> Self {
        let Ok(value) = serde_json::from_slice::<Value>(body) else { return Self::default() };
        let root = value.get(0).unwrap_or(&value);
        Self::of(root.get("error").filter(|error| error.is_object()).unwrap_or(root))
    }

    /// Reads the error that some gateways answer with status 200; `None` if the body holds none.
    #[must_use]
    pub fn in_success(body: &[u8]) -> Option<Self> {
        let value = serde_json::from_slice::<Value>(body).ok()?;
        value.get("error").filter(|error| error.is_object() || error.is_string()).map(Self::of)
    }

    fn of(error: &Value) -> Self {
        let details = error["details"].as_array().map_or(&[][..], Vec::as_slice);
        let fields = ["code", "type", "status"].iter().map(|name| &error[*name]);
        let reasons = details.iter().map(|detail| &detail["reason"]).chain([&error["reason"]]);
        let text = |field: &Value| match field {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let message = [error, &error["message"], &error["error"], &error["detail"]].into_iter().find_map(Value::as_str);
        Self {
            codes: fields.chain(reasons).filter_map(text).collect(),
            message: message.unwrap_or_default().to_string(),
            // As protocol buffers write a span: `34s`, `1.5s`.
            retry_delay: details
                .iter()
                .find_map(|detail| response::seconds(detail["retryDelay"].as_str()?.strip_suffix('s')?)),
        }
    }

    /// Hands what was read to the core, which decides what the answer means.
    pub fn refine(&self, info: &mut ResponseInfo) {
        let codes: Vec<&str> = self.codes.iter().map(String::as_str).collect();
        info.refine(&ErrorDetails { codes: &codes, message: &self.message, retry_delay: self.retry_delay });
    }
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;
    use reqwest::header::HeaderMap;
    use std::time::SystemTime;
    use tidegate_core::request::Outcome;
    use tidegate_core::request::response::Refusal;

    use super::*;
    use crate::response::read_head;

    fn info(status: u16, body: &str) -> ResponseInfo {
        let status = StatusCode::from_u16(status).unwrap();
        let mut info = read_head(status, &HeaderMap::new(), SystemTime::UNIX_EPOCH);
        ErrorBody::read(body.as_bytes()).refine(&mut info);
        info
    }

    /// Bodies as providers send them, with another message where that decides nothing.
    const RECORDED: &[(&str, u16, &str, Outcome)] = &[
        (
            "OpenAI, wrong key",
            401,
            r#"{"error":{"message":"Incorrect API key provided.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
            Outcome::KeyRefused,
        ),
        (
            "OpenAI, no funds",
            429,
            r#"{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
            Outcome::QuotaExhausted,
        ),
        (
            "OpenAI, hard limit",
            400,
            r#"{"error":{"code":"billing_hard_limit_reached","message":"Billing hard limit has been reached","param":null,"type":"invalid_request_error"}}"#,
            Outcome::QuotaExhausted,
        ),
        (
            "OpenAI, too many",
            429,
            r#"{"error":{"message":"Rate limit reached.","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#,
            Outcome::RateLimited,
        ),
        (
            "OpenAI, no model",
            404,
            r#"{"error":{"message":"The model `x` does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
            Outcome::ModelNotFound,
        ),
        (
            "OpenAI, region",
            403,
            r#"{"error":{"code":"unsupported_country_region_territory","message":"Country, region, or territory not supported","param":null,"type":"request_forbidden"}}"#,
            Outcome::RequestRefused,
        ),
        (
            "Anthropic, wrong key",
            401,
            r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
            Outcome::KeyRefused,
        ),
        (
            "Anthropic, no funds",
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."}}"#,
            Outcome::QuotaExhausted,
        ),
        (
            "Anthropic, no model",
            404,
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: x"}}"#,
            Outcome::ModelNotFound,
        ),
        (
            "Anthropic, overloaded",
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            Outcome::RateLimited,
        ),
        (
            "Anthropic, no permission",
            403,
            r#"{"type":"error","error":{"type":"permission_error","message":"Your key may not use this resource."}}"#,
            Outcome::RequestRefused,
        ),
        (
            "Azure, no deployment",
            404,
            r#"{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}"#,
            Outcome::ModelNotFound,
        ),
        (
            "Azure, wrong key",
            401,
            r#"{"error":{"code":"401","message":"Access denied due to invalid subscription key or wrong API endpoint."}}"#,
            Outcome::KeyRefused,
        ),
        (
            "Azure, call volume",
            403,
            r#"{"error":{"code":"403","message":"Out of call volume quota. Quota will be replenished in 7 days."}}"#,
            Outcome::QuotaExhausted,
        ),
        (
            "Google, wrong key",
            400,
            r#"[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}]"#,
            Outcome::KeyRefused,
        ),
        (
            "Google, billing",
            403,
            r#"{"error":{"code":403,"message":"This API method requires billing to be enabled.","status":"PERMISSION_DENIED","details":[{"reason":"BILLING_DISABLED"}]}}"#,
            Outcome::QuotaExhausted,
        ),
        (
            "Google, no model",
            404,
            r#"{"error":{"code":404,"message":"models/x is not found for API version v1beta.","status":"NOT_FOUND"}}"#,
            Outcome::ModelNotFound,
        ),
        (
            "Mistral, no model",
            400,
            r#"{"object":"error","message":"Invalid model: x","type":"invalid_model","param":null,"code":"1500"}"#,
            Outcome::ModelNotFound,
        ),
        ("Mistral, wrong key", 401, r#"{"detail":"Unauthorized"}"#, Outcome::KeyRefused),
        (
            "OpenRouter, no credits",
            402,
            r#"{"error":{"message":"Insufficient credits. Add more credits.","code":402}}"#,
            Outcome::QuotaExhausted,
        ),
        (
            "OpenRouter, no model",
            400,
            r#"{"error":{"message":"x is not a valid model ID","code":400}}"#,
            Outcome::ModelNotFound,
        ),
        (
            "OpenRouter, moderation",
            403,
            r#"{"error":{"message":"Your chosen model requires moderation and your input was flagged.","code":403,"metadata":{"reasons":["violence"]}}}"#,
            Outcome::RequestRefused,
        ),
        (
            "vLLM, no model",
            404,
            r#"{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","param":null,"code":404}"#,
            Outcome::ModelNotFound,
        ),
        ("vLLM, no such address", 404, r#"{"detail":"Not Found"}"#, Outcome::RequestRefused),
        (
            "Ollama, no model",
            404,
            r#"{"error":{"message":"model \"x\" not found, try pulling it first","type":"api_error","param":null,"code":null}}"#,
            Outcome::ModelNotFound,
        ),
        ("Ollama, crashed", 500, r#"{"error":"llama runner process has terminated"}"#, Outcome::ProviderFailure),
        (
            "llama.cpp, starting",
            503,
            r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
            Outcome::ProviderFailure,
        ),
    ];

    #[test]
    fn each_recorded_error_means_what_its_provider_says_it_means() {
        for (what, status, body, expected) in RECORDED {
            assert_eq!(info(*status, body).completion.outcome, *expected, "{what}");
        }
    }

    #[test]
    fn each_recorded_refusal_of_a_prompt_says_why() {
        for (what, status, body, expected) in [
            (
                "OpenAI, context",
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
                Refusal::TooLong,
            ),
            (
                "OpenAI, more than a minute's tokens",
                429,
                r#"{"error":{"message":"Request too large for m on tokens per min (TPM): Limit 10000, Requested 12000.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#,
                Refusal::TooLong,
            ),
            (
                "Anthropic, context",
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
                Refusal::TooLong,
            ),
            (
                "vLLM, context",
                400,
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","param":null,"code":400}"#,
                Refusal::TooLong,
            ),
            (
                "llama.cpp, context",
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_ctx":4096}}"#,
                Refusal::TooLong,
            ),
            (
                "OpenAI, parameter",
                400,
                r#"{"error":{"message":"Unsupported parameter: 'max_tokens'.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}"#,
                Refusal::UnsupportedParameter,
            ),
        ] {
            let info = info(status, body);
            assert_eq!((info.completion.outcome, info.refusal), (Outcome::RequestRefused, Some(expected)), "{what}");
        }
    }

    #[test]
    fn a_delay_that_google_asks_for_in_the_body_is_waited_for() {
        let body = r#"{"error":{"code":429,"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED",
                       "details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}"#;
        let completion = info(429, body).completion;
        assert_eq!(
            (completion.outcome, completion.retry_after),
            (Outcome::RateLimited, Some(Duration::from_millis(34_500)))
        );
    }

    #[test]
    fn an_error_in_a_success_is_found_and_a_good_answer_has_none() {
        let said = ErrorBody::in_success(br#"{"error":{"code":502,"message":"Provider returned error"}}"#).unwrap();
        assert_eq!(said.message, "Provider returned error");
        for body in [r#"{"choices":[]}"#, r#"{"error":null,"choices":[]}"#, "", "[]", "not json"] {
            assert_eq!(ErrorBody::in_success(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn what_is_no_error_body_says_nothing() {
        for body in ["", "<html>", "7", "[]", "{}", "null", r#"{"error":7}"#, r#"{"error":{"code":{},"message":[]}}"#] {
            assert_eq!(ErrorBody::read(body.as_bytes()), ErrorBody::default(), "{body}");
        }
        assert_eq!(ErrorBody::read(br#"{"error":{"details":[{"retryDelay":"-1s"}]}}"#), ErrorBody::default());
    }
}
