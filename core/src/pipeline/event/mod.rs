//! What happened in a run, for whoever wants to know.
//!
//! A pipeline makes only the events that [`Pipeline::set_interest`](crate::pipeline::Pipeline::set_interest)
//! asked for; any other costs one branch. They are drained with
//! [`Pipeline::poll_event`](crate::pipeline::Pipeline::poll_event), apart from the effects, which must be: at
//! most [`MAX_PENDING`] are kept for a host that does not drain them, and those beyond are counted as
//! dropped. No event holds a row value, a name or the words of an error.
//!
//! The events of one try of a task come in this order:
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
//! use tidegate_core::pipeline::event::{Interest, SchedulerEventKind};
//! use tidegate_core::pipeline::{Column, Pipeline, PipelineConfig, PlanBuilder, Strategy};
//! use tidegate_core::time::Instant;
//!
//! let plan = PlanBuilder::new().column(Column::new("answer", Strategy::Cell)).build()?;
//! let mut pipeline = Pipeline::new(plan, PipelineConfig { rows: 1, ..PipelineConfig::default() })?;
//! pipeline.set_interest(Interest::of(&[SchedulerEventKind::WorkerSpawned]));
//! pipeline.start(Instant::ZERO);
//! let event = pipeline.poll_event().expect("one worker was spawned");
//! assert_eq!((event.correlation.row_group, event.correlation.attempt), (Some(0), Some(1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod emitter;

use crate::event::event_kinds;
use crate::lease::{LeaseId, ReleaseAnswer};
use crate::pipeline::outcome::{DiscardReason, DropReason, Hook, RetryKind, RetryableCount, TaskOutcome, WorkerId};
use crate::pipeline::report::StopReason;
use crate::pipeline::row_group::RowGroupBlock;
use crate::request::RequestPressure;
use crate::task::DenialReason;
use crate::time::Instant;

pub use crate::event::{Correlation, MAX_PENDING};
pub(crate) use emitter::{EventEmitter, QueueState};

/// One event of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SchedulerEvent {
    /// Its number among the run's events, from 0; a gap is an event that was dropped.
    pub sequence: u64,
    /// When it happened.
    pub at: Instant,
    /// What it happened to.
    pub correlation: Correlation,
    /// What happened.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub payload: SchedulerEventPayload,
}

