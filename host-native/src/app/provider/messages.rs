//! The Messages API of Anthropic: how a [`Conversation`] is sent, and how its answers are read.
//!
//! | of a conversation | in the request |
//! | --- | --- |
//! | system messages | `system` |
//! | no `max_tokens` | [`ANTHROPIC_MAX_TOKENS`], since the API requires one |
//! | `stop` | `stop_sequences` |
//! | images | blocks of the type `image` |
//! | a JSON Schema | a tool with that schema, which the model must call: its input is the answer |
//! | tools and their calls | see [`tool_calls`](super::tool_calls) |
//!
//! | `stop_reason` | result |
//! | --- | --- |
//! | `max_tokens`, `model_context_window_exceeded` | the answer is truncated |
//! | `refusal` | [`CallError::Refused`], with `stop_details.explanation` |
//! | `pause_turn` | [`CallError::Malformed`]: the API has paused a long turn with its own tools |
//! | any other, or none | the answer is complete |

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::{CallError, excerpt, unreadable};
use super::completion::ChatAnswer;
use super::conversation::{Conversation, Message, OfferedTool, Role};
use super::http::RequestExtras;
use super::media::Media;
use super::reasoning::{Content, SplitText};
use super::tool_calls::{messages_answer, messages_result, messages_tools, messages_turn};
use super::{ApiKey, CallOutput};
use crate::app::token_counts::TokenCounts;

/// The token limit of an answer if none is set. All models of the API allow it.
pub(super) const ANTHROPIC_MAX_TOKENS: u32 = 4_096;

/// The version of the API, unless a header of the model replaces it.
const VERSION: &str = "2023-06-01";

/// The key of the tool's input that holds an answer that is no object.
const WRAPPED: &str = "value";

/// Returns the headers of all requests.
pub(super) fn headers(key: Option<ApiKey>) -> RequestExtras {
    let mut headers =
        HeaderMap::from_iter([(HeaderName::from_static("anthropic-version"), HeaderValue::from_static(VERSION))]);
    if let Some(header) = key.as_ref().and_then(ApiKey::plain_header) {
        headers.insert(HeaderName::from_static("x-api-key"), header);
    }
    RequestExtras { headers, secrets: key.into_iter().collect(), ..RequestExtras::default() }
}

/// Returns the body of a request. `extra_body` holds the keys that every request of the model has.
pub(super) fn body(model: &str, conversation: &Conversation, extra_body: &Map<String, Value>) -> Value {
    let Conversation { messages, temperature, top_p, max_tokens, stop, tools, extra, .. } = conversation;
    let (system, dialogue): (Vec<&Message>, Vec<&Message>) =
        messages.iter().partition(|message| message.role == Role::System);
    let mut body = extra_body.clone();
    body.extend(extra.clone());
    body.insert("model".to_string(), model.into());
    body.insert("messages".to_string(), dialogue_of(&dialogue).into());
    if !system.is_empty() {
        let texts: Vec<&str> = system.iter().map(|message| message.content.as_str()).collect();
        body.insert("system".to_string(), texts.join("\n\n").into());
    }
    body.entry("max_tokens").or_insert(ANTHROPIC_MAX_TOKENS.into());
    let options = [
        ("max_tokens", max_tokens.map(Value::from)),
        ("temperature", temperature.map(Value::from)),
        ("top_p", top_p.map(Value::from)),
    ];
    body.extend(options.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))));
    if !stop.is_empty() {
        body.insert("stop_sequences".to_string(), json!(stop));
    }
    let answer_tool = AnswerTool::of(conversation);
    let mut listed: Vec<Value> = messages_tools(tools).collect();
    if let Some(AnswerTool { name, schema }) = &answer_tool {
        // A model that thinks may not be forced to call a tool. It then may answer with a text, too.
        let is_thinking = body.get("thinking").is_some_and(|thinking| thinking["type"] != "disabled");
        let choice = match (is_thinking, tools.is_empty()) {
            (true, _) => json!({ "type": "auto" }),
            (false, true) => json!({ "type": "tool", "name": name }),
            // Either one of the tools, or that for the answer.
            (false, false) => json!({ "type": "any" }),
        };
        listed.push(json!({ "name": name, "description": TOOL, "input_schema": schema }));
        // With tools, the file may choose one for the first call.
        if tools.is_empty() || !body.contains_key("tool_choice") {
            body.insert("tool_choice".to_string(), choice);
        }
    }
    if !listed.is_empty() {
        body.insert("tools".to_string(), listed.into());
    }
    Value::Object(body)
}

