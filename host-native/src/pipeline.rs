//! Pipelines of closures on tokio: one closure per column, and one that saves finished rows.
//!
//! A pipeline fills a table column by column. [`PipelineRunner`] configures the core's [`Pipeline`] and its
//! [driver] for tokio. The cell values belong to the caller; the scheduler identifies rows by number.
//!
//! The tasks of a [`model_column`](PipelineRunner::model_column) call a model through a [`RequestGate`]. Each
//! call is tied to its task: a task that waits for its model holds no worker slot meanwhile, if its column
//! yields. Retries, rate limits and outages are handled by the scheduler.
//!
//! ```
//! use tidegate_core::pipeline::{Column, PipelineConfig, Strategy, TaskOutcome};
//! use tidegate_core::request::{Completion, Outcome};
//! use tidegate_native::gate::{Call, Limits, RequestGate, ResourceKey};
//! use tidegate_native::pipeline::PipelineRunner;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gate = RequestGate::new()?;
//! let writer = ResourceKey::chat("provider", "writer");
//! gate.register(&writer, &Limits::at_most(4))?;
//!
//! let title = Column::new("title", Strategy::Cell).with_upstream("topic");
//! let config = PipelineConfig { rows: 20, row_group_size: 5, ..PipelineConfig::default() };
//! let report = PipelineRunner::new(config)
//!     .with_gate(&gate)
//!     .column(Column::new("topic", Strategy::Cell), async |_context| Ok(TaskOutcome::Success))
//!     .model_column(title, &writer, async |context, call| {
//!         // ... make the call for row `context.task.row` ...
//!         match context.call(&call, async || Ok::<_, Outcome>("a title")).await {
//!             Ok(Ok(_title)) => Ok(TaskOutcome::Success),
//!             Ok(Err(outcome)) => Ok(Completion::from(outcome).into()),
//!             Err(denied) => denied.into(),
//!         }
//!     })
//!     .save(async |group| {
//!         println!("{} rows of row group {}", group.live.len(), group.row_group);
//!         Ok(())
//!     })
//!     .start()?
//!     .await;
//! assert_eq!(report.rows_out, 20);
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tidegate_core::driver::{self, FatalError, SaveError, Workload};
use tidegate_core::gate::Classify;
use tidegate_core::pipeline::{
    Column, FinishedRowGroup, Pipeline, PipelineConfig, PipelineError, PlanBuilder, PlanError, RetryKind, Task,
    TaskOutcome,
};
use tidegate_core::request::{Denial, DenialReason, Request, ResourceId};
use tidegate_core::task::{GroupKind, TaskGroup};
use tokio::runtime::TryCurrentError;

use crate::gate::{Call, CallPermit, RequestGate, ResourceKey};
use crate::host::TokioHost;

/// A run of a [`PipelineRunner`]: a future that resolves with the report of the run.
///
/// Nothing runs before it is polled, and dropping it cancels the run. Its
/// [`handle`](driver::PipelineRun::handle) observes and stops the run from elsewhere;
/// [`with_sinks`](driver::PipelineRun::with_sinks) sends its events to [sinks](crate::observe).
pub type PipelineRun = driver::PipelineRun<TokioHost, ClosureWorkload>;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type TaskFn = Box<dyn Fn(TaskContext) -> BoxFuture<Result<TaskOutcome, FatalError>> + Send + Sync>;
type SaveFn = Box<dyn Fn(FinishedRowGroup) -> BoxFuture<Result<(), SaveError>> + Send + Sync>;

/// One attempt of a task: the argument of a column's closure.
#[derive(Clone, Debug)]
pub struct TaskContext {
    /// The cell or row group to fill, the number of this attempt, and the task's token.
    pub task: Task,
    gate: Option<RequestGate>,
}

impl TaskContext {
    /// Waits until `call` of this task may start, and returns its permit.
    ///
    /// If the column yields, the task releases its worker slot while it waits, and another task can start.
    /// Await the future in the closure itself, and let the closure do nothing else meanwhile.
    ///
    /// # Errors
    ///
    /// The gate denies the call, or the runner has no gate.
    pub async fn acquire(&self, call: &Call) -> Result<CallPermit, CallDenied> {
        let (gate, request) = self.request(call)?;
        gate.core().acquire_owned(request).for_task(self.task.token).await.map_err(CallDenied)
    }

