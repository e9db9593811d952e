//! A test provider whose behaviour is selected by the name of the model, such as `slow-200` or `refuses-3`.

use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::sleep;

/// The requests that the provider has received, and the permits for held responses.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The number of calls received.
    pub(crate) calls: AtomicU32,
    /// The number of calls in progress.
    pub(crate) in_flight: AtomicU32,
    /// The most calls that were in progress at the same time.
    pub(crate) peak: AtomicU32,
    /// The number of calls rejected.
    pub(crate) refused: AtomicU32,
    /// The method and path of every request, including requests for the model list.
    pub(crate) requests: Mutex<Vec<String>>,
    /// The `Authorization` header of every request except those for the model list.
    pub(crate) call_keys: Mutex<Vec<Option<String>>>,
    /// The `Authorization` header of every request for the model list.
    pub(crate) list_keys: Mutex<Vec<Option<String>>>,
    /// Permits for `held` responses, and for each chunk of a `stream` after the first.
    pub(crate) go: Semaphore,
}

impl Seen {
    pub(crate) fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::SeqCst)
    }
}

/// Serves the provider until the test process ends, and returns its base URL and state.
pub(crate) fn provider() -> (String, Arc<Seen>) {
    serve_provider(TcpListener::bind("127.0.0.1:0").unwrap())
}

/// Serves the provider at `address`, and returns its state.
pub(crate) fn provider_at(address: SocketAddr) -> Arc<Seen> {
    serve_provider(TcpListener::bind(address).unwrap()).1
}

fn serve_provider(listener: TcpListener) -> (String, Arc<Seen>) {
    let seen = Arc::new(Seen {
        calls: AtomicU32::new(0),
        in_flight: AtomicU32::new(0),
        peak: AtomicU32::new(0),
        refused: AtomicU32::new(0),
        requests: Mutex::default(),
        call_keys: Mutex::default(),
        list_keys: Mutex::default(),
        go: Semaphore::new(0),
    });
    let address = super::serve_on(listener, Router::new().fallback(answer).with_state(Arc::clone(&seen)));
    (format!("{address}/v1"), seen)
}

/// Counts a call as in progress until it is dropped.
struct InFlightGuard(Arc<Seen>);

