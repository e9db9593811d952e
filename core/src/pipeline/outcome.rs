//! What the scheduler hands out, and what it is told back.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::call::{Completion, Outcome};
use crate::id::SlotKey;
use crate::pipeline::plan::ColumnId;
use crate::time::Duration;
use crate::yielding::TaskToken;

/// Names one running worker. Generational: the id of a worker that has answered is never a live one again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct WorkerId(pub(crate) SlotKey);

impl WorkerId {
    /// Slot and generation. Slots are dense: they index per-worker state of a driver or tracks of a trace.
    #[must_use]
    pub const fn key(self) -> SlotKey {
        self.0
    }

    /// The id as one number, for a foreign language.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The id that [`WorkerId::to_bits`] turned into `bits`.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(SlotKey::from_bits(bits))
    }
}

/// One unit of work for one worker. Its lease is held already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Task {
    /// Who to answer for.
    pub worker: WorkerId,
    /// Which column to make.
    pub column: ColumnId,
    /// For which row group, counted from 0 over the whole run.
    pub row_group: u32,
    /// The run's number of the group's first row.
    pub first_row: u64,
    /// Rows in the group.
    pub rows: u32,
    /// The row to make, counted from 0 within the group; `None`: the whole group.
    pub row: Option<u32>,
    /// 1 for the first try.
    pub attempt: u32,
    /// What to ask for request leases with, if the run has a controller of requests: see
    /// [`yielding`](crate::yielding).
    pub token: Option<TaskToken>,
}

/// A failure that may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RetryKind {
    /// The provider asked for fewer calls. Never dropped: see [`RetryKind::is_preserved`].
    RateLimited,
    /// The call took too long.
    Timeout,
    /// The provider failed (5xx).
    ServerError,
    /// The connection was refused or broke.
    Connection,
    /// The answer broke off, is empty, or is of another form than the protocol promises.
    UnreadableAnswer,
    /// Request admission did not let the call out in time. Never dropped: see [`RetryKind::is_preserved`].
    AdmissionTimeout,
}

impl RetryKind {
    /// Whether the task did nothing wrong and only came too early: it is tried again after a pause, as often
    /// as it takes, and no such try uses up a retry.
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

/// Failures that may pass, of one kind and HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RetryableCount {
    /// What happened.
    pub kind: RetryKind,
    /// The HTTP status; `None`: there was none, or so many others were seen before that it is not counted
    /// apart.
    pub status: Option<u16>,
    /// How many of the last answers of each provider, as many as
    /// [`PipelineConfig::degraded_window`](crate::pipeline::PipelineConfig::degraded_window) says. An
    /// admission timeout is no answer.
    pub recent: u32,
    /// How many since the run began.
    pub total: u64,
}

impl fmt::Display for RetryableCount {
    /// The total: `3 rate limited (HTTP 429)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_count(f, self.total, self)
    }
}

fn write_count(f: &mut fmt::Formatter<'_>, number: u64, of: &RetryableCount) -> fmt::Result {
    write!(f, "{number} {}", of.kind)?;
    of.status.map_or(Ok(()), |status| write!(f, " (HTTP {status})"))
}

/// A failure that the same work would meet again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FailureKind {
    /// The provider refuses this request (other 4xx).
    Request,
    /// The provider refuses the credentials (401).
    Authentication,
    /// No such model or address (404).
    NotFound,
    /// The answer came whole and is not what was asked for.
    MalformedAnswer,
    /// The prompt could not be made from the row.
    Template,
    /// Anything else that concerns this row alone.
    Other,
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "request refused",
            Self::Authentication => "credentials refused",
            Self::NotFound => "not found",
            Self::MalformedAnswer => "malformed answer",
            Self::Template => "template failed",
            Self::Other => "failed",
        })
    }
}

