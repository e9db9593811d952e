//! The events of a run: a log of what the scheduler did.
//!
//! A pipeline emits only the kinds of events that
//! [`Pipeline::set_interest`](crate::pipeline::Pipeline::set_interest) enables. Any other event costs one
//! branch. [`Pipeline::poll_event`](crate::pipeline::Pipeline::poll_event) returns the events. They are
//! separate from the effects, which a host must poll. At most [`MAX_PENDING`] events are kept for a host that
//! does not poll them. Further events are dropped and counted. No event contains a row value, a name or an
//! error message.
//!
//! The events of one attempt of a task are emitted in this order:
//!
//! ```text
//! dependency ready     -.
//! salvage redispatched -+-> ready enqueued --> selected --> task lease acquired --> worker spawned
//!                                 |                                                      |
//!                    cancelled <--'                        task completed, or worker spawn failed
//!                                                                                        |
//!               nothing more, retry deferred, non-retryable dropped or cancelled <-- task lease released
//! ```
//!
//! ```
//! use tidegate_core::pipeline::event::{SchedulerInterest, SchedulerEventKind};
//! use tidegate_core::pipeline::{Column, Pipeline, PipelineConfig, PlanBuilder, Strategy};
//! use tidegate_core::time::Instant;
//!
//! let plan = PlanBuilder::new().column(Column::new("answer", Strategy::Cell)).build()?;
//! let mut pipeline = Pipeline::new(plan, PipelineConfig { rows: 1, ..PipelineConfig::default() })?;
//! pipeline.set_interest(SchedulerInterest::of(&[SchedulerEventKind::WorkerSpawned]));
//! pipeline.start(Instant::ZERO);
//! let event = pipeline.poll_event().expect("one worker was spawned");
//! assert_eq!((event.correlation.row_group, event.correlation.attempt), (Some(0), Some(1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod emitter;

use crate::event::event_kinds;
use crate::lease::{LeaseId, ReleaseResult};
use crate::pipeline::outcome::{DiscardReason, DropReason, Hook, RetryKind, RetryableCount, TaskOutcome, WorkerId};
use crate::pipeline::report::StopReason;
use crate::pipeline::row_group::RowGroupBlock;
use crate::request::RequestPressure;
use crate::task::TaskDenialReason;
use crate::time::Instant;

pub use crate::event::{Correlation, MAX_PENDING};
pub(crate) use emitter::{EventEmitter, QueueState};

/// One event of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SchedulerEvent {
    /// The number of the event in its run, from 0. A gap means that events were dropped.
    pub sequence: u64,
    /// When the event happened.
    pub at: Instant,
    /// The row group, row, column, group and task of the event.
    pub correlation: Correlation,
    /// The kind of the event, with its data.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub payload: SchedulerEventPayload,
}

/// Why a run ended: [`StopReason`] without its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum StopKind {
    /// Every row group was saved.
    Completed,
    /// The run was wound down: admitted row groups were finished, and no other one was admitted.
    WoundDown,
    /// The run was cancelled: its workers were aborted.
    Cancelled,
    /// Too many of the latest final outcomes were failures.
    EarlyShutdown,
    /// A row group could not be saved.
    CheckpointFailed,
    /// A row group could not be claimed.
    ClaimFailed,
    /// A hook failed.
    HookFailed,
    /// A worker met a bug in the host or in user code.
    Fatal,
    /// An internal error: work remained that nothing could continue.
    Stuck,
    /// A provider or model could no longer be used, and all remaining work depended on it.
    ProviderUnavailable,
    /// The run was drained: the calls in flight ended, and no further one was started.
    Drained,
    /// The task policy panicked.
    PolicyPanicked,
}

