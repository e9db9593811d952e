//! The scenarios that come with the scheduler, as data for JavaScript.
//!
//! They are made by code, and in a wasm module that code takes several times the room of what it makes. So the native code
//! makes them here, whenever modules are built, and two ES modules hold what it made:
//!
//! | file | what it holds |
//! | --- | --- |
//! | `tidegate_scenarios.js` | what a person picks a scenario by, and what the first one is made of |
//! | `tidegate_scenario_texts.js` | what each is made of |
//!
//! A page that starts with the first scenario loads the second file only when another scenario is chosen. Scenarios are
//! written without the fields that have their defaults.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, to_value};
use tidegate_core::sim::scenario::{Model, Scenario, ScenarioColumn};
use tidegate_core::sim::suite::{self, SuiteScenario};

use crate::types::declaration_of;
use crate::write_script;

const INDEX: &str = "tidegate_scenarios";
const TEXTS: &str = "tidegate_scenario_texts";

/// What the list says of a scenario already.
const LISTED: [&str; 3] = ["name", "title", "description"];

/// From so many columns on a scenario is looked through for patterns.
const MANY_COLUMNS: usize = 64;
/// The most patterns that columns are made after in turn.
const MOST_PATTERNS: usize = 16;
/// Stands for a column's number in a pattern.
const NUMBER: char = '#';

/// The types of what the scripts export.
const INDEX_TYPES: &str = r"/** The scenarios of all suites, in the order in which they should be offered. */
export const SCENARIOS: readonly Readonly<ScenarioInfo>[];

/** What the first of them is made of, for a program that starts with it and loads the others later. */
export const FIRST: string;
";

const TEXT_TYPES: &str = r"/** What a scenario is made of, by its name: JSON, without what the list says; undefined for an unknown one. */
export function textOf(name: string): string | undefined;
";

const MANY: &str = r##"function many(count, patterns) {
  return Array.from({ length: count }, (_, n) => patterns[n % patterns.length].replaceAll("#", n)).join(",");
}
"##;

/// What a person picks a scenario by.
#[derive(JsonSchema, Serialize)]
struct ScenarioInfo<'a> {
    /// Which suite it belongs to.
    suite: &'a str,
    /// What a run is started with.
    name: &'a str,
    title: &'a str,
    description: &'a str,
}

/// Writes the modules with the scenarios, and their types, into a folder.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let all = suite::scenarios();
    let index_types = declaration_of::<ScenarioInfo<'_>>()? + INDEX_TYPES;
    let files = [(INDEX, index(&all)?, index_types), (TEXTS, texts(&all)?, TEXT_TYPES.to_owned())];
    files.iter().try_for_each(|(name, script, types)| write_script(folder, name, script, types))
}

/// The script of the list.
fn index(all: &[SuiteScenario]) -> Result<String> {
    let first = all.first().context("there is no scenario")?;
    let mut script = String::from("export const SCENARIOS = [\n");
    for SuiteScenario { suite, scenario } in all {
        let Scenario { name, title, description, .. } = scenario;
        writeln!(
            script,
            "{},",
            serde_json::to_string(&ScenarioInfo { suite: suite.as_str(), name, title, description })?
        )?;
    }
    writeln!(script, "];\nexport const FIRST = {};", expression(&first.scenario)?)?;
    Ok(script)
}

/// The script of what the scenarios are made of.
fn texts(all: &[SuiteScenario]) -> Result<String> {
    let mut script = format!("import {{ FIRST }} from \"./{INDEX}.js\";\n{MANY}const TEXTS = new Map([\n");
    for (place, SuiteScenario { scenario, .. }) in all.iter().enumerate() {
        let text = if place == 0 { "FIRST".to_owned() } else { expression(scenario)? };
        writeln!(script, "[{}, () => {text}],", serde_json::to_string(&scenario.name)?)?;
    }
    script.push_str("]);\nexport function textOf(name) {\n  return TEXTS.get(name)?.();\n}\n");
    Ok(script)
}

/// An expression in JavaScript whose value is, as JSON, what the list does not say of a scenario.
fn expression(scenario: &Scenario) -> Result<String> {
    let mut short = short(scenario)?;
    if let Some(members) = short.as_object_mut() {
        members.retain(|name, _| !LISTED.contains(&name.as_str()));
    }
    let text = short.to_string();
    let columns = short["columns"].as_array().map_or(&[][..], Vec::as_slice);
    let Some(patterns) = patterns(columns) else { return Ok(literal(&text)) };
    let array = columns.iter().map(Value::to_string).collect::<Vec<_>>().join(",");
    let (before, after) = text.split_once(&array).context("a scenario without its columns")?;
    let patterns: Vec<_> = patterns.iter().map(|pattern| literal(pattern)).collect();
    Ok(format!("{} + many({}, [{}]) + {}", literal(before), columns.len(), patterns.join(", "), literal(after)))
}

