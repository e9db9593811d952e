//! Tests of whole runs.

mod adaptive;
mod batches;
mod claims;
mod correlation;
mod event_checker;
mod events;
mod explain;
mod failures;
mod harness;
mod hooks;
#[cfg(feature = "sim")]
mod laws;
mod ordered;
mod plan;
mod runs;
mod skips;
mod stop;
mod yielding;

use super::*;
