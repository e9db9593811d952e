//! Checks the endpoint of a model: the keys `base_url`, `url`, `command` and `mock`, and how calls get there:
//! `allow_plain_http` and `ca_file`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use reqwest::Certificate;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{MOCK_PROVIDER, ModelTable};
use crate::app::answer_shape::{AnswerShape, AnswerShapes};
use crate::app::config::document::Document;
use crate::app::config::pipeline::raw::RawModel;
use crate::app::config::pipeline::spec::{Endpoint, MockSpec, ModelSpec, RequestExtras};
use crate::app::config::source::FileError;
use crate::app::config::transport::{address, check_plain_http, read_authorities};
use crate::app::config::value::{Checked, Text, WithSpan};

/// Returns the endpoint of a judge: a command or a URL.
pub(super) fn judge_endpoint(table: &ModelTable<'_, '_>, directory: &Path) -> Result<Endpoint, FileError> {
    let ModelTable { file, raw, span, .. } = table;
    let reject_keys = |of: &str, keys: &[(&str, Option<Range<usize>>)]| match keys
        .iter()
        .find_map(|(key, span)| Some((key, span.clone()?)))
    {
        Some((key, span)) => Err(file
            .error(span, format!("`{key}` is given beside `{of}`, which defines the whole endpoint"))
            .expected(format!("`{of}` alone"))),
        None => Ok(()),
    };
    let base_url = ("base_url", raw.base_url.as_ref().map(WithSpan::span));
    let mock = ("mock", raw.mock.as_ref().map(WithSpan::span));
    let Some(command) = &raw.command else {
        let pass_env = ("pass_env", raw.pass_env.as_ref().map(WithSpan::span));
        reject_keys("url", &[base_url, mock, pass_env])?;
        let url = address(file, "url", raw.url.as_ref(), span, true)?;
        return Ok(Endpoint::Http { url, api_key_env: key_variable(table) });
    };
    let url = ("url", raw.url.as_ref().map(WithSpan::span));
    let api_key_env = ("api_key_env", raw.api_key_env.as_ref().map(WithSpan::span));
    let [plain_http, ca_file] = transport_keys(table);
    reject_keys("command", &[base_url, url, mock, api_key_env, plain_http, ca_file])?;
    if command.get().is_empty() {
        let expected = "the program and its arguments, such as [\"python3\", \"judge.py\"]";
        return Err(file.wrong(command.span(), expected));
    }
    let strings = |given: &WithSpan<Vec<Text>>| given.get().iter().map(|Checked(text)| text.clone()).collect();
    let pass_env = raw.pass_env.as_ref().map(strings).unwrap_or_default();
    Ok(Endpoint::Command { argv: strings(command), directory: directory.to_path_buf(), pass_env })
}

pub(super) fn remote_endpoint(table: &ModelTable<'_, '_>, same: Option<&ModelSpec>) -> Result<Endpoint, FileError> {
    let ModelTable { file, raw, span, .. } = table;
    if let Some(mock) = &raw.mock {
        return Err(file
            .error(mock.span(), "`mock` is given for a provider that is not served in this process")
            .expected(format!("`provider = \"{MOCK_PROVIDER}\"`, or no `mock`")));
    }
    let base_url = address(file, "base_url", raw.base_url.as_ref(), span, false)?;
    match same.map(|same| &same.endpoint) {
        Some(Endpoint::Remote { base_url: other, .. }) if *other != base_url => {
            let message = format!(
                "an earlier model of the same provider and model id is at {other}: one provider has one address"
            );
            Err(file.error(raw.base_url.as_ref().map_or(span.clone(), WithSpan::span), message))
        }
        _ => Ok(Endpoint::Remote { base_url, api_key_env: key_variable(table) }),
    }
}

