//! The Responses API of OpenAI: how a [`Conversation`] is sent, and how its answers are read.
//!
//! | of a conversation | in the request |
//! | --- | --- |
//! | messages | `input`, with parts of the type `input_image` for images |
//! | `max_tokens` | `max_output_tokens` |
//! | the format of the answer | `text.format` |
//! | tools and their calls | see [`tool_calls`](super::tool_calls) |
//! | | `store = false`: the provider keeps no copy, unless the file says so |
//!
//! | `status` and `incomplete_details.reason` | result |
//! | --- | --- |
//! | `incomplete`, `max_output_tokens` | the answer is truncated |
//! | `incomplete`, `content_filter` | [`CallError::ContentFiltered`] |
//! | `failed`, `cancelled` | the error that the answer states, else [`CallError::Unreadable`] |
//! | any other; a part of the type `refusal` is [`CallError::Refused`] | the answer is complete |
//!
//! A message with the `phase` `commentary` says what the model does before it answers. It is no part of the
//! answer, unless there is no other message.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::CallOutput;
use super::answer::{CallError, error_in_success, excerpt, unreadable};
use super::completion::ChatAnswer;
use super::conversation::Conversation;
use super::media::Media;
use super::reasoning::{Content, SplitText};
use super::tool_calls::{responses_items, responses_tools, responses_turn};
use crate::app::token_counts::TokenCounts;

/// The name that the API has for the token limit.
pub(super) const MAX_OUTPUT_TOKENS: &str = "max_output_tokens";

/// Returns the body of a request. `extra_body` holds the keys that every request of the model has.
pub(super) fn body(model: &str, conversation: &Conversation, extra_body: &Map<String, Value>) -> Value {
    let Conversation { messages, temperature, top_p, max_tokens, response_format, tools, extra, .. } = conversation;
    let mut body = Map::from_iter([("store".to_string(), false.into())]);
    body.extend(extra_body.clone());
    body.extend(extra.clone());
    body.insert("model".to_string(), model.into());
    let input = messages.iter().flat_map(|message| {
        responses_items(message).unwrap_or_else(|| vec![message.with_parts("input_text", Media::responses_part)])
    });
    body.insert("input".to_string(), input.collect());
    if !tools.is_empty() {
        body.insert("tools".to_string(), responses_tools(tools));
    }
    let options = [
        (MAX_OUTPUT_TOKENS, max_tokens.map(Value::from)),
        ("temperature", temperature.map(Value::from)),
        ("top_p", top_p.map(Value::from)),
    ];
    body.extend(options.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))));
    if let Some(format) = response_format {
        // Other settings of the text, such as its verbosity, stay.
        let text = body.entry("text").or_insert_with(|| json!({}));
        text["format"] = flat_format(format);
    }
    Value::Object(body)
}

/// Returns a `response_format` in the form of this API, which has the keys of `json_schema` beside `type`.
fn flat_format(format: &Value) -> Value {
    let mut flat = format["json_schema"].as_object().cloned().unwrap_or_default();
    flat.insert("type".to_string(), format["type"].clone());
    Value::Object(flat)
}

/// The fields of an answer that are used.
#[derive(Deserialize)]
struct ResponseBody {
    output: Vec<Value>,
    #[serde(default)]
    status: Value,
    #[serde(default)]
    incomplete_details: Value,
    #[serde(default)]
    usage: TokenCounts,
}

/// Reads an answer. Calls of tools are read if the request has tools.
pub(crate) fn read(body: &[u8], has_tools: bool) -> Result<CallOutput<ChatAnswer>, CallError> {
    let what = "a response";
    let response: ResponseBody = serde_json::from_slice(body).map_err(|error| unreadable(what, &error, body))?;
    let usage = response.usage.known();
    let status = response.status.as_str().unwrap_or_default();
    if matches!(status, "failed" | "cancelled") {
        let detail = format!("its status is {status}");
        return Err(error_in_success(body).unwrap_or(CallError::Unreadable { what: "complete", detail, usage }));
    }
    let (mut text, mut commentary, mut refusal, mut reasoning) = (String::new(), String::new(), None, Vec::new());
    for item in &response.output {
        let parts = |key: &str| item[key].as_array().map_or(&[][..], Vec::as_slice).iter();
        match item["type"].as_str() {
            Some("message") => parts("content").for_each(|part| {
                if part["type"] == "refusal" {
                    refusal = Some(excerpt(part["refusal"].as_str().unwrap_or_default()));
                } else {
                    let text = if item["phase"] == "commentary" { &mut commentary } else { &mut text };
                    text.push_str(part["text"].as_str().unwrap_or_default());
                }
            }),
            // The summaries of closed models, and the whole reasoning of open ones.
            Some("reasoning") => {
                let texts = parts("summary").chain(parts("content")).filter_map(|part| part["text"].as_str());
                reasoning.extend(texts.map(|text| text.trim().to_string()).filter(|text| !text.is_empty()));
            }
            _ => {}
        }
    }
    let reason = response.incomplete_details["reason"].as_str().unwrap_or_default();
    let is_incomplete = status == "incomplete";
    if is_incomplete && reason == "content_filter" {
        return Err(CallError::ContentFiltered { detail: refusal.unwrap_or_default(), usage });
    }
    if let Some(detail) = refusal {
        return Err(CallError::Refused { detail, usage });
    }
    if text.is_empty() && !is_incomplete {
        text = commentary;
    }
    let SplitText { text, reasoning: more } = Content::Text(text).split(!reasoning.is_empty(), None);
    reasoning.extend(more);
    let turn = if has_tools && !is_incomplete { responses_turn(&response.output) } else { None };
    if text.is_empty() && !is_incomplete && turn.is_none() {
        let detail = format!("it has no text (status {})", excerpt(status));
        return Err(CallError::Malformed { what, detail, usage });
    }
    let reasoning = (!reasoning.is_empty()).then(|| reasoning.join("\n\n"));
    Ok(CallOutput { value: ChatAnswer { text, reasoning, is_truncated: is_incomplete, turn }, usage })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::provider::conversation::{Message, Role};

    #[test]
    fn a_conversation_is_sent_as_input_with_a_flat_format() {
        let message = Message::text;
        let schema = json!({ "type": "object" });
        let conversation = Conversation {
            messages: vec![message(Role::System, "Be brief."), message(Role::User, "Why?")],
            max_tokens: Some(50),
            response_format: Some(
                json!({ "type": "json_schema", "json_schema": { "name": "grade", "schema": schema, "strict": true } }),
            ),
            ..Conversation::default()
        };
        let extra = json!({ "reasoning": { "effort": "low" }, "text": { "verbosity": "low" } });
        assert_eq!(
            body("gpt", &conversation, extra.as_object().unwrap()),
            json!({
                "model": "gpt", "store": false, "max_output_tokens": 50, "reasoning": { "effort": "low" },
                "input": [{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Why?" }],
                "text": { "verbosity": "low",
                    "format": { "type": "json_schema", "name": "grade", "schema": schema, "strict": true } },
            })
        );
    }

    #[test]
    fn a_response_without_text_is_malformed() {
        let read = read(br#"{"status":"completed","output":[]}"#, false);
        assert!(matches!(read, Err(CallError::Malformed { .. })));
    }
}
