//! Maps waiters and leases to the tasks that made the requests, for the events.
//!
//! Correlations are recorded only while events are enabled, and are stored apart from the waiters and leases.
//! Without events a request has no cost for them.

use super::result::WaiterId;
use crate::event::Correlation;
use crate::id::SecondaryMap;
use crate::lease::LeaseId;

/// The tasks behind the waiters and leases of one request admission. Memory is bounded by the number of
/// waiters and leases that are active at once.
#[derive(Debug, Default)]
pub(super) struct Correlations {
    /// The task behind the request of the current command.
    current: Option<Correlation>,
    waiters: SecondaryMap<Correlation>,
    leases: SecondaryMap<Correlation>,
}

impl Correlations {
    /// Sets the task behind the request of the current command. Set it to `None` when the command is done.
    pub(super) fn set_current(&mut self, correlation: Option<Correlation>) {
        self.current = correlation;
    }

    /// Returns the task behind the request of the current command.
    pub(super) fn current(&self) -> Option<Correlation> {
        self.current
    }

    /// Records that the request of the current command becomes a waiter. Returns the task behind it.
    pub(super) fn set_waiter(&mut self, waiter: WaiterId) -> Option<Correlation> {
        if let Some(correlation) = self.current {
            self.waiters.insert(waiter.key(), correlation);
        }
        self.current
    }

    /// Removes and returns the task behind a waiter that leaves the queue.
    pub(super) fn take_waiter(&mut self, waiter: WaiterId) -> Option<Correlation> {
        self.waiters.remove(waiter.key())
    }

    /// Records the task behind a call that was granted, if it is known.
    pub(super) fn set_lease(&mut self, lease: LeaseId, correlation: Option<Correlation>) {
        if let Some(correlation) = correlation {
            self.leases.insert(lease.key, correlation);
        }
    }

    /// Removes and returns the task behind a call that has ended.
    pub(super) fn take_lease(&mut self, lease: LeaseId) -> Option<Correlation> {
        self.leases.remove(lease.key)
    }
}
