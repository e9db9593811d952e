//! Which task asks the gate for a permit.
//!
//! `acquire` belongs to calls of any kind. A task of a pipeline lends it its tie for the one call that it makes for the
//! task: `lend`, then `acquire`, within one turn and with nothing between them.

use std::cell::Cell;

use tidegate_core::yielding::TaskToken;

thread_local! {
    static LENT: Cell<Option<TaskToken>> = const { Cell::new(None) };
}

/// The next permit is asked for with `tie`; `None` takes back what was lent.
pub fn lend(tie: Option<TaskToken>) {
    LENT.set(tie);
}

/// The tie to ask with; it is lent once.
pub(super) fn take() -> Option<TaskToken> {
    LENT.take()
}
