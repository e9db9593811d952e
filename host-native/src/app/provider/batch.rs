//! The batch API of OpenAI and of providers that are compatible with it: many chat requests in one file,
//! which the provider answers within a day, for a lower price.
//!
//! ```text
//! POST /files           the requests, a line of JSON each        -> the id of the file
//! GET  /files/{id}      only if the file was pending             -> ask again until it is ready
//! POST /batches         that id                                  -> the id of the batch
//! GET  /batches/{id}    validating, in_progress, finalizing      -> ask again later
//!                       completed, expired, cancelled            -> the ids of the files of results
//!                       completed, without the id of the answers -> ask again
//!                       failed                                   -> the errors of the whole file
//! GET  /files/{id}/content    a line of JSON for each request that was answered, in any order
//! GET  /batches         all batches, the newest first
//! ```
//!
//! Answers are in one file and errors in another. Either is missing if it would be empty, and a request may
//! be in neither of them.

mod results;

use std::collections::HashSet;

use reqwest::multipart::{Form, Part};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_core::budget::Usage;
use tidegate_core::time::Duration;

use super::answer::{CallError, excerpt, unreadable};
use super::chat::{ChatClient, ChatEndpoint};
use super::conversation::Conversation;
use super::http::{HttpClient, MAX_BODY_BYTES, RequestExtras};
use crate::app::data::digest::FileDigest;

pub(crate) use results::ResultReader;
pub use results::{BatchResults, ChatResult};

/// The most requests of a batch.
pub const MAX_REQUESTS: u32 = 50_000;

/// The most bytes of a file of requests.
pub const MAX_FILE_BYTES: usize = 200_000_000;

/// The most bytes of a file of results: some 20 kB for each of the most requests.
const MAX_RESULT_BYTES: usize = 1 << 30;

/// The maximum time in which a file is sent or received. The timeout of a model is meant for one answer.
const FILE_TIMEOUT: Duration = Duration::from_secs(900);

/// The address of each request of a batch. Providers with another base path have the same one here.
const ENDPOINT: &str = "/v1/chat/completions";

/// The time in which a batch is answered. Most providers have no other one.
const COMPLETION_WINDOW: &str = "24h";

/// The key in the metadata of a batch that has the id of its file of requests. Gateways may replace that id
/// elsewhere.
const FILE_KEY: &str = "tidegate_file";

/// The batches of a page of the list.
const PAGE: &str = "100";

/// A client of one chat model whose requests go in batches.
#[derive(Clone, Debug)]
pub struct BatchClient {
    chat: ChatClient,
    files: HttpClient,
    batches: HttpClient,
    timeout: Duration,
}

/// A file of requests at the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadedFile {
    /// Its id.
    pub id: String,
    /// Whether a batch can be created of it. Some providers process it first.
    pub is_ready: bool,
}

/// A request of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRequest {
    /// Its name in the batch, and in the file of results.
    pub id: String,
    /// Its line in the file of requests, without the end of the line.
    pub line: String,
    /// Its estimated tokens.
    pub estimate: Usage,
}

/// What a provider says about a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchState {
    /// Its id.
    pub id: String,
    /// How far it is.
    pub status: BatchStatus,
    /// The requests that were answered or have failed.
    pub done: u64,
    /// All requests; 0 as long as they are not counted.
    pub total: u64,
    /// The files of results.
    pub files: Vec<String>,
    /// When it was created, in seconds since the Unix epoch.
    created_at: u64,
    /// The ids by which the file of its requests is known.
    input: Vec<String>,
}

/// How far a batch is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchStatus {
    /// Not at its end. Holds the name that the provider has for it.
    Pending(String),
    /// It has ended, and has answers, but does not name their file yet.
    Unfinished,
    /// It has ended, in time.
    Completed,
    /// It has ended, because its time was over.
    Expired,
    /// It has ended, because it was cancelled at the provider.
    Cancelled,
    /// No request was made.
    Failed {
        /// Whether the provider has too many requests waiting, and takes the batch later.
        is_limit: bool,
        /// The messages of the provider, truncated.
        why: String,
    },
}

#[derive(Deserialize)]
struct RawFile {
    id: String,
    #[serde(default)]
    status: Value,
}

