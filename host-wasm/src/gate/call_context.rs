//! The yield token for the next permit request, and the retry of the call that ended last.
//!
//! `acquire` serves calls of any kind. A pipeline task passes its yield token with `pass_yield_token`,
//! followed by `acquire` in the same turn with no other command in between.

use std::cell::Cell;

use tidegate_core::request::Retry;
use tidegate_core::yielding::TaskToken;

thread_local! {
    static YIELD_TOKEN: Cell<Option<TaskToken>> = const { Cell::new(None) };
    /// The retry of the call that ended last, if any.
    static RETRY: Cell<Option<Retry>> = const { Cell::new(None) };
}

/// Sets the yield token of the next permit request; `None` removes it.
pub fn pass_yield_token(token: Option<TaskToken>) {
    YIELD_TOKEN.set(token);
}

/// Takes the yield token for a permit request.
pub(super) fn take() -> Option<TaskToken> {
    YIELD_TOKEN.take()
}

/// Sets how the call that ended last is retried; `None`: it is not.
pub(super) fn keep_retry(retry: Option<Retry>) {
    RETRY.set(retry);
}

/// Takes the retry of the call that ended last.
pub(super) fn take_retry() -> Option<Retry> {
    RETRY.take()
}
