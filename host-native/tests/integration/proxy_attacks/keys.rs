//! Tests of keys: which provider receives them, and that no response reveals them.

use super::{CHAT, call, raw_provider, status};
use crate::support::provider::provider;
use crate::support::serve;
use crate::support::world::World;

const CLIENT: &str = "host: localhost\r\ncontent-type: application/json\r\nauthorization: Bearer sk-tenant-secret\r\n";

async fn ask(world: &World, headers: &str, model: &str) -> String {
    call(world, "POST", CHAT, &format!("{CLIENT}{headers}"), format!("{{\"model\":\"{model}\"}}")).await
}

#[tokio::test]
async fn a_tenants_key_is_sent_only_to_providers_configured_to_receive_it() {
    let more = "api-key: sk-tenant-secret\r\nx-api-key: sk-tenant-secret\r\nx-auth-token: sk-tenant-secret\r\n\
                cf-access-jwt-assertion: sk-tenant-secret\r\nx-goog-iap-jwt-assertion: sk-tenant-secret\r\n\
                x-credential: sk-tenant-secret\r\nx-passwd: sk-tenant-secret\r\ncookie: session=sk-tenant-secret\r\n";
    for provider_extra in ["", "client_key = \"drop\"", "api_key_env = \"PROVIDER_KEY\""] {
        let world = World::new(provider_extra, "[tenants]\nby = \"api_key\"").await;
        let answer = ask(&world, more, "echo").await;
        assert_eq!(status(&answer), "200", "{answer}");
        let masked = "*".repeat("sk-tenant-secret".len());
        assert!(!answer.contains("secret") && !answer.contains(&masked), "the provider got it: {answer}");
        let own = provider_extra.starts_with("api").then(|| "Bearer sk-provider".to_string());
        assert_eq!(*world.seen.call_keys.lock().unwrap(), [own]);
        for name in ["key", "api_token", "access_key", "secret", "password", "client_secret", "clientSecret", "t%6Fken"]
        {
            let path = format!("{CHAT}?{name}=sk-tenant-secret&a=1");
            let query = call(&world, "POST", &path, CLIENT, "{\"model\":\"echo\"}").await;
            assert!(query.contains("completions?a=1\""), "{name}: {query}");
        }
    }
    let world = World::new("client_key = \"forward\"", "").await;
    let answer = ask(&world, more, "echo").await;
    let masked = "*".repeat("sk-tenant-secret".len());
    assert!(answer.contains(&format!("\"authorization\":\"Bearer {masked}\"")), "{answer}");
    assert_eq!(*world.seen.call_keys.lock().unwrap(), [Some("Bearer sk-tenant-secret".to_string())]);
    assert!(!answer.contains("cookie"), "cookies are never forwarded: {answer}");
}

#[tokio::test]
async fn a_provider_selected_by_name_receives_no_key_meant_for_another() {
    let (other, _) = provider();
    let second = format!("[[providers]]\nname = \"q\"\nbase_url = \"{other}\"");
    let world = World::new("client_key = \"forward\"", &second).await;
    let answer = ask(&world, "x-tidegate-provider: q\r\n", "echo").await;
    assert_eq!(status(&answer), "200", "{answer}");
    assert!(!answer.contains("authorization"), "{answer}");
}

#[tokio::test]
async fn a_key_quoted_by_a_provider_reaches_no_client_with_any_status() {
    for (extra, key) in
        [("api_key_env = \"PROVIDER_KEY\"", "sk-provider"), ("client_key = \"forward\"", "sk-tenant-secret")]
    {
        for number in [200, 202, 302, 400, 401, 403, 404, 409, 418, 422, 429, 500, 502, 503] {
            let world = World::new(extra, "[retry]\nmax_attempts = 1").await;
            let answer = ask(&world, "", &format!("quotes-{number}")).await;
            assert!(answer.starts_with("HTTP/1.1 ") && !answer.contains(key), "{number}: {answer}");
            for name in ["set-cookie", "access-control"] {
                assert!(!answer.contains(name), "{number}: {answer}");
            }
            if matches!(number, 401 | 403) {
                assert!(!answer.contains("bad key") && !answer.contains("x-quoted"), "{number} is reworded: {answer}");
                assert!(answer.contains("the provider p "), "{number}: {answer}");
            } else {
                assert!(answer.contains(&format!("bad key {}", "*".repeat(key.len()))), "{number}: {answer}");
                assert!(answer.contains(&format!("x-quoted: key {}", "*".repeat(key.len()))), "{number}: {answer}");
            }
        }
        // This body is read to its end before the retry.
        let world = World::new(extra, "[retry]\nserver_errors = 1").await;
        let answer = ask(&world, "x-tidegate-timeout: 1500ms\r\n", "quotes-500").await;
        assert!(answer.contains("bad key *****") && !answer.contains(key), "{answer}");
    }
}

#[tokio::test]
async fn a_key_split_across_chunks_of_a_stream_reaches_no_client() {
    for (extra, key) in
        [("api_key_env = \"PROVIDER_KEY\"", "sk-provider"), ("client_key = \"forward\"", "sk-tenant-secret")]
    {
        let world = World::new(extra, "").await;
        let answer = ask(&world, "", "cuts").await;
        let text: String = answer.split("\r\n").collect();
        let half = &key[..key.len() / 2];
        assert!(text.contains("data: {\"key\":\"") && text.contains("data: [DONE]"), "{answer}");
        assert!(!text.contains(half) && !text.contains(&key[key.len() / 2..]), "{answer}");
    }
}

