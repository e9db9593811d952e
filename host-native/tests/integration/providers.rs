//! Tests of provider failures over real sockets: each gives a clear error or an explained drop, and no
//! finished row is lost.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::authority::Authority;
use crate::support::{Scratch, remote_pipeline, serve};
use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const PATH: &str = "/v1/chat/completions";

/// Settings for providers that never succeed.
const SHORT_PATIENCE: &str = "outage_patience = \"500ms\"";

/// Starts a server that gives every call the same answer.
fn always(status: u16, body: &str) -> String {
    let (status, body) = (StatusCode::from_u16(status).unwrap(), body.to_string());
    serve(Router::new().route(PATH, post(move || std::future::ready((status, body.clone()))))) + "/v1"
}

/// Starts a server that answers the first `good` calls successfully, and all later ones with `bad`.
fn good_then<R: IntoResponse + 'static>(good: usize, bad: fn() -> R) -> String {
    let calls = Arc::new(AtomicUsize::new(0));
    let answer = move || {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        async move {
            if call < good {
                let body = json!({ "choices": [{ "message": { "role": "assistant", "content": format!("{call}") } }] });
                return axum::Json(body).into_response();
            }
            bad().into_response()
        }
    };
    serve(Router::new().route(PATH, post(answer))) + "/v1"
}

/// Starts a server that answers most calls successfully, and the others with the raw texts `bad` in turn.
fn mostly(bad: [&'static str; 2]) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (call, socket) in listener.incoming().enumerate() {
            let mut socket = socket.unwrap();
            read_request(&mut socket);
            let good = r#"{"choices":[{"message":{"content":"fine"}}]}"#;
            // The pattern is irregular, so that retries and health calls cannot fall in step with it.
            let mixed = (call as u32 ^ 0x5bd1_e995).wrapping_mul(0x85eb_ca6b);
            let answer = match ((mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35) >> 16) & 7 {
                at @ 0..2 => bad[at as usize].to_string(),
                _ => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{good}", good.len()),
            };
            let _ = socket.write_all(answer.as_bytes());
        }
    });
    url
}

/// Reads one request, so that the connection can be closed without a reset.
fn read_request(socket: &mut TcpStream) {
    let mut reader = BufReader::new(socket);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).unwrap_or(0) > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let _ = reader.read_exact(&mut vec![0; length]);
}

#[test]
fn truncated_empty_and_malformed_answers_lose_no_row() {
    let truncated = "HTTP/1.1 200 OK\r\ncontent-length: 9000\r\n\r\n{\"choices\":[{\"mess";
    let empty = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let foreign = "HTTP/1.1 200 OK\r\ncontent-length: 13\r\nconnection: close\r\n\r\n<html></html>";
    for bad in [[truncated, empty], [foreign, truncated], ["", foreign]] {
        let scratch = Scratch::new(6);
        let ended = scratch.run_pipeline(&remote_pipeline(&mostly(bad), "", "retries = 20"));
        ended.assert(0, &[]);
        assert_eq!(scratch.rows("out").len(), 6, "{bad:?}");
    }
}

#[test]
fn an_error_body_with_status_200_is_classified_by_its_content() {
    let busy = r#"{"error":{"code":502,"message":"Provider returned error"}}"#;
    let scratch = Scratch::new(4);
    let ended = scratch.run_pipeline(&remote_pipeline(&always(200, busy), "", SHORT_PATIENCE));
    ended.assert(4, &["the server failed (HTTP 502): Provider returned error"]);
}

#[test]
fn a_403_about_one_prompt_drops_one_row_with_the_reason() {
    let scratch = Scratch::new(20);
    let answer = |body: String| async move {
        if body.contains("entry 7 ") {
            let flagged =
                r#"{"error":{"code":403,"message":"your input was flagged","metadata":{"reasons":["violence"]}}}"#;
            return (StatusCode::FORBIDDEN, flagged).into_response();
        }
        axum::Json(json!({ "choices": [{ "message": { "content": "fine" } }] })).into_response()
    };
    let server = serve(Router::new().route(PATH, post(answer))) + "/v1";
    let ended = scratch.run_pipeline(&remote_pipeline(&server, "", ""));
    ended.assert(6, &["for example row 7: the request is forbidden (HTTP 403): your input was flagged"]);
    assert_eq!(scratch.rows("out").len(), 19);
}

#[test]
fn an_exhausted_quota_ends_the_run_at_once_and_drops_no_row() {
    let scratch = Scratch::new(12);
    let quota = r#"{"error":{"message":"No funds.","type":"insufficient_quota","code":"insufficient_quota"}}"#;
    let ended = scratch.run_pipeline(&remote_pipeline(&always(429, quota), "", ""));
    ended.assert(
        4,
        &["remote/m cannot be used: the account is out of funds or quota (HTTP 429): No funds.", "add funds"],
    );
    assert_eq!(scratch.dropped("out").len(), 0);
}

