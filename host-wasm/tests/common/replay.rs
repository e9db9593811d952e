//! A log that the native program recorded, over threads and sockets, gives the same digest here.

use js_sys::Reflect;
use tidegate_wasm::replay::replay_decisions;
use wasm_bindgen::JsValue;
use wasm_bindgen_test::wasm_bindgen_test;

const LOG: &str = include_str!("../data/decision_log.jsonl");

/// That of a run that shared its limit and a budget with another one. It is of a version that did not record
/// the commands of a leader.
const SHARED_LOG: &str = include_str!("../data/shared_decision_log.jsonl");

/// That of such a run which led, with the commands of the leader.
const LEADER_LOG: &str = include_str!("../data/leader_decision_log.jsonl");

fn get(of: &JsValue, name: &str) -> JsValue {
    Reflect::get(of, &name.into()).expect("a plain object")
}

#[wasm_bindgen_test]
fn a_log_of_the_native_program_is_replayed_to_the_digest_it_ends_with() {
    for log in [LOG, SHARED_LOG, LEADER_LOG] {
        let replayed = replay_decisions(log).expect("a whole log");
        assert_eq!(get(&replayed, "equal"), JsValue::TRUE, "{replayed:?}");
        assert_eq!(get(&replayed, "entries"), JsValue::from(log.lines().count() as u32 - 2));
    }
}

#[wasm_bindgen_test]
fn a_log_without_its_end_is_replayed_and_compared_with_nothing() {
    // As a run that was killed leaves it.
    let whole: String = LOG.split_inclusive('\n').take(40).collect();
    let cut = whole + "{\"n\":39,\"com";
    let replayed = replay_decisions(&cut).expect("the beginning of a log");
    assert_eq!((get(&replayed, "equal"), get(&replayed, "entries")), (JsValue::NULL, JsValue::from(39)));
}

#[wasm_bindgen_test]
fn a_text_that_is_no_log_is_refused_at_its_line() {
    let second = LOG.lines().next().expect("a header").to_owned() + "\n{\"n\":0}";
    for (text, message) in [
        ("", "line 1: this is no line of a decision log: the log is empty"),
        ("{}", "line 1: this is no line of a decision log: the first line is not a header"),
        ("{", "line 1: this is no line of a decision log: it is not JSON: EOF while parsing an object"),
        (&second, "line 2: this is no line of a decision log: it is no header, no command and no end"),
    ] {
        let error = JsValue::from(replay_decisions(text).expect_err(message));
        assert_eq!(get(&error, "message"), JsValue::from(message));
    }
}
