//! The interface between a host and the async drivers: a clock, a timer, a spawner and a lock.
//!
//! The traits require `Send` nowhere. A host that needs it states it on its own `impl`. A tokio host writes
//! `impl<F: Future<Output = ()> + Send + 'static> Spawn<F> for TokioHost`, and a browser host leaves `Send`
//! out. The same [`gate`](crate::gate) and [`driver`](crate::driver) run on both.
//!
//! # Writing a host
//!
//! A host takes about 30 lines: [`Clock`], [`Timer`], [`Spawn`] and [`Host`], which names the lock. The lock
//! implements `RawMutex` of [lock_api 0.5](https://docs.rs/lock_api/0.5), which this crate re-exports. The
//! mutex of `parking_lot` 0.13 does; that of 0.12 does not, and the compiler then reports two versions of
//! `lock_api`. On one thread, use `LocalLock` of the crate `tidegate-local-lock`.
//!
//! ```toml
//! parking_lot = "0.13"           # for several threads
//! tidegate-local-lock = "0.1"    # for one thread
//! ```
//!
//! This host runs on tokio:
//!
//! ```
//! use tidegate_core::runtime::{Host, Spawn, Timer};
//! use tidegate_core::time::{Clock, Instant};
//! use tokio::runtime::Handle;
//!
//! #[derive(Clone)]
//! struct TokioHost {
//!     runtime: Handle,
//!     origin: tokio::time::Instant,
//! }
//!
//! impl Clock for TokioHost {
//!     fn now(&self) -> Instant {
//!         Instant::ZERO + self.origin.elapsed().into()
//!     }
//! }
//!
//! impl Timer for TokioHost {
//!     type Sleep = tokio::time::Sleep;
//!
//!     fn sleep_until(&self, at: Instant) -> Self::Sleep {
//!         // Timers are also armed on threads outside the runtime.
//!         let _inside = self.runtime.enter();
//!         tokio::time::sleep_until(self.origin + (at - Instant::ZERO).into())
//!     }
//! }
//!
//! impl<F: Future<Output = ()> + Send + 'static> Spawn<F> for TokioHost {
//!     fn spawn(&self, future: F) {
//!         self.runtime.spawn(future);
//!     }
//! }
//!
//! impl Host for TokioHost {
//!     type Lock = parking_lot::RawMutex;
//! }
//! ```
//!
//! [`Timer::Sleep`] resolves to `()`. A timer with another output, as that of smol, goes in a boxed `async`
//! block.
//!
//! These examples have a host each, with a gate and a pipeline on it. None uses `unsafe`.
//!
//! | example | runtime | futures | lock |
//! | --- | --- | --- | --- |
//! | [`host_on_tokio`] | tokio on several threads | `Send` | `parking_lot` |
//! | [`host_on_tokio_local`] | tokio on one thread | any | `tidegate-local-lock` |
//! | [`host_on_smol`] | smol | `Send` | `parking_lot` |
//! | [`host_on_embassy`] | embassy, here on `std` | any | `tidegate-local-lock` |
//! | [`host_on_threads`] | plain threads | `Send` | `parking_lot` |
//!
//! [`host_on_tokio`]: crate::examples::host_on_tokio
//! [`host_on_tokio_local`]: crate::examples::host_on_tokio_local
//! [`host_on_smol`]: crate::examples::host_on_smol
//! [`host_on_embassy`]: crate::examples::host_on_embassy
//! [`host_on_threads`]: crate::examples::host_on_threads
//!
//! The author of a host checks it in a test: the clock, the timer and the lock with [`check_host`], the
//! spawner with [`check_spawn`] and [`watch_shutdown`], and a host that is used on several threads with
//! `check_threads` (feature `std`). The examples do this as well.

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
    /// A future that resolves at or after the requested instant. It MUST NOT resolve before it. Dropping it
    /// MUST be harmless. It wakes the waker of its latest poll.
    type Sleep: Future<Output = ()>;

    /// Returns a sleep that ends at `at`, or at once if `at` is in the past.
    ///
    /// The instant may be centuries away, up to `u64::MAX` nanoseconds. Such a sleep stays pending,
    /// regardless of the range of the runtime's own timer. May be called on any thread that may hold a
    /// permit.
    fn sleep_until(&self, at: Instant) -> Self::Sleep;
}

/// Runs a future to its end, independently of the caller.
///
/// The future's type is a parameter of the trait, so an implementor may require more of it (`Send`,
/// `'static`) than the drivers do.
///
/// `spawn` MAY drop the future at once or later, as a runtime does when it shuts down. The drivers then treat
/// a dropped worker as lost, which ends the run with that cause unless the run is already being cancelled.
/// While the runtime runs, every future should run to its end. [`check_spawn`] checks this.
pub trait Spawn<F> {
    /// Starts `future`. MUST NOT poll it before returning while the caller holds a lock. The drivers never
    /// hold one.
    fn spawn(&self, future: F);
}

/// A clock, a timer and a lock: everything that [`Gate`](crate::gate::Gate) and
/// [`driver::run`](crate::driver::run) need from a runtime besides [`Spawn`].
pub trait Host: Clock + Timer + Clone {
    /// The mutex that guards driver state: a real one where threads exist, a checked cell where they do not.
    type Lock: lock_api::RawMutex;
}
