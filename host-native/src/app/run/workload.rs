//! What a task of the pipeline does here: read the rows of the dataset, fill a cell, keep the value; and how a finished
//! row group is written. When any of this happens is the scheduler's business.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tidegate_core::driver::Workload;
use tidegate_core::pipeline::{
    ColumnId, DroppedRow, FailureKind, FatalError, FinishedRowGroup, ProviderDegraded, SaveError, Strategy, Task,
    TaskOutcome,
};

use crate::app::output::{DroppedLine, OutputDirectory, Stored};
use crate::app::run::buffer::{CellGroup, Cells, OutputRow};
use crate::app::run::columns::{Caller, Calls, Scene, Unfilled};
use crate::app::run::resolve::{GeneratedColumn, Input, Job, REQUEST_RESOURCE};
use crate::app::template::{Serde, TemplateError, TemplateValue};

/// The work of a run. Shared by all workers.
#[derive(Debug)]
pub struct JobWork(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    job: Job,
    /// By generated column; none for those that call nobody.
    callers: Vec<Option<Caller>>,
    by_id: HashMap<ColumnId, usize>,
    cells: Cells,
    output: Arc<OutputDirectory>,
    written: Mutex<Written>,
    /// What is to be said on the screen, the oldest first.
    warnings: Mutex<Vec<String>>,
}

/// What this run has brought to disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Complete rows.
    pub rows: u64,
    /// Dropped rows by column and reason.
    pub dropped: BTreeMap<(String, String), DroppedRows>,
    /// Row groups of which nothing is left to make.
    pub row_groups: u64,
}

/// Rows that were dropped for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DroppedRows {
    /// How many.
    pub rows: u64,
    /// The first of them of which it is known what happened.
    pub example: Option<(u64, String)>,
}

impl Written {
    /// Rows that were dropped, for all reasons together.
    #[must_use]
    pub fn rows_dropped(&self) -> u64 {
        self.dropped.values().map(|dropped| dropped.rows).sum()
    }

    fn add(&mut self, group: &FinishedRowGroup, lost: &[DroppedLine]) {
        self.rows += group.live.len() as u64;
        self.row_groups += u64::from(group.unmade.is_empty());
        for line in lost.iter().filter(|line| !line.is_unmade()) {
            let known = self.dropped.entry(line.key()).or_default();
            known.rows += 1;
            if let Some(detail) = &line.detail
                && known.example.as_ref().is_none_or(|(first, _)| line.row < *first)
            {
                known.example = Some((line.row, detail.clone()));
            }
        }
    }
}

/// The place of the root column among failures: after every generated column.
const DATASET: usize = usize::MAX;

/// What the root column is called where rows are dropped because of it.
pub const DATASET_NAME: &str = "seed";

type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl JobWork {
    /// The work of `job`, whose generated columns call through `callers` in the same order.
    #[must_use]
    pub fn new(job: Job, callers: Vec<Option<Caller>>, output: Arc<OutputDirectory>) -> Self {
        let id = |(index, column): (usize, &GeneratedColumn)| Some((job.plan.column_id(&column.name)?, index));
        let by_id = job.columns.iter().enumerate().filter_map(id).collect();
        let cells = Cells::new(job.columns.len());
        Self(Arc::new(Shared {
            job,
            callers,
            by_id,
            cells,
            output,
            written: Mutex::default(),
            warnings: Mutex::default(),
        }))
    }

    /// Warnings that have come since the last call.
    #[must_use]
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.0.warnings.lock())
    }

    /// What has been written so far.
    #[must_use]
    pub fn written(&self) -> Written {
        self.0.written.lock().clone()
    }
}

impl Workload for JobWork {
    type Work = BoxedFuture<Result<TaskOutcome, FatalError>>;
    type Save = BoxedFuture<Result<(), SaveError>>;

    fn warn(&self, warning: &ProviderDegraded) {
        // People know the provider and model, and not the task resource that stands for it.
        let resource = warning.resource.as_deref().map(|name| name.strip_prefix(REQUEST_RESOURCE).unwrap_or(name));
        let warning = ProviderDegraded { resource: resource.map(str::to_string), ..warning.clone() };
        self.0.warnings.lock().push(format!("warning: {warning}"));
    }

    fn work(&self, task: Task) -> Self::Work {
        let shared = Arc::clone(&self.0);
        Box::pin(shared.perform(task))
    }

