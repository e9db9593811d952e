//! Handles panics in code from outside the crate: in a workload, a task policy, a sink or a waker.

use alloc::string::String;

/// Runs `code` and converts a panic into an error message: `what`, followed by the message of the panic.
///
/// After a panic, the values that `code` used must only be dropped.
#[cfg(feature = "std")]
pub(crate) fn catch<R>(what: &str, code: impl FnOnce() -> R) -> Result<R, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(code)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref().map(String::as_str));
        alloc::format!("{what}: {}", text.unwrap_or("(the panic has no message)"))
    })
}

/// Runs `code`. A panic unwinds to the host, because it cannot be caught without `std`.
#[cfg(not(feature = "std"))]
#[allow(clippy::unnecessary_wraps, reason = "the same signature whatever the features")]
pub(crate) fn catch<R>(_what: &str, code: impl FnOnce() -> R) -> Result<R, String> {
    Ok(code())
}

/// Runs `code` for every item. A panic in one call does not prevent the other calls.
///
/// The first panic resumes after the last call. It does not resume if the thread is already unwinding,
/// because a second panic would abort the process.
#[cfg(feature = "std")]
pub(crate) fn for_each<T>(mut items: impl Iterator<Item = T>, mut code: impl FnMut(T)) {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    let mut first = None;
    while let Err(payload) = catch_unwind(AssertUnwindSafe(|| items.by_ref().for_each(&mut code))) {
        first.get_or_insert(payload);
    }
    if let Some(payload) = first
        && !std::thread::panicking()
    {
        resume_unwind(payload);
    }
}

/// Runs `code` for every item. A panic in one call does not prevent the other calls.
///
/// The remaining calls are made while the first panic unwinds. A second panic then aborts the process.
#[cfg(not(feature = "std"))]
pub(crate) fn for_each<T>(items: impl Iterator<Item = T>, code: impl FnMut(T)) {
    struct Remaining<T, I: Iterator<Item = T>, F: FnMut(T)> {
        items: I,
        code: F,
    }

    impl<T, I: Iterator<Item = T>, F: FnMut(T)> Remaining<T, I, F> {
        fn run(&mut self) {
            self.items.by_ref().for_each(&mut self.code);
        }
    }

    impl<T, I: Iterator<Item = T>, F: FnMut(T)> Drop for Remaining<T, I, F> {
        fn drop(&mut self) {
            self.run();
        }
    }

    Remaining { items, code }.run();
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::vec::Vec;

    use super::*;

    /// Returns the items that were reached, and the payload of the panic that resumed.
    fn reached(panics_at: &[u32]) -> (Vec<u32>, Option<u32>) {
        let mut reached = Vec::new();
        let result = catch_unwind(AssertUnwindSafe(|| {
            for_each(0..4, |item| {
                reached.push(item);
                if panics_at.contains(&item) {
                    resume_unwind(std::boxed::Box::new(item));
                }
            });
        }));
        (reached, result.err().and_then(|payload| payload.downcast_ref().copied()))
    }

    #[test]
    fn every_item_is_reached_even_if_one_call_panics() {
        assert_eq!(reached(&[]), ([0, 1, 2, 3].into(), None));
        for item in 0..4 {
            assert_eq!(reached(&[item]), ([0, 1, 2, 3].into(), Some(item)));
        }
    }

    #[cfg(feature = "std")]
    #[test]
    fn the_first_of_several_panics_resumes() {
        assert_eq!(reached(&[1, 2, 3]), ([0, 1, 2, 3].into(), Some(1)));
    }

    #[cfg(feature = "std")]
    #[test]
    fn panics_are_dropped_while_the_thread_unwinds() {
        struct CallsBack<'a>(&'a mut Vec<u32>);
        impl Drop for CallsBack<'_> {
            fn drop(&mut self) {
                for_each(0..3, |item| {
                    self.0.push(item);
                    resume_unwind(std::boxed::Box::new(item));
                });
            }
        }
        let mut reached = Vec::new();
        let result = catch_unwind(AssertUnwindSafe(|| {
            let _calls_back = CallsBack(&mut reached);
            resume_unwind(std::boxed::Box::new("the first"));
        }));
        assert_eq!(result.unwrap_err().downcast_ref(), Some(&"the first"));
        assert_eq!(reached, [0, 1, 2]);
    }
}
