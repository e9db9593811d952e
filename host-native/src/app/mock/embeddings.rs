//! `POST /v1/embeddings`: vectors of length 1 that are a function of the text alone, near to each other for texts that
//! share words.

use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tidegate_core::sim::rng::Rng;

use super::answer::{hash_of, tokens};
use super::refusal::Refusal;
use super::reply::{Form, Reply};

/// Dimensions unless others are asked for.
const USUAL_DIMENSIONS: u32 = 1_536;

/// The most dimensions.
const MOST_DIMENSIONS: u32 = 4_096;

/// The most texts of one call.
const MOST_TEXTS: usize = 2_048;

/// Words of a text that are looked at one by one; the rest counts as a whole.
const MOST_WORDS: usize = 64;

/// How much the text as a whole counts beside its words: enough to tell two orders of the same words apart.
const WHOLE_WEIGHT: f64 = 0.1;

/// One call as it was understood.
#[derive(Debug)]
pub(super) struct Prepared {
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
struct Answer<'a> {
    object: &'static str,
    data: Vec<Item>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct Item {
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
    /// The texts, and how many tokens they are.
    fn read(self) -> (Vec<String>, u32) {
        let count = |texts: &[String]| texts.iter().map(|text| tokens(text)).fold(0, u32::saturating_add);
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

impl Prepared {
    /// Reads a request.
    pub(super) fn read(body: &[u8]) -> Result<Self, Refusal> {
        let body: Body = serde_json::from_slice(body)
            .map_err(|error| Refusal::invalid(format!("the body cannot be read: {error}")))?;
        let (texts, tokens) = body.input.read();
        if !(1..=MOST_TEXTS).contains(&texts.len()) {
            let message = format!("`input` has {} texts; expected 1 to {MOST_TEXTS}", texts.len());
            return Err(Refusal::field("input", message));
        }
        let dimensions = body.dimensions.unwrap_or(USUAL_DIMENSIONS);
        if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
            let message = format!("`dimensions` is {dimensions}; expected 1 to {MOST_DIMENSIONS}");
            return Err(Refusal::field("dimensions", message));
        }
        let is_base64 = matches!(body.encoding_format, Some(Encoding::Base64));
        Ok(Self { model: body.model, texts, tokens, dimensions, is_base64 })
    }

    /// The answer. Costs some 2 µs for each word of each text.
    pub(super) fn reply(&self) -> Reply {
        let item = |(index, text): (usize, &String)| {
            let vector = embedding(text, self.dimensions);
            let embedding = if self.is_base64 { Vector::Base64(in_base64(&vector)) } else { Vector::Float(vector) };
            Item { object: "embedding", index, embedding }
        };
        let answer = Answer {
            object: "list",
            data: self.texts.iter().enumerate().map(item).collect(),
            model: &self.model,
            usage: Usage { prompt_tokens: self.tokens, total_tokens: self.tokens },
        };
        // Plain structs with text keys always serialise.
        let body = serde_json::to_vec(&answer).unwrap_or_default();
        Reply { form: Form::Whole(Bytes::from(body)), tokens: 0 }
    }
}

/// The vector of a text: the sum of a random direction for each word and a little of one for the whole, of length 1.
fn embedding(text: &str, dimensions: u32) -> Vec<f32> {
    let mut sum = vec![0.0_f64; dimensions as usize];
    let mut add = |seed: u64, weight: f64| {
        let mut draws = Rng::new(seed);
        for value in &mut sum {
            *value += weight * (draws.unit_f64() - 0.5);
        }
    };
    for word in text.split_whitespace().take(MOST_WORDS) {
        let word: String = word.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        add(hash_of(&word), 1.0);
    }
    add(!hash_of(text), WHOLE_WEIGHT);
    let length = sum.iter().map(|value| value * value).sum::<f64>().sqrt();
    // A single dimension may cancel out.
    let length = if length > 0.0 { length } else { 1.0 };
    sum.into_iter().map(|value| (value / length) as f32).collect()
}

/// Little-endian 32-bit floats, as official clients read them.
fn in_base64(vector: &[f32]) -> String {
    STANDARD.encode(vector.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn answer(body: &Value) -> Value {
        let Form::Whole(bytes) = Prepared::read(body.to_string().as_bytes()).unwrap().reply().form else {
            panic!("embeddings are not streamed");
        };
        serde_json::from_slice(&bytes).unwrap()
    }

    fn near(a: &str, b: &str) -> f32 {
        let (a, b) = (embedding(a, 256), embedding(b, 256));
        a.iter().zip(&b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn equal_texts_have_equal_vectors_and_texts_that_share_words_are_near() {
        assert!((near("the north buoy", "the north buoy") - 1.0).abs() < 1e-5);
        let (same_words, one_word, none) = (
            near("the north buoy", "north the buoy"),
            near("the north buoy", "a red buoy"),
            near("the north buoy", "lamp failed"),
        );
        assert!(same_words > 0.97 && same_words < 0.999_99, "{same_words}");
        assert!((0.1..0.6).contains(&one_word), "{one_word}");
        assert!(none.abs() < 0.25, "{none}");
    }

    #[test]
    fn base64_holds_the_same_numbers_as_the_list() {
        let floats = answer(&json!({ "model": "m", "input": "buoy", "dimensions": 3 }));
        let base64 = answer(&json!({ "model": "m", "input": "buoy", "dimensions": 3, "encoding_format": "base64" }));
        let bytes = STANDARD.decode(base64["data"][0]["embedding"].as_str().unwrap()).unwrap();
        let decoded: Vec<f32> = bytes.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
        let listed: Vec<f32> = serde_json::from_value(floats["data"][0]["embedding"].clone()).unwrap();
        assert_eq!(decoded, listed);
    }

    #[test]
    fn every_form_of_input_is_understood() {
        for (input, texts, tokens) in [
            (json!("a buoy adrift"), 1, 4),
            (json!(["a buoy", "a lamp"]), 2, 4),
            (json!([5, 6, 7]), 1, 3),
            (json!([[5, 6], [7]]), 2, 3),
        ] {
            let told = answer(&json!({ "model": "m", "input": input }));
            let data = told["data"].as_array().unwrap();
            assert_eq!((data.len(), &told["usage"]["prompt_tokens"]), (texts, &json!(tokens)), "{input}");
            assert_eq!(data[0]["embedding"].as_array().unwrap().len(), 1_536);
            assert_eq!(data[texts - 1]["index"], texts - 1);
        }
    }

    #[test]
    fn what_is_out_of_range_is_refused_at_its_field() {
        for (body, param) in [
            (json!({ "model": "m", "input": [] }), Some("input")),
            (json!({ "model": "m", "input": vec!["x"; 2_049] }), Some("input")),
            (json!({ "model": "m", "input": "x", "dimensions": 0 }), Some("dimensions")),
            (json!({ "model": "m", "input": "x", "dimensions": 4_097 }), Some("dimensions")),
            (json!({ "model": "m", "input": 3 }), None),
        ] {
            let refusal = Prepared::read(body.to_string().as_bytes()).unwrap_err();
            assert_eq!((refusal.status.as_u16(), refusal.param()), (400, param));
        }
    }
}
