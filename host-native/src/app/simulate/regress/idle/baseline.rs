//! The baseline of the idle suite: a file with the figures of an earlier run, and their comparison with a new
//! run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_core::sim::suite::idle::CaseFigures;

use crate::app::error::Error;

/// The version of the file format. It is raised when a figure changes its meaning.
const SCHEMA: u32 = 1;

/// The figures of a run of the idle suite, as stored in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    schema: u32,
    cases: Vec<CaseFigures>,
}

/// A figure that differs from the baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The name of the case.
    pub case: String,
    /// The path of the figure in the case; empty if the whole case was added or removed.
    pub figure: String,
    /// The value in the baseline; `None` if it was added.
    pub before: Option<String>,
    /// The value in the new run; `None` if it was removed.
    pub now: Option<String>,
}

impl Baseline {
    /// Creates a baseline from the figures of a run.
    #[must_use]
    pub fn new(figures: &[CaseFigures]) -> Self {
        Self { schema: SCHEMA, cases: figures.to_vec() }
    }

    /// Reads a baseline file. Fails if the file cannot be read or is not a baseline of the current schema
    /// version.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let invalid = |what: &str| Error::Setting(format!("the baseline {}: {what}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| invalid(&format!("cannot be read: {error}")))?;
        Self::parse(&text).map_err(|what| invalid(&what))
    }

    /// Parses the text of a baseline. Fails with a message if it is invalid or has another schema version.
    pub fn parse(text: &str) -> Result<Self, String> {
        let baseline: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if baseline.schema == SCHEMA {
            Ok(baseline)
        } else {
            Err(format!("it has schema {}; expected {SCHEMA}", baseline.schema))
        }
    }

    /// Returns the text of the file.
    pub fn to_json(&self) -> Result<String, Error> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::Internal(error.to_string()))?;
        Ok(text + "\n")
    }

    /// Returns every figure that differs, in the order of the cases.
    ///
    /// Cases of the baseline without figures are reported as removed only if `ran_all_cases`.
    #[must_use]
    pub fn compare(&self, figures: &[CaseFigures], ran_all_cases: bool) -> Vec<Difference> {
        let present = || Some("present".to_string());
        let whole_case = |case: &CaseFigures, before: Option<String>, now: Option<String>| {
            let (case, figure) = (case.name.clone(), String::new());
            Difference { case, figure, before, now }
        };
        let mut differences = Vec::new();
        for now in figures {
            match self.cases.iter().find(|before| before.name == now.name) {
                Some(before) => differences.extend(case_differences(before, now)),
                None => differences.push(whole_case(now, None, present())),
            }
        }
        let is_missing = |before: &&CaseFigures| ran_all_cases && figures.iter().all(|now| now.name != before.name);
        differences.extend(self.cases.iter().filter(is_missing).map(|before| whole_case(before, present(), None)));
        differences
    }
}

fn case_differences(before: &CaseFigures, now: &CaseFigures) -> Vec<Difference> {
    let (before, now) = (flatten_figures(before), flatten_figures(now));
    let names = before.keys().chain(now.keys().filter(|name| !before.contains_key(*name)));
    let differing = names.filter(|name| before.get(*name) != now.get(*name));
    let case = now.get("name").cloned().unwrap_or_default();
    let difference = |name: &String| Difference {
        case: case.clone(),
        figure: name.clone(),
        before: before.get(name).cloned(),
        now: now.get(name).cloned(),
    };
    differing.map(difference).collect()
}

/// Returns each figure as text by its path. The path contains names of resources instead of indices.
fn flatten_figures(figures: &CaseFigures) -> BTreeMap<String, String> {
    let mut flat = BTreeMap::new();
    if let Ok(value) = serde_json::to_value(figures) {
        flatten("", &value, &mut flat);
    }
    flat
}

fn flatten(path: &str, value: &Value, flat: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, field, flat);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let name = item["name"].as_str().map_or_else(|| index.to_string(), |name| format!("`{name}`"));
                flatten(&format!("{path}.{name}"), item, flat);
            }
        }
        Value::String(text) => drop(flat.insert(path.to_string(), text.clone())),
        other => drop(flat.insert(path.to_string(), other.to_string())),
    }
}

/// Describes differences in a line each, under the name of their case.
#[must_use]
pub fn describe_differences(differences: &[Difference]) -> String {
    if differences.is_empty() {
        return "all figures equal the baseline\n".to_string();
    }
    let mut text = format!("differences from the baseline: {}\n", differences.len());
    let mut case = "";
    for difference in differences {
        if difference.case != case {
            case = &difference.case;
            let _ = writeln!(text, "\n  {case}");
        }
        let _ = match (&difference.before, &difference.now) {
            (None, Some(_)) if difference.figure.is_empty() => writeln!(text, "    added"),
            (Some(_), None) if difference.figure.is_empty() => writeln!(text, "    removed"),
            (before, now) => {
                let [before, now] = [before, now].map(|figure| figure.as_deref().unwrap_or("-"));
                writeln!(text, "    {}: {before} -> {now}{}", difference.figure, relative_change(before, now))
            }
        };
    }
    text.push_str("\nif these changes are intended, write a new baseline with --update-baseline FILE\n");
    text
}

/// Returns the relative change between two numbers in percent; nothing if `before` is zero or either is not a
/// number.
fn relative_change(before: &str, now: &str) -> String {
    match (before.parse::<f64>(), now.parse::<f64>()) {
        (Ok(before), Ok(now)) if before != 0.0 => format!("  ({:+.2} %)", (now - before) / before * 100.0),
        _ => String::new(),
    }
}
