//! What a run tells: its events as JSON lines and as a trace, where its capacity went, and the capacity values that applied to it.
//!
//! With the feature `tracing` the module `tracing` makes spans of the events, with the feature `metrics` the module `metrics`
//! counts them. Neither installs anything: the application chooses where they go.

pub mod jsonl;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(any(feature = "cli", feature = "metrics", feature = "tracing"))]
pub(crate) mod names;
pub mod trace;
#[cfg(feature = "tracing")]
pub mod tracing;
