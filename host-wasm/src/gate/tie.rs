//! Which task asks the gate for a permit, and which call is made again.
//!
//! `acquire` belongs to calls of any kind. A task of a pipeline lends it its tie for the one call that it makes for the
//! task: `lend`, then `acquire`, within one turn and with nothing between them.

use std::cell::Cell;

use tidegate_core::request::Retry;
use tidegate_core::yielding::TaskToken;

thread_local! {
    static LENT: Cell<Option<TaskToken>> = const { Cell::new(None) };
    /// Of the call that ended last, if it is made again.
    static RETRY: Cell<Option<Retry>> = const { Cell::new(None) };
}

/// The next permit is asked for with `tie`; `None` takes back what was lent.
pub fn lend(tie: Option<TaskToken>) {
    LENT.set(tie);
}

/// The tie to ask with; it is lent once.
pub(super) fn take() -> Option<TaskToken> {
    LENT.take()
}

/// The call that has just ended is made again so, or not.
pub(super) fn keep_retry(retry: Option<Retry>) {
    RETRY.set(retry);
}

/// How the call that ended last is made again.
pub(super) fn take_retry() -> Option<Retry> {
    RETRY.take()
}
