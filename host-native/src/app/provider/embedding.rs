//! Embedding vectors, as OpenAI-compatible endpoints take and give them.

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::answer::{CallError, unreadable};
use super::chat::ChatEndpoint;
use super::http::HttpClient;
use super::{Answer, TokenCounts};

/// Calls one embedding model.
#[derive(Clone, Debug)]
pub struct EmbeddingClient {
    http: HttpClient,
    model: String,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    input: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<u32>,
}

impl EmbeddingClient {
    /// A client with its own connection pool; `embeddings` is appended to the base address. Fails when TLS cannot be set
    /// up.
    pub fn new(endpoint: ChatEndpoint) -> Result<Self, String> {
        let model = endpoint.model.clone();
        Ok(Self { http: endpoint.client("embeddings")?, model })
    }

    /// The vector of `input`, a list of numbers, of so many `dimensions` if that is said.
    pub async fn embed(&self, input: &str, dimensions: Option<u32>) -> Result<Answer<Value>, CallError> {
        let body = Body { model: &self.model, input, dimensions };
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

pub(crate) fn read_embedding(body: &[u8], dimensions: Option<u32>) -> Result<Answer<Value>, CallError> {
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
        _ => Ok(Answer { value: embedding.into_iter().map(Value::Number).collect(), usage }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tidegate_core::budget::Usage;

    #[test]
    fn an_embedding_is_the_first_vector_and_the_tokens_it_took() {
        let body = br#"{"data":[{"index":0,"embedding":[0.5,-1]}],"usage":{"prompt_tokens":4,"total_tokens":4}}"#;
        let answer = read_embedding(body, Some(2)).unwrap();
        assert_eq!((answer.value, answer.usage), (json!([0.5, -1]), Some(Usage::tokens(4, 0))));
    }

    #[test]
    fn a_vector_of_another_length_or_none_is_malformed() {
        let error = read_embedding(br#"{"data":[{"embedding":[1]}]}"#, Some(3)).unwrap_err().to_string();
        assert_eq!(error, "the answer is not an embedding: it has 1 dimensions; expected 3");
        let error = read_embedding(br#"{"data":[]}"#, None).unwrap_err().to_string();
        assert_eq!(error, "the answer is not an embedding: it has no data");
    }

    #[test]
    fn a_vector_of_another_length_took_the_tokens_it_says() {
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
