//! The Messages API of Anthropic: `POST /v1/messages`.
//!
//! Requests are translated to those of chat completions, and answered like them. What the API requires is
//! required here, too: the header `anthropic-version`, `max_tokens`, roles without `system`, and no other
//! keys than its own. Streams are not served.

use axum::Json;
use axum::body::{Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::chat::{Choice, CompletionCall};
use super::error::ApiError;

/// A request. All keys of the API are listed, since it rejects others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some keys are accepted and change nothing")]
struct MessageRequest {
    model: String,
    messages: Vec<Message>,
    max_tokens: u32,
    system: Option<Value>,
    #[serde(default)]
    tools: Vec<Tool>,
    tool_choice: Option<ToolChoice>,
    thinking: Option<Value>,
    temperature: Option<f64>,
    stream: Option<bool>,
    top_p: Option<f64>,
    top_k: Option<u32>,
    stop_sequences: Option<Vec<String>>,
    metadata: Option<Value>,
    service_tier: Option<Value>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Value,
}

#[derive(Deserialize)]
struct Tool {
    name: String,
    input_schema: Value,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ToolChoice {
    Auto,
    None,
    Any,
    Tool { name: String },
}

/// Translates a request to one of chat completions.
pub(super) fn chat_request(headers: &HeaderMap, body: &[u8]) -> Result<Bytes, ApiError> {
    if !headers.contains_key("anthropic-version") {
        return Err(ApiError::invalid("anthropic-version: header is required"));
    }
    let request: MessageRequest = serde_json::from_slice(body).map_err(|error| ApiError::invalid(error.to_string()))?;
    let invalid = |field: &str, why: &str| Err(ApiError::field(field, format!("{field}: {why}")));
    if request.messages.is_empty() {
        return invalid("messages", "at least one message is required");
    }
    if let Some(message) =
        request.messages.iter().find(|message| !matches!(message.role.as_str(), "user" | "assistant"))
    {
        let role = &message.role;
        return invalid(
            "messages",
            &format!("Unexpected role \"{role}\". The Messages API accepts a top-level `system` parameter"),
        );
    }
    if request.max_tokens == 0 {
        return invalid("max_tokens", "must be greater than or equal to 1");
    }
    if request.temperature.is_some_and(|temperature| !(0.0..=1.0).contains(&temperature)) {
        return invalid("temperature", "range: 0..1");
    }
    if request.stream == Some(true) {
        return invalid("stream", "streams are not served here");
    }
    let is_thinking = request.thinking.as_ref().is_some_and(|thinking| thinking["type"] == "enabled");
    if is_thinking && matches!(request.tool_choice, Some(ToolChoice::Any | ToolChoice::Tool { .. })) {
        return invalid("thinking", "Thinking may not be enabled when tool_choice forces tool use.");
    }
    if let Some(tool) = request.tools.iter().find(|tool| tool.input_schema["type"] != "object") {
        return invalid("tools", &format!("the input_schema of {} has no type `object`", tool.name));
    }
    let system = request.system.map(|content| json!({ "role": "system", "content": content }));
    let mut dialogue = Vec::new();
    for Message { role, content } in &request.messages {
        dialogue.append(&mut chat_messages(role, content)?);
    }
    let mut chat = Map::new();
    chat.insert("model".to_string(), request.model.into());
    chat.insert("messages".to_string(), system.into_iter().chain(dialogue).collect());
    chat.insert("max_tokens".to_string(), request.max_tokens.into());
    let tool = |tool: Tool| json!({ "function": { "name": tool.name, "parameters": tool.input_schema } });
    chat.insert("tools".to_string(), request.tools.into_iter().map(tool).collect());
    let choice = match request.tool_choice {
        Some(ToolChoice::Any) => Some(json!("required")),
        Some(ToolChoice::Tool { name }) => Some(json!({ "function": { "name": name } })),
        Some(ToolChoice::None) => Some(json!("none")),
        Some(ToolChoice::Auto) | None => None,
    };
    chat.extend(choice.map(|choice| ("tool_choice".to_string(), choice)));
    Ok(Bytes::from(Value::Object(chat).to_string()))
}

/// Returns the messages of chat completions for one of this API: results of tools are messages of their own.
fn chat_messages(role: &str, content: &Value) -> Result<Vec<Value>, ApiError> {
    let mut parts: Vec<Value> = Vec::new();
    let (mut results, mut calls) = (Vec::new(), Vec::new());
    for block in content.as_array().into_iter().flatten() {
        match block["type"].as_str() {
            Some("tool_result") if role == "user" && parts.is_empty() => {
                let (id, content) = (&block["tool_use_id"], &block["content"]);
                results.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
            }
            Some("tool_use") if role == "assistant" => {
                let function = json!({ "name": block["name"], "arguments": block["input"].to_string() });
                calls.push(json!({ "id": block["id"], "type": "function", "function": function }));
            }
            Some("tool_result" | "tool_use") => {
                return Err(ApiError::field("messages", "results of tools come first in a message of the user"));
            }
            Some("thinking" | "redacted_thinking") => {}
            Some("text") if block["text"] == "" => {
                return Err(ApiError::field("messages", "text content blocks must be non-empty"));
            }
            _ => parts.push(block.clone()),
        }
    }
    let text = if content.is_array() { Value::Array(parts.clone()) } else { content.clone() };
    if results.is_empty() || !parts.is_empty() {
        results.push(if calls.is_empty() {
            json!({ "role": role, "content": text })
        } else {
            json!({ "role": role, "content": text, "tool_calls": calls })
        });
    }
    Ok(results)
}

impl CompletionCall {
    /// Returns the response of a call of the Messages API.
    pub(super) fn message(&self, number: u64) -> Value {
        let empty = (Vec::new(), "end_turn");
        let (content, stop_reason) = self.choices.first().map_or(empty, |choice| blocks(choice, number));
        let (input, output) = self.tokens;
        json!({
            "id": format!("msg_mock_{number}"),
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": null,
            "usage": {
                "input_tokens": input,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": output,
                "service_tier": "standard",
            },
        })
    }
}

/// Returns the content blocks of an answer, and why it ended.
fn blocks(choice: &Choice, number: u64) -> (Vec<Value>, &'static str) {
    if let Some(tool) = &choice.tool {
        let input: Value = serde_json::from_str(&choice.text).unwrap_or_default();
        let id = format!("toolu_mock_{number}");
        return (vec![json!({ "type": "tool_use", "id": id, "name": tool, "input": input })], "tool_use");
    }
    let thinking =
        choice.reasoning.map(|(_, text)| json!({ "type": "thinking", "thinking": text, "signature": "bW9jaw==" }));
    let text = json!({ "type": "text", "text": choice.refusal.unwrap_or(&choice.text) });
    let stop_reason = match choice.finish_reason {
        _ if choice.refusal.is_some() => "refusal",
        "content_filter" => "refusal",
        "length" => "max_tokens",
        _ => "end_turn",
    };
    (thinking.into_iter().chain([text]).collect(), stop_reason)
}

/// The largest error body.
const MAX_ERROR_BYTES: usize = 1 << 20;

/// Gives error responses of the address of the API its format.
pub(super) async fn format_errors(request: Request, next: Next) -> Response {
    let is_own = request.uri().path() == "/v1/messages";
    let response = next.run(request).await;
    if is_own && !response.status().is_success() { format_error(response).await } else { response }
}

async fn format_error(response: Response) -> Response {
    let (mut head, body) = response.into_parts();
    let body = to_bytes(body, MAX_ERROR_BYTES).await.unwrap_or_default();
    let error: Value = serde_json::from_slice(&body).unwrap_or_default();
    if error["error"]["type"] == "insufficient_quota" {
        // As a user without credit gets it.
        head.status = StatusCode::BAD_REQUEST;
    }
    let kind = match head.status.as_u16() {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        400..500 => "invalid_request_error",
        _ => "api_error",
    };
    let message = match error["error"]["type"].as_str() {
        Some("insufficient_quota") => "Your credit balance is too low to access the Anthropic API.",
        _ => error["error"]["message"].as_str().unwrap_or("Internal server error"),
    };
    let error =
        Json(json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_mock" }));
    let mut response = (head.status, error).into_response();
    let own = ["content-type", "content-length"];
    let kept = head.headers.into_iter().filter_map(|(name, value)| Some((name?, value)));
    response.headers_mut().extend(kept.filter(|(name, _)| !own.contains(&name.as_str())));
    response
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn what_the_api_requires_is_required() {
        let mut headers = HeaderMap::new();
        let message = json!([{ "role": "user", "content": "a buoy adrift" }]);
        let whole = json!({ "model": "m", "max_tokens": 9, "messages": message });
        let error =
            |headers: &HeaderMap, body: &Value| chat_request(headers, body.to_string().as_bytes()).unwrap_err().message;
        assert_eq!(error(&headers, &whole), "anthropic-version: header is required");
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        assert!(chat_request(&headers, whole.to_string().as_bytes()).is_ok());
        for (key, value, part) in [
            ("max_tokens", Value::Null, "invalid type: null"),
            ("max_tokens", json!(0), "max_tokens: must be"),
            ("seed", json!(4), "unknown field `seed`"),
            ("temperature", json!(1.5), "range: 0..1"),
            ("stream", json!(true), "not served"),
            ("messages", json!([]), "at least one message"),
            ("messages", json!([{ "role": "system", "content": "x" }]), "Unexpected role \"system\""),
            ("tools", json!([{ "name": "t", "input_schema": { "type": "array" } }]), "no type `object`"),
        ] {
            let mut body = whole.clone();
            body[key] = value;
            let error = error(&headers, &body);
            assert!(error.contains(part), "{key}: {error}");
        }
    }
}
