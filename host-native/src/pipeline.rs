//! A whole pipeline on tokio, made of closures: one for each column, and one that saves finished rows.
//!
//! [`PipelineRunner`] is the core's [`Pipeline`] and its [driver], ready-made: it registers what a
//! column's tasks call as a resource of the task stage, and ties their calls to their tasks, so that a task that waits for
//! its provider holds no worker slot meanwhile. Values of cells are the caller's: the scheduler knows rows by number.
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
//! let config = PipelineConfig { rows: 20, row_group_size: 5, ..PipelineConfig::default() };
//! let report = PipelineRunner::new(config)
//!     .through(&gate)
//!     .column(Column::new("topic", Strategy::Cell), async |_work| Ok(TaskOutcome::Success))
//!     .calling(Column::new("title", Strategy::Cell).with_upstream("topic"), &writer, async |work, call| {
//!         // ... make the call for row `work.task.row` ...
//!         match work.call(&call, async || Ok::<_, Outcome>("a title")).await {
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

use crate::gate::{Admitted, Call, RequestGate, ResourceKey};
use crate::host::TokioHost;

/// A run under way: await it for its report; its [`handle`](driver::PipelineRun::handle) watches and cancels it.
pub type Running = driver::PipelineRun<TokioHost, Closures>;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type WorkFn = Box<dyn Fn(Work) -> Boxed<Result<TaskOutcome, FatalError>> + Send + Sync>;
type SaveFn = Box<dyn Fn(FinishedRowGroup) -> Boxed<Result<(), SaveError>> + Send + Sync>;

/// One task, as its column's closure sees it.
#[derive(Clone, Debug)]
pub struct Work {
    /// Which cell or row group to fill.
    pub task: Task,
    gate: Option<RequestGate>,
}

impl Work {
    /// A slot for a call of this task, as soon as it is its turn. Meanwhile the task gives its worker slot back, if its
    /// column yields: a call to wait for should be awaited by the task itself.
    pub async fn acquire(&self, call: &Call) -> Result<Admitted, NotAdmitted> {
        let (gate, request) = self.request(call)?;
        let permit = gate.core().acquire_owned(request).for_task(self.task.token).await.map_err(NotAdmitted)?;
        Ok(Admitted::new(permit, request.resource))
    }

    /// Makes a call of this task as soon as it is its turn, and makes it again after a failure in an outage: `attempt` is called for each
    /// try. Waits as [`acquire`](Self::acquire) does. See [`Gate::run_through_outages`](tidegate_core::gate::Gate::run_through_outages).
    pub async fn call<F, Fut>(&self, call: &Call, mut attempt: F) -> Result<Fut::Output, NotAdmitted>
    where
        F: FnMut() -> Fut,
        Fut: Future,
        Fut::Output: Classify,
    {
        let (gate, request) = self.request(call)?;
        gate.core().run_through_outages(request, self.task.token, |_| attempt()).await.map_err(NotAdmitted)
    }

    /// The gate, and what it is asked for.
    fn request(&self, call: &Call) -> Result<(&RequestGate, Request), NotAdmitted> {
        let refused = Denial { reason: DenialReason::Unregistered, changes_at: None };
        let gate = self.gate.as_ref().ok_or(NotAdmitted(refused))?;
        Ok((gate, gate.request(call).map_err(NotAdmitted)?))
    }
}

/// A call that was not let out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not admitted: {0}")]
pub struct NotAdmitted(pub Denial);

impl From<NotAdmitted> for Result<TaskOutcome, FatalError> {
    /// What it means for the task: try again, unless the gate is shut, does not know the model, or the model cannot be used any more.
    fn from(NotAdmitted(denial): NotAdmitted) -> Self {
        match denial.reason {
            DenialReason::Shutdown | DenialReason::Cancelled => Ok(TaskOutcome::Cancelled),
            DenialReason::Unavailable => Ok(TaskOutcome::Unavailable),
            DenialReason::Unregistered => Err(FatalError(NotAdmitted(denial).to_string())),
            _ => Ok(TaskOutcome::Retryable { kind: RetryKind::AdmissionTimeout, status: None, retry_after: None }),
        }
    }
}

