//! Wakers that are collected under a lock and woken after it.

use core::task::Waker;

use smallvec::SmallVec;

use crate::panics;

/// The number of wakers that a list holds without an allocation.
const INLINE: usize = 8;

/// Wakers to wake, in order.
///
/// A waker is external code: it may call back, and it may panic. A list is therefore woken after every lock
/// is released, and a panic in one waker does not prevent the others from being woken. Dropping a list
/// wakes its remaining wakers.
#[derive(Default)]
pub(crate) struct WakeList {
    wakers: SmallVec<[Waker; INLINE]>,
}

impl WakeList {
    /// Adds a waker, if there is one.
    #[inline]
    pub(crate) fn push(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.wakers.push(waker);
        }
    }

    /// Wakes all wakers, then resumes the first panic: see [`panics::for_each`].
    pub(crate) fn wake_all(&mut self) {
        if !self.wakers.is_empty() {
            panics::for_each(self.wakers.drain(..), Waker::wake);
        }
    }
}

impl Drop for WakeList {
    fn drop(&mut self) {
        self.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::task::Wake;
    use alloc::vec::Vec;
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    use super::*;

    /// Counts its wakes and panics at each.
    #[derive(Default)]
    struct Panics(AtomicUsize);

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            resume_unwind(std::boxed::Box::new("a waker panicked"));
        }
    }

    #[derive(Default)]
    struct Counts(AtomicUsize);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_panicking_waker_does_not_prevent_the_others_from_being_woken() {
        for position in 0..20 {
            let (panics, counts) = (Arc::<Panics>::default(), Arc::<Counts>::default());
            let result = catch_unwind(AssertUnwindSafe(|| {
                let mut list = WakeList::default();
                for at in 0..20 {
                    list.push(Some(if at == position {
                        Arc::clone(&panics).into()
                    } else {
                        Arc::clone(&counts).into()
                    }));
                }
                list.wake_all();
            }));
            assert!(result.is_err());
            assert_eq!((panics.0.load(Ordering::Relaxed), counts.0.load(Ordering::Relaxed)), (1, 19));
        }
    }

    #[test]
    fn dropping_a_list_wakes_the_remaining_wakers() {
        let counts = Arc::<Counts>::default();
        let mut list = WakeList::default();
        for _ in 0..3 {
            list.push(Some(Arc::clone(&counts).into()));
        }
        list.push(None);
        drop(list);
        assert_eq!(counts.0.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn wakers_are_woken_in_order() {
        struct RecordWake(usize, Arc<std::sync::Mutex<Vec<usize>>>);
        impl Wake for RecordWake {
            fn wake(self: Arc<Self>) {
                self.1.lock().unwrap().push(self.0);
            }
        }
        let order = Arc::<std::sync::Mutex<Vec<usize>>>::default();
        let mut list = WakeList::default();
        for at in 0..20 {
            list.push(Some(Arc::new(RecordWake(at, Arc::clone(&order))).into()));
        }
        list.wake_all();
        assert!(order.lock().unwrap().iter().copied().eq(0..20));
    }
}
