//! What the scheduler's report means for a person: why the run ended, and the exit code.

use std::path::Path;
use std::time::Duration as StdDuration;

use tidegate_core::pipeline::{RunReport, StopReason};

use crate::error::Exit;
use crate::models::Models;
use crate::pipeline_file::{ColumnKind, PipelineFile};
use crate::summary::{ColumnSummary, Dropped, ProviderSummary, Summary};
use crate::workload::JobWork;

/// How a run ended.
#[derive(Debug)]
pub struct Ending {
    /// The scheduler's report; none when a second interrupt did not wait for it.
    pub report: Option<RunReport>,
    /// Whether a signal asked for the end.
    pub interrupted: bool,
    /// From the first task to the last checkpoint.
    pub wall: StdDuration,
}

/// The summary of a run that has ended.
#[must_use]
pub fn summarise(
    name: &str,
    file: &PipelineFile,
    ending: &Ending,
    models: &Models,
    work: &JobWork,
    output: &Path,
) -> Summary {
    todo!()
}
