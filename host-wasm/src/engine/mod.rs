//! What the modules that simulate have in common: scenarios from JavaScript, and a run that is worked on in slices.
//!
//! The scenarios that have names are not in here: JavaScript has them as data, which `tidegate-wasm-build` writes.

#[cfg(any(feature = "playground", feature = "sim"))]
mod run;

use js_sys::JSON;
use serde::Serialize;
use tidegate_core::sim::scenario::Scenario;
use wasm_bindgen::prelude::*;

use crate::text::{Node, parse_json, read, write_json};

#[cfg(any(feature = "playground", feature = "sim"))]
pub(crate) use self::run::Run;

#[wasm_bindgen(typescript_custom_section)]
const SCENARIO: &'static str = include_str!("scenario.d.ts");
#[wasm_bindgen(typescript_custom_section)]
const SAMPLE: &'static str = include_str!("sample.d.ts");
#[wasm_bindgen(typescript_custom_section)]
const REPORT: &'static str = include_str!("report.d.ts");
#[cfg(any(feature = "playground", feature = "sim"))]
#[wasm_bindgen(typescript_custom_section)]
const WHY: &'static str = include_str!("why.d.ts");

/// The compact JSON text of a value.
pub(crate) fn to_text<T: Serialize>(value: &T) -> Result<String, JsError> {
    write_json(value).map_err(|error| refused(&error))
}

/// A plain object.
pub(crate) fn to_js<T: Serialize>(value: &T) -> Result<JsValue, JsError> {
    JSON::parse(&to_text(value)?).map_err(|_| JsError::new("a value has no JSON"))
}

/// What an object holds, as JavaScript writes it as JSON.
pub(crate) fn object(what: &str, value: &JsValue) -> Result<Node, JsError> {
    let text = JSON::stringify(value).ok().and_then(|text| text.as_string());
    let text = text.ok_or_else(|| JsError::new(&[what, " must be a plain object"].concat()))?;
    parse_json(&text).map_err(|mistake| refused(&mistake))
}

/// A scenario with every field: those that were left out have their defaults. Throws for an object that is no scenario.
#[cfg(any(feature = "playground", feature = "sim"))]
#[wasm_bindgen(js_name = completeScenario, unchecked_return_type = "Scenario")]
pub fn complete_scenario(
    #[wasm_bindgen(unchecked_param_type = "Scenario")] scenario: &JsValue,
) -> Result<JsValue, JsError> {
    to_js(&self::scenario(scenario)?)
}

/// The scenario that an object holds.
pub(crate) fn scenario(value: &JsValue) -> Result<Scenario, JsError> {
    read(&object("a scenario", value)?).map_err(|mistake| refused(&mistake))
}

/// An `Error` with the words of one of ours.
pub(crate) fn refused(error: &dyn std::fmt::Display) -> JsError {
    JsError::new(&error.to_string())
}
