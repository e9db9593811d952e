//! Counts the operations of the queue, so that tests can state its bounds in operations instead of time.
//!
//! The counters exist only in unit tests. In other builds every call is empty and nothing is stored.

/// The operations of the queues on this thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg(test)]
pub(crate) struct Work {
    /// The number of heads offered to a predicate.
    pub(crate) offers: u64,
    /// The number of records touched: an item, a group, a class, a set, an entry of a group's demand, or one
    /// level of a heap.
    pub(crate) steps: u64,
}

#[cfg(test)]
std::thread_local! {
    static WORK: core::cell::Cell<Work> = const { core::cell::Cell::new(Work { offers: 0, steps: 0 }) };
}

/// Counts one offered head.
#[inline]
pub(super) fn offer() {
    #[cfg(test)]
    WORK.with(|work| work.set(Work { offers: work.get().offers + 1, ..work.get() }));
}

/// Counts `steps` steps.
#[inline]
pub(super) fn steps(steps: usize) {
    #[cfg(test)]
    WORK.with(|work| work.set(Work { steps: work.get().steps + steps as u64, ..work.get() }));
    #[cfg(not(test))]
    let _ = steps;
}

/// Returns the operations of `run`.
#[cfg(test)]
pub(crate) fn of(run: impl FnOnce()) -> Work {
    let before = WORK.get();
    run();
    let after = WORK.get();
    Work { offers: after.offers - before.offers, steps: after.steps - before.steps }
}
