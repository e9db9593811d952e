//! Counts what the queue does, so that tests can state its bounds in operations instead of time.
//!
//! Exists in unit tests only: elsewhere every call is empty and nothing is stored.

/// Operations of the queues of this thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg(test)]
pub(crate) struct Work {
    /// Heads offered to a judge.
    pub(crate) offers: u64,
    /// Records touched: an item, a group, a class, a set, an entry of a group's demand, one level of a heap.
    pub(crate) steps: u64,
}

#[cfg(test)]
std::thread_local! {
    static WORK: core::cell::Cell<Work> = const { core::cell::Cell::new(Work { offers: 0, steps: 0 }) };
}

/// One head was offered.
#[inline]
pub(super) fn offer() {
    #[cfg(test)]
    WORK.with(|work| work.set(Work { offers: work.get().offers + 1, ..work.get() }));
}

/// `steps` steps were made.
#[inline]
pub(super) fn steps(steps: usize) {
    #[cfg(test)]
    WORK.with(|work| work.set(Work { steps: work.get().steps + steps as u64, ..work.get() }));
    #[cfg(not(test))]
    let _ = steps;
}

/// What `run` costs.
#[cfg(test)]
pub(crate) fn of(run: impl FnOnce()) -> Work {
    let before = WORK.get();
    run();
    let after = WORK.get();
    Work { offers: after.offers - before.offers, steps: after.steps - before.steps }
}
