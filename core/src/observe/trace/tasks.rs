//! The tracks of worker slots and row groups.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::lanes::Lanes;
use super::{Args, EventBuffer, ROW_GROUPS, Track, WORKERS};
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};
use crate::pipeline::{TaskOutcome, WorkerId};
use crate::time::Instant;

/// The workers and row groups that are active.
#[derive(Clone, Debug)]
pub(super) struct Tasks {
    columns: Vec<String>,
    /// The number of worker slots whose tracks have a name.
    named: u32,
    workers: BTreeMap<WorkerId, Worker>,
    row_groups: BTreeMap<u32, (Track, Instant)>,
    lanes: Lanes,
    queued: u64,
}

/// A worker with a running task.
#[derive(Clone, Debug)]
struct Worker {
    since: Instant,
    name: String,
    args: Args,
    /// The instant at which it yielded, if it waits without resources.
    yielded_at: Option<Instant>,
}

impl Tasks {
    pub(super) fn new(columns: Vec<String>) -> Self {
        let lanes = Lanes::new(ROW_GROUPS, "row group");
        let (workers, row_groups) = (BTreeMap::default(), BTreeMap::default());
        Self { columns, named: 0, workers, row_groups, lanes, queued: 0 }
    }

    pub(super) fn on_event(&mut self, event: &SchedulerEvent, out: &mut EventBuffer) {
        let at = event.at;
        match event.payload {
            SchedulerEventPayload::ReadyEnqueued { queued } | SchedulerEventPayload::Selected { queued } => {
                self.set_queued(at, u64::from(queued), out);
            }
            SchedulerEventPayload::QueueDrained { .. } => self.set_queued(at, 0, out),
            SchedulerEventPayload::WorkerSpawned { worker } => self.begin(worker, event, out),
            SchedulerEventPayload::TaskYielded { worker } => {
                if let Some(worker) = self.workers.get_mut(&worker) {
                    worker.yielded_at = Some(at);
                }
            }
            SchedulerEventPayload::TaskResumed { worker } => {
                if let Some(since) = self.workers.get_mut(&worker).and_then(|worker| worker.yielded_at.take()) {
                    out.slice(track_of(worker), "wait", "waits for its call".to_string(), [since, at]);
                }
            }
            SchedulerEventPayload::TaskCompleted { worker, outcome } => self.end(at, worker, outcome_of(outcome), out),
            SchedulerEventPayload::WorkerSpawnFailed { worker } => {
                self.end(at, worker, "spawn failed".to_string(), out);
            }
            SchedulerEventPayload::RowGroupAdmitted { .. } => {
                if let Some(row_group) = event.correlation.row_group {
                    let track = self.lanes.take(out);
                    self.row_groups.insert(row_group, (track, at));
                }
            }
            SchedulerEventPayload::RowGroupCheckpointed { .. } | SchedulerEventPayload::RowGroupDiscarded { .. } => {
                if let Some(row_group) = event.correlation.row_group {
                    self.end_row_group(at, row_group, out);
                }
            }
            _ => {}
        }
    }

    fn set_queued(&mut self, at: Instant, queued: u64, out: &mut EventBuffer) {
        if core::mem::replace(&mut self.queued, queued) != queued {
            out.counter(WORKERS, at, "queued tasks", queued);
        }
    }

    fn begin(&mut self, worker: WorkerId, event: &SchedulerEvent, out: &mut EventBuffer) {
        let correlation = event.correlation;
        while self.named <= worker.key().slot {
            self.named += 1;
            out.track((WORKERS, self.named), format!("worker {}", self.named));
        }
        let column = correlation.column.and_then(|column| self.columns.get(column.index()).cloned());
        let args = Args {
            row_group: correlation.row_group,
            row: correlation.row,
            attempt: correlation.attempt,
            ..Args::default()
        };
        let name = column.unwrap_or_default();
        self.workers.insert(worker, Worker { since: event.at, name, args, yielded_at: None });
        out.counter(WORKERS, event.at, "workers", self.workers.len() as u64);
    }

    fn end(&mut self, at: Instant, id: WorkerId, outcome: String, out: &mut EventBuffer) {
        let Some(worker) = self.workers.remove(&id) else { return };
        if let Some(since) = worker.yielded_at {
            out.slice(track_of(id), "wait", "waits for its call".to_string(), [since, at]);
        }
        let slice = out.slice(track_of(id), "task", worker.name, [worker.since, at]);
        slice.args = Args { outcome: Some(outcome), ..worker.args };
        out.counter(WORKERS, at, "workers", self.workers.len() as u64);
    }

    fn end_row_group(&mut self, at: Instant, row_group: u32, out: &mut EventBuffer) {
        if let Some((track, since)) = self.row_groups.remove(&row_group) {
            out.slice(track, "row group", format!("row group {row_group}"), [since, at]);
            self.lanes.give_back(track);
        }
    }

    pub(super) fn finish(&mut self, at: Instant, out: &mut EventBuffer) {
        while let Some((&worker, _)) = self.workers.first_key_value() {
            self.end(at, worker, "open at the end".to_string(), out);
        }
        while let Some((&row_group, _)) = self.row_groups.first_key_value() {
            self.end_row_group(at, row_group, out);
        }
    }
}

fn track_of(worker: WorkerId) -> Track {
    (WORKERS, worker.key().slot + 1)
}

fn outcome_of(outcome: Option<TaskOutcome>) -> String {
    match outcome {
        None => "bug".to_string(),
        Some(TaskOutcome::Success) => "success".to_string(),
        Some(TaskOutcome::Skipped) => "skipped".to_string(),
        Some(TaskOutcome::Cancelled) => "cancelled".to_string(),
        Some(TaskOutcome::Unavailable) => "provider unavailable".to_string(),
        Some(TaskOutcome::Retryable { kind, .. }) => kind.to_string(),
        Some(TaskOutcome::Failed(kind)) => kind.to_string(),
    }
}
