//! The messages of a chat request: texts, images and recordings, and calls of tools with their results.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

use super::error::ApiError;
use super::protocol::Protocol;

/// A message of a conversation.
#[derive(Debug, Deserialize)]
pub(super) struct Message {
    #[serde(default)]
    role: Option<String>,
    pub(super) content: Option<Content>,
    /// Of an answer: the tools that it called.
    #[serde(default)]
    tool_calls: Option<Vec<PastCall>>,
    /// Of a result: the call.
    #[serde(default)]
    tool_call_id: Option<String>,
}

/// A call of a tool in an earlier answer.
#[derive(Debug, Deserialize)]
struct PastCall {
    id: String,
    function: PastFunction,
}

#[derive(Debug, Deserialize)]
struct PastFunction {
    name: String,
    arguments: String,
}

/// The content of a message.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`content` is neither a text nor a list of parts")]
pub(super) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

impl Content {
    /// Returns the tokens of all images and recordings.
    pub(super) fn media_tokens(&self, protocol: Protocol) -> Result<u32, ApiError> {
        match self {
            Self::Text(_) => Ok(0),
            Self::Parts(parts) => {
                parts.iter().try_fold(0_u32, |sum, part| Ok(sum.saturating_add(part.media_tokens(protocol)?)))
            }
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => {
                let texts: Vec<&str> = parts.iter().filter_map(|part| part.text.as_deref()).collect();
                texts.join("\n")
            }
        }
    }
}

/// A part of a message. Those of other types than texts, images and recordings are ignored.
#[derive(Debug, Deserialize)]
pub(super) struct Part {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    /// Of chat completions an object with the address, of the Responses API the address.
    #[serde(default)]
    image_url: Value,
    #[serde(default)]
    input_audio: Value,
    /// Where an image of the Messages API is.
    #[serde(default)]
    source: Value,
}

impl Part {
    /// Returns the tokens of an image or a recording, which must have the form that the API requires; 0 for
    /// other parts.
    fn media_tokens(&self, protocol: Protocol) -> Result<u32, ApiError> {
        let kind = self.kind.as_deref().unwrap_or("text");
        let (is_valid, tokens) = match (protocol, kind) {
            (Protocol::Chat, "image_url") => (is_image_url(&self.image_url["url"]), IMAGE_TOKENS),
            (Protocol::Responses, "input_image") => (is_image_url(&self.image_url), IMAGE_TOKENS),
            (Protocol::Messages, "image") => (is_image_source(&self.source), IMAGE_TOKENS),
            (Protocol::Chat, "input_audio") => {
                let is_known = matches!(self.input_audio["format"].as_str(), Some("wav" | "mp3"));
                (is_known && is_base64(&self.input_audio["data"]), AUDIO_TOKENS)
            }
            (_, "image_url" | "input_image" | "image" | "input_audio") => (false, 0),
            _ => return Ok(0),
        };
        if is_valid {
            return Ok(tokens);
        }
        Err(ApiError::field("messages", format!("a part of the type `{kind}` does not have the form of this API")))
    }
}

/// The tokens that an image counts as, whatever its size.
const IMAGE_TOKENS: u32 = 85;

/// The tokens that a recording counts as, whatever its length.
const AUDIO_TOKENS: u32 = 100;

/// Returns whether `url` is the address of an image, or a data URL with one.
fn is_image_url(url: &Value) -> bool {
    let Some(url) = url.as_str() else { return false };
    match url.strip_prefix("data:image/").and_then(|data| data.split_once(";base64,")) {
        Some((_, data)) => is_base64(&data.into()),
        None => url.starts_with("https://") || url.starts_with("http://"),
    }
}

fn is_image_source(source: &Value) -> bool {
    match source["type"].as_str() {
        Some("url") => source["url"].as_str().is_some_and(|url| url.starts_with("https://")),
        Some("base64") => {
            let is_image = source["media_type"].as_str().is_some_and(|name| name.starts_with("image/"));
            is_image && is_base64(&source["data"])
        }
        _ => false,
    }
}

