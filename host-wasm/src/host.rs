//! A clock, a timer and a spawner over the JavaScript event loop.
//!
//! The clock is `performance.now()`, monotonic in browsers, workers and Node alike. A [`Sleep`] arms one
//! `setTimeout` at a time, rounded up; a timer that fires early, or a wait longer than the 2^31 - 1 ms that
//! `setTimeout` can hold, is armed again, so a sleep never ends before its instant.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use js_sys::Date;
use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::time::{Clock, Duration, Instant};
use tidegate_local_lock::LocalLock;
use wasm_bindgen::prelude::*;

use crate::gate::completions::Notifying;

/// The longest delay `setTimeout` takes without wrapping to zero.
const MAX_DELAY_MS: u64 = i32::MAX as u64;

const NANOS_PER_MS: u64 = 1_000_000;

/// The least difference of two clocks that counts as a time in which the machine was suspended, in milliseconds.
const LEAST_SUSPENDED_MS: f64 = 1_000.0;

#[wasm_bindgen]
unsafe extern "C" {
    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn performance_now() -> f64;

    // A number in browsers, an object in Node: stored unchanged.
    #[wasm_bindgen(js_name = setTimeout)]
    fn set_timeout(callback: &Closure<dyn FnMut()>, delay_ms: i32) -> JsValue;

    #[wasm_bindgen(js_name = clearTimeout)]
    fn clear_timeout(timer: &JsValue);
}

/// The event loop of the realm that the module runs in. It has no state: every copy is the same host.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsHost;

impl Clock for JsHost {
    /// Nanoseconds since the realm's time origin, as fine as the realm lets a script see.
    fn now(&self) -> Instant {
        Instant::from_nanos((performance_now() * NANOS_PER_MS as f64) as u64)
    }

    /// Found by the clock of the machine, which goes on, as `performance.now()` stops on Linux. A step of a second or
    /// more ahead of `performance.now()` between two calls counts, so a clock that is set forward counts, too: the
    /// share is then renewed by the next beat.
    fn suspended(&self) -> Duration {
        thread_local! {
            /// By how much the clock of the machine was ahead at the last call, and the sum of its steps, in
            /// milliseconds.
            static AHEAD: Cell<(f64, f64)> = const { Cell::new((f64::NAN, 0.0)) };
        }
        let ahead = Date::now() - performance_now();
        let (last, sum) = AHEAD.get();
        // There is none before the first call.
        let step = if ahead - last >= LEAST_SUSPENDED_MS { ahead - last } else { 0.0 };
        AHEAD.set((ahead, sum + step));
        Duration::from_nanos(((sum + step) * NANOS_PER_MS as f64) as u64)
    }
}

impl Timer for JsHost {
    type Sleep = Sleep;

    fn sleep_until(&self, at: Instant) -> Sleep {
        Sleep { at, armed: None }
    }
}

impl<F: Future<Output = ()> + 'static> Spawn<F> for JsHost {
    fn spawn(&self, future: F) {
        wasm_bindgen_futures::spawn_local(Notifying { future });
    }
}

impl Host for JsHost {
    type Lock = LocalLock;
}

/// Ends at or after its instant. Dropping it clears the timer.
#[derive(Debug)]
#[must_use = "a sleep does nothing until it is polled"]
pub struct Sleep {
    at: Instant,
    armed: Option<Armed>,
}

/// One live `setTimeout`. The callback takes the waker out, so an empty slot means that the timer has fired.
#[derive(Debug)]
struct Armed {
    timer: JsValue,
    waker: Rc<RefCell<Option<Waker>>>,
    _callback: Closure<dyn FnMut()>,
}

impl Armed {
    fn new(delay_ms: i32, waker: Waker) -> Self {
        let slot = Rc::new(RefCell::new(Some(waker)));
        let shared = Rc::clone(&slot);
        let callback = Closure::new(move || {
            // Taken first: the waker may run anything, this sleep's `poll` included.
            let waker = shared.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        Self { timer: set_timeout(&callback, delay_ms), waker: slot, _callback: callback }
    }

    /// Keeps the newest waker; false when the timer has fired already.
    fn register(&self, waker: &Waker) -> bool {
        match &mut *self.waker.borrow_mut() {
            Some(kept) => {
                kept.clone_from(waker);
                true
            }
            None => false,
        }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        clear_timeout(&self.timer);
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let remaining = self.at.saturating_duration_since(JsHost.now());
        if remaining.is_zero() {
            self.armed = None;
            return Poll::Ready(());
        }
        if !self.armed.as_ref().is_some_and(|armed| armed.register(context.waker())) {
            let delay_ms = remaining.as_nanos().div_ceil(NANOS_PER_MS).min(MAX_DELAY_MS);
            self.armed = Some(Armed::new(delay_ms as i32, context.waker().clone()));
        }
        Poll::Pending
    }
}
