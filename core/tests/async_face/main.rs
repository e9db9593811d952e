//! Tests of the gate and the driver, in virtual time.
//!
//! Every test uses a lock that panics if it is taken again while it is held. Each test therefore also
//! verifies that no waker, host code or user code runs while the lock is held.

// A run takes its workload in an `Arc`. The hosts of these tests have only one thread.
#![allow(clippy::arc_with_non_send_sync)]

mod clock;
mod driver;
mod executor;
mod fallback;
mod gate;
mod hooks;
mod interleavings;
#[cfg(feature = "std")]
mod panics;
mod run;
mod sinks;
mod support;
#[cfg(feature = "std")]
mod wakers;
mod yielding;
