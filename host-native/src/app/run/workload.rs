//! Does the work of the tasks of a run: reads rows from the dataset, fills cells, and writes finished row
//! groups. The scheduler decides when each of these happens.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures_util::future;
use parking_lot::Mutex;
use serde_json::Value;
use tidegate_core::driver::Workload;
use tidegate_core::pipeline::{
    ClaimedRowGroup, ColumnId, DroppedRow, FailureKind, FatalError, FinishedRowGroup, HookError, ProviderDegraded,
    SaveError, Strategy, Task, TaskOutcome,
};

use crate::app::output::{CallLine, DroppedLine, KeptRows, OutputDirectory, WriteOutcome};
use crate::app::run::buffer::{OutputRow, RowGroupBuffer, RowGroupBuffers};
use crate::app::run::columns::batch::{Batches, Lead, Member};
use crate::app::run::columns::error::FillError;
use crate::app::run::columns::{AnswerPart, Caller, Fill, FillContext, Filled, ModelCalls};
use crate::app::run::resolve::output::{OutputColumn, OutputSource};
use crate::app::run::resolve::{GeneratedColumn, Input, REQUEST_RESOURCE, ResolvedPipeline};
use crate::app::run::together::DatasetMember;
use crate::app::run::written_counts::WrittenCounts;
use crate::app::template::{Serde, TemplateError, TemplateValue, object_in_any_form};

/// The work of a run, shared by all workers.
#[derive(Debug)]
pub struct PipelineWorkload(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    resolved: ResolvedPipeline,
    /// For each generated column, how it calls its model; `None` for a column that calls none.
    callers: Vec<Option<Caller>>,
    by_id: HashMap<ColumnId, usize>,
    /// For each generated column, the columns that keep what is known about its answers.
    answer_columns: Vec<Vec<(usize, AnswerPart)>>,
    /// For each generated column, the answers of each of its models.
    answers: Vec<Vec<AtomicU64>>,
    buffers: RowGroupBuffers,
    batches: Batches,
    output: Arc<OutputDirectory>,
    /// Whether the calls for each row are kept.
    keeps_calls: bool,
    /// The part of this process, if several fill the output.
    together: Option<Arc<DatasetMember>>,
    /// Whether the run makes no further calls, and so starts no commands of tools.
    is_stopping: AtomicBool,
    written: Mutex<WrittenCounts>,
    /// Warnings for the screen, oldest first.
    warnings: Mutex<Vec<String>>,
}

/// The column index of the root column among failures.
const DATASET_COLUMN: usize = usize::MAX;

/// The name of the root column in reports of dropped rows.
pub const DATASET_NAME: &str = "seed";