    fn checkpoint(&self, group: FinishedRowGroup) -> Self::Save {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let written = tokio::task::spawn_blocking(move || shared.write(&group)).await;
            written.unwrap_or_else(|error| Err(SaveError(format!("the writer broke: {error}"))))
        })
    }
}

impl Shared {
    async fn perform(self: Arc<Self>, task: Task) -> Result<TaskOutcome, FatalError> {
        self.cells.open(task.row_group, task.rows);
        let Some(&index) = self.by_id.get(&task.column) else { return self.read_rows(task).await };
        let (value, outcome) = match self.value(&task, index).await {
            Ok(filled) => filled,
            Err(Unfilled::Broke(error)) => return Err(error),
            Err(Unfilled::Ended(outcome, why)) => {
                self.cells.fail(task.row_group, index, task.row, why);
                return Ok(outcome);
            }
        };
        if outcome == TaskOutcome::Skipped {
            self.cells.skip(task.row_group, index, task.row);
        }
        self.cells.fill(task.row_group, index, task.row, &value);
        Ok(outcome)
    }

    /// The root column: takes the rows of a group out of the dataset.
    async fn read_rows(self: Arc<Self>, task: Task) -> Result<TaskOutcome, FatalError> {
        let first = self.job.rows.start + task.first_row;
        let rows = first..first + u64::from(task.rows);
        let shared = Arc::clone(&self);
        let read = tokio::task::spawn_blocking(move || shared.job.dataset.read(rows)).await;
        match read.map_err(|error| FatalError(format!("reading the dataset broke: {error}")))? {
            Ok(rows) => {
                self.cells.seed(task.row_group, rows);
                Ok(TaskOutcome::Success)
            }
            Err(error) => {
                self.cells.fail(task.row_group, DATASET, None, error.to_string());
                Ok(TaskOutcome::Failed(FailureKind::Other))
            }
        }
    }

    /// The value that fills `task`, and whether anything was done for it.
    async fn value(&self, task: &Task, index: usize) -> Result<(Arc<Value>, TaskOutcome), Unfilled> {
        let column = &self.job.columns[index];
        let values = self.context(task, index, column);
        let scene = Scene {
            column: &column.name,
            templates: &self.job.templates,
            values: &values,
            row: self.row_number(task.first_row, task.row.unwrap_or(0)),
            is_whole_group: column.strategy != Strategy::Cell,
        };
        if let Some(when) = &column.when {
            let holds = self.job.templates.holds(when, values.clone());
            let failed = |error: TemplateError| Unfilled::failed(FailureKind::Template, error.to_string());
            if !holds.map_err(failed)? {
                return Ok((Arc::clone(&column.otherwise), TaskOutcome::Skipped));
            }
        }
        let calls = Calls::new(self.callers[index].as_ref(), task.token);
        column.fill.fill(scene, calls).await.map(|value| (Arc::new(value), TaskOutcome::Success))
    }

    /// The number in the dataset of a row of the run's.
    fn row_number(&self, first_row: u64, row: u32) -> u64 {
        self.job.rows.start + first_row + u64::from(row)
    }

    /// What the templates of `column` may read.
    fn context(&self, task: &Task, index: usize, column: &GeneratedColumn) -> TemplateValue {
        let read = |read: &dyn Fn(&CellGroup) -> TemplateValue| self.cells.read(task.row_group, read);
        let context = match (column.strategy, task.row) {
            (Strategy::Cell, Some(row)) => {
                read(&|cells| TemplateValue::from_pairs(self.row_values(task, column, cells, row)))
            }
            _ => read(&|cells| {
                // A row that an upstream dropped is not shown, whatever else has a value in it.
                let above = self.job.above(index);
                let rows = (0..task.rows).filter(|row| is_whole(&self.job.columns, &above, cells, *row));
                let rows = rows.map(|row| TemplateValue::from_pairs(self.row_values(task, column, cells, row)));
                let rows: TemplateValue = rows.collect();
                TemplateValue::from_pairs([("rows", rows), ("row_group", TemplateValue::from(task.row_group))])
            }),
        };
        context.unwrap_or_default()
    }

