//! The files of results of a batch, which may be much larger than what is wanted of them: they are read line
//! by line.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::Value;
use tidegate_core::budget::Usage;

use crate::app::provider::CallOutput;
use crate::app::provider::answer::{CallError, error_for, excerpt, unreadable};
use crate::app::provider::completion::{ChatAnswer, read_completion};
use crate::app::provider::http::MAX_BODY_BYTES;

/// The longest line that is read: one with the longest answer of a call, and what is around it.
const MAX_LINE_BYTES: usize = MAX_BODY_BYTES + (1 << 20);

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
    /// Adds a result. Of several for one request, the first answer counts, or else the first error.
    fn add(&mut self, id: String, result: ChatResult) {
        match self.by_request.entry(id) {
            Entry::Vacant(entry) => drop(entry.insert(result)),
            Entry::Occupied(mut entry) if entry.get().is_err() && result.is_ok() => drop(entry.insert(result)),
            Entry::Occupied(_) => {}
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

/// Reads the results of the `wanted` requests from a file of results. Holds one line of it at a time.
///
/// Requests that were not made, because the batch had ended before, are left out. So are lines that cannot be
/// read or are longer than [`MAX_LINE_BYTES`]: their requests have no result. If that is each line, the file
/// is something else.
pub(crate) struct ResultReader<'a> {
    wanted: &'a HashSet<&'a str>,
    results: &'a mut BatchResults,
    /// The beginning of the line whose end has not come yet.
    line: Vec<u8>,
    /// Whether a line was read.
    is_read: bool,
    /// The error of the first line that cannot be read.
    unread: Option<CallError>,
}

impl<'a> ResultReader<'a> {
    /// Creates a reader of one file, which adds to `results`.
    pub(crate) fn new(wanted: &'a HashSet<&'a str>, results: &'a mut BatchResults) -> Self {
        Self { wanted, results, line: Vec::new(), is_read: false, unread: None }
    }

    /// Reads the next piece of the file, which may end within a line.
    pub(crate) fn read(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            // The rest of a longer line is left out, and what is left of it is not valid.
            let room = MAX_LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    /// Reads the last line. Fails if no line of the file could be read, and there is one.
    pub(crate) fn finish(mut self) -> Result<(), CallError> {
        self.end_line();
        match self.unread {
            Some(error) if !self.is_read => Err(error),
            _ => Ok(()),
        }
    }

    fn end_line(&mut self) {
        let line = self.line.trim_ascii();
        match serde_json::from_slice::<RawResult>(line) {
            _ if line.is_empty() => {}
            Ok(raw) => {
                self.is_read = true;
                let is_made = !matches!(raw.error["code"].as_str(), Some("batch_expired" | "batch_cancelled"));
                if is_made && self.wanted.contains(raw.custom_id.as_str()) {
                    self.results.add(raw.custom_id, read_result(raw.response, &raw.error));
                }
            }
            Err(error) if self.unread.is_none() => {
                self.unread = Some(unreadable("a file of results", &error, line));
            }
            Err(_) => {}
        }
        self.line.clear();
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
        // The provider has tried for as long as the batch took. Only a limited number of further tries makes
        // sense.
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
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    /// Reads the results of these requests from a file that arrives in two pieces.
    fn read(wanted: &[&str], file: &[u8]) -> Result<HashMap<String, ChatResult>, CallError> {
        let (wanted, mut results) = (wanted.iter().copied().collect(), BatchResults::default());
        let mut reader = ResultReader::new(&wanted, &mut results);
        let (first, second) = file.split_at(file.len() / 2);
        reader.read(first);
        reader.read(second);
        reader.finish()?;
        Ok(results.by_request)
    }

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
        let wanted = ["ok", "limited", "invalid", "unpaid", "spent", "said", "none", "late", "lost"];
        let results = read(&wanted, lines.join("\n").as_bytes()).unwrap();
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
        let names =
            |file: &[u8]| -> Result<BTreeSet<String>, CallError> { Ok(read(&["a", "b"], file)?.into_keys().collect()) };
        let both = Ok(["a", "b"].map(String::from).into());
        assert_eq!(names(b"{\"custom_id\":\"a\"}\nx\n{\"custom_id\":\"c\"}\r\n{\"custom_id\":\"b\"}\n{\"custom"), both);
        assert!(matches!(names(b"<html>\n</html>"), Err(CallError::Unreadable { .. })));
        let refused = names(br#"{"error":{"message":"no","code":"insufficient_quota"}}"#);
        assert!(matches!(refused, Err(CallError::QuotaExhausted { .. })), "an error of the server: {refused:?}");
        assert_eq!(names(b"\n"), Ok(BTreeSet::new()));
    }

    #[test]
    fn of_a_large_file_one_line_is_held_at_a_time_wherever_its_pieces_end() {
        let text = "x".repeat(100_000);
        let line = |id: &str| {
            let body = json!({ "choices": [{ "message": { "content": text } }] });
            json!({ "custom_id": id, "response": { "status_code": 200, "body": body } }).to_string() + "\n"
        };
        let (other, mine) = (line("other"), line("mine"));
        // 40 MB in pieces that are a little longer than a line.
        let file = other.repeat(10) + &mine;
        let (wanted, mut results) = (HashSet::from(["mine"]), BatchResults::default());
        let mut reader = ResultReader::new(&wanted, &mut results);
        for _ in 0..40 {
            file.as_bytes().chunks(100_500).for_each(|piece| reader.read(piece));
            assert!(reader.line.capacity() < 4 * text.len(), "{}", reader.line.capacity());
        }
        reader.finish().unwrap();
        assert_eq!(results.by_request.len(), 1);
        assert!(results.by_request["mine"].as_ref().is_ok_and(|answer| answer.value.text == text));
    }

    #[test]
    fn a_line_without_an_end_is_not_held_as_a_whole() {
        let (wanted, mut results) = (HashSet::from(["a", "b"]), BatchResults::default());
        let mut reader = ResultReader::new(&wanted, &mut results);
        reader.read(b"{\"custom_id\":\"a\"}\n{\"custom_id\":\"");
        let piece = vec![b'x'; 1 << 20];
        (0..40).for_each(|_| reader.read(&piece));
        assert_eq!(reader.line.len(), MAX_LINE_BYTES);
        reader.read(b"\"}\n{\"custom_id\":\"b\"}");
        reader.finish().unwrap();
        assert_eq!(results.by_request.len(), 2);
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
        for (id, result) in lines {
            results.add(id.to_string(), result);
        }
        results.count();
        assert_eq!((results.used, results.unreported), (Usage::tokens(3, 0), 1));
        assert!(results.by_request.len() == 2 && results.by_request.values().all(Result::is_ok));
    }
}
