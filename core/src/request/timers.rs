//! The instants a controller waits for, behind the one deadline it tells its host.

use crate::id::SlotKey;

/// What falls due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A waiter's deadline.
    Deadline(SlotKey),
    /// A change by time alone at a provider and model that has waiters: a cooldown ends, a ramp steps, a
    /// budget refills.
    Wake(u32),
    /// Requests with fallbacks may have to call something else.
    Fallback,
}