fn is_base64(data: &Value) -> bool {
    data.as_str().is_some_and(|data| !data.is_empty() && STANDARD.decode(data).is_ok())
}

/// Returns an error unless each call of a tool is followed by its result, and each result follows its call,
/// as the APIs require it.
pub(super) fn check_results(messages: &[Message]) -> Result<(), ApiError> {
    let invalid = |message: String| Err(ApiError::field("messages", message));
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        if let Some(id) = &message.tool_call_id {
            let Some(found) = open.iter().position(|call| call == id) else {
                return invalid(format!(
                    "messages.{at}: a result for `{id}`, which is no call of the answer before it"
                ));
            };
            open.remove(found);
            continue;
        }
        if message.role.as_deref() == Some("tool") {
            return invalid(format!("messages.{at}: the role `tool` without `tool_call_id`"));
        }
        if let Some(id) = open.first() {
            return invalid(format!("messages.{at}: the call `{id}` before it has no result"));
        }
        for call in message.tool_calls.iter().flatten() {
            let is_name = |name: &str| !name.is_empty() && name.len() <= 64 && name.chars().all(is_name_char);
            if call.id.is_empty() || open.contains(&call.id.as_str()) || !is_name(&call.function.name) {
                return invalid(format!("messages.{at}: ids of calls must be unique, and names be those of functions"));
            }
            if !serde_json::from_str::<Value>(&call.function.arguments).is_ok_and(|arguments| arguments.is_object()) {
                return invalid(format!("messages.{at}: the arguments of `{}` are no object", call.function.name));
            }
            open.push(&call.id);
        }
    }
    open.first().map_or(Ok(()), |id| invalid(format!("the call `{id}` has no result")))
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// Returns the results at the end of a conversation.
pub(super) fn last_results(messages: &[Message]) -> Vec<String> {
    let ends = messages.iter().rev().take_while(|message| message.tool_call_id.is_some());
    let mut results: Vec<String> =
        ends.map(|message| message.content.as_ref().map_or_else(String::new, Content::text)).collect();
    results.reverse();
    results
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::app::mock::chat::CompletionCall;

    #[test]
    fn images_and_recordings_count_as_tokens_and_must_have_the_form_of_the_api() {
        let call = |protocol: Protocol, part: &Value| {
            let content = [json!({ "type": "text", "text": "a buoy" }), part.clone()];
            let body = json!({ "model": "m", "messages": [{ "role": "user", "content": content }] });
            CompletionCall::parse(protocol, body.to_string().as_bytes()).map(|call| call.tokens.0)
        };
        let data = "data:image/png;base64,iVBORw0KGgo=";
        let of_chat = |url: &str| json!({ "type": "image_url", "image_url": { "url": url } });
        let source = json!({ "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=" });
        let block = json!({ "type": "image", "source": source });
        let audio =
            |format: &str| json!({ "type": "input_audio", "input_audio": { "data": "AAAA", "format": format } });
        for (protocol, part, tokens) in [
            (Protocol::Chat, of_chat(data), IMAGE_TOKENS),
            (Protocol::Chat, of_chat("https://h.test/a.png"), IMAGE_TOKENS),
            (Protocol::Chat, audio("wav"), AUDIO_TOKENS),
            (Protocol::Responses, json!({ "type": "input_image", "image_url": data }), IMAGE_TOKENS),
            (Protocol::Messages, block.clone(), IMAGE_TOKENS),
        ] {
            assert_eq!(call(protocol, &part).unwrap(), 2 + tokens, "{part}");
        }
        for (protocol, part) in [
            (Protocol::Chat, of_chat("data:,")),
            (Protocol::Chat, of_chat("boat.png")),
            (Protocol::Chat, audio("ogg")),
            (Protocol::Chat, block),
            (Protocol::Responses, of_chat(data)),
            (Protocol::Messages, json!({ "type": "image", "source": { "type": "url", "url": "http://h.test/a" } })),
        ] {
            assert_eq!(call(protocol, &part).unwrap_err().param(), Some("messages"), "{part}");
        }
    }
}
