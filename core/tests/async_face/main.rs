//! The async drivers, in virtual time.
//!
//! Every test runs over a lock that panics when it is taken again while it is held, and so proves on the way
//! that no waker, no host and no user code ever runs under it.

// A run takes its workload in an `Arc`; on these hosts there is one thread.
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
mod tied;
#[cfg(feature = "std")]
mod wakers;