impl InFlightGuard {
    fn begin(seen: &Arc<Seen>) -> (Self, u32) {
        let now = seen.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        seen.peak.fetch_max(now, Ordering::SeqCst);
        (Self(Arc::clone(seen)), now)
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

fn rejection(seen: &Seen, status: u16, retry_after_ms: &str, code: &str) -> Response {
    seen.refused.fetch_add(1, Ordering::SeqCst);
    let status = StatusCode::from_u16(status).unwrap();
    (
        status,
        [("retry-after-ms", retry_after_ms)],
        Json(json!({ "error": { "message": "no", "type": "error", "code": code } })),
    )
        .into_response()
}

fn completion(content: &str) -> Response {
    let usage = json!({ "prompt_tokens": 40, "completion_tokens": 60, "total_tokens": 100 });
    completion_with(content, &usage)
}

fn completion_with(content: &str, usage: &Value) -> Response {
    let choice = json!({ "index": 0, "message": { "role": "assistant", "content": content }, "finish_reason": "stop" });
    Json(json!({ "id": "c", "object": "chat.completion", "choices": [choice], "usage": usage })).into_response()
}

async fn answer(State(seen): State<Arc<Seen>>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    seen.requests.lock().unwrap().push(format!("{method} {uri}"));
    let sent_key = headers.get("authorization").map(|key| key.to_str().unwrap().to_string());
    if uri.path() == "/v1/models" {
        seen.list_keys.lock().unwrap().push(sent_key);
        return Json(json!({ "object": "list", "data": [{ "id": "held" }, { "id": "other" }] })).into_response();
    }
    seen.call_keys.lock().unwrap().push(sent_key);
    let call = seen.calls.fetch_add(1, Ordering::SeqCst) + 1;
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    // A response that was made before has the usage of that time.
    let stored = if uri.path().starts_with("/v1/responses/") { "slow" } else { "echo" };
    let model = request["model"].as_str().unwrap_or(stored);
    let (kind, number) = model.split_once('-').unwrap_or((model, "0"));
    let number: u32 = number.parse().unwrap_or(0);
    let (guard, now) = InFlightGuard::begin(&seen);
    match kind {
        // Accepts `number` concurrent calls. Holds them for long until it has rejected one.
        "accepts" if now > number => rejection(&seen, 429, "20", "rate_limit_exceeded"),
        "accepts" => {
            let has_refused = seen.refused.load(Ordering::SeqCst) > 0;
            sleep(Duration::from_millis(if has_refused { 5 } else { 500 })).await;
            drop(guard);
            completion("done")
        }
        // Rejects the first `number` calls.
        "refuses" if call <= number => rejection(&seen, 429, "10", "rate_limit_exceeded"),
        // Rejects the call with this number, from 1.
        "refusesnth" if call == number => rejection(&seen, 429, "10", "rate_limit_exceeded"),
        // Answers the first call with a Retry-After of `number` milliseconds.
        "pauses" if call == 1 => rejection(&seen, 429, &number.to_string(), "rate_limit_exceeded"),
        "pauses" => completion("after the pause"),
        "overloaded" if call <= number => rejection(&seen, 529, "10", "overloaded"),
        "fails" if call <= number => rejection(&seen, 500, "10", "server_error"),
        // Fails the first call, and then rejects all others without a Retry-After.
        "failsfirst" if call == 1 => rejection(&seen, 500, "10", "server_error"),
        "failsfirst" => StatusCode::TOO_MANY_REQUESTS.into_response(),
        "refuses" | "refusesnth" | "overloaded" | "fails" => completion("at last"),
        "quota" => rejection(&seen, 429, "10", "insufficient_quota"),
        // No quota, with a Retry-After that exceeds every wait.
        "quotalong" => rejection(&seen, 429, "3600000", "insufficient_quota"),
        "missing" => rejection(&seen, 404, "10", "model_not_found"),
        "trickle" => trickle(seen, guard),
        "never" => rejection(&seen, 429, "60000", "rate_limit_exceeded"),
        "key" => (StatusCode::UNAUTHORIZED, "Incorrect API key provided: sk-prov**der").into_response(),
        // Repeats the received key in a response with status `number`.
        "quotes" => quote(number, &key(&headers)),
        // Labels its response as compressed although the request did not accept that.
        "packed" => ([("content-encoding", "gzip")], key(&headers)).into_response(),
        // Repeats the key in a stream that is split in the middle of the key.
        "cuts" => split_key(&key(&headers)),
        "slow" => {
            sleep(Duration::from_millis(u64::from(number))).await;
            completion("slow")
        }
        "held" => {
            seen.go.acquire().await.unwrap().forget();
            completion("held")
        }
        // Will make its answer later.
        "background" => Json(json!({ "status": "queued", "output": [], "usage": null })).into_response(),
        "stream" => stream(seen, guard, number, false),
        // Answers with `number` words, and without usage.
        "uncounted" => completion_with(&"tide ".repeat(number as usize), &Value::Null),
        // Streams `number` words at once, with usage if it is asked for.
        "asked" => whole_stream(number, request["stream_options"]["include_usage"] == true),
        // The same without usage; the second rejects the options of streams.
        "optionless" if request.get("stream_options").is_some() => StatusCode::BAD_REQUEST.into_response(),
        "unmetered" | "optionless" => whole_stream(number, false),
        "breaks" => stream(seen, guard, number, true),
        _ => echo(&uri, &headers, &request),
    }
}

fn key(headers: &HeaderMap) -> String {
    let sent = headers.get("authorization").map_or("nothing", |key| key.to_str().unwrap());
    sent.trim_start_matches("Bearer ").to_string()
}

fn quote(status: u32, key: &str) -> Response {
    let status = StatusCode::from_u16(u16::try_from(status).unwrap()).unwrap();
    let headers = [
        ("x-quoted", format!("key {key}")),
        ("location", format!("https://elsewhere.example/?key={key}")),
        ("set-cookie", "session=1".to_string()),
        ("access-control-allow-origin", "*".to_string()),
    ];
    let error = json!({ "error": { "message": format!("bad key {key}"), "type": "e", "code": "c" } });
    (status, headers, Json(error)).into_response()
}

/// Streams the key in three chunks: half of it, the rest but for two characters, and those.
fn split_key(key: &str) -> Response {
    let (sender, receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let (first, second) = key.split_at(key.len() / 2);
    let (second, last) = second.split_at(second.len() - 2);
    let end = format!("{last}\"}}\n\n");
    let pieces = [format!("data: {{\"key\":\"{first}"), second.to_string(), end, "data: [DONE]\n\n".to_string()];
    tokio::spawn(async move {
        for piece in pieces {
            let _ = sender.send(Ok(piece.into())).await;
            // The pause keeps the chunks from being sent as one.
            sleep(Duration::from_millis(20)).await;
        }
    });
    ([("content-type", "text/event-stream")], Body::from_stream(ChunkStream(receiver))).into_response()
}

fn echo(uri: &Uri, headers: &HeaderMap, request: &Value) -> Response {
    let headers: serde_json::Map<String, Value> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), Value::from(value.to_str().unwrap_or_default())))
        .collect();
    let hop = [("connection", "x-hop"), ("x-hop", "1"), ("x-kept", "2")];
    (hop, Json(json!({ "uri": uri.to_string(), "headers": headers, "body": request }))).into_response()
}

