//! Tests of web pages that reach the proxy from the browser of its operator.

use super::{CHAT, call, chat, status, upstream};
use crate::support::world::World;

const BODY: &str = "{\"model\":\"echo\",\"messages\":[]}";
const JSON: &str = "host: localhost\r\ncontent-type: application/json\r\n";

#[tokio::test]
async fn a_page_of_another_site_cannot_use_the_operators_key() {
    let world = World::new("api_key_env = \"PROVIDER_KEY\"", "").await;
    for headers in [
        // A page may send this without a preflight request.
        "host: localhost\r\norigin: https://evil.example\r\ncontent-type: text/plain\r\n",
        &format!("{JSON}origin: https://evil.example\r\n"),
        &format!("{JSON}origin: null\r\n"),
        &format!("{JSON}origin: http://localhost.evil.example\r\n"),
        &format!("{JSON}origin: http://127.0.0.1:4180.evil.example\r\n"),
        &format!("{JSON}origin: http://localhost\r\norigin: https://evil.example\r\n"),
        &format!("{JSON}sec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\n"),
        &format!("{JSON}sec-fetch-site: same-site\r\n"),
    ] {
        let answer = call(&world, "POST", CHAT, headers, BODY).await;
        assert_eq!(status(&answer), "403", "{headers}: {answer}");
        assert!(answer.contains("\"tidegate_foreign_origin\"") && answer.contains("allowed_origins"), "{answer}");
        assert!(!answer.to_lowercase().contains("access-control"), "{answer}");
    }
    assert_eq!(upstream(&world), Vec::<String>::new());
}

#[tokio::test]
async fn a_rebound_dns_name_is_not_served() {
    let world = World::new("api_key_env = \"PROVIDER_KEY\"", "").await;
    for host in ["evil.example", "evil.example:4180", "10.1.2.3", "127.0.0.1.evil.example", "localhost.evil.example"] {
        let headers = format!("host: {host}\r\ncontent-type: application/json\r\n");
        let answer = call(&world, "POST", CHAT, &headers, BODY).await;
        assert_eq!(status(&answer), "403", "{host}: {answer}");
        assert!(answer.contains("\"tidegate_foreign_host\"") && answer.contains("set allowed_hosts = ["), "{answer}");
        for page in ["/why", "/metrics", "/healthz", "/v1/models"] {
            let answer = call(&world, "GET", page, &format!("host: {host}\r\n"), "").await;
            assert_eq!(status(&answer), "403", "{host} {page}: {answer}");
        }
    }
    for hosts in [
        "",
        "host: localhost\r\nhost: evil.example\r\n",
        "host: a@localhost\r\n",
        "host: 127.0.0.1:4180.evil.example\r\n",
        "host: localhost:99999\r\n",
    ] {
        assert_eq!(status(&call(&world, "GET", "/why", hosts, "").await), "400", "{hosts}");
    }
    let answer = call(&world, "GET", "http://evil.example/why", "host: localhost\r\n", "").await;
    assert_eq!(status(&answer), "400", "the request line names another host: {answer}");
    assert_eq!(upstream(&world), Vec::<String>::new());
}

#[tokio::test]
async fn admin_pages_are_not_served_to_other_sites() {
    let world = World::new("", "").await;
    for page in ["/why", "/metrics", "/healthz"] {
        for headers in ["origin: https://evil.example\r\n", "sec-fetch-site: cross-site\r\n"] {
            let answer = call(&world, "GET", page, &format!("host: localhost\r\n{headers}"), "").await;
            assert_eq!(status(&answer), "403", "{page} {headers}");
        }
        let own = "host: localhost\r\nsec-fetch-site: none\r\n";
        let answer = call(&world, "GET", page, own, "").await;
        assert_eq!(status(&answer), "200", "{answer}");
        assert!(answer.contains("x-content-type-options: nosniff"), "{answer}");
        assert!(answer.contains("content-security-policy: default-src 'none';"), "{answer}");
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"] {
            let answer = call(&world, method, page, own, "").await;
            assert_eq!(status(&answer), "405", "no page changes anything: {answer}");
            assert!(answer.contains("\r\nallow: GET, HEAD\r\n"), "{answer}");
        }
    }
}

