//! Datasets at an http or https address. The file is downloaded once, into a cache directory, and read from
//! there.
//!
//! ```text
//! CACHE/datasets/<SHA-256 of the file>.csv    a file
//! CACHE/datasets/<SHA-256 of the address>.json  which file was downloaded last from an address
//! ```
//!
//! A job that is resumed reads the file that it began with, by its hash, and makes no request. Any other run
//! asks the server whether the latest file is still current, with its `ETag` or `Last-Modified`, and
//! downloads it if it is not. A file gets its name when it is complete, so a download that breaks off leaves
//! nothing behind.

use std::fmt;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use reqwest::header::{ETAG, HeaderMap, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, Response, StatusCode};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tokio::time::timeout;

use crate::app::config::pipeline::RemoteFile;
use crate::app::data::digest::{DigestWriter, FileDigest};
use crate::app::data::{DatasetError, DatasetFormat};
use crate::app::provider::address::{is_loopback, is_plain_and_far};
use crate::app::run::preflight::format_bytes;

/// The environment variable with the cache directory, instead of the one of the platform.
const CACHE_VARIABLE: &str = "TIDEGATE_CACHE_DIR";

/// The most redirects that are followed.
const MAX_REDIRECTS: usize = 10;

/// How long a server may send nothing.
const PATIENCE: std::time::Duration = std::time::Duration::from_mins(1);

/// The number of bytes after which progress is reported, if the length of the file is unknown.
const PROGRESS_BYTES: u64 = 100_000_000;

/// The version of a file that was downloaded last.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Latest {
    sha256: String,
    bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_modified: Option<String>,
}

/// A download of a file.
#[derive(Debug)]
pub(super) struct Download<'a>(pub &'a RemoteFile);

