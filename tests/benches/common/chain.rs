//! A run of cell columns, each after the one before, without a host.

use anyhow::{Context, Result};
use tidegate_core::pipeline::{
    Column, Pipeline, PipelineConfig, PipelineEffect, Plan, PlanBuilder, Strategy, TaskOutcome,
};
use tidegate_core::time::Instant;

/// Columns of a chain.
pub(crate) const COLUMNS: u64 = 5;

/// A chain with a fairness group for each column, as columns have when nothing is said.
fn plan() -> Result<Plan> {
    let columns = (0..COLUMNS).map(|number| {
        let column = Column::new(&number.to_string(), Strategy::Cell);
        if number == 0 { column } else { column.with_upstream(&(number - 1).to_string()) }
    });
    Ok(columns.fold(PlanBuilder::new(), PlanBuilder::column).build()?)
}

/// A chain for so many rows, with the default settings but for the number of workers.
pub(crate) fn chain(rows: u64, workers: u32) -> Result<Pipeline> {
    let config = PipelineConfig { rows, submission_limit: workers, ..PipelineConfig::default() };
    Ok(Pipeline::new(plan()?, config)?)
}

/// Runs a pipeline whose tasks all succeed the moment they start.
pub(crate) fn run_at_once(mut pipeline: Pipeline) -> Result<()> {
    let now = Instant::ZERO;
    pipeline.start(now);
    loop {
        match pipeline.poll_effect().context("a run that is not over has something to do")? {
            PipelineEffect::Spawn(task) => drop(pipeline.task_finished(now, task.worker, TaskOutcome::Success)),
            PipelineEffect::Checkpoint(group) => pipeline.checkpoint_finished(now, group.row_group, Ok(())),
            // No hook is asked for, nothing fails, and nobody cancels.
            PipelineEffect::ClaimRowGroup
            | PipelineEffect::PreBatch(_)
            | PipelineEffect::PostBatch(_)
            | PipelineEffect::Abort(_)
            | PipelineEffect::Warn(_) => {}
            PipelineEffect::Finished => return Ok(()),
        }
    }
}
