//! The values that a [`Pipeline`](crate::pipeline::Pipeline) returns to its driver, and the values that the
//! driver reports.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::call::{Completion, Outcome};
use crate::id::SlotKey;
use crate::pipeline::plan::ColumnId;
use crate::time::Duration;
use crate::yielding::TaskToken;

/// The id of one running worker. It contains a generation, so the id of an ended worker is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct WorkerId(pub(crate) SlotKey);

impl WorkerId {
    /// Returns the slot and the generation. Slots are dense, so they can index per-worker state of a driver
    /// or the tracks of a trace.
    #[must_use]
    pub const fn key(self) -> SlotKey {
        self.0
    }

    /// Returns the id as one number, for a foreign language.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// Returns the id that [`WorkerId::to_bits`] encoded as `bits`.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(SlotKey::from_bits(bits))
    }
}

/// One unit of work for one worker. The worker already holds its task lease, unless it
/// [follows](Task::follows) the lead of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Task {
    /// The worker. The driver reports its end with this id.
    pub worker: WorkerId,
    /// The column to compute.
    pub column: ColumnId,
    /// The row group, counted from 0 over the whole run.
    pub row_group: u32,
    /// The first row of the group, counted from 0 over the whole run.
    pub first_row: u64,
    /// The number of rows in the group.
    pub rows: u32,
    /// The row to compute, counted from 0 within the group, or `None` for the whole group.
    pub row: Option<u32>,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The token to pass when the worker requests a lease for a call. `None` if the run has no
    /// `RequestAdmission`. See [`yielding`](crate::yielding).
    pub token: Option<TaskToken>,
    /// The batch of the task. `None` if the task starts alone.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub batch: Option<TaskBatch>,
}

impl Task {
    /// Returns whether another task of its batch makes the call for this one. Its worker then holds no lease
    /// and no token.
    #[must_use]
    pub fn follows(&self) -> bool {
        self.batch.is_some_and(|batch| self.row != Some(batch.lead))
    }
}

/// The tasks of one column and row group that start together, for one call that computes all of them.
///
/// All of them are spawned before any other effect, the lead first. Each ends with an outcome of its own. A
/// task of the batch that is retried is in another batch then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct TaskBatch {
    /// The row of the task whose worker makes the call, counted from 0 within the group.
    pub lead: u32,
    /// The number of tasks, at least 2.
    pub size: u32,
}

/// The kind of a retryable failure: the same task may succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RetryKind {
    /// The provider refused the call because of a rate limit. The task is never dropped for this reason: see
    /// [`RetryKind::is_preserved`].
    RateLimited,
    /// The call took too long.
    Timeout,
    /// The provider failed (5xx).
    ServerError,
    /// The connection was refused or closed.
    Connection,
    /// The response is truncated or empty, or does not follow the protocol.
    UnreadableAnswer,
    /// Request admission did not grant the call in time. The task is never dropped for this reason: see
    /// [`RetryKind::is_preserved`].
    AdmissionTimeout,
}

impl RetryKind {
    /// Every kind, in the order of the numbers that foreign-language bindings use.
    pub const ALL: [Self; 6] = [
        Self::RateLimited,
        Self::Timeout,
        Self::ServerError,
        Self::Connection,
        Self::UnreadableAnswer,
        Self::AdmissionTimeout,
    ];

    /// Returns whether the failure only means that the task was too early. Such a task is retried after a
    /// delay, without a limit, and the attempt does not count as a retry.
    #[must_use]
    pub const fn is_preserved(self) -> bool {
        matches!(self, Self::RateLimited | Self::AdmissionTimeout)
    }
}

impl fmt::Display for RetryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RateLimited => "rate limited",
            Self::Timeout => "timeout",
            Self::ServerError => "server error",
            Self::Connection => "connection failed",
            Self::UnreadableAnswer => "unreadable answer",
            Self::AdmissionTimeout => "admission timeout",
        })
    }
}