/// How one worker ended. A worker that met a bug has no outcome but a [`FatalError`].
///
/// Exhaustive on purpose: a host counts and reports every outcome by a name of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum TaskOutcome {
    /// The column is made for the row, or for every row of the group that is alive.
    Success,
    /// The column's condition says that the row does without it: the task is done, and nothing was asked of a
    /// provider. Columns that need it follow it or not: see
    /// [`Column::skip_with_upstream`](crate::pipeline::Column::skip_with_upstream).
    Skipped,
    /// It may work later.
    Retryable {
        /// What happened.
        kind: RetryKind,
        /// The HTTP status of the answer, if there was one.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        status: Option<u16>,
        /// The pause the provider asked for.
        #[cfg_attr(feature = "serde", serde(default))]
        retry_after: Option<Duration>,
    },
    /// Its provider or model cannot be used any more: the key is refused, the account is empty, or a patience
    /// with it is over. The row is neither made nor dropped. The run finishes what it can without it, admits
    /// no further row group, and then stops with
    /// [`StopReason::ProviderUnavailable`](crate::pipeline::StopReason::ProviderUnavailable).
    Unavailable,
    /// It will not work: drops the row, or the row group when the task was for a whole one.
    Failed(FailureKind),
    /// The worker was aborted, or lost before it ended. Outside of a stop this is deferred like a retryable
    /// failure.
    Cancelled,
}

impl From<Completion> for TaskOutcome {
    /// Returns what the end of a call means for the task that it was made for.
    fn from(done: Completion) -> Self {
        let retryable = |kind| Self::Retryable { kind, status: None, retry_after: done.retry_after };
        match done.outcome {
            Outcome::Success => Self::Success,
            Outcome::RateLimited => retryable(RetryKind::RateLimited),
            Outcome::ProviderFailure => retryable(RetryKind::ServerError),
            Outcome::ProviderTimeout | Outcome::LocalTimeout => retryable(RetryKind::Timeout),
            Outcome::ConnectionFailed => retryable(RetryKind::Connection),
            Outcome::LocalCancelled => Self::Cancelled,
            Outcome::RequestRefused => Self::Failed(FailureKind::Request),
            Outcome::KeyRefused | Outcome::QuotaExhausted | Outcome::ModelNotFound => Self::Unavailable,
            Outcome::Unexpected => Self::Failed(FailureKind::Other),
        }
    }
}

/// Why a row was given up. A row that was not made because the run stopped has no such reason: it is
/// [unmade](FinishedRowGroup::unmade).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum DropReason {
    /// A task failed for good.
    Failed(FailureKind),
    /// A task failed in its first try and in every retry; this is how it failed last.
    RetriesExhausted(RetryKind),
    /// A task's worker was lost in its first try and in every retry.
    WorkerLost,
    /// The pre-batch hook of its row group left it out.
    PreBatch,
}

impl DropReason {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Failed(FailureKind::Request),
        Self::Failed(FailureKind::Authentication),
        Self::Failed(FailureKind::NotFound),
        Self::Failed(FailureKind::MalformedAnswer),
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

    /// Its name in files and on command lines. Distinct for each reason.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failed(FailureKind::Request) => "request",
            Self::Failed(FailureKind::Authentication) => "authentication",
            Self::Failed(FailureKind::NotFound) => "not_found",
            Self::Failed(FailureKind::MalformedAnswer) => "malformed_answer",
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

    /// The reason of this [name](Self::name).
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

/// Why a row group that was admitted is not saved. Its rows that were not dropped are unmade: a resumed run
/// makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum DiscardReason {
    /// The run stopped before anything of it could be saved.
    Stopped,
    /// Its checkpoint failed.
    Unsaved,
    /// Its post-batch hook failed.
    HookFailed,
}

/// A row that is left out of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct DroppedRow {
    /// Counted from 0 within the row group.
    pub row: u32,
    /// The column that failed, or the first one still missing when a hook left the row out (the last one, if
    /// none was missing).
    pub column: ColumnId,
    /// Why.
    pub reason: DropReason,
}

