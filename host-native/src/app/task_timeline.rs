//! `tidegate timeline`: the history of one row, from the events of a run.
//!
//! The two event streams are joined by their [`Correlation`]: every event of a call names the task attempt
//! that made it. Each task of the row has a list of events in order of time:
//!
//! ```text
//! row 17, row 1 of row group 2
//!
//! title
//!     0.000412 s  ready
//!     0.000412 s  queued
//!     0.000431 s  admitted: attempt 1
//!     0.000512 s  calls mock/m/chat
//!     0.050871 s  the call ended after 50.359ms: rate limited
//!     0.050990 s  deferred, to be retried not before 0.100990 s: rate limited
//! ```

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tidegate_core::observe::SCHEMA;
use tidegate_core::pipeline::event::{Correlation, SchedulerEvent, SchedulerEventPayload};
use tidegate_core::pipeline::{ColumnId, RetryKind, TaskOutcome};
use tidegate_core::request::event::{EventScope, RequestEvent, RequestEventPayload};
use tidegate_core::time::Instant;

use crate::app::error::{Error, Exit};
use crate::app::template::is_same_name;
use crate::observe::jsonl::EventNames;
use crate::observe::names;

/// The arguments of `tidegate timeline`.
#[derive(Clone, Debug)]
pub struct TimelineRequest {
    /// The file that `tidegate run --events` wrote.
    pub events: PathBuf,
    /// The row number, as in the output.
    pub row: u64,
    /// The column to show; `None` for all.
    pub column: Option<String>,
}

/// Why the timeline cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A line is not an event.
    #[error("{path}:{line}: this is not a line of a file that `tidegate run --events` wrote: {why}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The reason.
        why: String,
    },
    /// The first line of the file does not hold the names.
    #[error("{path}:1: this is not a file that `tidegate run --events` wrote: its first line has no column names")]
    NoNames {
        /// The file.
        path: PathBuf,
    },
    /// The run has no such column.
    #[error("no column is called `{column}`; the run has {known}")]
    Column {
        /// The requested column.
        column: String,
        /// The columns of the run.
        known: String,
    },
    /// No event belongs to the row.
    #[error("{path}: there are no events of row {row}: the run did not reach it, or an earlier run generated it")]
    Row {
        /// The file.
        path: PathBuf,
        /// The row.
        row: u64,
    },
}

/// One line of the file.
#[derive(Debug, Deserialize)]
#[serde(tag = "stream", rename_all = "snake_case")]
enum Line {
    Names { schema: u32, names: EventNames },
    Scheduler { event: SchedulerEvent },
    Request { event: RequestEvent },
}

/// An event of a task, with its description.
#[derive(Debug)]
struct Entry {
    at: Instant,
    text: String,
}

/// Runs `tidegate timeline`. Returns the text to print and the exit code.
pub fn timeline(request: &TimelineRequest) -> Result<(String, Exit), Error> {
    Ok((RowTimeline::read(request)?.to_string(), Exit::Done))
}

/// The history of one row.
#[derive(Debug)]
struct RowTimeline {
    row: u64,
    row_group: u32,
    row_in_group: u32,
    /// The number of rows of the run, from `names.first_row`. `None` until the event of the start of the run.
    rows: Option<u64>,
    names: EventNames,
    /// The start of the run. Times are shown relative to it.
    started_at: Instant,
    /// The events by column, in order of the first event. `None` stands for the events of the row as a whole.
    tasks: Vec<(Option<usize>, Vec<Entry>)>,
}

impl RowTimeline {
    fn read(request: &TimelineRequest) -> Result<Self, TimelineError> {
        let path = &request.events;
        let unreadable = |source| TimelineError::Read { path: path.clone(), source };
        let mut lines = BufReader::new(File::open(path).map_err(unreadable)?).lines().enumerate().peekable();
        let no_names = || TimelineError::NoNames { path: path.clone() };
        let (_, first) = lines.next().ok_or_else(no_names)?;
        let Ok(Line::Names { schema: SCHEMA, names }) = serde_json::from_str(&first.map_err(unreadable)?) else {
            return Err(no_names());
        };
        let mut timeline = Self::of(request, names)?;
        while let Some((at, line)) = lines.next() {
            match serde_json::from_str(&line.map_err(unreadable)?) {
                Ok(line) => timeline.add(&line, request.column.as_deref()),
                // A run that was killed may have left an incomplete last line.
                Err(_) if lines.peek().is_none() => {}
                Err(error) => {
                    return Err(TimelineError::Line { path: path.clone(), line: at + 1, why: error.to_string() });
                }
            }
        }
        timeline.finish(path)
    }

