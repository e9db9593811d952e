//! Responses of providers: heads, error bodies, answers.

use std::collections::HashSet;
use std::time::SystemTime;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::fuzz;
use crate::app::provider;
use crate::app::provider::batch::{BatchResults, ResultReader};
use crate::http::{read_error_body, read_head};

const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "null",
    "true",
    "-1",
    "1e400",
    "18446744073709551616",
    "\\ud800",
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
    "é",
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
        let mut headers = HeaderMap::new();
        for line in bytes.split(|byte| *byte == b'\n') {
            let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':').unwrap_or(line.len()));
            let value = HeaderValue::from_bytes(value.strip_prefix(b":").unwrap_or_default().trim_ascii());
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
                headers.append(name, value);
            }
        }
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
    fuzz(&corpus, JSON, |bytes| drop(read_error_body(bytes, &headers, SystemTime::UNIX_EPOCH)));
}

#[test]
fn what_a_provider_says_about_batches_is_read_or_refused() {
    let corpus: [&[u8]; 3] = [
        br#"{"id":"b","status":"failed","errors":{"data":[{"code":"token_limit_exceeded","message":"full","line":3}]}}"#,
        br#"{"custom_id":"a","response":{"status_code":429,"body":{"error":{"message":"slow down"}}},"error":null}"#,
        br#"{"custom_id":"a","response":null,"error":{"code":"batch_expired","message":"late"}}"#,
    ];
    fuzz(&corpus, JSON, |bytes| {
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
    fuzz(&corpus, JSON, |bytes| {
        drop(provider::completion::read_completion(bytes, true));
        drop(provider::embedding::read_embedding(bytes, None));
        drop(provider::embedding::read_embedding(bytes, Some(3)));
        drop(provider::embedding::read_embeddings(bytes, 2, Some(3)));
    });
}
