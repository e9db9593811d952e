//! Calls to chat models: by chat completions of OpenAI-compatible APIs, the Responses API of OpenAI, or the
//! Messages API of Anthropic.

use std::borrow::Cow;
use std::collections::BTreeMap;

use reqwest::{Certificate, Url};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use tidegate_core::time::Duration;

use super::answer::CallError;
use super::completion::{ChatAnswer, read_completion};
use super::conversation::{ChatApi, Conversation, Message, Role};
use super::http::{HttpClient, HttpEndpoint, RequestExtras};
use super::media::Media;
use super::{ApiKey, CallOutput, messages, responses, tool_calls};

/// The name that some providers have for the token limit.
pub const MAX_COMPLETION_TOKENS: &str = "max_completion_tokens";

/// The address of one model, and how to connect to it.
#[derive(Clone, Debug)]
pub struct ChatEndpoint {
    /// The base URL, such as `https://host/v1`. The client appends a path such as `chat/completions`.
    pub base_url: Url,
    /// The model id to send.
    pub model: String,
    /// The API key, if the provider requires one.
    pub api_key: Option<ApiKey>,
    /// The certificate authorities to trust instead of those of the system.
    pub authorities: Option<Vec<Certificate>>,
    /// The maximum duration of one call, including the connection and the body.
    pub timeout: Duration,
}

impl ChatEndpoint {
    /// Returns an endpoint on this machine, without a key.
    #[cfg(test)]
    pub(crate) fn local(base_url: &str) -> Self {
        Self {
            base_url: base_url.parse().unwrap(),
            model: "m".to_string(),
            api_key: None,
            timeout: Duration::from_secs(60),
            authorities: None,
        }
    }

    /// Creates the client for `path` below the base URL.
    pub(super) fn client(self, path: &str) -> Result<HttpClient, String> {
        let mut url = self.base_url;
        let path = format!("{}/{path}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        HttpClient::new(HttpEndpoint {
            url,
            api_key: self.api_key,
            authorities: self.authorities,
            timeout: self.timeout,
        })
    }
}

/// A client of one chat model.
#[derive(Clone, Debug)]
pub struct ChatClient {
    http: HttpClient,
    model: String,
    /// Keys of each request body. Those of a conversation replace them.
    extra_body: Map<String, Value>,
    api: ChatApi,
}

/// A request with one prompt. Options that are `None` are not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChatRequest<'a> {
    /// The system message.
    pub system: Option<&'a str>,
    /// The user message.
    pub prompt: &'a str,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// The maximum number of tokens of the response.
    pub max_tokens: Option<u32>,
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(message) = tool_calls::chat_message(self) {
            return message.serialize(serializer);
        }
        if !self.media.is_empty() {
            return self.with_parts("text", Media::chat_part).serialize(serializer);
        }
        // Most messages: no text is copied.
        let mut message = serializer.serialize_struct("Message", 2)?;
        message.serialize_field("content", &self.content)?;
        message.serialize_field("role", &self.role)?;
        message.end()
    }
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(flatten)]
    conversation: Cow<'a, Conversation>,
    #[serde(flatten)]
    extras: BTreeMap<&'a str, &'a Value>,
}

impl ChatClient {
    /// Creates a client of chat completions with its own connection pool. Fails if TLS cannot be set up.
    pub fn new(endpoint: ChatEndpoint) -> Result<Self, String> {
        Self::with_api(endpoint, ChatApi::Openai)
    }

    /// Creates a client of this API, like [`new`](Self::new).
    pub fn with_api(mut endpoint: ChatEndpoint, api: ChatApi) -> Result<Self, String> {
        let model = endpoint.model.clone();
        let http = match api {
            ChatApi::Openai => endpoint.client("chat/completions")?,
            ChatApi::Responses => endpoint.client("responses")?,
            ChatApi::Anthropic => {
                // The key is in a header of its own.
                let headers = messages::headers(endpoint.api_key.take());
                endpoint.client("messages")?.with_extras(&headers)
            }
        };
        Ok(Self { http, model, extra_body: Map::new(), api })
    }

    /// Adds `extras` to all requests.
    #[must_use]
    pub fn with_extras(self, extras: RequestExtras) -> Self {
        Self { http: self.http.with_extras(&extras), extra_body: extras.body, ..self }
    }

