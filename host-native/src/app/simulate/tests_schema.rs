//! Tests that the JSON Schema of scenario files and the reader accept the same keys and the same types.

use std::collections::BTreeSet;

use jsonschema::Validator;
use serde_json::{Value, json};
use tidegate_core::sim::scenario::Scenario;

use super::file::{TITLE, deserialize};
use super::{builtin_scenarios, schema};
use crate::app::config::document::Document;
use crate::app::config::schema::{assert_stored, without_null};
use crate::app::config::source::{FileError, SourceText};

#[test]
fn the_stored_schema_matches_the_types() {
    assert_stored("scenario", &schema());
}

#[test]
fn the_schema_accepts_every_built_in_scenario() {
    let validator = validator(&parsed_schema());
    for scenario in builtin_scenarios() {
        let errors = errors(&validator, &without_null(serde_json::to_value(&scenario).unwrap()));
        assert_eq!(errors, Vec::<String>::new(), "{}", scenario.name);
    }
}

#[test]
fn the_schema_describes_exactly_the_keys_that_the_reader_knows() {
    let schema = parsed_schema();
    for file in files_with_every_key() {
        assert_eq!(errors(&validator(&schema), &file), Vec::<String>::new());
        read(&file).unwrap();
        assert_same_keys(&schema, &file, &file, "");
    }
}

#[test]
fn the_files_of_these_tests_have_every_key_of_the_schema() {
    let mut missing = keys(&parsed_schema());
    for file in files_with_every_key() {
        remove_used(&mut missing, &file);
    }
    assert_eq!(missing, BTreeSet::new());
}

#[test]
fn a_file_with_one_changed_value_is_accepted_by_both_or_rejected_by_both() {
    let validator = validator(&parsed_schema());
    let (mut accepted, mut rejected) = (0, 0);
    let mut seen = BTreeSet::new();
    for file in files_with_every_key() {
        for pointer in pointers(&file) {
            let value = file.pointer(&pointer).unwrap();
            if !seen.insert((pointer.clone(), value.to_string())) {
                continue;
            }
            for changed in changes_at(&file, &pointer) {
                let is_read = read(&changed).is_ok();
                let is_valid = validator.is_valid(&changed);
                assert_eq!(is_read, is_valid, "{pointer} is {:?}", changed.pointer(&pointer));
                *if is_read { &mut accepted } else { &mut rejected } += 1;
            }
        }
    }
    assert!(accepted > 300 && rejected > 1_000, "{accepted} accepted, {rejected} rejected");
}

fn parsed_schema() -> Value {
    serde_json::from_str(&schema()).unwrap()
}

fn validator(schema: &Value) -> Validator {
    jsonschema::validator_for(schema).unwrap()
}

