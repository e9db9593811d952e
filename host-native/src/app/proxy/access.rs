//! Keeps web pages from using the proxy. A page in a browser on this machine or in its network can reach the
//! listener.
//!
//! | attack | detection |
//! | --- | --- |
//! | a page sends a request to the proxy's address | `Origin` or `Sec-Fetch-Site` is of another site |
//! | DNS rebinding: the host name of a page resolves to the proxy | `Host` is the name of that site |
//!
//! Programs send neither `Origin` nor `Sec-Fetch-Site`, and send the address that they call as `Host`. The
//! configuration file lists further hosts and origins. Only listed origins receive CORS headers.

use std::net::{IpAddr, SocketAddr};

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, HOST, HeaderName, HeaderValue, ORIGIN, RETRY_AFTER};
use http::uri::Authority;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::Full;
use reqwest::Url;
use tower_http::cors::{AllowHeaders, AllowOrigin, Cors, CorsLayer};
use tower_layer::Layer as _;
use tower_service::Service as _;

use super::config::AccessConfig;
use super::error::ProxyError;
use super::headers::{ATTEMPTS, REQUEST_ID, WAITED};
use crate::app::provider::address::{ip_address, is_loopback};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// How long a browser may cache the response to a preflight request.
const PREFLIGHT_AGE: std::time::Duration = std::time::Duration::from_mins(10);

/// The hosts and origins that are served.
#[derive(Debug)]
pub(super) struct AccessPolicy {
    config: AccessConfig,
    /// Creates CORS headers. `None` if the file lists no origins.
    cors: Option<Cors<Empty>>,
}

impl AccessPolicy {
    pub(super) fn new(config: AccessConfig) -> Self {
        let cors = (!config.origins.is_empty()).then(|| {
            CorsLayer::new()
                .allow_origin(AllowOrigin::list(config.origins.iter().cloned()))
                .allow_methods([Method::GET, Method::POST])
                .allow_headers(AllowHeaders::mirror_request())
                .expose_headers([REQUEST_ID, WAITED, ATTEMPTS, RETRY_AFTER])
                .max_age(PREFLIGHT_AGE)
                .layer(Empty)
        });
        Self { config, cors }
    }

    /// Rejects a request for another host or from a page of another site. `local` is the address at which its
    /// connection was accepted.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap, local: SocketAddr) -> Result<(), ProxyError> {
        let host = target(uri, headers)?;
        if !self.is_own_host(host.host(), local.ip()) {
            return Err(ProxyError::ForeignHost { host: shown(host.host()), local });
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        let origin = match (origins.next(), origins.next()) {
            (Some(origin), None) => Some(origin),
            (None, _) => None,
            (Some(_), Some(_)) => return Err(ProxyError::ForeignOrigin { origin: "several".to_string() }),
        };
        if let Some(origin) = origin {
            let text = origin.to_str().unwrap_or_default();
            let is_allowed = self.config.origins.contains(origin) || is_own_origin(text, &host);
            return if is_allowed { Ok(()) } else { Err(ProxyError::ForeignOrigin { origin: shown(text) }) };
        }
        // Browsers omit `Origin` in some requests, such as those for images. They always send
        // `Sec-Fetch-Site` to localhost.
        let site = headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
        match site {
            None | Some(b"none" | b"same-origin") => Ok(()),
            Some(site) => Err(ProxyError::ForeignSite { site: shown(&String::from_utf8_lossy(site)) }),
        }
    }

    fn is_own_host(&self, host: &str, local: IpAddr) -> bool {
        let is_listed = || self.config.hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host));
        is_loopback(host) || ip_address(host).is_some_and(|address| address == local.to_canonical()) || is_listed()
    }

    /// Returns the CORS headers for the response to this request, and whether the request is a preflight,
    /// which needs no further response.
    pub(super) async fn cors(&self, method: &Method, headers: &HeaderMap) -> Option<(HeaderMap, bool)> {
        // An origin that is served but not listed, which is that of the proxy itself, receives no CORS
        // headers.
        let origin = headers.get(ORIGIN).filter(|origin| self.config.origins.contains(*origin))?;
        let is_preflight = method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        let mut request = Request::new(());
        *request.method_mut() = method.clone();
        *request.headers_mut() = headers.clone();
        request.headers_mut().insert(ORIGIN, origin.clone());
        let Ok(response) = self.cors.clone()?.call(request).await;
        Some((response.into_parts().0.headers, is_preflight))
    }
}

/// The service below the CORS layer. Only the headers that the layer adds are used.
#[derive(Clone, Debug)]
struct Empty;

impl tower_service::Service<Request<()>> for Empty {
    type Response = Response<Full<bytes::Bytes>>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        std::future::ready(Ok(Response::default()))
    }
}

