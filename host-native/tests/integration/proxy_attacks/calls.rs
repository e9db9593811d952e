//! Tests of calls that must not use the operator's key, and of paths and headers that disguise them.

use super::{CHAT, call, status, upstream};
use crate::support::provider::provider;
use crate::support::world::World;

const JSON: &str = "host: localhost\r\ncontent-type: application/json\r\n";

#[tokio::test]
async fn only_the_calls_of_the_api_are_forwarded() {
    let world = World::new("api_key_env = \"PROVIDER_KEY\"", "").await;
    for method in ["DELETE", "TRACE", "PUT", "PATCH", "GET", "HEAD", "OPTIONS", "PROPFIND", "post"] {
        let answer = call(&world, method, CHAT, "host: localhost\r\n", "").await;
        assert_eq!(status(&answer), "405", "{method}: {answer}");
        assert!(answer.contains("\r\nallow: POST\r\n"), "{answer}");
    }
    assert!(call(&world, "DELETE", "/v1/models/mine", JSON, "").await.contains("\r\nallow: GET\r\n"));
    for (method, path) in [
        ("GET", "/v1/files"),
        ("GET", "/v1/files/file-of-another-tenant/content"),
        ("DELETE", "/v1/files/file-1"),
        ("POST", "/v1/fine_tuning/jobs"),
        ("GET", "/v1/responses/resp_1"),
        ("GET", "/v1/organization/admin_api_keys"),
        ("TRACE", "/v1/anything"),
        ("POST", "/"),
        ("POST", "/v2/chat/completions"),
    ] {
        let answer = call(&world, method, path, JSON, "{}").await;
        assert_eq!(status(&answer), "404", "{method} {path}: {answer}");
    }
    let tunnel = call(&world, "CONNECT", "localhost:443", "host: localhost:443\r\n", "").await;
    assert!(matches!(status(&tunnel), "400" | "404" | "405"), "{tunnel}");
    assert_eq!(upstream(&world), Vec::<String>::new());
}

#[tokio::test]
async fn no_spelling_of_a_path_bypasses_the_list_of_allowed_calls() {
    let world = World::new("", "").await;
    let body = "{\"model\":\"echo\"}";
    for path in [
        "/v1//chat/completions",
        "//v1/chat/completions",
        "/v1/chat//completions",
        "/v1/chat/completions/",
        "/v1/chat/completions/../../files",
        "/v1/chat/./completions",
        "/v1/chat/completions;a=b",
        "/v1/chat;a=b/completions",
        "/v1/chat%2fcompletions",
        "/v1/%63hat/completions",
        "/v1/chat/completions%00",
        "/v1/chat/completions%20",
        "/v1/chat\\completions",
        "/V1/chat/completions",
        "/v1/CHAT/completions",
        "/x/../v1/chat/completions",
    ] {
        let answer = call(&world, "POST", path, JSON, body).await;
        assert!(matches!(status(&answer), "404" | "400"), "{path}: {answer}");
    }
    for path in [
        "/v1/models/../files",
        "/v1/models/..%2ffiles",
        "/v1/models/%2e%2e/files",
        "/v1/models/a/..%5cfiles",
        "/v1/models/..;/files",
        "/v1/models/a%252f..%252f..",
        "/v1/models//files",
        "/v1/models/%2ffiles",
    ] {
        let answer = call(&world, "GET", path, "host: localhost\r\n", "").await;
        assert!(matches!(status(&answer), "404" | "400"), "{path}: {answer}");
    }
    assert_eq!(upstream(&world), Vec::<String>::new());
    assert_eq!(status(&call(&world, "GET", "/v1/models/acme%2Flarge", "host: localhost\r\n", "").await), "200");
}

#[tokio::test]
async fn no_header_overrides_the_method_or_path() {
    let world = World::new("", "").await;
    let tricks = "x-http-method-override: DELETE\r\nx-http-method: DELETE\r\nx-original-url: /v1/files\r\n\
                  x-rewrite-url: /v1/files\r\nx-forwarded-host: evil.example\r\n";
    let answer = call(&world, "POST", CHAT, &format!("{JSON}{tricks}"), "{\"model\":\"echo\"}").await;
    assert_eq!(status(&answer), "200", "{answer}");
    for name in ["method-override", "x-http-method", "x-original-url", "x-rewrite-url", "x-forwarded"] {
        assert!(!answer.contains(name), "{name} reached the provider: {answer}");
    }
}

#[tokio::test]
async fn a_client_cannot_select_the_account_that_the_operators_key_charges() {
    let world = World::new("api_key_env = \"PROVIDER_KEY\"", "").await;
    let account = "openai-organization: org-1\r\nOpenAI-Project: proj-1\r\nx-goog-user-project: p\r\n\
                   x-tidegate-attempts: 1\r\nconnection: authorization, via, x-tidegate-timeout\r\n";
    let answer = call(&world, "POST", CHAT, &format!("{JSON}{account}"), "{\"model\":\"echo\"}").await;
    assert_eq!(status(&answer), "200", "{answer}");
    let body = answer.split("\r\n\r\n").nth(1).unwrap();
    for name in ["organization", "project", "x-tidegate"] {
        assert!(!body.contains(name), "{name} reached the provider: {answer}");
    }
    assert!(body.contains("\"authorization\":\"Bearer ***********\"") && body.contains("\"via\""), "{answer}");
}

