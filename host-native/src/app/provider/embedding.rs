//! Calls to the embeddings endpoint of OpenAI-compatible APIs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use super::answer::{CallError, unreadable};
use super::chat::ChatEndpoint;
use super::http::{HttpClient, RequestExtras};
use super::{CallOutput, TokenCounts};

/// A client of one embedding model.
#[derive(Clone, Debug)]
pub struct EmbeddingClient {
    http: HttpClient,
    model: String,
    extra_body: Map<String, Value>,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    input: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<u32>,
    #[serde(flatten)]
    extras: &'a Map<String, Value>,
}

impl EmbeddingClient {
    /// Creates a client with its own connection pool. `embeddings` is appended to the base URL. Fails if TLS
    /// cannot be set up.
    pub fn new(endpoint: ChatEndpoint) -> Result<Self, String> {
        let model = endpoint.model.clone();
        Ok(Self { http: endpoint.client("embeddings")?, model, extra_body: Map::new() })
    }

    /// Adds `extras` to all requests.
    #[must_use]
    pub fn with_extras(self, extras: RequestExtras) -> Self {
        Self { http: self.http.with_extras(&extras), model: self.model, extra_body: extras.body }
    }

    /// Returns the embedding of `input` as an array of numbers. An embedding with other than `dimensions`
    /// numbers is an error, if that is given.
    pub async fn embed(&self, input: &str, dimensions: Option<u32>) -> Result<CallOutput<Value>, CallError> {
        let body = Body { model: &self.model, input, dimensions, extras: &self.extra_body };
        self.http.post(&body, |body| read_embedding(body, dimensions)).await
    }
}

#[derive(Deserialize)]
struct Embeddings {
    data: Vec<Embedding>,
    #[serde(default)]
    usage: TokenCounts,
}

#[derive(Deserialize)]
struct Embedding {
    embedding: Vec<Number>,
}

pub(crate) fn read_embedding(body: &[u8], dimensions: Option<u32>) -> Result<CallOutput<Value>, CallError> {
    let malformed = |detail, usage| CallError::Malformed { what: "an embedding", detail, usage };
    let read: Embeddings = serde_json::from_slice(body).map_err(|error| unreadable("an embedding", &error, body))?;
    let usage = read.usage.known();
    let Some(Embedding { embedding }) = read.data.into_iter().next() else {
        return Err(malformed("it has no data".to_string(), usage));
    };
    match dimensions {
        Some(wanted) if wanted as usize != embedding.len() => {
            Err(malformed(format!("it has {} dimensions; expected {wanted}", embedding.len()), usage))
        }
        _ => Ok(CallOutput { value: embedding.into_iter().map(Value::Number).collect(), usage }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tidegate_core::budget::Usage;

    #[test]
    fn the_result_is_the_first_vector_with_its_token_usage() {
        let body = br#"{"data":[{"index":0,"embedding":[0.5,-1]}],"usage":{"prompt_tokens":4,"total_tokens":4}}"#;
        let answer = read_embedding(body, Some(2)).unwrap();
        assert_eq!((answer.value, answer.usage), (json!([0.5, -1]), Some(Usage::tokens(4, 0))));
    }

    #[test]
    fn a_vector_of_the_wrong_length_or_a_missing_one_is_malformed() {
        let error = read_embedding(br#"{"data":[{"embedding":[1]}]}"#, Some(3)).unwrap_err().to_string();
        assert_eq!(error, "the answer is not an embedding: it has 1 dimensions; expected 3");
        let error = read_embedding(br#"{"data":[]}"#, None).unwrap_err().to_string();
        assert_eq!(error, "the answer is not an embedding: it has no data");
    }

    #[test]
    fn a_malformed_response_still_reports_its_token_usage() {
        for data in [r#"[{"embedding":[1]}]"#, "[]", "null"] {
            let body = format!(r#"{{"data":{data},"usage":{{"prompt_tokens":4}}}}"#);
            let error = read_embedding(body.as_bytes(), Some(3)).unwrap_err();
            let (CallError::Malformed { usage, .. } | CallError::Unreadable { usage, .. }) = error else {
                panic!("{error}")
            };
            assert_eq!(usage, Some(Usage::tokens(4, 0)), "{body}");
        }
    }
}
