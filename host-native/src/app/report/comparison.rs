//! A comparison of the limits of a run with AIMD, both simulated.

use std::fmt;

use serde::Serialize;

use crate::app::render::table::format_seconds;

/// The result of a simulated run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SimulatedRun {
    /// The time from the first task to the last checkpoint, in seconds.
    pub wall_s: f64,
    /// Calls that were rate limited.
    pub refused: u64,
}

/// The rows of a run, simulated with its own limits and with AIMD.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// With AIMD and its default settings.
    pub aimd: SimulatedRun,
    /// With the limits of the run.
    pub own: SimulatedRun,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { aimd, own } = self;
        let seconds = |run: &SimulatedRun| format_seconds(run.wall_s);
        write!(f, "  with limit = \"aimd\" the same rows take {} and {} refusals,", seconds(aimd), aimd.refused)?;
        write!(f, " with this run's limits {} and {}: both simulated", seconds(own), own.refused)
    }
}
