//! Serves the files of the built page on a loopback port.

use std::net::SocketAddr;
use std::path::Path;

use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use tokio::net::TcpListener;
use tower_http::compression::{CompressionLayer, CompressionLevel};
use tower_http::services::ServeDir;
use tower_http::set_header::SetResponseHeaderLayer;

/// Sent with every answer. The two cross-origin headers isolate the page, which gives its clocks their full resolution; the policy keeps
/// it from contacting any other host.
const HEADERS: [(HeaderName, &str); 6] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // The files change with every build: a copy may be kept, and is asked about each time.
    (CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-embedder-policy"), "require-corp"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (REFERRER_POLICY, "no-referrer"),
];

/// Binds the address.
pub(crate) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves the files below `folder` until the future is dropped or the socket fails.
pub(crate) async fn run(listener: TcpListener, folder: &Path) -> std::io::Result<()> {
    axum::serve(listener, router(folder)).await
}

fn router(folder: &Path) -> Router {
    let router = Router::new().fallback_service(ServeDir::new(folder));
    let router = router.layer(CompressionLayer::new().quality(CompressionLevel::Best));
    HEADERS.into_iter().fold(router, |router, (name, value)| {
        router.layer(SetResponseHeaderLayer::overriding(name, HeaderValue::from_static(value)))
    })
}
