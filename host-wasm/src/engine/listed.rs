//! The scenarios that come with the module.

use serde::Serialize;
use tidegate_core::sim::suite;
use wasm_bindgen::prelude::*;

use super::{chosen, to_js};

/// What a listed scenario and an answer look like in TypeScript.
#[wasm_bindgen(typescript_custom_section)]
const TYPES: &'static str = include_str!("info.d.ts");

/// What a person picks a scenario by.
#[derive(Serialize)]
struct ScenarioInfo<'a> {
    suite: &'a str,
    name: &'a str,
    title: &'a str,
    description: &'a str,
}

/// The scenarios of all suites, in the order in which they should be offered.
#[wasm_bindgen(unchecked_return_type = "ScenarioInfo[]")]
pub fn scenarios() -> Result<JsValue, JsError> {
    let all = suite::scenarios();
    let infos = all.iter().map(|listed| ScenarioInfo {
        suite: listed.suite,
        name: &listed.scenario.name,
        title: &listed.scenario.title,
        description: &listed.scenario.description,
    });
    let infos: Vec<ScenarioInfo<'_>> = infos.collect();
    to_js(&infos)
}

/// A scenario by its name. Throws for an unknown one.
#[wasm_bindgen(unchecked_return_type = "Scenario")]
pub fn scenario(name: &str) -> Result<JsValue, JsError> {
    to_js(&chosen(&name.into())?)
}
