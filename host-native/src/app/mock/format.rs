//! How completions are written: as one JSON body, or as the chunks of a stream.

use axum::body::Bytes;
use serde_json::{Value, json};

use super::chat::{Prepared, Protocol, Said};
use super::reply::{Form, Reply};
use super::stream::{Frames, pieces};

impl Prepared {
    /// The answer in its form. `number` tells it from others, `created` is in seconds since 1970.
    pub(super) fn reply(self, number: u64, created: u64) -> Reply {
        let tokens = self.tokens.1;
        let form = if self.stream {
            Form::Stream(self.frames(number, created))
        } else {
            Form::Whole(Bytes::from(self.whole(number, created).to_string()))
        };
        Reply { form, tokens }
    }

    pub(super) fn whole(&self, number: u64, created: u64) -> Value {
        let choices = self.choices.iter().zip(0_u32..).map(|(choice, index)| match self.protocol {
            Protocol::Chat => json!({
                "index": index,
                "message": message(choice, number, index),
                "logprobs": null,
                "finish_reason": choice.finish_reason,
            }),
            Protocol::Text => text_delta(index, &choice.text, Some(choice.finish_reason)),
        });
        let mut body = self.head(number, created, false);
        body["choices"] = choices.collect();
        body["usage"] = self.usage();
        body
    }

    pub(super) fn frames(&self, number: u64, created: u64) -> Frames {
        let chunk = |choice: Option<Value>| {
            let mut chunk = self.head(number, created, true);
            chunk["choices"] = choice.into_iter().collect();
            if self.include_usage {
                chunk["usage"] = Value::Null;
            }
            chunk
        };
        let indexed = || self.choices.iter().zip(0_u32..);
        let opening = match self.protocol {
            Protocol::Chat => {
                indexed().map(|(said, index)| chunk(Some(delta(index, &opening(said, number, index), None)))).collect()
            }
            Protocol::Text => Vec::new(),
        };
        let texts: Vec<Vec<String>> = self.choices.iter().map(|choice| pieces(&choice.text)).collect();
        let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
        let mut tokens = Vec::new();
        for nth in 0..longest {
            for (text, (said, index)) in texts.iter().zip(indexed()) {
                let Some(piece) = text.get(nth) else { continue };
                tokens.push(chunk(Some(match (self.protocol, &said.tool) {
                    (Protocol::Text, _) => text_delta(index, piece, None),
                    (Protocol::Chat, None) => delta(index, &json!({ "content": piece }), None),
                    (Protocol::Chat, Some(_)) => {
                        let call = json!({ "index": 0, "function": { "arguments": piece } });
                        delta(index, &json!({ "tool_calls": [call] }), None)
                    }
                })));
            }
        }
        let mut closing: Vec<Value> = indexed()
            .map(|(said, index)| match self.protocol {
                Protocol::Chat => chunk(Some(delta(index, &json!({}), Some(said.finish_reason)))),
                Protocol::Text => chunk(Some(text_delta(index, "", Some(said.finish_reason)))),
            })
            .collect();
        if self.include_usage {
            let mut usage = chunk(None);
            usage["usage"] = self.usage();
            closing.push(usage);
        }
        Frames { opening, tokens, closing }
    }

    fn head(&self, number: u64, created: u64, is_chunk: bool) -> Value {
        let (prefix, object) = match (self.protocol, is_chunk) {
            (Protocol::Chat, false) => ("chatcmpl", "chat.completion"),
            (Protocol::Chat, true) => ("chatcmpl", "chat.completion.chunk"),
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
        json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt.saturating_add(completion),
        })
    }
}

/// The message of a whole chat completion.
fn message(said: &Said, number: u64, index: u32) -> Value {
    match &said.tool {
        None => json!({ "role": "assistant", "content": said.text, "refusal": null }),
        Some(tool) => json!({
            "role": "assistant",
            "content": null,
            "refusal": null,
            "tool_calls": [{
                "id": call_id(number, index),
                "type": "function",
                "function": { "name": tool, "arguments": said.text },
            }],
        }),
    }
}

/// What the first chunk of a choice says.
fn opening(said: &Said, number: u64, index: u32) -> Value {
    match &said.tool {
        None => json!({ "role": "assistant", "content": "", "refusal": null }),
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

fn delta(index: u32, delta: &Value, finish_reason: Option<&str>) -> Value {
    json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": finish_reason })
}

fn text_delta(index: u32, text: &str, finish_reason: Option<&str>) -> Value {
    json!({ "index": index, "text": text, "logprobs": null, "finish_reason": finish_reason })
}
