//! Tickets: who waits, who has a permit, and whose answer is there to be taken up.
//!
//! One book serves all gates of the module, so that one small number names a call. The waker of a call that waits is its
//! ticket and nothing else: waking it writes the ticket down.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use js_sys::Function;
use pin_project_lite::pin_project;
use tidegate_core::gate::{AcquireOwned, OwnedPermit};
use tidegate_core::lease::LeaseId;
use tidegate_core::request::{Denial, DenialReason};
use wasm_bindgen::prelude::*;

use super::changes_in;
use crate::host::JsHost;

/// No ticket: the call may not go out. Why is told by [`denial_reason`] until the next denial.
pub const DENIED: i32 = i32::MIN;

/// No more news.
pub const NO_NEWS: i32 = i32::MIN;

/// Where a ticket stands.
enum Seat {
    Free,
    Waiting(AcquireOwned<JsHost>),
    Held(OwnedPermit<JsHost>),
}

struct Seats {
    seats: Vec<Seat>,
    free: Vec<u32>,
}

thread_local! {
    static SEATS: RefCell<Seats> = const { RefCell::new(Seats { seats: Vec::new(), free: Vec::new() }) };
    /// Tickets whose answer is there.
    static NEWS: RefCell<VecDeque<u32>> = const { RefCell::new(VecDeque::new()) };
    static DENIAL: Cell<Denial> =
        const { Cell::new(Denial { reason: DenialReason::Unregistered, changes_at: None }) };
    static ON_TURN: RefCell<Option<Function>> = const { RefCell::new(None) };
    /// Whether the news that is there was announced: its turn then takes up all that comes before it.
    static IS_ANNOUNCED: Cell<bool> = const { Cell::new(false) };
    /// Gates whose events somebody wants.
    static LISTENING: Cell<u32> = const { Cell::new(0) };
}

impl Seats {
    fn number(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.seats.push(Seat::Free);
            self.seats.len() as u32 - 1
        })
    }

    fn put(&mut self, ticket: u32, seat: Seat) {
        if let Some(place) = self.seats.get_mut(ticket as usize) {
            *place = seat;
        }
    }

    /// What a call was answered that waits: see [`next_news`]. None if it was not yet, or was given up, and its ticket is perhaps
    /// another's by now, whose own news will follow.
    fn answer(&mut self, ticket: u32) -> Option<i32> {
        let seat = self.seats.get_mut(ticket as usize)?;
        let Seat::Waiting(acquire) = seat else { return None };
        // In its place, which spares moving it: to look for an answer asks nobody who would look into the book.
        match Pin::new(acquire).poll(&mut Context::from_waker(&waker(ticket))) {
            Poll::Pending => None,
            Poll::Ready(Ok(permit)) => {
                *seat = Seat::Held(permit);
                Some(ticket.cast_signed())
            }
            Poll::Ready(Err(denial)) => {
                *seat = Seat::Free;
                self.free.push(ticket);
                put_denial(denial);
                Some(!ticket.cast_signed())
            }
        }
    }

    /// What is at a ticket, which is free from now on.
    fn take(&mut self, ticket: u32) -> Seat {
        let seat = self.seats.get_mut(ticket as usize).map_or(Seat::Free, |seat| std::mem::replace(seat, Seat::Free));
        if !matches!(seat, Seat::Free) {
            self.free.push(ticket);
        }
        seat
    }
}

/// Asks. Answers the ticket of a permit, the complement of a ticket that waits, or [`DENIED`].
pub(super) fn ask(mut acquire: AcquireOwned<JsHost>) -> i32 {
    let ticket = SEATS.with_borrow_mut(Seats::number);
    let asked = Pin::new(&mut acquire).poll(&mut Context::from_waker(&waker(ticket)));
    let answer = SEATS.with_borrow_mut(|seats| match asked {
        Poll::Ready(Ok(permit)) => {
            seats.put(ticket, Seat::Held(permit));
            ticket.cast_signed()
        }
        Poll::Ready(Err(denial)) => {
            seats.free.push(ticket);
            put_denial(denial);
            DENIED
        }
        Poll::Pending => {
            seats.put(ticket, Seat::Waiting(acquire));
            !ticket.cast_signed()
        }
    });
    announce();
    answer
}

