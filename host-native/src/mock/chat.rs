//! `POST /v1/chat/completions` and `POST /v1/completions`: what is asked, and what is answered.
//!
//! The text is [`answer`](super::answer)'s, or a JSON value that fits the schema when one is asked for. `n` and the token
//! limits are honoured; sampling settings, `stop`, `user` and tools are accepted and change nothing.

use axum::body::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{self, Choice};
use super::refusal::Refusal;
use super::reply::{Form, Reply};
use super::schema;
use super::stream::{Frames, pieces};

/// The most choices of one call.
const MOST_CHOICES: u32 = 128;

/// One call as it was understood, with its answer.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) model: String,
    /// Tokens of the prompt and of the answer.
    pub(super) tokens: (u32, u32),
    protocol: Protocol,
    choices: Vec<Choice>,
    stream: bool,
    include_usage: bool,
}

/// The two forms of completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Chat,
    Text,
}

/// The parts of a request that both forms share.
#[derive(Debug, Deserialize)]
struct Settings {
    model: String,
    n: Option<u32>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    response_format: Option<ResponseFormat>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat {
    Text,
    JsonObject,
    JsonSchema { json_schema: NamedSchema },
}

#[derive(Debug, Deserialize)]
struct NamedSchema {
    schema: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct ChatBody {
    messages: Vec<Message>,
    #[serde(flatten)]
    settings: Settings,
}

#[derive(Debug, Deserialize)]
struct Message {
    content: Option<Content>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`content` is neither a text nor a list of parts")]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

/// A part of a message. Only text says anything to a mock.
#[derive(Debug, Deserialize)]
struct Part {
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
struct TextBody {
    prompt: Option<Prompt>,
    #[serde(flatten)]
    settings: Settings,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`prompt` is neither a text nor a list of texts or tokens")]
enum Prompt {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

impl Content {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => {
                let texts: Vec<&str> = parts.iter().filter_map(|part| part.text.as_deref()).collect();
                texts.join("\n")
            }
        }
    }
}

impl Prompt {
    fn texts(self) -> Vec<String> {
        let of_tokens = |tokens: Vec<u32>| tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        match self {
            Self::Text(text) => vec![text],
            Self::Texts(texts) => texts,
            Self::Tokens(tokens) => vec![of_tokens(tokens)],
            Self::TokenLists(lists) => lists.into_iter().map(of_tokens).collect(),
        }
    }
}

impl Prepared {
    /// Reads a request and makes its answer.
    pub(super) fn read(protocol: Protocol, body: &[u8]) -> Result<Self, Refusal> {
        let unreadable = |error: serde_json::Error| Refusal::invalid(format!("the body cannot be read: {error}"));
        let (prompts, settings) = match protocol {
            Protocol::Chat => {
                let body: ChatBody = serde_json::from_slice(body).map_err(unreadable)?;
                if body.messages.is_empty() {
                    return Err(Refusal::field("messages", "`messages` is empty; expected at least one"));
                }
                let texts = body.messages.iter().filter_map(|message| message.content.as_ref().map(Content::text));
                (vec![texts.collect::<Vec<_>>().join("\n")], body.settings)
            }
            Protocol::Text => {
                let body: TextBody = serde_json::from_slice(body).map_err(unreadable)?;
                (body.prompt.map_or_else(|| vec![String::new()], Prompt::texts), body.settings)
            }
        };
        let n = settings.n.unwrap_or(1);
        let count = u64::from(n).saturating_mul(prompts.len() as u64);
        if !(1..=u64::from(MOST_CHOICES)).contains(&count) {
            return Err(Refusal::field("n", format!("{count} choices are asked for; expected 1 to {MOST_CHOICES}")));
        }
        let mut choices = Vec::new();
        for prompt in &prompts {
            for number in 0..n {
                choices.push(settings.choice(prompt, number)?);
            }
        }
        let sum = |of: &mut dyn Iterator<Item = u32>| of.fold(0, u32::saturating_add);
        let asked = sum(&mut prompts.iter().map(|prompt| answer::tokens(prompt)));
        let answered = sum(&mut choices.iter().map(|choice| answer::tokens(&choice.text)));
        Ok(Self {
            model: settings.model,
            tokens: (asked, answered),
            protocol,
            choices,
            stream: settings.stream.unwrap_or(false),
            include_usage: settings.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        })
    }

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

