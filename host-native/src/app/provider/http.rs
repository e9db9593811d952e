//! The HTTP client of all models: one request per call, and the errors that do not depend on the content of
//! the body.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;
use std::{fmt, io};

use reqwest::dns::Resolve;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::multipart::Form;
use reqwest::{Certificate, Url};
use rustls::{AlertDescription, CertificateError};
use serde::Serialize;
use serde_json::{Map, Value};
use tidegate_core::request::Outcome;
use tidegate_core::request::response::RejectionReason;
use tidegate_core::time::Duration;

use super::address::stay_on_loopback;
use super::answer::{self, CallError};
use super::key::ApiKey;
use super::rate_feedback;
use super::redact::Redactor;
use crate::http::transport_error::{cause_of, is_unsent, tls_error};
use crate::http::{read_head, transport_error_outcome};

/// The maximum size of a response body. A larger one is unreadable.
pub(super) const MAX_BODY_BYTES: usize = 16 << 20;

/// The maximum number of bytes that are read from the body of an error response, for its message.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

/// How many connections a server may close before the request that each was opened for, at its first call.
const MAX_UNSENT: usize = 3;

/// A URL, and how to connect to it.
#[derive(Clone, Debug)]
pub struct HttpEndpoint {
    /// The complete URL.
    pub url: Url,
    /// The API key, if the provider requires one.
    pub api_key: Option<ApiKey>,
    /// The maximum duration of one call, including the connection and the body.
    pub timeout: Duration,
    /// The certificate authorities to trust instead of those of the system.
    pub authorities: Option<Vec<Certificate>>,
}

/// What each request has besides what the client sets.
#[derive(Clone, Default)]
pub struct RequestExtras {
    /// Headers.
    pub headers: HeaderMap,
    /// Query parameters, which are added to the URL.
    pub query: Vec<(String, String)>,
    /// Keys of the body.
    pub body: Map<String, Value>,
    /// The secrets among the values. They are removed from the messages of the server.
    pub secrets: Vec<ApiKey>,
}

impl fmt::Debug for RequestExtras {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestExtras").finish_non_exhaustive()
    }
}

/// Sends requests to one URL.
#[derive(Clone)]
pub struct HttpClient {
    http: reqwest::Client,
    url: Url,
    /// All headers that are not the same for every client, with the key.
    headers: HeaderMap,
    /// Removes the key, and other secrets that requests contain.
    redactor: Redactor,
    /// The maximum duration of one call, if it is not that of the endpoint.
    timeout: Option<Duration>,
    /// Whether the server has ever responded.
    has_responded: Arc<AtomicBool>,
}

impl fmt::Debug for HttpClient {
    /// Leaves the URL out, whose query may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

impl HttpClient {
    /// Creates a client with its own connection pool. Fails if TLS cannot be set up.
    pub fn new(endpoint: HttpEndpoint) -> Result<Self, String> {
        Self::build(endpoint, |builder| builder)
    }

    /// Creates a client like [`new`](Self::new) that resolves names by `resolver`.
    pub(super) fn resolving(endpoint: HttpEndpoint, resolver: impl Resolve + 'static) -> Result<Self, String> {
        Self::build(endpoint, |builder| builder.dns_resolver(resolver))
    }

    fn build(
        endpoint: HttpEndpoint,
        extend: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
    ) -> Result<Self, String> {
        // Fails if the process has a TLS provider already, which is fine as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .timeout(endpoint.timeout.into())
            // A redirect would turn a POST into a GET, and could send the key to another server.
            .redirect(reqwest::redirect::Policy::none())
            // The core decides about retries, and counts them.
            .retry(reqwest::retry::never())
            .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")));
        builder = stay_on_loopback(builder, &endpoint.url);
        if let Some(authorities) = endpoint.authorities {
            builder = builder.tls_certs_only(authorities);
        }
        if endpoint.url.scheme() == "http" {
            // Without TLS no root certificates are needed, and the machine may not have any.
            builder = builder.tls_certs_only([]);
        }
        let http = extend(builder).build().map_err(|error| root_cause(&error.without_url()))?;
        let key = endpoint.api_key.as_ref();
        let headers = key.map(|key| (AUTHORIZATION, key.header())).into_iter().collect();
        let redactor = Redactor::new(key.map(|key| key.secret().as_bytes()).into_iter());
        Ok(Self { http, url: endpoint.url, headers, redactor, timeout: None, has_responded: Arc::default() })
    }

