//! Scenario files.

use js_sys::JSON;
use tidegate_core::sim::scenario::Scenario;
use tidegate_core::sim::world::World;
use wasm_bindgen::prelude::*;

use crate::engine;
use crate::json::{at_path, in_words, to_js};

/// Reads a scenario file, as `tidegate simulate` does. Throws an `Error` such as
/// `line 3, column 9: models[0].max_parallel: invalid type: string "many", expected a whole number from 0 to
/// 4294967295`.
#[wasm_bindgen(js_name = readScenario, unchecked_return_type = "Scenario")]
pub fn read_scenario(toml: &str) -> Result<JsValue, JsError> {
    let invalid = |path: &str, error: &toml::de::Error| {
        let (line, column) = place(toml, error.span().map_or(0, |span| span.start));
        JsError::new(&format!("line {line}, column {column}: {}", at_path(path, &in_words(error.message()))))
    };
    let document = toml::Deserializer::parse(toml).map_err(|error| invalid("this is not TOML", &error))?;
    let scenario: Scenario = serde_path_to_error::deserialize(document)
        .map_err(|error| invalid(&error.path().to_string(), error.inner()))?;
    World::new(&scenario, 0)?;
    to_js(&scenario)
}

/// Writes the file of a scenario, which `tidegate simulate` reads. Throws for an object that is not a
/// scenario.
#[wasm_bindgen(js_name = writeScenario)]
pub fn write_scenario(
    #[wasm_bindgen(unchecked_param_type = "Scenario")] scenario: &JsValue,
) -> Result<String, JsError> {
    engine::scenario(scenario)?;
    // Only what the object has, without the defaults of the rest. TOML has no null: such a field is absent.
    let without_nulls =
        Closure::<dyn Fn(JsValue, JsValue) -> JsValue>::new(
            |_, value: JsValue| {
                if value.is_null() { JsValue::UNDEFINED } else { value }
            },
        );
    let text = JSON::stringify_with_replacer(scenario, without_nulls.as_ref())
        .map_err(|_| JsError::new("a scenario must be a plain object"))?;
    let table: toml::Table = serde_json::from_str(&String::from(text))?;
    Ok(toml::to_string(&table)?)
}

/// Returns line and column of a byte in a text, both from 1.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    (before.matches('\n').count() + 1, column)
}
