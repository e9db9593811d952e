//! A mutex for a host with one thread.
//!
//! JavaScript runs one turn at a time, so nothing can contend for the drivers' state. What can go wrong is re-entry:
//! code that runs under the lock and takes it again. That is a defect in a driver (no waker, callback or sink may run
//! under the lock), so [`SingleThreadMutex`] panics on it at once instead of waiting for ever; every test that runs on
//! this host thereby proves the rule.

use std::cell::Cell;

use lock_api::{GuardNoSend, RawMutex};

/// A flag that says whether the one thread is inside the lock.
///
/// Holding a `Cell`, it is not `Sync`: no safe code can share it between threads.
#[derive(Debug)]
pub struct SingleThreadMutex {
    held: Cell<bool>,
}

// SAFETY: mutual exclusion holds because `Cell` makes the type `!Sync`, so all calls come from one thread; on that
// thread `lock` and `try_lock` hand out the guard only while `held` is false and set it first, and only `unlock`, which
// takes the guard back, clears it. Acquire and release order is program order on one thread. `lock` panics before it
// acquires, never after; forgetting a guard leaves the mutex locked, and moving or dropping it while locked is harmless.
unsafe impl RawMutex for SingleThreadMutex {
    #[allow(clippy::declare_interior_mutable_const)] // The trait asks for a constant initial value.
    const INIT: Self = Self { held: Cell::new(false) };

    type Guard = GuardNoSend;

    fn lock(&self) -> GuardNoSend {
        self.try_lock()
            .expect("the single-thread lock was taken again while it was held: a driver ran foreign code under it")
    }

    fn try_lock(&self) -> Option<GuardNoSend> {
        (!self.held.replace(true)).then_some(GuardNoSend::new())
    }

    unsafe fn unlock(&self, _guard: GuardNoSend) {
        self.held.set(false);
    }

    fn is_locked(&self) -> bool {
        self.held.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Mutex<T> = lock_api::Mutex<SingleThreadMutex, T>;

    #[test]
    fn the_lock_opens_again_when_its_guard_is_dropped() {
        let value = Mutex::new(1);
        *value.lock() += 1;
        assert!(value.try_lock().is_some_and(|guard| *guard == 2));
    }

    #[test]
    fn a_second_try_while_it_is_held_is_refused_and_leaves_it_held() {
        let value = Mutex::new(());
        let guard = value.lock();
        assert!(value.try_lock().is_none());
        assert!(value.is_locked());
        drop(guard);
        assert!(!value.is_locked());
    }

    #[test]
    #[cfg(panic = "unwind")]
    #[should_panic(expected = "taken again while it was held")]
    fn re_entry_panics_instead_of_waiting_for_ever() {
        let value = Mutex::new(());
        let _guard = value.lock();
        let _never = value.lock();
    }
}
