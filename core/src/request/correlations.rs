//! Which task is behind a request, for the request's events.
//!
//! It is noted only while events are wanted, and beside the waiters and leases: a request costs nothing for
//! it otherwise.

use super::answer::WaiterId;
use crate::event::Correlation;
use crate::id::SecondaryMap;
use crate::lease::LeaseId;

/// The tasks behind the waiters and leases of one controller. Memory is bounded by the waiters and leases
/// live at once.
#[derive(Debug, Default)]
pub(super) struct Correlations {
    /// Of the request that the current command makes.
    current: Option<Correlation>,
    waiters: SecondaryMap<Correlation>,
    leases: SecondaryMap<Correlation>,
}

impl Correlations {
    /// Sets the task behind the request that the current command makes; `None` once that is answered.
    pub(super) fn set_current(&mut self, correlation: Option<Correlation>) {
        self.current = correlation;
    }

    /// The task behind the request that the current command makes.
    pub(super) fn current(&self) -> Option<Correlation> {
        self.current
    }

    /// The request that the current command makes becomes a waiter.
    pub(super) fn queue_asking(&mut self, waiter: WaiterId) -> Option<Correlation> {
        if let Some(correlation) = self.current {
            self.waiters.insert(waiter.key(), correlation);
        }
        self.current
    }

    /// A waiter leaves the queue. Returns the task behind it.
    pub(super) fn take_waiter(&mut self, waiter: WaiterId) -> Option<Correlation> {
        self.waiters.remove(waiter.key())
    }

    /// A call goes out on account of a task, if one is known.
    pub(super) fn set_lease(&mut self, lease: LeaseId, correlation: Option<Correlation>) {
        if let Some(correlation) = correlation {
            self.leases.insert(lease.key, correlation);
        }
    }

    /// A call has ended. Returns the task behind it.
    pub(super) fn take_lease(&mut self, lease: LeaseId) -> Option<Correlation> {
        self.leases.remove(lease.key)
    }
}
