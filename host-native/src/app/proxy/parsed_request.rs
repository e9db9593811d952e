//! Parses the parts of a request body that admission needs, and encodes the body for the provider.

use std::borrow::Cow;
use std::collections::HashMap;
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
use super::json::{self, Key};
use super::model_names::{MODEL_LISTS, is_model_name};
use crate::app::tokens::saturated;

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
    Json(JsonBody),
    Form(Form),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct JsonBody {
    text: Bytes,
    /// The byte range of the model, including its quotes.
    model: Option<Range<usize>>,
    /// The change that asks for the usage of the stream. `None` for a request that asks for none or for the
    /// usage, too.
    usage: Option<Edit>,
}

/// A change of a JSON text: a byte range, and what stands there instead.
type Edit = (Range<usize>, &'static str);

/// The keys of an object and their values as they were sent.
type Fields<'a> = HashMap<Key<'a>, &'a RawValue>;

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
        let fields: Fields<'_> = serde_json::from_slice(&body).map_err(|error| refuse(error.to_string()))?;
        let field = |name: &str| fields.get(name).copied().filter(|value| value.get() != "null");
        if let Some(name) = MODEL_LISTS.into_iter().find(|name| field(name).is_some()) {
            return Err(ProxyError::SeveralModels { name });
        }
        let bound = |name| number(name, field(name)).map_err(refuse);
        let most =
            bound("max_tokens")?.max(bound("max_completion_tokens")?).max(bound("max_output_tokens")?).unwrap_or(0);
        let answers = bound("n")?.max(bound("best_of")?).unwrap_or(1).max(1);
        let answers = answers.saturating_mul(field("prompt").map_or(1, prompts));
        let estimate = Usage::tokens(saturated(text_tokens), most.saturating_mul(answers));
        let (mut model, mut model_at) = (None, None);
        if let Some(raw) = field("model") {
            let Ok(Name(name)) = serde_json::from_str(raw.get()) else {
                return Err(refuse("`model` is not a string".to_string()));
            };
            if !is_model_name(&name) {
                return Err(refuse(
                    "`model` is empty, surrounded by spaces, or contains commas or control characters".to_string(),
                ));
            }
            (model, model_at) = (Some(name.into_owned()), Some(range_in(&body, raw)));
        }
        let stream = field("stream").filter(|raw| raw.get() == "true");
        let usage = stream.and_then(|stream| usage_edit(&body, stream, fields.get("stream_options").copied()));
        Ok(Self { model, estimate, body: Body::Json(JsonBody { text: body, model: model_at, usage }) })
    }

    /// Returns whether the request is for a stream, and does not ask for its usage.
    pub(super) fn lacks_stream_usage(&self) -> bool {
        matches!(&self.body, Body::Json(JsonBody { usage: Some(_), .. }))
    }

    /// Encodes the body for the provider, with `model` in place of its own model if one is given. Asks for
    /// the usage of a stream if `asks_usage`. Returns the content type and the body, or `None` if a form
    /// cannot be encoded.
    pub(super) async fn encode(
        self,
        http: &Client,
        url: &Url,
        model: Option<&str>,
        asks_usage: bool,
    ) -> Option<(Option<HeaderValue>, Bytes)> {
        let kind = HeaderValue::from_static("application/json");
        Some(match (self.body, model) {
            (Body::Empty, _) => (None, Bytes::new()),
            (Body::Json(body), model) => {
                let model = body.model.zip(model).map(|(at, model)| (at, serde_json::Value::from(model).to_string()));
                let usage = body.usage.filter(|_| asks_usage).map(|(at, text)| (at, text.to_string()));
                (Some(kind), edited(body.text, model.into_iter().chain(usage).collect()))
            }
            (Body::Form(form), model) => {
                let (kind, body) = form.encode(http, url, model).await?;
                (Some(kind), body)
            }
        })
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Returns the byte range of a value in the body that it was parsed from.
fn range_in(body: &Bytes, value: &RawValue) -> Range<usize> {
    let start = value.get().as_ptr() as usize - body.as_ptr() as usize;
    start..start + value.get().len()
}

/// Returns the change of a body that asks for the usage of its stream. Returns `None` if it asks already, or
/// has options that the provider will reject. `stream` is the value of that key.
fn usage_edit(body: &Bytes, stream: &RawValue, options: Option<&RawValue>) -> Option<Edit> {
    let Some(raw) = options else {
        let end = range_in(body, stream).end;
        return Some((end..end, ",\"stream_options\":{\"include_usage\":true}"));
    };
    let at = range_in(body, raw);
    if raw.get() == "null" {
        return Some((at, "{\"include_usage\":true}"));
    }
    let options: Fields<'_> = serde_json::from_str(raw.get()).ok()?;
    if let Some(asked) = options.get("include_usage") {
        return ["false", "null"].contains(&asked.get()).then(|| (range_in(body, asked), "true"));
    }
    let start = at.start + 1;
    let key = if options.is_empty() { "\"include_usage\":true" } else { "\"include_usage\":true," };
    Some((start..start, key))
}

/// Returns a text with these changes, which do not overlap.
fn edited(text: Bytes, mut edits: Vec<(Range<usize>, String)>) -> Bytes {
    if edits.is_empty() {
        return text;
    }
    edits.sort_unstable_by_key(|(at, _)| at.start);
    let mut result = Vec::with_capacity(text.len() + edits.iter().map(|(_, new)| new.len()).sum::<usize>());
    let mut from = 0;
    for (at, new) in edits {
        result.extend_from_slice(&text[from..at.start]);
        result.extend_from_slice(new.as_bytes());
        from = at.end;
    }
    result.extend_from_slice(&text[from..]);
    result.into()
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
        parsed.encode(&http, &"http://h/".parse().unwrap(), model, false).await.unwrap().1
    }

    #[tokio::test]
    async fn a_stream_is_asked_for_its_usage_unless_the_client_asks() {
        let asked = async |body: &str| {
            let parsed = json(body).await.unwrap();
            let lacks = parsed.lacks_stream_usage();
            let (http, url) = (client(), "http://h/".parse().unwrap());
            let (_, bytes) = parsed.encode(&http, &url, Some("other"), true).await.unwrap();
            let sent: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(sent["model"], "other", "{body}");
            (lacks, sent["stream_options"].clone())
        };
        let asks = serde_json::json!({ "include_usage": true });
        for options in [
            "",
            ",\"stream_options\":null",
            ",\"stream_options\":{ }",
            ",\"stream_options\":{\"include_usage\":false}",
            ",\"stream_options\":{\"include_usage\": null}",
        ] {
            for body in [
                format!("{{\"model\":\"m\",\"stream\":true{options}}}"),
                format!("{{\"stream\" : true {options},\"model\":\"m\"}}"),
            ] {
                assert_eq!(asked(&body).await, (true, asks.clone()), "{body}");
            }
        }
        let more = r#"{"model":"m","stream_options":{"x":[1.50]},"stream":true}"#;
        assert_eq!(asked(more).await, (true, serde_json::json!({ "x": [1.5], "include_usage": true })));
        let each = r#"{"model":"m","stream":true,"stream_options":{"continuous_usage_stats":true}}"#;
        let kept = serde_json::json!({ "continuous_usage_stats": true, "include_usage": true });
        assert_eq!(asked(each).await, (true, kept));
        for body in [
            r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#,
            r#"{"model":"m","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}"#,
            r#"{"model":"m","stream":true,"stream_options":7}"#,
            r#"{"model":"m","stream":true,"stream_options":{"include_usage":"yes"}}"#,
            r#"{"model":"m","stream":false}"#,
            r#"{"model":"m","stream":"true"}"#,
            r#"{"model":"m"}"#,
        ] {
            let given: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(asked(body).await, (false, given["stream_options"].clone()), "{body}");
        }
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
            (r#""max_tokens":1,"max_output_tokens":100"#, 100),
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
