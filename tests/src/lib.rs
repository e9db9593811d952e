//! What crosses crates: replays of recorded traces, independent checkers, and random worlds.

pub mod check;
pub mod conform;
pub mod live_bytes;
pub mod worlds;

/// The front door: its code runs as written.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// The guide to testing policies and limits: its code runs as written.
#[cfg(doctest)]
#[doc = include_str!("../../docs/testing-policies.md")]
struct TestingPolicies;