/// A scenario without what is as usual.
fn short(scenario: &Scenario) -> Result<Value> {
    let columns = scenario.columns.iter().map(without_defaults::<ScenarioColumn>).collect::<Result<Vec<_>>>()?;
    let mut models = Vec::new();
    for model in &scenario.models {
        let mut short = without_defaults::<Model>(model)?;
        if let Some(request) = short.get_mut("request") {
            *request = without_defaults(&model.request)?;
        }
        models.push(short);
    }
    // These two are read once rather than with every other member that is tried.
    let rest = Scenario { columns: Vec::new(), models: Vec::new(), ..scenario.clone() };
    let mut short = without_defaults(&rest)?;
    short["columns"] = columns.into();
    if !models.is_empty() {
        short["models"] = models.into();
    }
    ensure!(from_value::<Scenario>(short.clone())? == *scenario, "{} is another one when it is read", scenario.name);
    Ok(short)
}

/// A value as JSON without the members that make no difference to who reads it.
fn without_defaults<T: Serialize + DeserializeOwned + PartialEq>(whole: &T) -> Result<Value> {
    let mut short = to_value(whole)?;
    let names: Vec<String> = short.as_object().context("this is no object")?.keys().cloned().collect();
    for name in names {
        let mut shorter = short.clone();
        shorter.as_object_mut().and_then(|members| members.remove(&name));
        if from_value::<T>(shorter.clone()).is_ok_and(|read| read == *whole) {
            short = shorter;
        }
    }
    Ok(short)
}

/// Texts after which columns are made in turn, with [`NUMBER`] for the number that their names end with: thousands of columns
/// are made by a loop in Rust, too. None if there are few columns, or they do not follow such patterns.
fn patterns(columns: &[Value]) -> Option<Vec<String>> {
    if columns.len() < MANY_COLUMNS {
        return None;
    }
    let texts: Vec<String> = columns.iter().map(Value::to_string).collect();
    let mut patterns = Vec::new();
    for column in &columns[..MOST_PATTERNS] {
        let stem = column["name"].as_str()?.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let mut pattern = column.clone();
        pattern["name"] = format!("{stem}{NUMBER}").into();
        patterns.push(pattern.to_string());
        let makes = |n: usize| patterns[n % patterns.len()].replace(NUMBER, &n.to_string());
        if texts.iter().enumerate().all(|(n, text)| *text == makes(n)) {
            return Some(patterns);
        }
    }
    None
}

/// A text as JavaScript writes it in its source: in single quotes, so that those of JSON stay as they are.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n").replace('\r', "\\r"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_short_form_is_read_as_the_scenario_it_was_made_of() {
        for SuiteScenario { scenario, .. } in suite::scenarios() {
            let short = short(&scenario).expect("it has one").to_string();
            assert_eq!(serde_json::from_str::<Scenario>(&short).expect("it is read"), scenario);
            let whole = serde_json::to_string(&scenario).expect("it has JSON");
            assert!(short.len() < whole.len() / 2, "{} {short}", scenario.name);
        }
    }

    #[test]
    fn every_scenario_has_what_a_person_picks_it_by_and_a_name_of_its_own() {
        let all = suite::scenarios();
        for (place, SuiteScenario { suite, scenario }) in all.iter().enumerate() {
            let Scenario { name, title, description, .. } = scenario;
            for text in [suite.as_str(), name.as_str(), title, description] {
                assert!(!text.is_empty(), "{name}");
            }
            assert!(all[..place].iter().all(|other| other.scenario.name != *name), "{name} is there twice");
        }
    }

    /// The one with the most columns.
    fn widest() -> Scenario {
        let all = suite::scenarios();
        all.into_iter().map(|listed| listed.scenario).max_by_key(|one| one.columns.len()).expect("there are scenarios")
    }

    #[test]
    fn thousands_of_columns_are_told_by_their_patterns() {
        let (scenario, short) = (widest(), expression(&widest()).expect("it has an expression"));
        assert!(scenario.columns.len() > 4_000 && short.len() < 2_000, "{short}");
    }

    #[test]
    fn columns_without_a_pattern_are_written_as_they_are() {
        let mut scenario = widest();
        scenario.columns[70].weight += 0.5;
        let text = expression(&scenario).expect("it has an expression");
        let read: Value = serde_json::from_str(text.trim_matches('\'')).expect("it is JSON");
        assert_eq!(read["columns"], short(&scenario).expect("it has one")["columns"]);
    }

    #[test]
    fn a_text_in_quotes_is_one_of_javascript() {
        assert_eq!(literal(r#"{"a":"it's \n"}"#), r#"'{"a":"it\'s \\n"}'"#);
    }
}
