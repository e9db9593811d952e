//! Completions of waiting calls that were not read yet, and the callback that announces them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use js_sys::Function;
use pin_project_lite::pin_project;
use wasm_bindgen::prelude::*;

thread_local! {
    /// Tickets with a completion.
    static COMPLETIONS: RefCell<VecDeque<u32>> = const { RefCell::new(VecDeque::new()) };
    static NOTIFY: RefCell<Option<Function>> = const { RefCell::new(None) };
    /// Whether the completions were announced: the announced turn reads all that arrive before it.
    static IS_ANNOUNCED: Cell<bool> = const { Cell::new(false) };
    /// The number of gates with event listeners.
    static LISTENING: Cell<u32> = const { Cell::new(0) };
}

/// Adds a completion: the call of the ticket can go on.
pub(super) fn record(ticket: u32) {
    COMPLETIONS.with_borrow_mut(|completions| completions.push_back(ticket));
}

/// Takes the ticket of the oldest completion. With none, the next one is announced again.
pub(super) fn next() -> Option<u32> {
    let next = COMPLETIONS.with_borrow_mut(VecDeque::pop_front);
    if next.is_none() {
        IS_ANNOUNCED.set(false);
    }
    next
}

/// Returns an upper bound of the number of completions.
pub(super) fn count() -> u32 {
    COMPLETIONS.with_borrow(VecDeque::len) as u32
}

/// Sets the callback for turns of the module that no command caused, after which there may be completions or
/// events.
#[wasm_bindgen(js_name = setNotify)]
pub fn set_notify(callback: Function) {
    NOTIFY.set(Some(callback));
}

/// While this exists, a gate has event listeners.
pub(super) struct Listening;

impl Listening {
    pub(super) fn new() -> Self {
        LISTENING.set(LISTENING.get() + 1);
        Self
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENING.set(LISTENING.get() - 1);
    }
}

fn notify_if_needed() {
    if LISTENING.get() > 0 || count() > 0 {
        notify();
    }
}

/// Announces completions. Called after a command that does not return their number.
pub(crate) fn announce() {
    if count() > 0 && !IS_ANNOUNCED.replace(true) {
        notify();
    }
}

#[cold]
fn notify() {
    let callback = NOTIFY.with_borrow(Clone::clone);
    if let Some(callback) = callback {
        // The callback only schedules a microtask, and does not throw.
        let _ = callback.call0(&JsValue::UNDEFINED);
    }
}

pin_project! {
    /// A future that notifies after each of its polls, see [`set_notify`].
    pub(crate) struct Notifying<F> {
        #[pin]
        pub(crate) future: F,
    }
}

impl<F: Future<Output = ()>> Future for Notifying<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let polled = self.project().future.poll(context);
        notify_if_needed();
        polled
    }
}