    /// Makes one call with one prompt, and returns the text of the response.
    pub async fn complete(&self, request: ChatRequest<'_>) -> Result<String, CallError> {
        let system = request.system.map(|system| Message::text(Role::System, system));
        let conversation = Conversation {
            messages: system.into_iter().chain([Message::text(Role::User, request.prompt)]).collect(),
            temperature: request.temperature,
            max_tokens: request.max_tokens,
            ..Conversation::default()
        };
        Ok(self.chat(&conversation).await?.value.text)
    }

    /// Makes one call, and returns the answer with its token usage.
    pub async fn chat(&self, conversation: &Conversation) -> Result<CallOutput<ChatAnswer>, CallError> {
        let conversation = &*conversation.for_model(self.api, &self.model);
        let has_tools = !conversation.tools.is_empty();
        let mut answer = match self.api {
            ChatApi::Openai => self.http.post(&self.body(conversation), |body| read_completion(body, has_tools)).await,
            ChatApi::Responses => {
                let body = responses::body(&self.model, conversation, &self.extra_body);
                self.http.post(&body, |body| responses::read(body, has_tools)).await
            }
            ChatApi::Anthropic => {
                let body = messages::body(&self.model, conversation, &self.extra_body);
                self.http.post(&body, |body| messages::read(body, conversation)).await
            }
        }?;
        if let Some(turn) = &mut answer.value.turn {
            turn.answered_by = (self.api, self.model.clone());
        }
        Ok(answer)
    }

    /// Returns the body of a request for a chat completion.
    pub(super) fn body<'a>(&'a self, conversation: &'a Conversation) -> impl Serialize + use<'a> {
        let has_tools = !conversation.tools.is_empty();
        let conversation = self.with_named_limit(conversation);
        let is_set = |key: &String| conversation.extra.contains_key(key) || (has_tools && key == "tools");
        let is_unset = |(key, _): &(&String, &Value)| !is_set(key);
        let extras = self.extra_body.iter().filter(is_unset).map(|(key, value)| (key.as_str(), value)).collect();
        Body { model: &self.model, conversation, extras }
    }

    /// Returns `conversation` with its token limit under the name that the extra body of the model has for
    /// one: some providers reject a request with both.
    fn with_named_limit<'a>(&self, conversation: &'a Conversation) -> Cow<'a, Conversation> {
        let is_named = |extra: &Map<String, Value>| extra.contains_key(MAX_COMPLETION_TOKENS);
        match conversation.max_tokens {
            Some(limit) if is_named(&self.extra_body) && !is_named(&conversation.extra) => {
                let mut named = Conversation { max_tokens: None, ..conversation.clone() };
                named.extra.insert(MAX_COMPLETION_TOKENS.to_string(), limit.into());
                Cow::Owned(named)
            }
            _ => Cow::Borrowed(conversation),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unset_options_are_not_sent_and_extra_parameters_are() {
        let map = |value: Value| value.as_object().cloned().unwrap();
        let extra = map(json!({ "top_k": 3 }));
        let conversation = Conversation { extra, stop: vec!["END".to_string()], ..Conversation::default() };
        let body = map(json!({ "top_k": 9, "effort": "low" }));
        let client = ChatClient::new(ChatEndpoint::local("http://127.0.0.1/v1")).unwrap();
        let client = client.with_extras(RequestExtras { body, ..RequestExtras::default() });
        let body = serde_json::to_value(client.body(&conversation)).unwrap();
        assert_eq!(body, json!({"model": "m", "messages": [], "stop": ["END"], "top_k": 3, "effort": "low"}));
        let body = map(json!({ "max_completion_tokens": 90 }));
        let client = client.with_extras(RequestExtras { body, ..RequestExtras::default() });
        let body = |max_tokens| {
            let conversation = Conversation { max_tokens, ..Conversation::default() };
            serde_json::to_value(client.body(&conversation)).unwrap()
        };
        let expected = |limit: u32| json!({"model": "m", "messages": [], "max_completion_tokens": limit});
        assert_eq!((body(None), body(Some(7))), (expected(90), expected(7)));
    }
}
