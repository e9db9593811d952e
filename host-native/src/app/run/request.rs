//! The parameters of `tidegate run`, `run --dry-run` and `check`.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;

use tidegate_core::pipeline::DropReason;

use crate::app::output::{ExistingOutput, ExportFile};
use crate::app::provider::cost::Money;

/// What to run and where to write.
#[derive(Clone)]
pub struct RunRequest {
    /// The pipeline file; `None` for the bundled example.
    pub pipeline: Option<PathBuf>,
    /// The output directory.
    pub out: PathBuf,
    /// What to do about existing output.
    pub existing: ExistingOutput,
    /// Retries rows that were dropped for these reasons; an empty list means any reason.
    pub retry_dropped: Option<Vec<DropReason>>,
    /// The file for the decision log.
    pub record: Option<PathBuf>,
    /// The file for the events of the run.
    pub events: Option<PathBuf>,
    /// The file for the trace of the run.
    pub trace: Option<PathBuf>,
    /// The file for the HTML report of the run.
    pub report: Option<PathBuf>,
    /// The address at which the metrics of the run are served.
    pub metrics: Option<SocketAddr>,
    /// The address of the store over which limits are shared, instead of that in the file.
    pub share: Option<String>,
    /// The file to export all rows to.
    pub export: Option<ExportFile>,
    /// Whether to print the capacity plan to the standard output before the run.
    pub plan: bool,
    /// The rows to run for; `None` for all.
    pub rows: Option<Range<u64>>,
    /// The maximum number of rows.
    pub limit: Option<u64>,
    /// Whether all columns are written, whatever the file says.
    pub all_columns: bool,
    /// The cost limit.
    pub max_cost: Option<Money>,
}
