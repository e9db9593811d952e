#![doc = include_str!("../README.md")]
#![no_std]

use core::cell::Cell;

use lock_api::{GuardNoSend, RawMutex};

/// A raw mutex for one thread: a flag that states whether the lock is held.
///
/// [`lock`](RawMutex::lock) never waits. It panics if the lock is held, because on one thread only the caller
/// itself can hold it. [`try_lock`](RawMutex::try_lock) returns `None` in that case. If a guard is forgotten,
/// the lock stays held.
///
/// It cannot be shared between threads, nor can a mutex made of it:
///
/// ```compile_fail,E0277
/// fn is_shared<T: Sync>(_: &T) {}
/// is_shared(&lock_api::Mutex::<tidegate_local_lock::LocalLock, u32>::new(0));
/// ```
///
/// It can be moved to another thread, and its guards cannot:
///
/// ```
/// let value = lock_api::Mutex::<tidegate_local_lock::LocalLock, u32>::new(1);
/// let moved = std::thread::spawn(move || *value.lock() + 1);
/// assert_eq!(moved.join().expect("nothing panics"), 2);
/// ```
///
/// ```compile_fail,E0277
/// fn is_moved<T: Send>(_: T) {}
/// let value = lock_api::Mutex::<tidegate_local_lock::LocalLock, u32>::new(1);
/// is_moved(value.lock());
/// ```
#[derive(Debug)]
pub struct LocalLock {
    held: Cell<bool>,
}

// SAFETY: The trait requires that the lock cannot be acquired while it is held.
//
// - `Cell` makes `LocalLock` `!Sync`, and `lock_api::Mutex<R, T>` is `Sync` only if `R: Sync`. So at any time
//   only one thread can call these methods. A lock that is moved to another thread is moved as a whole, which
//   orders all calls before the move before all calls after it. `GuardNoSend` keeps a guard, and so the
//   unlocking, on the thread that acquired it.
// - On that thread `lock` and `try_lock` return a guard only if they turned `held` from false to true, in one
//   step. Only `unlock`, which consumes the guard, turns it back.
// - `lock` panics before it acquires anything. The guard has no destructor: forgetting it leaves the lock
//   held. To move or to drop the lock while it is held is harmless, since nothing points to it.
unsafe impl RawMutex for LocalLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait requires a constant initial value")]
    const INIT: Self = Self { held: Cell::new(false) };

    type Guard = GuardNoSend;

    /// Acquires the lock.
    ///
    /// # Panics
    ///
    /// If the lock is held.
    #[inline]
    #[track_caller]
    fn lock(&self) -> GuardNoSend {
        match self.try_lock() {
            Some(guard) => guard,
            None => {
                panic!("a LocalLock was locked again while it was held: code that runs under the lock took it again")
            }
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        (!self.held.replace(true)).then_some(GuardNoSend::new())
    }

    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        self.held.set(false);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.held.get()
    }
}
