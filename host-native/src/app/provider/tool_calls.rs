//! The tools that a request offers to a model, the calls of them in its answer, and their results, in each
//! API.
//!
//! | | OpenAI chat | Responses | Messages of Anthropic |
//! | --- | --- | --- | --- |
//! | tool | `tools`, type `function` | `tools`, type `function` | `tools`, with `input_schema` |
//! | call | `tool_calls` of the message | an item `function_call` | a block `tool_use` |
//! | result | a message with the role `tool` | an item `function_call_output` | a block `tool_result` of the user |
//!
//! An answer with calls is sent back in the form in which it came, since several APIs require the reasoning
//! and the signatures in it. Another model than the one that gave it gets its text and its calls alone.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::answer::excerpt;
use super::conversation::{ChatApi, Conversation, Message, OfferedTool, ToolCall, ToolResult, ToolTurn};

/// The longest arguments of a call in bytes. Longer ones are not given to a tool.
pub const MAX_ARGUMENT_BYTES: usize = 64 << 10;

/// The most calls in one answer. Models make a few at once.
pub const MAX_CALLS: usize = 16;

/// The arguments of a call that has none, and of one whose arguments are not sent back.
pub const NO_ARGUMENTS: &str = "{}";

impl ToolCall {
    /// Creates a call from the fields of an answer. Some servers send the arguments as an object instead of a
    /// text.
    fn of(id: &Value, name: &Value, arguments: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let arguments = match arguments {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            value => value.to_string(),
        };
        Self { id: text(id), name: text(name), arguments }
    }

    /// Returns the name and the arguments in one text, without the ends of long ones.
    #[must_use]
    pub fn shown(&self) -> String {
        let arguments: String = self.arguments.chars().take(MAX_ARGUMENT_BYTES).collect();
        format!("{} {arguments}", excerpt(&self.name))
    }

    /// Returns the arguments as an object; an empty one if they are no object.
    fn object(&self) -> Value {
        serde_json::from_str(&self.arguments).ok().filter(Value::is_object).unwrap_or_else(|| json!({}))
    }
}

impl ToolTurn {
    /// Returns the turn of an answer with these calls; `None` if there are none.
    fn of(calls: Vec<ToolCall>, original: Value) -> Option<Self> {
        (!calls.is_empty()).then(|| Self { calls, original, ..Self::default() })
    }

    /// Returns the length in bytes of all that it holds.
    #[must_use]
    pub fn size(&self) -> usize {
        let calls = self.calls.iter().map(|call| call.id.len() + call.name.len() + call.arguments.len());
        calls.sum::<usize>() + self.original.to_string().len()
    }

    /// Returns the original, if it is of this API. `write` writes the fields of each call into its place in
    /// it.
    fn updated(&self, api: ChatApi, write: impl Fn(&ToolCall, &mut Map<String, Value>)) -> Option<Value> {
        let (own, _) = &self.answered_by;
        if *own != api || self.original.is_null() {
            return None;
        }
        let mut original = self.original.clone();
        let list = match &mut original {
            Value::Array(list) => Some(list),
            message => message.get_mut("tool_calls").and_then(Value::as_array_mut),
        };
        let tables = list.into_iter().flatten().filter_map(Value::as_object_mut);
        for (call, table) in self.calls.iter().zip(tables.filter(|table| is_call(table))) {
            write(call, table);
        }
        Some(original)
    }
}

/// Returns whether a part of an answer is a call of a tool, in any API.
fn is_call(part: &Map<String, Value>) -> bool {
    match part.get("type").and_then(Value::as_str) {
        Some("tool_use" | "function_call") => true,
        _ => part.get("function").is_some_and(Value::is_object),
    }
}

