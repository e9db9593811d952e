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
//! downloads it if it is not. A file of the cache is used only if it has the hash that is its name.
//!
//! A file gets its name when it is complete, so a download that breaks off leaves nothing behind. What a
//! process leaves that is interrupted or killed is removed by the next download: no process has it locked any
//! more.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcetera::BaseStrategy as _;
use reqwest::header::{ETAG, HeaderMap, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use reqwest::{Client, Response, StatusCode};
use serde::{Deserialize, Serialize};
use tempfile::{Builder, NamedTempFile};
use tokio::time::{Instant, timeout};

use crate::app::config::pipeline::RemoteFile;
use crate::app::data::digest::{DigestWriter, FileDigest};
use crate::app::data::{DatasetError, DatasetFormat};
use crate::app::provider::address::{is_loopback, stay_on_loopback};
use crate::app::provider::http::root_cause;
use crate::app::render::table::format_bytes;
use crate::app::run::redirects::follow_redirects;

/// The environment variable with the cache directory, instead of the one of the platform.
const CACHE_VARIABLE: &str = "TIDEGATE_CACHE_DIR";

/// How long a server may send nothing.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long a download may take: enough for the default of `max_bytes` at 2 Mbit/s. A server that sends a
/// byte now and then would otherwise keep the run from starting for ever.
const MAX_DURATION: Duration = Duration::from_hours(12);

/// The beginning of the names of incomplete files.
const INCOMPLETE: &str = ".incomplete-";

/// The age at which an incomplete file belongs to no download any more, if the file system has no locks: one
/// in progress is written to within [`PATIENCE`].
const ABANDONED: Duration = Duration::from_hours(1);

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
    /// Returns the path of the file in the cache, after downloading it if it is not there, damaged, or no
    /// longer current. If the cache has the file with the SHA-256 `known`, that one is returned without a
    /// request. `report` shows a line of progress.
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
        let intact = |sha256: &str| Some(path(sha256)).filter(|path| has_hash(path, sha256));
        if let Some(path) = known.filter(|sha256| is_hash(sha256)).and_then(intact) {
            return Ok(path);
        }
        let unwritable =
            |error: &io::Error| self.error(format!("cannot be stored in {}: {error}", directory.display()));
        fs::create_dir_all(&directory).map_err(|error| unwritable(&error))?;
        remove_abandoned(&directory);
        // The address may hold a secret.
        let latest_path = directory.join(FileDigest::of_bytes(self.0.url.as_str().as_bytes()).sha256 + ".json");
        let mut latest = read_latest(&latest_path).filter(|latest| path(&latest.sha256).is_file());
        let response = loop {
            let response = self.request(latest.as_ref()).await?;
            match latest.take() {
                Some(latest) if response.status() == StatusCode::NOT_MODIFIED => {
                    if let Some(path) = intact(&latest.sha256) {
                        return Ok(path);
                    }
                    report(&format!("the file of {} in the cache is damaged", self.0.shown()));
                }
                _ => break response,
            }
        };
        if !response.status().is_success() {
            return Err(self.error(format!("cannot be downloaded: the server answered HTTP {}", response.status())));
        }
        let headers = response.headers().clone();
        let file = incomplete_file(&directory).map_err(|error| unwritable(&error))?;
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
            Ok(answer) => answer.map_err(|error| self.error(format!("cannot be downloaded: {}", root_cause(&error)))),
            Err(_) => Err(self.error(format!("cannot be downloaded: no answer for {} s", PATIENCE.as_secs()))),
        }
    }

    fn client(&self) -> Result<Client, String> {
        // Fails if the process has a TLS provider already, which is fine as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = follow_redirects(Client::builder(), &self.0.url, self.0.allow_plain_http)
            .retry(reqwest::retry::never())
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")));
        builder = stay_on_loopback(builder, &self.0.url);
        if let Some(authorities) = &self.0.authorities {
            builder = builder.tls_certs_only(authorities.clone());
        } else if self.0.url.scheme() == "http" && self.0.url.host_str().is_some_and(is_loopback) {
            // Without TLS no root certificates are needed, and the machine may not have any.
            builder = builder.tls_certs_only([]);
        }
        builder.build().map_err(|error| root_cause(&error))
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
        let started = Instant::now();
        let mut writer = DigestWriter::new(file);
        let (mut bytes, mut reported) = (0_u64, 0);
        loop {
            let chunk = match timeout(PATIENCE, response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => break,
                Ok(Err(error)) => {
                    let of = length.map_or_else(String::new, |length| format!(" of {length}"));
                    let cause = root_cause(&error);
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
            if started.elapsed() > MAX_DURATION {
                let hours = MAX_DURATION.as_secs() / 3600;
                return Err(self.error(format!("is not complete after {hours} hours: {bytes} bytes have come")));
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

/// Returns what was downloaded last. A file that cannot be read counts as absent: the dataset is downloaded
/// again.
fn read_latest(path: &Path) -> Option<Latest> {
    let latest: Latest = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    Some(latest).filter(|latest| is_hash(&latest.sha256))
}

fn write_latest(directory: &Path, path: &Path, latest: &Latest) -> io::Result<()> {
    let mut file = incomplete_file(directory)?;
    serde_json::to_writer_pretty(&mut file, latest)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Creates an incomplete file, which is locked until it is closed.
fn incomplete_file(directory: &Path) -> io::Result<NamedTempFile> {
    loop {
        let file = Builder::new().prefix(INCOMPLETE).tempfile_in(directory)?;
        match file.as_file().try_lock() {
            // Another process has found it before it was locked, and removes it.
            Err(TryLockError::WouldBlock) => {}
            Ok(()) if !file.path().exists() => {}
            // A file system may have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(file),
        }
    }
}

/// Removes the incomplete files of downloads that no longer run. What cannot be removed stays.
fn remove_abandoned(directory: &Path) {
    let is_old = |file: &File| {
        let modified = file.metadata().and_then(|found| found.modified()).ok();
        modified.and_then(|modified| modified.elapsed().ok()).is_some_and(|age| age > ABANDONED)
    };
    for entry in fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok) {
        if !entry.file_name().to_string_lossy().starts_with(INCOMPLETE) {
            continue;
        }
        // It is removed while it is locked, so no download begins to use it.
        let Ok(file) = File::options().write(true).open(entry.path()) else { continue };
        let is_abandoned = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(_)) => is_old(&file),
        };
        if is_abandoned {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Returns whether the file at `path` can be read and has this SHA-256.
fn has_hash(path: &Path, sha256: &str) -> bool {
    File::open(path).and_then(FileDigest::of).is_ok_and(|found| found.sha256.eq_ignore_ascii_case(sha256))
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use reqwest::Body;

    use super::*;

    /// Downloads a body that never ends, of which a byte comes after each `pause`. Returns the error.
    async fn endless(pause: Duration, max_bytes: u64) -> String {
        let bytes = stream::unfold((), move |()| async move {
            tokio::time::sleep(pause).await;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x"))), ()))
        });
        let response = http::Response::new(Body::wrap(StreamBody::new(bytes)));
        let url = "http://127.0.0.1/data.csv".parse().unwrap();
        let remote = RemoteFile { url, authorities: None, allow_plain_http: false, max_bytes };
        let file = NamedTempFile::new().unwrap();
        let ended = Download(&remote).download(Response::from(response), file, &mut |_| {}).await;
        ended.map(drop).unwrap_err().message
    }

    #[tokio::test(start_paused = true)]
    async fn a_download_that_never_ends_is_an_error() {
        let slow = Duration::from_secs(50);
        assert_eq!(endless(slow, u64::MAX).await, "is not complete after 12 hours: 865 bytes have come");
        assert_eq!(endless(PATIENCE * 2, u64::MAX).await, "stopped after 0 bytes: no more came for 60 s");
        assert!(endless(slow, 20).await.starts_with("is larger than 20 bytes"));
    }
}
