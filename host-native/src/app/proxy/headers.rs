//! Header filtering: removes hop-by-hop headers, credentials, and headers that concern one side only.

use http::header::{
    ACCEPT_ENCODING, ALT_SVC, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, EXPECT, FORWARDED, HOST, ORIGIN, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, REFERER, REFRESH,
    STRICT_TRANSPORT_SECURITY, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

use super::error::ProxyError;
use crate::app::config::value::parse_duration;
use crate::app::provider::key::is_name_of_key;

/// Hop-by-hop headers, besides those that `Connection` names (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 10] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Client headers that are not forwarded: headers that the proxy sets itself, headers about the page or
/// network of the client, and headers that could select a method or path other than the checked one.
const STRIPPED_FROM_REQUESTS: [HeaderName; 18] = [
    HOST,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    CONTENT_ENCODING,
    EXPECT,
    // The proxy reads usage and error bodies, so responses must not be compressed.
    ACCEPT_ENCODING,
    ORIGIN,
    REFERER,
    FORWARDED,
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-method-override"),
    HeaderName::from_static("x-host"),
    HeaderName::from_static("x-original-method"),
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-original-uri"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-rewrite-url"),
];

/// Client headers that select the organization or project that a call is charged to. They are not forwarded
/// with the key of the proxy.
const ACCOUNT_SELECTORS: [HeaderName; 4] = [
    HeaderName::from_static("anthropic-workspace"),
    HeaderName::from_static("openai-organization"),
    HeaderName::from_static("openai-project"),
    HeaderName::from_static("x-goog-user-project"),
];

/// Provider headers that are not forwarded: they would apply to the proxy's host, or to a server in front of
/// the proxy.
const STRIPPED_FROM_RESPONSES: [HeaderName; 14] = [
    ALT_SVC,
    CONTENT_SECURITY_POLICY,
    REFRESH,
    STRICT_TRANSPORT_SECURITY,
    WWW_AUTHENTICATE,
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("reporting-endpoints"),
    HeaderName::from_static("service-worker-allowed"),
    HeaderName::from_static("set-cookie"),
    HeaderName::from_static("set-cookie2"),
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("x-sendfile"),
    HeaderName::from_static("x-lighttpd-send-file"),
];

/// Returns the credentials that a client sent in these headers.
pub(super) fn keys(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let values = headers.iter().filter(|(name, _)| is_name_of_key(name.as_str())).map(|(_, value)| value.as_bytes());
    // Skips a scheme such as `Bearer`.
    values.filter_map(|value| value.rsplit(|byte| *byte == b' ').next())
}

/// Returns whether a body is a stream of server-sent events.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    const KIND: &[u8] = b"text/event-stream";
    let start =
        |kind: &HeaderValue| kind.as_bytes().get(..KIND.len()).is_some_and(|start| start.eq_ignore_ascii_case(KIND));
    headers.get(CONTENT_TYPE).is_some_and(start)
}

/// The credentials of a request to a provider.
#[derive(Clone, Copy, Debug)]
pub(super) enum Credentials<'a> {
    /// The key of the proxy.
    Own(&'a HeaderValue),
    /// The credentials of the client.
    Forwarded,
    /// No credentials.
    None,
}