/// Fields that are not read the same way everywhere are values.
#[derive(Deserialize)]
struct RawBatch {
    id: String,
    status: String,
    #[serde(default)]
    created_at: Value,
    #[serde(default)]
    input_file_id: Value,
    #[serde(default)]
    output_file_id: Value,
    #[serde(default)]
    error_file_id: Value,
    #[serde(default)]
    request_counts: Value,
    #[serde(default)]
    errors: Value,
    #[serde(default)]
    metadata: Value,
}

#[derive(Deserialize)]
struct RawList {
    data: Vec<RawBatch>,
    #[serde(default)]
    has_more: bool,
}

impl From<RawBatch> for BatchState {
    fn from(raw: RawBatch) -> Self {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_string);
        let count = |key: &str| raw.request_counts[key].as_u64().unwrap_or(0);
        let status = match raw.status.to_ascii_lowercase().as_str() {
            "completed" if count("completed") > 0 && text(&raw.output_file_id).is_none() => BatchStatus::Unfinished,
            "completed" => BatchStatus::Completed,
            "expired" => BatchStatus::Expired,
            "cancelled" | "canceled" => BatchStatus::Cancelled,
            "failed" => failure(&raw.errors),
            _ => BatchStatus::Pending(excerpt(&raw.status).replace('_', " ")),
        };
        Self {
            status,
            done: count("completed").saturating_add(count("failed")),
            total: count("total"),
            files: [&raw.output_file_id, &raw.error_file_id].into_iter().filter_map(text).collect(),
            created_at: raw.created_at.as_u64().unwrap_or(u64::MAX),
            input: [&raw.input_file_id, &raw.metadata[FILE_KEY]].into_iter().filter_map(text).collect(),
            id: raw.id,
        }
    }
}

/// Reads the field `errors` of a batch that has failed.
fn failure(errors: &Value) -> BatchStatus {
    let list = errors["data"].as_array().or(errors.as_array()).map_or(&[][..], Vec::as_slice);
    let message = |error: &Value| {
        let text = error["message"].as_str().or(error.as_str()).map(excerpt)?;
        Some(error["line"].as_u64().map_or(text.clone(), |line| format!("{text} (line {line})")))
    };
    // The first ones: the same mistake may be in every line.
    let messages: Vec<String> = list.iter().filter_map(message).take(3).collect();
    let is_limit = list.iter().any(|error| error["code"].as_str().is_some_and(|code| code.ends_with("limit_exceeded")));
    let why = if messages.is_empty() { "without a reason".to_string() } else { messages.join("; ") };
    BatchStatus::Failed { is_limit, why }
}

impl BatchClient {
    /// Creates a client with its own connection pool. Fails if TLS cannot be set up.
    pub fn new(endpoint: ChatEndpoint, extras: RequestExtras) -> Result<Self, String> {
        let root = endpoint.clone().client("")?.with_extras(&extras);
        Ok(Self {
            files: root.below(&["files"]).with_timeout(FILE_TIMEOUT),
            batches: root.below(&["batches"]),
            timeout: endpoint.timeout,
            chat: ChatClient::new(endpoint)?.with_extras(extras),
        })
    }

    /// Returns the client of the same model for calls without a batch.
    #[must_use]
    pub fn chat(&self) -> &ChatClient {
        &self.chat
    }

    /// Returns the maximum duration of a request that sends or receives no file.
    #[must_use]
    pub fn timeout(&self) -> std::time::Duration {
        self.timeout.into()
    }

    /// Returns the request of a cell. Its name depends on the column, the row and the body alone, so that the
    /// answer to it can be found again.
    #[must_use]
    pub fn request(&self, column: &str, row: u64, conversation: &Conversation, estimate: Usage) -> BatchRequest {
        let body = serde_json::to_value(self.chat.body(conversation)).unwrap_or_default();
        let digest = FileDigest::of_bytes(format!("{column}\n{row}\n{body}").as_bytes()).sha256;
        // Providers allow 64 characters. The beginning is for people who look at the batches there.
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
        let start: String = column.chars().filter(is_plain).take(16).collect();
        let id = format!("{start}-{row}-{}", digest.get(..24).unwrap_or_default());
        let line = json!({ "custom_id": id, "method": "POST", "url": ENDPOINT, "body": body }).to_string();
        BatchRequest { id, line, estimate }
    }