#[tokio::test]
async fn a_client_that_sends_the_first_characters_of_a_key_as_its_own_sees_no_more_of_it() {
    let world = World::new("api_key_env = \"PROVIDER_KEY\"", "").await;
    let headers = CLIENT.replace("sk-tenant-secret", "sk-provi");
    let answer = call(&world, "POST", CHAT, &headers, "{\"model\":\"cuts\"}").await;
    let text: String = answer.split("\r\n").collect();
    assert!(text.contains(&format!("{}\"}}", "*".repeat("sk-provider".len()))), "{answer}");
}

#[tokio::test]
async fn a_key_that_a_provider_writes_with_escapes_is_redacted_in_the_joined_model_list() {
    let body = r#"{"data":[{"id":"held","owned_by":"sk-p\u0072ovider"}]}"#;
    let list = axum::Router::new().route("/v1/models", axum::routing::get(move || std::future::ready(body)));
    let (other, seen) = provider();
    let second = format!("[[providers]]\nname = \"q\"\nbase_url = \"{other}\"");
    let extra = "api_key_env = \"PROVIDER_KEY\"\nserves = [\"held\"]";
    let world = World::of(&format!("{}/v1", serve(list)), seen, extra, &second).await;
    let list = call(&world, "GET", "/v1/models", "host: localhost\r\n", "").await;
    assert!(list.contains("\"owned_by\":\"***********\"") && !list.contains("sk-p"), "{list}");
}

#[tokio::test]
async fn a_response_with_an_unrequested_encoding_reaches_no_client() {
    let world = World::new("api_key_env = \"PROVIDER_KEY\"", "").await;
    let answer = ask(&world, "accept-encoding: gzip\r\n", "packed").await;
    assert_eq!(status(&answer), "502", "{answer}");
    assert!(answer.contains("\"tidegate_provider_encoding\"") && !answer.contains("sk-provider"), "{answer}");
    world.until_counts((0, 0)).await;
}

#[tokio::test]
async fn hop_by_hop_headers_are_forwarded_in_neither_direction() {
    let world = World::new("", "").await;
    let hop = "connection: x-mine, keep-alive\r\nx-mine: 1\r\nkeep-alive: timeout=9\r\nproxy-authorization: Basic x\r\n\
               te: trailers\r\nupgrade: websocket\r\nproxy-connection: close\r\n";
    let answer = ask(&world, hop, "echo").await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    for name in ["x-mine", "keep-alive", "proxy-authorization", "\"te\"", "upgrade", "proxy-connection"] {
        assert!(!body.contains(name), "{name} reached the provider: {body}");
    }
    assert!(!head.contains("x-hop") && head.contains("x-kept: 2"), "{head}");
}

#[tokio::test]
async fn a_key_in_a_header_name_or_in_base64_reaches_no_client() {
    // `Bearer sk-provider!` in base64.
    let encoded = "QmVhcmVyIHNrLXByb3ZpZGVyIQ==";
    let answer = format!(
        "HTTP/1.1 200 OK\r\nx-sk-provider: 1\r\nx-encoded: {encoded}\r\ncontent-length: {}\r\n\r\n{encoded}",
        encoded.len()
    );
    let (_, seen) = provider();
    let world = World::of(&raw_provider(answer).await, seen, "api_key_env = \"PROVIDER_KEY\"", "").await;
    let answer = ask(&world, "", "any").await;
    assert_eq!(status(&answer), "200", "{answer}");
    assert!(!answer.contains("sk-provider") && !answer.contains("LXByb3ZpZGVy"), "{answer}");
    assert_eq!(answer.matches("QmVhcmVyIH**************IQ==").count(), 2, "{answer}");
}

#[tokio::test]
async fn a_response_with_an_unrequested_transfer_coding_or_protocol_reaches_no_client() {
    for (head, code) in [
        ("200 OK\r\ntransfer-encoding: gzip, chunked", "tidegate_provider_encoding"),
        ("101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket", "tidegate_provider_protocol"),
    ] {
        let (_, seen) = provider();
        let base_url = raw_provider(format!("HTTP/1.1 {head}\r\n\r\n5\r\nEVIL!\r\n0\r\n\r\n")).await;
        let world = World::of(&base_url, seen, "", "").await;
        let answer = ask(&world, "connection: upgrade\r\nupgrade: websocket\r\n", "any").await;
        assert_eq!(status(&answer), "502", "{head}: {answer}");
        assert!(answer.contains(code) && !answer.contains("EVIL"), "{head}: {answer}");
        world.until_counts((0, 0)).await;
    }
}

#[tokio::test]
async fn a_html_page_of_a_provider_cannot_act_as_a_page_of_the_proxy() {
    let page = "HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\nrefresh: 0;url=https://evil.example\r\n\
                content-security-policy: script-src *\r\nservice-worker-allowed: /\r\ncontent-length: 17\r\n\r\n\
                <script></script>";
    let (_, seen) = provider();
    let world = World::of(&raw_provider(page).await, seen, "", "").await;
    let answer = ask(&world, "", "any").await;
    assert!(answer.contains("content-security-policy: default-src 'none'; frame-ancestors 'none'; sandbox\r\n"));
    for name in ["refresh", "script-src", "service-worker"] {
        assert!(!answer.contains(name), "{name}: {answer}");
    }
}
