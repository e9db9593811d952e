//! Faults in what a person writes.

use std::path::Path;

use tidegate_core::pipeline::AdaptiveRowGroups;
use tidegate_core::request::LimitConfig;
use tidegate_core::task::BoundedBorrowConfig;
use tidegate_native::app::config::pipeline::{PipelineFile, SourceText};

/// Every key of every table.
const GOOD: &str = "\
[seed]
path = \"d.csv\"
format = \"csv\"
[[models]]
name = \"writer\"
provider = \"remote\"
model = \"large\"
base_url = \"https://localhost/v1\"
api_key_env = \"KEY\"
domain = \"chat\"
max_parallel = 4
timeout = \"30s\"
[models.aimd]
initial_limit = 2
max_limit = 4
decrease_factor = 0.5
increase_step = 1
successes_until_increase = 5
cooldown = \"1s\"
max_cooldown = \"1m\"
ramp = \"10s\"
[[columns]]
name = \"title\"
kind = \"llm\"
strategy = \"cell\"
model = \"writer\"
prompt = \"A title for {{ id }}\"
system = \"Be brief\"
temperature = 0.5
max_tokens = 20
upstreams = [\"id\"]
weight = 1.0
[[columns]]
name = \"loud\"
kind = \"expression\"
template = \"{{ title }}\"
[run]
row_group_size = 4
row_groups = 2
submission_limit = 10
retries = 2
shutdown_window = 10
shutdown_rate = 0.5
rate_limit_patience = \"1m\"
[output]
row_key = \"row\"
";

fn refusal(text: &str) -> String {
    let parsed = PipelineFile::parse(SourceText::new("p.toml", text), Path::new(""));
    parsed.expect_err("it is not a good file").to_string()
}

/// The key without one letter in its middle.
fn misspelt(key: &str) -> String {
    let mut letters: Vec<char> = key.chars().collect();
    let at = letters.len() / 2;
    letters.remove(at);
    letters.into_iter().collect()
}

/// A misspelt or renamed key was ignored, or refused without a word of what it should be.
#[test]
fn no_unknown_configuration_key_is_refused_without_its_replacement() {
    PipelineFile::parse(SourceText::new("p.toml", GOOD), Path::new("")).expect("a good file");
    let lines: Vec<&str> = GOOD.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        let Some((key, _)) = line.split_once(" = ") else { continue };
        let wrong = misspelt(key);
        let mut changed = lines.clone();
        let line = line.replacen(key, &wrong, 1);
        changed[number] = &line;
        let refusal = refusal(&changed.join("\n"));
        assert!(refusal.starts_with(&format!("p.toml:{}:1: unknown key `{wrong}` in ", number + 1)), "{refusal}");
        assert!(refusal.contains(&format!("did you mean `{key}`?")), "{key}: {refusal}");
    }
    let before = refusal(&GOOD.replacen("retries =", "salvage_rounds =", 1));
    assert!(before.contains("unknown key `salvage_rounds` in [run]") && before.contains("`retries`?"), "{before}");
    // A name from elsewhere is near to none of ours: all that the table may hold are named.
    let foreign = refusal(&GOOD.replacen("max_parallel =", "concurrency =", 1));
    assert!(foreign.contains("unknown key `concurrency` in [[models]]"), "{foreign}");
    assert!(
        foreign.contains("expected one of: name, provider, model,") && foreign.contains("max_parallel"),
        "{foreign}"
    );
}

/// The same for settings that are given as JSON.
#[test]
fn no_unknown_key_of_a_setting_in_json_is_ignored() {
    let refusals = [
        serde_json::from_str::<LimitConfig>("{\"cool_down\": 1}").expect_err("unknown").to_string(),
        serde_json::from_str::<BoundedBorrowConfig>("{\"ceiling\": []}").expect_err("unknown").to_string(),
        serde_json::from_str::<AdaptiveRowGroups>("{\"start\": 1}").expect_err("unknown").to_string(),
    ];
    for (refusal, replacement) in refusals.iter().zip(["`cooldown_ms`", "`ceilings`", "`initial`"]) {
        assert!(refusal.starts_with("unknown field ") && refusal.contains(replacement), "{refusal}");
    }
}
