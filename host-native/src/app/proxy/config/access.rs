//! Access and connection settings: `allowed_hosts`, `allowed_origins` and the table `[connections]`.

use std::num::NonZeroU32;
use std::time::Duration as StdDuration;

use http::HeaderValue;
use http::uri::Authority;

use super::raw::RawConnections;
use crate::app::config::document::Document;
use crate::app::config::source::FileError;
use crate::app::config::value::{DurationText, Text, WithSpan};

/// The hosts and origins that are served besides those of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessConfig {
    /// `allowed_hosts`: host names in `Host`, without a port.
    pub hosts: Vec<String>,
    /// `allowed_origins`: values of `Origin`, such as `https://app.example`. They also receive CORS headers.
    pub origins: Vec<HeaderValue>,
}

/// The table `[connections]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionsConfig {
    /// The maximum number of open connections \[16384\].
    pub max_connections: NonZeroU32,
    /// The maximum number of open connections of one client address, or of one IPv6 network of 64 bits
    /// \[three quarters of `max_connections`\].
    pub max_connections_per_address: NonZeroU32,
    /// The limit for idle time between two requests, and for receiving a request head \[30 s\].
    pub header_timeout: StdDuration,
    /// The limit between two chunks of a request body \[30 s\].
    pub body_timeout: StdDuration,
    /// The limit for a write of a response without progress \[2 min\].
    pub write_timeout: StdDuration,
    /// The maximum size of the request headers, names and values, in bytes \[32 KiB\].
    pub max_header_bytes: u32,
    /// The maximum size of path and query, in bytes \[8 KiB\].
    pub max_url_bytes: u32,
}

/// The default of `max_connections`.
const MAX_CONNECTIONS: NonZeroU32 = NonZeroU32::new(16_384).expect("it is not 0");

/// Returns the default of `max_connections_per_address`: one client leaves a quarter to the others.
fn default_per_address(max_connections: NonZeroU32) -> NonZeroU32 {
    let quarter = max_connections.get() / 4;
    NonZeroU32::new(max_connections.get() - quarter).unwrap_or(max_connections)
}

impl Default for ConnectionsConfig {
    fn default() -> Self {
        Self {
            max_connections: MAX_CONNECTIONS,
            max_connections_per_address: default_per_address(MAX_CONNECTIONS),
            header_timeout: StdDuration::from_secs(30),
            body_timeout: StdDuration::from_secs(30),
            write_timeout: StdDuration::from_mins(2),
            max_header_bytes: 32 << 10,
            max_url_bytes: 8 << 10,
        }
    }
}

pub(super) fn check_access(
    file: &Document<'_>,
    allowed_hosts: Vec<WithSpan<Text>>,
    allowed_origins: Vec<WithSpan<Text>>,
) -> Result<AccessConfig, FileError> {
    let mut config = AccessConfig::default();
    for host in allowed_hosts {
        let name = host.get().0.as_str();
        let is_host = name.parse::<Authority>().is_ok_and(|parsed| parsed.host() == name) && !name.contains('*');
        if !is_host {
            let message = format!("{name:?} in `allowed_hosts` is not the name of a host");
            return Err(file.error(host.span(), message).expected("a name without a port, such as \"llm.example\""));
        }
        config.hosts.push(host.into_inner().0);
    }
    for origin in allowed_origins {
        let Some(value) = origin_value(&origin.get().0) else {
            let message = format!("{:?} in `allowed_origins` is not an origin", origin.get().0);
            return Err(file
                .error(origin.span(), message)
                .expected("a scheme, a host, and a port that is not the usual one, such as \"https://app.example\""));
        };
        config.origins.push(value);
    }
    Ok(config)
}

/// Returns an origin as a header value if it is spelled as browsers send it.
fn origin_value(text: &str) -> Option<HeaderValue> {
    let url = reqwest::Url::parse(text).ok()?;
    (url.origin().ascii_serialization() == text).then(|| HeaderValue::from_str(text).ok())?
}

/// The maximum of `max_header_bytes`.
const MAX_HEADER_BYTES: u32 = 1 << 20;
/// The maximum of `max_url_bytes`: the longest request line that can be read.
const MAX_URL_BYTES: u32 = 60 << 10;

pub(super) fn check_connections(file: &Document<'_>, raw: &RawConnections) -> Result<ConnectionsConfig, FileError> {
    let defaults = ConnectionsConfig::default();
    let bytes = |given: Option<&WithSpan<NonZeroU32>>, default, max: u32| match given {
        Some(given) if given.get().get() > max => Err(file.wrong(given.span(), format!("at most {max}"))),
        given => Ok(given.map_or(default, |given| given.get().get())),
    };
    let timeout = |given: &Option<WithSpan<DurationText>>, default| -> Result<StdDuration, FileError> {
        Ok(file.positive(given.as_ref())?.map_or(default, StdDuration::from))
    };
    let max_connections = raw.max_connections.unwrap_or(defaults.max_connections);
    let per_address = raw.max_connections_per_address.unwrap_or_else(|| default_per_address(max_connections));
    Ok(ConnectionsConfig {
        max_connections,
        max_connections_per_address: per_address,
        header_timeout: timeout(&raw.header_timeout, defaults.header_timeout)?,
        body_timeout: timeout(&raw.body_timeout, defaults.body_timeout)?,
        write_timeout: timeout(&raw.write_timeout, defaults.write_timeout)?,
        max_header_bytes: bytes(raw.max_header_bytes.as_ref(), defaults.max_header_bytes, MAX_HEADER_BYTES)?,
        max_url_bytes: bytes(raw.max_url_bytes.as_ref(), defaults.max_url_bytes, MAX_URL_BYTES)?,
    })
}
