//! # tidegate-core
//!
//! Keeps rate-limited services as busy as they can bear, shares them fairly, never storms them, and never
//! loses or doubles a unit of work. Every decision is made in this crate, and none of it reads a clock, a
//! thread, an environment variable or a random source: equal inputs give equal bytes on every target.
//!
//! ## The driving contract
//!
//! The *machines* are plain structs. Whoever drives one repeats three steps:
//!
//! 1. give it one command with the present instant (`acquire(now, ..)`, `release(now, ..)`,
//!    `handle_timeout(now)`, ...);
//! 2. drain `poll_effect()` until it answers `None`, and carry each effect out;
//! 3. arm one timer for `poll_timeout()`, and call `handle_timeout` when it fires.
//!
//! Calling early, late or twice is harmless. Each call does bounded work. Nothing is called back, nothing
//! blocks.
//!
//! ## The layers, top to bottom
//!
//! | module | the question it answers |
//! | --- | --- |
//! | [`fair_queue`] | whose turn is it? |
//! | [`lease`] | who holds what, exactly once? |
//! | [`task`] | may this ready task become a running worker? |
//! | [`request`] | may this concrete call go out now? |
//! | [`pipeline`] | what is ready, what is next, what is finished, what failed? |
//! | [`observe`] | why is capacity idle? |
//! | [`replay`] | what was decided, again |
//!
//! Above the machines sit two async drivers, generic over [`runtime::Host`]: [`gate`] for request admission
//! and [`driver`] for whole pipelines. With the feature `sim`, the `sim` module runs all of it in virtual
//! time against mock providers.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]
#![cfg_attr(docsrs, feature(doc_cfg))]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod backoff;
pub mod budget;
pub mod call;
pub mod driver;
pub mod error;
pub mod event;
pub mod fair_queue;
pub mod gate;
#[cfg(feature = "serde")]
mod hex;
pub mod id;
pub mod lease;
pub mod limit;
mod map;
#[cfg(feature = "serde")]
mod millis;
pub mod observe;
mod panics;
pub mod pipeline;
mod portable_hasher;
pub mod replay;
pub mod request;
pub mod runtime;
#[cfg(feature = "sim")]
pub mod sim;
pub mod task;
pub mod time;
mod timer_queue;
mod wake_list;
pub mod yielding;

/// The crate of the locks that a [`runtime::Host`] names, in the version that this crate uses.
pub use lock_api;

/// The code of the README runs as written.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