#[test]
fn an_answer_that_is_not_json_is_explained_and_exits_4() {
    let scratch = Scratch::new(40);
    let ended = scratch.run_pipeline(&remote_pipeline(&always(200, "<html>busy</html>"), "", SHORT_PATIENCE));
    ended.assert(4, &["the answer is not a chat completion: it is not JSON"]);
}

#[test]
fn a_401_stops_the_run_at_once_and_the_key_is_printed_nowhere() {
    let mut scratch = Scratch::new(400);
    scratch.env("TIDEGATE_TEST_KEY", "sk-very-secret");
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let answer = move |headers: HeaderMap| {
        seen.fetch_add(1, Ordering::SeqCst);
        let echo = format!("{{\"error\":{{\"message\":\"bad key {:?}\"}}}}", headers["authorization"]);
        async move { (StatusCode::UNAUTHORIZED, echo) }
    };
    let server = serve(Router::new().route(PATH, post(answer))) + "/v1";
    let ended = scratch.run_pipeline(&remote_pipeline(&server, "api_key_env = \"TIDEGATE_TEST_KEY\"", ""));
    ended.assert(4, &["the API key was refused or is missing (HTTP 401)"]);
    assert!(!ended.all().contains("secret"), "{}", ended.all());
    for entry in std::fs::read_dir(scratch.path("out/rows")).unwrap() {
        assert!(!std::fs::read_to_string(entry.unwrap().path()).unwrap().contains("secret"));
    }
    let calls = calls.load(Ordering::SeqCst);
    assert!(calls <= 4, "{calls} calls went out, and 4 can be out at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_trusted_only_with_a_certificate_of_the_configured_authority() {
    let (own, other) = (Authority::new(), Authority::new());
    let mut scratch = Scratch::new(2);
    scratch.env("TIDEGATE_TEST_KEY", "sk-secret");
    scratch.write("authority.pem", &own.pem());
    let ca_file = "ca_file = \"authority.pem\"";
    let unknown = "its authority is not trusted here; the file of a private authority is set as `ca_file`";
    for (authority, host, ca_file, code, part) in [
        (&own, "localhost", ca_file, 0, ""),
        (&own, "localhost", "", 4, unknown),
        (&own, "other.example", ca_file, 4, "not valid for name"),
        (&other, "localhost", ca_file, 4, unknown),
    ] {
        let port = authority.serve(host, r#"{"choices":[{"message":{"content":"fine"}}]}"#).await;
        let model = format!("{ca_file}\napi_key_env = \"TIDEGATE_TEST_KEY\"");
        scratch.write("p.toml", &remote_pipeline(&format!("https://localhost:{port}/v1"), &model, ""));
        let ended = |command| tokio::task::block_in_place(|| scratch.run(&[command, "p.toml"]));
        let checked = ended("check");
        checked.assert(code, &[part]);
        assert_eq!(checked.all().contains("`ca_file`"), part == unknown, "{}", checked.all());
        if code == 0 {
            ended("run").assert(code, &[]);
        }
    }
}

/// Starts a server that answers the first bytes of each connection with these. Returns its port.
async fn serve_bytes(answer: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(&answer).await;
            // Until the client closes the connection.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_tls_says_what_to_do() {
    const BODY: &str = r#"{"choices":[{"message":{"content":"fine"}}]}"#;
    let authority = Authority::new();
    let scratch = Scratch::new(2);
    scratch.write("authority.pem", &authority.pem());
    let expired = authority.certify_with("localhost", |params| params.not_after = rcgen::date_time_ymd(2001, 2, 3));
    let early = authority.certify_with("localhost", |params| params.not_before = rcgen::date_time_ymd(4000, 2, 3));
    let of_authority = authority.certify_with("localhost", |params| {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    });
    let other = authority.certify("other.example");
    let mut servers = Vec::new();
    for (certificate, part) in [
        (expired, "the server needs a new certificate, unless the clock of this machine is wrong"),
        (early, "the clock of this machine is wrong"),
        (of_authority, "the server uses the certificate of an authority as its own; it needs one that says `CA:FALSE`"),
        (other, "the address needs a name of the certificate, or the server a certificate for the name in the address"),
    ] {
        servers.push((format!("https://localhost:{}", Authority::serve_with(certificate, BODY).await), part));
    }
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let port = authority.serve_requiring_certificate(version).await;
        servers.push((
            format!("https://localhost:{port}"),
            "the server requires a certificate of its clients, and models have no key to set one",
        ));
    }
    // A server that knows only TLS 1.0: the alert `protocol_version`, and its own first message.
    let alert: &[u8] = b"\x15\x03\x01\x00\x02\x02\x46";
    let hello = [&b"\x16\x03\x01\x00\x2a\x02\x00\x00\x26\x03\x01"[..], &[7; 32], b"\x00\x00\x2f\x00"].concat();
    for answer in [alert.to_vec(), hello] {
        servers.push((
            format!("https://localhost:{}", serve_bytes(answer).await),
            "the server offers no version or cipher of TLS that is accepted here; it needs TLS 1.2 or 1.3",
        ));
    }
    let failure = serve_bytes(b"\x15\x03\x03\x00\x02\x02\x28".to_vec()).await;
    servers.push((format!("https://localhost:{failure}"), "the server ends the handshake"));
    let with_tls = authority.serve("localhost", BODY).await;
    servers.push((format!("http://localhost:{with_tls}"), "a server with TLS needs an address with https"));
    let without = serve(Router::new()).replace("http://127.0.0.1", "https://localhost");
    servers.push((without, "a server without TLS needs an address with http"));
    for (address, part) in servers {
        let is_secure = address.starts_with("https:");
        let ca_file = if is_secure { "ca_file = \"authority.pem\"" } else { "" };
        scratch.write("p.toml", &remote_pipeline(&format!("{address}/v1"), ca_file, ""));
        let ended = |arguments: &[&str]| tokio::task::block_in_place(|| scratch.run(arguments));
        ended(&["check", "p.toml"]).assert(4, &["FAILED: no connection: ", part]);
        let run = ended(&["run", "p.toml", "--out", "out", "--overwrite", "--limit", "1"]);
        run.assert(4, &["remote/m cannot be used: no connection: ", part, "1 failed", "--resume"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_whose_certificate_is_not_trusted_is_replaced_by_the_next() {
    let port = Authority::new().serve("localhost", "{}").await;
    let server = always(200, r#"{"choices":[{"message":{"content":"fine"}}]}"#);
    let scratch = Scratch::new(4);
    let pipeline = remote_pipeline(&format!("https://localhost:{port}/v1"), "", "");
    let pipeline = pipeline.replace("model = \"m\"\nprompt", "models = [\"m\", \"other\"]\nprompt");
    scratch.write(
        "p.toml",
        &format!(
            "{pipeline}[[models]]\nname = \"other\"\nprovider = \"other\"\nbase_url = \"{server}\"\nmax_parallel = 4\n"
        ),
    );
    let ended = tokio::task::block_in_place(|| scratch.run(&["p.toml", "--out", "out"]));
    ended.assert(0, &["answers of title: 0 by remote/m, 4 by other/other"]);
}

#[test]
fn a_key_for_this_machine_is_not_sent_through_a_proxy_of_the_environment() {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let proxy = move || async move { seen.fetch_add(1, Ordering::SeqCst).to_string() };
    let mut scratch = Scratch::new(2);
    scratch.env("TIDEGATE_TEST_KEY", "sk-secret");
    scratch.env("http_proxy", &serve(Router::new().fallback(proxy)));
    let server = always(200, r#"{"choices":[{"message":{"content":"fine"}}]}"#);
    scratch.run_pipeline(&remote_pipeline(&server, "api_key_env = \"TIDEGATE_TEST_KEY\"", "")).assert(0, &[]);
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[test]
fn a_key_that_a_server_repeats_in_an_answer_is_redacted() {
    let mut scratch = Scratch::new(4);
    scratch.env("TIDEGATE_TEST_KEY", "sk-very-secret");
    let server = always(400, r#"{"error":{"message":"cannot use sk-very-secret here"}}"#);
    let ended = scratch.run_pipeline(&remote_pipeline(&server, "api_key_env = \"TIDEGATE_TEST_KEY\"", ""));
    ended.assert(4, &["the request was refused (HTTP 400): cannot use [key] here"]);
    assert!(!ended.all().contains("secret"), "{}", ended.all());
}

#[test]
fn a_key_in_a_long_error_is_redacted_where_the_excerpt_ends_and_in_other_spellings() {
    let mut scratch = Scratch::new(4);
    scratch.env("TIDEGATE_TEST_KEY", "sk-very/secret");
    let run = |message: String| {
        let server = always(400, &json!({ "error": { "message": message } }).to_string());
        scratch.write("p.toml", &remote_pipeline(&server, "api_key_env = \"TIDEGATE_TEST_KEY\"", ""));
        let ended = scratch.run(&["run", "p.toml", "--out", "out", "--overwrite"]);
        assert_eq!(ended.code, 4, "{}", ended.all());
        ended.all()
    };
    for before in [148, 152, 155] {
        let shown = run(format!("{}{} is unknown", "-".repeat(before), "sk-very/secret"));
        assert!(shown.contains("--…") && !shown.contains("sk-"), "{shown}");
    }
    assert!(run("no account for sk-very%2Fsecret".to_string()).contains("(HTTP 400): no account for [key]"));
}

#[test]
fn a_404_about_the_model_is_reported_as_an_unknown_model_and_exits_4() {
    let scratch = Scratch::new(40);
    let server = always(404, r#"{"error":{"message":"the model m does not exist"}}"#);
    let ended = scratch.run_pipeline(&remote_pipeline(&server, "", ""));
    ended.assert(4, &["no such model (HTTP 404): the model m does not exist"]);
}

#[test]
fn endless_429s_end_the_run_after_rate_limit_patience_and_finished_row_groups_are_kept() {
    let scratch = Scratch::new(40);
    let server = good_then(9, || (StatusCode::TOO_MANY_REQUESTS, [("retry-after-ms", "20")], "slow down"));
    let ended = scratch.run_pipeline(&remote_pipeline(&server, "", "rate_limit_patience = \"600ms\"\nrow_groups = 1"));
    ended.assert(4, &["remote/m cannot be used: rate limited (HTTP 429, come back in 20", "`rate_limit_patience`"]);
    ended.assert(4, &["is degraded: ", "No row is dropped for this reason"]);
    assert_eq!(scratch.dropped("out"), Vec::<serde_json::Value>::new());
    let rows = scratch.rows("out");
    assert!(rows.len() >= 8, "{} rows", rows.len());
    // The ninth successful answer may belong to any row of the row group in progress.
    assert!(rows.iter().take(8).enumerate().all(|(index, row)| row["row"] == index));
    assert_eq!(scratch.manifest("out")["state"], "ended");
}

#[test]
fn finished_row_groups_are_kept_when_the_provider_fails_later() {
    let scratch = Scratch::new(40);
    let server = good_then(13, || (StatusCode::NOT_FOUND, "gone"));
    let ended = scratch.run_pipeline(&remote_pipeline(&server, "", "row_groups = 1"));
    ended.assert(4, &["no such address (HTTP 404)"]);
    assert_eq!(std::fs::read_to_string(scratch.path("out/rows/000002.jsonl")).unwrap().lines().count(), 4);
}

#[test]
fn failed_rows_are_dropped_with_the_reason_and_exit_6() {
    let scratch = Scratch::new(20);
    let answer = |body: String| async move {
        if body.contains("entry 7 ") {
            return (StatusCode::BAD_REQUEST, "{\"error\":{\"message\":\"unlucky\"}}").into_response();
        }
        axum::Json(json!({ "choices": [{ "message": { "content": "fine" } }] })).into_response()
    };
    let server = serve(Router::new().route(PATH, post(answer))) + "/v1";
    let ended = scratch.run_pipeline(&remote_pipeline(&server, "", ""));
    ended.assert(6, &["for example row 7: the request was refused (HTTP 400): unlucky"]);
    assert_eq!(scratch.rows("out").len(), 19);
    let dropped = scratch.dropped("out");
    assert_eq!((dropped.len(), &dropped[0]["row"], &dropped[0]["column"]), (1, &json!(7), &json!("title")));
}

#[test]
fn a_call_that_exceeds_its_timeout_is_reported_as_a_timeout() {
    let scratch = Scratch::new(2);
    let server = serve(Router::new().route(PATH, post(std::future::pending::<()>))) + "/v1";
    let pipeline = remote_pipeline(&server, "timeout = \"50ms\"", SHORT_PATIENCE);
    scratch.run_pipeline(&pipeline).assert(4, &["no answer in time"]);
}

#[test]
fn the_request_contains_the_model_the_messages_and_the_key() {
    let mut scratch = Scratch::new(1);
    scratch.env("TIDEGATE_TEST_KEY", "sk-1");
    let answer = |headers: HeaderMap, axum::Json(body): axum::Json<serde_json::Value>| async move {
        let content = format!("{} {body}", headers["authorization"].to_str().unwrap());
        axum::Json(json!({ "choices": [{ "message": { "content": content } }] }))
    };
    let server = serve(Router::new().route(PATH, post(answer))) + "/v1/";
    let extra = "api_key_env = \"TIDEGATE_TEST_KEY\"\nmodel = \"big\"";
    scratch.run_pipeline(&remote_pipeline(&server, extra, "")).assert(0, &[]);
    let expected = r#"Bearer sk-1 {"messages":[{"content":"A title for: entry 0 of the breakwater log","role":"user"}],"model":"big"}"#;
    assert_eq!(scratch.rows("out")[0]["title"], expected);
}
