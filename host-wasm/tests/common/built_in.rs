//! The scenarios that have names, as JavaScript has them: objects.

use js_sys::JSON;
use tidegate_core::sim::scenario::Scenario;
use tidegate_core::sim::suite;
use wasm_bindgen::JsValue;

/// A scenario as an object.
pub(crate) fn object(scenario: &Scenario) -> JsValue {
    JSON::parse(&serde_json::to_string(scenario).expect("a scenario has JSON")).expect("it is JSON")
}

/// A built-in scenario by its name.
pub(crate) fn scenario(name: &str) -> JsValue {
    let all = suite::scenarios();
    object(&all.iter().find(|listed| listed.scenario.name == name).expect("the scenario is built in").scenario)
}