/// The maximum time that the client allows its request to wait.
pub(super) const TIMEOUT: HeaderName = HeaderName::from_static("x-tidegate-timeout");
/// The name of the provider that the client requests.
pub(super) const PROVIDER: HeaderName = HeaderName::from_static("x-tidegate-provider");
/// How long a request waited, in milliseconds.
pub(super) const WAITED: HeaderName = HeaderName::from_static("x-tidegate-waited-ms");
/// How many attempts it took.
pub(super) const ATTEMPTS: HeaderName = HeaderName::from_static("x-tidegate-attempts");
/// The id of the request.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Removes hop-by-hop headers.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| name.trim().parse().ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Turns client headers into the headers of a request to a provider. The headers `own` are addressed to the
/// proxy and are removed.
pub(super) fn to_provider<'a>(
    headers: &mut HeaderMap,
    own: impl Iterator<Item = &'a HeaderName>,
    credentials: Credentials<'_>,
) {
    strip_hop_by_hop(headers);
    for name in &STRIPPED_FROM_REQUESTS {
        headers.remove(name);
    }
    for name in own {
        headers.remove(name);
    }
    let is_kept = |name: &HeaderName| {
        let text = name.as_str();
        let starts = ["sec-", "x-forwarded-", "x-envoy-", "access-control-", "x-tidegate-"];
        let concerns_client = starts.iter().any(|start| text.starts_with(start));
        let is_allowed = match credentials {
            Credentials::Forwarded => !text.contains("cookie"),
            Credentials::Own(_) => !is_name_of_key(name.as_str()) && !ACCOUNT_SELECTORS.contains(name),
            Credentials::None => !is_name_of_key(name.as_str()),
        };
        !concerns_client && is_allowed
    };
    retain(headers, is_kept);
    if let Credentials::Own(key) = credentials {
        headers.insert(AUTHORIZATION, key.clone());
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.append(VIA, HeaderValue::from_static("1.1 tidegate"));
}

/// Turns provider headers into the headers of a response to a client.
pub(super) fn to_client(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    for name in &STRIPPED_FROM_RESPONSES {
        headers.remove(name);
    }
    let is_of_servers = |name: &str| ["access-control-", "x-accel-"].iter().any(|start| name.starts_with(start));
    retain(headers, |name| !is_of_servers(name.as_str()));
}

fn retain(headers: &mut HeaderMap, is_kept: impl Fn(&HeaderName) -> bool) {
    let gone: Vec<HeaderName> = headers.keys().filter(|name| !is_kept(name)).cloned().collect();
    for name in gone {
        headers.remove(name);
    }
}

/// Returns the timeout that the client requests: a number of seconds, or a number with a unit.
pub(super) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, ProxyError> {
    let Some(value) = headers.get(TIMEOUT) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let wait = parse_duration(text).or_else(|| parse_duration(&format!("{text}s")));
    let expected = "a time such as 30s, 500ms, or a number of seconds";
    wait.map(|wait| Some(wait.into())).ok_or(ProxyError::BadHeader { name: "x-tidegate-timeout", expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_a_number_of_seconds_or_has_a_unit() {
        let parsed = |text| timeout(&map(&[("x-tidegate-timeout", text)]));
        assert_eq!(parsed("30"), Ok(Some(Duration::from_secs(30))));
        assert_eq!(
            [parsed("0.5"), parsed("500ms")],
            [Ok(Some(Duration::from_millis(500))), Ok(Some(Duration::from_millis(500)))]
        );
        assert_eq!(timeout(&HeaderMap::new()), Ok(None));
        assert!(parsed("soon").is_err() && parsed("-1").is_err());
    }

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn hop_by_hop_headers_are_removed_and_others_are_kept() {
        let mut headers = map(&[
            ("connection", "keep-alive, X-Mine"),
            ("keep-alive", "timeout=5"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("x-yours", "2"),
        ]);
        strip_hop_by_hop(&mut headers);
        assert_eq!(names(&headers), ["x-yours"]);
    }

    #[test]
    fn a_provider_receives_its_own_key_and_no_headers_for_the_proxy() {
        let mut headers = map(&[
            ("host", "proxy"),
            ("authorization", "Bearer client"),
            ("x-api-key", "client"),
            ("x-goog-api-key", "client"),
            ("cookie", "session=1"),
            ("ocp-apim-subscription-key", "client"),
            ("x-auth-token", "client"),
            ("x-tenant", "people"),
            ("x-tidegate-timeout", "3s"),
            ("x-tidegate-attempts", "9"),
            ("openai-organization", "org-of-another-tenant"),
            ("openai-project", "project-of-another-tenant"),
            ("x-http-method-override", "DELETE"),
            ("x-forwarded-for", "10.0.0.1"),
            ("sec-fetch-site", "same-origin"),
            ("content-length", "3"),
            ("accept-encoding", "gzip"),
            ("idempotency-key", "1"),
            ("accept", "*/*"),
        ]);
        let own = [HeaderName::from_static("x-tenant")];
        to_provider(&mut headers, own.iter(), Credentials::Own(&HeaderValue::from_static("Bearer provider")));
        assert_eq!(names(&headers), ["accept", "accept-encoding", "authorization", "idempotency-key", "via"]);
        let value = HeaderValue::from_static;
        assert_eq!(
            (&headers["authorization"], &headers["accept-encoding"]),
            (&value("Bearer provider"), &value("identity"))
        );
    }

    #[test]
    fn client_keys_are_forwarded_only_if_configured_and_cookies_never() {
        let sent = map(&[
            ("authorization", "Bearer client"),
            ("x-api-key", "client"),
            ("openai-project", "own"),
            ("cookie", "a=b"),
        ]);
        let mut forwarded = sent.clone();
        to_provider(&mut forwarded, [].iter(), Credentials::Forwarded);
        assert_eq!(names(&forwarded), ["accept-encoding", "authorization", "openai-project", "via", "x-api-key"]);
        let mut dropped = sent;
        to_provider(&mut dropped, [].iter(), Credentials::None);
        assert_eq!(names(&dropped), ["accept-encoding", "openai-project", "via"]);
    }

    #[test]
    fn a_client_receives_no_cookie_and_no_headers_that_apply_to_the_proxy_host() {
        let mut headers = map(&[
            ("set-cookie", "a=b"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("access-control-allow-origin", "*"),
            ("strict-transport-security", "max-age=1"),
            ("x-accel-redirect", "/etc"),
            ("refresh", "0;url=https://elsewhere.example"),
            ("service-worker-allowed", "/"),
            ("content-security-policy", "script-src *"),
            ("content-type", "application/json"),
        ]);
        to_client(&mut headers);
        assert_eq!(names(&headers), ["content-type"]);
    }
}
