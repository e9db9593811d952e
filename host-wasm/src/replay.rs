//! Replays decision logs: the same file gives the same digest here as where it was recorded.

use serde::Serialize;
use tidegate_core::replay::{LogLine, LogReader, UnreadableLine};
use tsify::Tsify;
use wasm_bindgen::prelude::*;

use crate::json::{message, to_js};

/// Replays the decision log `text`, written by `tidegate run --record`, with a new scheduler, and compares
/// the digests.
///
/// Throws an `Error` that names the line, for a malformed log.
#[wasm_bindgen(js_name = replayDecisions, unchecked_return_type = "ReplayedDecisions")]
pub fn replay_decisions(text: &str) -> Result<JsValue, JsError> {
    let mut reader = LogReader::default();
    for line in text.lines() {
        reader.feed(parse(line))?;
    }
    let replayed = reader.finish()?.replay()?;
    let (run, requests) = replayed.digests;
    to_js(&ReplayedDecisions {
        entries: replayed.entries,
        run: format!("{run:016x}"),
        requests: format!("{requests:016x}"),
        equal: replayed.is_equal(),
    })
}

/// The results of a replayed decision log.
#[derive(Serialize, Tsify)]
struct ReplayedDecisions {
    /// The number of commands.
    entries: u64,
    /// The digest of the scheduler's decisions: 16 hexadecimal digits.
    run: String,
    /// The digest of the decisions of request admission.
    requests: String,
    /// Whether both equal those of the recorded run; `null` if the log was cut short.
    equal: Option<bool>,
}

fn parse(line: &str) -> Result<LogLine, UnreadableLine> {
    serde_json::from_str(line).map_err(|error| {
        if error.is_data() {
            UnreadableLine::OtherShape(message(&error))
        } else {
            UnreadableLine::NotJson(format!("it is not JSON: {}", message(&error)))
        }
    })
}