/// Streams `pieces` chunks, each after the first with a permit of `go`. Then ends the stream, or breaks it.
fn stream(seen: Arc<Seen>, guard: InFlightGuard, pieces: u32, breaks: bool) -> Response {
    let (sender, receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    tokio::spawn(async move {
        let _guard = guard;
        for piece in 0..pieces {
            if piece > 0 {
                // The second branch detects that the client has disconnected.
                tokio::select! {
                    go = seen.go.acquire() => go.unwrap().forget(),
                    () = sender.closed() => return,
                }
            }
            let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{piece}\"}}}}]}}\n\n");
            if sender.send(Ok(event.into())).await.is_err() {
                return;
            }
        }
        let end = if breaks { Err(std::io::Error::other("broken")) } else { Ok("data: [DONE]\n\n".into()) };
        let _ = sender.send(end).await;
    });
    ([("content-type", "text/event-stream")], Body::from_stream(ChunkStream(receiver))).into_response()
}

/// Answers with a stream of a known length: an event of `words` words, and one of usage if `has_usage`.
fn whole_stream(words: u32, has_usage: bool) -> Response {
    let text = "tide ".repeat(words as usize);
    let usage = json!({ "prompt_tokens": 40, "completion_tokens": 60, "total_tokens": 100 });
    let mut events = vec![json!({ "choices": [{ "index": 0, "delta": { "content": text } }] }).to_string()];
    events.extend(has_usage.then(|| json!({ "choices": [], "usage": usage }).to_string()));
    events.push("[DONE]".to_string());
    let body = format!("data: {}\n\n", events.join("\n\ndata: "));
    ([("content-type", "text/event-stream"), ("content-length", &body.len().to_string())], body.clone()).into_response()
}

/// Rejects a call with a body whose second half waits for a permit of `go`.
fn trickle(seen: Arc<Seen>, guard: InFlightGuard) -> Response {
    let (sender, receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    tokio::spawn(async move {
        let _guard = guard;
        let _ = sender.send(Ok("{\"error\": {\"message\": \"no\", \"type\": \"error\", \"code\": ".into())).await;
        seen.go.acquire().await.unwrap().forget();
        let _ = sender.send(Ok("\"rate_limit_exceeded\"}}".into())).await;
    });
    let body = Body::from_stream(ChunkStream(receiver));
    (StatusCode::TOO_MANY_REQUESTS, [("retry-after-ms", "3600000")], body).into_response()
}

struct ChunkStream(mpsc::Receiver<Result<Bytes, std::io::Error>>);

impl futures_core::Stream for ChunkStream {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}