fn errors(validator: &Validator, file: &Value) -> Vec<String> {
    validator.iter_errors(file).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// Deserializes a file.
fn read(file: &Value) -> Result<Scenario, FileError> {
    let source = SourceText::new("s.toml", toml::to_string(file).unwrap());
    deserialize(&Document::parse(&source, TITLE)?)
}

/// Returns files that together have every key in every form.
#[expect(clippy::too_many_lines, reason = "a list of keys")]
fn files_with_every_key() -> Vec<Value> {
    let forms = [
        (
            json!({ "shape": "constant", "slots": 3 }),
            json!({ "response": "refuse", "retry_after_ms": 5 }),
            json!({ "law": "constant", "latency_ms": 40 }),
            json!({ "name": "aimd" }),
            json!("strict_fair"),
            json!(0.5),
        ),
        (
            json!({ "shape": "warm_up", "slots": 8, "warm_up_ms": 20 }),
            json!({ "response": "slow_down", "slope": 1.5 }),
            json!({ "law": "uniform", "low_ms": 8.5, "high_ms": 12 }),
            json!({ "name": "vegas", "initial_limit": 3, "alpha": 1.5, "beta": 2.5, "windows_until_relearned": 9 }),
            json!({ "bounded_borrow": {
                "ceilings": [{ "kind": "model", "identity": ["m"], "resource": "gpu", "ceiling": 2 }],
                "default_ceiling": 1, "reserve_fraction": 0.5, "max_reserved": 4, "share_rounding": "down",
                "repays_on_release": false,
            } }),
            json!("never"),
        ),
        (
            json!({ "shape": "steps", "slots": 8, "steps": [{ "at_ms": 4, "slots": 2 }] }),
            json!({ "response": "refuse" }),
            json!({ "law": "log_normal", "median_ms": 4, "sigma": 0.5, "tail": { "probability": 0.5, "factor": 8.5 } }),
            json!({
                "name": "tide", "initial_limit": 9, "probe_after": 8, "probe_after_most": 99, "retry_after": "call",
                "decrease_factor": 0.5, "longest_pause_ms": 90, "latency_tolerance": 1.5,
            }),
            json!("strict_fair"),
            json!("never"),
        ),
        (
            json!({ "shape": "drift", "from": 8, "to": 2, "over_ms": 20, "back_and_forth": true }),
            json!({ "response": "refuse" }),
            json!({ "law": "constant", "latency_ms": 0.5 }),
            json!({ "name": "fixed", "limit": 3 }),
            json!("strict_fair"),
            json!(0.5),
        ),
    ];
    forms
        .into_iter()
        .map(|(capacity, overload, latency, limit, policy, rate)| {
            let patience = if rate == "never" { rate.clone() } else { json!(900) };
            let request = json!({
                "initial_limit": 2, "max_limit": 8, "decrease_factor": 0.5, "increase_step": 2,
                "successes_until_increase": 9, "grow_on_evidence": true, "cooldown_ms": 5, "max_cooldown_ms": 9,
                "ramp_ms": 7, "ramp_after_idle_ms": 70, "cut_rule": "admitted_limit", "cooldown_rule": "latest",
            });
            let provider = json!({
                "capacity": capacity, "overload": overload, "latency": latency, "states_rates": true,
                "requests": { "per_minute": 600, "burst": 20, "retry_after": "seconds" },
                "tokens": { "per_minute": 600, "window_ms": 900, "retry_after": "never" },
                "surge": { "period_ms": 900, "growth": 1.5, "least": 20, "retry_after_ms": 9 },
                "neighbour": { "low_share": 0.25, "high_share": 0.5, "period_ms": 900 },
                "outages": [{
                    "starts_at_ms": 1, "errors_ms": 2, "status": 503, "error_latency_ms": 3, "timeouts_ms": 4,
                    "hang_ms": 5, "recovery_ms": 6,
                }],
                "closures": [{ "starts_at_ms": 9, "lasts_ms": 5, "because": "key_rejected" }],
                "faults": {
                    "error_share": 0.25, "error_status": 500, "error_latency_ms": 3, "hang_share": 0.25,
                    "hang_ms": 5, "cut_share": 0.25, "malformed_share": 0.125, "refused_share": 0.125,
                    "retry_after_ms": 5,
                },
            });
            let column = json!({
                "name": "c", "strategy": "cell", "after": ["b"], "also_fills": ["d"], "model": "m",
                "fallbacks": ["e"], "calls": 2, "tenant": "t", "tokens": 9, "holds": { "gpu": 1 }, "group": "g",
                "kind": "custom_model", "weight": 0.5, "admitted_limit": 2, "local_ms": 3, "ordered": true,
                "skips_with_upstream": true, "skip_share": 0.25, "fail_share": 0.25, "lose_share": 0.25,
                "poison_share": 0.25, "fatal_at": 7,
            });
            let changes = json!([
                { "at_ms": 1, "set": "capacity", "model": "m", "slots": 3 },
                { "at_ms": 1, "set": "capacity", "model": "m", "slots": "schedule" },
                { "at_ms": 1, "set": "refuse", "model": "m", "for_ms": 3 },
                { "at_ms": 1, "set": "slow", "model": "m", "factor": 2.5, "for_ms": 3 },
                { "at_ms": 1, "set": "algorithm", "model": "m", "algorithm": limit },
                { "at_ms": 1, "set": "request", "model": "m", "request": request },
                { "at_ms": 1, "set": "policy", "policy": policy },
                { "at_ms": 1, "set": "weight", "column": "c", "weight": 2.5 },
                { "at_ms": 1, "set": "max_parallel", "model": "m", "calls": 3 },
            ]);
            json!({
                "name": "n", "title": "t", "description": "d", "rows": 8, "row_group_size": 2, "row_groups": 2,
                "submission_limit": 4,
                "models": [{
                    "name": "m", "max_parallel": 4, "request": request, "algorithm": limit, "task_limit": 9,
                    "provider": provider,
                }, { "name": "e", "max_parallel": 4, "domain_of": "m", "provider": {} }],
                "resources": { "gpu": 3 },
                "columns": [column],
                "policy": policy,
                "adaptive": { "initial": 1, "max_admitted_rows": 9, "shrink_after": 7 },
                "advisory": false, "yields": false, "retries": 2, "shutdown_window": 9, "shutdown_rate": rate,
                "rate_limit_patience_ms": patience, "outage_patience_ms": patience, "recheck_ms": 9,
                "health_calls": true, "degraded_window": 9, "degraded_rate": rate, "degraded_pause_ms": 9,
                "retry_floor_ms": 9, "retry_ceiling_ms": 99, "done_row_groups": [1],
                "missing_rows": [{ "start": 0, "end": 1 }],
                "pre_batch": { "takes_ms": 1, "fails_at": 1, "leaves_out_share": 0.25 },
                "post_batch": { "takes_ms": 1, "fails_at": 1 }, "checkpoint": { "takes_ms": 1, "fails_at": 1 },
                "wind_down_at_ms": 1, "drain_at_ms": 1, "cancel_at_ms": 1,
                "holders": [{ "model": "m", "slots": 1, "from_ms": 1, "until_ms": 2 }],
                "changes": changes,
            })
        })
        .collect()
}

/// Asserts that the schema and the reader know the same keys in each table of `value`, which is at `pointer`
/// in `file` and has the schema `schema`.
fn assert_same_keys(schema: &Value, file: &Value, value: &Value, pointer: &str) {
    let schemas = schemas_of(schema, value);
    match value {
        Value::Object(map) => {
            let mut described: BTreeSet<String> = BTreeSet::new();
            for schema in &schemas {
                described.extend(schema["properties"].as_object().into_iter().flatten().map(|(key, _)| key.clone()));
            }
            let is_open = schemas.iter().any(|schema| schema["additionalProperties"].is_object());
            if !is_open {
                let known = keys_that_the_reader_names(file, pointer);
                assert!(known.is_subset(&described), "{pointer}: {known:?} are not all in {described:?}");
                // The reader's message omits a key that selects the form. It is in this file, which it
                // accepts.
                let unknown: Vec<_> = described.iter().filter(|key| !known.contains(*key)).collect();
                assert!(unknown.iter().all(|key| map.contains_key(*key)), "{pointer}: {unknown:?} are not all read");
            }
            for (key, value) in map {
                let mut below =
                    schemas.iter().flat_map(|schema| [&schema["properties"][key], &schema["additionalProperties"]]);
                let below = below.find(|schema| schema.is_object());
                assert_same_keys(below.unwrap(), file, value, &format!("{pointer}/{key}"));
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                assert_same_keys(&schemas[0]["items"], file, item, &format!("{pointer}/{at}"));
            }
        }
        _ => {}
    }
}

/// Returns `schema` and those of its alternatives that fit `value`.
fn schemas_of<'s>(schema: &'s Value, value: &Value) -> Vec<&'s Value> {
    let alternatives = ["oneOf", "anyOf"].map(|key| schema[key].as_array()).into_iter().flatten().flatten();
    let fitting = alternatives.filter(|one| validator(one).is_valid(value));
    [schema].into_iter().chain(fitting).collect()
}