#[tokio::test]
async fn only_passthrough_paths_are_forwarded_and_only_to_their_provider() {
    let (other, without) = provider();
    let rules = "passthrough = [{ methods = [\"GET\", \"POST\"], path = \"/batches/*\" }, \
                 { methods = [\"POST\"], path = \"/moderations\" }]";
    let first = format!("[[providers]]\nname = \"with\"\nbase_url = \"BASE\"\n{rules}");
    let (base_url, seen) = provider();
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[[providers]]\nname = \"without\"\nbase_url = \"{other}\"\n{}",
        first.replace("BASE", &base_url)
    );
    let world = World::start(text, seen).await;
    for headers in [JSON, "host: localhost\r\n"] {
        assert_eq!(status(&call(&world, "GET", "/v1/batches/b_1", headers, "").await), "200");
    }
    assert_eq!(
        status(&call(&world, "POST", "/v1/moderations", JSON, "{\"model\":\"echo\",\"input\":\"x\"}").await),
        "200"
    );
    for (method, path, expected) in [
        ("DELETE", "/v1/batches/b_1", "405"),
        ("GET", "/v1/moderations", "405"),
        ("GET", "/v1/batches/../files", "404"),
        ("GET", "/v1/batches", "404"),
        ("GET", "/v1/moderations/1", "404"),
    ] {
        assert_eq!(status(&call(&world, method, path, "host: localhost\r\n", "").await), expected, "{method} {path}");
    }
    let named = "host: localhost\r\nx-tidegate-provider: without\r\n";
    assert_eq!(status(&call(&world, "GET", "/v1/batches/b_1", named, "").await), "404");
    assert_eq!(upstream(&world), ["GET /v1/batches/b_1", "GET /v1/batches/b_1", "POST /v1/moderations"]);
    assert_eq!(without.calls(), 0);
}

#[tokio::test]
async fn a_tenant_calls_only_its_own_models_whatever_provider_it_selects() {
    let (other, seen_of_other) = provider();
    let tenants = "[tenants]\nby = \"header:x-tenant\"\nrequire_known = true\n[[tenants.known]]\nname = \"other\"\n\
                   [[tenants.known]]\nname = \"small\"\nmodels = [\"cheap-*\"]\n";
    let second = format!("{tenants}[[providers]]\nname = \"q\"\nbase_url = \"{other}\"");
    let world = World::new("serves = [\"echo\", \"cheap-*\"]", &second).await;
    let of = async |tenant: &str, more: &str, body: &str| {
        let headers = format!("{JSON}x-tenant: {tenant}\r\n{more}");
        status(&call(&world, "POST", CHAT, &headers, body).await).to_string()
    };
    let selected = "x-tidegate-provider: q\r\n";
    for more in ["", selected] {
        assert_eq!(of("small", more, "{\"model\":\"cheap-1\"}").await, "200");
        assert_eq!(of("other", more, "{\"model\":\"echo\"}").await, "200");
        for body in ["{\"model\":\"echo\"}", "{\"model\":\"CHEAP-1\"}", "{}", "{\"model\":null}"] {
            assert_eq!(of("small", more, body).await, "403", "{more} {body}");
        }
    }
    assert_eq!((world.seen.calls(), seen_of_other.calls()), (2, 2));
}

#[tokio::test]
async fn a_provider_selected_by_name_serves_only_its_own_models() {
    let (other, seen_of_other) = provider();
    let second = format!("[[providers]]\nname = \"q\"\nbase_url = \"{other}\"\nserves = [\"cheap-*\"]");
    let world = World::new("serves = [\"echo\"]", &second).await;
    let to = async |provider: &str, body: &str| {
        let headers = format!("{JSON}x-tidegate-provider: {provider}\r\n");
        status(&call(&world, "POST", CHAT, &headers, body).await).to_string()
    };
    assert_eq!(to("p", "{\"model\":\"echo\"}").await, "200");
    assert_eq!(to("q", "{\"model\":\"cheap-1\"}").await, "200");
    for (provider, body) in [
        ("q", "{\"model\":\"echo\"}"),
        ("p", "{\"model\":\"cheap-1\"}"),
        ("q", "{}"),
        ("q", "{\"model\":null}"),
        ("elsewhere", "{\"model\":\"echo\"}"),
    ] {
        assert_eq!(to(provider, body).await, "404", "{provider} {body}");
    }
    assert_eq!((world.seen.calls(), seen_of_other.calls()), (1, 1));
}