/// The number of retryable failures of one kind and HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct RetryableCount {
    /// The kind of the failures.
    pub kind: RetryKind,
    /// The HTTP status. `None` if there was no status, or if too many other pairs of kind and status occurred
    /// before.
    pub status: Option<u16>,
    /// The number among the latest responses: of one call target in a [`ProviderDegraded`], and otherwise of
    /// all call targets together.
    /// [`PipelineConfig::degraded_window`](crate::pipeline::PipelineConfig::degraded_window) sets the number
    /// of responses for each target. An admission timeout is not a response.
    pub recent: u32,
    /// The number since the run began.
    pub total: u64,
}

impl fmt::Display for RetryableCount {
    /// Writes the total, for example `3 rate limited (HTTP 429)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_count(f, self.total, self)
    }
}

fn write_count(f: &mut fmt::Formatter<'_>, number: u64, of: &RetryableCount) -> fmt::Result {
    write!(f, "{number} {}", of.kind)?;
    of.status.map_or(Ok(()), |status| write!(f, " (HTTP {status})"))
}

/// The kind of a permanent failure: the same task would fail again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FailureKind {
    /// The provider rejects this request (other 4xx).
    Request,
    /// The provider rejects the credentials (401).
    Authentication,
    /// The model or the address does not exist (404).
    NotFound,
    /// The response is complete, but its content is not what the request specifies.
    MalformedAnswer,
    /// The response was cut off at the maximum number of tokens.
    TruncatedAnswer,
    /// A content filter of the provider withheld the response, or rejected the prompt.
    ContentFiltered,
    /// The model declines to answer the prompt, and the response has a field for that.
    #[cfg_attr(feature = "serde", serde(rename = "refused"))]
    Declined,
    /// The prompt could not be created from the row.
    Template,
    /// Any other failure that affects only this row.
    Other,
}

impl FailureKind {
    /// Every kind, in the order of the numbers that foreign-language bindings use.
    pub const ALL: [Self; 9] = [
        Self::Request,
        Self::Authentication,
        Self::NotFound,
        Self::MalformedAnswer,
        Self::TruncatedAnswer,
        Self::ContentFiltered,
        Self::Declined,
        Self::Template,
        Self::Other,
    ];
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "request rejected",
            Self::Authentication => "credentials rejected",
            Self::NotFound => "not found",
            Self::MalformedAnswer => "malformed answer",
            Self::TruncatedAnswer => "truncated answer",
            Self::ContentFiltered => "content filtered",
            Self::Declined => "declined by the model",
            Self::Template => "template failed",
            Self::Other => "failed",
        })
    }
}

/// How one worker ended. A panic or another bug is not an outcome: it is reported as a [`FatalError`].
///
/// Exhaustive on purpose: a host counts and reports each outcome under its own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum TaskOutcome {
    /// The column is computed for the row, or for every live row of the group.
    Success,
    /// The condition of the column excludes this row. The task is done, and no call was made. Downstream
    /// columns are skipped as well if they use
    /// [`Column::skip_with_upstream`](crate::pipeline::Column::skip_with_upstream).
    Skipped,
    /// The task failed, but may succeed later.
    Retryable {
        /// The kind of the failure.
        kind: RetryKind,
        /// The HTTP status of the response, if there was one.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        status: Option<u16>,
        /// The delay that the provider requested: its Retry-After.
        #[cfg_attr(feature = "serde", serde(default))]
        retry_after: Option<Duration>,
    },
    /// The provider or the model can no longer be used: for example, the key is rejected, the account has no
    /// credit, or a time limit for rate limits is over.
    ///
    /// The row is neither completed nor dropped. The run finishes the work that does not depend on it, admits
    /// no further row group, and then stops with
    /// [`StopReason::ProviderUnavailable`](crate::pipeline::StopReason::ProviderUnavailable).
    Unavailable,
    /// The task failed permanently. Its row is dropped, or its whole row group if the task was for the group.
    Failed(FailureKind),
    /// The worker was aborted or lost. Unless the run stops, the task is deferred like after a retryable
    /// failure.
    Cancelled,
}