    fn of(request: &TimelineRequest, names: EventNames) -> Result<Self, TimelineError> {
        if let Some(column) = &request.column
            && !names.columns.iter().any(|name| is_same_name(name, column))
        {
            return Err(TimelineError::Column { column: column.clone(), known: names.columns.join(", ") });
        }
        let size = u64::from(names.row_group_size.max(1));
        let in_run = request.row.checked_sub(names.first_row);
        let in_run = in_run.ok_or_else(|| TimelineError::Row { path: request.events.clone(), row: request.row })?;
        Ok(Self {
            row: request.row,
            // A row group that does not fit in 32 bits does not exist, so no event will match.
            row_group: u32::try_from(in_run / size).unwrap_or(u32::MAX),
            row_in_group: (in_run % size) as u32,
            rows: None,
            names,
            started_at: Instant::ZERO,
            tasks: Vec::new(),
        })
    }

    /// Adds the event of a line, if it belongs to the row.
    fn add(&mut self, line: &Line, column: Option<&str>) {
        let (at, about) = match line {
            Line::Names { .. } => return,
            Line::Scheduler { event } => (event.at, Some(event.correlation)),
            Line::Request { event } => (event.at, event.correlation),
        };
        if let Line::Scheduler {
            event: SchedulerEvent { payload: SchedulerEventPayload::JobStarted { rows, .. }, .. },
        } = line
        {
            (self.started_at, self.rows) = (at, Some(*rows));
        }
        let Some(about) = about.filter(|about| self.is_about(about)) else { return };
        let number = about.column.map(ColumnId::index);
        let name = number.and_then(|number| self.names.columns.get(number));
        if column.is_some_and(|column| name.is_none_or(|name| !is_same_name(name, column))) {
            return;
        }
        let text = match line {
            Line::Names { .. } => None,
            Line::Scheduler { event } => self.describe_scheduler_event(event),
            Line::Request { event } => self.describe_request_event(event),
        };
        let Some(text) = text else { return };
        let index = self.tasks.iter().position(|(known, _)| *known == number).unwrap_or_else(|| {
            self.tasks.push((number, Vec::new()));
            self.tasks.len() - 1
        });
        self.tasks[index].1.push(Entry { at, text });
    }

    fn is_about(&self, about: &Correlation) -> bool {
        let is_of_row = about.row.map_or(about.task.is_some(), |row| row == self.row_in_group);
        about.row_group == Some(self.row_group) && is_of_row
    }

    /// Sorts the events: each stream is in order, but the file interleaves the two. Fails if the row has no
    /// events.
    fn finish(mut self, path: &Path) -> Result<Self, TimelineError> {
        let is_beyond = self.rows.is_some_and(|rows| self.row - self.names.first_row >= rows);
        if self.tasks.is_empty() || is_beyond {
            return Err(TimelineError::Row { path: path.to_owned(), row: self.row });
        }
        for (_, entries) in &mut self.tasks {
            entries.sort_by_key(|entry| entry.at);
        }
        Ok(self)
    }

    fn clock(&self, at: Instant) -> String {
        let nanos = (at - self.started_at).as_nanos();
        format!("{}.{:06} s", nanos / 1_000_000_000, nanos / 1_000 % 1_000_000)
    }

    /// Describes a scheduler event. Returns `None` for an event that adds nothing to the others.
    fn describe_scheduler_event(&self, event: &SchedulerEvent) -> Option<String> {
        let attempt = event.correlation.attempt.unwrap_or(0);
        Some(match event.payload {
            SchedulerEventPayload::DependencyReady => "ready".to_string(),
            SchedulerEventPayload::ReadyEnqueued { .. } => "queued".to_string(),
            SchedulerEventPayload::WorkerSpawned { .. } => format!("admitted: attempt {attempt}"),
            SchedulerEventPayload::WorkerSpawnFailed { .. } => "its worker could not be started".to_string(),
            SchedulerEventPayload::AdmissionDenied { reason, .. } => format!("not admitted yet: {}", words(&reason)),
            SchedulerEventPayload::GroupCapped { .. } => {
                "not admitted yet: its column has reached its share".to_string()
            }
            SchedulerEventPayload::PressureAdvisorySkipped { pressure, .. } => {
                format!("skipped, because its call would wait: {}", words(&pressure))
            }
            SchedulerEventPayload::TaskYielded { .. } => "returns its worker slot while it waits".to_string(),
            SchedulerEventPayload::TaskResumed { .. } => "has a worker slot again".to_string(),
            SchedulerEventPayload::TaskCompleted { outcome, .. } => {
                format!("attempt {attempt} ended: {}", outcome_text(outcome))
            }
            SchedulerEventPayload::RetryDeferred { failure, until, .. } => {
                let failure = failure.map_or_else(|| "worker lost".to_string(), |kind: RetryKind| kind.to_string());
                format!("deferred, to be retried not before {}: {failure}", self.clock(until))
            }
            SchedulerEventPayload::SalvageRedispatched => "its backoff has ended".to_string(),
            SchedulerEventPayload::NonRetryableDropped { reason, rows: 1 } => format!("the row is dropped: {reason}"),
            SchedulerEventPayload::NonRetryableDropped { reason, rows } => format!("{rows} rows are dropped: {reason}"),
            SchedulerEventPayload::Cancelled { .. } => "cancelled: its row was dropped, or the run stops".to_string(),
            _ => return None,
        })
    }

