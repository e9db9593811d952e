//! Tickets of waiting calls and of permits.
//!
//! One table serves all gates of the module, so that one small number identifies a call. The waker of a
//! waiting call consists of its ticket only: waking it records the ticket.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use tidegate_core::gate::{AcquireOwned, OwnedPermit};
use tidegate_core::lease::LeaseId;
use tidegate_core::request::{Denial, DenialReason};
use wasm_bindgen::prelude::*;

use super::changes_in;
use super::completions::{self, announce, record};
use crate::host::JsHost;

/// No ticket: the call is denied. [`denial_reason`] returns the reason until the next denial.
pub const DENIED: i32 = i32::MIN;

/// There are no more completions.
pub const EMPTY: i32 = i32::MIN;

/// The state of a ticket.
enum TicketState {
    Free,
    Waiting(AcquireOwned<JsHost>),
    Held(OwnedPermit<JsHost>),
}

struct TicketTable {
    states: Vec<TicketState>,
    free: Vec<u32>,
}

thread_local! {
    static TICKETS: RefCell<TicketTable> = const { RefCell::new(TicketTable { states: Vec::new(), free: Vec::new() }) };
    static DENIAL: Cell<Denial> =
        const { Cell::new(Denial { reason: DenialReason::Unregistered, changes_at: None }) };
}

impl TicketTable {
    fn number(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.states.push(TicketState::Free);
            self.states.len() as u32 - 1
        })
    }

    fn put(&mut self, ticket: u32, state: TicketState) {
        if let Some(place) = self.states.get_mut(ticket as usize) {
            *place = state;
        }
    }

    /// Returns the completion of a waiting call: see [`next_completion`]. `None` if it still waits or was
    /// cancelled. In the second case its ticket may belong to another call by now, whose own completion
    /// follows.
    fn answer(&mut self, ticket: u32) -> Option<i32> {
        let state = self.states.get_mut(ticket as usize)?;
        let TicketState::Waiting(acquire) = state else { return None };
        // Polled in place, which avoids a move. Polling calls no code that would access this table.
        match Pin::new(acquire).poll(&mut Context::from_waker(&waker(ticket))) {
            Poll::Pending => None,
            Poll::Ready(Ok(permit)) => {
                *state = TicketState::Held(permit);
                Some(ticket.cast_signed())
            }
            Poll::Ready(Err(denial)) => {
                *state = TicketState::Free;
                self.free.push(ticket);
                put_denial(denial);
                Some(!ticket.cast_signed())
            }
        }
    }

    /// Takes the state of a ticket, which is then free.
    fn take(&mut self, ticket: u32) -> TicketState {
        let state = self
            .states
            .get_mut(ticket as usize)
            .map_or(TicketState::Free, |state| std::mem::replace(state, TicketState::Free));
        if !matches!(state, TicketState::Free) {
            self.free.push(ticket);
        }
        state
    }
}

/// Requests a permit. Returns its ticket, the complement of the ticket of a waiting call, or [`DENIED`].
pub(super) fn request(mut acquire: AcquireOwned<JsHost>) -> i32 {
    let ticket = TICKETS.with_borrow_mut(TicketTable::number);
    let asked = Pin::new(&mut acquire).poll(&mut Context::from_waker(&waker(ticket)));
    let answer = TICKETS.with_borrow_mut(|table| match asked {
        Poll::Ready(Ok(permit)) => {
            table.put(ticket, TicketState::Held(permit));
            ticket.cast_signed()
        }
        Poll::Ready(Err(denial)) => {
            table.free.push(ticket);
            put_denial(denial);
            DENIED
        }
        Poll::Pending => {
            table.put(ticket, TicketState::Waiting(acquire));
            !ticket.cast_signed()
        }
    });
    announce();
    answer
}

/// Returns a new ticket for a granted permit.
pub(super) fn keep(permit: OwnedPermit<JsHost>) -> i32 {
    TICKETS.with_borrow_mut(|table| {
        let ticket = table.number();
        table.put(ticket, TicketState::Held(permit));
        ticket.cast_signed()
    })
}

/// Takes the permit of a ticket, which is then free.
pub(super) fn take(ticket: u32) -> Option<OwnedPermit<JsHost>> {
    match TICKETS.with_borrow_mut(|table| table.take(ticket)) {
        TicketState::Held(permit) => Some(permit),
        TicketState::Free | TicketState::Waiting(_) => None,
    }
}

/// Returns the lease of a ticket with a permit.
pub(super) fn lease(ticket: u32) -> Option<LeaseId> {
    TICKETS.with_borrow(|table| match table.states.get(ticket as usize) {
        Some(TicketState::Held(permit)) => Some(permit.lease()),
        _ => None,
    })
}

/// Returns whether the call of a ticket may be sent now. It is false only if its limit is a share whose lease has
/// lapsed since the permit was granted.
#[wasm_bindgen(js_name = maySend)]
#[must_use]
pub fn may_send(ticket: u32) -> bool {
    TICKETS.with_borrow(|table| match table.states.get(ticket as usize) {
        Some(TicketState::Held(permit)) => permit.may_send(),
        _ => true,
    })
}

/// Drops the state of a ticket outside the table, because its release may wake others.
pub(super) fn forget(ticket: u32) {
    drop(TICKETS.with_borrow_mut(|table| table.take(ticket)));
}

pub(super) fn put_denial(denial: Denial) {
    DENIAL.set(denial);
}

/// Returns the next completion: the ticket, if its permit was granted; the complement of the ticket, which is
/// then free, if the call was rejected; [`EMPTY`], if there is none.
#[wasm_bindgen(js_name = nextCompletion)]
#[must_use]
pub fn next_completion() -> i32 {
    loop {
        let Some(ticket) = completions::next() else { return EMPTY };
        if let Some(answer) = TICKETS.with_borrow_mut(|table| table.answer(ticket)) {
            return answer;
        }
    }
}

/// Returns the number of the latest denial's reason.
#[wasm_bindgen(js_name = denialReason)]
#[must_use]
pub fn denial_reason() -> u32 {
    DENIAL.get().reason as u32
}

/// Returns the milliseconds until capacity changes, according to the latest denial; NaN if that is not known.
#[wasm_bindgen(js_name = denialChangesInMs)]
#[must_use]
pub fn denial_changes_in_ms() -> f64 {
    changes_in(&DENIAL.get())
}

const WAKER_VTABLE: RawWakerVTable = RawWakerVTable::new(
    |ticket| RawWaker::new(ticket, &WAKER_VTABLE),
    |ticket| record(ticket as usize as u32),
    |ticket| record(ticket as usize as u32),
    |_| {},
);

fn waker(ticket: u32) -> Waker {
    // SAFETY: the data is a number that is never dereferenced, so every function of the vtable is sound for
    // any value, on any thread, any number of times. Nothing is owned, so nothing has to be dropped.
    unsafe { Waker::from_raw(RawWaker::new(ticket as usize as *const (), &WAKER_VTABLE)) }
}
