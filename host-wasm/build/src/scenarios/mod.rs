//! The scenarios that come with the scheduler, as data for JavaScript.
//!
//! They are made by code, and most of it makes the same thing over and over: in a wasm module it takes several times the
//! room of what it makes. So the native code makes them here, whenever modules are built, and two ES modules hold what it
//! made:
//!
//! | file | what it holds |
//! | --- | --- |
//! | `tidegate_scenarios.js` | what a person picks a scenario by, and the first one as JSON |
//! | `tidegate_scenario_texts.js` | all of them as JSON |
//!
//! A page that begins with the first scenario needs no more than the first file until somebody wants another one.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use tidegate_core::sim::scenario::{Scenario, ScenarioColumn};
use tidegate_core::sim::suite::{self, Listed};

const INDEX: &str = "tidegate_scenarios";
const TEXTS: &str = "tidegate_scenario_texts";

/// From so many columns on a scenario is looked through for patterns.
const MANY_COLUMNS: usize = 64;
/// The most patterns that columns are made after in turn.
const MOST_PATTERNS: usize = 16;
/// Stands for a column's number in a pattern.
const NUMBER: char = '#';

const UNKNOWN: &str = r#"export function unknown(name) {
  return new Error(`no scenario is called \`${name}\`; there are ${SCENARIOS.map((one) => one.name).join(", ")}`);
}
"#;

const MANY: &str = r##"function many(count, patterns) {
  return Array.from({ length: count }, (_, n) => patterns[n % patterns.length].replaceAll("#", n)).join(",");
}
"##;

/// What a person picks a scenario by: `ScenarioInfo` in the types.
#[derive(Serialize)]
struct Info<'a> {
    suite: &'a str,
    name: &'a str,
    title: &'a str,
    description: &'a str,
}

/// Writes the modules with the scenarios, and their types, into a folder.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let all = suite::scenarios();
    let index_types = include_str!("tidegate_scenarios.d.ts").to_owned();
    let text_types = include_str!("tidegate_scenario_texts.d.ts").to_owned();
    let files = [(INDEX, index(&all)?, index_types), (TEXTS, texts(&all)?, text_types)];
    for (name, script, types) in files {
        for (extension, content) in [("js", script), ("d.ts", types)] {
            let path = folder.join(format!("{name}.{extension}"));
            fs::write(&path, content).with_context(|| format!("could not write {}", path.display()))?;
        }
    }
    Ok(())
}

/// The script of the list.
fn index(all: &[Listed]) -> Result<String> {
    let first = all.first().context("there is no scenario")?;
    let mut script = String::from("export const SCENARIOS = [\n");
    for Listed { suite, scenario } in all {
        let Scenario { name, title, description, .. } = scenario;
        writeln!(script, "{},", serde_json::to_string(&Info { suite, name, title, description })?)?;
    }
    writeln!(script, "];\nexport const FIRST = {};", literal(&serde_json::to_string(&first.scenario)?))?;
    script.push_str(UNKNOWN);
    Ok(script)
}

/// The script of the scenarios themselves.
fn texts(all: &[Listed]) -> Result<String> {
    let mut script = format!("import {{ FIRST }} from \"./{INDEX}.js\";\n{MANY}const TEXTS = new Map([\n");
    for (place, Listed { scenario, .. }) in all.iter().enumerate() {
        let text = if place == 0 { "FIRST".to_owned() } else { expression(scenario)? };
        writeln!(script, "[{}, () => {text}],", serde_json::to_string(&scenario.name)?)?;
    }
    script.push_str("]);\nexport function textOf(name) {\n  return TEXTS.get(name)?.();\n}\n");
    Ok(script)
}

/// An expression in JavaScript whose value is the scenario as JSON.
fn expression(scenario: &Scenario) -> Result<String> {
    let text = serde_json::to_string(scenario)?;
    let columns = scenario.columns.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    let Some(patterns) = patterns(&scenario.columns, &columns)? else { return Ok(literal(&text)) };
    let (before, after) = text.split_once(&columns.join(",")).context("a scenario without its columns")?;
    let patterns: Vec<_> = patterns.iter().map(|pattern| literal(pattern)).collect();
    let count = columns.len();
    Ok(format!("{} + many({count}, [{}]) + {}", literal(before), patterns.join(", "), literal(after)))
}

/// Texts after which the columns are made in turn, with [`NUMBER`] for the number that their names end with: thousands of
/// columns are made by a loop in Rust, too. None if there are few columns, or they do not follow such patterns.
fn patterns(columns: &[ScenarioColumn], texts: &[String]) -> Result<Option<Vec<String>>> {
    if columns.len() < MANY_COLUMNS {
        return Ok(None);
    }
    let mut patterns = Vec::new();
    for column in &columns[..MOST_PATTERNS] {
        let stem = column.name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let pattern = ScenarioColumn { name: format!("{stem}{NUMBER}"), ..column.clone() };
        patterns.push(serde_json::to_string(&pattern)?);
        let makes = |n: usize| patterns[n % patterns.len()].replace(NUMBER, &n.to_string());
        if texts.iter().enumerate().all(|(n, text)| *text == makes(n)) {
            return Ok(Some(patterns));
        }
    }
    Ok(None)
}

/// A text as JavaScript writes it in its source: in single quotes, so that those of JSON stay as they are.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n").replace('\r', "\\r"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What JavaScript makes of [`literal`].
    fn unquoted(literal: &str) -> String {
        literal[1..literal.len() - 1].replace("\\'", "'").replace("\\\\", "\\")
    }

    #[test]
    fn every_text_is_read_as_the_scenario_it_was_made_of() {
        for Listed { scenario, .. } in suite::scenarios() {
            let text = serde_json::to_string(&scenario).expect("it has JSON");
            assert_eq!(unquoted(&literal(&text)), text);
            assert_eq!(serde_json::from_str::<Scenario>(&text).expect("it is read"), scenario);
        }
    }

    #[test]
    fn every_scenario_has_what_a_person_picks_it_by_and_a_name_of_its_own() {
        let all = suite::scenarios();
        for (place, Listed { suite, scenario }) in all.iter().enumerate() {
            let Scenario { name, title, description, .. } = scenario;
            for text in [suite, name.as_str(), title, description] {
                assert!(!text.is_empty(), "{name}");
            }
            assert!(all[..place].iter().all(|other| other.scenario.name != *name), "{name} is there twice");
        }
    }

    #[test]
    fn thousands_of_columns_are_told_by_their_patterns() {
        let all = suite::scenarios();
        let most = all.iter().max_by_key(|listed| listed.scenario.columns.len()).expect("there are scenarios");
        let long = serde_json::to_string(&most.scenario).expect("it has JSON");
        let short = expression(&most.scenario).expect("it has an expression");
        assert!(long.len() > 1_000_000 && short.len() < 10_000, "{} and {}", long.len(), short.len());
    }

    #[test]
    fn columns_without_a_pattern_are_written_as_they_are() {
        let all = suite::scenarios();
        let mut scenario = all.last().expect("there are scenarios").scenario.clone();
        scenario.columns[70].weight += 0.5;
        assert_eq!(
            expression(&scenario).expect("it has one"),
            literal(&serde_json::to_string(&scenario).expect("it has JSON"))
        );
    }
}