/// Returns the keys that the reader expects according to its message about an unknown key at `pointer`.
fn keys_that_the_reader_names(file: &Value, pointer: &str) -> BTreeSet<String> {
    let mut changed = file.clone();
    changed.pointer_mut(pointer).unwrap()["no_such_key"] = 1.into();
    let text = toml::to_string(&changed).unwrap();
    let error = toml::from_str::<Scenario>(&text).expect_err(pointer).message().to_string();
    if error.contains("exactly 1 element") || error.contains("a single key") {
        // The key selects the form.
        return BTreeSet::new();
    }
    // "expected one of `a`, `b`", or "there are no fields".
    let expected = error.strip_prefix("unknown field `no_such_key`, ").expect(&error);
    expected.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

/// Returns all keys of the schema.
fn keys(schema: &Value) -> BTreeSet<String> {
    let own = schema["properties"].as_object().into_iter().flatten().map(|(key, _)| key.clone());
    let map = schema.as_object().into_iter().flatten().filter(|(key, _)| *key != "default");
    let below = map.map(|(_, value)| value).chain(schema.as_array().into_iter().flatten());
    own.chain(below.flat_map(keys)).collect()
}

fn remove_used(keys: &mut BTreeSet<String>, value: &Value) {
    for (key, value) in value.as_object().into_iter().flatten() {
        keys.remove(key);
        remove_used(keys, value);
    }
    value.as_array().into_iter().flatten().for_each(|item| remove_used(keys, item));
}

/// Returns the JSON pointers of all values below `value`.
fn pointers(value: &Value) -> Vec<String> {
    let map = value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value));
    let items = value.as_array().into_iter().flatten().enumerate().map(|(at, value)| (at.to_string(), value));
    let below = map.chain(items).flat_map(|(step, value)| {
        let own = [format!("/{step}")];
        own.into_iter().chain(pointers(value).into_iter().map(move |rest| format!("/{step}{rest}")))
    });
    below.collect()
}

/// Returns copies of `file` in which the value at `pointer` is absent, or of another type.
fn changes_at(file: &Value, pointer: &str) -> Vec<Value> {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let mut without = file.clone();
    let removed = without.pointer_mut(parent).and_then(Value::as_object_mut).and_then(|map| map.remove(key));
    let others =
        [json!(true), json!("no such word"), json!(-1), json!(3), json!(1.5), json!([1]), json!({ "no_such_key": 1 })];
    let changed = others.into_iter().map(|other| {
        let mut changed = file.clone();
        *changed.pointer_mut(pointer).unwrap() = other;
        changed
    });
    removed.map(|_| without).into_iter().chain(changed).collect()
}
