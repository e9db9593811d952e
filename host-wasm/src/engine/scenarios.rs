//! Scenarios by name and as objects.

use tidegate_core::sim::scenario::Scenario;
use tidegate_core::sim::suite::scenarios;
use wasm_bindgen::prelude::*;

use super::{object, refused};
use crate::text::read;

/// The scenario that a caller means: the name of a built-in one, or an object.
pub(crate) fn chosen(scenario: &JsValue) -> Result<Scenario, JsError> {
    match scenario.as_string() {
        Some(name) => find(&name),
        None => read(&object("a scenario", scenario)?).map_err(|mistake| refused(&mistake)),
    }
}

fn find(name: &str) -> Result<Scenario, JsError> {
    let mut all = scenarios();
    if let Some(place) = all.iter().position(|one| one.scenario.name == name) {
        return Ok(all.swap_remove(place).scenario);
    }
    let names: Vec<&str> = all.iter().map(|one| &*one.scenario.name).collect();
    Err(JsError::new(&["no scenario is called `", name, "`; there are ", &names.join(", ")].concat()))
}