    /// Describes an event of a call. Returns `None` for an event that adds nothing to the others.
    fn describe_request_event(&self, event: &RequestEvent) -> Option<String> {
        let provider = self.provider_name(event.scope);
        Some(match event.payload {
            RequestEventPayload::WaitStarted { waiter: Some(_) } => format!("waits for {provider}"),
            RequestEventPayload::WaitCompleted { waiter: Some(_), waited } => format!("waited {waited}"),
            RequestEventPayload::WaitTimeout { waited, .. } => format!("the wait timed out after {waited}"),
            RequestEventPayload::WaitCancelled { waited, reason, .. } => {
                format!("the wait was cancelled after {waited}: {}", words(&reason))
            }
            RequestEventPayload::AcquireDenied { reason, changes_at: None } => {
                format!("cannot call {provider}: {}", words(&reason))
            }
            RequestEventPayload::AcquireDenied { reason, changes_at: Some(at) } => {
                format!("cannot call {provider}: {}; the next change is at {}", words(&reason), self.clock(at))
            }
            RequestEventPayload::CallStarted { .. } => format!("calls {provider}"),
            RequestEventPayload::CallCompleted { outcome, took, .. } => {
                format!("the call ended after {took}: {}", words(&outcome))
            }
            RequestEventPayload::RateLimited { blocked_until: Some(until), .. } => {
                format!("{provider} accepts no calls until {}", self.clock(until))
            }
            RequestEventPayload::LimitDecreased { from, to } => {
                format!("the limit of {provider} decreases from {from} to {to}")
            }
            RequestEventPayload::LimitIncreased { from, to } => {
                format!("the limit of {provider} increases from {from} to {to}")
            }
            RequestEventPayload::ProviderProbed { .. } => format!("probes whether {provider} has recovered"),
            RequestEventPayload::ProviderDown { probe_at, .. } => {
                format!("{provider} is down; the next probe is at {}", self.clock(probe_at))
            }
            RequestEventPayload::ProviderRecovered { .. } => format!("{provider} has recovered"),
            RequestEventPayload::ProviderUnavailable { cause, .. } => {
                format!("{provider} can no longer be used: {}", words(&cause))
            }
            _ => return None,
        })
    }

    /// Returns the name of the model that an event belongs to.
    fn provider_name(&self, place: EventScope) -> &str {
        let found = self.names.resources.iter().find(|resource| match place {
            EventScope::Resource(id) => resource.resource == id,
            EventScope::Model(id) => resource.model == id,
            EventScope::Controller => false,
        });
        found.map_or("its provider", |resource| &resource.name)
    }
}

impl fmt::Display for RowTimeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "row {}, row {} of row group {}", self.row, self.row_in_group, self.row_group)?;
        for (column, entries) in &self.tasks {
            let name = column.and_then(|column| self.names.columns.get(column));
            writeln!(f, "\n{}", name.map_or("the row", String::as_str))?;
            for Entry { at, text } in entries {
                writeln!(f, "  {:>14}  {text}", self.clock(*at))?;
            }
        }
        Ok(())
    }
}

/// Returns the serialized name of a variant with spaces instead of underscores.
fn words(variant: &impl serde::Serialize) -> String {
    names::variant_name(variant).replace('_', " ")
}

fn outcome_text(outcome: Option<TaskOutcome>) -> String {
    match outcome {
        None => "an internal error".to_string(),
        Some(TaskOutcome::Success) => "done".to_string(),
        Some(TaskOutcome::Skipped) => "skipped".to_string(),
        Some(TaskOutcome::Cancelled) => "cancelled".to_string(),
        Some(TaskOutcome::Unavailable) => "its provider can no longer be used".to_string(),
        Some(TaskOutcome::Retryable { kind, .. }) => kind.to_string(),
        Some(TaskOutcome::Failed(kind)) => kind.to_string(),
    }
}

impl From<TimelineError> for Error {
    fn from(error: TimelineError) -> Self {
        Self::new(Exit::Pipeline, error)
    }
}