    /// Adds headers and query parameters to all requests. The caller adds the keys of the body.
    #[must_use]
    pub fn with_extras(mut self, extras: &RequestExtras) -> Self {
        self.headers.extend(extras.headers.clone());
        let secrets = extras.secrets.iter().map(ApiKey::secret);
        // A value may begin with a scheme such as `Bearer`, without which an error may quote it.
        let bare = secrets.clone().filter_map(|secret| secret.rsplit(' ').next());
        self.redactor = self.redactor.with_keys(secrets.chain(bare).map(str::as_bytes));
        if !extras.query.is_empty() {
            self.url.query_pairs_mut().extend_pairs(&extras.query);
        }
        self
    }

    /// Sets the maximum duration of one call.
    #[must_use]
    pub(super) fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Returns a client of the same server, for `segments` below this URL.
    #[must_use]
    pub(super) fn below(&self, segments: &[&str]) -> Self {
        let mut client = self.clone();
        if let Ok(mut path) = client.url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        client
    }

    /// Makes one GET call with these query parameters, whose answer may have up to `max_bytes`.
    pub(super) async fn get<T>(
        &self,
        query: &[(&str, &str)],
        max_bytes: usize,
        read: impl FnOnce(&[u8]) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let mut url = self.url.clone();
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let result = self.attempt(self.http.get(url), max_bytes).await;
        result.and_then(|body| read(&body)).map_err(|error| self.redact(error))
    }

    /// Makes one GET call, and passes the body of a success to `read` piece by piece, up to `max_bytes` of
    /// it.
    pub(super) async fn get_pieces(&self, max_bytes: usize, read: impl FnMut(&[u8])) -> Result<(), CallError> {
        let result = self.attempt_pieces(self.http.get(self.url.clone()), max_bytes, read).await;
        result.map_err(|error| self.redact(error))
    }

    /// Posts a form like [`HttpClient::post`].
    pub(super) async fn post_form<T>(
        &self,
        form: Form,
        read: impl FnOnce(&[u8]) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let result = self.attempt(self.http.post(self.url.clone()).multipart(form), MAX_BODY_BYTES).await;
        result.and_then(|body| read(&body)).map_err(|error| self.redact(error))
    }

    /// Makes one call, and parses the body of a success with `read`. Dropping the future closes the
    /// connection, so the server can cancel the request.
    pub async fn post<T>(
        &self,
        body: &impl Serialize,
        read: impl FnOnce(&[u8]) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        self.post_up_to(MAX_BODY_BYTES, body, read).await
    }

    /// Makes one call like [`HttpClient::post`], whose answer may have up to `max_bytes`.
    pub async fn post_up_to<T>(
        &self,
        max_bytes: usize,
        body: &impl Serialize,
        read: impl FnOnce(&[u8]) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let result = self.attempt(self.http.post(self.url.clone()).json(body), max_bytes).await;
        result.and_then(|body| read(&body)).map_err(|error| self.redact(error))
    }

    /// Reads the file at the URL, which may have up to `max_bytes`.
    pub async fn get_up_to(&self, max_bytes: usize) -> Result<Vec<u8>, CallError> {
        self.attempt(self.http.get(self.url.clone()), max_bytes).await
    }

    /// Checks with a GET request that the server can be reached and accepts the key. An error such as 404 or
    /// 405 counts as success: the URL may accept POST only. 403 does not: it concerns the key.
    pub async fn check_reachable(&self) -> Result<(), CallError> {
        match self.attempt(self.http.get(self.url.clone()), MAX_BODY_BYTES).await {
            Err(error @ CallError::Rejected { rejection: RejectionReason::Forbidden, .. }) => Err(self.redact(error)),
            Ok(_) | Err(CallError::ModelNotFound { .. } | CallError::Rejected { status: 400.., .. }) => Ok(()),
            Err(error) => Err(self.redact(error)),
        }
    }

    /// Removes the secrets of requests from an error.
    pub(super) fn redact(&self, error: CallError) -> CallError {
        error.map_detail(|detail| self.redact_text(detail))
    }