    /// Sends a file of requests.
    pub async fn upload(&self, requests: Vec<u8>) -> Result<UploadedFile, CallError> {
        let part = Part::bytes(requests).file_name("requests.jsonl").mime_str("application/jsonl");
        let part = part.map_err(|error| CallError::BatchBlocked { detail: error.to_string() })?;
        let form = Form::new().text("purpose", "batch").part("file", part);
        self.files.post_form(form, read_file).await
    }

    /// Returns the state of an uploaded file.
    pub async fn file(&self, file: &str) -> Result<UploadedFile, CallError> {
        self.files.below(&[file]).with_timeout(self.timeout).get(&[], MAX_BODY_BYTES, read_file).await
    }

    /// Creates the batch of an uploaded file.
    pub async fn create(&self, file: &str) -> Result<BatchState, CallError> {
        let body = json!({
            "input_file_id": file,
            "endpoint": ENDPOINT,
            "completion_window": COMPLETION_WINDOW,
            "metadata": { FILE_KEY: file },
        });
        self.batches.post(&body, read_batch).await.map(|state| self.redacted(state))
    }

    /// Returns the state of a batch.
    pub async fn state(&self, batch: &str) -> Result<BatchState, CallError> {
        self.batches.below(&[batch]).get(&[], MAX_BODY_BYTES, read_batch).await.map(|state| self.redacted(state))
    }

    /// Removes secrets from the texts of the provider.
    fn redacted(&self, mut state: BatchState) -> BatchState {
        if let BatchStatus::Pending(text) | BatchStatus::Failed { why: text, .. } = &mut state.status {
            *text = self.batches.redact_text(text);
        }
        state
    }

    /// Looks for the batch of an uploaded file in the list of all batches, back to those that were created
    /// before `since`, in seconds since the Unix epoch. A batch that has failed is left out: its file may be
    /// in a later one.
    pub async fn find(&self, file: &str, since: u64) -> Result<Option<BatchState>, CallError> {
        let mut after: Option<String> = None;
        loop {
            let query: Vec<_> = [("limit", PAGE)].into_iter().chain(after.as_deref().map(|id| ("after", id))).collect();
            let RawList { data, has_more } = self.batches.get(&query, MAX_BODY_BYTES, read_list).await?;
            let page: Vec<BatchState> = data.into_iter().map(BatchState::from).collect();
            let last = page.last().map(|batch| (batch.id.clone(), batch.created_at));
            let is_wanted = |batch: &BatchState| {
                !matches!(batch.status, BatchStatus::Failed { .. }) && batch.input.iter().any(|input| input == file)
            };
            if let Some(found) = page.into_iter().find(is_wanted) {
                return Ok(Some(self.redacted(found)));
            }
            match last {
                // A provider that returns the same page again has no further one.
                Some((id, created_at)) if has_more && created_at >= since && after.as_ref() != Some(&id) => {
                    after = Some(id);
                }
                _ => return Ok(None),
            }
        }
    }

    /// Returns the results of these requests in these files.
    pub async fn results(&self, files: &[String], requests: &[String]) -> Result<BatchResults, CallError> {
        let wanted: HashSet<&str> = requests.iter().map(String::as_str).collect();
        let mut results = BatchResults::default();
        for file in files {
            let mut reader = ResultReader::new(&wanted, &mut results);
            let content = self.files.below(&[file, "content"]);
            content.get_pieces(MAX_RESULT_BYTES, |piece| reader.read(piece)).await?;
            reader.finish().map_err(|error| self.files.redact(error))?;
        }
        results.count();
        let errors = results.by_request.values_mut().filter_map(|result| result.as_mut().err());
        errors.for_each(|error| *error = self.files.redact(error.clone()));
        Ok(results)
    }

    /// Checks that the server can be reached, accepts the key and has batches.
    pub async fn check(&self) -> Result<(), CallError> {
        self.batches.get(&[("limit", "1")], MAX_BODY_BYTES, |_| Ok(())).await
    }
}

fn read_file(body: &[u8]) -> Result<UploadedFile, CallError> {
    let what = "an uploaded file";
    let RawFile { id, status } = serde_json::from_slice(body).map_err(|error| unreadable(what, &error, body))?;
    match status.as_str().unwrap_or_default().to_ascii_lowercase().as_str() {
        "pending" | "running" | "processing" => Ok(UploadedFile { id, is_ready: false }),
        "error" => {
            let detail = "the provider could not process it".to_string();
            Err(CallError::Unreadable { what, detail, usage: None })
        }
        _ => Ok(UploadedFile { id, is_ready: true }),
    }
}

