//! Parsing and answering of `POST /v1/chat/completions` and `POST /v1/completions`.
//!
//! A choice is a text of [`answer`](super::answer), JSON that fits the schema of `response_format`, or a tool
//! call with arguments that fit. A request with tools is answered by a call, unless it ends with results of
//! calls or `tool_choice` says otherwise. A text after results has them all. `n` and the token limits are
//! honoured. Sampling settings, `stop` and `user` are accepted and ignored.

use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{self, GeneratedText};
use super::conversation::{Content, Message, check_results, last_results};
use super::error::ApiError;
use super::protocol::Protocol;
use super::schema;

/// The most choices of a call, over all its prompts.
const MAX_CHOICES: u32 = 128;

/// A parsed request with its generated answer.
#[derive(Debug)]
pub(super) struct CompletionCall {
    pub(super) model: String,
    /// Tokens of the prompts and of the answers.
    pub(super) tokens: (u32, u32),
    pub(super) protocol: Protocol,
    pub(super) choices: Vec<Choice>,
    /// The hash of all prompts.
    pub(super) prompt_hash: u64,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
}

/// One choice of a completion.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// The text, or the arguments of the tool call.
    pub(super) text: String,
    /// The name of the called tool; `None` for a text.
    pub(super) tool: Option<String>,
    pub(super) finish_reason: &'static str,
    /// The name of the field for reasoning, and the reasoning.
    pub(super) reasoning: Option<(&'static str, &'static str)>,
    /// The text of `message.refusal`.
    pub(super) refusal: Option<&'static str>,
}

/// The fields that requests of both endpoints share.
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
    Mode(String),
    Named {
        function: FunctionName,
    },
    /// Accepted and ignored.
    #[allow(dead_code, reason = "deserialised and not used")]
    Other(Value),
}

#[derive(Debug, Deserialize)]
struct FunctionName {
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
    JsonSchema { json_schema: JsonSchemaFormat },
}

