//! An address in a file and the rules of the connection to it, shared by the pipeline file and the
//! configuration of the proxy: `allow_plain_http` and `ca_file`.

use std::ops::Range;
use std::path::Path;

use reqwest::{Certificate, Url};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

use super::document::Document;
use super::source::FileError;
use super::value::{Text, WithSpan};
use crate::app::provider::address::is_plain_and_far;

/// Parses the address in `key` of the table in `table`.
///
/// Returns an error if the address has a user name, a password, a fragment, or a query that `with_query` does
/// not allow.
pub(crate) fn address(
    file: &Document<'_>,
    key: &str,
    value: Option<&WithSpan<Text>>,
    table: &Range<usize>,
    with_query: bool,
) -> Result<Url, FileError> {
    let expected = if with_query {
        "an address such as \"https://host/judge\", without user name or fragment"
    } else {
        "an address such as \"https://host/v1\", without user name, query or fragment"
    };
    let Some(value) = value else { return Err(file.missing(table.clone(), key, format!("`{key} = ` {expected}"))) };
    let title = file.title(table.clone());
    let address_error = |why: &str| file.error(value.span(), format!("`{key}` in {title} {why}")).expected(expected);
    let url = Url::parse(&value.get().0).map_err(|error| address_error(&format!("is not an address: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(address_error(&format!("has the scheme `{}`", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(address_error("holds a user name or password")
            .without_excerpt()
            .expected("keys only in the environment variable that `api_key_env` names"));
    }
    if (url.query().is_some() && !with_query) || url.fragment().is_some() {
        return Err(address_error("has a query or fragment"));
    }
    Ok(url)
}

/// Returns an error if a key would be sent to `url`, which is in `span`, unencrypted and to another machine.
/// `is_allowed` is the key `allow_plain_http`.
pub(crate) fn check_plain_http(
    file: &Document<'_>,
    url: &Url,
    span: Range<usize>,
    is_allowed: Option<bool>,
) -> Result<(), FileError> {
    if is_allowed == Some(true) || !is_plain_and_far(url) {
        return Ok(());
    }
    let message = format!("keys would go to `{}` unencrypted", url.host_str().unwrap_or_default());
    Err(file
        .error(span, message)
        .expected("an address with https, or of this machine; or `allow_plain_http = true` beside it"))
}

/// Reads the certificate authorities in `ca_file`, which is relative to `directory`. Returns `None` if the
/// key is absent, and an error if `url` is not an https address.
pub(crate) fn read_authorities(
    file: &Document<'_>,
    ca_file: Option<&WithSpan<Text>>,
    directory: &Path,
    url: &Url,
) -> Result<Option<Vec<Certificate>>, FileError> {
    let Some(name) = ca_file else { return Ok(None) };
    if url.scheme() != "https" {
        let message = "`ca_file` is given for an address without https, which has no certificate";
        return Err(file.error(name.span(), message).expected("an address with https, or no `ca_file`"));
    }
    Ok(Some(read_certificates(file, name, directory)?.1))
}

/// Reads the PEM file `name`, which is relative to `directory`. Returns its text, and its certificates, of
/// which there is at least one.
pub(crate) fn read_certificates(
    file: &Document<'_>,
    name: &WithSpan<Text>,
    directory: &Path,
) -> Result<(Vec<u8>, Vec<Certificate>), FileError> {
    read_pem(file, name, directory, "certificate", "a file of certificates in PEM", |text| {
        Certificate::from_pem_bundle(text).ok().filter(|certificates| !certificates.is_empty())
    })
}

/// Reads the PEM file `name`, which is relative to `directory`. Returns its text, which has a private key.
pub(crate) fn read_private_key(
    file: &Document<'_>,
    name: &WithSpan<Text>,
    directory: &Path,
) -> Result<Vec<u8>, FileError> {
    let expected = "a file with a private key in PEM, without a passphrase";
    let parse = |text: &[u8]| PrivateKeyDer::from_pem_slice(text).ok();
    Ok(read_pem(file, name, directory, "private key", expected, parse)?.0)
}

/// Reads the PEM file `name`. Returns its text, and what `parse` finds in it, which is called `what`.
fn read_pem<T>(
    file: &Document<'_>,
    name: &WithSpan<Text>,
    directory: &Path,
    what: &str,
    expected: &str,
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<(Vec<u8>, T), FileError> {
    let invalid = |message: String| file.error(name.span(), message).expected(expected);
    let path = directory.join(&name.get().0);
    let text = std::fs::read(&path).map_err(|error| invalid(format!("cannot read {}: {error}", path.display())))?;
    let parsed = parse(&text).ok_or_else(|| invalid(format!("{} holds no {what}", path.display())))?;
    Ok((text, parsed))
}