/// Returns the messages of the user and the model. All results of the calls in one answer are in one message.
fn dialogue_of(messages: &[&Message]) -> Vec<Value> {
    let mut dialogue: Vec<Value> = Vec::new();
    let mut is_after_result = false;
    for message in messages {
        let result = messages_result(message);
        let was_result = std::mem::replace(&mut is_after_result, result.is_some());
        let Some(result) = result else {
            let answer = messages_answer(message);
            dialogue.push(answer.unwrap_or_else(|| message.with_parts("text", Media::messages_block)));
            continue;
        };
        let before = dialogue.last_mut().filter(|_| was_result).and_then(|last| last.get_mut("content"));
        match before.and_then(Value::as_array_mut) {
            Some(results) => results.push(result),
            None => dialogue.push(json!({ "role": "user", "content": [result] })),
        }
    }
    dialogue
}

/// What the model reads about the tool.
const TOOL: &str = "Returns the answer in the form that is asked for. Call it once, with the whole answer.";

/// The tool whose input is the answer.
struct AnswerTool {
    name: String,
    /// The schema of its input, which is always an object.
    schema: Value,
}

impl AnswerTool {
    /// Returns the tool for a `response_format` with a schema.
    fn of(conversation: &Conversation) -> Option<Self> {
        let format = conversation.response_format.as_ref()?.get("json_schema")?;
        let schema = format.get("schema")?;
        let mut name = format.get("name")?.as_str()?.to_string();
        let is_taken = |name: &str| conversation.tools.iter().any(|OfferedTool { name: other, .. }| other == name);
        while is_taken(&name) {
            name.push('_');
        }
        Some(Self { name, schema: if is_object(schema) { schema.clone() } else { wrap(schema) } })
    }
}

/// Returns whether a schema only accepts objects, as that of a tool's input must.
fn is_object(schema: &Value) -> bool {
    schema["type"] == "object"
}

/// Returns a schema of objects with the value that `schema` describes. Definitions stay at the root, to which
/// references are relative.
fn wrap(schema: &Value) -> Value {
    let mut inner = schema.clone();
    let mut outer = json!({ "type": "object", "required": [WRAPPED] });
    for key in ["$defs", "definitions"] {
        if let Some(definitions) = inner.as_object_mut().and_then(|inner| inner.remove(key)) {
            outer[key] = definitions;
        }
    }
    outer["properties"] = json!({ WRAPPED: inner });
    outer
}

/// The fields of an answer that are used.
#[derive(Deserialize)]
struct MessageBody {
    content: Vec<Value>,
    #[serde(default)]
    stop_reason: Value,
    #[serde(default)]
    stop_details: Value,
    #[serde(default)]
    usage: TokenCounts,
}

