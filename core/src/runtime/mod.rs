//! What a host lends to the async drivers: a clock, a timer, a way to spawn, a lock.
//!
//! The traits put no `Send` bound anywhere: a host that needs one states it on its own `impl`. A tokio host
//! writes `impl<F: Future<Output = ()> + Send + 'static> Spawn<F> for TokioHost`, a browser host leaves
//! `Send` out, and the same [`gate`](crate::gate) and [`driver`](crate::driver) run on both.
//!
//! # A host of your own
//!
//! A host is some 30 lines: [`Clock`], [`Timer`], [`Spawn`] and [`Host`], which names the lock. These
//! examples in `core/examples` have one each, with a gate and a pipeline on it. None has a line of `unsafe`.
//!
//! | example | runtime | futures | lock |
//! | --- | --- | --- | --- |
//! | `host_on_tokio` | tokio on several threads | `Send` | `parking_lot` |
//! | `host_on_tokio_local` | tokio on one thread | any | `tidegate-local-lock` |
//! | `host_on_smol` | smol | `Send` | `parking_lot` |
//! | `host_on_embassy` | embassy, here on `std` | any | `tidegate-local-lock` |
//! | `host_on_threads` | plain threads | `Send` | `parking_lot` |
//!
//! The author of a host checks it in a test: [`check_host`] for the clock, the timer and the lock,
//! [`check_spawn`] and [`watch_shutdown`] for the spawner, and `check_threads` (feature `std`) for a host
//! that is used on several threads. The examples do so, too.

mod check;

use core::future::Future;

pub use check::{
    CHECK_LIMIT, HostError, HostRule, ShutdownProbe, ShutdownWatch, SpawnProbe, check_host, check_host_within,
    check_spawn, check_spawn_within, watch_shutdown,
};
#[cfg(feature = "std")]
pub use check::{check_threads, check_threads_within};

use crate::time::{Clock, Instant};

/// Sleeps until an instant of the same clock.
pub trait Timer {
    /// Resolves at or after the asked instant; MUST NOT resolve before it. Dropping it MUST be harmless. It
    /// wakes the waker of its latest poll.
    type Sleep: Future<Output = ()>;

    /// A sleep that ends at `at`; at once when `at` is past. An instant may be centuries away, up to
    /// `u64::MAX` nanoseconds: such a sleep is pending, whatever the range of the runtime's own timer.
    ///
    /// May be called on any thread that may hold a permit.
    fn sleep_until(&self, at: Instant) -> Self::Sleep;
}

/// Runs a future to its end, apart from the caller.
///
/// The future's type is a parameter of the trait, so an implementor may ask more of it (`Send`, `'static`)
/// than the drivers do. `spawn` MAY drop the future at once or at any later time: the drivers take a worker
/// that is dropped so for lost, which ends the run with that cause unless it is being cancelled anyway. A
/// runtime does so when it shuts down. While it runs, every future should get to its end: that is what
/// [`check_spawn`] checks.
pub trait Spawn<F> {
    /// Starts `future`. MUST NOT poll it before returning while the caller holds a lock: the drivers never
    /// do.
    fn spawn(&self, future: F);
}

/// A clock, a timer and a lock: all that [`Gate`](crate::gate::Gate) and [`driver::run`](crate::driver::run)
/// ask of a runtime besides [`Spawn`].
pub trait Host: Clock + Timer + Clone {
    /// The mutex to guard driver state with: a real one where threads exist, a checked cell where they do
    /// not.
    type Lock: lock_api::RawMutex;
}