/// Why a run could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The columns do not make a plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A setting is out of range.
    #[error(transparent)]
    Setting(#[from] PipelineError),
    /// A column calls a model, and the runner has no gate, or its gate does not know the model.
    #[error("the column `{column}` calls {key}, which {why}")]
    Call {
        /// The column.
        column: String,
        /// What it calls.
        key: ResourceKey,
        /// What is the matter.
        why: &'static str,
    },
    /// The caller is not inside a tokio runtime.
    #[error("a run needs a tokio runtime: {0}")]
    NoRuntime(#[from] TryCurrentError),
}

/// A pipeline of closures, to be started. See the [module documentation](self).
pub struct PipelineRunner {
    config: PipelineConfig,
    columns: Vec<(Column, Option<ResourceKey>)>,
    work: Vec<WorkFn>,
    save: SaveFn,
    gate: Option<RequestGate>,
}

impl PipelineRunner {
    /// A pipeline without columns. Finished row groups are let go of until [`save`](Self::save) says what to do.
    #[must_use]
    pub fn new(config: PipelineConfig) -> Self {
        let save: SaveFn = Box::new(|_| Box::pin(std::future::ready(Ok(()))));
        Self { config, columns: Vec::new(), work: Vec::new(), save, gate: None }
    }

    /// Lets tasks call through `gate`.
    #[must_use]
    pub fn through(self, gate: &RequestGate) -> Self {
        Self { gate: Some(gate.clone()), ..self }
    }

    /// Adds a column whose tasks call no model.
    #[must_use]
    pub fn column<F, Fut>(mut self, column: Column, work: F) -> Self
    where
        F: Fn(Work) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<TaskOutcome, FatalError>> + Send + 'static,
    {
        self.columns.push((column, None));
        self.work.push(Box::new(move |task| Box::pin(work(task))));
        self
    }

    /// Adds a column whose tasks call `key`, one call at a time; `work` gets the call to acquire a slot for. Unless the column says otherwise, its
    /// tasks queue as the model's and take up no more workers than twice the calls the model bears.
    #[must_use]
    pub fn calling<F, Fut>(mut self, column: Column, key: &ResourceKey, work: F) -> Self
    where
        F: Fn(Work, Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<TaskOutcome, FatalError>> + Send + 'static,
    {
        self.columns.push((column, Some(key.clone())));
        let call = Call::of(key.clone());
        self.work.push(Box::new(move |task| Box::pin(work(task, call.clone()))));
        self
    }

    /// Says how the rows of a finished row group are kept. Called once for each, in whatever order they finish.
    #[must_use]
    pub fn save<F, Fut>(self, save: F) -> Self
    where
        F: Fn(FinishedRowGroup) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), SaveError>> + Send + 'static,
    {
        Self { save: Box::new(move |group| Box::pin(save(group))), ..self }
    }

    /// Checks everything and gives the run, which begins when it is first polled.
    pub fn start(self) -> Result<Running, StartError> {
        let Self { mut config, columns, work, save, gate } = self;
        let mut plan = PlanBuilder::new();
        let mut calls: Vec<(String, ResourceId)> = Vec::new();
        for (column, key) in columns {
            let Some(key) = key else {
                plan = plan.column(column);
                continue;
            };
            let (resource, most) = find(&column, &key, gate.as_ref())?;
            let name = format!("request:{key}");
            if calls.iter().all(|(known, _)| *known != name) {
                config.resources.push((name.clone(), most));
                calls.push((name.clone(), resource));
            }
            plan = plan.column(as_model(column, &key, most).with_demand(&name, 1));
        }
        let pipeline = Pipeline::new(plan.build()?, config)?;
        let work = Arc::new(Closures { work, save, gate: gate.clone() });
        let calls: Vec<_> = calls.iter().map(|(name, resource)| (name.as_str(), *resource)).collect();
        Ok(match gate {
            Some(gate) => driver::run_through(pipeline, work, gate.core(), &calls),
            None => driver::run(TokioHost::current()?, pipeline, work),
        })
    }
}

/// The resource that a column calls, and how many of its tasks may be at work.
fn find(column: &Column, key: &ResourceKey, gate: Option<&RequestGate>) -> Result<(ResourceId, u32), StartError> {
    let refuse = |why| StartError::Call { column: column.name.clone(), key: key.clone(), why };
    let gate = gate.ok_or_else(|| refuse("needs a gate: see `PipelineRunner::through`"))?;
    let resource = gate.resource(key).ok_or_else(|| refuse("the gate does not know: see `RequestGate::register`"))?;
    let most = gate.core().snapshot(resource).map_or(1, |state| state.effective_max);
    Ok((resource, most.saturating_mul(2)))
}

/// The column in the fairness group of its model, unless it was given one of its own.
fn as_model(column: Column, key: &ResourceKey, most: u32) -> Column {
    if column.group != TaskGroup::local(&column.name) {
        return column;
    }
    let identity = vec![key.provider.to_string(), key.model.to_string(), column.name.clone()];
    let group = TaskGroup { kind: GroupKind::Model, identity, weight: 1.0, admitted_limit: Some(most) };
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

/// The workload of a [`PipelineRunner`].
pub struct Closures {
    /// By column.
    work: Vec<WorkFn>,
    save: SaveFn,
    gate: Option<RequestGate>,
}

impl Workload for Closures {
    type Work = Boxed<Result<TaskOutcome, FatalError>>;
    type Save = Boxed<Result<(), SaveError>>;

    fn work(&self, task: Task) -> Self::Work {
        let work = &self.work[task.column.index()];
        work(Work { task, gate: self.gate.clone() })
    }

    fn checkpoint(&self, group: FinishedRowGroup) -> Self::Save {
        (self.save)(group)
    }
}

impl fmt::Debug for Closures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closures").field("columns", &self.work.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
