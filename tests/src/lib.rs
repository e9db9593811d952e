//! What crosses crates: replays of recorded traces, and independent checkers.

pub mod check;
pub mod conform;
pub mod live_bytes;

/// The front door: its code runs as written.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