    /// The inputs of `column` that row `row` of the task's group has, by name.
    fn row_values<'a>(
        &'a self,
        task: &'a Task,
        column: &'a GeneratedColumn,
        cells: &'a CellGroup,
        row: u32,
    ) -> impl Iterator<Item = (&'a str, TemplateValue)> {
        let number = self.row_number(task.first_row, row);
        let seeds = cells.seeds(row);
        column.inputs.iter().filter_map(move |input| match *input {
            Input::RowNumber => Some((self.job.row_key.as_str(), TemplateValue::from(number))),
            Input::Seed(at) => {
                let name = self.job.dataset.columns().get(at)?;
                Some((name.as_str(), TemplateValue::from(Serde(seeds.get(at)?))))
            }
            Input::Generated(at) => {
                let column = self.job.columns.get(at)?;
                Some((column.name.as_str(), TemplateValue::from(Serde(&**made(column, cells, at, row)?))))
            }
        })
    }

    fn write(&self, group: &FinishedRowGroup) -> Result<(), SaveError> {
        let Some(cells) = self.cells.take(group.row_group) else {
            return Err(SaveError(format!("row group {} has no values", group.row_group)));
        };
        let dropped = group.dropped.iter().map(|dropped| self.dropped_line(group, &cells, dropped));
        let unmade = group.unmade.iter().map(|row| DroppedLine::unmade(self.row_number(group.first_row, *row)));
        let mut lost: Vec<DroppedLine> = dropped.chain(unmade).collect();
        lost.sort_unstable_by_key(|line| line.row);
        let rows = group.live.iter().map(|row| {
            let row = self.output_row(group.first_row, &cells, *row);
            (row.row, row)
        });
        match self.output.write_row_group(group.row_group, rows, &lost) {
            Ok(Stored::Written) => {
                self.written.lock().add(group, &lost);
                Ok(())
            }
            Ok(Stored::KeptEarlier { rows, before }) => {
                let number = group.row_group;
                self.warnings.lock().push(format!(
                    "warning: row group {number} was made anew with {rows} rows and has {before} already: what is there is kept"
                ));
                Ok(())
            }
            Err(error) => {
                self.cells.put_back(group.row_group, cells);
                Err(SaveError(error.to_string()))
            }
        }
    }

    fn output_row<'a>(&'a self, first_row: u64, cells: &'a CellGroup, row: u32) -> OutputRow<'a> {
        let generated = self.job.columns.iter().enumerate();
        OutputRow {
            row_key: &self.job.row_key,
            row: self.row_number(first_row, row),
            seeds: (self.job.dataset.columns(), cells.seeds(row)),
            generated: generated
                .filter_map(|(at, column)| Some((column.name.as_str(), &**made(column, cells, at, row)?)))
                .collect(),
        }
    }

    fn dropped_line(&self, group: &FinishedRowGroup, cells: &CellGroup, dropped: &DroppedRow) -> DroppedLine {
        let DroppedRow { row, column, reason, .. } = *dropped;
        let index = self.by_id.get(&column).copied();
        DroppedLine {
            row: self.row_number(group.first_row, row),
            column: Some(index.map_or(DATASET_NAME, |index| &self.job.columns[index].name).to_string()),
            reason: reason.name().to_string(),
            detail: cells.failure(index.unwrap_or(DATASET), row).map(str::to_string),
        }
    }
}

/// How a cell came to be complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Complete {
    Made,
    Skipped,
}

/// Whether the columns `above`, each after its upstreams, are all complete in a row. Once the tasks of the row that they
/// have are over, that depends on what these tasks brought and not on when: a value that a column for whole row groups gave
/// all rows does not make up for a cell that failed before it.
fn is_whole(columns: &[GeneratedColumn], above: &[usize], cells: &CellGroup, row: u32) -> bool {
    let mut complete = vec![None; columns.len()];
    above.iter().all(|&at| {
        let column = &columns[at];
        // As the scheduler has it: single cells that are skipped do not make a whole row group be.
        let passes_on = |upstream: &usize| {
            complete[*upstream] == Some(Complete::Skipped)
                && (column.strategy == Strategy::Cell || columns[*upstream].strategy != Strategy::Cell)
        };
        complete[at] = if cells.is_skipped(at, row) {
            Some(Complete::Skipped)
        } else if cells.value(at, row).is_some() {
            Some(Complete::Made)
        } else {
            let is_skipped = column.skips_with_upstream && column.upstreams.iter().any(passes_on);
            is_skipped.then_some(Complete::Skipped)
        };
        complete[at].is_some()
    })
}

/// The value of `column`, which is at `at`, in a row that is whole. A column that was skipped with its upstream had no task, and so has
/// nothing in its cell.
fn made<'a>(column: &'a GeneratedColumn, cells: &'a CellGroup, at: usize, row: u32) -> Option<&'a Arc<Value>> {
    cells.value(at, row).or(column.skips_with_upstream.then_some(&column.otherwise))
}
