//! Exports the rows of a job that is complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value};

use crate::app::data::row_file::RowFormat;
use crate::app::error::Error;
use crate::app::interrupt::SignalListener;
use crate::app::output::{ExportFile, ExportPlan, MakeRecord, OutputDirectory};
use crate::app::report::progress::ProgressReporter;
use crate::app::report::summary::Summary;
use crate::app::run::workload::PipelineWorkload;

/// Exports the rows to `file`, without those that the pipeline file leaves out, unless the run has left rows
/// to make, and notes the result in `summary`. A signal stops it.
pub(super) async fn export(
    file: ExportFile,
    work: &Arc<PipelineWorkload>,
    output: &Arc<OutputDirectory>,
    summary: &mut Summary,
    screen: &mut ProgressReporter,
) {
    let path = file.path.display().to_string();
    if summary.stopped.is_some() || summary.rows_left() > 0 {
        // If the candidates have run out, the reason for the stop says what to do.
        let is_short = summary.acceptance.as_ref().is_some_and(|acceptance| acceptance.shortage().is_some());
        let what_to_do = if is_short && summary.rows_left() == 0 { "" } else { "; --resume makes and exports them" };
        screen.print_message(&format!("{path} is not written, because rows are missing{what_to_do}"));
        return;
    }
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let rows = summary.rows_out + summary.earlier.rows_out;
    let (work, output, stop) = (Arc::clone(work), Arc::clone(output), Arc::clone(&is_cancelled));
    let mut writing = tokio::task::spawn_blocking(move || {
        let resolved = work.resolved();
        let record = resolved.record.as_ref().filter(|_| file.format == RowFormat::Jsonl);
        let make = record.map(|record| {
            |values: &Map<String, Value>| record.of(&resolved.templates, values).map_err(|error| error.to_string())
        });
        let record = make.as_ref().map(|make| make as &MakeRecord<'_>);
        let unique = resolved.unique.as_ref().map(|unique| (unique.column.get_ref().as_str(), unique.similarity));
        output.export(&ExportPlan { file: &file, rows, record, unique, is_cancelled: &stop })
    });
    let ended = match SignalListener::listen() {
        Ok(mut signals) => tokio::select! {
            ended = &mut writing => ended,
            _ = signals.next() => {
                is_cancelled.store(true, Ordering::Relaxed);
                writing.await
            }
        },
        Err(_) => writing.await,
    };
    match ended.map_err(|error| Error::Internal(error.to_string())).and_then(|ended| ended.map_err(Error::from)) {
        Ok(exported) => summary.export = Some(exported),
        Err(error) => (summary.exit, summary.stopped) = (error.exit(), Some(error.to_string())),
    }
}