    /// Removes the secrets of requests from a text of the server.
    pub(super) fn redact_text(&self, text: &str) -> String {
        self.redactor.redact_text(text)
    }

    async fn attempt(&self, request: reqwest::RequestBuilder, max_bytes: usize) -> Result<Vec<u8>, CallError> {
        let mut body = Vec::new();
        self.attempt_pieces(request, max_bytes, |piece| body.extend_from_slice(piece)).await?;
        Ok(body)
    }

    async fn attempt_pieces(
        &self,
        request: reqwest::RequestBuilder,
        max_bytes: usize,
        read: impl FnMut(&[u8]),
    ) -> Result<(), CallError> {
        let request = match self.timeout {
            Some(timeout) => request.timeout(timeout.into()),
            None => request,
        };
        let request = request.headers(self.headers.clone());
        let response = self.send(request).await.map_err(|error| self.send_error(error))?;
        self.has_responded.store(true, Ordering::Relaxed);
        let status = response.status();
        rate_feedback::record(read_head(status, response.headers(), SystemTime::now()).corrections);
        if status.is_success() {
            return read_body(response, max_bytes, read).await;
        }
        let headers = response.headers().clone();
        let body = read_error_body(response).await;
        answer::error_for(status, &headers, &body, SystemTime::now()).map_or(Ok(()), Err)
    }

    /// Sends a request. As long as the server has not responded to any, a request that was not sent because
    /// the server closed the new connection is sent on another one: in TLS 1.3, a server that requires a
    /// certificate does that, and if it is quick, the error does not say so.
    async fn send(&self, mut request: reqwest::RequestBuilder) -> reqwest::Result<reqwest::Response> {
        for _ in 0..MAX_UNSENT {
            let copy = if self.has_responded.load(Ordering::Relaxed) { None } else { request.try_clone() };
            let Some(copy) = copy else { break };
            match request.send().await {
                Err(error) if is_unsent(&error) => request = copy,
                result => return result,
            }
        }
        request.send().await
    }

    /// Returns the error of a request that has no response.
    fn send_error(&self, error: reqwest::Error) -> CallError {
        let error = error.without_url();
        // A server that has responded in HTTP does not use TLS: what it sent now is wrong for another reason.
        let is_wrong_protocol =
            || self.url.scheme() == "http" && is_not_http(&error) && !self.has_responded.load(Ordering::Relaxed);
        if error.is_timeout() {
            CallError::Timeout
        } else if transport_error_outcome(&error) == Outcome::TlsFailed || is_wrong_protocol() {
            CallError::Tls { detail: root_cause(&error) }
        } else if self.url.scheme() == "http" && is_closed(&error) && !self.has_responded.load(Ordering::Relaxed) {
            let detail = format!("{}; if the server uses TLS, its address begins with https", root_cause(&error));
            CallError::Connection { detail }
        } else {
            CallError::Connection { detail: root_cause(&error) }
        }
    }
}

async fn read_body(
    mut response: reqwest::Response,
    max_bytes: usize,
    mut read: impl FnMut(&[u8]),
) -> Result<(), CallError> {
    let mut bytes = 0;
    while let Some(chunk) = response.chunk().await.map_err(body_error)? {
        bytes += chunk.len();
        if bytes > max_bytes {
            let detail = format!("it is longer than {max_bytes} bytes");
            return Err(CallError::Unreadable { what: "usable", detail, usage: None });
        }
        read(&chunk);
    }
    Ok(())
}

/// Reads the beginning of the body of an error response. Read errors are ignored: the status and headers are
/// enough to classify the response, and the body only adds a message.
async fn read_error_body(mut response: reqwest::Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk[..chunk.len().min(MAX_ERROR_BODY_BYTES - body.len())]);
        if body.len() == MAX_ERROR_BODY_BYTES {
            break;
        }
    }
    body
}

/// Converts an error while the body is read. The provider has processed the request, unlike for a connection
/// error.
fn body_error(error: reqwest::Error) -> CallError {
    let error = error.without_url();
    if error.is_timeout() { CallError::Timeout } else { CallError::Broken { detail: root_cause(&error) } }
}

