//! The baseline: the figures of an earlier run, and what is different now.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_core::sim::suite::idle::CaseFigures;

use crate::app::error::Error;

/// The version of the file: raised when a figure changes its meaning.
const SCHEMA: u32 = 1;

/// The figures of a run of the suite, as a file holds them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    schema: u32,
    cases: Vec<CaseFigures>,
}

/// A figure that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The case.
    pub case: String,
    /// The figure; empty for a case that is only in one of the two.
    pub figure: String,
    /// What it was; `None`: it was not there.
    pub before: Option<String>,
    /// What it is; `None`: it is gone.
    pub now: Option<String>,
}

impl Baseline {
    /// The baseline of these figures.
    #[must_use]
    pub fn of(figures: &[CaseFigures]) -> Self {
        Self { schema: SCHEMA, cases: figures.to_vec() }
    }

    /// Reads a baseline.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let wrong = |what: &str| Error::Setting(format!("the baseline {}: {what}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
        Self::parse(&text).map_err(|what| wrong(&what))
    }

    /// Reads the text of a baseline; in an error, what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let baseline: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if baseline.schema == SCHEMA {
            Ok(baseline)
        } else {
            Err(format!("it has schema {}; expected {SCHEMA}", baseline.schema))
        }
    }

    /// The text of the file.
    pub fn to_json(&self) -> Result<String, Error> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::Internal(error.to_string()))?;
        Ok(text + "\n")
    }

    /// Every figure that is different, in the order of the cases. Cases that were not run count as gone only if
    /// `all_were_run`.
    #[must_use]
    pub fn compare(&self, figures: &[CaseFigures], all_were_run: bool) -> Vec<Difference> {
        let whole = |case: &CaseFigures, before: Option<&str>, now: Option<&str>| Difference {
            case: case.name.clone(),
            figure: String::new(),
            before: before.map(str::to_string),
            now: now.map(str::to_string),
        };
        let mut differences = Vec::new();
        for now in figures {
            match self.cases.iter().find(|before| before.name == now.name) {
                Some(before) => differences.extend(between(before, now)),
                None => differences.push(whole(now, None, Some("new"))),
            }
        }
        let is_gone = |before: &&CaseFigures| all_were_run && figures.iter().all(|now| now.name != before.name);
        differences.extend(self.cases.iter().filter(is_gone).map(|before| whole(before, Some("there"), None)));
        differences
    }
}

fn between(before: &CaseFigures, now: &CaseFigures) -> Vec<Difference> {
    let (before, now) = (flat(before), flat(now));
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

/// Each figure by its path, as text. Resources go by their names.
fn flat(figures: &CaseFigures) -> BTreeMap<String, String> {
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
            for (place, item) in items.iter().enumerate() {
                let name = item["name"].as_str().map_or_else(|| place.to_string(), |name| format!("`{name}`"));
                flatten(&format!("{path}.{name}"), item, flat);
            }
        }
        Value::String(text) => drop(flat.insert(path.to_string(), text.clone())),
        other => drop(flat.insert(path.to_string(), other.to_string())),
    }
}

/// What is different, for a person to read.
pub(super) fn in_words(differences: &[Difference]) -> String {
    if differences.is_empty() {
        return "every figure is that of the baseline\n".to_string();
    }
    let mut text = format!("{} figures are not those of the baseline:\n", differences.len());
    let mut case = "";
    for difference in differences {
        if difference.case != case {
            case = &difference.case;
            let _ = writeln!(text, "\n  {case}");
        }
        let _ = match (&difference.before, &difference.now) {
            (None, Some(_)) if difference.figure.is_empty() => writeln!(text, "    is new"),
            (Some(_), None) if difference.figure.is_empty() => writeln!(text, "    is gone"),
            (before, now) => {
                let [before, now] = [before, now].map(|figure| figure.as_deref().unwrap_or("-"));
                writeln!(text, "    {}: {before} -> {now}{}", difference.figure, change(before, now))
            }
        };
    }
    text.push_str("\nread them, and if they are meant, write a new baseline with --update-baseline FILE\n");
    text
}

/// By how much a number has changed.
fn change(before: &str, now: &str) -> String {
    match (before.parse::<f64>(), now.parse::<f64>()) {
        (Ok(before), Ok(now)) if before != 0.0 => format!("  ({:+.2} %)", (now - before) / before * 100.0),
        _ => String::new(),
    }
}
