//! The token limit of an answer, for each API of chat models: the columns and the model of a pipeline file
//! may set it, and some APIs require one.
//!
//! | API | the first of these that is set |
//! | --- | --- |
//! | chat completions | `max_completion_tokens` of the column, `max_tokens`, `max_completion_tokens` of the model |
//! | Responses | `max_tokens`, `max_output_tokens` of the column, `max_output_tokens` of the model |
//! | Messages of Anthropic | `max_tokens`, else 4096, which the program sends |

use serde_json::{Map, Value};

use super::chat::MAX_COMPLETION_TOKENS;
use super::conversation::{ChatApi, Conversation};
use super::messages::ANTHROPIC_MAX_TOKENS;
use super::responses::MAX_OUTPUT_TOKENS;

/// The token limits of the answers of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenLimit {
    api: ChatApi,
    /// The limit that the model has for all its answers.
    of_model: Option<u64>,
}

impl TokenLimit {
    /// Creates the limits of a model with this API, whose requests all have the keys `extra_body`.
    #[must_use]
    pub fn new(api: ChatApi, extra_body: &Map<String, Value>) -> Self {
        Self { api, of_model: extra_limit(api, extra_body) }
    }

    /// Returns the limit that the file sets for the answer to `conversation`.
    #[must_use]
    pub fn given(self, conversation: &Conversation) -> Option<u64> {
        let of_column = extra_limit(self.api, &conversation.extra);
        let own = conversation.max_tokens.map(u64::from);
        // The other APIs have one key for both, which that of the column replaces.
        let first = if self.api == ChatApi::Openai { of_column.or(own) } else { own.or(of_column) };
        first.or(self.of_model)
    }

    /// Returns the limit that the request with `conversation` has.
    #[must_use]
    pub fn sent(self, conversation: &Conversation) -> Option<u64> {
        let required = (self.api == ChatApi::Anthropic).then(|| ANTHROPIC_MAX_TOKENS.into());
        self.given(conversation).or(required)
    }

    /// Sets the limit of the answer to `conversation`, if that of its request is lower. Returns whether it
    /// is.
    pub fn raise(self, conversation: &mut Conversation, limit: u32) -> bool {
        if self.sent(conversation).is_some_and(|sent| sent >= u64::from(limit)) {
            return false;
        }
        match conversation.extra.get_mut(MAX_COMPLETION_TOKENS) {
            Some(of_column) if self.api == ChatApi::Openai => *of_column = limit.into(),
            _ => conversation.max_tokens = Some(limit),
        }
        true
    }
}

/// Returns the limit among further keys of a request.
fn extra_limit(api: ChatApi, extra: &Map<String, Value>) -> Option<u64> {
    let key = match api {
        ChatApi::Openai => MAX_COMPLETION_TOKENS,
        ChatApi::Responses => MAX_OUTPUT_TOKENS,
        // A pipeline file has `max_tokens` nowhere else.
        ChatApi::Anthropic => return None,
    };
    extra.get(key).and_then(Value::as_u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{messages, responses};
    use super::*;
    use crate::app::provider::http::RequestExtras;
    use crate::app::provider::{ChatClient, ChatEndpoint};

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    /// Returns the request of a model with the keys `extra_body`.
    fn request(api: ChatApi, conversation: &Conversation, extra_body: &Map<String, Value>) -> Value {
        match api {
            ChatApi::Openai => {
                let client = ChatClient::new(ChatEndpoint::local("http://127.0.0.1/v1")).unwrap();
                let extras = RequestExtras { body: extra_body.clone(), ..RequestExtras::default() };
                serde_json::to_value(client.with_extras(extras).body(conversation)).unwrap()
            }
            ChatApi::Responses => responses::body("m", conversation, extra_body),
            ChatApi::Anthropic => messages::body("m", conversation, extra_body),
        }
    }

    #[test]
    fn the_limit_that_is_expected_is_that_of_the_request_for_every_api() {
        let keys = ["max_completion_tokens", "max_output_tokens", "max_tokens"];
        // The last one has its limit in one place only.
        let apis = [(ChatApi::Openai, keys[0]), (ChatApi::Responses, keys[1]), (ChatApi::Anthropic, "other")];
        for (api, key) in apis {
            let named = |limit: Option<u32>| limit.map_or_else(Map::new, |limit| map(&json!({ key: limit })));
            for max_tokens in [None, Some(7)] {
                for (of_column, of_model) in [(None, None), (Some(20), None), (None, Some(90)), (Some(20), Some(90))] {
                    let (extra, extra_body) = (named(of_column), named(of_model));
                    let limit = TokenLimit::new(api, &extra_body);
                    let mut conversation = Conversation { max_tokens, extra, ..Conversation::default() };
                    let body = request(api, &conversation, &extra_body);
                    let sent = keys.iter().find_map(|key| body.get(*key)?.as_u64());
                    assert_eq!(limit.sent(&conversation), sent, "{api:?} {body}");
                    assert!(!limit.raise(&mut conversation.clone(), 7) || sent.is_none(), "{api:?} {body}");
                    assert!(limit.raise(&mut conversation, 5_000));
                    assert_eq!(limit.sent(&conversation), Some(5_000), "{api:?} {body}");
                }
            }
        }
    }

    #[test]
    fn the_limit_that_an_api_requires_is_none_of_the_file() {
        let limit = TokenLimit::new(ChatApi::Anthropic, &Map::new());
        let conversation = Conversation::default();
        assert_eq!((limit.given(&conversation), limit.sent(&conversation)), (None, Some(4_096)));
    }
}
