//! Tests of bodies that two parsers read differently, which could bypass a model restriction or a budget.

use super::{call, chat, status, upstream};
use crate::support::world::World;

/// Starts a proxy that does not serve the model `dear`. No spelling of a call to it may be forwarded.
async fn world() -> World {
    World::new("serves = [\"cheap\", \"echo\"]", "").await
}

#[tokio::test]
async fn an_ambiguous_body_is_rejected() {
    let world = world().await;
    let bodies: [&[u8]; 18] = [
        b"{\"model\":\"cheap\",\"model\":\"dear\"}",
        b"{\"model\":\"cheap\",\"mod\\u0065l\":\"dear\"}",
        b"{\"model\":\"cheap\",\"Model\":\"dear\"}",
        b"{\"model\":\"cheap\",\"MODEL\":\"dear\"}",
        "{\"model\":\"cheap\",\"max_to\u{212A}ens\":100000}".as_bytes(),
        b"{\"model\":\"cheap\",\"max_tokens\":1,\"max_tokens\":100000}",
        b"{\"model\":\"cheap\",\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"content\":\"b\"}]}",
        b"{\"model\":\"cheap\",\"temperature\":NaN}",
        b"{\"model\":\"cheap\",\"temperature\":-Infinity}",
        b"{\"model\":\"cheap\",\"temperature\":1e999}",
        b"\xef\xbb\xbf{\"model\":\"cheap\"}",
        b"{\"model\":\"cheap\"}{\"model\":\"dear\"}",
        b"{\"model\":\"cheap\"} garbage",
        b"{\"model\":\"cheap\",\"user\":\"\xff\xfe\"}",
        b"{\"model\":[\"cheap\"]}",
        b"[{\"model\":\"cheap\"}]",
        b"{\"model\":\"cheap\",}",
        b"",
    ];
    for body in bodies {
        let text = String::from_utf8_lossy(body);
        let answer = chat(&world, body).await;
        assert_eq!(status(&answer), "400", "{text}: {answer}");
        assert!(answer.contains("\"tidegate_bad_json\""), "{text}: {answer}");
    }
    assert_eq!(upstream(&world), Vec::<String>::new());
    let answer = chat(&world, "{\"model\":\"cheap\",\"model\":\"dear\"}").await;
    assert!(answer.contains("the key \\\"model\\\" occurs twice in one object at line 1 column 24"), "{answer}");
}

#[tokio::test]
async fn a_list_of_fallback_models_does_not_bypass_the_model_list() {
    let world = world().await;
    for name in ["models", "m\\u006fdels", "fallbacks"] {
        let answer = chat(&world, format!("{{\"model\":\"cheap\",\"{name}\":[\"dear\"]}}")).await;
        assert_eq!(status(&answer), "400", "{name}: {answer}");
        assert!(answer.contains("tidegate_several_models") && answer.contains("expected one model"), "{answer}");
    }
    let answer = chat(&world, "{\"model\":\"cheap\",\"Models\":[\"dear\"]}").await;
    assert!(answer.contains("may be read as `models`"), "{answer}");
    assert_eq!(upstream(&world), Vec::<String>::new());
}

#[tokio::test]
async fn a_call_without_a_model_does_not_bypass_the_model_list() {
    let world = world().await;
    for body in ["{}", "{\"model\":null}", "{\"messages\":[]}"] {
        assert_eq!(status(&chat(&world, body).await), "404", "{body}");
    }
    assert_eq!(status(&chat(&world, "{\"model\":\"dear\"}").await), "404");
    assert_eq!(upstream(&world), Vec::<String>::new());
}

#[tokio::test]
async fn no_parameter_of_the_query_and_no_comma_selects_another_model() {
    let world = world().await;
    for query in [
        "model=dear",
        "a=1&Model=dear",
        "mod%65l=dear",
        "model[]=dear",
        "[model]=dear",
        "a=1;model=dear",
        "models=dear",
        "fallbacks%5B0%5D=dear",
    ] {
        let headers = "host: localhost\r\ncontent-type: application/json\r\n";
        let path = format!("/v1/chat/completions?{query}");
        let answer = call(&world, "POST", &path, headers, "{\"model\":\"cheap\"}").await;
        assert_eq!(status(&answer), "400", "{query}: {answer}");
        assert!(answer.contains("tidegate_several_models") && answer.contains("in the body"), "{query}: {answer}");
    }
    assert_eq!(status(&chat(&world, "{\"model\":\"cheap,dear\"}").await), "400");
    assert_eq!(upstream(&world), Vec::<String>::new());
    let headers = "host: localhost\r\ncontent-type: application/json\r\n";
    let answer = call(&world, "POST", "/v1/chat/completions?api-version=1", headers, "{\"model\":\"echo\"}").await;
    assert!(status(&answer) == "200" && answer.contains("completions?api-version=1\""), "{answer}");
}

#[tokio::test]
async fn a_call_without_a_model_does_not_bypass_the_limits_of_a_model() {
    let limits = "[[providers.models]]\nname = \"dear\"\nbudgets = { requests_per_day = 1 }";
    let world = World::new("", limits).await;
    for body in ["{}", "{\"model\":null}", "{\"messages\":[]}"] {
        let answer = chat(&world, body).await;
        assert!(status(&answer) == "404" && answer.contains("names no model"), "{body}: {answer}");
    }
    assert_eq!(upstream(&world), Vec::<String>::new());
}