impl From<Completion> for TaskOutcome {
    /// Converts the end of a call into the outcome of the task that made the call.
    fn from(done: Completion) -> Self {
        let retryable = |kind| Self::Retryable { kind, status: None, retry_after: done.retry_after };
        match done.outcome {
            Outcome::Success => Self::Success,
            Outcome::RateLimited => retryable(RetryKind::RateLimited),
            Outcome::ProviderFailure => retryable(RetryKind::ServerError),
            Outcome::ProviderTimeout | Outcome::LocalTimeout => retryable(RetryKind::Timeout),
            Outcome::ConnectionFailed => retryable(RetryKind::Connection),
            Outcome::LocalCancelled => Self::Cancelled,
            Outcome::RequestRejected => Self::Failed(FailureKind::Request),
            Outcome::KeyRejected | Outcome::QuotaExhausted | Outcome::ModelNotFound | Outcome::TlsFailed => {
                Self::Unavailable
            }
            Outcome::Unexpected => Self::Failed(FailureKind::Other),
        }
    }
}

/// Why a row was dropped. A row that is incomplete because the run stopped is not dropped: it is
/// [unmade](FinishedRowGroup::unmade).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum DropReason {
    /// A task failed permanently.
    Failed(FailureKind),
    /// A task failed in its first attempt and in every retry. The value is the kind of the last failure.
    RetriesExhausted(RetryKind),
    /// The worker of a task was lost in the first attempt and in every retry.
    WorkerLost,
    /// The pre-batch hook of the row group left the row out.
    PreBatch,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [Self; 17] = [
        Self::Failed(FailureKind::Request),
        Self::Failed(FailureKind::Authentication),
        Self::Failed(FailureKind::NotFound),
        Self::Failed(FailureKind::MalformedAnswer),
        Self::Failed(FailureKind::TruncatedAnswer),
        Self::Failed(FailureKind::ContentFiltered),
        Self::Failed(FailureKind::Declined),
        Self::Failed(FailureKind::Template),
        Self::Failed(FailureKind::Other),
        Self::RetriesExhausted(RetryKind::RateLimited),
        Self::RetriesExhausted(RetryKind::Timeout),
        Self::RetriesExhausted(RetryKind::ServerError),
        Self::RetriesExhausted(RetryKind::Connection),
        Self::RetriesExhausted(RetryKind::UnreadableAnswer),
        Self::RetriesExhausted(RetryKind::AdmissionTimeout),
        Self::WorkerLost,
        Self::PreBatch,
    ];

    /// Returns the name of the reason in files and on command lines. Each reason has a distinct name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failed(FailureKind::Request) => "request",
            Self::Failed(FailureKind::Authentication) => "authentication",
            Self::Failed(FailureKind::NotFound) => "not_found",
            Self::Failed(FailureKind::MalformedAnswer) => "malformed_answer",
            Self::Failed(FailureKind::TruncatedAnswer) => "truncated_answer",
            Self::Failed(FailureKind::ContentFiltered) => "content_filtered",
            Self::Failed(FailureKind::Declined) => "refused",
            Self::Failed(FailureKind::Template) => "template",
            Self::Failed(FailureKind::Other) => "other",
            Self::RetriesExhausted(RetryKind::RateLimited) => "rate_limited",
            Self::RetriesExhausted(RetryKind::Timeout) => "timeout",
            Self::RetriesExhausted(RetryKind::ServerError) => "server_error",
            Self::RetriesExhausted(RetryKind::Connection) => "connection",
            Self::RetriesExhausted(RetryKind::UnreadableAnswer) => "unreadable_answer",
            Self::RetriesExhausted(RetryKind::AdmissionTimeout) => "admission_timeout",
            Self::WorkerLost => "worker_lost",
            Self::PreBatch => "pre_batch",
        }
    }

    /// Returns the reason with this [name](Self::name).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(kind) => kind.fmt(f),
            Self::RetriesExhausted(kind) => write!(f, "{kind}, retries exhausted"),
            Self::WorkerLost => f.write_str("worker lost"),
            Self::PreBatch => f.write_str("left out by the pre-batch hook"),
        }
    }
}

