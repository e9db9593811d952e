//! Calls to the chat completions endpoint of OpenAI-compatible APIs.

use reqwest::{Certificate, Url};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidegate_core::time::Duration;

use super::answer::{CallError, excerpt, unreadable};
use super::http::{HttpClient, HttpEndpoint};
use super::{ApiKey, CallOutput, TokenCounts};

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

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// The author.
    pub role: Role,
    /// The text.
    pub content: String,
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
    /// Other parameters, which are sent unchanged.
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
    /// Creates a client with its own connection pool. Fails if TLS cannot be set up.
    pub fn new(endpoint: ChatEndpoint) -> Result<Self, String> {
        let model = endpoint.model.clone();
        Ok(Self { http: endpoint.client("chat/completions")?, model })
    }

    /// Makes one call with one prompt, and returns the text of the response.
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

    /// Makes one call, and returns the text of the response with its token usage.
    pub async fn chat(&self, conversation: &Conversation) -> Result<CallOutput<String>, CallError> {
        self.http.post(&Body { model: &self.model, conversation }, read_completion).await
    }
}

/// The fields of a chat completion that are used.
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
    /// Returns an error message for a choice without text, with the reason that it gives.
    fn missing_text_reason(&self) -> String {
        let reason = self.finish_reason.as_str().map(|reason| format!(" (finish_reason {})", excerpt(reason)));
        let refusal = self.message.refusal.as_str().map(|refusal| format!(": {}", excerpt(refusal)));
        format!("it has no text{}{}", reason.unwrap_or_default(), refusal.unwrap_or_default())
    }
}

/// Reads the text of the first choice and the token usage.
pub(crate) fn read_completion(body: &[u8]) -> Result<CallOutput<String>, CallError> {
    let malformed = |detail, usage| CallError::Malformed { what: "a chat completion", detail, usage };
    let completion: ChatCompletion =
        serde_json::from_slice(body).map_err(|error| unreadable("a chat completion", &error, body))?;
    let usage = completion.usage.known();
    let Some(mut choice) = completion.choices.into_iter().next() else {
        return Err(malformed("it has no choices".to_string(), usage));
    };
    match choice.message.content.take() {
        Some(value) => Ok(CallOutput { value, usage }),
        None => Err(malformed(choice.missing_text_reason(), usage)),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::budget::Usage;

    use super::*;

    #[test]
    fn the_result_is_the_text_of_the_first_choice_with_its_token_usage() {
        let body = br#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hello"}}],
                        "usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}"#;
        let usage = Some(Usage::tokens(7, 2));
        assert_eq!(read_completion(body), Ok(CallOutput { value: "hello".to_string(), usage }));
        let body = br#"{"choices":[{"message":{"content":"x"}}],"usage":null}"#;
        assert_eq!(read_completion(body).unwrap().usage, None);
    }

    #[test]
    fn a_body_that_is_not_a_completion_is_an_error_with_the_reason() {
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
    fn a_choice_without_text_is_an_error_with_the_reason_and_the_token_usage() {
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
    fn unset_options_are_not_sent_and_extra_parameters_are() {
        let extra = Map::from_iter([("top_k".to_string(), Value::from(3))]);
        let conversation = Conversation { extra, stop: vec!["END".to_string()], ..Conversation::default() };
        let body = serde_json::to_value(Body { model: "m", conversation: &conversation }).unwrap();
        assert_eq!(body, serde_json::json!({"model": "m", "messages": [], "stop": ["END"], "top_k": 3}));
    }
}
