//! Answers requests for the playground's files on a loopback port.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName,
    HeaderValue, IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::site::Site;

/// Sent with every answer.
const HEADERS: [(HeaderName, &str); 3] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // The files change with every build: a copy may be kept, and is asked about each time.
    (CACHE_CONTROL, "no-cache"),
    (VARY, "accept-encoding"),
];

/// Sent with what runs by itself, the page and its workers: elsewhere they mean nothing and only weigh. The
/// two cross-origin headers isolate the page, which gives its clocks their full resolution; the policy keeps it from
/// talking to any other host.
const PAGE_HEADERS: [(HeaderName, &str); 4] = [
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-embedder-policy"), "require-corp"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (REFERRER_POLICY, "no-referrer"),
];

/// The files that run by themselves.
const PAGES: [&str; 3] = ["index.html", "worker.js", "sw.js"];

/// Binds the address.
pub(crate) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves until the future is dropped or the socket fails.
pub(crate) async fn run(listener: TcpListener, site: Site) -> std::io::Result<()> {
    let router = Router::new().fallback(get(file)).with_state(Arc::new(site));
    axum::serve(listener, router).await
}

async fn file(State(site): State<Arc<Site>>, uri: Uri, request: HeaderMap) -> Response {
    let found = site.get(uri.path());
    let is_page = found.is_none_or(|(path, _)| PAGES.contains(&path));
    let of_page = PAGE_HEADERS.into_iter().filter(|_| is_page);
    let sent = HEADERS.into_iter().chain(of_page).map(|(name, value)| (name, HeaderValue::from_static(value)));
    let mut headers: HeaderMap = sent.collect();
    let Some((path, file)) = found else {
        return (StatusCode::NOT_FOUND, headers, "The playground has no such file.\n").into_response();
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type(path)));
    // Weak: the compressed form is another row of bytes.
    let tag = format!("W/\"{}\"", file.hash);
    let is_known = request.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(ETAG, tag);
    }
    if is_known {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    match &file.gzip {
        Some(gzip) if takes_gzip(&request) => {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            (headers, gzip.clone()).into_response()
        }
        _ => (headers, file.plain.clone()).into_response(),
    }
}

/// Whether the request says that it takes gzip, other than by `q=0`.
fn takes_gzip(request: &HeaderMap) -> bool {
    let values = request.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused =
            weight.trim().strip_prefix("q=").and_then(|q| q.trim().parse::<f32>().ok()).is_some_and(|q| q <= 0.0);
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

/// The media type of a file of the playground. Browsers refuse modules and wasm that are served as anything else.
fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "wasm" => "application/wasm",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_and_wasm_have_the_types_that_browsers_insist_on() {
        assert_eq!(media_type("pkg/tidegate_wasm_bg.wasm"), "application/wasm");
        assert_eq!(media_type("app.js"), "text/javascript; charset=utf-8");
        assert_eq!(media_type("vendor/uplot/LICENSE"), "text/plain; charset=utf-8");
    }

    #[tokio::test]
    async fn an_unknown_path_is_not_found_and_still_isolated() {
        let answer = file(State(Arc::default()), Uri::from_static("/nothing"), HeaderMap::new()).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        assert_eq!(answer.headers()["cross-origin-embedder-policy"], "require-corp");
    }

    #[test]
    fn gzip_is_sent_only_to_those_who_take_it() {
        let takes = |value: &'static str| {
            takes_gzip(&[(ACCEPT_ENCODING, HeaderValue::from_static(value))].into_iter().collect::<HeaderMap>())
        };
        assert!(takes("gzip, deflate, br, zstd"));
        assert!(takes("br;q=1.0, GZIP;q=0.2"));
        assert!(!takes("gzip;q=0, br"));
        assert!(!takes("identity"));
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
