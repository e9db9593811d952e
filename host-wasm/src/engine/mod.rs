//! The common parts of the simulating modules: scenarios from JavaScript, and runs in slices.
//!
//! Built-in scenarios are not included: JavaScript has them as data, which `tidegate-wasm-build` writes.

#[cfg(any(feature = "playground", feature = "sim"))]
mod run;

use tidegate_core::sim::scenario::Scenario;
use wasm_bindgen::prelude::*;

use crate::json::from_js;
#[cfg(any(feature = "playground", feature = "sim"))]
use crate::json::to_js;

#[cfg(any(feature = "playground", feature = "sim"))]
pub(crate) use self::run::Run;

/// Returns a scenario with every field set, missing ones to their defaults. Throws for an object that is not
/// a scenario.
#[cfg(any(feature = "playground", feature = "sim"))]
#[wasm_bindgen(js_name = completeScenario, unchecked_return_type = "Scenario")]
pub fn complete_scenario(
    #[wasm_bindgen(unchecked_param_type = "Scenario")] scenario: &JsValue,
) -> Result<JsValue, JsError> {
    to_js(&self::scenario(scenario)?)
}

/// Reads the scenario that an object holds.
pub(crate) fn scenario(value: &JsValue) -> Result<Scenario, JsError> {
    from_js("a scenario", value)
}
