//! What `tidegate run`, `run --dry-run` and `check` are asked for.

use std::ops::Range;
use std::path::PathBuf;

use tidegate_core::pipeline::DropReason;

use crate::app::output::Existing;
use crate::app::provider::cost::Money;

/// What to run and where to write.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The pipeline file; the bundled example when there is none.
    pub pipeline: Option<PathBuf>,
    /// The output directory.
    pub out: PathBuf,
    /// What to do about output that is there already.
    pub existing: Existing,
    /// Makes rows again that were dropped for these reasons; an empty list stands for any.
    pub retry_dropped: Option<Vec<DropReason>>,
    /// Where to write a decision log, if one is wanted.
    pub record: Option<PathBuf>,
    /// Where to write the events of the run, if anywhere.
    pub events: Option<PathBuf>,
    /// Where to write a trace of the run, if anywhere.
    pub trace: Option<PathBuf>,
    /// Where to write a report of the run, if anywhere.
    pub report: Option<PathBuf>,
    /// Whether to print the capacity plan before the run, to the standard output.
    pub plan: bool,
    /// The rows to run for; all of them if nothing is said.
    pub rows: Option<Range<u64>>,
    /// How many rows to run for at most.
    pub limit: Option<u64>,
    /// The most that calls may cost.
    pub max_cost: Option<Money>,
}