type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl PipelineWorkload {
    /// Creates the work of a run. `callers` has an entry for each generated column, in the same order.
    /// `keeps_calls` is whether the calls for each row are kept in the output.
    #[must_use]
    pub fn new(
        resolved: ResolvedPipeline,
        callers: Vec<Option<Caller>>,
        output: Arc<OutputDirectory>,
        keeps_calls: bool,
    ) -> Self {
        Self::with_together(resolved, callers, output, keeps_calls, None)
    }

    /// Does the same as [`new`](Self::new). `together` is the part of this process, if several fill the
    /// output.
    pub(super) fn with_together(
        resolved: ResolvedPipeline,
        callers: Vec<Option<Caller>>,
        output: Arc<OutputDirectory>,
        keeps_calls: bool,
        together: Option<Arc<DatasetMember>>,
    ) -> Self {
        let id = |(index, column): (usize, &GeneratedColumn)| Some((resolved.plan.column_id(&column.name)?, index));
        let by_id = resolved.columns.iter().enumerate().filter_map(id).collect();
        let mut answer_columns = vec![Vec::new(); resolved.columns.len()];
        for (index, column) in resolved.columns.iter().enumerate() {
            if let Fill::OfAnswer { of, part } = column.fill {
                answer_columns[of].push((index, part));
            }
        }
        let counters = |caller: &Option<Caller>| {
            caller.iter().flat_map(|caller| &caller.models).map(|_| AtomicU64::new(0)).collect()
        };
        let answers = callers.iter().map(counters).collect();
        let buffers = RowGroupBuffers::new(resolved.columns.len());
        Self(Arc::new(Shared {
            resolved,
            callers,
            by_id,
            answer_columns,
            answers,
            buffers,
            batches: Batches::default(),
            output,
            keeps_calls,
            together,
            is_stopping: AtomicBool::new(false),
            written: Mutex::default(),
            warnings: Mutex::default(),
        }))
    }

    /// Starts no more commands of tools. Call it once the run makes no further calls.
    pub fn stop_tools(&self) {
        self.0.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Returns whether several processes fill the output.
    pub(super) fn is_together(&self) -> bool {
        self.0.together.is_some()
    }

    /// Returns whether other processes hold all row groups that are left. `None` if this process is alone.
    pub(super) fn waits_for_others(&self) -> Option<bool> {
        self.0.together.as_ref().map(|together| together.waits_for_others())
    }

    /// Claims no further row group, if several processes fill the output.
    pub(super) fn stop_claiming(&self) {
        self.0.together.iter().for_each(|together| together.stop_claiming());
    }

    /// Returns the warnings since the last call.
    #[must_use]
    pub fn take_warnings(&self) -> Vec<String> {
        let mut warnings = std::mem::take(&mut *self.0.warnings.lock());
        warnings.extend(self.0.together.iter().flat_map(|together| together.take_warnings()));
        warnings
    }

    /// Returns the pipeline of the run.
    #[must_use]
    pub fn resolved(&self) -> &ResolvedPipeline {
        &self.0.resolved
    }

    /// Returns the models that the column at `index` may call, by `provider/model`, each with the number of
    /// its answers so far.
    #[must_use]
    pub fn answers(&self, index: usize) -> Vec<(String, u64)> {
        let models = self.0.callers[index].iter().flat_map(|caller| &caller.models);
        let counts = self.0.answers[index].iter().map(|count| count.load(Ordering::Relaxed));
        models.map(|model| model.provider.label.clone()).zip(counts).collect()
    }

    /// Reduces what was written to what is `left` of it.
    pub fn limit_written(&self, left: &KeptRows) {
        let output = &self.0.output;
        self.0.written.lock().limit_to(left, output.remaining(), &output.dropped());
    }

    /// Returns what has been written so far.
    #[must_use]
    pub fn written(&self) -> WrittenCounts {
        self.0.written.lock().clone()
    }
}

impl Workload for PipelineWorkload {
    type Work = BoxedFuture<Result<TaskOutcome, FatalError>>;
    type Save = BoxedFuture<Result<(), SaveError>>;

    fn warn(&self, warning: &ProviderDegraded) {
        // Users know the provider and model, not the task resource that stands for them.
        let resource = warning.resource.as_deref().map(|name| name.strip_prefix(REQUEST_RESOURCE).unwrap_or(name));
        let warning = ProviderDegraded { resource: resource.map(str::to_string), ..warning.clone() };
        self.0.warnings.lock().push(format!("warning: {warning}"));
    }

    fn work(&self, task: Task) -> Self::Work {
        let shared = Arc::clone(&self.0);
        match self.0.batches.join(&task) {
            Some((member, Some(lead))) => Box::pin(shared.run_lead(task, member, lead)),
            Some((member, None)) => Box::pin(shared.run_task(task, Some(member))),
            None => Box::pin(shared.run_task(task, None)),
        }
    }

    fn checkpoint(&self, group: FinishedRowGroup) -> Self::Save {
        let shared = Arc::clone(&self.0);
        let together = self.0.together.clone();
        Box::pin(async move {
            let row_group = group.row_group;
            let is_part = !group.unmade.is_empty();
            let written = tokio::task::spawn_blocking(move || shared.write(&group)).await;
            let written = written.unwrap_or_else(|error| Err(SaveError(format!("the writer failed: {error}"))));
            match (together, &written) {
                // The next process that claims it makes the rest. It is not this one: the run is stopping.
                (Some(together), Ok(())) if is_part => {
                    together.stop_claiming();
                    together.hand_back([row_group]).await;
                }
                (Some(together), Ok(())) => together.acknowledge(row_group).await,
                _ => {}
            }
            written
        })
    }

    fn poll_claim(&self, context: &mut Context<'_>) -> Poll<Result<Option<ClaimedRowGroup>, HookError>> {
        self.0.together.as_ref().map_or(Poll::Ready(Ok(None)), |together| together.poll_claim(context))
    }
}

impl Shared {
    /// Does a task, and makes the calls for its batch.
    async fn run_lead(self: Arc<Self>, task: Task, member: Member, lead: Lead) -> Result<TaskOutcome, FatalError> {
        let shared = Arc::clone(&self);
        let calls = async {
            if let Some(&index) = shared.by_id.get(&task.column) {
                let column = &shared.resolved.columns[index];
                let calls = ModelCalls::new(shared.callers[index].as_ref(), &task);
                column.fill.fill_batch(&column.name, &lead, calls).await;
            }
            // Members without a reply are cancelled, also this task.
            drop(lead);
        };
        future::join(self.run_task(task, Some(member)), calls).await.0
    }

    /// Does a task. If it is a member of a batch, the lead makes its call.
    async fn run_task(self: Arc<Self>, task: Task, member: Option<Member>) -> Result<TaskOutcome, FatalError> {
        self.buffers.open(task.row_group, task.rows);
        let Some(&index) = self.by_id.get(&task.column) else { return self.read_rows(task).await };
        if self.buffers.is_rejected(task.row_group, task.row) {
            self.buffers.mark_skipped(task.row_group, index, task.row);
            return Ok(TaskOutcome::Skipped);
        }
        let outcome = self.make_cell(&task, index, member).await?;
        let (Some(row), TaskOutcome::Success | TaskOutcome::Skipped) = (task.row, outcome) else { return Ok(outcome) };
        match self.is_accepted(&task, index, row) {
            Ok(true) => {}
            Ok(false) => self.buffers.reject(task.row_group, index, row),
            Err(error) => {
                self.buffers.set_failure(task.row_group, index, task.row, error.to_string());
                return Ok(TaskOutcome::Failed(FailureKind::Template));
            }
        }
        Ok(outcome)
    }

    /// Returns whether the column at `index`, which is made, accepts the row.
    fn is_accepted(&self, task: &Task, index: usize, row: u32) -> Result<bool, TemplateError> {
        let column = &self.resolved.columns[index];
        let Some(condition) = &column.accept_if else { return Ok(true) };
        let values = self.buffers.read(task.row_group, |buffer| {
            let own = output_value(column, buffer, index, row);
            let own = own.map(|value| TemplateValue::from(Serde(&**value)));
            let own = self.resolved.variable(Input::Generated(index)).zip(own);
            TemplateValue::from_pairs(self.row_values(task, column, buffer, row).chain(own))
        });
        self.resolved.templates.holds(condition, values.unwrap_or_default())
    }

    /// Makes the cell, or the cells of the row group, that are the task of the column at `index`.
    async fn make_cell(&self, task: &Task, index: usize, member: Option<Member>) -> Result<TaskOutcome, FatalError> {
        let (filled, outcome) = match self.fill_cell(task, index, member).await {
            Ok(filled) => filled,
            Err(FillError::Fatal(error)) => return Err(error),
            Err(FillError::Outcome(outcome, why)) => {
                self.buffers.set_failure(task.row_group, index, task.row, why);
                return Ok(outcome);
            }
        };
        if outcome == TaskOutcome::Skipped {
            self.buffers.mark_skipped(task.row_group, index, task.row);
        }
        let is_of_answer = matches!(self.resolved.columns[index].fill, Fill::OfAnswer { .. });
        if is_of_answer && outcome == TaskOutcome::Success {
            // The task that made the answer has set it.
            return Ok(outcome);
        }
        let CellValue { value, reasoning, model } = filled;
        for &(column, part) in &self.answer_columns[index] {
            // A column that is skipped with its upstream has no task, and another value.
            if outcome == TaskOutcome::Success || !self.resolved.columns[column].skips_with_upstream {
                let part = match part {
                    AnswerPart::Reasoning => reasoning.clone().into(),
                    AnswerPart::Model => model.into(),
                };
                self.buffers.set_value(task.row_group, column, task.row, &Arc::new(part));
            }
        }
        self.buffers.set_value(task.row_group, index, task.row, &value);
        Ok(outcome)
    }

    /// Does a task of the root column: reads the rows of a row group from the dataset.
    async fn read_rows(self: Arc<Self>, task: Task) -> Result<TaskOutcome, FatalError> {
        let first = self.resolved.rows.start + task.first_row;
        let rows = first..first + u64::from(task.rows);
        let shared = Arc::clone(&self);
        let read = tokio::task::spawn_blocking(move || shared.resolved.dataset.read(rows)).await;
        match read.map_err(|error| FatalError(format!("reading the dataset failed: {error}")))? {
            Ok(rows) => {
                self.buffers.set_seeds(task.row_group, rows);
                Ok(TaskOutcome::Success)
            }
            Err(error) => {
                self.buffers.set_failure(task.row_group, DATASET_COLUMN, None, error.to_string());
                Ok(TaskOutcome::Failed(FailureKind::Other))
            }
        }
    }

    /// Returns the value for `task`, and whether the column was made or skipped.
    async fn fill_cell(
        &self,
        task: &Task,
        index: usize,
        member: Option<Member>,
    ) -> Result<(CellValue<'_>, TaskOutcome), FillError> {
        let column = &self.resolved.columns[index];
        let values = self.context(task, index, column);
        let context = FillContext {
            column: &column.name,
            templates: &self.resolved.templates,
            values: &values,
            row: self.row_number(task.first_row, task.row.unwrap_or(0)),
            is_whole_group: column.strategy != Strategy::Cell,
        };
        if let Some(when) = &column.when {
            let holds = self.resolved.templates.holds(when, values.clone());
            let failed = |error: TemplateError| FillError::failed(FailureKind::Template, error.to_string());
            if !holds.map_err(failed)? {
                let value = CellValue { value: Arc::clone(&column.otherwise), reasoning: None, model: None };
                return Ok((value, TaskOutcome::Skipped));
            }
        }
        let kept = self.keeps_calls.then(Mutex::<CallLine>::default);
        let calls = ModelCalls::new(self.callers[index].as_ref(), task).keeping(kept.as_ref());
        let calls = calls.in_batch(member.as_ref()).writing_to(&self.output).until(&self.is_stopping);
        let filled = column.fill.fill(context, calls).await;
        if let Some(calls) = kept.map(Mutex::into_inner).filter(|line| !line.models.is_empty()) {
            let row = task.row.map(|row| self.row_number(task.first_row, row));
            let calls = CallLine { row, column: column.name.clone(), ..calls };
            self.buffers.add_calls(task.row_group, index, task.row, calls);
        }
        let Filled { value, reasoning, model } = filled?;
        let model = model.and_then(|place| self.count_answer(index, place));
        Ok((CellValue { value: Arc::new(value), reasoning, model }, TaskOutcome::Success))
    }

    /// Counts an answer in the column at `index` of its model at `place`, and returns the label of the model.
    fn count_answer(&self, index: usize, place: usize) -> Option<&str> {
        let provider = &self.callers[index].as_ref()?.models.get(place)?.provider;
        let earlier = self.answers[index].get(place)?.fetch_add(1, Ordering::Relaxed);
        if place > 0 && earlier == 0 {
            let column = &self.resolved.columns[index].name;
            self.warnings
                .lock()
                .push(format!("warning: `{column}` is answered by {} where it falls back", provider.label));
        }
        Some(&provider.label)
    }

    /// Returns the row number in the dataset of a row of a row group.
    fn row_number(&self, first_row: u64, row: u32) -> u64 {
        self.resolved.rows.start + first_row + u64::from(row)
    }

    /// Returns the variables of the templates of `column`.
    fn context(&self, task: &Task, index: usize, column: &GeneratedColumn) -> TemplateValue {
        let read = |read: &dyn Fn(&RowGroupBuffer) -> TemplateValue| self.buffers.read(task.row_group, read);
        let context = match (column.strategy, task.row) {
            (Strategy::Cell, Some(row)) => {
                read(&|buffer| TemplateValue::from_pairs(self.row_values(task, column, buffer, row)))
            }
            _ => read(&|buffer| {
                // A row that an upstream has dropped is left out, even if it has other values.
                let ancestors = self.resolved.ancestors(index);
                let rows = (0..task.rows).filter(|row| {
                    buffer.rejected_by(*row).is_none() && is_complete(&self.resolved.columns, &ancestors, buffer, *row)
                });
                let rows = rows.map(|row| object_in_any_form(self.row_values(task, column, buffer, row)));
                let rows: TemplateValue = rows.collect();
                TemplateValue::from_pairs([("rows", rows), ("row_group", TemplateValue::from(task.row_group))])
            }),
        };
        context.unwrap_or_default()
    }

    /// Returns the inputs of `column` for the row `row` of the task's row group: by their names, and for a
    /// column of cells also by their variables.
    fn row_values<'a>(
        &'a self,
        task: &'a Task,
        column: &'a GeneratedColumn,
        buffer: &'a RowGroupBuffer,
        row: u32,
    ) -> impl Iterator<Item = (&'a str, TemplateValue)> {
        let number = self.row_number(task.first_row, row);
        let seeds = buffer.seeds(row);
        let keyed = column.inputs.iter().filter_map(move |input| {
            let value = match *input {
                Input::RowNumber => TemplateValue::from(number),
                Input::Seed(at) => TemplateValue::from(Serde(seeds.get(at)?)),
                Input::Generated(at) => {
                    TemplateValue::from(Serde(&**output_value(self.resolved.columns.get(at)?, buffer, at, row)?))
                }
            };
            Some(self.resolved.keyed(column, *input, value))
        });
        keyed.flatten()
    }

    fn write(&self, group: &FinishedRowGroup) -> Result<(), SaveError> {
        let Some(shared) = self.buffers.take(group.row_group) else {
            return Err(SaveError(format!("row group {} has no values", group.row_group)));
        };
        let buffer = shared.read();
        let dropped = group.dropped.iter().map(|dropped| self.dropped_line(group, &buffer, dropped));
        let unmade = group.unmade.iter().map(|row| DroppedLine::unmade(self.row_number(group.first_row, *row)));
        let rejected = group.live.iter().filter_map(|row| {
            let column = &self.resolved.columns[buffer.rejected_by(*row)?].name;
            Some(DroppedLine::rejected(self.row_number(group.first_row, *row), column))
        });
        let mut dropped_lines: Vec<DroppedLine> = dropped.chain(unmade).chain(rejected).collect();
        dropped_lines.sort_unstable_by_key(|line| line.row);
        let rows = group.live.iter().filter(|row| buffer.rejected_by(**row).is_none()).map(|row| {
            let row = self.output_row(group.first_row, &buffer, *row);
            (row.row, row)
        });
        let calls_written =
            if self.keeps_calls { self.output.write_calls(group.row_group, buffer.calls().cloned()) } else { Ok(()) };
        let written = calls_written.and_then(|()| self.output.write_row_group(group.row_group, rows, &dropped_lines));
        let committed = written.and_then(|outcome| match &self.together {
            // It stays in the directory of this process, and counts once another one has made the rest.
            Some(_) if !group.unmade.is_empty() => Ok(None),
            Some(together) => Ok(Some((outcome, together.directory().commit(group.row_group)?))),
            None => Ok(Some((outcome, true))),
        });
        match committed {
            Ok(None) => {
                self.written.lock().add_unfinished(group, &dropped_lines);
                Ok(())
            }
            Ok(Some((_, false))) => {
                let number = group.row_group;
                let warning =
                    format!("warning: row group {number} was made by another process, too, whose rows are kept");
                self.warnings.lock().push(warning);
                Ok(())
            }
            Ok(Some((WriteOutcome::Written, true))) => {
                self.written.lock().add(group, &dropped_lines);
                Ok(())
            }
            Ok(Some((WriteOutcome::KeptEarlier { rows, before }, true))) => {
                let number = group.row_group;
                self.warnings.lock().push(format!(
                    "warning: row group {number} was made again with {rows} rows and has {before} already: the existing rows are kept"
                ));
                Ok(())
            }
            Err(error) => {
                drop(buffer);
                self.buffers.restore(group.row_group, shared);
                Err(SaveError(error.to_string()))
            }
        }
    }

    fn output_row<'a>(&'a self, first_row: u64, buffer: &'a RowGroupBuffer, row: u32) -> OutputRow<'a> {
        let field = |output: &'a OutputColumn| {
            let value = match output.source {
                OutputSource::Seed(at) => buffer.seeds(row).get(at)?,
                OutputSource::Generated(at) => output_value(&self.resolved.columns[at], buffer, at, row)?,
            };
            Some((output.name.as_str(), output.field(value)))
        };
        OutputRow {
            row_key: &self.resolved.row_key,
            row: self.row_number(first_row, row),
            fields: self.resolved.output.iter().filter_map(field).collect(),
        }
    }

    fn dropped_line(&self, group: &FinishedRowGroup, buffer: &RowGroupBuffer, dropped: &DroppedRow) -> DroppedLine {
        let DroppedRow { row, column, reason, .. } = *dropped;
        let index = self.by_id.get(&column).copied();
        DroppedLine {
            row: self.row_number(group.first_row, row),
            column: Some(index.map_or(DATASET_NAME, |index| &self.resolved.columns[index].name).to_string()),
            reason: reason.name().to_string(),
            detail: buffer.failure(index.unwrap_or(DATASET_COLUMN), row).map(str::to_string),
        }
    }
}