impl Download<'_> {
    /// Returns the path of the file in the cache, after downloading it if it is not there or no longer
    /// current. If the cache has the file with the SHA-256 `known`, that one is returned without a request.
    /// `report` shows a line of progress.
    ///
    /// # Errors
    /// If the file cannot be downloaded completely, is too large, or cannot be stored.
    pub(super) async fn fetch(
        &self,
        format: DatasetFormat,
        known: Option<&str>,
        report: &mut dyn FnMut(&str),
    ) -> Result<PathBuf, DatasetError> {
        let directory = cache_directory().map_err(|why| self.error(why))?;
        let path = |sha256: &str| directory.join(format!("{sha256}.{}", format.name()));
        if let Some(path) = known.filter(|sha256| is_hash(sha256)).map(path).filter(|path| path.is_file()) {
            return Ok(path);
        }
        let unwritable =
            |error: &io::Error| self.error(format!("cannot be stored in {}: {error}", directory.display()));
        std::fs::create_dir_all(&directory).map_err(|error| unwritable(&error))?;
        // The address may hold a secret.
        let latest_path = directory.join(FileDigest::of_bytes(self.0.url.as_str().as_bytes()).sha256 + ".json");
        let latest = read_latest(&latest_path).filter(|latest| path(&latest.sha256).is_file());
        let response = self.request(latest.as_ref()).await?;
        if let (StatusCode::NOT_MODIFIED, Some(latest)) = (response.status(), &latest) {
            return Ok(path(&latest.sha256));
        }
        if !response.status().is_success() {
            return Err(self.error(format!("cannot be downloaded: the server answered HTTP {}", response.status())));
        }
        let headers = response.headers().clone();
        let file = NamedTempFile::new_in(&directory).map_err(|error| unwritable(&error))?;
        let (file, digest) = self.download(response, file, report).await?;
        let path = path(&digest.sha256);
        file.as_file().sync_all().map_err(|error| unwritable(&error))?;
        file.persist(&path).map_err(|error| unwritable(&error.error))?;
        let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::to_string);
        let latest =
            Latest { sha256: digest.sha256, bytes: digest.bytes, etag: text(ETAG), last_modified: text(LAST_MODIFIED) };
        write_latest(&directory, &latest_path, &latest).map_err(|error| unwritable(&error))?;
        Ok(path)
    }

    /// Asks for the file, unless it is still that of `latest`.
    async fn request(&self, latest: Option<&Latest>) -> Result<Response, DatasetError> {
        let client = self.client().map_err(|why| self.error(format!("HTTPS cannot be set up: {why}")))?;
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (IF_NONE_MATCH, latest.and_then(|latest| latest.etag.as_ref())),
            (IF_MODIFIED_SINCE, latest.and_then(|latest| latest.last_modified.as_ref())),
        ] {
            if let Some(value) = value.and_then(|value| value.parse().ok()) {
                headers.insert(name, value);
            }
        }
        let sent = timeout(PATIENCE, client.get(self.0.url.clone()).headers(headers).send()).await;
        match sent {
            Ok(answer) => answer.map_err(|error| self.error(format!("cannot be downloaded: {}", cause_of(&error)))),
            Err(_) => Err(self.error(format!("cannot be downloaded: no answer for {} s", PATIENCE.as_secs()))),
        }
    }

    fn client(&self) -> Result<Client, String> {
        // Fails if the process has a TLS provider already, which is fine as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let allow_plain_http = self.0.allow_plain_http;
        let follow = move |attempt: Attempt<'_>| {
            if attempt.previous().len() > MAX_REDIRECTS {
                return attempt.error(RedirectError::TooMany);
            }
            if !allow_plain_http && is_plain_and_far(attempt.url()) {
                let host = attempt.url().host_str().unwrap_or_default().to_string();
                return attempt.error(RedirectError::Plain(host));
            }
            attempt.follow()
        };
        let mut builder = Client::builder()
            .redirect(Policy::custom(follow))
            .retry(reqwest::retry::never())
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")));
        if self.0.url.host_str().is_some_and(is_loopback) {
            builder = builder.no_proxy();
        }
        if let Some(authorities) = &self.0.authorities {
            builder = builder.tls_certs_only(authorities.clone());
        } else if self.0.url.scheme() == "http" && self.0.url.host_str().is_some_and(is_loopback) {
            // Without TLS no root certificates are needed, and the machine may not have any.
            builder = builder.tls_certs_only([]);
        }
        builder.build().map_err(|error| cause_of(&error))
    }

    /// Writes the body of `response` to `file`.
    async fn download(
        &self,
        mut response: Response,
        file: NamedTempFile,
        report: &mut dyn FnMut(&str),
    ) -> Result<(NamedTempFile, FileDigest), DatasetError> {
        let length = response.content_length();
        let too_large = |bytes: u64| {
            self.error(format!(
                "is larger than {}: it has {bytes} bytes or more; expected at most `max_bytes` in [seed]",
                format_bytes(self.0.max_bytes)
            ))
        };
        if let Some(bytes) = length.filter(|bytes| *bytes > self.0.max_bytes) {
            return Err(too_large(bytes));
        }
        let size = length.map_or_else(String::new, |bytes| format!(" ({})", format_bytes(bytes)));
        report(&format!("downloading {}{size}", self.0.shown()));
        let mut writer = DigestWriter::new(file);
        let (mut bytes, mut reported) = (0_u64, 0);
        loop {
            let chunk = match timeout(PATIENCE, response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => break,
                Ok(Err(error)) => {
                    let of = length.map_or_else(String::new, |length| format!(" of {length}"));
                    let cause = cause_of(&error);
                    return Err(
                        self.error(format!("ended after {bytes}{of} bytes: {cause}; the run can be started again"))
                    );
                }
                Err(_) => {
                    let seconds = PATIENCE.as_secs();
                    return Err(self.error(format!("stopped after {bytes} bytes: no more came for {seconds} s")));
                }
            };
            bytes += chunk.len() as u64;
            if bytes > self.0.max_bytes {
                return Err(too_large(bytes));
            }
            writer.write_all(&chunk).map_err(|error| self.error(format!("cannot be stored: {error}")))?;
            // Each tenth of a known length.
            let step = bytes / length.map_or(PROGRESS_BYTES, |length| (length / 10).max(PROGRESS_BYTES / 10));
            if step > reported {
                reported = step;
                report(&format!(
                    "downloaded {}{}",
                    format_bytes(bytes),
                    length.map_or_else(String::new, |length| { format!(" of {}", format_bytes(length)) })
                ));
            }
        }
        Ok(writer.finish())
    }

    /// Returns an error about the file.
    fn error(&self, message: impl Into<String>) -> DatasetError {
        DatasetError { path: PathBuf::from(self.0.shown()), line: None, message: message.into() }
    }

    /// Returns an error about the content of the file with its address instead of its path in the cache.
    #[must_use]
    pub(super) fn with_address(&self, error: DatasetError) -> DatasetError {
        DatasetError { path: PathBuf::from(self.0.shown()), ..error }
    }
}

/// Why a redirect is not followed.
#[derive(Debug)]
enum RedirectError {
    TooMany,
    /// To this host, unencrypted.
    Plain(String),
}

impl fmt::Display for RedirectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "more than {MAX_REDIRECTS} redirects"),
            Self::Plain(host) => write!(
                f,
                "it redirects to `{host}` without encryption; expected an address with https, or `allow_plain_http = true` in \
                 [seed]"
            ),
        }
    }
}

impl std::error::Error for RedirectError {}

/// Returns what was downloaded last. A file that cannot be read counts as absent: the dataset is downloaded
/// again.
fn read_latest(path: &Path) -> Option<Latest> {
    let latest: Latest = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    Some(latest).filter(|latest| is_hash(&latest.sha256))
}

fn write_latest(directory: &Path, path: &Path, latest: &Latest) -> io::Result<()> {
    let mut file = NamedTempFile::new_in(directory)?;
    serde_json::to_writer_pretty(&mut file, latest)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Returns whether a text that becomes a file name is a SHA-256 in hexadecimal.
fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn cache_directory() -> Result<PathBuf, String> {
    let cache = match std::env::var_os(CACHE_VARIABLE).filter(|directory| !directory.is_empty()) {
        Some(directory) => PathBuf::from(directory),
        None => etcetera::choose_base_strategy()
            .map_err(|_| format!("needs a cache directory: neither {CACHE_VARIABLE} nor HOME is set"))?
            .cache_dir()
            .join("tidegate"),
    };
    Ok(cache.join("datasets"))
}

/// Returns the message of the innermost cause. The outer errors only say that a request failed, and may
/// contain the address.
fn cause_of(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