#[tokio::test]
async fn no_spelling_of_a_model_bypasses_its_limits() {
    let limits = "[[providers.models]]\nname = \"dear\"\nbudgets = { requests_per_day = 1 }";
    let world = World::new("", limits).await;
    assert_eq!(status(&chat(&world, "{\"model\":\"dear\"}").await), "200");
    for (body, expected) in [
        ("{\"model\":\"DEAR\"}", "404"),
        ("{\"model\":\"dear \"}", "400"),
        ("{\"model\":\"\\u0000dear\"}", "400"),
        ("{\"model\":\"\"}", "400"),
    ] {
        assert_eq!(status(&chat(&world, body).await), expected, "{body}");
    }
    assert_eq!(world.seen.calls(), 1);
}

fn field(disposition: &str, value: &str) -> String {
    format!("--b\r\ncontent-disposition: form-data; {disposition}\r\n\r\n{value}\r\n")
}

#[tokio::test]
async fn a_form_must_have_exactly_one_model_field_and_it_selects_the_model() {
    let world = World::new("serves = [\"cheap\"]\nrename = { cheap = \"small\" }", "").await;
    let transcribe = async |body: String| {
        let headers = "host: localhost\r\ncontent-type: multipart/form-data; boundary=b\r\n";
        call(&world, "POST", "/v1/audio/transcriptions", headers, body).await
    };
    let (cheap, dear) = (field("name=\"model\"", "cheap"), field("name=\"model\"", "dear"));
    for body in [
        format!("{cheap}{dear}--b--\r\n"),
        format!("{cheap}{}--b--\r\n", field("name=\"Model\"", "dear")),
        format!("{cheap}{}--b--\r\n", field("name=\"model[]\"", "dear")),
        format!("{cheap}{}--b--\r\n", field("name=model; filename=\"x\"", "dear")),
        format!("{}--b--\r\n", field("name=\"model\"; filename=\"x\"", "cheap")),
        cheap.clone(),
        format!("{}--b--\r\n", field("name=\"model\"", "")),
    ] {
        let answer = transcribe(body.clone()).await;
        assert_eq!(status(&answer), "400", "{body}: {answer}");
        assert!(answer.contains("\"tidegate_bad_form\""), "{answer}");
    }
    for body in
        [format!("{dear}--b--\r\n"), format!("{}--b--\r\n", field("name=\"file\"; filename=\"model\"", "cheap"))]
    {
        assert_eq!(status(&transcribe(body.clone()).await), "404", "{body}");
    }
    assert_eq!(upstream(&world), Vec::<String>::new());
    // A second form after the end of the first is not forwarded.
    let file = field("name=\"file\"; filename=\"a.wav\"", "--bc\r\n\0RIFF");
    let answer = transcribe(format!("{file}{cheap}--b--\r\n{dear}--b--\r\n")).await;
    assert_eq!(status(&answer), "200", "{answer}");
    assert!(!answer.contains("dear") && answer.contains("multipart/form-data; boundary="), "{answer}");
}

#[tokio::test]
async fn a_model_list_request_with_a_body_is_rejected() {
    let world = World::new("", "").await;
    let headers = "host: localhost\r\ncontent-type: application/json\r\n";
    let answer = call(&world, "GET", "/v1/models", headers, "{\"model\":\"dear\"}").await;
    assert_eq!(status(&answer), "400", "{answer}");
    assert_eq!(upstream(&world), Vec::<String>::new());
}

#[tokio::test]
async fn the_largest_of_several_token_limits_is_charged_to_the_budget() {
    for body in [
        "{\"model\":\"held\",\"max_tokens\":900,\"max_output_tokens\":1}",
        "{\"model\":\"held\",\"max_completion_tokens\":9e2}",
        "{\"model\":\"held\",\"max_tokens\":\"900\"}",
        "{\"model\":\"held\",\"max_tokens\":300,\"n\":3}",
        // Characters outside ASCII count as at most one token for each byte.
        &format!("{{\"model\":\"held\",\"input\":\"{}\"}}", "海".repeat(300)),
        // So do digits, base64 and minified code.
        &format!("{{\"model\":\"held\",\"input\":\"{}\"}}", "7".repeat(900)),
        &format!("{{\"model\":\"held\",\"input\":\"{}\"}}", "aGVsbG8g".repeat(120)),
        &format!("{{\"model\":\"held\",\"input\":\"{}\"}}", "a=b;".repeat(250)),
    ] {
        let world = World::new("budgets = { tokens_per_day = 1000 }", "").await;
        let out = tokio::spawn(world.post(body.to_string()).send());
        world.until_counts((0, 1)).await;
        let budget = world.page("/why").await["resources"][0]["budgets"][0].clone();
        assert!(budget["reserved"].as_u64().unwrap() >= 900, "{body}: {budget}");
        world.seen.go.add_permits(1);
        out.await.unwrap().unwrap();
    }
}