#[derive(Debug, Deserialize)]
struct JsonSchemaFormat {
    schema: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct ChatBody {
    messages: Vec<Message>,
    #[serde(flatten)]
    settings: Settings,
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

impl Prompt {
    fn texts(self) -> Vec<String> {
        let join_tokens = |tokens: Vec<u32>| tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        match self {
            Self::Text(text) => vec![text],
            Self::Texts(texts) => texts,
            Self::Tokens(tokens) => vec![join_tokens(tokens)],
            Self::TokenLists(lists) => lists.into_iter().map(join_tokens).collect(),
        }
    }
}

impl CompletionCall {
    /// Parses a request and generates its answer.
    pub(super) fn parse(protocol: Protocol, body: &[u8]) -> Result<Self, ApiError> {
        let invalid_body = |error: serde_json::Error| ApiError::invalid(format!("the body cannot be read: {error}"));
        let (mut media_tokens, mut results) = (0_u32, Vec::new());
        let (prompts, settings) = match protocol {
            Protocol::Chat | Protocol::Messages | Protocol::Responses => {
                let body: ChatBody = serde_json::from_slice(body).map_err(invalid_body)?;
                if body.messages.is_empty() {
                    return Err(ApiError::field("messages", "`messages` is empty; expected at least one"));
                }
                check_results(&body.messages)?;
                results = last_results(&body.messages);
                let contents = || body.messages.iter().filter_map(|message| message.content.as_ref());
                for content in contents() {
                    media_tokens = media_tokens.saturating_add(content.media_tokens(protocol)?);
                }
                let texts = contents().map(Content::text);
                (vec![texts.collect::<Vec<_>>().join("\n")], body.settings)
            }
            Protocol::Text => {
                let body: TextBody = serde_json::from_slice(body).map_err(invalid_body)?;
                (body.prompt.map_or_else(|| vec![String::new()], Prompt::texts), body.settings)
            }
        };
        let n = settings.n.unwrap_or(1);
        let count = u64::from(n).saturating_mul(prompts.len() as u64);
        if !(1..=u64::from(MAX_CHOICES)).contains(&count) {
            return Err(ApiError::field("n", format!("the request has {count} choices; expected 1 to {MAX_CHOICES}")));
        }
        let mut choices = Vec::new();
        for prompt in &prompts {
            for number in 0..n {
                choices.push(settings.generate_choice(prompt, number, &results)?);
            }
        }
        let prompt_tokens = prompts.iter().map(|prompt| answer::count_tokens(prompt));
        let prompt_tokens = prompt_tokens.fold(media_tokens, u32::saturating_add);
        let mut call = Self {
            model: settings.model,
            tokens: (prompt_tokens, 0),
            protocol,
            choices,
            prompt_hash: answer::hash_text(&prompts.join("\0")),
            stream: settings.stream.unwrap_or(false),
            include_usage: settings.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        };
        call.count_tokens();
        Ok(call)
    }

    /// Counts the tokens of the answers, reasoning included.
    pub(super) fn count_tokens(&mut self) {
        let texts = self.choices.iter().map(|choice| answer::count_tokens(&choice.text)).fold(0, u32::saturating_add);
        self.tokens.1 = texts.saturating_add(self.reasoning_tokens());
    }

    /// Returns the tokens of reasoning in a field of its own.
    pub(super) fn reasoning_tokens(&self) -> u32 {
        let reasoning = self.choices.iter().filter_map(|choice| choice.reasoning);
        reasoning.map(|(_, text)| answer::count_tokens(text)).fold(0, u32::saturating_add)
    }
}

impl Choice {
    fn new(text: String, tool: Option<String>, finish_reason: &'static str) -> Self {
        Self { text, tool, finish_reason, reasoning: None, refusal: None }
    }
}

impl Settings {
    /// Generates the choice with this number. `results` are those of the tools that the last answer called.
    fn generate_choice(&self, prompt: &str, number: u32, results: &[String]) -> Result<Choice, ApiError> {
        let seed = if number == 0 { prompt.to_string() } else { format!("{prompt}\0{number}") };
        let offered = if results.is_empty() { self.offered_tool(answer::hash_text(&seed)) } else { None };
        if let Some(tool) = self.required_tool(!results.is_empty())?.or(offered) {
            let text = schema_text(tool.parameters.as_ref().unwrap_or(&json!({ "type": "object" })), &seed, "tools")?;
            return Ok(Choice::new(text, Some(tool.name.clone()), "tool_calls"));
        }
        let any_object = json!({ "type": "object", "properties": { "answer": {} }, "required": ["answer"] });
        let schema = match &self.response_format {
            None | Some(ResponseFormat::Text) => {
                let max_tokens = self.max_completion_tokens.or(self.max_tokens);
                let GeneratedText { text, is_truncated } = match results {
                    [] => answer::generate_text(prompt, number, max_tokens),
                    results => answer::generate_report(prompt, number, results, max_tokens),
                };
                return Ok(Choice::new(text, None, if is_truncated { "length" } else { "stop" }));
            }
            Some(ResponseFormat::JsonObject) => &any_object,
            Some(ResponseFormat::JsonSchema { json_schema }) => json_schema.schema.as_ref().unwrap_or(&any_object),
        };
        Ok(Choice::new(schema_text(schema, &seed, "response_format")?, None, "stop"))
    }

    /// Returns the tool that is called although none has to be.
    fn offered_tool(&self, hash: u64) -> Option<&Function> {
        if matches!(&self.tool_choice, Some(ToolChoice::Mode(mode)) if mode == "none") {
            return None;
        }
        let functions: Vec<&Function> = self.tools.iter().flatten().filter_map(|tool| tool.function.as_ref()).collect();
        let at = usize::try_from(hash.checked_rem(functions.len() as u64)?).ok()?;
        functions.get(at).copied()
    }

    /// Returns the tool that `tool_choice` requires to be called: the first one, or the last one after
    /// results.
    fn required_tool(&self, has_results: bool) -> Result<Option<&Function>, ApiError> {
        let mut functions = self.tools.iter().flatten().filter_map(|tool| tool.function.as_ref());
        match &self.tool_choice {
            Some(ToolChoice::Mode(mode)) if mode == "required" => {
                Ok(if has_results { functions.next_back() } else { functions.next() })
            }
            Some(ToolChoice::Named { function: FunctionName { name } }) => {
                let found = functions.find(|function| function.name == *name);
                let message = || format!("`tool_choice` names `{name}`, which is not one of `tools`");
                found.map(Some).ok_or_else(|| ApiError::field("tool_choice", message()))
            }
            _ => Ok(None),
        }
    }
}

/// Generates JSON that fits a schema from the field `param` of the request.
fn schema_text(schema: &Value, seed: &str, param: &str) -> Result<String, ApiError> {
    let value = schema::generate(schema, seed)
        .map_err(|error| ApiError::field(param, format!("the schema is not supported: {error}")))?;
    Ok(value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &Value) -> Result<CompletionCall, ApiError> {
        CompletionCall::parse(Protocol::Chat, body.to_string().as_bytes())
    }

    fn answer_texts(body: &Value) -> Vec<String> {
        read(body).unwrap().choices.into_iter().map(|choice| choice.text).collect()
    }

    #[test]
    fn text_parts_are_answered_like_a_single_text_and_other_parts_are_ignored() {
        let plain = json!({ "model": "m", "messages": [{ "role": "user", "content": "a buoy\nadrift" }] });
        let parts = json!({ "model": "m", "messages": [{ "role": "user", "content": [
            { "type": "text", "text": "a buoy" },
            { "type": "file", "file": { "file_id": "file-1" } },
            { "type": "text", "text": "adrift" },
        ] }] });
        assert_eq!(answer_texts(&parts), answer_texts(&plain));
    }

    #[test]
    fn unused_fields_are_accepted() {
        let body = json!({
            "model": "m", "temperature": 0.3, "top_p": 1, "stop": ["x"], "seed": 4, "user": "u", "logit_bias": {},
            "tools": [{ "type": "function", "function": { "name": "f", "parameters": {} } }], "tool_choice": "none",
            "max_tokens": null, "stream": null, "stream_options": null, "response_format": { "type": "text" },
            "messages": [
                { "role": "user", "content": "a buoy" },
                { "role": "assistant", "content": null, "tool_calls": [] },
                { "role": "user", "content": "adrift" },
            ],
        });
        assert_eq!(answer_texts(&body), [answer::answer("a buoy\nadrift", None)]);
    }

    #[test]
    fn an_answer_is_truncated_at_the_token_limit_with_finish_reason_length() {
        let messages = json!([{ "content": "a buoy adrift" }]);
        for name in ["max_tokens", "max_completion_tokens"] {
            let prepared = read(&json!({ "model": "m", "messages": messages, name: 2 })).unwrap();
            let body = prepared.whole(1, 0);
            assert_eq!(body["choices"][0]["finish_reason"], "length");
            assert_eq!(body["usage"]["completion_tokens"], 2);
        }
    }

    #[test]
    fn the_chunks_of_a_stream_concatenate_to_the_whole_answer() {
        for n in [1_u64, 3] {
            let body = json!({ "model": "m", "n": n, "messages": [{ "content": "a buoy adrift" }],
                "stream_options": { "include_usage": true } });
            let prepared = read(&body).unwrap();
            let mut texts = vec![String::new(); usize::try_from(n).unwrap()];
            let events = prepared.events(1, 0);
            for chunk in events.opening.iter().chain(&events.tokens).chain(&events.closing) {
                let Some(choice) = chunk["choices"].get(0) else { continue };
                let index = usize::try_from(choice["index"].as_u64().unwrap()).unwrap();
                texts[index].push_str(choice["delta"]["content"].as_str().unwrap_or_default());
            }
            let whole = prepared.whole(1, 0);
            for (index, text) in texts.iter().enumerate() {
                assert_eq!(whole["choices"][index]["message"]["content"], *text);
            }
            assert_eq!(events.opening[0]["choices"][0]["delta"]["role"], "assistant");
            assert_eq!(events.closing.last().unwrap()["usage"], whole["usage"]);
            assert_eq!(events.tokens[0]["usage"], Value::Null);
        }
    }

    #[test]
    fn text_completions_accept_every_form_of_prompt() {
        for (prompt, choices) in [
            (json!("a buoy"), 1),
            (json!(["a buoy", "a lamp"]), 2),
            (json!([1, 2, 3]), 1),
            (json!([[1, 2], [3]]), 2),
            (Value::Null, 1),
        ] {
            let body = json!({ "model": "m", "prompt": prompt });
            let prepared = CompletionCall::parse(Protocol::Text, body.to_string().as_bytes()).unwrap();
            assert_eq!(prepared.whole(1, 0)["choices"].as_array().unwrap().len(), choices, "{prompt}");
        }
    }

    #[test]
    fn an_invalid_request_is_rejected_at_its_field() {
        for (body, param) in [
            (json!({ "model": "m", "messages": [] }), Some("messages")),
            (json!({ "model": "m", "messages": [{ "content": "x" }], "n": 129 }), Some("n")),
            (json!({ "model": "m", "messages": [{ "content": "x" }], "n": 0 }), Some("n")),
            (json!({ "messages": [{ "content": "x" }] }), None),
            (json!({ "model": "m", "messages": [{ "content": 3 }] }), None),
        ] {
            let error = read(&body).unwrap_err();
            assert_eq!(error.status, 400);
            assert_eq!(error.param(), param, "{body}");
        }
    }

    #[test]
    fn a_required_tool_is_called_with_arguments_that_fit_its_schema() {
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
        let events = prepared.events(1, 0);
        let opened = &events.opening[0]["choices"][0]["delta"]["tool_calls"][0];
        assert_eq!((&opened["id"], &opened["function"]["name"]), (&call["id"], &json!("open")));
        let piece = |chunk: &Value| chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].clone();
        let streamed: String = events.tokens.iter().map(|chunk| piece(chunk).as_str().unwrap().to_string()).collect();
        assert_eq!(streamed, arguments);
        assert_eq!(named("close").unwrap().choices[0].tool.as_deref(), Some("close"));
        assert_eq!(named("sink").unwrap_err().param(), Some("tool_choice"));
        assert_eq!(ask(json!("none")).unwrap().choices[0].tool, None);
    }

    #[test]
    fn an_offered_tool_is_called_and_the_text_after_its_results_has_them() {
        let tools =
            json!([{ "type": "function", "function": { "name": "depth", "parameters": { "type": "object" } } }]);
        let ask = |more: &[Value], choice: &str| {
            let messages = [&[json!({ "role": "user", "content": "the berth" })], more].concat();
            read(&json!({ "model": "m", "messages": messages, "tools": tools, "tool_choice": choice }))
        };
        assert_eq!(ask(&[], "auto").unwrap().choices[0].tool.as_deref(), Some("depth"));
        let call =
            |id: &str, arguments: &str| json!({ "id": id, "function": { "name": "depth", "arguments": arguments } });
        let answer = |calls: &[Value]| json!({ "role": "assistant", "content": null, "tool_calls": calls });
        let result = |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": format!("{id} is 4 m") });
        let (a, b) = (call("a", "{}"), call("b", "{}"));
        let whole = [answer(&[a.clone(), b.clone()]), result("b"), result("a")];
        let choice = &ask(&whole, "auto").unwrap().choices[0];
        assert!(choice.tool.is_none() && choice.text.starts_with("b is 4 m\na is 4 m\n"), "{}", choice.text);
        assert_eq!(ask(&whole, "required").unwrap().choices[0].tool.as_deref(), Some("depth"));
        for (what, messages) in [
            ("no result", vec![answer(&[a.clone(), b.clone()]), result("a")]),
            (
                "a message between",
                vec![answer(std::slice::from_ref(&a)), json!({ "role": "user", "content": "?" }), result("a")],
            ),
            ("a result twice", vec![answer(std::slice::from_ref(&a)), result("a"), result("a")]),
            ("an unknown id", vec![answer(std::slice::from_ref(&a)), result("c")]),
            ("no id", vec![answer(std::slice::from_ref(&a)), json!({ "role": "tool", "content": "x" })]),
            ("equal ids", vec![answer(&[a.clone(), a.clone()]), result("a"), result("a")]),
            ("arguments", vec![answer(&[call("a", "[")]), result("a")]),
        ] {
            assert_eq!(ask(&messages, "auto").unwrap_err().param(), Some("messages"), "{what}");
        }
    }
}