impl From<&StopReason> for StopKind {
    fn from(reason: &StopReason) -> Self {
        match reason {
            StopReason::Completed => Self::Completed,
            StopReason::WoundDown => Self::WoundDown,
            StopReason::Drained => Self::Drained,
            StopReason::Cancelled => Self::Cancelled,
            StopReason::EarlyShutdown { .. } => Self::EarlyShutdown,
            StopReason::ProviderUnavailable { .. } => Self::ProviderUnavailable,
            StopReason::CheckpointFailed { .. } => Self::CheckpointFailed,
            StopReason::ClaimFailed { .. } => Self::ClaimFailed,
            StopReason::HookFailed { .. } => Self::HookFailed,
            StopReason::Fatal { .. } => Self::Fatal,
            StopReason::PolicyPanicked { .. } => Self::PolicyPanicked,
            StopReason::Stuck { .. } => Self::Stuck,
        }
    }
}

/// The kind of an event, with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum SchedulerEventPayload {
    /// The run began.
    JobStarted {
        /// The rows of the whole run.
        rows: u64,
        /// The row groups of the whole run.
        row_groups: u32,
        /// The row groups that an earlier run has saved completely.
        resumed: u32,
    },
    /// The run begins to stop before all rows are complete.
    ///
    /// Nothing more is admitted or started, except that a run that is wound down finishes its admitted row
    /// groups. Emitted again when the stop becomes stricter, or when a more severe reason replaces the
    /// reported one. The discarded work follows: [`QueueDrained`](Self::QueueDrained) for queued tasks, and
    /// [`RowGroupDiscarded`](Self::RowGroupDiscarded) for each row group once none of its workers is left.
    JobStopping {
        /// The current reason.
        stop: StopKind,
        /// Whether workers are aborted. Otherwise they finish.
        aborts: bool,
    },
    /// The run ended: all leases are released, and all hooks and checkpoints have ended.
    JobCompleted {
        /// Why the run ended.
        stop: StopKind,
        /// The complete rows that the run saved.
        rows_out: u64,
        /// The rows that the run dropped.
        rows_dropped: u64,
        /// The rows that the run admitted, and neither saved nor dropped.
        rows_unmade: u64,
    },
    /// The figures of the run. Emitted whenever a row group is saved or discarded, and before the run ends.
    /// [`RetryableFailures`](Self::RetryableFailures) events with the failures of the whole run follow.
    HealthSnapshot {
        /// The workers that have not ended.
        running: u32,
        /// The tasks that are ready and wait for a task lease.
        queued: u32,
        /// The tasks that failed and wait for an instant before they are retried.
        delayed: u32,
        /// The row groups admitted and not yet removed.
        row_groups_active: u32,
        /// The row groups saved with every row completed or dropped, including those saved by earlier runs.
        row_groups_done: u32,
        /// The rows that this run saved.
        rows_out: u64,
        /// The rows that this run dropped.
        rows_dropped: u64,
        /// The rows that the run left incomplete in its row groups because it stops.
        rows_unmade: u64,
    },
    /// All upstreams of a task are complete.
    DependencyReady,
    /// A task was queued.
    ReadyEnqueued {
        /// The number of queued tasks, including this one.
        queued: u32,
    },
    /// A row group was admitted.
    RowGroupAdmitted {
        /// The number of its rows that this run computes.
        rows: u32,
        /// The number of row groups admitted and not yet removed, including this one.
        active: u32,
    },
    /// No further row group is admitted, and the reason has changed.
    RowGroupAdmissionBlocked {
        /// Why no further row group is admitted.
        reason: RowGroupBlock,
    },
    /// The control loop changed the target number of row groups.
    RowGroupTargetChanged {
        /// The previous target.
        from: u32,
        /// The new target.
        to: u32,
    },
    /// A row group was saved, completely or in part, and removed.
    RowGroupCheckpointed {
        /// The number of complete rows that were saved.
        rows: u32,
        /// The number of rows that are incomplete because the run stopped.
        unmade: u32,
    },
    /// A row group will not be saved by this run, because the run stops, or because its hook or checkpoint
    /// failed. Each admitted row group is either checkpointed or discarded, once.
    RowGroupDiscarded {
        /// Why the row group is not saved.
        reason: DiscardReason,
        /// The number of rows that are unmade now: the rows that were not dropped before.
        rows: u32,
    },
    /// A hook failed. The report contains the error message.
    HookFailed {
        /// The hook that failed.
        hook: Hook,
    },
    /// The run stops by itself: too many of the latest final outcomes were failures.
    EarlyShutdown {
        /// The number of failures in the window.
        failures: u32,
        /// The number of outcomes that were judged.
        window: u32,
    },
    /// The share of retryable failures among the latest responses of a call target has reached
    /// [`degraded_rate`](crate::pipeline::PipelineConfig::degraded_rate). The correlation names the fairness
    /// group of a column that calls it. [`RetryableFailures`](Self::RetryableFailures) events with the
    /// failures of this target follow.
    ProviderDegraded {
        /// The task resource that represents the call target, numbered as in
        /// [`AdmissionBlocked`](Self::AdmissionBlocked). `None` if the fairness group is judged.
        resource: Option<u32>,
        /// The number of retryable failures among the latest responses.
        retryable: u32,
        /// The number of responses that were judged.
        window: u32,
    },
    /// A task is about to start although the policy denies it, because nothing runs.
    LivenessOverride,
    /// A task was selected and left the queue.
    Selected {
        /// The number of tasks that are still queued.
        queued: u32,
    },
    /// The queue has no task left to select.
    QueueEmpty,
    /// Tasks are queued, but none may start, and the reason has changed. The correlation names the first task
    /// of the first group.
    AdmissionBlocked {
        /// Why that task may not start.
        reason: TaskDenialReason,
        /// The resource that is short or denied, as an index among the resources of the run: 0 is
        /// `submission`, followed by the configured ones.
        resource: Option<u32>,
        /// The number of queued tasks.
        queued: u32,
    },
    /// A task may not start, because its group is at its limit while another group could start a task.
    ///
    /// A group causes at most one event of this kind or of [`AdmissionDenied`](Self::AdmissionDenied) in a
    /// round of dispatching.
    GroupCapped {
        /// The resource of which the group holds its share, numbered as in
        /// [`AdmissionBlocked`](Self::AdmissionBlocked). `None` if the group is at its limit of leases.
        resource: Option<u32>,
    },
    /// A task was passed over, because its call would have to wait. The correlation names this task.
    PressureAdvisorySkipped {
        /// Why its call would have to wait.
        pressure: RequestPressure,
        /// The task that starts instead. In JSON it has the form of [`Correlation::task`].
        #[cfg_attr(feature = "serde", serde(with = "crate::hex::one"))]
        preferred: u64,
    },
    /// A task acquired all resources that its column demands.
    TaskLeaseAcquired {
        /// The lease.
        lease: LeaseId,
        /// The number of leases that are held, including this one.
        active: u32,
    },
    /// The turn of a task came, but it may not start.
    AdmissionDenied {
        /// Why it may not start.
        reason: TaskDenialReason,
        /// The resource that is short or denied, numbered as in [`AdmissionBlocked`](Self::AdmissionBlocked).
        resource: Option<u32>,
    },
    /// The start of a worker was requested. The worker holds its lease already, unless it follows the lead of
    /// its batch: its task was not queued then, and holds no lease.
    WorkerSpawned {
        /// The worker.
        worker: WorkerId,
    },
    /// The host could not start a worker. The spawn is rolled back.
    WorkerSpawnFailed {
        /// The worker that was not started.
        worker: WorkerId,
    },
    /// A selected task no longer existed. This is an internal error, because selecting and leasing are one
    /// step.
    StaleSelection,
    /// A worker released its task resources while it waits for a request lease.
    TaskYielded {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker that had yielded acquired its task resources again.
    TaskResumed {
        /// The worker.
        worker: WorkerId,
    },
    /// A task failed and will be retried.
    RetryDeferred {
        /// The kind of the failure. `None` if the worker was lost or could not be started.
        failure: Option<RetryKind>,
        /// The earliest instant of the retry.
        until: Instant,
        /// The salvage round of the row group in which the task is retried, from 1. `None` if the task waits
        /// only for the instant.
        round: Option<u32>,
    },
    /// Rows were dropped because of a task or by the pre-batch hook. For the hook, the correlation names only
    /// the row.
    NonRetryableDropped {
        /// Why the rows were dropped.
        reason: DropReason,
        /// The number of rows.
        rows: u32,
    },
    /// A task will not run, because the run stopped or its row was dropped.
    Cancelled {
        /// Whether the task was still queued. Queued tasks that a stop discards are counted in
        /// [`QueueDrained`](Self::QueueDrained) instead.
        queued: bool,
    },
    /// A failed task is ready to be retried.
    SalvageRedispatched,
    /// The last task left the queue.
    QueueDrained {
        /// The number of tasks discarded because the run stops, or 0 if the last task was started or dropped.
        discarded: u32,
    },
    /// A worker ended.
    TaskCompleted {
        /// The worker.
        worker: WorkerId,
        /// The outcome, or `None` if the worker met a bug, which ends the run.
        outcome: Option<TaskOutcome>,
    },
    /// The resources of a task were released.
    TaskLeaseReleased {
        /// The lease.
        lease: LeaseId,
        /// The number of leases that are still held.
        active: u32,
    },
    /// The host reported the end of a worker that does not run. The report had no effect.
    ReleaseDiagnostic {
        /// The worker that the host named.
        worker: WorkerId,
        /// What is wrong with the worker's id.
        #[cfg_attr(feature = "serde", serde(rename = "answer"))]
        result: ReleaseResult,
    },
    /// Retryable failures of one kind and HTTP status. After a [`HealthSnapshot`](Self::HealthSnapshot), they
    /// are those of the whole run. After a [`ProviderDegraded`](Self::ProviderDegraded), they are those of
    /// that provider. See [`RetryableCount`].
    RetryableFailures {
        /// The resource as in [`ProviderDegraded`](Self::ProviderDegraded). Also `None` for the failures of
        /// the whole run.
        resource: Option<u32>,
        /// The kind of the failures.
        failure: RetryKind,
        /// The HTTP status. `None` if there was no status, or if the status is not counted separately.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        status: Option<u16>,
        /// The number among the latest responses.
        recent: u32,
        /// The number since the run began.
        total: u64,
    },
}

