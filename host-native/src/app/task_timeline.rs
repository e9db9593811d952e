//! `tidegate timeline`: what happened to one row, from the events of a run.
//!
//! The two streams of events are joined by their [`Correlation`]: every event of a call names the execution
//! of the task that made it. Each task of the row is a list of what happened, in order of time:
//!
//! ```text
//! row 17, row 1 of row group 2
//!
//! title
//!     0.000412 s  ready
//!     0.000412 s  queued
//!     0.000431 s  admitted: try 1
//!     0.000512 s  calls mock/m/chat
//!     0.050871 s  the call has ended after 50.359ms: rate limited
//!     0.050990 s  kept for another try, not before 0.100990 s: rate limited
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
use crate::observe::jsonl::EventNames;
use crate::observe::names;

/// Which row, of which events.
#[derive(Clone, Debug)]
pub struct TimelineRequest {
    /// The file that `tidegate run --events` wrote.
    pub events: PathBuf,
    /// The row, as the output numbers it.
    pub row: u64,
    /// The only column to show.
    pub column: Option<String>,
}

/// Why there is no timeline.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is no event.
    #[error("{path}:{line}: this is no line of a file that `tidegate run --events` wrote: {why}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The file does not begin with the names.
    #[error("{path}:1: this is no file that `tidegate run --events` wrote: its first line names no columns")]
    NoNames {
        /// The file.
        path: PathBuf,
    },
    /// No such column.
    #[error("no column is called `{column}`; the run has {known}")]
    Column {
        /// What was asked for.
        column: String,
        /// The columns of the run.
        known: String,
    },
    /// Nothing happened to the row.
    #[error("{path}: no event is about row {row}: the run did not come to it, or made it before it was resumed")]
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

/// Something that happened to a task.
#[derive(Debug)]
struct Entry {
    at: Instant,
    what: String,
}

/// Reads the events and prints what happened to the row.
pub fn timeline(request: &TimelineRequest) -> Result<(String, Exit), Error> {
    Ok((RowTimeline::read(request)?.to_string(), Exit::Done))
}

