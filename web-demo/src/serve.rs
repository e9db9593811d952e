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

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{Request, Response, StatusCode};
    use tower::ServiceExt as _;

    use super::*;

    /// What the server answers to a request for `path`, from a folder with a page and a module.
    async fn answer(path: &str) -> Response<Body> {
        let folder = std::env::temp_dir().join(format!("tidegate-serve-{}-{}", std::process::id(), path.len()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("index.html"), "<!doctype html>".repeat(100)).unwrap();
        std::fs::write(folder.join("module.wasm"), [0; 1000]).unwrap();
        let request = Request::get(path).header("accept-encoding", "gzip").body(Body::empty()).unwrap();
        let answer = router(&folder).oneshot(request).await.unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        answer
    }

    #[tokio::test]
    async fn the_page_is_compressed_and_a_module_has_the_type_that_browsers_insist_on() {
        let page = answer("/").await;
        assert_eq!(page.headers()["content-encoding"], "gzip");
        assert_eq!(page.headers()["content-type"], "text/html");
        assert_eq!(answer("/module.wasm").await.headers()["content-type"], "application/wasm");
    }

    #[tokio::test]
    async fn an_unknown_path_is_not_found_and_still_isolated() {
        let missing = answer("/nothing").await;
        assert_eq!(missing.status(), StatusCode::NOT_FOUND);
        assert_eq!(missing.headers()["cross-origin-embedder-policy"], "require-corp");
        assert_eq!(answer("/../Cargo.toml").await.status(), StatusCode::NOT_FOUND);
    }
}
