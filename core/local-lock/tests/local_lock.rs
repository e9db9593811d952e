//! The lock as programs use it: inside a `lock_api::Mutex`.

use tidegate_local_lock::LocalLock;

type Mutex<T> = lock_api::Mutex<LocalLock, T>;

#[test]
fn the_lock_opens_again_when_its_guard_is_dropped() {
    let value = Mutex::new(1);
    *value.lock() += 1;
    assert!(value.try_lock().is_some_and(|guard| *guard == 2));
}

#[test]
fn a_second_try_while_the_lock_is_held_returns_none_and_leaves_it_held() {
    let value = Mutex::new(());
    let guard = value.lock();
    assert!(value.try_lock().is_none());
    assert!(value.is_locked());
    drop(guard);
    assert!(!value.is_locked());
}

// Tests for browsers are built to abort on a panic.
#[cfg(panic = "unwind")]
mod panics {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    #[should_panic(expected = "locked again while it was held")]
    fn re_entry_panics_instead_of_dead_locking() {
        let value = Mutex::new(());
        let _guard = value.lock();
        let _never = value.lock();
    }

    #[test]
    fn the_panic_of_a_re_entry_leaves_the_first_guard_in_charge() {
        let value = Mutex::new(());
        let guard = value.lock();
        assert!(catch_unwind(AssertUnwindSafe(|| value.lock())).is_err());
        assert!(value.is_locked());
        drop(guard);
        assert!(value.try_lock().is_some());
    }

    #[test]
    fn a_panic_under_the_lock_opens_it() {
        let value = Mutex::new(1);
        let result = catch_unwind(AssertUnwindSafe(|| {
            let _guard = value.lock();
            panic!("under the lock");
        }));
        assert!(result.is_err() && !value.is_locked());
    }
}

#[test]
fn a_mutex_can_be_made_in_a_constant_and_kept_for_each_thread() {
    std::thread_local!(static COUNT: Mutex<u32> = const { Mutex::new(0) });
    COUNT.with(|count| *count.lock() += 1);
    COUNT.with(|count| assert_eq!(*count.lock(), 1));
}