/// A ticket for a permit that is there.
pub(super) fn keep(permit: OwnedPermit<JsHost>) -> i32 {
    SEATS.with_borrow_mut(|seats| {
        let ticket = seats.number();
        seats.put(ticket, Seat::Held(permit));
        ticket.cast_signed()
    })
}

/// The permit of a ticket, which is free from now on.
pub(super) fn take(ticket: u32) -> Option<OwnedPermit<JsHost>> {
    match SEATS.with_borrow_mut(|seats| seats.take(ticket)) {
        Seat::Held(permit) => Some(permit),
        Seat::Free | Seat::Waiting(_) => None,
    }
}

/// The lease of a ticket that has its permit.
pub(super) fn lease(ticket: u32) -> Option<LeaseId> {
    SEATS.with_borrow(|seats| match seats.seats.get(ticket as usize) {
        Some(Seat::Held(permit)) => Some(permit.lease()),
        _ => None,
    })
}

/// Drops what is at a ticket, outside the book: it goes back to its gate, which may wake others.
pub(super) fn forget(ticket: u32) {
    drop(SEATS.with_borrow_mut(|seats| seats.take(ticket)));
}

pub(super) fn put_denial(denial: Denial) {
    DENIAL.set(denial);
}

/// How much news there is, at most.
pub(super) fn count() -> u32 {
    NEWS.with_borrow(VecDeque::len) as u32
}

/// The next call that was answered: its ticket, if it has its permit; its complement, if it was refused, and is free again;
/// [`NO_NEWS`], if there is none.
#[wasm_bindgen(js_name = nextNews)]
#[must_use]
pub fn next_news() -> i32 {
    loop {
        let Some(ticket) = NEWS.with_borrow_mut(VecDeque::pop_front) else {
            IS_ANNOUNCED.set(false);
            return NO_NEWS;
        };
        if let Some(answer) = SEATS.with_borrow_mut(|seats| seats.answer(ticket)) {
            return answer;
        }
    }
}

/// The number of the reason of the latest denial.
#[wasm_bindgen(js_name = denialReason)]
#[must_use]
pub fn denial_reason() -> u32 {
    DENIAL.get().reason as u32
}

/// In how many milliseconds capacity changes, by the latest denial; NaN if that is not known.
#[wasm_bindgen(js_name = denialChangesInMs)]
#[must_use]
pub fn denial_changes_in_ms() -> f64 {
    changes_in(&DENIAL.get())
}

/// `callback` is called after a turn of the module's own in which there was news or may have been events.
#[wasm_bindgen(js_name = onTurn)]
pub fn on_turn(callback: Function) {
    ON_TURN.set(Some(callback));
}

/// Somebody wants a gate's events, as long as this is there.
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

fn turn_ended() {
    if LISTENING.get() > 0 || count() > 0 {
        call_back();
    }
}

/// After a command whose answer does not say that there is news.
pub(crate) fn announce() {
    if count() > 0 && !IS_ANNOUNCED.replace(true) {
        call_back();
    }
}

#[cold]
fn call_back() {
    let callback = ON_TURN.with_borrow(Clone::clone);
    if let Some(callback) = callback {
        // It only asks for a turn of its own, and does not throw.
        let _ = callback.call0(&JsValue::UNDEFINED);
    }
}

pin_project! {
    /// A future whose turns are followed by [`on_turn`].
    pub(crate) struct Turns<F> {
        #[pin]
        pub(crate) future: F,
    }
}

impl<F: Future<Output = ()>> Future for Turns<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let polled = self.project().future.poll(context);
        turn_ended();
        polled
    }
}

const TICKETS: RawWakerVTable = RawWakerVTable::new(
    |ticket| RawWaker::new(ticket, &TICKETS),
    |ticket| note(ticket as usize as u32),
    |ticket| note(ticket as usize as u32),
    |_| {},
);

fn note(ticket: u32) {
    NEWS.with_borrow_mut(|news| news.push_back(ticket));
}

fn waker(ticket: u32) -> Waker {
    // SAFETY: the data is a number that is never dereferenced, so every function of the table is sound for any value of it,
    // on any thread, any number of times; nothing is owned, so nothing has to be dropped.
    unsafe { Waker::from_raw(RawWaker::new(ticket as usize as *const (), &TICKETS)) }
}
