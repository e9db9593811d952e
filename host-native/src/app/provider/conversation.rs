//! A conversation with a chat model: its messages, the tools that the model may call, and its calls of them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::media::Media;

/// The API of a chat model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChatApi {
    /// Chat completions, as OpenAI and most other providers have them
    #[default]
    Openai,
    /// The Responses API of OpenAI
    Responses,
    /// The Messages API of Anthropic
    Anthropic,
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions for the model.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
}

/// A message of a conversation. It is serialized as in chat completions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The author.
    pub role: Role,
    /// The text.
    pub content: String,
    /// Images and recordings, which come before the text.
    pub media: Vec<Media>,
    /// The calls of tools, if it is an answer with some.
    pub turn: Option<ToolTurn>,
    /// What it is the result of, if it is that of a tool. The author is the user.
    pub result: Option<ToolResult>,
}

impl Message {
    /// Creates a message with a text only.
    #[must_use]
    pub fn text(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), media: Vec::new(), turn: None, result: None }
    }

    /// Returns the message in the form of an API that has a part of the type `text_type` for the text, and
    /// those of `part` for media.
    pub(super) fn with_parts(&self, text_type: &str, part: fn(&Media) -> Value) -> Value {
        if self.media.is_empty() {
            return json!({ "role": self.role, "content": self.content });
        }
        let mut parts: Vec<Value> = self.media.iter().map(part).collect();
        // APIs reject a part with an empty text.
        if !self.content.trim().is_empty() {
            parts.push(json!({ "type": text_type, "text": self.content }));
        }
        json!({ "role": self.role, "content": parts })
    }
}

/// A request with a whole conversation. Options that are not set are not sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Conversation {
    /// The messages, the oldest first.
    pub messages: Vec<Message>,
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The probability mass for nucleus sampling, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// The maximum number of tokens of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Stop sequences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// The seed for the sampling of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The format of the response, such as a JSON Schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_format: Option<Value>,
    /// The tools that the model may call.
    #[serde(skip_serializing_if = "<[_]>::is_empty", serialize_with = "chat_tools")]
    pub tools: Arc<[OfferedTool]>,
    /// Other parameters, which are sent unchanged.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedTool {
    /// Its name: letters, digits, `_` and `-`.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its arguments, which are an object.
    pub parameters: Value,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// What the result refers to.
    pub id: String,
    /// The name of the tool. The model may have invented it.
    pub name: String,
    /// The arguments as the model wrote them, which may be no JSON.
    pub arguments: String,
}

/// The calls in an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolTurn {
    /// The calls, at least one.
    pub calls: Vec<ToolCall>,
    /// The answer as its API has it: a message, or a list of blocks or items. It has the calls in the same
    /// order.
    pub original: Value,
    /// The API and the model of the answer.
    pub answered_by: (ChatApi, String),
}

/// What a message of the user is the result of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// The id of the call.
    pub call_id: String,
    /// The name of the tool.
    pub tool: String,
    /// Whether the message says why there is no result.
    pub is_error: bool,
}

/// Serializes tools as chat completions have them.
fn chat_tools<S: Serializer>(tools: &[OfferedTool], serializer: S) -> Result<S::Ok, S::Error> {
    let tool = |OfferedTool { name, description, parameters }: &OfferedTool| {
        let function = json!({ "name": name, "description": description, "parameters": parameters });
        json!({ "type": "function", "function": function })
    };
    tools.iter().map(tool).collect::<Vec<_>>().serialize(serializer)
}
