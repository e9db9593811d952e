//! Writes completions as a JSON body, or as the chunks of a stream.

use axum::body::Bytes;
use serde_json::{Value, json};

use super::chat::{Choice, CompletionCall};
use super::protocol::Protocol;
use super::reply::{Reply, ReplyBody};
use super::stream::{StreamEvents, split_pieces};

impl CompletionCall {
    /// Returns the response of the call. `number` becomes part of its id; `created` is in seconds since the
    /// Unix epoch.
    pub(super) fn reply(self, number: u64, created: u64) -> Reply {
        let tokens = self.tokens.1;
        let body = if self.stream {
            ReplyBody::Stream(self.events(number, created))
        } else {
            let body = match self.protocol {
                Protocol::Messages => self.message(number),
                Protocol::Responses => self.response(number, created),
                Protocol::Chat | Protocol::Text => self.whole(number, created),
            };
            ReplyBody::Complete(Bytes::from(body.to_string()))
        };
        Reply { body, tokens }
    }

    pub(super) fn whole(&self, number: u64, created: u64) -> Value {
        let choices = self.choices.iter().zip(0_u32..).map(|(choice, index)| match self.protocol {
            Protocol::Chat | Protocol::Messages | Protocol::Responses => json!({
                "index": index,
                "message": message(choice, number, index),
                "logprobs": null,
                "finish_reason": choice.finish_reason,
            }),
            Protocol::Text => text_choice(index, &choice.text, Some(choice.finish_reason)),
        });
        let mut body = self.envelope(number, created, false);
        body["choices"] = choices.collect();
        body["usage"] = self.usage();
        body
    }

    pub(super) fn events(&self, number: u64, created: u64) -> StreamEvents {
        let chunk = |choice: Option<Value>| {
            let mut chunk = self.envelope(number, created, true);
            chunk["choices"] = choice.into_iter().collect();
            if self.include_usage {
                chunk["usage"] = Value::Null;
            }
            chunk
        };
        let indexed = || self.choices.iter().zip(0_u32..);
        let opening = match self.protocol {
            Protocol::Chat | Protocol::Messages | Protocol::Responses => indexed()
                .map(|(choice, index)| chunk(Some(chat_choice(index, &opening_delta(choice, number, index), None))))
                .collect(),
            Protocol::Text => Vec::new(),
        };
        let texts: Vec<Vec<String>> = self.choices.iter().map(|choice| split_pieces(&choice.text)).collect();
        let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
        let mut tokens = Vec::new();
        for nth in 0..longest {
            for (text, (choice, index)) in texts.iter().zip(indexed()) {
                let Some(piece) = text.get(nth) else { continue };
                tokens.push(chunk(Some(match (self.protocol, &choice.tool) {
                    (Protocol::Text, _) => text_choice(index, piece, None),
                    (Protocol::Chat | Protocol::Messages | Protocol::Responses, None) => {
                        chat_choice(index, &json!({ "content": piece }), None)
                    }
                    (Protocol::Chat | Protocol::Messages | Protocol::Responses, Some(_)) => {
                        let call = json!({ "index": 0, "function": { "arguments": piece } });
                        chat_choice(index, &json!({ "tool_calls": [call] }), None)
                    }
                })));
            }
        }
        let mut closing: Vec<Value> = indexed()
            .map(|(choice, index)| match self.protocol {
                Protocol::Chat | Protocol::Messages | Protocol::Responses => {
                    chunk(Some(chat_choice(index, &json!({}), Some(choice.finish_reason))))
                }
                Protocol::Text => chunk(Some(text_choice(index, "", Some(choice.finish_reason)))),
            })
            .collect();
        if self.include_usage {
            let mut usage = chunk(None);
            usage["usage"] = self.usage();
            closing.push(usage);
        }
        StreamEvents { opening, tokens, closing }
    }

    fn envelope(&self, number: u64, created: u64, is_chunk: bool) -> Value {
        let (prefix, object) = match (self.protocol, is_chunk) {
            (Protocol::Chat | Protocol::Messages | Protocol::Responses, false) => ("chatcmpl", "chat.completion"),
            (Protocol::Chat | Protocol::Messages | Protocol::Responses, true) => ("chatcmpl", "chat.completion.chunk"),
            (Protocol::Text, _) => ("cmpl", "text_completion"),
        };
        json!({
            "id": format!("{prefix}-mock-{number}"),
            "object": object,
            "created": created,
            "model": self.model,
            "system_fingerprint": "fp_mock",
        })
    }

    fn usage(&self) -> Value {
        let (prompt, completion) = self.tokens;
        let mut usage = json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt.saturating_add(completion),
        });
        if self.choices.iter().any(|choice| choice.reasoning.is_some()) {
            usage["completion_tokens_details"] = json!({ "reasoning_tokens": self.reasoning_tokens() });
        }
        usage
    }
}

/// Returns the message of a chat completion that is not streamed.
fn message(choice: &Choice, number: u64, index: u32) -> Value {
    match &choice.tool {
        None => {
            let content = if choice.refusal.is_some() { Value::Null } else { Value::from(choice.text.as_str()) };
            let mut message = json!({ "role": "assistant", "content": content, "refusal": choice.refusal });
            if let Some((field, reasoning)) = choice.reasoning {
                message[field] = reasoning.into();
            }
            message
        }
        Some(tool) => json!({
            "role": "assistant",
            "content": null,
            "refusal": null,
            "tool_calls": [{
                "id": call_id(number, index),
                "type": "function",
                "function": { "name": tool, "arguments": choice.text },
            }],
        }),
    }
}

/// Returns the delta of a choice's first chunk.
fn opening_delta(choice: &Choice, number: u64, index: u32) -> Value {
    match &choice.tool {
        None => {
            let mut delta = json!({ "role": "assistant", "content": "", "refusal": choice.refusal });
            if let Some((field, reasoning)) = choice.reasoning {
                delta[field] = reasoning.into();
            }
            delta
        }
        Some(tool) => json!({
            "role": "assistant",
            "content": null,
            "tool_calls": [{
                "index": 0,
                "id": call_id(number, index),
                "type": "function",
                "function": { "name": tool, "arguments": "" },
            }],
        }),
    }
}

fn call_id(number: u64, index: u32) -> String {
    format!("call-mock-{number}-{index}")
}

fn chat_choice(index: u32, delta: &Value, finish_reason: Option<&str>) -> Value {
    json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": finish_reason })
}

fn text_choice(index: u32, text: &str, finish_reason: Option<&str>) -> Value {
    json!({ "index": index, "text": text, "logprobs": null, "finish_reason": finish_reason })
}
