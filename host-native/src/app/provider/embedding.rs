//! Calls to the embeddings endpoint of OpenAI-compatible APIs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use tidegate_core::budget::Usage;

use super::CallOutput;
use super::answer::{CallError, unreadable};
use super::chat::ChatEndpoint;
use super::http::{HttpClient, MAX_BODY_BYTES, RequestExtras};
use crate::app::token_counts::TokenCounts;

/// The maximum size of one embedding in an answer with many: 8192 numbers of 32 digits each.
const MAX_EMBEDDING_BYTES: usize = 256 << 10;

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
    input: Input<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<u32>,
    #[serde(flatten)]
    extras: &'a Map<String, Value>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Input<'a> {
    One(&'a str),
    Many(&'a [String]),
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
        let body = Body { model: &self.model, input: Input::One(input), dimensions, extras: &self.extra_body };
        self.http.post(&body, |body| read_embedding(body, dimensions)).await
    }

    /// Returns the embeddings of `inputs` in their order, from one call. Contains the error for an embedding
    /// that does not have `dimensions` numbers, if that is given. An answer that does not have one embedding
    /// for each input is unreadable.
    pub async fn embed_all(
        &self,
        inputs: &[String],
        dimensions: Option<u32>,
    ) -> Result<CallOutput<Vec<Result<Value, CallError>>>, CallError> {
        let body = Body { model: &self.model, input: Input::Many(inputs), dimensions, extras: &self.extra_body };
        let max_bytes = MAX_BODY_BYTES.max(inputs.len().saturating_mul(MAX_EMBEDDING_BYTES));
        self.http.post_up_to(max_bytes, &body, |body| read_embeddings(body, inputs.len(), dimensions)).await
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
    /// The place of its text in the request.
    index: Option<u64>,
    embedding: Vec<Number>,
}

pub(crate) fn read_embedding(body: &[u8], dimensions: Option<u32>) -> Result<CallOutput<Value>, CallError> {
    let read: Embeddings = serde_json::from_slice(body).map_err(|error| unreadable("an embedding", &error, body))?;
    let usage = read.usage.known();
    let Some(Embedding { embedding, .. }) = read.data.into_iter().next() else {
        return Err(malformed("an embedding", "it has no data".to_string(), usage));
    };
    let value = checked(embedding, dimensions).map_err(|detail| malformed("an embedding", detail, usage))?;
    Ok(CallOutput { value, usage })
}

/// Reads the answer to a call with `count` texts.
pub(crate) fn read_embeddings(
    body: &[u8],
    count: usize,
    dimensions: Option<u32>,
) -> Result<CallOutput<Vec<Result<Value, CallError>>>, CallError> {
    const WHAT: &str = "a list of embeddings";
    let read: Embeddings = serde_json::from_slice(body).map_err(|error| unreadable(WHAT, &error, body))?;
    let usage = read.usage.known();
    let embeddings =
        in_order(read.data, count).map_err(|detail| CallError::Unreadable { what: WHAT, detail, usage })?;
    // The usage is that of the whole answer, which is charged as a success.
    let invalid = |detail| malformed("an embedding", detail, None);
    let value = embeddings.into_iter().map(|embedding| checked(embedding, dimensions).map_err(invalid)).collect();
    Ok(CallOutput { value, usage })
}

/// Returns the embeddings in the order of the texts: by the index of each or, if none has one, as they are.
/// Fails unless there is one for each of `count` texts.
fn in_order(mut data: Vec<Embedding>, count: usize) -> Result<Vec<Vec<Number>>, String> {
    let given = data.len();
    if given != count {
        return Err(format!("it has {given} embeddings for {count} texts"));
    }
    let without_index = data.iter().filter(|embedding| embedding.index.is_none()).count();
    if without_index > 0 && without_index < given {
        return Err(format!("{without_index} of its {given} embeddings have no `index`"));
    }
    if without_index == 0 {
        data.sort_by_key(|embedding| embedding.index);
        let is_wrong = |(place, index): &(u64, Option<u64>)| Some(*place) != *index;
        if let Some((_, Some(index))) = (0..).zip(data.iter().map(|embedding| embedding.index)).find(is_wrong) {
            return Err(format!("the indices of its embeddings are not 0 to {}: one is {index}", count - 1));
        }
    }
    Ok(data.into_iter().map(|embedding| embedding.embedding).collect())
}

/// Returns an embedding as an array of numbers, or what is wrong with its length.
fn checked(embedding: Vec<Number>, dimensions: Option<u32>) -> Result<Value, String> {
    match dimensions {
        Some(wanted) if wanted as usize != embedding.len() => {
            Err(format!("it has {} dimensions; expected {wanted}", embedding.len()))
        }
        _ => Ok(embedding.into_iter().map(Value::Number).collect()),
    }
}

fn malformed(what: &'static str, detail: String, usage: Option<Usage>) -> CallError {
    CallError::Malformed { what, detail, usage }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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

    fn embeddings(data: &str, count: usize) -> Result<Vec<Result<Value, CallError>>, String> {
        let body = format!(r#"{{"data":{data},"usage":{{"prompt_tokens":4}}}}"#);
        let answer = read_embeddings(body.as_bytes(), count, Some(1));
        answer.map(|answer| answer.value).map_err(|error| error.to_string())
    }

    #[test]
    fn embeddings_are_assigned_by_their_index_and_without_one_in_order() {
        let vector = |number: i32| Ok(json!([number]));
        let shuffled = r#"[{"index":1,"embedding":[11]},{"index":0,"embedding":[10]}]"#;
        assert_eq!(embeddings(shuffled, 2), Ok(vec![vector(10), vector(11)]));
        assert_eq!(embeddings(r#"[{"embedding":[10]},{"embedding":[11]}]"#, 2), Ok(vec![vector(10), vector(11)]));
    }

    #[test]
    fn an_embedding_of_the_wrong_length_concerns_its_text_only() {
        let answer = embeddings(r#"[{"index":1,"embedding":[12]},{"index":0,"embedding":[1,2]}]"#, 2).unwrap();
        assert_eq!(answer[1], Ok(json!([12])));
        let Err(error) = &answer[0] else { panic!("{answer:?}") };
        assert_eq!(error.to_string(), "the answer is not an embedding: it has 2 dimensions; expected 1");
    }

    #[test]
    fn an_answer_without_one_embedding_for_each_text_says_why() {
        for (data, count, why) in [
            ("[]", 2, "it has 0 embeddings for 2 texts"),
            (r#"[{"index":0,"embedding":[1]}]"#, 2, "it has 1 embeddings for 2 texts"),
            (r#"[{"embedding":[1]}]"#, 2, "it has 1 embeddings for 2 texts"),
            (r#"[{"index":0,"embedding":[1]},{"index":1,"embedding":[1]}]"#, 1, "it has 2 embeddings for 1 texts"),
            (
                r#"[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]"#,
                2,
                "the indices of its embeddings are not 0 to 1: one is 0",
            ),
            (
                r#"[{"index":2,"embedding":[1]},{"index":1,"embedding":[1]}]"#,
                2,
                "the indices of its embeddings are not 0 to 1: one is 1",
            ),
            (r#"[{"index":0,"embedding":[1]},{"embedding":[1]}]"#, 2, "1 of its 2 embeddings have no `index`"),
        ] {
            assert_eq!(embeddings(data, count), Err(format!("the answer is not a list of embeddings: {why}")));
        }
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
