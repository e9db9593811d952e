//! What crosses crates: replays of recorded traces, independent checkers, and the runner of wasm tests.

pub mod conform;