/// Returns the message of the innermost cause. The outer errors only say that a request failed, and may
/// contain the URL.
pub(crate) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    remedy(error).map_or_else(|| cause.to_string(), |remedy| format!("{cause}: {remedy}"))
}

/// Returns what to do about an error of TLS, or of a connection with TLS on one side only.
fn remedy(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if is_not_http(error) {
        return Some("the answer is not HTTP; a server with TLS needs an address with https");
    }
    match tls_error(error)? {
        rustls::Error::InvalidCertificate(wrong) => certificate_remedy(wrong),
        rustls::Error::PeerIncompatible(_) => Some(NO_COMMON_VERSION),
        rustls::Error::AlertReceived(alert) => Some(alert_remedy(*alert)),
        _ => Some("the server does not use TLS on this port; a server without TLS needs an address with http"),
    }
}

const NO_COMMON_VERSION: &str =
    "the server offers no version or cipher of TLS that is accepted here; it needs TLS 1.2 or 1.3";

fn alert_remedy(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::ProtocolVersion | AlertDescription::InsufficientSecurity => NO_COMMON_VERSION,
        AlertDescription::UnrecognisedName => "the server has no certificate for the name in the address",
        AlertDescription::BadCertificate | AlertDescription::CertificateRequired => {
            "the server requires a certificate of its clients, and models have no key to set one; it needs an address \
             without that, such as one of a proxy that has the certificate"
        }
        _ => {
            "the server ends the handshake: it requires a certificate of its clients, which models have no key to set, or \
             it offers no version or cipher of TLS that is accepted here; it needs TLS 1.2 or 1.3"
        }
    }
}

fn is_not_http(error: &(dyn Error + 'static)) -> bool {
    cause_of::<hyper::Error>(error).is_some_and(|error| error.is_parse() && !error.is_parse_too_large())
}

/// Returns whether the server closed the connection before its response.
fn is_closed(error: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    let is_reset = |error: &io::Error| matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset);
    is_unsent(error)
        || cause_of(error).is_some_and(hyper::Error::is_incomplete_message)
        || cause_of(error).is_some_and(is_reset)
}

