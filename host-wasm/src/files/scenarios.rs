//! Scenario files.

use tidegate_core::sim::scenario::Scenario;
use tidegate_core::sim::world::World;
use wasm_bindgen::prelude::*;

use crate::engine::{object, refused, to_js};
use crate::text::{Mistake, parse_toml, read, write_toml};

/// Reads a scenario file, as `tidegate simulate` does. Throws an `Error` such as
/// ``line 3, column 9: models[0].max_parallel: invalid type: string "many", expected u32``.
#[wasm_bindgen(js_name = readScenario, unchecked_return_type = "Scenario")]
pub fn read_scenario(toml: &str) -> Result<JsValue, JsError> {
    let told = |mistake: Mistake| refused(&mistake.in_text(toml));
    let scenario: Scenario = read(&parse_toml(toml).map_err(told)?).map_err(told)?;
    World::new(&scenario, 0).map_err(|error| refused(&error))?;
    to_js(&scenario)
}

/// The file of a scenario, which `tidegate simulate` reads. Throws for an object that is no scenario.
#[wasm_bindgen(js_name = writeScenario)]
pub fn write_scenario(
    #[wasm_bindgen(unchecked_param_type = "Scenario")] scenario: &JsValue,
) -> Result<String, JsError> {
    let node = object("a scenario", scenario)?;
    read::<Scenario>(&node).map_err(|mistake| refused(&mistake))?;
    Ok(write_toml(&node))
}