pub(crate) fn read_batch(body: &[u8]) -> Result<BatchState, CallError> {
    let raw: Result<RawBatch, _> = serde_json::from_slice(body);
    raw.map(BatchState::from).map_err(|error| unreadable("a batch", &error, body))
}

fn read_list(body: &[u8]) -> Result<RawList, CallError> {
    serde_json::from_slice(body).map_err(|error| unreadable("a list of batches", &error, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::provider::conversation::{Message, Role};

    fn state(batch: &Value) -> BatchState {
        read_batch(batch.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_batch_that_is_not_at_its_end_has_the_counts_of_its_requests() {
        let counts = json!({ "total": 5, "completed": 2, "failed": 1 });
        let batch =
            state(&json!({ "id": "b", "status": "in_progress", "output_file_id": "", "request_counts": counts }));
        assert_eq!((batch.status, batch.done, batch.total), (BatchStatus::Pending("in progress".to_string()), 3, 5));
        assert_eq!(batch.files, Vec::<String>::new(), "an empty id is no file");
        let bare = state(&json!({ "id": "b", "status": "COMPLETED", "errors": null, "error_file_id": "e" }));
        assert_eq!((bare.status, bare.files), (BatchStatus::Completed, vec!["e".to_string()]));
        let status = |status: &str, file: &str| {
            let counts = json!({ "total": 2, "completed": 2 });
            state(&json!({ "id": "b", "status": status, "output_file_id": file, "request_counts": counts })).status
        };
        assert_eq!(
            (status("completed", ""), status("completed", "o")),
            (BatchStatus::Unfinished, BatchStatus::Completed)
        );
        assert_eq!(status("canceled", ""), BatchStatus::Cancelled, "another spelling");
    }

    #[test]
    fn a_failed_batch_has_the_messages_of_the_provider_and_a_full_queue_is_a_limit() {
        let failed = |code: &str| {
            let error = json!({ "code": code, "line": 3, "message": "no" });
            state(&json!({ "id": "b", "status": "failed", "errors": { "object": "list", "data": [error] } })).status
        };
        let of = |is_limit| BatchStatus::Failed { is_limit, why: "no (line 3)".to_string() };
        assert_eq!((failed("invalid_json_line"), failed("token_limit_exceeded")), (of(false), of(true)));
        let why = "without a reason".to_string();
        assert_eq!(
            state(&json!({ "id": "b", "status": "failed" })).status,
            BatchStatus::Failed { is_limit: false, why }
        );
    }

    #[test]
    fn a_file_may_be_used_unless_the_provider_still_processes_it() {
        let read = |status: &str| read_file(format!("{{\"id\":\"f\"{status}}}").as_bytes()).map(|file| file.is_ready);
        assert_eq!(
            (read(""), read(",\"status\":\"uploaded\""), read(",\"status\":\"processed\"")),
            (Ok(true), Ok(true), Ok(true))
        );
        assert_eq!(read(",\"status\":\"pending\""), Ok(false));
        assert!(matches!(read(",\"status\":\"error\""), Err(CallError::Unreadable { .. })));
    }

    #[test]
    fn a_request_has_the_same_name_whenever_its_column_row_and_body_are_the_same() {
        let client = BatchClient::new(ChatEndpoint::local("http://127.0.0.1/v1"), RequestExtras::default()).unwrap();
        let name = |column: &str, row, prompt: &str| {
            let messages = vec![Message::text(Role::User, prompt)];
            let conversation = Conversation { messages, ..Conversation::default() };
            client.request(column, row, &conversation, Usage::default()).id
        };
        let first = name("a_title", 7, "x");
        assert!(first.starts_with("a_title-7-") && first == name("a_title", 7, "x"), "{first}");
        assert!(
            [name("a_title", 7, "y"), name("a_title", 8, "x"), name("Ätitle", 7, "x")].iter().all(|id| *id != first)
        );
        assert!(name(&"long".repeat(99), u64::MAX, "x").len() <= 64);
    }
}
