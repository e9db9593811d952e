//! What crosses crates: replays of recorded traces, independent checkers, and the runner of wasm tests.

pub mod conform;

/// The front door: its code runs as written.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
