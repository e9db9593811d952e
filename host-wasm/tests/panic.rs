//! A panic of a module, which is a defect of it. A file of its own, because the instance cannot be used after it.
#![cfg(target_arch = "wasm32")]

use js_sys::{Error, Function};
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_node_experimental);

#[wasm_bindgen_test]
fn a_panic_throws_an_error_with_its_message_and_the_place_in_the_rust_code() {
    // Replaces the hook of the tests.
    tidegate_wasm::start();
    let panics = Closure::<dyn Fn()>::new(|| panic!("low water")).into_js_value();
    let caught = Function::new_with_args("panics", "try { panics(); } catch (error) { return error; }");
    let caught = caught.call1(&JsValue::NULL, &panics).expect("it is caught");
    let message = String::from(caught.dyn_into::<Error>().expect("an Error").message());
    assert!(message.starts_with("tidegate has a defect: panicked at host-wasm/tests/panic.rs:"), "{message}");
    assert!(message.ends_with("\nlow water"), "{message}");
}
