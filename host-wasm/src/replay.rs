//! Decision logs, told again in this realm: the same file gives the same digest here as where it was recorded.

use serde::{Deserialize, Serialize};
use tidegate_core::replay::{Command, Header, Replay, Stamped};
use wasm_bindgen::prelude::*;

use crate::convert::to_js;

/// A line of a log. Which one it is shows in its fields.
#[derive(Deserialize)]
struct Line {
    header: Option<Header>,
    n: Option<u32>,
    command: Option<Command>,
    end: Option<End>,
}

/// The last line: the digests of the recorded run, in hex.
#[derive(Deserialize)]
struct End {
    run: String,
    requests: String,
}

/// What a replay came to.
#[derive(Serialize)]
struct Replayed {
    entries: usize,
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
    let (mut header, mut entries, mut end) = (None, Vec::new(), None);
    for (line, number) in text.lines().zip(1..) {
        let wrong = |why: &str| JsError::new(&format!("line {number}: this is no line of a decision log: {why}"));
        let value = js_sys::JSON::parse(line).map_err(|_| wrong("it is not JSON"))?;
        let line: Line = serde_wasm_bindgen::from_value(value).map_err(|error| wrong(&error.to_string()))?;
        match line {
            _ if end.is_some() => return Err(wrong("the line before it is the end")),
            Line { header: Some(first), .. } if header.is_none() => header = Some(first),
            _ if header.is_none() => return Err(wrong("the first line is not a header")),
            Line { n: Some(n), command: Some(command), .. } => entries.push(Stamped { n, command }),
            Line { end: Some(last), .. } => end = Some(last),
            _ => return Err(wrong("it is no header, no command and no end")),
        }
    }
    let header = header.ok_or_else(|| JsError::new("line 1: the log is empty"))?;
    entries.sort_by_key(|entry| entry.n);
    let mut replay = Replay::new(&header)?;
    entries.iter().try_for_each(|entry| replay.apply(entry))?;
    let (run, requests) = replay.digest();
    let (run, requests) = (format!("{run:016x}"), format!("{requests:016x}"));
    let equal = end.map(|end| end.run == run && end.requests == requests);
    to_js(&Replayed { entries: entries.len(), run, requests, equal })
}
