//! The async drivers, in virtual time.
//!
//! Every test runs over a lock that panics when it is taken again while it is held, and so proves on the way that no
//! waker, no host and no user code ever runs under it.

mod driver;
mod executor;
mod gate;
mod interleavings;
mod support;
