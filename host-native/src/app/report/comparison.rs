//! The rows of a run under its own limits and under AIMD, both simulated.

use std::fmt;

use serde::Serialize;

use crate::app::render::table::format_seconds;

/// A run, simulated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Simulated {
    /// From the first task to the last checkpoint.
    pub wall_s: f64,
    /// Calls that were refused.
    pub refused: u64,
}

/// The rows of a run under its own limits and under AIMD.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Under AIMD with its defaults.
    pub aimd: Simulated,
    /// Under the limits of the run.
    pub own: Simulated,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { aimd, own } = self;
        let seconds = |run: &Simulated| format_seconds(run.wall_s);
        write!(f, "  with limit = \"aimd\" the same rows take {} and {} refusals,", seconds(aimd), aimd.refused)?;
        write!(f, " with this run's limits {} and {}: both simulated", seconds(own), own.refused)
    }
}
