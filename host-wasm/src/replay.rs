//! Decision logs, told again in this realm: the same file gives the same digest here as where it was recorded.

use serde::Serialize;
use tidegate_core::replay::{Line, LogReader, Unread};
use wasm_bindgen::prelude::*;

use crate::convert::to_js;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &'static str = include_str!("replay.d.ts");

/// What a replay came to.
#[derive(Serialize)]
struct Replayed {
    entries: u64,
    run: String,
    requests: String,
    /// `None`: the log was cut short.
    equal: Option<bool>,
}

/// Tells new machines what the decision log `text` has, which `tidegate run --record` wrote, and compares.
///
/// A log that is none is an `Error` that names the line. Instants are nanoseconds in JavaScript's numbers: exact for runs
/// of up to 104 days.
#[wasm_bindgen(js_name = replayDecisions, unchecked_return_type = "ReplayedDecisions")]
pub fn replay_decisions(text: &str) -> Result<JsValue, JsError> {
    let mut reader = LogReader::default();
    for line in text.lines() {
        reader.feed(parse(line))?;
    }
    let replayed = reader.finish()?.replay()?;
    let (run, requests) = replayed.digests;
    let (run, requests) = (format!("{run:016x}"), format!("{requests:016x}"));
    to_js(&Replayed { entries: replayed.entries, run, requests, equal: replayed.is_equal() })
}

fn parse(line: &str) -> Result<Line, Unread> {
    let value = js_sys::JSON::parse(line).map_err(|_| Unread::NotJson("it is not JSON".to_owned()))?;
    serde_wasm_bindgen::from_value(value).map_err(|error| Unread::OtherShape(error.to_string()))
}
