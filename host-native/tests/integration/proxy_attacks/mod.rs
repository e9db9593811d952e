//! Tests of attacks on the proxy, each over a real socket.

mod bodies;
mod calls;
mod keys;
mod slow;
mod smuggling;
mod tls;
mod web;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::patience::PATIENCE;
use crate::support::world::World;

/// Short timeouts, so that connections that an attack leaves open are closed quickly.
const SHORT: &str = "[connections]\nheader_timeout = \"300ms\"\nbody_timeout = \"300ms\"";

const CHAT: &str = "/v1/chat/completions";

/// Sends raw bytes, and reads until the proxy closes the connection.
async fn send(world: &World, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(world.proxy.address()).await.unwrap();
    // The proxy may reject the first part before the rest is sent.
    let _ = stream.write_all(bytes.as_ref()).await;
    read(stream).await
}

/// Reads until the connection ends.
async fn read(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    // A reset also ends the connection.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the connection is closed");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends a request with these headers, and returns the response.
async fn call(world: &World, method: &str, path: &str, headers: &str, body: impl AsRef<[u8]>) -> String {
    let body = body.as_ref();
    let mut bytes =
        format!("{method} {path} HTTP/1.1\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n", body.len())
            .into_bytes();
    bytes.extend_from_slice(body);
    send(world, bytes).await
}

/// Sends a chat call as an ordinary client does, and returns the response.
async fn chat(world: &World, body: impl AsRef<[u8]>) -> String {
    call(world, "POST", CHAT, "host: localhost\r\ncontent-type: application/json\r\n", body).await
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("no answer")
}

/// Returns the requests that the provider received.
fn upstream(world: &World) -> Vec<String> {
    world.seen.requests.lock().unwrap().clone()
}

/// Starts a provider that answers each request with these bytes and closes the connection. Returns its base
/// URL. It reads the request up to the first `}`.
async fn raw_provider(answer: impl Into<Vec<u8>>) -> String {
    let answer = answer.into();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.contains(&b'}') && stream.read_buf(&mut request).await.is_ok_and(|len| len > 0) {}
            let _ = stream.write_all(&answer).await;
            let _ = stream.shutdown().await;
        }
    });
    base_url
}
