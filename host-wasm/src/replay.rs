//! Decision logs, told again in this realm: the same file gives the same digest here as where it was recorded.

use js_sys::{Object, Reflect};
use tidegate_core::replay::{LogLine, LogReader, UnreadableLine};
use wasm_bindgen::prelude::*;

use crate::text::{parse_json, read};

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &'static str = include_str!("replay.d.ts");

/// Tells new machines what the decision log `text` has, which `tidegate run --record` wrote, and compares.
///
/// A log that is none is an `Error` that names the line.
#[wasm_bindgen(js_name = replayDecisions, unchecked_return_type = "ReplayedDecisions")]
pub fn replay_decisions(text: &str) -> Result<JsValue, JsError> {
    let mut reader = LogReader::default();
    for line in text.lines() {
        reader.feed(parse(line))?;
    }
    let replayed = reader.finish()?.replay()?;
    let object = Object::new();
    let digest = |digest: u64| JsValue::from(format!("{digest:016x}"));
    for (name, value) in [
        ("entries", JsValue::from(replayed.entries as f64)),
        ("run", digest(replayed.digests.0)),
        ("requests", digest(replayed.digests.1)),
        ("equal", replayed.is_equal().map_or(JsValue::NULL, JsValue::from)),
    ] {
        // A fresh object takes any property.
        let _ = Reflect::set(&object, &name.into(), &value);
    }
    Ok(object.into())
}

fn parse(line: &str) -> Result<LogLine, UnreadableLine> {
    let node = parse_json(line).map_err(|_| UnreadableLine::NotJson("it is not JSON".to_owned()))?;
    read(&node).map_err(|mistake| UnreadableLine::OtherShape(mistake.to_string()))
}