/// A row group to save. It comes once in a run, when no worker of the group is left.
///
/// A run that stops saves what there is: the rows that it did not come to are in `unmade`. Such a row group
/// is saved in part and not done: a later run makes the rest, with those rows in
/// [`PipelineConfig::missing_rows`](crate::pipeline::PipelineConfig::missing_rows).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FinishedRowGroup {
    /// Which one.
    pub row_group: u32,
    /// The run's number of its first row.
    pub first_row: u64,
    /// Rows in the group. Those that are in none of the lists were left to earlier runs by
    /// [`PipelineConfig::missing_rows`](crate::pipeline::PipelineConfig::missing_rows).
    pub rows: u32,
    /// The complete rows, counted from 0 within the group, ascending.
    pub live: Vec<u32>,
    /// The rows that were given up, ascending by row.
    pub dropped: Vec<DroppedRow>,
    /// The rows that the run stopped before, ascending.
    pub unmade: Vec<u32>,
}

/// A row group whose seeds are made: what a pre-batch hook is called for. All rows that the run is to make of
/// it are alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Batch {
    /// Which one.
    pub row_group: u32,
    /// The run's number of its first row.
    pub first_row: u64,
    /// Its rows.
    pub rows: u32,
}

/// A hook of a row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Hook {
    /// After the seeds, before the rest.
    PreBatch,
    /// Before the checkpoint.
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

/// A bug in the host or in user code, in words for the report: stops the run and is never disguised as a
/// dropped row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FatalError(pub String);

impl From<&str> for FatalError {
    fn from(message: &str) -> Self {
        Self(message.to_string())
    }
}

/// Why a hook failed, in words for the report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HookError(pub String);

impl From<&str> for HookError {
    fn from(message: &str) -> Self {
        Self(message.to_string())
    }
}

/// Why a checkpoint failed, in words for the report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SaveError(pub String);

impl From<&str> for SaveError {
    fn from(message: &str) -> Self {
        Self(message.to_string())
    }
}

/// A provider that mostly fails, though not for good.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProviderDegraded {
    /// The task resource that stands for what is called; `None`: no request resource is known, and the
    /// fairness group is judged.
    pub resource: Option<String>,
    /// The identity of the fairness group of the first column that calls it.
    pub group: Vec<String>,
    /// Its last answers that were failures that may pass.
    pub retryable: u32,
    /// Of how many.
    pub window: u32,
    /// These failures by kind and HTTP status, those of the window and those of the whole run.
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

/// What a driver must carry out.
///
/// Exhaustive on purpose: a driver must carry out every effect, and one that it does not know would be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start a worker; answer with [`Pipeline::task_finished`](crate::pipeline::Pipeline::task_finished), for
    /// a bug with [`Pipeline::task_panicked`](crate::pipeline::Pipeline::task_panicked), or with
    /// [`Pipeline::spawn_failed`](crate::pipeline::Pipeline::spawn_failed) if it could not be started.
    Spawn(Task),
    /// Call the pre-batch hook of a row group, which may leave rows out; answer with
    /// [`Pipeline::pre_batch_finished`](crate::pipeline::Pipeline::pre_batch_finished). Comes once for a row
    /// group, before any task that is not a seed; not for one whose rows were all dropped before.
    PreBatch(Batch),
    /// Call the post-batch hook of a row group that will be saved next; answer with
    /// [`Pipeline::post_batch_finished`](crate::pipeline::Pipeline::post_batch_finished).
    PostBatch(FinishedRowGroup),
    /// Save a row group; answer with
    /// [`Pipeline::checkpoint_finished`](crate::pipeline::Pipeline::checkpoint_finished).
    Checkpoint(FinishedRowGroup),
    /// Cancel a worker. It must still be answered for; a worker that ends in another way first may say so.
    Abort(WorkerId),
    /// Tell somebody. Nothing has to be answered.
    Warn(ProviderDegraded),
    /// The run is over: every lease is back, every hook and checkpoint answered, the report is there. Comes
    /// once, last.
    Finished,
}