/// Checks that the key of the model is not sent unencrypted to another machine, and returns the certificate
/// authorities to trust, if the table names any.
pub(super) fn check_transport(
    table: &ModelTable<'_, '_>,
    endpoint: &Endpoint,
    extras: &RequestExtras,
    directory: &Path,
) -> Result<Option<Vec<Certificate>>, FileError> {
    let ModelTable { file, raw, span, .. } = table;
    let (Endpoint::Remote { base_url: url, .. } | Endpoint::Http { url, .. }) = endpoint else { return Ok(None) };
    // A header or parameter whose value is in a variable may be a key, too.
    if raw.api_key_env.is_some() || extras.variables().next().is_some() {
        let address = raw.base_url.as_ref().or(raw.url.as_ref()).map_or(span.clone(), WithSpan::span);
        check_plain_http(file, url, address, raw.allow_plain_http.as_ref().map(|allowed| *allowed.get()))?;
    }
    read_authorities(file, raw.ca_file.as_ref(), directory, url)
}

/// Returns the keys of [`check_transport`] with their spans.
fn transport_keys(table: &ModelTable<'_, '_>) -> [(&'static str, Option<Range<usize>>); 2] {
    let RawModel { allow_plain_http, ca_file, .. } = table.raw;
    [
        ("allow_plain_http", allow_plain_http.as_ref().map(WithSpan::span)),
        ("ca_file", ca_file.as_ref().map(WithSpan::span)),
    ]
}

fn key_variable(table: &ModelTable<'_, '_>) -> Option<String> {
    table.raw.api_key_env.as_ref().map(|name| name.get().0.clone())
}

pub(super) fn mock_endpoint(table: &ModelTable<'_, '_>, same: Option<&ModelSpec>) -> Result<Endpoint, FileError> {
    let ModelTable { file, raw, span, index } = table;
    let text = |value: &Option<WithSpan<Text>>| value.as_ref().map(WithSpan::span);
    let [plain_http, ca_file] = transport_keys(table);
    for (key, value) in
        [("base_url", text(&raw.base_url)), ("api_key_env", text(&raw.api_key_env)), plain_http, ca_file]
    {
        if let Some(value) = value {
            return Err(file.error(value, format!("`{key}` has no meaning for a mock")));
        }
    }
    match (&raw.mock, same) {
        (Some(mock), Some(_)) => Err(file
            .error(mock.span(), "an earlier model with the same model id describes this mock already")
            .expected("`mock` in the first of them only")),
        (None, Some(_)) => Ok(Endpoint::SameMock),
        (Some(_), None) => {
            mock(file, file.value(&format!("models[{index}].mock"))).map(|mock| Endpoint::Mock(Box::new(mock)))
        }
        (None, None) => Err(file
            .error(span.clone(), "[[models]] with `provider = \"mock\"` has no `mock`")
            .expected("a table such as `mock = { capacity = { shape = \"constant\", slots = 8 } }`")),
    }
}

/// Parses the keys of a scenario's provider, `seed` and `answers`.
///
/// They are deserialized separately. A flattened struct would lose the spans.
fn mock<'t>(file: &Document<'t>, value: &Spanned<DeValue<'t>>) -> Result<MockSpec, FileError> {
    let mut rest = DeTable::new();
    let (mut seed, mut answers) = (0, AnswerShapes::default());
    for (key, field) in value.get_ref().as_table().into_iter().flatten() {
        if key.get_ref() == "seed" {
            seed = file.read_value(field.clone())?;
        } else if key.get_ref() == "answers" {
            let shares: BTreeMap<AnswerShape, f64> = file.read_value(field.clone())?;
            let invalid = |why| file.error(field.span(), format!("`answers` of this mock: {why}"));
            answers = AnswerShapes::new(shares).map_err(invalid)?;
        } else {
            rest.insert(key.clone(), field.clone());
        }
    }
    let provider: tidegate_core::sim::provider::ProviderSpec =
        file.read_tables(&Spanned::new(value.span(), DeValue::Table(rest)))?;
    provider.validate().map_err(|error| file.config_error(&value.span(), &error))?;
    Ok(MockSpec { provider, seed, answers })
}