#[tokio::test]
async fn local_programs_and_a_page_of_the_same_origin_are_served() {
    let world = World::new("", "").await;
    assert_eq!(status(&chat(&world, BODY).await), "200");
    let address = world.proxy.address();
    for headers in [
        format!("host: {address}\r\n"),
        format!("host: {address}\r\norigin: http://{address}\r\nsec-fetch-site: same-origin\r\n"),
        "host: app.localhost:80\r\n".to_string(),
    ] {
        let answer = call(&world, "POST", CHAT, &format!("{headers}content-type: application/json\r\n"), BODY).await;
        assert_eq!(status(&answer), "200", "{headers}: {answer}");
        assert!(!answer.contains("access-control"), "nothing is configured: {answer}");
    }
}

#[tokio::test]
async fn a_form_of_another_page_of_this_machine_is_sent_to_no_provider_unless_its_origin_is_listed() {
    const FORM: &str = "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\necho\r\n--b--\r\n";
    let (base_url, seen) = crate::support::provider::provider();
    let top = "allowed_origins = [\"http://localhost:3000\"]\n";
    let world = World::before(&base_url, seen, "api_key_env = \"PROVIDER_KEY\"", top).await;
    let post = async |origin: &str, site: &str| {
        let headers = format!(
            "host: localhost:4180\r\norigin: {origin}\r\nsec-fetch-site: {site}\r\n\
             content-type: multipart/form-data; boundary=b\r\n"
        );
        call(&world, "POST", "/v1/images/edits", &headers, FORM).await
    };
    for (origin, site) in [
        ("http://localhost:8000", "same-site"),
        ("http://127.0.0.1:4180", "cross-site"),
        ("http://app.localhost:4180", "same-site"),
        ("http://[::1]:4180", "cross-site"),
    ] {
        let answer = post(origin, site).await;
        assert_eq!(status(&answer), "403", "{origin}: {answer}");
        assert!(answer.contains("allowed_origins"), "the error says what allows it: {answer}");
    }
    assert_eq!(upstream(&world), Vec::<String>::new());
    for (origin, site) in [("http://localhost:3000", "same-site"), ("http://localhost:4180", "same-origin")] {
        let answer = post(origin, site).await;
        assert_eq!(status(&answer), "200", "{origin}: {answer}");
    }
}

#[tokio::test]
async fn listed_hosts_and_origins_are_served_and_only_listed_origins_get_cors_headers() {
    let (base_url, seen) = crate::support::provider::provider();
    let top = "allowed_hosts = [\"llm.example\"]\nallowed_origins = [\"https://app.example\"]\n";
    let world = World::before(&base_url, seen, "", top).await;
    let listed = "host: llm.example\r\norigin: https://app.example\r\nsec-fetch-site: cross-site\r\n";
    let answer = call(&world, "POST", CHAT, &format!("{listed}content-type: application/json\r\n"), BODY).await;
    assert_eq!(status(&answer), "200", "{answer}");
    assert!(answer.contains("access-control-allow-origin: https://app.example\r\n"), "{answer}");
    let asks = "access-control-request-method: POST\r\naccess-control-request-headers: authorization,content-type\r\n";
    let preflight = call(&world, "OPTIONS", CHAT, &format!("{listed}{asks}"), "").await;
    assert_eq!(status(&preflight), "200", "{preflight}");
    assert!(preflight.contains("access-control-allow-headers: authorization,content-type\r\n"), "{preflight}");
    assert!(!preflight.contains("access-control-allow-methods: *"), "{preflight}");
    let other = "host: llm.example\r\norigin: https://evil.example\r\n";
    let refused = call(&world, "OPTIONS", CHAT, &format!("{other}{asks}"), "").await;
    assert_eq!(status(&refused), "403", "{refused}");
    assert!(!refused.contains("access-control"), "{refused}");
    assert_eq!(upstream(&world), [format!("POST {CHAT}")]);
}

#[tokio::test]
async fn json_is_accepted_only_with_its_own_content_type() {
    let world = World::new("", "").await;
    for kind in [
        "",
        "content-type: text/plain\r\n",
        "content-type: text/plain;charset=application/json\r\n",
        "content-type: application/x-www-form-urlencoded\r\n",
        "content-type: application/json; charset=utf-7\r\n",
        "content-type: application/json\r\ncontent-type: text/plain\r\n",
        "content-type: multipart/form-data; boundary=b\r\n",
        "content-type: application/json\r\ncontent-encoding: gzip\r\n",
    ] {
        let answer = call(&world, "POST", CHAT, &format!("host: localhost\r\n{kind}"), BODY).await;
        assert_eq!(status(&answer), "415", "{kind}: {answer}");
        assert!(answer.contains("expected Content-Type: application/json"), "{answer}");
    }
    assert_eq!(upstream(&world), Vec::<String>::new());
}
