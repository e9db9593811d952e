//! Parses the parts of a request body that admission needs, and encodes the body for the provider.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use mime::Mime;
use percent_encoding::percent_decode_str;
use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::budget::Usage;
use tidegate_core::request::Domain;

use super::endpoint::BodyKind;
use super::error::ProxyError;
use super::form::Form;
use super::json;

/// The media type of a request body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MediaType {
    Empty,
    Json,
    /// A multipart form with its boundary.
    Form(String),
}

impl MediaType {
    /// Returns the media type of a request, where a body of this kind is expected.
    pub(super) fn of(kind: BodyKind, headers: &HeaderMap) -> Result<Self, ProxyError> {
        let expected = match kind {
            BodyKind::Empty => return Ok(Self::Empty),
            BodyKind::Json => "Content-Type: application/json",
            BodyKind::Form => "Content-Type: multipart/form-data",
            BodyKind::JsonOrForm | BodyKind::Any => "Content-Type: application/json or multipart/form-data",
        };
        let refuse = |found: &str| ProxyError::BadType { found: found.chars().take(80).collect(), expected };
        if let Some(encoding) = headers.get(CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
            return Err(refuse(&format!("Content-Encoding: {}", encoding.to_str().unwrap_or("?"))));
        }
        let mut types = headers.get_all(CONTENT_TYPE).iter();
        let text = match (types.next(), types.next()) {
            (Some(one), None) => one.to_str().map_err(|_| refuse("a Content-Type that is not text"))?,
            (None, _) if kind == BodyKind::Any => return Ok(Self::Empty),
            (None, _) => return Err(refuse("no Content-Type")),
            (Some(_), Some(_)) => return Err(refuse("several Content-Type headers")),
        };
        let mime: Mime = text.parse().map_err(|_| refuse(text))?;
        let is_utf8 = mime.get_param(mime::CHARSET).is_none_or(|charset| charset == mime::UTF_8);
        let (takes_json, takes_form) = (kind != BodyKind::Form, kind != BodyKind::Json);
        if takes_json && mime.essence_str() == "application/json" && is_utf8 {
            return Ok(Self::Json);
        }
        if takes_form && mime.essence_str() == "multipart/form-data" {
            return multer::parse_boundary(text).map(Self::Form).map_err(|_| refuse(text));
        }
        Err(refuse(text))
    }
}

/// The names of lists of more models, in JSON and in forms. Some providers call these if `model` fails: models
/// that the client may not be allowed to use, outside of their limits and budgets.
pub(super) const MODEL_LISTS: [&str; 4] =
    ["models", "fallbacks", "context_window_fallbacks", "content_policy_fallbacks"];

/// A parsed request body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParsedRequest {
    /// The model, if the body names one.
    pub(super) model: Option<String>,
    /// The estimated usage: the tokens of its text, and the maximum number of output tokens that it allows.
    /// Embedded files are not counted. The output is 0 if the request sets no bound.
    pub(super) estimate: Usage,
    body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    Empty,
    /// A JSON body with the byte range of the model, including its quotes.
    Json(Bytes, Option<Range<usize>>),
    Form(Form),
}

#[derive(Deserialize)]
struct RequestFields<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    models: Option<&'a RawValue>,
    #[serde(borrow)]
    fallbacks: Option<&'a RawValue>,
    #[serde(borrow)]
    context_window_fallbacks: Option<&'a RawValue>,
    #[serde(borrow)]
    content_policy_fallbacks: Option<&'a RawValue>,
    #[serde(borrow)]
    max_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    max_completion_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    max_output_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    n: Option<&'a RawValue>,
    #[serde(borrow)]
    best_of: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
}