/// Why an admitted row group is not saved. Its rows that were not dropped are unmade: a resumed run computes
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum DiscardReason {
    /// The run stopped before any row of the group could be saved.
    Stopped,
    /// The checkpoint of the group failed.
    Unsaved,
    /// The post-batch hook of the group failed.
    HookFailed,
}

/// A dropped row, which is left out of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct DroppedRow {
    /// The row, counted from 0 within the row group.
    pub row: u32,
    /// The column that failed. If a hook left the row out, this is the first column in topological order that
    /// was missing, or the last column if none was missing.
    pub column: ColumnId,
    /// Why the row was dropped.
    pub reason: DropReason,
}

/// The result of a row group, to be saved.
///
/// Each row group is checkpointed at most once in a run, after its last worker has ended. A run that stops
/// saves what is complete, and lists the remaining rows in `unmade`. Such a row group is saved in part and
/// does not count as done. A later run computes the remaining rows if they are given in
/// [`PipelineConfig::missing_rows`](crate::pipeline::PipelineConfig::missing_rows).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FinishedRowGroup {
    /// The row group, counted from 0 over the whole run.
    pub row_group: u32,
    /// The first row of the group, counted from 0 over the whole run.
    pub first_row: u64,
    /// The number of rows in the group. A row in none of the three lists was left to earlier runs by
    /// [`PipelineConfig::missing_rows`](crate::pipeline::PipelineConfig::missing_rows).
    pub rows: u32,
    /// The complete rows, counted from 0 within the group, ascending. Live rows that are not complete are in
    /// `unmade`.
    pub live: Vec<u32>,
    /// The dropped rows, ascending by row.
    pub dropped: Vec<DroppedRow>,
    /// The rows that are incomplete because the run stopped, counted from 0 within the group, ascending.
    pub unmade: Vec<u32>,
}

/// The row group that a host has claimed for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedRowGroup {
    /// The row group, counted from 0 over the whole run.
    pub row_group: u32,
    /// The rows to compute, counted from 0 within the group: ascending ranges, not empty and without overlap.
    /// The other rows count as done. Empty for all rows. Only for a plan that [keeps
    /// parts](crate::pipeline::Plan::keeps_parts).
    pub missing: Vec<Range<u32>>,
}

impl From<u32> for ClaimedRowGroup {
    /// All rows of the row group.
    fn from(row_group: u32) -> Self {
        Self { row_group, missing: Vec::new() }
    }
}

/// The argument of a pre-batch hook: a row group whose seed columns are done. All rows that the run computes
/// in this group are live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SeededRowGroup {
    /// The row group, counted from 0 over the whole run.
    pub row_group: u32,
    /// The first row of the group, counted from 0 over the whole run.
    pub first_row: u64,
    /// The number of rows in the group.
    pub rows: u32,
}

/// The hooks of a row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Hook {
    /// Called after the seed columns and before all other columns.
    PreBatch,
    /// Called before the checkpoint.
    PostBatch,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PreBatch => "pre-batch hook",
            Self::PostBatch => "post-batch hook",
        })
    }
}

/// A bug in the host or in user code, as a message for the report. It stops the run, and is never counted as
/// a dropped row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FatalError(pub String);

impl From<&str> for FatalError {
    fn from(message: &str) -> Self {
        Self(message.to_string())
    }
}

/// The error of a hook, as a message for the report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HookError(pub String);