/// Reads the answer to a request with this conversation.
pub(crate) fn read(body: &[u8], conversation: &Conversation) -> Result<CallOutput<ChatAnswer>, CallError> {
    let what = "a message";
    let message: MessageBody = serde_json::from_slice(body).map_err(|error| unreadable(what, &error, body))?;
    let usage = message.usage.known();
    let reason = message.stop_reason.as_str().unwrap_or_default();
    let format = conversation.response_format.as_ref();
    let is_wrapped = format.is_some_and(|format| !is_object(&format["json_schema"]["schema"]));
    let answer_tool = AnswerTool::of(conversation);
    let has_tools = !conversation.tools.is_empty();
    let is_answer = |block: &Value| !has_tools || answer_tool.as_ref().is_some_and(|tool| block["name"] == tool.name);
    let (mut texts, mut reasoning, mut input) = (String::new(), Vec::new(), None);
    for block in &message.content {
        match block["type"].as_str() {
            Some("text") => texts.push_str(block["text"].as_str().unwrap_or_default()),
            Some("thinking") => {
                let thought = block["thinking"].as_str().unwrap_or_default().trim();
                reasoning.extend((!thought.is_empty()).then(|| thought.to_string()));
            }
            Some("tool_use") if is_answer(block) => {
                let given = &block["input"];
                input = Some(given.get(WRAPPED).filter(|_| is_wrapped).unwrap_or(given).to_string());
            }
            // Other tools, encrypted reasoning, and blocks of tools of the server.
            _ => {}
        }
    }
    if reason == "refusal" {
        // The text is what the model had written before.
        let explanation = message.stop_details["explanation"].as_str().unwrap_or(&texts);
        return Err(CallError::Refused { detail: excerpt(explanation), usage });
    }
    if reason == "pause_turn" {
        let detail = "the turn was paused before its end (stop_reason pause_turn)".to_string();
        return Err(CallError::Malformed { what, detail, usage });
    }
    let is_truncated = matches!(reason, "max_tokens" | "model_context_window_exceeded");
    // A model that has answered needs no more tools.
    let turn = if has_tools && input.is_none() && !is_truncated { messages_turn(&message.content) } else { None };
    let text = if let Some(input) = input {
        input
    } else {
        let SplitText { text, reasoning: more } = Content::Text(texts).split(!reasoning.is_empty(), None);
        reasoning.extend(more);
        text
    };
    if text.is_empty() && !is_truncated && turn.is_none() {
        let detail = format!("it has no text (stop_reason {})", excerpt(reason));
        return Err(CallError::Malformed { what, detail, usage });
    }
    let reasoning = (!reasoning.is_empty()).then(|| reasoning.join("\n\n"));
    Ok(CallOutput { value: ChatAnswer { text, reasoning, is_truncated, turn }, usage })
}

#[cfg(test)]
mod tests {
    use super::super::conversation::{ToolCall, ToolResult, ToolTurn};
    use super::*;

    fn conversation(response_format: Option<Value>) -> Conversation {
        let message = Message::text;
        Conversation {
            messages: vec![
                message(Role::System, "Be brief."),
                message(Role::User, "Why?"),
                message(Role::Assistant, "Because."),
                message(Role::User, "Again?"),
            ],
            stop: vec!["END".to_string()],
            temperature: Some(0.5),
            response_format,
            ..Conversation::default()
        }
    }

    fn format(schema: &Value) -> Value {
        json!({ "type": "json_schema", "json_schema": { "name": "grade", "schema": schema } })
    }

    #[test]
    fn a_conversation_is_sent_with_its_system_messages_apart_and_a_token_limit() {
        let body = body("claude", &conversation(None), &Map::new());
        assert_eq!(
            body,
            json!({
                "model": "claude", "system": "Be brief.", "max_tokens": 4096, "temperature": 0.5, "stop_sequences": ["END"],
                "messages": [{ "role": "user", "content": "Why?" }, { "role": "assistant", "content": "Because." },
                    { "role": "user", "content": "Again?" }],
            })
        );
        let given = Conversation { max_tokens: Some(7), ..conversation(None) };
        assert_eq!(super::body("claude", &given, &Map::new())["max_tokens"], 7);
        let extra = json!({ "max_tokens": 90, "top_k": 3 });
        let body = super::body("claude", &conversation(None), extra.as_object().unwrap());
        assert_eq!((&body["max_tokens"], &body["top_k"]), (&json!(90), &json!(3)));
    }

    #[test]
    fn a_schema_becomes_a_tool_that_must_be_called_unless_the_model_thinks() {
        let object = json!({ "type": "object", "properties": { "score": { "type": "integer" } } });
        let body = body("claude", &conversation(Some(format(&object))), &Map::new());
        assert_eq!(body["tools"][0]["input_schema"], object);
        assert_eq!(body["tool_choice"], json!({ "type": "tool", "name": "grade" }));
        let thinking = json!({ "thinking": { "type": "enabled", "budget_tokens": 1024 } });
        let body = super::body("claude", &conversation(Some(format(&object))), thinking.as_object().unwrap());
        assert_eq!(body["tool_choice"], json!({ "type": "auto" }));
        let list = json!({ "type": "array", "items": { "$ref": "#/$defs/a" }, "$defs": { "a": { "type": "string" } } });
        let body = super::body("claude", &conversation(Some(format(&list))), &Map::new());
        let schema = &body["tools"][0]["input_schema"];
        assert_eq!(
            (&schema["$defs"]["a"]["type"], &schema["properties"]["value"]["type"]),
            (&json!("string"), &json!("array"))
        );
        assert_eq!(
            super::body("c", &conversation(Some(json!({ "type": "json_object" }))), &Map::new()).get("tools"),
            None
        );
    }

