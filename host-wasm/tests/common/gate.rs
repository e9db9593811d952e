//! The gate class, as JavaScript uses it.

use js_sys::{JSON, Promise, Reflect};
use tidegate_core::time::{Clock, Duration};
use tidegate_wasm::gate::{Permit, RequestGate, Resource};
use tidegate_wasm::host::JsHost;
use wasm_bindgen::convert::TryFromJsValue;
use wasm_bindgen::{JsError, JsValue};
use wasm_bindgen_futures::JsFuture;
use wasm_bindgen_test::wasm_bindgen_test;

fn gate(options: &str) -> Result<RequestGate, JsError> {
    RequestGate::new(&JSON::parse(options).expect("the test writes JSON"))
}

fn gate_of(max_parallel: f64) -> (RequestGate, Resource) {
    let gate = gate("{}").expect("the defaults are valid");
    let resource = gate.register("provider", "model", max_parallel).expect("a valid registration");
    (gate, resource)
}

fn ask(gate: &RequestGate, resource: &Resource, timeout_ms: Option<f64>) -> JsFuture {
    let promise: Promise = gate.acquire(resource, timeout_ms).expect("valid arguments");
    JsFuture::from(promise)
}

async fn permit(asked: JsFuture) -> Permit {
    let value = asked.await.expect("a permit is granted");
    Permit::try_from_js_value(value).expect("the promise resolves with a permit")
}

fn text(value: &JsValue, key: &str) -> String {
    Reflect::get(value, &key.into()).expect("an object").as_string().unwrap_or_else(|| panic!("{key} is a text"))
}

fn refusal<T>(answer: Result<T, JsError>) -> String {
    text(&JsValue::from(answer.err().expect("the call is refused")), "message")
}

#[wasm_bindgen_test]
async fn a_waiting_caller_gets_the_slot_that_a_finished_call_gives_back() {
    let (gate, resource) = gate_of(1.0);
    let mut first = permit(ask(&gate, &resource, None)).await;
    let second = ask(&gate, &resource, None);
    assert_eq!(text(&gate.try_acquire(&resource).err().expect("nothing is free"), "name"), "DeniedError");
    assert!(first.finish("success", None).expect("a known outcome"));
    assert!(!first.finish("success", None).expect("a known outcome"), "a permit is finished once");
    permit(second).await;
}

#[wasm_bindgen_test]
async fn callers_are_served_in_the_order_of_asking_even_within_one_turn() {
    let (gate, resource) = gate_of(1.0);
    let mut held = permit(ask(&gate, &resource, None)).await;
    let (second, third) = (ask(&gate, &resource, None), ask(&gate, &resource, Some(200.0)));
    held.finish("success", None).expect("a known outcome");
    let denied = gate.try_acquire(&resource).err().expect("the slot went to the one who waited");
    assert_eq!(text(&denied, "name"), "DeniedError");
    let mut second = permit(second).await;
    second.finish("provider_failure", None).expect("a known outcome");
    permit(third).await;
}

#[wasm_bindgen_test]
async fn a_dropped_permit_gives_its_slot_back() {
    let (gate, resource) = gate_of(1.0);
    drop(permit(ask(&gate, &resource, None)).await);
    permit(ask(&gate, &resource, Some(0.0))).await;
}

#[wasm_bindgen_test]
async fn a_wait_past_its_deadline_is_rejected_with_the_reason() {
    let (gate, resource) = gate_of(1.0);
    let _held = permit(ask(&gate, &resource, None)).await;
    let denied = ask(&gate, &resource, Some(5.0)).await.expect_err("nothing becomes free");
    assert_eq!((text(&denied, "name"), text(&denied, "reason")), ("DeniedError".into(), "queue_timeout".into()));
}

#[wasm_bindgen_test]
async fn after_a_429_nobody_goes_out_before_the_provider_said() {
    let (gate, resource) = gate_of(4.0);
    let mut refused = permit(ask(&gate, &resource, None)).await;
    let until = JsHost.now() + Duration::from_millis(30);
    refused.finish("rate_limited", Some(30.0)).expect("a known outcome");
    let denied = gate.try_acquire(&resource).err().expect("the resource cools down");
    assert_eq!(text(&denied, "reason"), "cooldown");
    permit(ask(&gate, &resource, None)).await;
    assert!(JsHost.now() >= until);
}

#[wasm_bindgen_test]
async fn shutdown_turns_waiting_callers_away() {
    let (gate, resource) = gate_of(1.0);
    let _held = permit(ask(&gate, &resource, None)).await;
    let waiting = ask(&gate, &resource, None);
    gate.shutdown();
    assert_eq!(text(&waiting.await.expect_err("the gate is shut"), "reason"), "shutdown");
}

#[wasm_bindgen_test]
fn settings_are_checked_by_name_and_value() {
    assert!(gate(r#"{"initialLimit": 2, "cooldownMs": 0.5, "decreaseFactor": 0.5}"#).is_ok());
    assert!(refusal(gate(r#"{"coolDown": 2}"#)).contains("cooldownMs"), "the known names are listed");
    for wrong in
        [r#"{"initialLimit": 1.5}"#, r#"{"cooldownMs": -1}"#, r#"{"rampMs": "long"}"#, r#"{"decreaseFactor": 7}"#, "3"]
    {
        assert!(gate(wrong).is_err(), "{wrong}");
    }
}

#[wasm_bindgen_test]
fn a_resource_of_another_gate_and_an_unknown_outcome_are_refused() {
    let (one, resource) = gate_of(1.0);
    let (other, _) = gate_of(1.0);
    assert!(refusal(other.snapshot(&resource)).contains("another gate"));
    assert!(one.snapshot(&resource).is_ok());
    let Ok(mut permit) = one.try_acquire(&resource) else { panic!("a slot is free") };
    assert!(refusal(permit.finish("429", None)).contains("rate_limited"));
    assert!(permit.finish("success", None).expect("still open"));
}