impl ParsedRequest {
    /// Parses a body of the given type. Rejects ambiguous bodies: the provider might read another model, and
    /// the call would bypass that model's limits.
    pub(super) async fn read(media: MediaType, body: Bytes) -> Result<Self, ProxyError> {
        match media {
            MediaType::Empty if body.is_empty() => {
                Ok(Self { model: None, estimate: Usage::default(), body: Body::Empty })
            }
            MediaType::Empty => Err(ProxyError::UnexpectedBody),
            MediaType::Json => Self::read_json(body),
            MediaType::Form(boundary) => {
                let form = Form::read(boundary, body).await?;
                let model = form.model().map(str::to_string);
                let estimate = Usage::tokens(saturated(form.text_tokens()), 0);
                Ok(Self { model, estimate, body: Body::Form(form) })
            }
        }
    }

    fn read_json(body: Bytes) -> Result<Self, ProxyError> {
        let refuse = |why: String| ProxyError::BadJson { why };
        let text_tokens = json::check(&body).map_err(refuse)?;
        let fields: RequestFields<'_> = serde_json::from_slice(&body).map_err(|error| refuse(error.to_string()))?;
        let lists = [fields.models, fields.fallbacks, fields.context_window_fallbacks, fields.content_policy_fallbacks];
        for (name, list) in MODEL_LISTS.into_iter().zip(lists) {
            if list.is_some() {
                return Err(ProxyError::SeveralModels { name });
            }
        }
        let bound = |name, value| number(name, value).map_err(refuse);
        let most = bound("max_tokens", fields.max_tokens)?
            .max(bound("max_completion_tokens", fields.max_completion_tokens)?)
            .max(bound("max_output_tokens", fields.max_output_tokens)?)
            .unwrap_or(0);
        let answers = bound("n", fields.n)?.max(bound("best_of", fields.best_of)?).unwrap_or(1).max(1);
        let answers = answers.saturating_mul(fields.prompt.map_or(1, prompts));
        let estimate = Usage::tokens(saturated(text_tokens), most.saturating_mul(answers));
        let (mut model, mut model_at) = (None, None);
        if let Some(raw) = fields.model {
            let Ok(Name(name)) = serde_json::from_str(raw.get()) else {
                return Err(refuse("`model` is not a string".to_string()));
            };
            if !is_model_name(&name) {
                return Err(refuse(
                    "`model` is empty, surrounded by spaces, or contains control characters".to_string(),
                ));
            }
            let start = raw.get().as_ptr() as usize - body.as_ptr() as usize;
            (model, model_at) = (Some(name.into_owned()), Some(start..start + raw.get().len()));
        }
        Ok(Self { model, estimate, body: Body::Json(body, model_at) })
    }

