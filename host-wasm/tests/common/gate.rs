//! The gate in tickets and numbers, as the TypeScript package speaks to it. What people see of it is tested there.

use tidegate_core::time::{Clock, Duration};
use tidegate_wasm::gate::answer::read_head;
use tidegate_wasm::gate::tickets::{DENIED, EMPTY, denial_reason, next_completion};
use tidegate_wasm::gate::{RequestGate, cancel, finish};
use tidegate_wasm::host::JsHost;
use wasm_bindgen_test::wasm_bindgen_test;

const SUCCESS: u32 = 0;
const RATE_LIMITED: u32 = 1;
const QUEUE_TIMEOUT: u32 = 4;
const SHUTDOWN: u32 = 6;

fn gate_of(max_parallel: u32) -> (RequestGate, u32) {
    let gate = RequestGate::new(&js_sys::Object::new()).expect("the defaults are valid");
    let limits = format!(r#"{{ "maxParallel": {max_parallel}, "algorithm": "aimd" }}"#);
    let limits = js_sys::JSON::parse(&limits).expect("it is JSON");
    let resource = gate.register("provider", "model", "chat", &limits);
    (gate, resource.expect("a valid registration"))
}

fn ask(gate: &RequestGate, resource: u32, timeout_ms: f64) -> i32 {
    gate.acquire(resource, -1, timeout_ms, 0, 0)
}

fn end(ticket: i32, outcome: u32, retry_after_ms: f64) -> u32 {
    finish(u32::try_from(ticket).expect("a permit"), outcome, retry_after_ms, -1.0, 0.0)
}

async fn sleep(span: Duration) {
    use tidegate_core::runtime::Timer;
    JsHost.sleep_until(JsHost.now() + span).await;
}

/// Returns the next completion. The runner ends a test that never has one.
async fn completion_in_time() -> i32 {
    loop {
        match next_completion() {
            EMPTY => sleep(Duration::from_millis(2)).await,
            completion => return completion,
        }
    }
}

#[wasm_bindgen_test]
fn a_waiting_call_gets_the_slot_that_a_finished_one_gives_back() {
    let (gate, resource) = gate_of(1);
    let first = ask(&gate, resource, f64::NAN);
    let second = ask(&gate, resource, f64::NAN);
    assert!(first >= 0 && second < 0 && second != DENIED);
    assert_eq!(gate.try_acquire(resource, -1, 0, 0), DENIED);
    assert_eq!(end(first, SUCCESS, f64::NAN), 1);
    assert_eq!((next_completion(), next_completion()), (!second, EMPTY));
    assert_eq!(end(!second, SUCCESS, f64::NAN), 0);
}

#[wasm_bindgen_test]
fn a_ticket_that_is_given_up_leaves_the_queue_or_gives_its_slot_back() {
    let (gate, resource) = gate_of(1);
    let held = ask(&gate, resource, f64::NAN);
    let (left, next) = (ask(&gate, resource, f64::NAN), ask(&gate, resource, f64::NAN));
    assert_eq!(cancel(!left as u32), 0);
    assert_eq!(cancel(held as u32), 1);
    assert_eq!((next_completion(), next_completion()), (!next, EMPTY));
    assert_eq!(cancel(!next as u32), 0);
    assert!(ask(&gate, resource, 0.0) >= 0);
}

#[wasm_bindgen_test]
async fn a_wait_past_its_deadline_is_refused_with_the_reason() {
    let (gate, resource) = gate_of(1);
    let held = ask(&gate, resource, f64::NAN);
    let late = ask(&gate, resource, 5.0);
    assert_eq!(completion_in_time().await, late, "the ticket is free again");
    assert_eq!(denial_reason(), QUEUE_TIMEOUT);
    end(held, SUCCESS, f64::NAN);
}

#[wasm_bindgen_test]
async fn after_a_429_nobody_goes_out_before_the_provider_said() {
    let (gate, resource) = gate_of(4);
    let until = JsHost.now() + Duration::from_millis(30);
    end(ask(&gate, resource, f64::NAN), RATE_LIMITED, 30.0);
    let waiting = ask(&gate, resource, f64::NAN);
    assert!(waiting < 0);
    assert_eq!(completion_in_time().await, !waiting);
    assert!(JsHost.now() >= until);
    end(!waiting, SUCCESS, f64::NAN);
}

#[wasm_bindgen_test]
fn shutdown_turns_waiting_calls_away() {
    let (gate, resource) = gate_of(1);
    let held = ask(&gate, resource, f64::NAN);
    let waiting = ask(&gate, resource, f64::NAN);
    assert_eq!(gate.shutdown(), 1);
    assert_eq!(next_completion(), waiting);
    assert_eq!(denial_reason(), SHUTDOWN);
    end(held, SUCCESS, f64::NAN);
}

#[wasm_bindgen_test]
fn a_head_is_read_from_its_lines() {
    let said = read_head(429, "retry-after:2\nx-ratelimit-remaining-requests:7\n");
    assert_eq!(said[..2], [f64::from(RATE_LIMITED), 2_000.0]);
    assert_eq!((said[2], said[4]), (0.0, 7.0));
    assert!(said[3].is_nan() && said[5].is_nan());
    let dates = "date:Sun, 06 Nov 1994 08:49:37 GMT\nretry-after:Sun, 06 Nov 1994 08:49:47 GMT\n";
    assert_eq!(read_head(503, dates)[..2], [f64::from(RATE_LIMITED), 10_000.0]);
    assert_eq!(read_head(200, "")[0], 0.0);
}