    fn whole(&self, number: u64, created: u64) -> Value {
        let choices = self.choices.iter().zip(0_u32..).map(|(choice, index)| match self.protocol {
            Protocol::Chat => json!({
                "index": index,
                "message": { "role": "assistant", "content": choice.text, "refusal": null },
                "logprobs": null,
                "finish_reason": finish_reason(choice),
            }),
            Protocol::Text => json!({
                "index": index,
                "text": choice.text,
                "logprobs": null,
                "finish_reason": finish_reason(choice),
            }),
        });
        let mut body = self.head(number, created, false);
        body["choices"] = choices.collect();
        body["usage"] = self.usage();
        body
    }

    fn frames(&self, number: u64, created: u64) -> Frames {
        let chunk = |choices: Value| {
            let mut chunk = self.head(number, created, true);
            chunk["choices"] = choices;
            if self.include_usage {
                chunk["usage"] = Value::Null;
            }
            chunk
        };
        let indexed = || self.choices.iter().zip(0_u32..);
        let opening = match self.protocol {
            Protocol::Chat => {
                let role = json!({ "role": "assistant", "content": "", "refusal": null });
                indexed().map(|(_, index)| chunk(json!([delta(index, &role, None)]))).collect()
            }
            Protocol::Text => Vec::new(),
        };
        let texts: Vec<Vec<String>> = self.choices.iter().map(|choice| pieces(&choice.text)).collect();
        let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
        let mut tokens = Vec::new();
        for nth in 0..longest {
            for (text, index) in texts.iter().zip(0_u32..) {
                let Some(piece) = text.get(nth) else { continue };
                tokens.push(chunk(json!([match self.protocol {
                    Protocol::Chat => delta(index, &json!({ "content": piece }), None),
                    Protocol::Text => text_delta(index, piece, None),
                }])));
            }
        }
        let mut closing: Vec<Value> = indexed()
            .map(|(choice, index)| match self.protocol {
                Protocol::Chat => chunk(json!([delta(index, &json!({}), Some(finish_reason(choice)))])),
                Protocol::Text => chunk(json!([text_delta(index, "", Some(finish_reason(choice)))])),
            })
            .collect();
        if self.include_usage {
            let mut usage = chunk(json!([]));
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

impl Settings {
    fn choice(&self, prompt: &str, number: u32) -> Result<Choice, Refusal> {
        let free = json!({ "type": "object", "properties": { "answer": {} }, "required": ["answer"] });
        let schema = match &self.response_format {
            None | Some(ResponseFormat::Text) => {
                return Ok(answer::choice(prompt, number, self.max_completion_tokens.or(self.max_tokens)));
            }
            Some(ResponseFormat::JsonObject) => &free,
            Some(ResponseFormat::JsonSchema { json_schema }) => json_schema.schema.as_ref().unwrap_or(&free),
        };
        let seed = if number == 0 { prompt.to_string() } else { format!("{prompt}\0{number}") };
        let value = schema::instance(schema, &seed)
            .map_err(|error| Refusal::field("response_format", format!("the schema cannot be met: {error}")))?;
        Ok(Choice { text: value.to_string(), is_cut: false })
    }
}

fn finish_reason(choice: &Choice) -> &'static str {
    if choice.is_cut { "length" } else { "stop" }
}

fn delta(index: u32, delta: &Value, finish_reason: Option<&str>) -> Value {
    json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": finish_reason })
}

fn text_delta(index: u32, text: &str, finish_reason: Option<&str>) -> Value {
    json!({ "index": index, "text": text, "logprobs": null, "finish_reason": finish_reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &Value) -> Result<Prepared, Refusal> {
        Prepared::read(Protocol::Chat, body.to_string().as_bytes())
    }

    fn said(body: &Value) -> Vec<String> {
        read(body).unwrap().choices.into_iter().map(|choice| choice.text).collect()
    }

    #[test]
    fn parts_of_a_message_say_what_one_text_says_and_other_parts_say_nothing() {
        let plain = json!({ "model": "m", "messages": [{ "role": "user", "content": "a buoy\nadrift" }] });
        let parts = json!({ "model": "m", "messages": [{ "role": "user", "content": [
            { "type": "text", "text": "a buoy" },
            { "type": "image_url", "image_url": { "url": "data:," } },
            { "type": "text", "text": "adrift" },
        ] }] });
        assert_eq!(said(&parts), said(&plain));
    }

    #[test]
    fn what_a_mock_has_no_use_for_is_accepted() {
        let body = json!({
            "model": "m", "temperature": 0.3, "top_p": 1, "stop": ["x"], "seed": 4, "user": "u", "logit_bias": {},
            "tools": [{ "type": "function", "function": { "name": "f", "parameters": {} } }], "tool_choice": "auto",
            "max_tokens": null, "stream": null, "stream_options": null, "response_format": { "type": "text" },
            "messages": [
                { "role": "user", "content": "a buoy" },
                { "role": "assistant", "content": null, "tool_calls": [] },
                { "role": "tool", "content": "adrift", "tool_call_id": "1" },
            ],
        });
        assert_eq!(said(&body), [answer::answer("a buoy\nadrift", None)]);
    }

    #[test]
    fn an_answer_is_cut_at_the_token_limit_and_says_so() {
        let messages = json!([{ "content": "a buoy adrift" }]);
        for name in ["max_tokens", "max_completion_tokens"] {
            let prepared = read(&json!({ "model": "m", "messages": messages, name: 2 })).unwrap();
            let body = prepared.whole(1, 0);
            assert_eq!(body["choices"][0]["finish_reason"], "length");
            let text = body["choices"][0]["message"]["content"].as_str().unwrap();
            assert_eq!(text.split(' ').count(), 2);
        }
    }

    #[test]
    fn a_stream_put_together_says_what_the_whole_answer_says() {
        for n in [1_u64, 3] {
            let body = json!({ "model": "m", "n": n, "messages": [{ "content": "a buoy adrift" }],
                "stream_options": { "include_usage": true } });
            let prepared = read(&body).unwrap();
            let mut texts = vec![String::new(); usize::try_from(n).unwrap()];
            let frames = prepared.frames(1, 0);
            for chunk in frames.opening.iter().chain(&frames.tokens).chain(&frames.closing) {
                let Some(choice) = chunk["choices"].get(0) else { continue };
                let index = usize::try_from(choice["index"].as_u64().unwrap()).unwrap();
                texts[index].push_str(choice["delta"]["content"].as_str().unwrap_or_default());
            }
            let whole = prepared.whole(1, 0);
            for (index, text) in texts.iter().enumerate() {
                assert_eq!(whole["choices"][index]["message"]["content"], *text);
            }
            assert_eq!(frames.opening[0]["choices"][0]["delta"]["role"], "assistant");
            assert_eq!(frames.closing.last().unwrap()["usage"], whole["usage"]);
            assert_eq!(frames.tokens[0]["usage"], Value::Null);
        }
    }

    #[test]
    fn plain_completions_take_every_form_of_prompt() {
        for (prompt, choices) in [
            (json!("a buoy"), 1),
            (json!(["a buoy", "a lamp"]), 2),
            (json!([1, 2, 3]), 1),
            (json!([[1, 2], [3]]), 2),
            (Value::Null, 1),
        ] {
            let body = json!({ "model": "m", "prompt": prompt });
            let prepared = Prepared::read(Protocol::Text, body.to_string().as_bytes()).unwrap();
            assert_eq!(prepared.whole(1, 0)["choices"].as_array().unwrap().len(), choices, "{prompt}");
        }
    }

    #[test]
    fn a_request_that_asks_for_too_much_or_nothing_is_refused_at_its_field() {
        for (body, param) in [
            (json!({ "model": "m", "messages": [] }), Some("messages")),
            (json!({ "model": "m", "messages": [{ "content": "x" }], "n": 129 }), Some("n")),
            (json!({ "model": "m", "messages": [{ "content": "x" }], "n": 0 }), Some("n")),
            (json!({ "messages": [{ "content": "x" }] }), None),
            (json!({ "model": "m", "messages": [{ "content": 3 }] }), None),
        ] {
            let refusal = read(&body).unwrap_err();
            assert_eq!(refusal.status, 400);
            assert_eq!(refusal.param(), param, "{body}");
        }
    }
}