impl SchedulerEventPayload {
    pub(crate) fn retryable_failures(resource: Option<u32>, count: &RetryableCount) -> Self {
        let RetryableCount { kind: failure, status, recent, total } = *count;
        Self::RetryableFailures { resource, failure, status, recent, total }
    }
}

event_kinds!(
    SchedulerEventPayload, SchedulerEventKind:
    JobStarted,
    JobStopping,
    JobCompleted,
    HealthSnapshot,
    DependencyReady,
    ReadyEnqueued,
    RowGroupAdmitted,
    RowGroupAdmissionBlocked,
    RowGroupTargetChanged,
    RowGroupCheckpointed,
    RowGroupDiscarded,
    HookFailed,
    EarlyShutdown,
    ProviderDegraded,
    LivenessOverride,
    Selected,
    QueueEmpty,
    AdmissionBlocked,
    GroupCapped,
    PressureAdvisorySkipped,
    TaskLeaseAcquired,
    AdmissionDenied,
    WorkerSpawned,
    WorkerSpawnFailed,
    StaleSelection,
    TaskYielded,
    TaskResumed,
    RetryDeferred,
    NonRetryableDropped,
    Cancelled,
    SalvageRedispatched,
    QueueDrained,
    TaskCompleted,
    TaskLeaseReleased,
    ReleaseDiagnostic,
    RetryableFailures,
);

/// A set of event kinds.
pub type SchedulerInterest = crate::event::Interest<SchedulerEventKind>;

/// The events that the host has not polled yet.
type EventLog = crate::event::EventLog<SchedulerEventKind, SchedulerEvent>;
