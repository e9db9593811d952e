//! The files of results of a batch.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::SystemTime;

use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::Value;
use tidegate_core::budget::Usage;

use crate::app::provider::CallOutput;
use crate::app::provider::answer::{CallError, error_for, excerpt, unreadable};
use crate::app::provider::completion::{ChatAnswer, read_completion};

/// The result of one request of a batch.
pub type ChatResult = Result<CallOutput<ChatAnswer>, CallError>;

/// The results of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchResults {
    /// Those of its requests, by their names.
    pub by_request: HashMap<String, ChatResult>,
    /// The tokens of all of them.
    pub used: Usage,
    /// The answers without a token count.
    pub unreported: u32,
}

#[derive(Deserialize)]
struct RawResult {
    custom_id: String,
    #[serde(default)]
    response: Option<RawResponse>,
    #[serde(default)]
    error: Value,
}

#[derive(Deserialize)]
struct RawResponse {
    status_code: u16,
    #[serde(default)]
    body: Value,
}

impl BatchResults {
    /// Adds results. Of several for one request, the first answer counts, or else the first error.
    pub(super) fn add(&mut self, lines: impl Iterator<Item = (String, ChatResult)>) {
        for (id, result) in lines {
            match self.by_request.entry(id) {
                Entry::Vacant(entry) => drop(entry.insert(result)),
                Entry::Occupied(mut entry) if entry.get().is_err() && result.is_ok() => drop(entry.insert(result)),
                Entry::Occupied(_) => {}
            }
        }
    }

    /// Counts the tokens.
    pub(super) fn count(&mut self) {
        let charged = self.by_request.values().map(|result| match result {
            Ok(output) => (true, output.usage),
            Err(error) => error.charged_usage(),
        });
        charged.for_each(|(is_charged, usage)| match usage {
            None => self.unreported += u32::from(is_charged),
            Some(usage) => {
                self.used = Usage::tokens(
                    self.used.input_tokens.saturating_add(usage.input_tokens),
                    self.used.output_tokens.saturating_add(usage.output_tokens),
                );
            }
        });
    }
}

/// Reads a file of results. Requests that were not made, because the batch had ended before, are left out. So are lines
/// that cannot be read: their requests have no result. If that is each line, the file is something else.
pub(crate) fn read_results(body: &[u8]) -> Result<Vec<(String, ChatResult)>, CallError> {
    let (mut results, mut unread, mut is_read) = (Vec::new(), None, false);
    for line in body.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
        match serde_json::from_slice::<RawResult>(line) {
            Ok(raw) => {
                is_read = true;
                if !matches!(raw.error["code"].as_str(), Some("batch_expired" | "batch_cancelled")) {
                    results.push((raw.custom_id, read_result(raw.response, &raw.error)));
                }
            }
            Err(error) => unread = unread.or_else(|| Some(unreadable("a file of results", &error, line))),
        }
    }
    match unread {
        Some(error) if !is_read => Err(error),
        _ => Ok(results),
    }
}

/// Reads the result of one request.
fn read_result(response: Option<RawResponse>, error: &Value) -> ChatResult {
    let Some(RawResponse { status_code, body }) = response else {
        let message = error["message"].as_str().or(error["code"].as_str()).unwrap_or("it has no response");
        return Err(CallError::Server { status: 500, detail: excerpt(message) });
    };
    let body = body.to_string().into_bytes();
    let status = StatusCode::from_u16(status_code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let error = error_for(status, &HeaderMap::new(), &body, SystemTime::UNIX_EPOCH);
    match error.map_or_else(|| read_completion(&body, false), Err) {
        // The provider has tried for as long as the batch took. Only a limited number of further tries makes sense.
        Err(CallError::RateLimited { status, .. }) => {
            Err(CallError::Server { status, detail: "rate limited in a batch".to_string() })
        }
        // Like a rate limit, it would be retried without end.
        Err(CallError::QuotaExhausted { status, detail }) => Err(CallError::Server { status, detail }),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_line_of_results_is_read_by_its_status() {
        let answer = json!({ "choices": [{ "message": { "content": "a" } }], "usage": { "prompt_tokens": 4 } });
        let refused = json!({ "error": { "message": "slow down" } });
        let line = |id: &str, status: u16, body: &Value| {
            json!({ "custom_id": id, "response": { "status_code": status, "body": body }, "error": null }).to_string()
        };
        let lines = [
            line("ok", 200, &answer),
            String::new(),
            line("limited", 429, &refused),
            line("invalid", 400, &refused),
            line("unpaid", 402, &refused),
            line("spent", 429, &json!({ "error": { "message": "no funds", "code": "insufficient_quota" } })),
            line("said", 200, &json!({ "error": { "message": "no funds", "code": "insufficient_quota" } })),
            json!({ "custom_id": "none", "error": { "code": "x", "message": "broken" } }).to_string(),
            json!({ "custom_id": "late", "response": null, "error": { "code": "batch_expired" } }).to_string(),
        ];
        let results: HashMap<_, _> = read_results(lines.join("\n").as_bytes()).unwrap().into_iter().collect();
        assert_eq!(results["ok"].as_ref().map(|output| output.value.text.as_str()), Ok("a"));
        assert!(matches!(results["limited"], Err(CallError::Server { status: 429, .. })), "retries are counted");
        assert!(matches!(results["invalid"], Err(CallError::Rejected { status: 400, .. })));
        assert_eq!(results["none"], Err(CallError::Server { status: 500, detail: "broken".to_string() }));
        assert!(matches!(results["unpaid"], Err(CallError::Server { status: 402, .. })));
        assert_eq!(results["spent"], Err(CallError::Server { status: 429, detail: "no funds".to_string() }));
        assert!(matches!(results["said"], Err(CallError::Server { .. })), "{:?}", results["said"]);
        assert_eq!(results.len(), 7, "a request that was not made has no result");
    }

    #[test]
    fn a_line_that_cannot_be_read_leaves_the_others_and_a_file_of_such_lines_is_unreadable() {
        let names = read_results(b"{\"custom_id\":\"a\"}\nx\n{\"custom_id\":\"b\"}\n{\"custom").unwrap();
        assert_eq!(names.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(matches!(read_results(b"<html>\n</html>"), Err(CallError::Unreadable { .. })));
        let refused = read_results(br#"{"error":{"message":"no","code":"insufficient_quota"}}"#);
        assert!(matches!(refused, Err(CallError::QuotaExhausted { .. })), "an error of the server: {refused:?}");
        assert_eq!(read_results(b"\n"), Ok(Vec::new()));
    }

    #[test]
    fn of_two_results_for_a_request_the_first_answer_counts_and_its_tokens() {
        let answer = |tokens: Option<u32>| {
            Ok(CallOutput { value: ChatAnswer::default(), usage: tokens.map(|tokens| Usage::tokens(tokens, 0)) })
        };
        let failed = || Err(CallError::Server { status: 500, detail: String::new() });
        let lines =
            [("a", failed()), ("a", answer(Some(3))), ("a", answer(Some(5))), ("b", answer(None)), ("b", failed())];
        let mut results = BatchResults::default();
        results.add(lines.into_iter().map(|(id, result)| (id.to_string(), result)));
        results.count();
        assert_eq!((results.used, results.unreported), (Usage::tokens(3, 0), 1));
        assert!(results.by_request.len() == 2 && results.by_request.values().all(Result::is_ok));
    }
}