    /// Encodes the body for the provider, with `model` in place of its own model if one is given. Returns the
    /// content type and the body, or `None` if a form cannot be encoded.
    pub(super) async fn encode(
        self,
        http: &Client,
        url: &Url,
        model: Option<&str>,
    ) -> Option<(Option<HeaderValue>, Bytes)> {
        let kind = HeaderValue::from_static("application/json");
        Some(match (self.body, model) {
            (Body::Empty, _) => (None, Bytes::new()),
            (Body::Json(body, Some(at)), Some(model)) => {
                let name = serde_json::Value::from(model).to_string();
                (Some(kind), Bytes::from([&body[..at.start], name.as_bytes(), &body[at.end..]].concat()))
            }
            (Body::Json(body, _), _) => (Some(kind), body),
            (Body::Form(form), model) => {
                let (kind, body) = form.encode(http, url, model).await?;
                (Some(kind), body)
            }
        })
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Returns whether a model name is unambiguous: not empty, not surrounded by spaces, and without control
/// characters.
pub(super) fn is_model_name(name: &str) -> bool {
    !name.is_empty() && name.trim() == name && !name.chars().any(char::is_control)
}

/// Returns the number of prompts; each is completed separately. A list of numbers is one prompt.
fn prompts(raw: &RawValue) -> u32 {
    let items: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    let prompts = items.iter().filter(|item| item.get().starts_with(['"', '['])).count();
    saturated(prompts).max(1)
}

/// Returns a bound rounded up to an integer. Strings are parsed, too, because some providers accept them.
fn number(name: &str, raw: Option<&RawValue>) -> Result<Option<u32>, String> {
    let Some(raw) = raw else { return Ok(None) };
    // A list in place of a number could take many times the memory of its text.
    let is_scalar = !raw.get().starts_with(['[', '{']);
    let number = match is_scalar.then(|| serde_json::from_str(raw.get())) {
        Some(Ok(serde_json::Value::Null)) => return Ok(None),
        Some(Ok(serde_json::Value::Number(number))) => number.as_f64(),
        Some(Ok(serde_json::Value::String(text))) => text.trim().parse::<f64>().ok(),
        _ => None,
    };
    // The cast saturates.
    number
        .filter(|number| number.is_finite())
        .map(|number| Some(number.ceil() as u32))
        .ok_or_else(|| format!("`{name}` is not a number"))
}

fn saturated(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the kind of call for a path under `/v1/`. Kinds without a name of their own are named by the first
/// segment.
pub(super) fn domain(path: &str) -> Domain {
    let plain = percent_decode_str(path.split('/').next().unwrap_or_default()).decode_utf8_lossy().to_ascii_lowercase();
    match plain.split('/').next().unwrap_or_default() {
        "chat" | "completions" | "responses" => Domain::Chat,
        "embeddings" => Domain::Embedding,
        "images" => Domain::Image,
        other => Domain::Other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::proxy::upstream::client_for_tests as client;

    async fn json(body: &str) -> Result<ParsedRequest, ProxyError> {
        ParsedRequest::read(MediaType::Json, Bytes::from(body.to_string())).await
    }

    async fn encoded(parsed: ParsedRequest, model: Option<&str>) -> Bytes {
        let http = client();
        parsed.encode(&http, &"http://h/".parse().unwrap(), model).await.unwrap().1
    }

    #[tokio::test]
    async fn model_and_output_bound_are_parsed_and_the_body_is_unchanged() {
        let body = r#"{"messages":[{"role":"user","content":"hi"}],"model":"gpt\/x","max_tokens":7,"stream":true}"#;
        let parsed = json(body).await.unwrap();
        assert_eq!(parsed.model.as_deref(), Some("gpt/x"));
        assert_eq!(parsed.estimate.output_tokens, 7);
        assert!(parsed.estimate.input_tokens >= (body.len() as u32).div_ceil(4), "{:?}", parsed.estimate);
        assert_eq!(encoded(parsed.clone(), None).await, body.as_bytes());
        let renamed: serde_json::Value = serde_json::from_slice(&encoded(parsed, Some("other \"one\"")).await).unwrap();
        assert_eq!((&renamed["model"], &renamed["max_tokens"]), (&"other \"one\"".into(), &7.into()));
    }

    #[tokio::test]
    async fn the_estimate_uses_the_largest_bound_that_a_provider_may_apply() {
        for (bounds, most) in [
            (r#""max_tokens":100,"max_output_tokens":1"#, 100),
            (r#""max_completion_tokens":1e3"#, 1_000),
            (r#""max_tokens":99.5"#, 100),
            (r#""max_tokens":"50""#, 50),
            (r#""max_tokens":10,"n":4"#, 40),
            (r#""max_tokens":null,"n":4"#, 0),
            (r#""max_tokens":10,"prompt":["a","b",[1,2]],"n":2"#, 60),
            (r#""max_tokens":10,"prompt":[1,2,3]"#, 10),
            (r#""max_tokens":-1"#, 0),
            (r#""max_tokens":18446744073709551616"#, u32::MAX),
        ] {
            let parsed = json(&format!("{{\"model\":\"m\",{bounds}}}")).await.unwrap();
            assert_eq!(parsed.estimate.output_tokens, most, "{bounds}");
        }
        assert!(json(r#"{"model":"m","max_tokens":"many"}"#).await.is_err());
        assert!(json(r#"{"model":"m","n":[9]}"#).await.is_err());
    }

    #[tokio::test]
    async fn text_of_other_scripts_counts_at_least_one_token_per_byte() {
        for text in ["海の風", "😀😀", "žluťoučký kůň"] {
            let bytes = text.bytes().filter(|byte| !byte.is_ascii()).count() as u32;
            let parsed = json(&format!("{{\"model\":\"m\",\"input\":\"{text}\"}}")).await.unwrap();
            assert!(parsed.estimate.input_tokens >= bytes, "{text}");
        }
    }

    #[tokio::test]
    async fn an_invalid_model_is_rejected_and_a_missing_one_is_none() {
        assert!(matches!(json(r#"{"model":3}"#).await, Err(ProxyError::BadJson { .. })));
        for name in ["", " m", "m\\n", "a\\u0000b"] {
            assert!(json(&format!("{{\"model\":\"{name}\"}}")).await.is_err(), "{name}");
        }
        for body in ["{}", r#"{"model":null}"#, r#"{"models":null}"#] {
            assert_eq!(json(body).await.unwrap().model, None, "{body}");
        }
        assert_eq!(ParsedRequest::read(MediaType::Empty, Bytes::new()).await.unwrap().model, None);
        let unexpected = ParsedRequest::read(MediaType::Empty, Bytes::from_static(b"{}")).await;
        assert_eq!(unexpected, Err(ProxyError::UnexpectedBody));
    }

    #[tokio::test]
    async fn a_body_that_lists_more_models_is_rejected() {
        for name in MODEL_LISTS {
            for list in ["[]", "[\"m\"]", "[\"other\"]", "\"other\""] {
                let refused = json(&format!("{{\"model\":\"m\",\"{name}\":{list}}}")).await;
                assert_eq!(refused, Err(ProxyError::SeveralModels { name }), "{list}");
            }
        }
        assert!(json(r#"{"model":"m","metadata":{"models":["other"]}}"#).await.is_ok());
    }

    #[test]
    fn json_and_forms_need_their_own_content_types() {
        let media = |kind, headers: &[(http::HeaderName, &'static str)]| {
            let value =
                |(name, value): &(http::HeaderName, &'static str)| (name.clone(), HeaderValue::from_static(value));
            MediaType::of(kind, &headers.iter().map(value).collect())
        };
        let of = |kind, text| media(kind, &[(CONTENT_TYPE, text)]);
        for text in ["application/json", "Application/JSON; charset=UTF-8"] {
            assert_eq!(of(BodyKind::Json, text), Ok(MediaType::Json), "{text}");
        }
        let form = Ok(MediaType::Form("x y".to_string()));
        assert_eq!(of(BodyKind::Form, "multipart/form-data; boundary=\"x y\""), form);
        assert_eq!(of(BodyKind::JsonOrForm, "application/json"), Ok(MediaType::Json));
        for text in [
            "text/plain",
            "text/plain;application/json",
            "application/json; charset=utf-16",
            "",
            "application/jsonx",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=b",
            "application/json, text/plain",
        ] {
            assert!(matches!(of(BodyKind::Json, text), Err(ProxyError::BadType { .. })), "{text}");
        }
        assert!(of(BodyKind::Form, "application/json").is_err() && of(BodyKind::Form, "multipart/form-data").is_err());
        let twice = [(CONTENT_TYPE, "application/json"), (CONTENT_TYPE, "application/json")];
        assert!(media(BodyKind::Json, &twice).is_err() && media(BodyKind::Json, &[]).is_err());
        assert!(media(BodyKind::Json, &[(CONTENT_TYPE, "application/json"), (CONTENT_ENCODING, "gzip")]).is_err());
        assert_eq!(
            (media(BodyKind::Any, &[]), media(BodyKind::Empty, &[])),
            (Ok(MediaType::Empty), Ok(MediaType::Empty))
        );
    }

    #[test]
    fn the_path_determines_the_kind_of_call() {
        assert_eq!([domain("chat/completions"), domain("responses/resp_1")], [Domain::Chat, Domain::Chat]);
        assert_eq!([domain("embeddings"), domain("images/edits")], [Domain::Embedding, Domain::Image]);
        assert_eq!(domain("audio/speech"), Domain::Other("audio".to_string()));
    }
}
