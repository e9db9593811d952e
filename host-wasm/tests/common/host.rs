//! The clock, the timer and the spawner.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use tidegate_core::runtime::{Spawn, Timer, check_host, check_spawn};
use tidegate_core::time::{Clock, Duration, Instant};
use tidegate_wasm::host::{JsHost, Sleep};
use wasm_bindgen_test::wasm_bindgen_test;

#[wasm_bindgen_test]
async fn the_host_keeps_the_rules() {
    assert_eq!(check_host(JsHost).await, Ok(()));
    assert_eq!(check_spawn(JsHost).await, Ok(()));
}

#[wasm_bindgen_test]
fn the_clock_never_goes_backwards() {
    let mut earlier = JsHost.now();
    for _ in 0..1_000 {
        let now = JsHost.now();
        assert!(now >= earlier);
        earlier = now;
    }
}

#[wasm_bindgen_test]
async fn a_sleep_never_ends_before_its_instant() {
    for millis in [0, 1, 3, 7] {
        let until = JsHost.now() + Duration::from_millis(millis) + Duration::from_micros(300);
        JsHost.sleep_until(until).await;
        assert!(JsHost.now() >= until);
    }
}

#[wasm_bindgen_test]
async fn a_sleep_until_a_past_instant_ends_before_any_that_has_to_wait() {
    let order = Rc::new(RefCell::new(Vec::new()));
    let long = JsHost.now() + Duration::from_millis(20);
    for (name, until) in [("past", Instant::ZERO), ("long", long)] {
        let (sleep, order) = (JsHost.sleep_until(until), Rc::clone(&order));
        JsHost.spawn(async move {
            sleep.await;
            order.borrow_mut().push(name);
        });
    }
    JsHost.sleep_until(long + Duration::from_millis(20)).await;
    assert_eq!(*order.borrow(), ["past", "long"]);
}

/// Sleeps of 20, 5, 12 and 8 ms that are armed, and the instant that they count from. On a busy machine the first may be over before
/// the last is armed: then others are made.
async fn armed_sleeps() -> (Instant, [Pin<Box<Sleep>>; 4]) {
    loop {
        let now = JsHost.now();
        let mut sleeps = [20, 5, 12, 8].map(|millis| Box::pin(JsHost.sleep_until(now + Duration::from_millis(millis))));
        let arm =
            poll_fn(|context| Poll::Ready(sleeps.iter_mut().all(|sleep| sleep.as_mut().poll(context).is_pending())));
        if arm.await && JsHost.now() < now + Duration::from_millis(5) {
            return (now, sleeps);
        }
    }
}

#[wasm_bindgen_test]
async fn sleeps_end_in_the_order_of_their_instants_and_a_dropped_one_wakes_nobody() {
    let order = Rc::new(RefCell::new(Vec::new()));
    let (now, [long, short, middle, dropped]) = armed_sleeps().await;
    drop(dropped);
    for (millis, sleep) in [(20, long), (5, short), (12, middle)] {
        let order = Rc::clone(&order);
        JsHost.spawn(async move {
            sleep.await;
            order.borrow_mut().push(millis);
        });
    }
    JsHost.sleep_until(now + Duration::from_millis(40)).await;
    assert_eq!(*order.borrow(), [5, 12, 20]);
}