/// The value of a task, ready for the buffer.
struct CellValue<'a> {
    value: Arc<Value>,
    /// The reasoning for an answer.
    reasoning: Option<String>,
    /// The label of the model that answered.
    model: Option<&'a str>,
}

/// The state of a complete cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellState {
    Filled,
    Skipped,
}

/// Returns whether the columns `ancestors`, in topological order, are all complete in a row.
///
/// Once the tasks of the row have ended, the result depends on their outcomes and not on their order: a value
/// that a column for whole row groups sets in all rows does not make up for a failed cell in one of its
/// upstreams.
fn is_complete(columns: &[GeneratedColumn], ancestors: &[usize], buffer: &RowGroupBuffer, row: u32) -> bool {
    let mut complete = vec![None; columns.len()];
    ancestors.iter().all(|&at| {
        let column = &columns[at];
        // The scheduler's rule: a skipped cell does not skip a column that is made for whole row groups.
        let is_skipped_upstream = |upstream: &usize| {
            complete[*upstream] == Some(CellState::Skipped)
                && (column.strategy == Strategy::Cell || columns[*upstream].strategy != Strategy::Cell)
        };
        complete[at] = if buffer.is_skipped(at, row) {
            Some(CellState::Skipped)
        } else if buffer.value(at, row).is_some() {
            Some(CellState::Filled)
        } else {
            let is_skipped = column.skips_with_upstream && column.upstreams.iter().any(is_skipped_upstream);
            is_skipped.then_some(CellState::Skipped)
        };
        complete[at].is_some()
    })
}

/// Returns the output value of `column`, at index `at`, in a complete row. A column that was skipped with its
/// upstream had no task and has no value in the buffer.
fn output_value<'a>(
    column: &'a GeneratedColumn,
    buffer: &'a RowGroupBuffer,
    at: usize,
    row: u32,
) -> Option<&'a Arc<Value>> {
    buffer.value(at, row).or(column.skips_with_upstream.then_some(&column.otherwise))
}
