//! Answers requests for the playground's files on a loopback port.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::site::Site;

/// Sent with every answer. The two cross-origin headers isolate the page, which gives its clocks their full
/// resolution; the policy keeps it from talking to any other host.
const HEADERS: [(HeaderName, &str); 6] = [
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-embedder-policy"), "require-corp"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    // The files change with every build, and they come from this machine.
    (CACHE_CONTROL, "no-cache"),
];

/// Binds the address.
pub(crate) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves until the future is dropped or the socket fails.
pub(crate) async fn run(listener: TcpListener, site: Site) -> std::io::Result<()> {
    let router = Router::new().fallback(get(file)).with_state(Arc::new(site));
    axum::serve(listener, router).await
}

async fn file(State(site): State<Arc<Site>>, uri: Uri) -> Response {
    let mut headers: HeaderMap =
        HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))).into_iter().collect();
    match site.get(uri.path()) {
        Some((path, content)) => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type(path)));
            (headers, content).into_response()
        }
        None => (StatusCode::NOT_FOUND, headers, "The playground has no such file.\n").into_response(),
    }
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
        let answer = file(State(Arc::default()), Uri::from_static("/nothing")).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        assert_eq!(answer.headers()["cross-origin-embedder-policy"], "require-corp");
    }
}