    /// Returns a conversation in which a model has called two tools, with this `response_format`.
    fn with_tools(response_format: Option<Value>) -> Conversation {
        let message = |id: &str, is_error| {
            let result = ToolResult { call_id: id.to_string(), tool: "tide".to_string(), is_error };
            Message { result: Some(result), ..Message::text(Role::User, "low") }
        };
        let call = |id: &str| ToolCall { id: id.to_string(), name: "tide".to_string(), arguments: "{}".to_string() };
        let turn = ToolTurn { calls: vec![call("a"), call("b")], ..ToolTurn::default() };
        let tool = |name: &str| OfferedTool {
            name: name.to_string(),
            description: String::new(),
            parameters: json!({ "type": "object" }),
        };
        let mut conversation = conversation(response_format);
        conversation.messages.push(Message { turn: Some(turn), ..Message::text(Role::Assistant, "I look.") });
        conversation.messages.extend([message("a", false), message("b", true)]);
        Conversation { tools: vec![tool("tide"), tool("grade")].into(), ..conversation }
    }

    #[test]
    fn the_results_of_one_answer_are_in_one_message() {
        let body = body("claude", &with_tools(None), &Map::new());
        let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "tide", "input": {} });
        let content = json!([{ "type": "text", "text": "I look." }, call("a"), call("b")]);
        assert_eq!(body["messages"][3], json!({ "role": "assistant", "content": content }));
        let content = json!([
            { "type": "tool_result", "tool_use_id": "a", "content": "low" },
            { "type": "tool_result", "tool_use_id": "b", "content": "low", "is_error": true },
        ]);
        assert_eq!(body["messages"][4], json!({ "role": "user", "content": content }));
        assert_eq!(body["messages"].as_array().unwrap().len(), 5);
        assert_eq!(body.get("tool_choice"), None);
    }

    #[test]
    fn the_tool_for_the_answer_is_offered_beside_others_under_a_name_of_its_own() {
        let conversation = with_tools(Some(format(&json!({ "type": "object" }))));
        let body = body("claude", &conversation, &Map::new());
        let names: Vec<&Value> = body["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, ["tide", "grade", "grade_"]);
        assert_eq!(body["tool_choice"], json!({ "type": "any" }));
        let chosen = json!({ "tool_choice": { "type": "tool", "name": "tide" } });
        let body = super::body("claude", &conversation, chosen.as_object().unwrap());
        assert_eq!(body["tool_choice"], chosen["tool_choice"]);
        let used = |name: &str| {
            let block = json!({ "type": "tool_use", "id": "t", "name": name, "input": { "score": 4 } });
            let body = json!({ "content": [block], "stop_reason": "tool_use" }).to_string();
            read(body.as_bytes(), &conversation).unwrap().value
        };
        assert_eq!((used("grade_").text.as_str(), used("grade_").turn), (r#"{"score":4}"#, None));
        let turn = used("grade").turn.unwrap();
        assert_eq!((turn.calls[0].name.as_str(), turn.calls[0].arguments.as_str()), ("grade", r#"{"score":4}"#));
    }

    #[test]
    fn a_message_without_text_is_an_error() {
        let read = |body: &str| read(body.as_bytes(), &conversation(None));
        let empty = r#"{"content":[],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}"#;
        assert!(matches!(read(empty), Err(CallError::Malformed { usage: Some(_), .. })));
        let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        assert!(matches!(read(error), Err(CallError::RateLimited { .. })));
    }

    #[test]
    fn the_key_is_in_a_header_of_its_own_and_in_no_output() {
        let extras = headers(Some(ApiKey::new("sk-ant-secret").unwrap()));
        assert_eq!(extras.headers["x-api-key"], "sk-ant-secret");
        assert_eq!(extras.headers["anthropic-version"], "2023-06-01");
        assert!(!format!("{:?} {extras:?}", extras.headers).contains("secret"));
    }
}