/// Returns the host of a request. `Host` must occur exactly once, and must equal the host of the request line
/// if that has one.
fn target(uri: &Uri, headers: &HeaderMap) -> Result<Authority, ProxyError> {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(ProxyError::BadHost) };
    let host = Authority::try_from(host.as_bytes()).map_err(|_| ProxyError::BadHost)?;
    let has_user = host.as_str().contains('@');
    // The parser of `Authority` accepts anything after the colon, and after an address in brackets.
    let port = host.as_str().strip_prefix(host.host()).unwrap_or_default();
    let is_number = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_number);
    let is_other = uri.authority().is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(host.as_str()));
    if has_user || !is_port || is_other { Err(ProxyError::BadHost) } else { Ok(host) }
}

/// Returns whether an origin is the host of the request. Other pages of this machine are foreign: any program
/// may serve them, and a form of theirs would be paid for with the key of the proxy. Only the spelling that
/// browsers send is accepted.
fn is_own_origin(origin: &str, host: &Authority) -> bool {
    let Ok(url) = Url::parse(origin) else { return false };
    if !matches!(url.scheme(), "http" | "https") || url.origin().ascii_serialization() != origin {
        return false;
    }
    let authority = &origin[url.scheme().len() + "://".len()..];
    authority.eq_ignore_ascii_case(host.as_str())
}

/// Truncates a text of the client for a message.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: AccessConfig, headers: &[(&'static str, &str)], local: &str) -> Result<(), ProxyError> {
        let named = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        let headers: HeaderMap = headers.iter().map(named).collect();
        AccessPolicy::new(config).check(&Uri::from_static("/why"), &headers, local.parse().unwrap())
    }

    #[test]
    fn the_called_address_and_names_of_this_machine_are_always_served() {
        for host in ["localhost", "LOCALHOST:4180", "app.localhost", "127.0.0.1:1", "[::1]:4180", "10.0.0.5:4180"] {
            assert_eq!(check(AccessConfig::default(), &[("host", host)], "10.0.0.5:4180"), Ok(()), "{host}");
        }
        for host in ["evil.example", "10.0.0.6", "localhost.evil.example", "127.0.0.1.evil.example", "xlocalhost"] {
            let refused = check(AccessConfig::default(), &[("host", host)], "10.0.0.5:4180");
            assert!(matches!(refused, Err(ProxyError::ForeignHost { .. })), "{host}: {refused:?}");
        }
    }

    #[test]
    fn the_host_header_must_occur_exactly_once() {
        let local = "127.0.0.1:1";
        let check = |headers: &[_]| check(AccessConfig::default(), headers, local);
        assert_eq!(check(&[]), Err(ProxyError::BadHost));
        for host in [
            "evil.example@localhost",
            "localhost:99999",
            "localhost:",
            "127.0.0.1:1.evil.example",
            "[::1]evil.example:80",
        ] {
            assert_eq!(check(&[("host", host)]), Err(ProxyError::BadHost), "{host}");
        }
        let headers: HeaderMap = HeaderMap::from_iter([(HOST, HeaderValue::from_static("localhost"))]);
        let uri = Uri::from_static("http://127.0.0.1/v1/models");
        assert_eq!(target(&uri, &headers), Err(ProxyError::BadHost), "the host of the request line differs");
    }

    #[test]
    fn a_page_of_another_site_is_rejected_unless_its_origin_is_listed() {
        let origin = |origin: &str, extra: &[&str]| {
            let origins = extra.iter().map(|one| HeaderValue::from_str(one).unwrap()).collect();
            let config = AccessConfig { hosts: Vec::new(), origins };
            check(
                config,
                &[("host", "127.0.0.1:4180"), ("origin", origin), ("sec-fetch-site", "cross-site")],
                "127.0.0.1:1",
            )
        };
        assert_eq!(origin("http://127.0.0.1:4180", &[]), Ok(()));
        for other in [
            "https://evil.example",
            "http://127.0.0.1:3000",
            "http://localhost:4180",
            "https://[::1]:4180",
            "null",
            "http://localhost.evil.example",
            "",
            "http://localhost@evil.example",
            "http://127.0.0.1:4180.evil.example",
            "http://127.0.0.1:4180/",
            "http://localhost:99999",
            "ftp://localhost",
        ] {
            assert!(matches!(origin(other, &[]), Err(ProxyError::ForeignOrigin { .. })), "{other}");
        }
        for listed in ["https://app.example", "http://localhost:3000"] {
            assert_eq!(origin(listed, &[listed]), Ok(()));
        }
        assert!(origin("https://app.example:444", &["https://app.example"]).is_err());
    }

    #[test]
    fn a_request_without_an_origin_is_checked_by_its_sec_fetch_site_header() {
        let site =
            |site| check(AccessConfig::default(), &[("host", "localhost"), ("sec-fetch-site", site)], "127.0.0.1:1");
        assert_eq!((site("none"), site("same-origin")), (Ok(()), Ok(())));
        for other in ["cross-site", "same-site", "anything"] {
            assert!(matches!(site(other), Err(ProxyError::ForeignSite { .. })), "{other}");
        }
    }
}
