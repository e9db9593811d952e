//! The kinds of timers of request admission. The earliest one is returned to the host.

use crate::id::SlotKey;

/// The kind of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The deadline of a waiter.
    Deadline(SlotKey),
    /// A change by time alone at the provider and model with this index, which has waiters: for example, a
    /// cooldown ends, a ramp takes a step, a budget refills or a probe is due.
    Wake(u32),
    /// Requests with fallbacks may have to use another resource.
    Fallback,
}
