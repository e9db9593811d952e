//! Headers on their way through: what is between two neighbours stays there, the rest goes on.

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

use super::answer::Refusal;
use crate::app::config::reader::parse_duration;

/// What is between a client and its neighbour, besides what `Connection` names (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// What a client proves itself with, besides `Authorization`; of no use to a provider that gets another key.
const CREDENTIALS: [HeaderName; 4] = [
    COOKIE,
    HeaderName::from_static("api-key"),
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-goog-api-key"),
];

/// Whether a header holds what somebody proves himself with, and must not be shown.
pub(super) fn is_credential(name: &HeaderName) -> bool {
    *name == AUTHORIZATION || *name == PROXY_AUTHORIZATION || CREDENTIALS.contains(name)
}

/// How long a client says its request may wait.
pub(super) const TIMEOUT: HeaderName = HeaderName::from_static("x-tidegate-timeout");
/// Which provider a client wants, whatever its model.
pub(super) const PROVIDER: HeaderName = HeaderName::from_static("x-tidegate-provider");
/// How long a request waited, in milliseconds.
pub(super) const WAITED: HeaderName = HeaderName::from_static("x-tidegate-waited-ms");
/// How many attempts it took.
pub(super) const ATTEMPTS: HeaderName = HeaderName::from_static("x-tidegate-attempts");
/// What tells one request from all others.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Removes what is between neighbours.
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

/// Makes a client's headers those of a request to a provider. `own` speak to the proxy.
pub(super) fn to_provider<'a>(
    headers: &mut HeaderMap,
    own: impl Iterator<Item = &'a HeaderName>,
    authorization: Option<&HeaderValue>,
) {
    strip_hop_by_hop(headers);
    // The provider's own, or made anew with the body. What an answer used cannot be read from a compressed one, nor what
    // a refusal says.
    for name in [HOST, CONTENT_LENGTH, EXPECT, ACCEPT_ENCODING, TIMEOUT, PROVIDER] {
        headers.remove(name);
    }
    for name in own {
        headers.remove(name);
    }
    if let Some(key) = authorization {
        for name in CREDENTIALS {
            headers.remove(name);
        }
        headers.insert(AUTHORIZATION, key.clone());
    }
    headers.append(VIA, HeaderValue::from_static("1.1 tidegate"));
}

/// How long a client says its request may wait: a number of seconds, or a number with a unit.
pub(super) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Refusal> {
    let Some(value) = headers.get(TIMEOUT) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let wait = parse_duration(text).or_else(|| parse_duration(&format!("{text}s")));
    let expected = "a time such as 30s, 500ms, or a number of seconds";
    wait.map(|wait| Some(wait.into())).ok_or(Refusal::BadHeader { name: "x-tidegate-timeout", expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_says_how_long_it_waits_in_seconds_or_with_a_unit() {
        let said = |text| timeout(&map(&[("x-tidegate-timeout", text)]));
        assert_eq!(said("30"), Ok(Some(Duration::from_secs(30))));
        assert_eq!(
            [said("0.5"), said("500ms")],
            [Ok(Some(Duration::from_millis(500))), Ok(Some(Duration::from_millis(500)))]
        );
        assert_eq!(timeout(&HeaderMap::new()), Ok(None));
        assert!(said("soon").is_err() && said("-1").is_err());
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
    fn what_is_between_neighbours_goes_no_further_and_the_rest_does() {
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
    fn a_provider_sees_its_own_key_and_nothing_that_speaks_to_the_proxy() {
        let mut headers = map(&[
            ("host", "proxy"),
            ("authorization", "Bearer client"),
            ("x-api-key", "client"),
            ("x-goog-api-key", "client"),
            ("x-tenant", "people"),
            ("x-tidegate-timeout", "3s"),
            ("content-length", "3"),
            ("accept-encoding", "gzip"),
            ("accept", "*/*"),
        ]);
        let own = [HeaderName::from_static("x-tenant")];
        to_provider(&mut headers, own.iter(), Some(&HeaderValue::from_static("Bearer provider")));
        assert_eq!(names(&headers), ["accept", "authorization", "via"]);
        assert_eq!(headers["authorization"], "Bearer provider");
        let mut forwarded = map(&[("authorization", "Bearer client"), ("accept-encoding", "gzip")]);
        to_provider(&mut forwarded, own.iter(), None);
        assert_eq!(names(&forwarded), ["authorization", "via"]);
        assert_eq!(forwarded["authorization"], "Bearer client");
    }
}
