//! Checks what the requests to a model have besides what the program sets: the keys `extra_headers`, `query`
//! and `extra_body`.

use std::str::FromStr;

use reqwest::header::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::ModelTable;
use crate::app::config::pipeline::check::kinds::{RESERVED, RESERVED_FOR_IMAGES};
use crate::app::config::pipeline::names::Domain;
use crate::app::config::pipeline::raw::{RawExtraValue, RawVariable};
use crate::app::config::pipeline::spec::{Endpoint, ExtraValue, RequestExtras};
use crate::app::config::source::FileError;
use crate::app::config::value::{JsonTable, WithSpan};
use crate::app::provider::key::{is_name_of_key, is_variable_name};

/// Headers that the program or its HTTP client sets.
const OWN_HEADERS: [&str; 16] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Validates the keys of a model with this endpoint.
pub(super) fn check(
    table: &ModelTable<'_, '_>,
    endpoint: &Endpoint,
    domain: Domain,
) -> Result<RequestExtras, FileError> {
    let ModelTable { file, raw, .. } = table;
    let given = [
        ("extra_headers", raw.extra_headers.as_ref().map(WithSpan::span)),
        ("query", raw.query.as_ref().map(WithSpan::span)),
        ("extra_body", raw.extra_body.as_ref().map(WithSpan::span)),
    ];
    if matches!(endpoint, Endpoint::Command { .. } | Endpoint::Http { .. })
        && let Some((key, span)) = given.into_iter().find_map(|(key, span)| Some((key, span?)))
    {
        return Err(file
            .error(span, format!("`{key}` is given for a judge"))
            .expected("`extra_headers`, `query` and `extra_body` only beside `base_url`"));
    }
    let mut headers = Vec::new();
    for (name, value) in raw.extra_headers.iter().flat_map(WithSpan::get) {
        headers.push((header_name(table, name, value)?, extra_value(table, "extra_headers", name, value)?));
    }
    let mut query = Vec::new();
    for (name, value) in raw.query.iter().flat_map(WithSpan::get) {
        query.push((name.clone(), extra_value(table, "query", name, value)?));
    }
    Ok(RequestExtras { headers, query, body: extra_body(table, domain)? })
}

/// Returns the lower-case name of a header that a file may set.
fn header_name(table: &ModelTable<'_, '_>, name: &str, value: &WithSpan<RawExtraValue>) -> Result<String, FileError> {
    let error =
        |why: &str| table.file.error(value.span(), format!("`extra_headers` in [[models]] has `{name}`, {why}"));
    let header = HeaderName::from_str(name)
        .map_err(|_| error("which is no name of a header").without_excerpt().expected("letters, digits and hyphens"))?;
    if OWN_HEADERS.contains(&header.as_str()) {
        let expected = "headers that the program does not set; a key for `authorization` is named by `api_key_env`";
        return Err(error("which the program sets").without_excerpt().expected(expected));
    }
    if let RawExtraValue::Text(text) = value.get()
        && HeaderValue::from_str(&text.0).is_err()
    {
        return Err(error("whose value is not valid in a header")
            .without_excerpt()
            .expected("printable text on one line"));
    }
    Ok(header.as_str().to_string())
}

/// Returns the value in `key` called `name`. A value that is a key must be in an environment variable.
fn extra_value(
    table: &ModelTable<'_, '_>,
    key: &str,
    name: &str,
    value: &WithSpan<RawExtraValue>,
) -> Result<ExtraValue, FileError> {
    match value.get() {
        RawExtraValue::Variable(RawVariable { env }) if is_variable_name(&env.0) => {
            Ok(ExtraValue::Variable(env.0.clone()))
        }
        // It may be a key that was entered by mistake, so the error does not repeat it.
        RawExtraValue::Variable(_) => {
            let message =
                format!("`env` of `{name}` in `{key}` of [[models]] is not the name of an environment variable");
            let error = table.file.error(value.span(), message).without_excerpt();
            Err(error.expected("a name such as ACME_KEY"))
        }
        RawExtraValue::Text(text) if is_name_of_key(name) || is_key(&text.0) => {
            let message = format!("`{name}` in `{key}` of [[models]] holds a key in plain text");
            let error = table.file.error(value.span(), message).without_excerpt();
            Err(error.expected("the environment variable that holds it, such as `{ env = \"ACME_KEY\" }`"))
        }
        RawExtraValue::Text(text) => Ok(ExtraValue::Text(text.0.clone())),
    }
}

/// Returns whether a text has the form of a key.
fn is_key(text: &str) -> bool {
    ["sk-", "Bearer ", "Basic "].iter().any(|start| text.starts_with(start))
}

fn extra_body(table: &ModelTable<'_, '_>, domain: Domain) -> Result<Map<String, Value>, FileError> {
    let Some(body) = &table.raw.extra_body else { return Ok(Map::new()) };
    let JsonTable(fields) = body.get();
    let own: &[&str] = match domain {
        Domain::Embedding => &["model", "input", "dimensions"],
        Domain::Image => &RESERVED_FOR_IMAGES,
        Domain::Chat | Domain::Judge => &RESERVED,
    };
    let error = |message: String| table.file.error(body.span(), message);
    if let Some(key) = own.iter().find(|key| fields.contains_key(**key)) {
        let message = format!("`extra_body` in [[models]] has `{key}`, which it cannot set");
        return Err(error(message).expected("request keys that the program and [[columns]] do not set"));
    }
    if let Some(key) = plain_key(fields) {
        let message = format!("`{key}` in `extra_body` of [[models]] holds a key in plain text");
        let expected = "`api_key_env`, or `extra_headers` with a value from an environment variable";
        return Err(error(message).without_excerpt().expected(expected));
    }
    Ok(fields.clone())
}

/// Returns the name of a field that holds a key, at any depth.
fn plain_key(fields: &Map<String, Value>) -> Option<&str> {
    fields.iter().find_map(|(name, value)| match value {
        Value::String(text) if is_name_of_key(name) || is_key(text) => Some(name.as_str()),
        Value::Object(fields) => plain_key(fields),
        _ => None,
    })
}
