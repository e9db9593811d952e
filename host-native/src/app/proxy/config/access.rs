//! Who may call, and for how long a connection may take: `allowed_hosts`, `allowed_origins` and the table `[connections]`.

use std::num::NonZeroU32;
use std::time::Duration as StdDuration;

use http::HeaderValue;
use http::uri::Authority;
use toml::Spanned;

use super::positive;
use crate::app::config::pipeline::{FileError, SourceText};
use crate::app::config::reader::TableReader;

/// Hosts and origins that are served besides those of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessConfig {
    /// `allowed_hosts`: names in `Host`, without a port.
    pub hosts: Vec<String>,
    /// `allowed_origins`: what `Origin` says, such as `https://app.example`. They also get CORS headers.
    pub origins: Vec<HeaderValue>,
}

/// The table `[connections]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionsConfig {
    /// Connections that are open at most \[16384\].
    pub max_connections: NonZeroU32,
    /// How long a connection may be idle between two requests, and the head of a request may take \[30 s\].
    pub header_timeout: StdDuration,
    /// How long a client may send nothing of a body that it has announced \[30 s\].
    pub body_timeout: StdDuration,
    /// How long a client may take nothing of its answer \[2 min\].
    pub write_timeout: StdDuration,
    /// Bytes of the headers of a request, names and values \[32 KiB\].
    pub max_header_bytes: u32,
    /// Bytes of the path and query of a request \[8 KiB\].
    pub max_url_bytes: u32,
}

impl Default for ConnectionsConfig {
    fn default() -> Self {
        Self {
            max_connections: NonZeroU32::new(16_384).expect("it is not 0"),
            header_timeout: StdDuration::from_secs(30),
            body_timeout: StdDuration::from_secs(30),
            write_timeout: StdDuration::from_mins(2),
            max_header_bytes: 32 << 10,
            max_url_bytes: 8 << 10,
        }
    }
}

pub(super) fn parse_access(source: &SourceText, root: &TableReader<'_>) -> Result<AccessConfig, FileError> {
    let strings = |key| Ok(root.optional::<Vec<Spanned<String>>>(key)?.map(Spanned::into_inner).unwrap_or_default());
    let mut config = AccessConfig::default();
    for host in strings("allowed_hosts")? {
        let name = host.get_ref();
        let is_host = name.parse::<Authority>().is_ok_and(|parsed| parsed.host() == name) && !name.contains('*');
        if !is_host {
            let message = format!("{:?} in `allowed_hosts` is not the name of a host", host.get_ref());
            return Err(source.error(host.span(), message).expected("a name without a port, such as \"llm.example\""));
        }
        config.hosts.push(host.into_inner());
    }
    for origin in strings("allowed_origins")? {
        let Some(value) = origin_value(origin.get_ref()) else {
            let message = format!("{:?} in `allowed_origins` is not an origin", origin.get_ref());
            return Err(source
                .error(origin.span(), message)
                .expected("a scheme, a host, and a port that is not the usual one, such as \"https://app.example\""));
        };
        config.origins.push(value);
    }
    Ok(config)
}

/// An origin as browsers write it in `Origin`.
fn origin_value(text: &str) -> Option<HeaderValue> {
    let url = reqwest::Url::parse(text).ok()?;
    (url.origin().ascii_serialization() == text).then(|| HeaderValue::from_str(text).ok())?
}

const CONNECTIONS: &str = "[connections]";

const CONNECTION_KEYS: &[&str] =
    &["max_connections", "header_timeout", "body_timeout", "write_timeout", "max_header_bytes", "max_url_bytes"];

pub(super) fn parse_connections(source: &SourceText, root: &TableReader<'_>) -> Result<ConnectionsConfig, FileError> {
    let defaults = ConnectionsConfig::default();
    let Some(table) = root.table("connections", CONNECTIONS, CONNECTION_KEYS)? else { return Ok(defaults) };
    let bytes = |key, default, most: u32| -> Result<u32, FileError> {
        let Some(given) = table.optional::<NonZeroU32>(key)? else { return Ok(default) };
        if given.get_ref().get() > most {
            let message = format!("`{key}` in {CONNECTIONS} is {}", given.get_ref());
            return Err(source.error(given.span(), message).expected(format!("at most {most}")));
        }
        Ok(given.get_ref().get())
    };
    Ok(ConnectionsConfig {
        max_connections: table.or("max_connections", defaults.max_connections)?,
        header_timeout: positive(source, &table, "header_timeout")?.unwrap_or(defaults.header_timeout),
        body_timeout: positive(source, &table, "body_timeout")?.unwrap_or(defaults.body_timeout),
        write_timeout: positive(source, &table, "write_timeout")?.unwrap_or(defaults.write_timeout),
        max_header_bytes: bytes("max_header_bytes", defaults.max_header_bytes, 1 << 20)?,
        // The longest that a request line can be read with.
        max_url_bytes: bytes("max_url_bytes", defaults.max_url_bytes, 60 << 10)?,
    })
}
