//! Tests of slow clients that occupy a connection.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{CHAT, SHORT, call, chat, read, send, status, upstream};
use crate::support::patience::until;
use crate::support::world::World;

#[tokio::test]
async fn an_incomplete_head_gets_408_and_the_connection_is_closed() {
    let world = World::new("", SHORT).await;
    for half in [
        "P",
        "POST /v1/chat/comp",
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localh",
        "GET /why HTTP/1.1\r\nx: y\r\n",
    ] {
        let answer = send(&world, half).await;
        assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{half}: {answer}");
    }
    assert_eq!(upstream(&world), Vec::<String>::new());
}

#[tokio::test]
async fn a_head_sent_byte_by_byte_times_out_as_well() {
    let world = World::new("", SHORT).await;
    let mut stream = TcpStream::connect(world.proxy.address()).await.unwrap();
    let (mut from, mut to) = stream.split();
    let drip = async {
        // Writes until the proxy closes the connection.
        while to.write_all(b"x").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let mut answer = Vec::new();
    tokio::select! {
        _ = from.read_to_end(&mut answer) => {}
        () = drip => {}
    }
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_a_response() {
    let world = World::new("", SHORT).await;
    assert_eq!(send(&world, "").await, "");
    let answer = send(&world, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
}

#[tokio::test]
async fn an_incomplete_body_gets_408_and_the_connection_is_closed() {
    let world = World::new("", SHORT).await;
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    for half in [
        "content-length: 100\r\n\r\n{\"model\":",
        "content-length: 100\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n5\r\n{\"mo",
    ] {
        let answer = send(&world, format!("{head}{half}")).await;
        assert_eq!(status(&answer), "408", "{half}: {answer}");
        assert!(answer.contains("\"tidegate_slow_body\"") && answer.contains("connection: close"), "{answer}");
    }
    assert_eq!(upstream(&world), Vec::<String>::new());
}

#[tokio::test]
async fn a_body_sent_byte_by_byte_ends_at_the_deadline() {
    let world = World::new("", "[queue]\ndeadline = \"300ms\"").await;
    let mut stream = TcpStream::connect(world.proxy.address()).await.unwrap();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut from, mut to) = stream.split();
    let drip = async {
        while to.write_all(b" ").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        std::future::pending::<()>().await;
    };
    let mut answer = vec![0; 12];
    tokio::select! {
        read = from.read_exact(&mut answer) => drop(read.unwrap()),
        () = drip => {}
    }
    assert_eq!(answer, b"HTTP/1.1 408");
}

#[tokio::test]
async fn an_oversized_body_head_and_path_are_each_rejected_with_their_own_status() {
    let world = World::new("", &format!("{SHORT}\n[queue]\nmax_body = 1000")).await;
    assert_eq!(status(&chat(&world, "x".repeat(2_000)).await), "413");
    let chunked = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n\
         7d0\r\n{}\r\n0\r\n\r\n",
        "x".repeat(2_000)
    );
    assert_eq!(status(&send(&world, chunked).await), "413");
    let header = |len: usize| format!("host: localhost\r\nx-long: {}\r\n", "y".repeat(len));
    for len in [40_000, 200_000, 2_000_000] {
        assert_eq!(status(&call(&world, "GET", "/why", &header(len), "").await), "431", "{len}");
    }
    let many = "x-many: y\r\n".repeat(500);
    assert_eq!(status(&call(&world, "GET", "/why", &format!("host: localhost\r\n{many}"), "").await), "431");
    for len in [9_000, 60_000, 70_000, 100_000] {
        let path = format!("/why?{}", "z".repeat(len));
        assert_eq!(status(&call(&world, "GET", &path, "host: localhost\r\n", "").await), "414", "{len}");
    }
    assert_eq!(status(&call(&world, "GET", "/why", &header(30_000), "").await), "200");
}

/// Asserts that a proxy with these `settings` serves two connections and refuses a third with the status
/// `code` and a response with all `parts`, until one of the two is closed.
async fn assert_third_connection_is_refused(settings: &str, code: &str, parts: &[&str]) {
    let world = World::new("", settings).await;
    let connect = async || TcpStream::connect(world.proxy.address()).await.unwrap();
    let ask = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let (mut first, second) = (connect().await, connect().await);
    let mut third = connect().await;
    third.write_all(ask.as_bytes()).await.unwrap();
    let refused = read(third).await;
    assert_eq!(status(&refused), code, "{refused}");
    for part in parts {
        assert!(refused.contains(part), "{part:?} is missing: {refused}");
    }
    first.write_all(ask.as_bytes()).await.unwrap();
    assert_eq!(status(&read(first).await), "200");
    drop(second);
    until(async || status(&send(&world, ask).await).to_string(), |status| status == "200").await;
}

#[tokio::test]
async fn connections_beyond_the_limit_get_503_and_the_others_are_served() {
    let settings = "[connections]\nmax_connections = 2\nmax_connections_per_address = 9";
    let parts = ["\"tidegate_too_many_connections\"", "retry-after: 1"];
    assert_third_connection_is_refused(settings, "503", &parts).await;
}

#[tokio::test]
async fn connections_of_one_address_beyond_its_limit_get_429() {
    let message = "the limit of 2 open connections of one client address is reached";
    let parts = [message, "retry-after: 1", "connection: close"];
    assert_third_connection_is_refused("[connections]\nmax_connections_per_address = 2", "429", &parts).await;
}

/// Returns the number of calls in flight.
async fn in_flight(world: &World) -> String {
    let answer = call(world, "GET", "/healthz", "host: localhost\r\n", "").await;
    let (_, count) = answer.split_once("\"in_flight\":").expect(&answer);
    count.chars().take_while(char::is_ascii_digit).collect()
}

#[tokio::test]
async fn a_client_that_does_not_read_its_response_is_disconnected() {
    for (write_timeout, is_freed) in [("300ms", true), ("1h", false)] {
        let world = World::new("", &format!("[connections]\nwrite_timeout = \"{write_timeout}\"")).await;
        let mut stream = TcpStream::connect(world.proxy.address()).await.unwrap();
        // More than the buffers between proxy and client hold.
        let body = "{\"model\":\"unmetered-1000000\",\"stream\":true}";
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + body).as_bytes()).await.unwrap();
        until(async || in_flight(&world).await, |count| count == "1").await;
        if is_freed {
            let ended = until(async || in_flight(&world).await, |count| count == "0");
            // After a minute, the kernel gives the connection up.
            let limit = std::time::Duration::from_secs(40);
            tokio::time::timeout(limit, ended).await.expect("the write timeout ends the call");
        } else {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            assert_eq!(in_flight(&world).await, "1", "nothing else ends the call");
        }
    }
}