impl Conversation {
    /// Returns the conversation as it is sent to a model: answers of other models are without their original
    /// form, and ids of their calls are replaced by ids that every API accepts.
    pub(super) fn for_model(&self, api: ChatApi, model: &str) -> Cow<'_, Self> {
        let is_foreign = |turn: &ToolTurn| turn.answered_by.0 != api || turn.answered_by.1 != model;
        if !self.messages.iter().filter_map(|message| message.turn.as_ref()).any(is_foreign) {
            return Cow::Borrowed(self);
        }
        let mut own = self.clone();
        let (mut number, mut ids) = (0, VecDeque::new());
        for message in &mut own.messages {
            if let Some(turn) = &mut message.turn {
                let is_foreign = is_foreign(turn);
                for call in &mut turn.calls {
                    number += 1;
                    if is_foreign {
                        call.id = own_id(number);
                    }
                    ids.push_back(call.id.clone());
                }
                if is_foreign {
                    turn.original = Value::Null;
                }
            }
            if let Some(result) = &mut message.result {
                result.call_id = ids.pop_front().unwrap_or_default();
            }
        }
        Cow::Owned(own)
    }
}

/// Returns an id for the call with this number in its conversation. Nine letters and digits are the only form
/// that the API of Mistral accepts, and others accept it, too.
#[must_use]
pub fn own_id(number: usize) -> String {
    format!("call{:05}", number % 100_000)
}

/// Returns whether an answer has text beside its calls. Some APIs reject text of whitespace.
fn has_text(message: &Message) -> bool {
    !message.content.trim().is_empty()
}

/// Returns the calls in the first choice of a chat completion.
pub(super) fn chat_turn(body: &[u8]) -> Option<ToolTurn> {
    let mut completion: Value = serde_json::from_slice(body).ok()?;
    let mut message = completion.get_mut("choices")?.get_mut(0)?.get_mut("message")?.take();
    let fields = message.as_object_mut()?;
    // APIs reject some fields without a value. `content` may be null beside calls, and some require it.
    fields.retain(|name, value| name == "content" || !(value.is_null() || value.as_array().is_some_and(Vec::is_empty)));
    fields.insert("role".to_string(), "assistant".into());
    fields.entry("content").or_insert(Value::Null);
    let listed = fields.get_mut("tool_calls")?.as_array_mut()?;
    listed.retain(|call| call.as_object().is_some_and(is_call));
    let call = |call: &Value| ToolCall::of(&call["id"], &call["function"]["name"], &call["function"]["arguments"]);
    let calls = listed.iter().map(call).collect();
    ToolTurn::of(calls, message)
}

/// Returns an answer with calls, or the result of one, as a message of chat completions; `None` for other
/// messages.
pub(super) fn chat_message(message: &Message) -> Option<Value> {
    if let Some(ToolResult { call_id, .. }) = &message.result {
        return Some(json!({ "role": "tool", "tool_call_id": call_id, "content": message.content }));
    }
    let turn = message.turn.as_ref()?;
    let write = |call: &ToolCall, table: &mut Map<String, Value>| {
        table.insert("id".to_string(), call.id.clone().into());
        if let Some(function) = table.get_mut("function").and_then(Value::as_object_mut) {
            function.insert("name".to_string(), call.name.clone().into());
            function.insert("arguments".to_string(), call.arguments.clone().into());
        }
    };
    Some(turn.updated(ChatApi::Openai, write).unwrap_or_else(|| {
        let call = |ToolCall { id, name, arguments }: &ToolCall| {
            json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
        };
        let calls: Vec<Value> = turn.calls.iter().map(call).collect();
        let content = if has_text(message) { message.content.clone().into() } else { Value::Null };
        json!({ "role": "assistant", "content": content, "tool_calls": calls })
    }))
}

/// Returns the tools of a request of the Responses API. Without `strict = false`, it accepts some schemas
/// only.
pub(super) fn responses_tools(tools: &[OfferedTool]) -> Value {
    let tool = |OfferedTool { name, description, parameters }: &OfferedTool| json!({ "type": "function", "name": name, "description": description, "parameters": parameters, "strict": false });
    tools.iter().map(tool).collect()
}

