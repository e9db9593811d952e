//! `POST /v1/chat/completions` and `POST /v1/completions`: what is asked, and what is said.
//!
//! The text is [`answer`](super::answer)'s; a JSON value that fits when a schema is asked for; and a call of a tool, with
//! arguments that fit, when `tool_choice` asks for one. `n` and the token limits are honoured; sampling settings, `stop`,
//! `user` and tools that may be called or not are accepted and change nothing.

use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{self, Choice};
use super::refusal::Refusal;
use super::schema;

/// The most choices of one call.
const MOST_CHOICES: u32 = 128;

/// One call as it was understood, with its answer.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) model: String,
    /// Tokens of the prompt and of the answer.
    pub(super) tokens: (u32, u32),
    pub(super) protocol: Protocol,
    pub(super) choices: Vec<Said>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
}

/// One choice of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// What it says, or the arguments of the tool's call.
    pub(super) text: String,
    /// The tool that is called.
    pub(super) tool: Option<String>,
    pub(super) finish_reason: &'static str,
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
    tools: Option<Vec<Tool>>,
    tool_choice: Option<ToolChoice>,
}

#[derive(Debug, Deserialize)]
struct Tool {
    function: Option<Function>,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: String,
    parameters: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ToolChoice {
    /// `none`, `auto` or `required`.
    Word(String),
    Named {
        function: Named,
    },
    /// Forms that a mock has no use for.
    #[allow(dead_code, reason = "it is read and not looked at")]
    Other(Value),
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
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
}

impl Settings {
    fn choice(&self, prompt: &str, number: u32) -> Result<Said, Refusal> {
        let seed = if number == 0 { prompt.to_string() } else { format!("{prompt}\0{number}") };
        if let Some(tool) = self.tool()? {
            let text = fitting(tool.parameters.as_ref().unwrap_or(&json!({ "type": "object" })), &seed, "tools")?;
            return Ok(Said { text, tool: Some(tool.name.clone()), finish_reason: "tool_calls" });
        }
        let free = json!({ "type": "object", "properties": { "answer": {} }, "required": ["answer"] });
        let schema = match &self.response_format {
            None | Some(ResponseFormat::Text) => {
                let most = self.max_completion_tokens.or(self.max_tokens);
                let Choice { text, is_cut } = answer::choice(prompt, number, most);
                return Ok(Said { text, tool: None, finish_reason: if is_cut { "length" } else { "stop" } });
            }
            Some(ResponseFormat::JsonObject) => &free,
            Some(ResponseFormat::JsonSchema { json_schema }) => json_schema.schema.as_ref().unwrap_or(&free),
        };
        Ok(Said { text: fitting(schema, &seed, "response_format")?, tool: None, finish_reason: "stop" })
    }

    /// The tool that has to be called.
    fn tool(&self) -> Result<Option<&Function>, Refusal> {
        let mut functions = self.tools.iter().flatten().filter_map(|tool| tool.function.as_ref());
        match &self.tool_choice {
            Some(ToolChoice::Word(word)) if word == "required" => Ok(functions.next()),
            Some(ToolChoice::Named { function: Named { name } }) => {
                let found = functions.find(|function| function.name == *name);
                let message = || format!("`tool_choice` asks for `{name}`, which is not among the tools");
                found.map(Some).ok_or_else(|| Refusal::field("tool_choice", message()))
            }
            _ => Ok(None),
        }
    }
}

/// JSON that fits a schema of the request's field `param`.
fn fitting(schema: &Value, seed: &str, param: &str) -> Result<String, Refusal> {
    let value = schema::instance(schema, seed)
        .map_err(|error| Refusal::field(param, format!("the schema cannot be met: {error}")))?;
    Ok(value.to_string())
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

    #[test]
    fn a_tool_is_called_when_it_has_to_be_with_arguments_that_fit() {
        let parameters = json!({ "type": "object", "properties": { "berth": { "type": "integer" } } });
        let tools = json!([
            { "type": "function", "function": { "name": "open", "parameters": parameters } },
            { "type": "function", "function": { "name": "close" } },
        ]);
        let ask = |tool_choice: Value| {
            let messages = json!([{ "content": "the berth" }]);
            read(&json!({ "model": "m", "messages": messages, "tools": tools, "tool_choice": tool_choice }))
        };
        let named = |name: &str| ask(json!({ "type": "function", "function": { "name": name } }));
        let prepared = ask(json!("required")).unwrap();
        let whole = prepared.whole(1, 0);
        let choice = &whole["choices"][0];
        assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("tool_calls"), &Value::Null));
        let call = &choice["message"]["tool_calls"][0];
        assert_eq!(call["function"]["name"], "open");
        let arguments = call["function"]["arguments"].as_str().unwrap();
        assert!(serde_json::from_str::<Value>(arguments).unwrap()["berth"].is_i64(), "{arguments}");
        let frames = prepared.frames(1, 0);
        let opened = &frames.opening[0]["choices"][0]["delta"]["tool_calls"][0];
        assert_eq!((&opened["id"], &opened["function"]["name"]), (&call["id"], &json!("open")));
        let piece = |chunk: &Value| chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].clone();
        let streamed: String = frames.tokens.iter().map(|chunk| piece(chunk).as_str().unwrap().to_string()).collect();
        assert_eq!(streamed, arguments);
        assert_eq!(named("close").unwrap().choices[0].tool.as_deref(), Some("close"));
        assert_eq!(named("sink").unwrap_err().param(), Some("tool_choice"));
        for word in ["auto", "none"] {
            assert_eq!(ask(json!(word)).unwrap().choices[0].tool, None);
        }
    }
}
