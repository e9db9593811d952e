//! Answers of real providers, in `tests/data/answers`: the fields and values that each one sends, with other
//! texts and ids. What is expected of them is what the provider means.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_core::request::response::RejectionReason;

use super::completion::{ChatAnswer, read_completion};
use super::conversation::{Conversation, OfferedTool};
use super::image::Source;
use super::{CallError, CallOutput, embedding, image, messages, responses};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    Chat,
    Responses,
    Messages,
    Embeddings,
    Images,
}

/// One file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    /// Where the shape is from, with its date if that is known.
    #[serde(rename = "source")]
    _source: String,
    protocol: Protocol,
    /// The names of the tools in the request.
    #[serde(default)]
    tools: Vec<String>,
    /// The JSON Schema for the answer in the request.
    schema: Option<Value>,
    body: Value,
    expected: Expected,
}

/// What is read: an answer, or the error `failure`. A field that is left out is absent in the answer, too.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Expected {
    text: Option<String>,
    reasoning: Option<String>,
    is_truncated: bool,
    /// The name and the arguments of each call of a tool.
    calls: Vec<(String, Value)>,
    embeddings: Vec<Value>,
    /// The image in base64, or its address.
    image: Option<String>,
    failure: Option<Failure>,
    /// The message of the provider in the error.
    detail: Option<String>,
    /// Tokens of input and output.
    usage: Option<(u32, u32)>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Failure {
    /// Withheld by a filter of the provider: final.
    ContentFiltered,
    /// Refused by the model: final.
    Refused,
    /// Complete, but without an answer: final.
    Malformed,
    /// Broken off by the provider: retried.
    BrokenOff,
    /// Failed at the provider: retried.
    Server,
    RateLimited,
    QuotaExhausted,
    KeyRejected,
}

impl Expected {
    fn of(read: Result<CallOutput<Self>, CallError>) -> Self {
        let tokens = |usage: tidegate_core::budget::Usage| (usage.input_tokens, usage.output_tokens);
        match read {
            Ok(CallOutput { value, usage }) => Self { usage: usage.map(tokens), ..value },
            Err(error) => {
                let (_, usage) = error.charged_usage();
                let (failure, detail) = match error {
                    CallError::ContentFiltered { detail, .. }
                    | CallError::Rejected { rejection: RejectionReason::ContentFiltered, detail, .. } => {
                        (Failure::ContentFiltered, detail)
                    }
                    CallError::Refused { detail, .. } => (Failure::Refused, detail),
                    CallError::Malformed { .. } => (Failure::Malformed, String::new()),
                    CallError::Unreadable { what: "complete", .. } => (Failure::BrokenOff, String::new()),
                    CallError::Server { detail, .. } => (Failure::Server, detail),
                    CallError::RateLimited { .. } => (Failure::RateLimited, String::new()),
                    CallError::QuotaExhausted { detail, .. } => (Failure::QuotaExhausted, detail),
                    CallError::KeyRejected { .. } => (Failure::KeyRejected, String::new()),
                    other => panic!("an unexpected error: {other:?}"),
                };
                let detail = Some(detail).filter(|detail| !detail.is_empty());
                Self { failure: Some(failure), detail, usage: usage.map(tokens), ..Self::default() }
            }
        }
    }

    fn of_chat(answer: ChatAnswer) -> Self {
        let ChatAnswer { text, reasoning, is_truncated, turn } = answer;
        let calls = turn.into_iter().flat_map(|turn| turn.calls);
        let calls = calls.map(|call| (call.name, serde_json::from_str(&call.arguments).unwrap())).collect();
        Self { text: Some(text).filter(|text| !text.is_empty()), reasoning, is_truncated, calls, ..Self::default() }
    }

    fn of_embeddings(embeddings: Vec<Result<Value, CallError>>) -> Self {
        Self { embeddings: embeddings.into_iter().map(Result::unwrap).collect(), ..Self::default() }
    }

    fn of_image(source: Source) -> Self {
        let image = match source {
            Source::Content(bytes) => STANDARD.encode(bytes),
            Source::Address(url) => url.to_string(),
        };
        Self { image: Some(image), ..Self::default() }
    }
}

fn read(recorded: &Recorded) -> Expected {
    let Recorded { protocol, tools, schema, body, expected, .. } = recorded;
    let (body, has_tools) = (body.to_string().into_bytes(), !tools.is_empty());
    let map = |read: Result<CallOutput<ChatAnswer>, CallError>| {
        read.map(|CallOutput { value, usage }| CallOutput { value: Expected::of_chat(value), usage })
    };
    let tool = |name: &String| OfferedTool { name: name.clone(), description: String::new(), parameters: json!({}) };
    Expected::of(match protocol {
        Protocol::Chat => map(read_completion(&body, has_tools)),
        Protocol::Responses => map(responses::read(&body, has_tools)),
        Protocol::Messages => {
            let format = |schema: &Value| json!({ "json_schema": { "name": "answer", "schema": schema } });
            let conversation = Conversation {
                tools: tools.iter().map(tool).collect(),
                response_format: schema.as_ref().map(format),
                ..Conversation::default()
            };
            map(messages::read(&body, &conversation))
        }
        Protocol::Embeddings => embedding::read_embeddings(&body, expected.embeddings.len(), None)
            .map(|CallOutput { value, usage }| CallOutput { value: Expected::of_embeddings(value), usage }),
        Protocol::Images => {
            image::read(&body).map(|CallOutput { value, usage }| CallOutput { value: Expected::of_image(value), usage })
        }
    })
}

#[test]
fn recorded_answers_are_read_as_their_providers_mean_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/answers");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut protocols = BTreeSet::new();
    let mut wrong = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().to_string();
        let recorded: Recorded = serde_json::from_slice(&fs::read(&file).unwrap())
            .unwrap_or_else(|error| panic!("{name} is not a recorded answer: {error}"));
        protocols.insert(recorded.protocol);
        let got = read(&recorded);
        if got != recorded.expected {
            wrong.push(format!("{name}\n  expected {:?}\n  read     {got:?}", recorded.expected));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(protocols.len(), 5, "the folder has answers of each protocol");
}
