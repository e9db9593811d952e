//! Tests of the virtual-time executor.

use std::cell::RefCell;
use std::future::{Future, pending, poll_fn};
use std::rc::Rc;
use std::task::Poll;

use tidegate_core::runtime::{Spawn, Timer};
use tidegate_core::sim::executor::Stalled;
use tidegate_core::time::Clock;

use crate::support::{Runtime, TestHost, at};

#[test]
fn tasks_run_in_the_order_of_their_wakes_and_sleeps_end_exactly_on_time() {
    let runtime = Runtime::new();
    let host = runtime.host();
    let log = Rc::new(RefCell::new(Vec::new()));
    for (name, sleep) in [("a", 20), ("b", 10), ("c", 20), ("d", 0)] {
        let (inner, log) = (host.clone(), Rc::clone(&log));
        host.spawn(async move {
            inner.sleep_until(at(sleep)).await;
            log.borrow_mut().push((name, inner.now()));
        });
    }
    runtime.run_until(at(15));
    assert_eq!((host.now(), runtime.tasks(), runtime.armed_timers()), (at(15), 2, 2));
    runtime.run();
    assert_eq!(*log.borrow(), [("d", at(0)), ("b", at(10)), ("a", at(20)), ("c", at(20))]);
    assert_eq!((runtime.tasks(), runtime.armed_timers()), (0, 0));
}

#[test]
fn a_future_that_can_never_end_returns_an_error() {
    let runtime = Runtime::new();
    let host = runtime.host();
    host.spawn(pending());
    let stalled = runtime.block_on(async {
        host.sleep_until(at(5)).await;
        pending::<()>().await;
    });
    assert_eq!(stalled, Err(Stalled { at: at(5), tasks: 1 }));
}

#[test]
fn a_sleep_that_is_dropped_disarms_its_timer() {
    let runtime = Runtime::new();
    let host = runtime.host();
    let mut sleep = Box::pin(host.sleep_until(at(5)));
    let polled_once = poll_fn(|context| Poll::Ready(sleep.as_mut().poll(context).is_pending()));
    assert_eq!(runtime.block_on(polled_once), Ok(true));
    assert_eq!(runtime.armed_timers(), 1);
    drop(sleep);
    assert_eq!(runtime.armed_timers(), 0);
}

#[test]
fn an_executor_that_is_dropped_drops_its_tasks_and_spawns_no_more() {
    struct SpawnsWhenDropped(TestHost, Rc<()>);
    impl Drop for SpawnsWhenDropped {
        fn drop(&mut self) {
            let kept = Rc::clone(&self.1);
            self.0.spawn(async move {
                pending::<()>().await;
                drop(kept);
            });
        }
    }
    let runtime = Runtime::new();
    let host = runtime.host();
    let alive = Rc::new(());
    let guard = SpawnsWhenDropped(host.clone(), Rc::clone(&alive));
    host.spawn(async move {
        let _guard = guard;
        pending::<()>().await;
    });
    runtime.run();
    assert_eq!(Rc::strong_count(&alive), 2);
    drop(runtime);
    assert_eq!(Rc::strong_count(&alive), 1);
}
