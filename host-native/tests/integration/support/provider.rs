//! A provider that does what the name of the model says, for tests of what stands before it.

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

/// What the provider has seen, and what holds it back.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Calls that came.
    pub(crate) calls: AtomicU32,
    /// Calls that are in work.
    pub(crate) in_flight: AtomicU32,
    /// Calls that were refused.
    pub(crate) refused: AtomicU32,
    /// Method and path of every request that came, lists of models too.
    pub(crate) requests: Mutex<Vec<String>>,
    /// What every other call had in `Authorization`.
    pub(crate) call_keys: Mutex<Vec<Option<String>>>,
    /// The keys that lists of models were asked for with, one for each call.
    pub(crate) list_keys: Mutex<Vec<Option<String>>>,
    /// What `held` waits for, and each piece of a `stream` but the first.
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

/// Serves the provider until the test process ends, and gives its base address.
pub(crate) fn provider() -> (String, Arc<Seen>) {
    serve_provider(TcpListener::bind("127.0.0.1:0").unwrap())
}

/// Serves one at this address.
pub(crate) fn provider_at(address: SocketAddr) -> Arc<Seen> {
    serve_provider(TcpListener::bind(address).unwrap()).1
}

fn serve_provider(listener: TcpListener) -> (String, Arc<Seen>) {
    let seen = Arc::new(Seen {
        calls: AtomicU32::new(0),
        in_flight: AtomicU32::new(0),
        refused: AtomicU32::new(0),
        requests: Mutex::default(),
        call_keys: Mutex::default(),
        list_keys: Mutex::default(),
        go: Semaphore::new(0),
    });
    let address = super::serve_on(listener, Router::new().fallback(answer).with_state(Arc::clone(&seen)));
    (format!("{address}/v1"), seen)
}

/// In work for as long as it lives.
struct InWork(Arc<Seen>);

impl InWork {
    fn begin(seen: &Arc<Seen>) -> (Self, u32) {
        let now = seen.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        (Self(Arc::clone(seen)), now)
    }
}

impl Drop for InWork {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

fn refusal(seen: &Seen, status: u16, retry_after_ms: &str, code: &str) -> Response {
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
    let choice = json!({ "index": 0, "message": { "role": "assistant", "content": content }, "finish_reason": "stop" });
    let usage = json!({ "prompt_tokens": 40, "completion_tokens": 60, "total_tokens": 100 });
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
    let said: Value = serde_json::from_slice(&body).unwrap_or_default();
    let model = said["model"].as_str().unwrap_or("echo");
    let (kind, number) = model.split_once('-').unwrap_or((model, "0"));
    let number: u32 = number.parse().unwrap_or(0);
    let (in_work, now) = InWork::begin(&seen);
    match kind {
        // Bears so many calls at once.
        "bears" if now > number => refusal(&seen, 429, "20", "rate_limit_exceeded"),
        "bears" => {
            sleep(Duration::from_millis(5)).await;
            drop(in_work);
            completion("done")
        }
        // Refuses the first so many calls.
        "refuses" if call <= number => refusal(&seen, 429, "10", "rate_limit_exceeded"),
        // Asks for a pause of so many milliseconds, if it is the first call of all.
        "pauses" if call == 1 => refusal(&seen, 429, &number.to_string(), "rate_limit_exceeded"),
        "pauses" => completion("after the pause"),
        "overloaded" if call <= number => refusal(&seen, 529, "10", "overloaded"),
        "fails" if call <= number => refusal(&seen, 500, "10", "server_error"),
        "refuses" | "overloaded" | "fails" => completion("at last"),
        "quota" => refusal(&seen, 429, "10", "insufficient_quota"),
        // No quota, and a pause that nobody waits for.
        "quotalong" => refusal(&seen, 429, "3600000", "insufficient_quota"),
        "missing" => refusal(&seen, 404, "10", "model_not_found"),
        "trickle" => trickle(seen, in_work),
        "never" => refusal(&seen, 429, "60000", "rate_limit_exceeded"),
        "key" => (StatusCode::UNAUTHORIZED, "Incorrect API key provided: sk-prov**der").into_response(),
        // Quotes the key that it got, in an answer of that status.
        "quotes" => quote(number, &key(&headers)),
        // Says that its answer is compressed, where nobody asked for that.
        "packed" => ([("content-encoding", "gzip")], key(&headers)).into_response(),
        // The same in a stream, cut in the middle of the key.
        "cuts" => cut(&key(&headers)),
        "slow" => {
            sleep(Duration::from_millis(u64::from(number))).await;
            completion("slow")
        }
        "held" => {
            seen.go.acquire().await.unwrap().forget();
            completion("held")
        }
        "stream" => stream(seen, in_work, number, false),
        "breaks" => stream(seen, in_work, number, true),
        _ => echo(&uri, &headers, &said),
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

/// One piece for each half of the key.
fn cut(key: &str) -> Response {
    let (sender, receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let (first, second) = key.split_at(key.len() / 2);
    let pieces = [format!("data: {{\"key\":\"{first}"), format!("{second}\"}}\n\n"), "data: [DONE]\n\n".to_string()];
    tokio::spawn(async move {
        for piece in pieces {
            let _ = sender.send(Ok(piece.into())).await;
            // So that the pieces are not sent as one.
            sleep(Duration::from_millis(20)).await;
        }
    });
    ([("content-type", "text/event-stream")], Body::from_stream(Pieces(receiver))).into_response()
}

fn echo(uri: &Uri, headers: &HeaderMap, said: &Value) -> Response {
    let headers: serde_json::Map<String, Value> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), Value::from(value.to_str().unwrap_or_default())))
        .collect();
    let hop = [("connection", "x-hop"), ("x-hop", "1"), ("x-kept", "2")];
    (hop, Json(json!({ "uri": uri.to_string(), "headers": headers, "body": said }))).into_response()
}

/// So many pieces, each but the first once it may go; then the end, or a break.
fn stream(seen: Arc<Seen>, in_work: InWork, pieces: u32, breaks: bool) -> Response {
    let (sender, receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    tokio::spawn(async move {
        let _in_work = in_work;
        for piece in 0..pieces {
            if piece > 0 {
                // Also looks out for a client that has left.
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
    ([("content-type", "text/event-stream")], Body::from_stream(Pieces(receiver))).into_response()
}

/// A refusal of which the second half comes once it may.
fn trickle(seen: Arc<Seen>, in_work: InWork) -> Response {
    let (sender, receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    tokio::spawn(async move {
        let _in_work = in_work;
        let _ = sender.send(Ok("{\"error\": {\"message\": \"no\", \"type\": \"error\", \"code\": ".into())).await;
        seen.go.acquire().await.unwrap().forget();
        let _ = sender.send(Ok("\"rate_limit_exceeded\"}}".into())).await;
    });
    let body = Body::from_stream(Pieces(receiver));
    (StatusCode::TOO_MANY_REQUESTS, [("retry-after-ms", "3600000")], body).into_response()
}

struct Pieces(mpsc::Receiver<Result<Bytes, std::io::Error>>);

impl futures_core::Stream for Pieces {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}