/// Why a run ended: [`StopReason`] without its particulars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum StopKind {
    /// [`StopReason::Completed`]
    Completed,
    /// [`StopReason::WoundDown`]
    WoundDown,
    /// [`StopReason::Cancelled`]
    Cancelled,
    /// [`StopReason::EarlyShutdown`]
    EarlyShutdown,
    /// [`StopReason::CheckpointFailed`]
    CheckpointFailed,
    /// [`StopReason::HookFailed`]
    HookFailed,
    /// [`StopReason::Fatal`]
    Fatal,
    /// [`StopReason::Stuck`]
    Stuck,
    /// [`StopReason::ProviderUnavailable`]
    ProviderUnavailable,
    /// [`StopReason::Drained`]
    Drained,
    /// [`StopReason::PolicyPanicked`]
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
            StopReason::HookFailed { .. } => Self::HookFailed,
            StopReason::Fatal { .. } => Self::Fatal,
            StopReason::PolicyPanicked { .. } => Self::PolicyPanicked,
            StopReason::Stuck { .. } => Self::Stuck,
        }
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum SchedulerEventPayload {
    /// The run began.
    JobStarted {
        /// Rows of the whole run.
        rows: u64,
        /// Row groups of the whole run.
        row_groups: u32,
        /// Those of them that an earlier run has saved.
        resumed: u32,
    },
    /// The run stops before everything is made: nothing is admitted or started any more; only a run that is
    /// wound down still makes what is left of the row groups in work. Told again when a stop becomes
    /// stricter, or its reason is replaced by a worse one. What a stop throws away comes next:
    /// [`SchedulerEventPayload::QueueDrained`], and [`SchedulerEventPayload::RowGroupDiscarded`] for each row group once it
    /// is quiet.
    JobStopping {
        /// Why, as things stand.
        stop: StopKind,
        /// Whether workers are aborted; otherwise they finish.
        aborts: bool,
    },
    /// The run is over: every lease is back, every hook and checkpoint answered.
    JobCompleted {
        /// Why it ended.
        stop: StopKind,
        /// Complete rows that it saved.
        rows_out: u64,
        /// Rows that it gave up.
        rows_dropped: u64,
        /// Rows that it admitted, and neither saved nor gave up.
        rows_unmade: u64,
    },
    /// Where the run stands. Told whenever a row group has left, and before the run is over.
    /// [`SchedulerEventPayload::RetryableFailures`] follow with the failures that may pass.
    HealthSnapshot {
        /// Workers.
        running: u32,
        /// Tasks ready and waiting for a lease.
        queued: u32,
        /// Tasks paused until an instant.
        delayed: u32,
        /// Row groups admitted and not yet gone.
        row_groups_active: u32,
        /// Row groups saved, by earlier runs too.
        row_groups_done: u32,
        /// Rows saved by this run.
        rows_out: u64,
        /// Rows given up.
        rows_dropped: u64,
        /// Rows of row groups that have left without them, because the run stops.
        rows_unmade: u64,
    },
    /// A task waits for no upstream any more.
    DependencyReady,
    /// A task came into the queue.
    ReadyEnqueued {
        /// Tasks queued, this one included.
        queued: u32,
    },
    /// A row group was admitted.
    RowGroupAdmitted {
        /// Its rows that are to be made.
        rows: u32,
        /// Row groups admitted and not yet gone, this one included.
        active: u32,
    },
    /// No further row group is admitted, for another reason than before.
    RowGroupAdmissionBlocked {
        /// Why.
        reason: RowGroupBlock,
    },
    /// The control loop wants another number of row groups.
    RowGroupTargetChanged {
        /// The number before.
        from: u32,
        /// The number in force.
        to: u32,
    },
    /// A row group was saved, whole or in part, and is gone.
    RowGroupCheckpointed {
        /// The complete rows that were saved.
        rows: u32,
        /// The rows that the run stopped before.
        unmade: u32,
    },
    /// A row group was not saved and never will be by this run, because it stops, or because its hook or its
    /// checkpoint failed. Each row group that is admitted is checkpointed or discarded, once.
    RowGroupDiscarded {
        /// Why.
        reason: DiscardReason,
        /// The rows that are unmade now: those that were not dropped before.
        rows: u32,
    },
    /// A hook failed. Its words are in the report.
    HookFailed {
        /// Which one.
        hook: Hook,
    },
    /// The run stops itself: too many of the latest final outcomes were failures.
    EarlyShutdown {
        /// Failures among them.
        failures: u32,
        /// How many outcomes were judged.
        window: u32,
    },
    /// A provider mostly fails, though not for good. The correlation names the fairness group of a column
    /// that calls it; [`SchedulerEventPayload::RetryableFailures`] follow with its failures by kind.
    ProviderDegraded {
        /// The task resource that stands for what is called, numbered as in
        /// [`SchedulerEventPayload::AdmissionBlocked`]; `None`: the fairness group is judged.
        resource: Option<u32>,
        /// Its last answers that were failures that may pass.
        retryable: u32,
        /// Of how many.
        window: u32,
    },
    /// A task is about to be started against the policy, because nothing runs.
    LivenessOverride,
    /// A task's turn came, and it left the queue.
    Selected {
        /// Tasks still queued.
        queued: u32,
    },
    /// Nothing is queued any more that could be selected.
    QueueEmpty,
    /// Tasks are queued and none may start, or none for another reason than before. The correlation names the
    /// first group's head.
    AdmissionBlocked {
        /// What keeps that head.
        reason: DenialReason,
        /// The resource that binds, by its place among the run's: 0 is `submission`, then come the configured
        /// ones.
        resource: Option<u32>,
        /// Tasks queued.
        queued: u32,
    },
    /// A task may not start, because its group is at its limit while another could. At most once for a group
    /// in a round of dispatching, with [`SchedulerEventPayload::AdmissionDenied`].
    GroupCapped {
        /// The resource of which the group holds its share, numbered as in
        /// [`SchedulerEventPayload::AdmissionBlocked`]; `None`: it is at its limit on leases.
        resource: Option<u32>,
    },
    /// A task was passed over, because its call would only wait. The correlation names it.
    PressureAdvisorySkipped {
        /// Why its call would wait.
        pressure: RequestPressure,
        /// The task that starts instead; in JSON as [`Correlation::task`].
        #[cfg_attr(feature = "serde", serde(with = "crate::hex::one"))]
        preferred: u64,
    },
    /// A task holds all that its column demands.
    TaskLeaseAcquired {
        /// The lease.
        lease: LeaseId,
        /// Leases that are out, this one included.
        active: u32,
    },
    /// A task may not start, though its turn came.
    AdmissionDenied {
        /// Why.
        reason: DenialReason,
        /// The resource that is short or refused, numbered as in [`SchedulerEventPayload::AdmissionBlocked`].
        resource: Option<u32>,
    },
    /// A worker is asked for; it holds its lease already.
    WorkerSpawned {
        /// The worker.
        worker: WorkerId,
    },
    /// The host could not start a worker. All of its spawn is rolled back.
    WorkerSpawnFailed {
        /// The worker that never was.
        worker: WorkerId,
    },
    /// A task was selected that had gone by then. An internal error: selecting and leasing are one step.
    StaleSelection,
    /// A worker gave its lease back while it waits for something else.
    TaskYielded {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker that had yielded holds a lease again.
    TaskResumed {
        /// The worker.
        worker: WorkerId,
    },
    /// A task is kept, to be tried again.
    RetryDeferred {
        /// How it failed; `None`: its worker was lost, or never started.
        failure: Option<RetryKind>,
        /// Not before this instant.
        until: Instant,
        /// The salvage round of its row group that it waits for, from 1; `None`: it waits for the instant
        /// alone.
        round: Option<u32>,
    },
    /// Rows were given up because of a task, or by the pre-batch hook, and then the correlation names the row
    /// alone.
    NonRetryableDropped {
        /// Why.
        reason: DropReason,
        /// How many rows.
        rows: u32,
    },
    /// A task is not made: a stop, or the drop of its row, came first.
    Cancelled {
        /// Whether it was still queued. The tasks that a stop throws out of the queue are in
        /// [`SchedulerEventPayload::QueueDrained`] instead.
        queued: bool,
    },
    /// A task that was kept is tried again.
    SalvageRedispatched,
    /// The last task left the queue.
    QueueDrained {
        /// The tasks that left it together because the run stops; 0 for one that was started or dropped.
        discarded: u32,
    },
    /// A worker ended.
    TaskCompleted {
        /// The worker.
        worker: WorkerId,
        /// How; `None`: it met a bug, which ends the run.
        outcome: Option<TaskOutcome>,
    },
    /// What a task held is free again.
    TaskLeaseReleased {
        /// The lease.
        lease: LeaseId,
        /// Leases that are still out.
        active: u32,
    },
    /// A worker was answered for that does not run. Nothing changed.
    ReleaseDiagnostic {
        /// The worker that was named.
        worker: WorkerId,
        /// What it was instead.
        answer: ReleaseAnswer,
    },
    /// Failures that may pass, of one kind and HTTP status: after a [`SchedulerEventPayload::HealthSnapshot`] those
    /// of the whole run, after a [`SchedulerEventPayload::ProviderDegraded`] those of that provider. See
    /// [`RetryableCount`].
    RetryableFailures {
        /// As in [`SchedulerEventPayload::ProviderDegraded`]; `None` also for those of the whole run.
        resource: Option<u32>,
        /// What happened.
        failure: RetryKind,
        /// The HTTP status; `None`: there was none, or it is not counted apart.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        status: Option<u16>,
        /// How many among the last answers.
        recent: u32,
        /// How many since the run began.
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

/// A set of these kinds.
pub type Interest = crate::event::Interest<SchedulerEventKind>;

/// The events that wait to be drained.
type EventLog = crate::event::EventLog<SchedulerEventKind, SchedulerEvent>;
