//! Scenario files, traces and decision logs.

use js_sys::{JSON, Reflect};
use tidegate_core::sim::suite;
use tidegate_wasm::files::{Exporter, read_scenario, write_scenario};
use tidegate_wasm::replay::replay_decisions;
use wasm_bindgen::JsValue;
use wasm_bindgen_test::wasm_bindgen_test;

use super::built_in::{object, scenario};

fn text(value: &JsValue) -> String {
    JSON::stringify(value).expect("a plain object").into()
}

fn message(error: wasm_bindgen::JsError) -> String {
    let error = JsValue::from(error);
    Reflect::get(&error, &"message".into()).ok().and_then(|message| message.as_string()).expect("a message")
}

fn export(kind: &str, scenario: &JsValue, seed: f64, until_ms: Option<f64>, slice: f64) -> String {
    let mut exporter = Exporter::new(kind, scenario, seed, until_ms).expect("a valid scenario");
    let (mut whole, mut share) = (String::new(), 0.0);
    while let Some(part) = exporter.next(slice).expect("it can be written") {
        whole += &part;
        assert!((share..=1.0).contains(&exporter.share()));
        share = exporter.share();
    }
    assert!(exporter.share() >= 1.0);
    whole
}

#[wasm_bindgen_test]
fn every_scenario_survives_its_file() {
    for listed in suite::scenarios() {
        let object = object(&listed.scenario);
        let file = write_scenario(&object).expect("a scenario");
        let again = read_scenario(&file).unwrap_or_else(|error| panic!("{}\n{file}", message(error)));
        assert_eq!(text(&again), text(&object), "{file}");
    }
}

#[wasm_bindgen_test]
fn what_is_wrong_with_a_file_is_told_with_its_place() {
    let file = write_scenario(&scenario("unknown-limit")).expect("a scenario");
    for (from, to, told) in [
        ("rows = 800", "rows = 800\nrows = 1", "line 5, column 1: this is not TOML: duplicate key"),
        ("rows = 800", "rowz = 800", "line 4, column 1: rowz: unknown field `rowz`, expected one of `name`, "),
        (
            "rows = 800",
            "rows = \"many\"",
            "line 4, column 8: rows: invalid type: string \"many\", expected a whole number",
        ),
        ("shape = \"constant\"", "shape = \"square\"", "unknown variant `square`, expected one of `constant`, "),
        ("max_parallel = 32", "max_parallel = 0", "model `silent`: "),
    ] {
        let wrong = file.replacen(from, to, 1);
        assert_ne!(wrong, file, "{from}");
        let told_is = message(read_scenario(&wrong).err().expect("it is refused"));
        assert!(told_is.contains(told), "{told_is}");
    }
    assert!(write_scenario(&JsValue::from(3)).is_err());
}

#[wasm_bindgen_test]
fn a_log_of_decisions_is_replayed_to_the_same_digests() {
    for name in ["unknown-limit", "two-harbours", "outage"] {
        let scenario = scenario(name);
        for until in [None, Some(2_500.0)] {
            let log = export("decisions", &scenario, 7.0, until, 333.0);
            let replayed = replay_decisions(&log).unwrap_or_else(|error| panic!("{name}: {}", message(error)));
            let get = |key: &str| Reflect::get(&replayed, &key.into()).expect("a plain object");
            assert_eq!(get("equal"), JsValue::TRUE, "{name}, {until:?}");
            assert_eq!(get("entries"), JsValue::from(log.lines().count() as u32 - 2));
        }
    }
}

#[wasm_bindgen_test]
fn a_trace_is_the_same_in_slices_of_any_size_and_is_json() {
    let scenario = scenario("two-harbours");
    let trace = export("trace", &scenario, 7.0, None, 1e9);
    assert_eq!(export("trace", &scenario, 7.0, None, 10.0), trace);
    let events = JSON::parse(&trace).and_then(|trace| Reflect::get(&trace, &"traceEvents".into()));
    assert!(js_sys::Array::from(&events.expect("JSON")).length() > 1_000);
    assert!(export("trace", &scenario, 7.0, Some(100.0), 10.0).len() < trace.len() / 4);
    assert!(Exporter::new("tracks", &scenario, 1.0, None).is_err());
}