fn certificate_remedy(error: &CertificateError) -> Option<&'static str> {
    match error {
        // The signature is wrong if an authority of the same name is trusted.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            Some("its authority is not trusted here; the file of a private authority is set as `ca_file`")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            Some("the server needs a new certificate, unless the clock of this machine is wrong")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            Some("the clock of this machine is wrong, unless the certificate is for later")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Some("the address needs a name of the certificate, or the server a certificate for the name in the address")
        }
        // The error has no type of its own here.
        CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => Some(
            "the server uses the certificate of an authority as its own; it needs one that says `CA:FALSE`, signed by the \
             authority or by itself",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const EMPTY_RESPONSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

    /// Returns the error for a server that sends `text` and then closes the connection or, if `stalls`, sends
    /// nothing more.
    async fn error_for_response(text: String, stalls: bool) -> CallError {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(text.as_bytes()).await;
            if stalls {
                std::future::pending::<()>().await;
            }
        });
        let timeout = Duration::from_secs(if stalls { 2 } else { 20 });
        let client = HttpClient::new(HttpEndpoint { url, api_key: None, authorities: None, timeout }).unwrap();
        client.post(&"x", |_| Ok(())).await.unwrap_err()
    }

    #[tokio::test]
    async fn an_error_response_is_classified_by_its_status_even_if_its_body_is_incomplete() {
        let head = |status: &str| format!("HTTP/1.1 {status}\r\nretry-after: 2\r\ncontent-length: 99000000\r\n\r\n");
        let wait = Some(Duration::from_secs(2));
        let limited = CallError::RateLimited { status: 429, retry_after: wait };
        assert_eq!(error_for_response(head("429 Too Many") + "{\"err", false).await, limited, "broken");
        assert_eq!(error_for_response(head("429 Too Many") + "{\"err", true).await, limited, "late");
        assert_eq!(
            error_for_response(head("429 Too Many") + &"x".repeat(MAX_BODY_BYTES + 1), false).await,
            limited,
            "huge"
        );
        let failed = error_for_response(head("500 Oops") + "{", false).await;
        assert!(matches!(failed, CallError::Server { status: 500, .. }), "{failed}");
        let broken = error_for_response(head("200 OK") + "{", false).await;
        assert!(matches!(broken, CallError::Broken { .. }), "{broken}");
        let empty = error_for_response(String::new(), false).await;
        assert!(matches!(empty, CallError::Connection { .. }), "{empty}");
    }

    #[tokio::test]
    async fn a_connection_that_is_closed_without_a_response_may_be_that_of_a_server_with_tls_until_the_first_response()
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        // What the server does with each connection now: its answer, and whether it reads the request before.
        let (behave, behaviour) = tokio::sync::watch::channel(("", true));
        let connections = Arc::new(AtomicUsize::new(0));
        let accepted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                let (answer, reads) = *behaviour.borrow();
                // A socket that is closed with bytes to read is reset.
                if reads {
                    let _ = socket.read(&mut [0; 4096]).await;
                } else {
                    let _ = socket.readable().await;
                }
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        let timeout = Duration::from_secs(20);
        let client = HttpClient::new(HttpEndpoint { url, api_key: None, authorities: None, timeout }).unwrap();
        let hint = "if the server uses TLS, its address begins with https";
        for reads in [true, false] {
            behave.send(("", reads)).unwrap();
            let error = client.post(&"x", |_| Ok(())).await.unwrap_err();
            assert!(
                matches!(error, CallError::Connection { .. }) && error.to_string().ends_with(hint),
                "{reads}: {error}"
            );
            // A request that the server has read is not sent again.
            assert!(!reads || connections.load(Ordering::SeqCst) == 1);
        }
        behave.send((EMPTY_RESPONSE, true)).unwrap();
        client.post(&"x", |_| Ok(())).await.unwrap();
        behave.send(("", true)).unwrap();
        let after = client.post(&"x", |_| Ok(())).await.unwrap_err().to_string();
        assert!(!after.contains(hint), "{after}");
    }

    #[tokio::test]
    async fn a_request_that_a_new_connection_did_not_take_is_sent_on_another() {
        let mut answered = 0;
        // Whether the client writes before the connection is closed, and then must not send again, is chance.
        for _ in 0..50 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
            tokio::spawn(async move {
                drop(listener.accept().await.unwrap());
                let (mut socket, _) = listener.accept().await.unwrap();
                let _ = socket.read(&mut [0; 4096]).await;
                let _ = socket.write_all(EMPTY_RESPONSE.as_bytes()).await;
            });
            let timeout = Duration::from_secs(20);
            let client = HttpClient::new(HttpEndpoint { url, api_key: None, authorities: None, timeout }).unwrap();
            answered += u32::from(client.post(&"x", |_| Ok(())).await.is_ok());
        }
        assert!(answered > 0);
    }

    #[tokio::test]
    async fn an_answer_that_is_not_http_may_be_that_of_a_server_with_tls_and_one_with_a_large_head_is_not() {
        let foreign = error_for_response("\u{15}\u{3}\u{3}\0\u{2}\u{2}\n".to_string(), false).await.to_string();
        assert!(foreign.contains("the answer is not HTTP"), "{foreign}");
        let head = format!("HTTP/1.1 200 OK\r\nx-large: {}", "x".repeat(1 << 20));
        let large = error_for_response(head, false).await.to_string();
        assert!(large.contains("too large") && !large.contains("is not HTTP"), "{large}");
    }

    #[tokio::test]
    async fn an_answer_that_is_not_http_is_an_error_of_tls_only_before_the_first_response() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move {
            for answer in ["no HTTP\n", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "no HTTP\n"] {
                let (mut socket, _) = listener.accept().await.unwrap();
                let _ = socket.read(&mut [0; 4096]).await;
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        let timeout = Duration::from_secs(20);
        let client = HttpClient::new(HttpEndpoint { url, api_key: None, authorities: None, timeout }).unwrap();
        let before = client.post(&"x", |_| Ok(())).await;
        assert!(matches!(before, Err(CallError::Tls { .. })), "{before:?}");
        client.post(&"x", |_| Ok(())).await.unwrap();
        let after = client.post(&"x", |_| Ok(())).await;
        assert!(matches!(after, Err(CallError::Connection { .. })), "{after:?}");
    }
}
