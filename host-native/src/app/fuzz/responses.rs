//! Responses of providers: heads, error bodies, answers.

use std::collections::HashSet;
use std::time::SystemTime;

use http::{HeaderMap, StatusCode};

use super::{fuzz, header_map, json_tokens};
use crate::app::provider;
use crate::app::provider::CallOutput;
use crate::app::provider::answer::CallError;
use crate::app::provider::batch::{BatchResults, ResultReader};
use crate::app::provider::completion::ChatAnswer;
use crate::app::provider::conversation::Conversation;
use crate::app::provider::image::Source;
use crate::http::{read_error_body, read_head};

/// What errors, batches and answers of chat completions are made of.
const NAMES: &[&str] = &[
    "\"error\":",
    "\"code\":",
    "\"message\":",
    "\"usage\":",
    "\"choices\":",
    "\"content\":",
    "\"tool_calls\":",
    "\"function\":",
    "\"prompt_tokens\":",
    "\"data\":",
    "\"embedding\":",
    "429",
    "\"type\":",
    "\"insufficient_quota\"",
    "\"retry_after\":",
    "Please try again in 6m0s",
];

#[test]
fn the_head_of_a_response_is_read_whatever_its_headers_say() {
    let corpus: [&[u8]; 3] = [
        b"retry-after: 3\nx-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 1m2s\n",
        b"retry-after-ms: 250\nanthropic-ratelimit-requests-limit: 50\nanthropic-ratelimit-requests-reset: 2026-01-02T03:04:05Z\n",
        b"date: Wed, 21 Oct 2026 07:28:00 GMT\nretry-after: Wed, 21 Oct 2026 07:28:09 GMT\nratelimit: \"default\";r=0;t=30\n",
    ];
    let tokens = [
        "\n",
        ": ",
        "-1",
        "1e308",
        "nan",
        "18446744073709551616",
        "6m0s",
        "1h",
        "250ms",
        "0",
        ";",
        "=",
        ",",
        "retry-after",
        "x-ratelimit-limit-tokens",
        "x-ratelimit-reset-tokens",
        "ratelimit-policy",
        "\"",
        "Z",
        "9999-12-31T23:59:60Z",
        "+00:00",
    ];
    fuzz(&corpus, &tokens, |bytes| {
        let headers = header_map(bytes);
        for status in [200, 429, 503] {
            let _ = read_head(StatusCode::from_u16(status).expect("a status"), &headers, SystemTime::UNIX_EPOCH);
        }
    });
}

#[test]
fn the_body_of_an_error_is_read_whatever_it_says() {
    let corpus: [&[u8]; 3] = [
        br#"{"error":{"message":"Rate limit reached. Please try again in 6m0s.","type":"tokens","code":"rate_limit_exceeded"}}"#,
        br#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"17s"}]}}"#,
        br#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
    ];
    let headers = HeaderMap::new();
    fuzz(&corpus, &json_tokens(NAMES), |bytes| drop(read_error_body(bytes, &headers, SystemTime::UNIX_EPOCH)));
}

#[test]
fn what_a_provider_says_about_batches_is_read_or_refused() {
    let corpus: [&[u8]; 3] = [
        br#"{"id":"b","status":"failed","errors":{"data":[{"code":"token_limit_exceeded","message":"full","line":3}]}}"#,
        br#"{"custom_id":"a","response":{"status_code":429,"body":{"error":{"message":"slow down"}}},"error":null}"#,
        br#"{"custom_id":"a","response":null,"error":{"code":"batch_expired","message":"late"}}"#,
    ];
    fuzz(&corpus, &json_tokens(NAMES), |bytes| {
        drop(provider::batch::read_batch(bytes));
        let (wanted, mut results) = (HashSet::from(["a"]), BatchResults::default());
        let mut reader = ResultReader::new(&wanted, &mut results);
        bytes.chunks(7).for_each(|piece| reader.read(piece));
        drop(reader.finish());
    });
}

