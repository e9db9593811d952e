//! Chat completions, as OpenAI-compatible endpoints take and give them.

use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidegate_core::time::Duration;

use super::answer::{CallError, one_line, unreadable};
use super::http::{HttpClient, HttpEndpoint};
use super::{Answer, ApiKey, TokenCounts};

/// Where and how to reach one model.
#[derive(Clone, Debug)]
pub struct ChatEndpoint {
    /// The base address, such as `https://host/v1`; `chat/completions` is appended.
    pub base_url: Url,
    /// The model id to send.
    pub model: String,
    /// The key, if the provider wants one.
    pub api_key: Option<ApiKey>,
    /// The longest that one call may take, connection and body included.
    pub timeout: Duration,
    /// Never go through a proxy that the environment names: for servers in this very process.
    pub bypass_proxy: bool,
}

impl ChatEndpoint {
    /// The client for `path` under the base address.
    pub(super) fn client(self, path: &str) -> Result<HttpClient, String> {
        let mut url = self.base_url;
        let path = format!("{}/{path}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        HttpClient::new(HttpEndpoint {
            url,
            api_key: self.api_key,
            timeout: self.timeout,
            bypass_proxy: self.bypass_proxy,
        })
    }
}

/// Calls one chat model.
#[derive(Clone, Debug)]
pub struct ChatClient {
    http: HttpClient,
    model: String,
}

/// One chat call of a prompt; options are left out of the request when not set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChatRequest<'a> {
    /// The system message.
    pub system: Option<&'a str>,
    /// The user message.
    pub prompt: &'a str,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// The most tokens the answer may have.
    pub max_tokens: Option<u32>,
}

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The frame of the conversation.
    System,
    /// Who asks.
    User,
    /// The model.
    Assistant,
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What.
    pub content: String,
}

/// A whole conversation to answer, with everything a request may say. What is not set is left out of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Conversation {
    /// The messages, the oldest first.
    pub messages: Vec<Message>,
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The share of likelihood that is sampled from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// The most tokens the answer may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Texts that end the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// The provider's seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The form that the answer must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_format: Option<Value>,
    /// Anything else that the provider takes.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(flatten)]
    conversation: &'a Conversation,
}

impl ChatClient {
    /// A client with its own connection pool. Fails when TLS cannot be set up.
    pub fn new(endpoint: ChatEndpoint) -> Result<Self, String> {
        let model = endpoint.model.clone();
        Ok(Self { http: endpoint.client("chat/completions")?, model })
    }

    /// Makes one call with a prompt.
    pub async fn complete(&self, request: ChatRequest<'_>) -> Result<String, CallError> {
        let message = |role, content: &str| Message { role, content: content.to_string() };
        let system = request.system.map(|system| message(Role::System, system));
        let conversation = Conversation {
            messages: system.into_iter().chain([message(Role::User, request.prompt)]).collect(),
            temperature: request.temperature,
            max_tokens: request.max_tokens,
            ..Conversation::default()
        };
        Ok(self.chat(&conversation).await?.value)
    }

    /// Makes one call.
    pub async fn chat(&self, conversation: &Conversation) -> Result<Answer<String>, CallError> {
        self.http.post(&Body { model: &self.model, conversation }, read_completion).await
    }
}

/// The part of a chat completion that is read.
#[derive(Deserialize)]
struct ChatCompletion {
    choices: Vec<Choice>,
    #[serde(default)]
    usage: TokenCounts,
}

#[derive(Deserialize)]
struct Choice {
    message: ChoiceMessage,
    #[serde(default)]
    finish_reason: Value,
}

#[derive(Deserialize)]
struct ChoiceMessage {
    content: Option<String>,
    #[serde(default)]
    refusal: Value,
}

impl Choice {
    /// Why there is no text, as far as the choice says.
    fn silence(&self) -> String {
        let reason = self.finish_reason.as_str().map(|reason| format!(" (finish_reason {})", one_line(reason)));
        let refusal = self.message.refusal.as_str().map(|refusal| format!(": {}", one_line(refusal)));
        format!("it has no text{}{}", reason.unwrap_or_default(), refusal.unwrap_or_default())
    }
}

/// The text of the first choice, and the tokens that were used.
pub(crate) fn read_completion(body: &[u8]) -> Result<Answer<String>, CallError> {
    let malformed = |detail, usage| CallError::Malformed { what: "a chat completion", detail, usage };
    let completion: ChatCompletion =
        serde_json::from_slice(body).map_err(|error| unreadable("a chat completion", &error, body))?;
    let usage = completion.usage.known();
    let Some(mut choice) = completion.choices.into_iter().next() else {
        return Err(malformed("it has no choices".to_string(), usage));
    };
    match choice.message.content.take() {
        Some(value) => Ok(Answer { value, usage }),
        None => Err(malformed(choice.silence(), usage)),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::budget::Usage;

    use super::*;

    #[test]
    fn a_completion_is_its_first_choices_text_and_the_tokens_it_took() {
        let body = br#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hello"}}],
                        "usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}"#;
        let usage = Some(Usage::tokens(7, 2));
        assert_eq!(read_completion(body), Ok(Answer { value: "hello".to_string(), usage }));
        let body = br#"{"choices":[{"message":{"content":"x"}}],"usage":null}"#;
        assert_eq!(read_completion(body).unwrap().usage, None);
    }

    #[test]
    fn an_answer_that_is_no_completion_says_in_which_way() {
        for (body, expected) in [
            ("", "it is empty"),
            ("<html>busy</html>", "it is not JSON (expected value at line 1 column 1)"),
            ("{}", "missing field `choices` at line 1 column 2"),
            (r#"{"choices":[]}"#, "it has no choices"),
        ] {
            let error = read_completion(body.as_bytes()).unwrap_err().to_string();
            assert_eq!(error, format!("the answer is not a chat completion: {expected}"));
        }
    }

    #[test]
    fn an_answer_without_a_text_says_why_and_what_it_took() {
        let usage = r#""usage":{"prompt_tokens":7,"completion_tokens":2}"#;
        for (choices, expected) in [
            (r#"[{"message":{"content":null},"finish_reason":"length"}]"#, "it has no text (finish_reason length)"),
            (r#"[{"message":{"content":null,"refusal":"I will not"}}]"#, "it has no text: I will not"),
            (r#"[{"message":{"tool_calls":[]}}]"#, "it has no text"),
            ("[]", "it has no choices"),
            (r#"[{"message":{"content":[]}}]"#, "invalid type: sequence, expected a string"),
        ] {
            let body = format!(r#"{{"choices":{choices},{usage}}}"#);
            let (CallError::Malformed { detail, usage, .. } | CallError::Unreadable { detail, usage, .. }) =
                read_completion(body.as_bytes()).unwrap_err()
            else {
                panic!("{body}")
            };
            assert!(detail.starts_with(expected), "{detail}");
            assert_eq!(usage, Some(Usage::tokens(7, 2)), "{body}");
        }
    }

    #[test]
    fn what_is_not_set_is_not_sent_and_extra_keys_go_along() {
        let extra = Map::from_iter([("top_k".to_string(), Value::from(3))]);
        let conversation = Conversation { extra, stop: vec!["END".to_string()], ..Conversation::default() };
        let body = serde_json::to_value(Body { model: "m", conversation: &conversation }).unwrap();
        assert_eq!(body, serde_json::json!({"model": "m", "messages": [], "stop": ["END"], "top_k": 3}));
    }
}