/// What happened to one row.
#[derive(Debug)]
struct RowTimeline {
    row: u64,
    row_group: u32,
    row_in_group: u32,
    /// Rows of the run, from the first one of `names`; unknown until the run has started.
    rows: Option<u64>,
    names: EventNames,
    /// The start of the run: times are shown from here.
    began: Instant,
    /// By column, in the order of its first event; without a column what happened to the row as a whole.
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
                // A run that was killed may have left half a line.
                Err(_) if lines.peek().is_none() => {}
                Err(error) => {
                    return Err(TimelineError::Line { path: path.clone(), line: at + 1, why: error.to_string() });
                }
            }
        }
        timeline.finish(path)
    }

    fn of(request: &TimelineRequest, names: EventNames) -> Result<Self, TimelineError> {
        if let Some(column) = request.column.as_ref().filter(|column| !names.columns.contains(column)) {
            return Err(TimelineError::Column { column: column.clone(), known: names.columns.join(", ") });
        }
        let size = u64::from(names.row_group_size.max(1));
        let in_run = request.row.checked_sub(names.first_row);
        let in_run = in_run.ok_or_else(|| TimelineError::Row { path: request.events.clone(), row: request.row })?;
        Ok(Self {
            row: request.row,
            // No run has as many row groups as that: nothing is found then.
            row_group: u32::try_from(in_run / size).unwrap_or(u32::MAX),
            row_in_group: (in_run % size) as u32,
            rows: None,
            names,
            began: Instant::ZERO,
            tasks: Vec::new(),
        })
    }

    /// Takes a line in, if it is about the row.
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
            (self.began, self.rows) = (at, Some(*rows));
        }
        let Some(about) = about.filter(|about| self.is_about(about)) else { return };
        let number = about.column.map(ColumnId::index);
        let name = number.and_then(|number| self.names.columns.get(number));
        if column.is_some_and(|column| name.is_none_or(|name| name != column)) {
            return;
        }
        let what = match line {
            Line::Names { .. } => None,
            Line::Scheduler { event } => self.of_task(event),
            Line::Request { event } => self.of_call(event),
        };
        let Some(what) = what else { return };
        let place = self.tasks.iter().position(|(known, _)| *known == number).unwrap_or_else(|| {
            self.tasks.push((number, Vec::new()));
            self.tasks.len() - 1
        });
        self.tasks[place].1.push(Entry { at, what });
    }

    fn is_about(&self, about: &Correlation) -> bool {
        let is_of_row = about.row.map_or(about.task.is_some(), |row| row == self.row_in_group);
        about.row_group == Some(self.row_group) && is_of_row
    }

    /// Each stream is in order, and the file takes them in turns.
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
        let nanos = (at - self.began).as_nanos();
        format!("{}.{:06} s", nanos / 1_000_000_000, nanos / 1_000 % 1_000_000)
    }

    /// What an event of the run says about its task; `None` for one that says nothing that another does not
    /// say.
    fn of_task(&self, event: &SchedulerEvent) -> Option<String> {
        let attempt = event.correlation.attempt.unwrap_or(0);
        Some(match event.payload {
            SchedulerEventPayload::DependencyReady => "ready".to_string(),
            SchedulerEventPayload::ReadyEnqueued { .. } => "queued".to_string(),
            SchedulerEventPayload::WorkerSpawned { .. } => format!("admitted: try {attempt}"),
            SchedulerEventPayload::WorkerSpawnFailed { .. } => "its worker could not be started".to_string(),
            SchedulerEventPayload::AdmissionDenied { reason, .. } => format!("not admitted yet: {}", words(&reason)),
            SchedulerEventPayload::GroupCapped { .. } => "not admitted yet: its column holds its share".to_string(),
            SchedulerEventPayload::PressureAdvisorySkipped { pressure, .. } => {
                format!("passed over, since its call would wait: {}", words(&pressure))
            }
            SchedulerEventPayload::TaskYielded { .. } => "gives its worker slot back while it waits".to_string(),
            SchedulerEventPayload::TaskResumed { .. } => "has a worker slot again".to_string(),
            SchedulerEventPayload::TaskCompleted { outcome, .. } => {
                format!("try {attempt} has ended: {}", outcome_text(outcome))
            }
            SchedulerEventPayload::RetryDeferred { failure, until, .. } => {
                let failure = failure.map_or_else(|| "worker lost".to_string(), |kind: RetryKind| kind.to_string());
                format!("kept for another try, not before {}: {failure}", self.clock(until))
            }
            SchedulerEventPayload::SalvageRedispatched => "its pause is over".to_string(),
            SchedulerEventPayload::NonRetryableDropped { reason, rows: 1 } => format!("the row is dropped: {reason}"),
            SchedulerEventPayload::NonRetryableDropped { reason, rows } => format!("{rows} rows are dropped: {reason}"),
            SchedulerEventPayload::Cancelled { .. } => "not made: its row was dropped, or the run stops".to_string(),
            _ => return None,
        })
    }

    /// The same for an event of a call.
    fn of_call(&self, event: &RequestEvent) -> Option<String> {
        let place = self.place(event.place);
        Some(match event.payload {
            RequestEventPayload::WaitStarted { waiter: Some(_) } => format!("waits for {place}"),
            RequestEventPayload::WaitCompleted { waiter: Some(_), waited } => format!("has waited {waited}"),
            RequestEventPayload::WaitTimeout { waited, .. } => format!("has waited {waited} in vain"),
            RequestEventPayload::WaitCancelled { waited, reason, .. } => {
                format!("has waited {waited} in vain: {}", words(&reason))
            }
            RequestEventPayload::AcquireDenied { reason, changes_at: None } => {
                format!("may not call {place}: {}", words(&reason))
            }
            RequestEventPayload::AcquireDenied { reason, changes_at: Some(at) } => {
                format!("may not call {place}: {}; the next change is at {}", words(&reason), self.clock(at))
            }
            RequestEventPayload::CallStarted { .. } => format!("calls {place}"),
            RequestEventPayload::CallCompleted { outcome, took, .. } => {
                format!("the call has ended after {took}: {}", words(&outcome))
            }
            RequestEventPayload::RateLimited { blocked_until: Some(until), .. } => {
                format!("{place} takes no calls until {}", self.clock(until))
            }
            RequestEventPayload::LimitDecreased { from, to } => {
                format!("the limit of {place} falls from {from} to {to}")
            }
            RequestEventPayload::LimitIncreased { from, to } => {
                format!("the limit of {place} rises from {from} to {to}")
            }
            RequestEventPayload::ProviderProbed { .. } => format!("finds out whether {place} is back"),
            RequestEventPayload::ProviderDown { probe_at, .. } => {
                format!("{place} is down; the next call is at {}", self.clock(probe_at))
            }
            RequestEventPayload::ProviderRecovered { .. } => format!("{place} is back"),
            RequestEventPayload::ProviderUnavailable { cause, .. } => {
                format!("{place} cannot be used any more: {}", words(&cause))
            }
            _ => return None,
        })
    }

    fn place(&self, place: EventScope) -> &str {
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
            for Entry { at, what } in entries {
                writeln!(f, "  {:>14}  {what}", self.clock(*at))?;
            }
        }
        Ok(())
    }
}

/// The name of a variant, in words.
fn words(variant: &impl serde::Serialize) -> String {
    names::variant_name(variant).replace('_', " ")
}

fn outcome_text(outcome: Option<TaskOutcome>) -> String {
    match outcome {
        None => "a bug".to_string(),
        Some(TaskOutcome::Success) => "done".to_string(),
        Some(TaskOutcome::Skipped) => "skipped".to_string(),
        Some(TaskOutcome::Cancelled) => "cancelled".to_string(),
        Some(TaskOutcome::Unavailable) => "its provider cannot be used any more".to_string(),
        Some(TaskOutcome::Retryable { kind, .. }) => kind.to_string(),
        Some(TaskOutcome::Failed(kind)) => kind.to_string(),
    }
}

impl From<TimelineError> for Error {
    fn from(error: TimelineError) -> Self {
        Self::new(Exit::Pipeline, error)
    }
}