#[test]
fn an_answer_is_read_or_refused() {
    let corpus: [&[u8]; 4] = [
        br#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}}]}"#,
        br#"{"choices":[{"message":{"role":"assistant","content":"A title"}}],"usage":{"prompt_tokens":12,"completion_tokens":34}}"#,
        br#"{"data":[{"embedding":[0.5,-1e-3,2]}],"usage":{"prompt_tokens":4,"total_tokens":4}}"#,
        br#"{"error":{"message":"no such model","code":"model_not_found"}}"#,
    ];
    fuzz(&corpus, &json_tokens(NAMES), |bytes| {
        drop(provider::completion::read_completion(bytes, true));
        drop(provider::embedding::read_embedding(bytes, None));
        drop(provider::embedding::read_embedding(bytes, Some(3)));
        drop(provider::embedding::read_embeddings(bytes, 2, Some(3)));
    });
}

/// An answer has a text or calls of tools, unless it was cut off. An error says something.
fn check_answer(read: Result<CallOutput<ChatAnswer>, CallError>, has_tools: bool, bytes: &[u8]) {
    match read {
        Ok(CallOutput { value: answer, .. }) => {
            let is_empty = answer.text.is_empty() && answer.turn.is_none();
            assert!(!is_empty || answer.is_truncated, "{:?}", String::from_utf8_lossy(bytes));
            assert!(has_tools || answer.turn.is_none(), "no tools were offered");
            assert!(answer.reasoning.is_none_or(|reasoning| !reasoning.trim().is_empty()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// What answers of the Messages and Responses APIs and images are made of.
const PARTS: &[&str] = &[
    "\"type\":",
    "\"text\"",
    "\"thinking\"",
    "\"tool_use\"",
    "\"message\"",
    "\"function_call\"",
    "\"reasoning\"",
    "\"refusal\":\"no\"",
    "\"stop_reason\":",
    "\"status\":",
    "\"incomplete\"",
    "\"failed\"",
    "\"usage\":",
    "\"output_tokens\":",
    "<think>",
    "</think>",
    "\"b64_json\":",
    "\"url\":",
    "data:image/png;base64,",
    "=",
];

#[test]
fn an_answer_of_the_messages_api_has_a_text_or_calls_or_is_refused() {
    let corpus: [&[u8]; 3] = [
        br#"{"content":[{"type":"thinking","thinking":"Hm."},{"type":"text","text":"A title"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":4}}"#,
        br#"{"content":[{"type":"tool_use","id":"t","name":"f","input":{"a":1}}],"stop_reason":"tool_use"}"#,
        br#"{"content":[],"stop_reason":"max_tokens"}"#,
    ];
    let conversation = Conversation::default();
    let format =
        serde_json::json!({ "type": "json_schema", "json_schema": { "name": "g", "schema": { "type": "integer" } } });
    let with_format = Conversation { response_format: Some(format), ..Conversation::default() };
    fuzz(&corpus, &json_tokens(PARTS), |bytes| {
        for conversation in [&conversation, &with_format] {
            check_answer(provider::messages::read(bytes, conversation), false, bytes);
        }
    });
}

#[test]
fn an_answer_of_the_responses_api_has_a_text_or_calls_or_is_refused() {
    let corpus: [&[u8]; 3] = [
        br#"{"status":"completed","output":[{"type":"reasoning","summary":[{"text":"Hm."}]},{"type":"message","content":[{"type":"output_text","text":"A title"}]}],"usage":{"input_tokens":3,"output_tokens":4}}"#,
        br#"{"status":"completed","output":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}]}"#,
        br#"{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}"#,
    ];
    fuzz(&corpus, &json_tokens(PARTS), |bytes| {
        for has_tools in [false, true] {
            check_answer(provider::responses::read(bytes, has_tools), has_tools, bytes);
        }
    });
}

#[test]
fn an_image_of_an_answer_has_a_content_or_an_address_or_is_refused() {
    let corpus: [&[u8]; 3] = [
        br#"{"data":[{"b64_json":"iVBORw0KGgo="}],"usage":{"input_tokens":3,"output_tokens":4}}"#,
        br#"{"data":[{"url":"https://cdn.test/a.png"}]}"#,
        br#"{"data":[{"url":"data:image/png;base64,iVBORw0KGgo="}]}"#,
    ];
    fuzz(&corpus, &json_tokens(PARTS), |bytes| match provider::image::read(bytes) {
        // Base64 is longer than what it encodes.
        Ok(CallOutput { value: Source::Content(image), .. }) => assert!(image.len() < bytes.len()),
        Ok(CallOutput { value: Source::Address(url), .. }) => assert!(!url.scheme().is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    });
}
