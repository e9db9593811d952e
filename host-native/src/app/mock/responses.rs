//! The Responses API of OpenAI: `POST /v1/responses`.
//!
//! Requests are translated to those of chat completions, and answered like them. Streams, tools of the server
//! and stored conversations are not served.

use axum::body::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::chat::{Choice, CompletionCall};
use super::error::ApiError;

/// A request. All keys that are served are listed, since the API rejects unknown ones.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "some keys are accepted and change nothing")]
struct ResponseRequest {
    model: String,
    input: Value,
    instructions: Option<String>,
    max_output_tokens: Option<u32>,
    text: Option<TextSettings>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    store: Option<bool>,
    stream: Option<bool>,
    reasoning: Option<Value>,
    #[serde(default)]
    tools: Vec<Tool>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    include: Option<Vec<String>>,
    metadata: Option<Value>,
    user: Option<String>,
}

/// A function that the model may call.
#[derive(Deserialize)]
struct Tool {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    parameters: Option<Value>,
}

#[derive(Deserialize)]
struct TextSettings {
    format: Option<Map<String, Value>>,
}

/// The least `max_output_tokens` that the API takes.
const LEAST_TOKENS: u32 = 16;

/// Translates a request to one of chat completions.
pub(super) fn chat_request(body: &[u8]) -> Result<Bytes, ApiError> {
    let request: ResponseRequest =
        serde_json::from_slice(body).map_err(|error| ApiError::invalid(format!("the body cannot be read: {error}")))?;
    if request.stream == Some(true) {
        return Err(ApiError::field("stream", "streams of responses are not served here"));
    }
    if let Some(limit) = request.max_output_tokens.filter(|limit| *limit < LEAST_TOKENS) {
        let message = format!("`max_output_tokens` is {limit}; expected a value >= {LEAST_TOKENS}");
        return Err(ApiError::field("max_output_tokens", message));
    }
    let messages = match request.input {
        Value::String(text) => vec![json!({ "role": "user", "content": text })],
        Value::Array(items) => chat_messages(items)?,
        _ => return Err(ApiError::field("input", "`input` is neither a text nor a list of messages")),
    };
    let instructions = request.instructions.map(|text| json!({ "role": "system", "content": text }));
    let mut chat = Map::new();
    chat.insert("model".to_string(), request.model.into());
    chat.insert("messages".to_string(), instructions.into_iter().chain(messages).collect());
    if let Some(tool) = request.tools.iter().find(|tool| tool.kind != "function") {
        return Err(ApiError::field("tools", format!("tools of the type `{}` are not served here", tool.kind)));
    }
    let tool = |tool: Tool| json!({ "function": { "name": tool.name, "parameters": tool.parameters } });
    chat.insert("tools".to_string(), request.tools.into_iter().map(tool).collect());
    chat.extend(request.tool_choice.map(|choice| {
        let name = choice.get("name").cloned();
        ("tool_choice".to_string(), name.map_or(choice, |name| json!({ "function": { "name": name } })))
    }));
    chat.extend(request.max_output_tokens.map(|limit| ("max_tokens".to_string(), limit.into())));
    if let Some(mut format) = request.text.and_then(|text| text.format) {
        let kind = format.remove("type").unwrap_or_default();
        chat.insert("response_format".to_string(), json!({ "type": kind, "json_schema": format }));
    }
    Ok(Bytes::from(Value::Object(chat).to_string()))
}

/// Returns the messages of chat completions for the items of a conversation. Calls that follow each other are
/// those of one answer.
fn chat_messages(items: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    let mut messages: Vec<Value> = Vec::new();
    for mut item in items {
        match item["type"].as_str() {
            Some("function_call") => {
                let function = json!({ "name": item["name"], "arguments": item["arguments"] });
                let call = json!({ "id": item["call_id"], "type": "function", "function": function });
                match messages.last_mut().and_then(|last| last.get_mut("tool_calls")).and_then(Value::as_array_mut) {
                    Some(calls) => calls.push(call),
                    None => messages.push(json!({ "role": "assistant", "tool_calls": [call] })),
                }
            }
            Some("function_call_output") => {
                let (id, output) = (item["call_id"].take(), item["output"].take());
                messages.push(json!({ "role": "tool", "tool_call_id": id, "content": output }));
            }
            Some("reasoning") => {}
            None | Some("message") => messages.push(item),
            Some(other) => {
                return Err(ApiError::field("input", format!("items of the type `{other}` are not served here")));
            }
        }
    }
    Ok(messages)
}

impl CompletionCall {
    /// Returns the response of a call of the Responses API.
    pub(super) fn response(&self, number: u64, created: u64) -> Value {
        let choice = self.choices.first();
        let incomplete = choice.and_then(|choice| match choice.finish_reason {
            "length" => Some("max_output_tokens"),
            "content_filter" => Some("content_filter"),
            _ => None,
        });
        let (input, output) = self.tokens;
        json!({
            "id": format!("resp_mock_{number}"),
            "object": "response",
            "created_at": created,
            "status": if incomplete.is_some() { "incomplete" } else { "completed" },
            "error": null,
            "incomplete_details": incomplete.map(|reason| json!({ "reason": reason })),
            "model": self.model,
            "output": choice.map_or_else(Vec::new, |choice| items(choice, number)),
            "usage": {
                "input_tokens": input,
                "input_tokens_details": { "cached_tokens": 0 },
                "output_tokens": output,
                "output_tokens_details": { "reasoning_tokens": self.reasoning_tokens() },
                "total_tokens": input.saturating_add(output),
            },
        })
    }
}

/// Returns the items of an answer.
fn items(choice: &Choice, number: u64) -> Vec<Value> {
    let reasoning = choice.reasoning.map(|(_, text)| {
        let summary = [json!({ "type": "summary_text", "text": text })];
        json!({ "id": format!("rs_mock_{number}"), "type": "reasoning", "summary": summary })
    });
    if let Some(tool) = &choice.tool {
        let (id, call_id) = (format!("fc_mock_{number}"), format!("call_mock_{number}"));
        let call = json!({
            "id": id, "type": "function_call", "status": "completed", "call_id": call_id,
            "name": tool, "arguments": choice.text,
        });
        return reasoning.into_iter().chain([call]).collect();
    }
    let part = match choice.refusal {
        Some(refusal) => json!({ "type": "refusal", "refusal": refusal }),
        None => json!({ "type": "output_text", "text": choice.text, "annotations": [] }),
    };
    let id = format!("msg_mock_{number}");
    let message = json!({ "id": id, "type": "message", "status": "completed", "role": "assistant", "content": [part] });
    reasoning.into_iter().chain([message]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_api_rejects_is_rejected() {
        let error = |body: Value| chat_request(body.to_string().as_bytes()).unwrap_err().message;
        assert!(error(json!({ "model": "m", "input": "x", "seed": 1 })).contains("unknown field `seed`"));
        assert!(error(json!({ "model": "m", "input": "x", "stop": ["a"] })).contains("unknown field `stop`"));
        assert!(error(json!({ "model": "m", "input": "x", "max_output_tokens": 1 })).contains(">= 16"));
        assert!(error(json!({ "model": "m", "input": 3 })).contains("neither a text nor a list"));
        assert!(error(json!({ "model": "m", "input": "x", "stream": true })).contains("not served"));
    }
}