    /// Makes `call` with `attempt` as soon as it may start, and repeats it if it fails in an outage of the
    /// provider.
    ///
    /// `attempt` is called once for each try. The last result is returned, also if it is a failure. Waits as
    /// [`acquire`](Self::acquire) does. See
    /// [`Gate::run_through_outages`](tidegate_core::gate::Gate::run_through_outages).
    ///
    /// # Errors
    ///
    /// The gate denies the call, or the runner has no gate.
    pub async fn call<F, Fut>(&self, call: &Call, mut attempt: F) -> Result<Fut::Output, CallDenied>
    where
        F: FnMut() -> Fut,
        Fut: Future,
        Fut::Output: Classify,
    {
        let (gate, request) = self.request(call)?;
        gate.core().run_through_outages(request, self.task.token, |_| attempt()).await.map_err(CallDenied)
    }

    /// Returns the gate, and `call` as a request of the core.
    fn request(&self, call: &Call) -> Result<(&RequestGate, Request), CallDenied> {
        let unregistered = Denial { reason: DenialReason::Unregistered, changes_at: None };
        let gate = self.gate.as_ref().ok_or(CallDenied(unregistered))?;
        Ok((gate, gate.request(call).map_err(CallDenied)?))
    }
}

/// The denial of a call of a task. `into()` converts it to the result of the task's closure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not admitted: {0}")]
pub struct CallDenied(pub Denial);

impl From<CallDenied> for Result<TaskOutcome, FatalError> {
    /// Returns how a task ends whose call was denied:
    ///
    /// | denial | result |
    /// | --- | --- |
    /// | shut down, cancelled | cancelled |
    /// | unavailable: a rejected key, for example | unavailable; the row is left for a resumed run |
    /// | unregistered | a [`FatalError`], which stops the run: a bug in the caller |
    /// | anything else: a timeout, for example | retryable |
    fn from(CallDenied(denial): CallDenied) -> Self {
        match denial.reason {
            DenialReason::Shutdown | DenialReason::Cancelled => Ok(TaskOutcome::Cancelled),
            DenialReason::Unavailable => Ok(TaskOutcome::Unavailable),
            DenialReason::Unregistered => Err(FatalError(CallDenied(denial).to_string())),
            _ => Ok(TaskOutcome::Retryable { kind: RetryKind::AdmissionTimeout, status: None, retry_after: None }),
        }
    }
}

/// The reason why a run could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The columns do not form a valid plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] PipelineError),
    /// A column calls a model, and the runner has no gate.
    #[error("the column `{column}` calls {key}, which needs a gate: see `PipelineRunner::with_gate`")]
    NoGate {
        /// The name of the column.
        column: String,
        /// The model that it calls.
        key: ResourceKey,
    },
    /// A column calls a model that is not registered with the gate.
    #[error("the column `{column}` calls {key}, which is not registered with the gate: see `RequestGate::register`")]
    UnregisteredModel {
        /// The name of the column.
        column: String,
        /// The model that it calls.
        key: ResourceKey,
    },
    /// The caller does not run inside a tokio runtime.
    #[error("a run needs a tokio runtime: {0}")]
    NoRuntime(#[from] TryCurrentError),
}

/// A builder of a run: its settings, columns, gate and save function. See the [module documentation](self).
pub struct PipelineRunner {
    config: PipelineConfig,
    /// Each column, with the model that its tasks call.
    columns: Vec<(Column, Option<ResourceKey>)>,
    /// By column.
    tasks: Vec<TaskFn>,
    save: SaveFn,
    gate: Option<RequestGate>,
}

impl PipelineRunner {
    /// Creates a pipeline without columns. Without a [`save`](Self::save) function, finished row groups are
    /// discarded.
    #[must_use]
    pub fn new(config: PipelineConfig) -> Self {
        let save: SaveFn = Box::new(|_| Box::pin(std::future::ready(Ok(()))));
        Self { config, columns: Vec::new(), tasks: Vec::new(), save, gate: None }
    }

    /// Sets the gate through which tasks make their calls. Several runs and other callers may share one gate.
    #[must_use]
    pub fn with_gate(self, gate: &RequestGate) -> Self {
        Self { gate: Some(gate.clone()), ..self }
    }