/// Returns the calls in the output of a response.
///
/// Items are sent back without their ids, by which the API looks up what it has stored. Reasoning is sent
/// back if it is complete in the answer: if it is encrypted.
pub(super) fn responses_turn(output: &[Value]) -> Option<ToolTurn> {
    let (mut calls, mut items) = (Vec::new(), Vec::new());
    for item in output {
        match item["type"].as_str() {
            Some("function_call") => {
                calls.push(ToolCall::of(&item["call_id"], &item["name"], &item["arguments"]));
                items.push(json!({ "type": "function_call" }));
            }
            Some("message") => {
                let parts = item["content"].as_array().into_iter().flatten();
                let text: String = parts.filter_map(|part| part["text"].as_str()).collect();
                if !text.trim().is_empty() {
                    let mut message = json!({ "role": "assistant", "content": text });
                    // Without it, models take what they said beside a call for an answer.
                    if item["phase"].is_string() {
                        message["phase"] = item["phase"].clone();
                    }
                    items.push(message);
                }
            }
            Some("reasoning") if item["encrypted_content"].is_string() => items.push(item.clone()),
            _ => {}
        }
    }
    ToolTurn::of(calls, Value::Array(items))
}

/// Returns an answer with calls, or the result of one, as items of the Responses API; `None` for other
/// messages.
pub(super) fn responses_items(message: &Message) -> Option<Vec<Value>> {
    if let Some(ToolResult { call_id, .. }) = &message.result {
        return Some(vec![json!({ "type": "function_call_output", "call_id": call_id, "output": message.content })]);
    }
    let turn = message.turn.as_ref()?;
    let fields = |call: &ToolCall, table: &mut Map<String, Value>| {
        table.insert("call_id".to_string(), call.id.clone().into());
        table.insert("name".to_string(), call.name.clone().into());
        table.insert("arguments".to_string(), call.arguments.clone().into());
    };
    if let Some(Value::Array(items)) = turn.updated(ChatApi::Responses, fields) {
        return Some(items);
    }
    let text = has_text(message).then(|| json!({ "role": "assistant", "content": message.content }));
    let call = |ToolCall { id, name, arguments }: &ToolCall| json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments });
    Some(text.into_iter().chain(turn.calls.iter().map(call)).collect())
}

/// Returns the tools of a request of the Messages API.
pub(super) fn messages_tools(tools: &[OfferedTool]) -> impl Iterator<Item = Value> {
    tools.iter().map(|OfferedTool { name, description, parameters }| {
        json!({ "name": name, "description": description, "input_schema": parameters })
    })
}

/// Returns the calls in the blocks of a message.
pub(super) fn messages_turn(blocks: &[Value]) -> Option<ToolTurn> {
    let is_call = |block: &&Value| block["type"] == "tool_use";
    let call = |block: &Value| ToolCall::of(&block["id"], &block["name"], &block["input"]);
    let calls = blocks.iter().filter(is_call).map(call).collect();
    // The API rejects a text block that is empty or has only whitespace.
    let is_kept =
        |block: &&Value| block["type"] != "text" || block["text"].as_str().is_some_and(|text| !text.trim().is_empty());
    ToolTurn::of(calls, blocks.iter().filter(is_kept).cloned().collect())
}

/// Returns an answer with calls as a message of the Messages API; `None` for other messages.
pub(super) fn messages_answer(message: &Message) -> Option<Value> {
    let turn = message.turn.as_ref()?;
    let fields = |call: &ToolCall, table: &mut Map<String, Value>| {
        table.insert("id".to_string(), call.id.clone().into());
        table.insert("name".to_string(), call.name.clone().into());
        table.insert("input".to_string(), call.object());
    };
    let content = turn.updated(ChatApi::Anthropic, fields).unwrap_or_else(|| {
        let text = has_text(message).then(|| json!({ "type": "text", "text": message.content }));
        let call =
            |call: &ToolCall| json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": call.object() });
        text.into_iter().chain(turn.calls.iter().map(call)).collect()
    });
    Some(json!({ "role": "assistant", "content": content }))
}