impl From<&str> for HookError {
    fn from(message: &str) -> Self {
        Self(message.to_string())
    }
}

/// The error of a checkpoint, as a message for the report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SaveError(pub String);

impl From<&str> for SaveError {
    fn from(message: &str) -> Self {
        Self(message.to_string())
    }
}

/// A warning that the share of retryable failures among the latest responses of a call target has reached
/// [`PipelineConfig::degraded_rate`](crate::pipeline::PipelineConfig::degraded_rate).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProviderDegraded {
    /// The task resource that represents the call target. `None` if no request resource is known. The
    /// fairness group is then judged instead.
    pub resource: Option<String>,
    /// The identity of the fairness group of the first column that calls the target.
    pub group: Vec<String>,
    /// The number of retryable failures among the latest responses.
    pub retryable: u32,
    /// The number of responses that were judged.
    pub window: u32,
    /// These failures by kind and HTTP status, both in the window and in the whole run.
    pub failures: Vec<RetryableCount>,
}

impl fmt::Display for ProviderDegraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, group, retryable, window, failures } = self;
        match resource {
            Some(resource) => write!(f, "`{resource}`")?,
            None => write!(f, "`{}`", group.join("/"))?,
        }
        write!(f, " is degraded: {retryable} of its last {window} answers were failures that may pass")?;
        let mut separator = ": ";
        for failure in failures.iter().filter(|failure| failure.recent > 0) {
            f.write_str(separator)?;
            write_count(f, u64::from(failure.recent), failure)?;
            separator = ", ";
        }
        Ok(())
    }
}

/// An action that the driver must carry out.
///
/// Exhaustive on purpose: a driver must carry out every effect. An unknown effect would be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PipelineEffect {
    /// Start a worker.
    ///
    /// The driver reports the end of the worker with
    /// [`Pipeline::task_finished`](crate::pipeline::Pipeline::task_finished), a bug with
    /// [`Pipeline::task_panicked`](crate::pipeline::Pipeline::task_panicked), and a failed start with
    /// [`Pipeline::spawn_failed`](crate::pipeline::Pipeline::spawn_failed).
    Spawn(Task),
    /// Call the pre-batch hook of a row group. The hook may leave rows out.
    ///
    /// The driver reports the result with
    /// [`Pipeline::pre_batch_finished`](crate::pipeline::Pipeline::pre_batch_finished). Emitted once for a
    /// row group, before any task that is not a seed. Not emitted if all rows of the group were dropped
    /// before.
    PreBatch(SeededRowGroup),
    /// Call the post-batch hook of a row group, before the row group is saved.
    ///
    /// The driver reports the result with
    /// [`Pipeline::post_batch_finished`](crate::pipeline::Pipeline::post_batch_finished).
    PostBatch(FinishedRowGroup),
    /// Save a row group.
    ///
    /// The driver reports the result with
    /// [`Pipeline::checkpoint_finished`](crate::pipeline::Pipeline::checkpoint_finished).
    Checkpoint(FinishedRowGroup),
    /// Claim a row group, so that no other run computes it. Emitted when there is room for one, and not again
    /// before the result. Only with
    /// [`claims_row_groups`](crate::pipeline::PipelineConfig::claims_row_groups).
    ///
    /// The driver reports the result with
    /// [`Pipeline::row_group_claimed`](crate::pipeline::Pipeline::row_group_claimed). It may wait while other
    /// runs hold all row groups that are left. A run that stops does not wait for it.
    ClaimRowGroup,
    /// Abort a worker. The driver must still report the end of the worker. If the worker ended in another way
    /// before the abort, the driver may report that outcome.
    Abort(WorkerId),
    /// Show a warning. The driver reports nothing.
    Warn(ProviderDegraded),
    /// The run has ended. All leases are released, all hooks and checkpoints have ended, and the report is
    /// available. Emitted once, as the last effect.
    Finished,
}
