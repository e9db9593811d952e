//! Parsing and answering of `POST /v1/embeddings`.
//!
//! A vector depends on its text only, has length 1, and is similar to the vectors of texts that share words.

use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tidegate_core::sim::rng::Rng;

use super::answer::{count_tokens, hash_text};
use super::error::ApiError;
use super::reply::{Reply, ReplyBody};

/// Dimensions of a vector if the request has no `dimensions`.
const DEFAULT_DIMENSIONS: u32 = 1_536;

/// The most dimensions of a vector.
const MAX_DIMENSIONS: u32 = 4_096;

/// The most texts of a request.
const MAX_TEXTS: usize = 2_048;

/// The number of first words of a text that each add a direction. The words after them count only in the
/// whole text.
const MAX_SEPARATE_WORDS: usize = 64;

/// The weight of the whole text relative to a word: enough to tell two orders of the same words apart.
const WHOLE_TEXT_WEIGHT: f64 = 0.1;

/// A parsed request.
#[derive(Debug)]
pub(super) struct EmbeddingCall {
    pub(super) model: String,
    texts: Vec<String>,
    /// Tokens of all texts.
    pub(super) tokens: u32,
    dimensions: u32,
    is_base64: bool,
}

#[derive(Debug, Deserialize)]
struct Body {
    model: String,
    input: Input,
    dimensions: Option<u32>,
    encoding_format: Option<Encoding>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Encoding {
    Float,
    Base64,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`input` is neither a text nor a list of texts or tokens")]
enum Input {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

#[derive(Serialize)]
struct EmbeddingList<'a> {
    object: &'static str,
    data: Vec<EmbeddingItem>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct EmbeddingItem {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector {
    Float(Vec<f32>),
    Base64(String),
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: u32,
    total_tokens: u32,
}

impl Input {
    /// Returns the texts and the number of their tokens.
    fn into_texts(self) -> (Vec<String>, u32) {
        let count = |texts: &[String]| texts.iter().map(|text| count_tokens(text)).fold(0, u32::saturating_add);
        let text = |tokens: Vec<u32>| tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        match self {
            Self::Text(text) => {
                let texts = vec![text];
                let tokens = count(&texts);
                (texts, tokens)
            }
            Self::Texts(texts) => {
                let tokens = count(&texts);
                (texts, tokens)
            }
            Self::Tokens(tokens) => {
                let count = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
                (vec![text(tokens)], count)
            }
            Self::TokenLists(lists) => {
                let count = u32::try_from(lists.iter().map(Vec::len).sum::<usize>()).unwrap_or(u32::MAX);
                (lists.into_iter().map(text).collect(), count)
            }
        }
    }
}

impl EmbeddingCall {
    /// Parses a request.
    pub(super) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let body: Body = serde_json::from_slice(body)
            .map_err(|error| ApiError::invalid(format!("the body cannot be read: {error}")))?;
        let (texts, tokens) = body.input.into_texts();
        if !(1..=MAX_TEXTS).contains(&texts.len()) {
            let message = format!("`input` has {} texts; expected 1 to {MAX_TEXTS}", texts.len());
            return Err(ApiError::field("input", message));
        }
        let dimensions = body.dimensions.unwrap_or(DEFAULT_DIMENSIONS);
        if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
            let message = format!("`dimensions` is {dimensions}; expected 1 to {MAX_DIMENSIONS}");
            return Err(ApiError::field("dimensions", message));
        }
        let is_base64 = matches!(body.encoding_format, Some(Encoding::Base64));
        Ok(Self { model: body.model, texts, tokens, dimensions, is_base64 })
    }

    /// Returns the response. Costs about 2 µs for each word of each text at the default dimensions.
    pub(super) fn reply(&self) -> Reply {
        let item = |(index, text): (usize, &String)| {
            let vector = embedding(text, self.dimensions);
            let embedding = if self.is_base64 { Vector::Base64(encode_base64(&vector)) } else { Vector::Float(vector) };
            EmbeddingItem { object: "embedding", index, embedding }
        };
        let answer = EmbeddingList {
            object: "list",
            data: self.texts.iter().enumerate().map(item).collect(),
            model: &self.model,
            usage: Usage { prompt_tokens: self.tokens, total_tokens: self.tokens },
        };
        // Structs with string keys always serialise.
        let body = serde_json::to_vec(&answer).unwrap_or_default();
        Reply { body: ReplyBody::Complete(Bytes::from(body)), tokens: 0 }
    }
}

/// Returns the vector of a text: the normalised sum of a random direction for each word, and a small one for
/// the text.
fn embedding(text: &str, dimensions: u32) -> Vec<f32> {
    let mut sum = vec![0.0_f64; dimensions as usize];
    let mut add = |seed: u64, weight: f64| {
        let mut draws = Rng::new(seed);
        for value in &mut sum {
            *value += weight * (draws.unit_f64() - 0.5);
        }
    };
    for word in text.split_whitespace().take(MAX_SEPARATE_WORDS) {
        let word: String = word.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        add(hash_text(&word), 1.0);
    }
    add(!hash_text(text), WHOLE_TEXT_WEIGHT);
    let length = sum.iter().map(|value| value * value).sum::<f64>().sqrt();
    // With one dimension, the sum may be zero.
    let length = if length > 0.0 { length } else { 1.0 };
    sum.into_iter().map(|value| (value / length) as f32).collect()
}

/// Encodes a vector as base64 of little-endian 32-bit floats, as the OpenAI API does.
fn encode_base64(vector: &[f32]) -> String {
    STANDARD.encode(vector.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn answer(body: &Value) -> Value {
        let ReplyBody::Complete(bytes) = EmbeddingCall::parse(body.to_string().as_bytes()).unwrap().reply().body else {
            panic!("embeddings are not streamed");
        };
        serde_json::from_slice(&bytes).unwrap()
    }

    fn similarity(a: &str, b: &str) -> f32 {
        let (a, b) = (embedding(a, 256), embedding(b, 256));
        a.iter().zip(&b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn equal_texts_have_equal_vectors_and_texts_that_share_words_are_similar() {
        assert!((similarity("the north buoy", "the north buoy") - 1.0).abs() < 1e-5);
        let (same_words, one_word, none) = (
            similarity("the north buoy", "north the buoy"),
            similarity("the north buoy", "a red buoy"),
            similarity("the north buoy", "lamp failed"),
        );
        assert!(same_words > 0.97 && same_words < 0.999_99, "{same_words}");
        assert!((0.1..0.6).contains(&one_word), "{one_word}");
        assert!(none.abs() < 0.25, "{none}");
    }

    #[test]
    fn base64_encodes_the_same_numbers_as_the_list() {
        let floats = answer(&json!({ "model": "m", "input": "buoy", "dimensions": 3 }));
        let base64 = answer(&json!({ "model": "m", "input": "buoy", "dimensions": 3, "encoding_format": "base64" }));
        let bytes = STANDARD.decode(base64["data"][0]["embedding"].as_str().unwrap()).unwrap();
        let decoded: Vec<f32> = bytes.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
        let listed: Vec<f32> = serde_json::from_value(floats["data"][0]["embedding"].clone()).unwrap();
        assert_eq!(decoded, listed);
    }

    #[test]
    fn every_form_of_input_is_accepted() {
        for (input, texts, tokens) in [
            (json!("a buoy adrift"), 1, 4),
            (json!(["a buoy", "a lamp"]), 2, 4),
            (json!([5, 6, 7]), 1, 3),
            (json!([[5, 6], [7]]), 2, 3),
        ] {
            let response = answer(&json!({ "model": "m", "input": input }));
            let data = response["data"].as_array().unwrap();
            assert_eq!((data.len(), &response["usage"]["prompt_tokens"]), (texts, &json!(tokens)), "{input}");
            assert_eq!(data[0]["embedding"].as_array().unwrap().len(), 1_536);
            assert_eq!(data[texts - 1]["index"], texts - 1);
        }
    }

    #[test]
    fn a_value_out_of_range_is_rejected_at_its_field() {
        for (body, param) in [
            (json!({ "model": "m", "input": [] }), Some("input")),
            (json!({ "model": "m", "input": vec!["x"; 2_049] }), Some("input")),
            (json!({ "model": "m", "input": "x", "dimensions": 0 }), Some("dimensions")),
            (json!({ "model": "m", "input": "x", "dimensions": 4_097 }), Some("dimensions")),
            (json!({ "model": "m", "input": 3 }), None),
        ] {
            let error = EmbeddingCall::parse(body.to_string().as_bytes()).unwrap_err();
            assert_eq!((error.status.as_u16(), error.param()), (400, param));
        }
    }
}