/// Returns the block for the result of a call, if the message is one.
pub(super) fn messages_result(message: &Message) -> Option<Value> {
    let ToolResult { call_id, is_error, .. } = message.result.as_ref()?;
    let mut block = json!({ "type": "tool_result", "tool_use_id": call_id, "content": message.content });
    if *is_error {
        block["is_error"] = true.into();
    }
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::super::conversation::Role;
    use super::*;

    fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
        ToolCall { id: id.to_string(), name: name.to_string(), arguments: arguments.to_string() }
    }

    fn result(id: &str, content: &str, is_error: bool) -> Message {
        let result = ToolResult { call_id: id.to_string(), tool: "lookup".to_string(), is_error };
        Message { result: Some(result), ..Message::text(Role::User, content) }
    }

    fn answer(turn: ToolTurn, api: ChatApi) -> Message {
        let turn = ToolTurn { answered_by: (api, "m".to_string()), ..turn };
        Message { turn: Some(turn), ..Message::text(Role::Assistant, "\n\n") }
    }

    #[test]
    fn a_chat_completion_with_calls_is_sent_back_with_its_reasoning_and_signatures() {
        let body = json!({ "choices": [{ "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": null, "refusal": null, "annotations": [], "reasoning_content": "",
            "tool_calls": [
                { "id": "c1", "type": "function", "function": { "name": "lookup", "arguments": "{\"a\":1}" },
                  "extra_content": { "google": { "thought_signature": "s" } } },
                { "type": "custom" }, 7,
                { "id": "c2", "function": { "name": "lookup", "arguments": { "a": 2 } } },
            ],
        } }] });
        let turn = chat_turn(body.to_string().as_bytes()).unwrap();
        assert_eq!(turn.calls, [call("c1", "lookup", "{\"a\":1}"), call("c2", "lookup", "{\"a\":2}")]);
        let sent = chat_message(&answer(turn, ChatApi::Openai)).unwrap();
        assert_eq!(
            sent,
            json!({ "role": "assistant", "content": null, "reasoning_content": "", "tool_calls": [
                { "id": "c1", "type": "function", "function": { "name": "lookup", "arguments": "{\"a\":1}" },
                  "extra_content": { "google": { "thought_signature": "s" } } },
                { "id": "c2", "function": { "name": "lookup", "arguments": "{\"a\":2}" } },
            ] })
        );
        let sent = chat_message(&result("c1", "low", false)).unwrap();
        assert_eq!(sent, json!({ "role": "tool", "tool_call_id": "c1", "content": "low" }));
        for message in [json!({ "content": "x" }), json!({ "tool_calls": [] }), json!({ "tool_calls": 3 }), json!(3)] {
            assert_eq!(chat_turn(json!({ "choices": [{ "message": message }] }).to_string().as_bytes()), None);
        }
    }

    #[test]
    fn a_response_with_calls_is_sent_back_without_ids_and_with_reasoning_only_if_it_is_complete() {
        let output = [
            json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e" }),
            json!({ "type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": null }),
            json!({ "type": "message", "id": "msg_1", "phase": "commentary",
                "content": [{ "type": "output_text", "text": "Let me see." }] }),
            json!({ "type": "message", "id": "msg_2", "content": [{ "type": "output_text", "text": " \n" }] }),
            json!({ "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "lookup", "arguments": "{}" }),
        ];
        let turn = responses_turn(&output).unwrap();
        assert_eq!(turn.calls, [call("c1", "lookup", "{}")]);
        assert_eq!(
            json!(responses_items(&answer(turn, ChatApi::Responses))),
            json!([
                { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e" },
                { "role": "assistant", "content": "Let me see.", "phase": "commentary" },
                { "type": "function_call", "call_id": "c1", "name": "lookup", "arguments": "{}" },
            ])
        );
        assert_eq!(
            json!(responses_items(&result("c1", "low", false))),
            json!([{ "type": "function_call_output", "call_id": "c1", "output": "low" }])
        );
    }

    #[test]
    fn a_message_with_calls_is_sent_back_with_its_thinking() {
        let blocks = [
            json!({ "type": "thinking", "thinking": "See.", "signature": "s" }),
            json!({ "type": "text", "text": " \n" }),
            json!({ "type": "tool_use", "id": "t1", "name": "lookup", "input": { "a": 1 } }),
        ];
        let turn = messages_turn(&blocks).unwrap();
        assert_eq!(turn.calls, [call("t1", "lookup", "{\"a\":1}")]);
        let sent = messages_answer(&answer(turn, ChatApi::Anthropic)).unwrap();
        assert_eq!(sent, json!({ "role": "assistant", "content": [blocks[0], blocks[2]] }));
        assert_eq!(
            messages_result(&result("t1", "no such tide", true)).unwrap(),
            json!({ "type": "tool_result", "tool_use_id": "t1", "content": "no such tide", "is_error": true })
        );
        assert_eq!(messages_turn(&blocks[..2]), None);
    }

    #[test]
    fn what_is_changed_in_a_call_is_changed_in_the_original() {
        let blocks = [json!({ "type": "tool_use", "id": "t1", "name": "bad name", "input": {} })];
        let mut turn = messages_turn(&blocks).unwrap();
        turn.calls[0] = call("call00001", "bad_name", "[");
        let sent = messages_answer(&answer(turn, ChatApi::Anthropic)).unwrap();
        assert_eq!(
            sent["content"],
            json!([{ "type": "tool_use", "id": "call00001", "name": "bad_name", "input": {} }])
        );
    }

    #[test]
    fn another_model_gets_the_text_and_the_calls_of_an_answer_with_ids_that_it_accepts() {
        let blocks = [
            json!({ "type": "thinking", "thinking": "See.", "signature": "s" }),
            json!({ "type": "tool_use", "id": "toolu_01", "name": "lookup", "input": { "a": 1 } }),
            json!({ "type": "tool_use", "id": "toolu_02", "name": "lookup", "input": {} }),
        ];
        let turn = answer(messages_turn(&blocks).unwrap(), ChatApi::Anthropic);
        let messages = vec![
            Message::text(Role::User, "?"),
            turn,
            result("toolu_01", "low", false),
            result("toolu_02", "high", false),
        ];
        let conversation = Conversation { messages, ..Conversation::default() };
        assert!(matches!(conversation.for_model(ChatApi::Anthropic, "m"), Cow::Borrowed(_)));
        let other = conversation.for_model(ChatApi::Openai, "m");
        let call = |id: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": "lookup", "arguments": arguments } });
        assert_eq!(
            json!(other.messages),
            json!([
                { "role": "user", "content": "?" },
                { "role": "assistant", "content": null,
                  "tool_calls": [call("call00001", "{\"a\":1}"), call("call00002", "{}")] },
                { "role": "tool", "tool_call_id": "call00001", "content": "low" },
                { "role": "tool", "tool_call_id": "call00002", "content": "high" },
            ])
        );
        let sent = messages_answer(&other.messages[1]).unwrap();
        assert_eq!(sent["content"].as_array().map(Vec::len), Some(2), "{sent}");
        let items = other.messages.iter().filter_map(responses_items).flatten();
        let kinds: Vec<Value> = items.map(|item| item["type"].clone()).collect();
        assert_eq!(
            kinds,
            ["function_call", "function_call", "function_call_output", "function_call_output"].map(Value::from)
        );
    }
}