    /// Adds a column whose tasks call no model. `run` runs one task.
    ///
    /// An `Err` of `run` means a bug and stops the run. A problem of one row, or a temporary problem, is a
    /// [`TaskOutcome`].
    #[must_use]
    pub fn column<F, Fut>(mut self, column: Column, run: F) -> Self
    where
        F: Fn(TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<TaskOutcome, FatalError>> + Send + 'static,
    {
        self.columns.push((column, None));
        self.tasks.push(Box::new(move |context| Box::pin(run(context))));
        self
    }

    /// Adds a column whose tasks call the model `key`, one call at a time. `run` runs one task; its second
    /// argument is the call to pass to [`TaskContext::call`] or [`TaskContext::acquire`].
    ///
    /// The model must be registered with the gate before [`start`](Self::start). At most twice as many of its
    /// tasks have a worker as calls to it may be in flight. Unless the column has a group of its own, its
    /// tasks form a fairness group of kind [`GroupKind::Model`] with weight 1.
    #[must_use]
    pub fn model_column<F, Fut>(mut self, column: Column, key: &ResourceKey, run: F) -> Self
    where
        F: Fn(TaskContext, Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<TaskOutcome, FatalError>> + Send + 'static,
    {
        self.columns.push((column, Some(key.clone())));
        let call = Call::new(key.clone());
        self.tasks.push(Box::new(move |context| Box::pin(run(context, call.clone()))));
        self
    }

    /// Sets the function that saves the rows of a finished row group. It is called once for each row group,
    /// in the order in which they finish.
    #[must_use]
    pub fn save<F, Fut>(self, save: F) -> Self
    where
        F: Fn(FinishedRowGroup) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), SaveError>> + Send + 'static,
    {
        Self { save: Box::new(move |group| Box::pin(save(group))), ..self }
    }

    /// Checks the pipeline and returns its run. Nothing runs before the run is polled.
    ///
    /// # Errors
    ///
    /// The columns form no valid plan, a setting is out of range, a model is not registered with the gate, or
    /// the runner has no gate and the caller does not run inside a tokio runtime.
    pub fn start(self) -> Result<PipelineRun, StartError> {
        let Self { mut config, columns, tasks, save, gate } = self;
        let mut plan = PlanBuilder::new();
        let mut calls: Vec<(String, ResourceId)> = Vec::new();
        for (column, key) in columns {
            let Some(key) = key else {
                plan = plan.column(column);
                continue;
            };
            let (resource, max_workers) = resolve_resource(&column, &key, gate.as_ref())?;
            let name = format!("request:{key}");
            if calls.iter().all(|(known, _)| *known != name) {
                config.resources.push((name.clone(), max_workers));
                calls.push((name.clone(), resource));
            }
            plan = plan.column(with_model_group(column, &key, max_workers).with_demand(&name, 1));
        }
        let pipeline = Pipeline::new(plan.build()?, config)?;
        let workload = Arc::new(ClosureWorkload { tasks, save, gate: gate.clone() });
        let calls: Vec<_> = calls.iter().map(|(name, resource)| (name.as_str(), *resource)).collect();
        Ok(match gate {
            Some(gate) => driver::run_through(pipeline, workload, gate.core(), &calls),
            None => driver::run(TokioHost::current()?, pipeline, workload),
        })
    }
}

/// Returns the resource that a column calls, and the maximum number of workers for it.
fn resolve_resource(
    column: &Column,
    key: &ResourceKey,
    gate: Option<&RequestGate>,
) -> Result<(ResourceId, u32), StartError> {
    let (name, model) = (|| column.name.clone(), || key.clone());
    let gate = gate.ok_or_else(|| StartError::NoGate { column: name(), key: model() })?;
    let resource = gate.resource(key).ok_or_else(|| StartError::UnregisteredModel { column: name(), key: model() })?;
    let max_calls = gate.core().snapshot(resource).map_or(1, |state| state.effective_max);
    Ok((resource, max_calls.saturating_mul(2)))
}

/// Returns the column in a fairness group of its model, unless it has a group of its own already.
fn with_model_group(column: Column, key: &ResourceKey, max_workers: u32) -> Column {
    if column.group != TaskGroup::local(&column.name) {
        return column;
    }
    let identity = vec![key.provider.to_string(), key.model.to_string(), column.name.clone()];
    let group = TaskGroup { kind: GroupKind::Model, identity, weight: 1.0, admitted_limit: Some(max_workers) };
    column.with_group(group)
}

impl fmt::Debug for PipelineRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<_> = self.columns.iter().map(|(column, _)| &column.name).collect();
        f.debug_struct("PipelineRunner")
            .field("config", &self.config)
            .field("columns", &columns)
            .finish_non_exhaustive()
    }
}

/// The workload of a [`PipelineRunner`]: its closures.
pub struct ClosureWorkload {
    /// By column.
    tasks: Vec<TaskFn>,
    save: SaveFn,
    gate: Option<RequestGate>,
}

impl Workload for ClosureWorkload {
    type Work = BoxFuture<Result<TaskOutcome, FatalError>>;
    type Save = BoxFuture<Result<(), SaveError>>;

    fn work(&self, task: Task) -> Self::Work {
        let run = &self.tasks[task.column.index()];
        run(TaskContext { task, gate: self.gate.clone() })
    }

    fn checkpoint(&self, group: FinishedRowGroup) -> Self::Save {
        (self.save)(group)
    }
}

impl fmt::Debug for ClosureWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClosureWorkload").field("columns", &self.tasks.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
