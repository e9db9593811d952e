//! Events of a run as numbers, in the order in which `events.ts` reads them: NaN is nothing.

use tidegate_core::event::EventKind;
use tidegate_core::pipeline::TaskOutcome;
use tidegate_core::pipeline::WorkerId;
use tidegate_core::pipeline::event::{SchedulerEvent, SchedulerEventPayload as Payload};

use super::desk::Callbacks;
use super::figures::{block_code, discard_code, drop_code, failure_code, retry_code};

const NONE: f64 = f64::NAN;

/// How many numbers come before those of the fact: sequence, instant in ms, row group, column, row, attempt.
const HEAD: usize = 6;
/// The most numbers of a fact.
const FACT: usize = 8;

/// Tells one event.
pub(super) fn tell(callbacks: &Callbacks, event: &SchedulerEvent) {
    let about = &event.correlation;
    let mut numbers = [NONE; HEAD + FACT];
    numbers[0] = event.sequence as f64;
    numbers[1] = event.at.as_nanos() as f64 / 1e6;
    numbers[2] = some(about.row_group);
    numbers[3] = some(about.column.map(|column| column.index() as u32));
    numbers[4] = some(about.row);
    numbers[5] = some(about.attempt);
    let payload = payload(&event.payload);
    numbers[HEAD..].copy_from_slice(&payload);
    callbacks.event(event.payload.kind().index(), &numbers);
}

fn some(value: Option<u32>) -> f64 {
    value.map_or(NONE, f64::from)
}

/// A worker as one number: slots and generations of one run are far from 2^53.
fn worker(id: WorkerId) -> f64 {
    let key = id.key();
    f64::from(key.generation) * 4_294_967_296.0 + f64::from(key.slot)
}

/// 0 made, 1 skipped, 2 cancelled, 3 kept because its provider cannot be used, from 16 a failure that may pass, from 32 one for good, 64 a bug.
pub(super) fn outcome_code(outcome: Option<TaskOutcome>) -> u32 {
    match outcome {
        Some(TaskOutcome::Success) => 0,
        Some(TaskOutcome::Skipped) => 1,
        Some(TaskOutcome::Cancelled) => 2,
        Some(TaskOutcome::Unavailable) => 3,
        Some(TaskOutcome::Retryable { kind, .. }) => 16 + retry_code(kind),
        Some(TaskOutcome::Failed(kind)) => 32 + failure_code(kind),
        None => 64,
    }
}

fn numbers<const N: usize>(given: [u32; N]) -> [f64; FACT] {
    let mut all = [NONE; FACT];
    for (place, number) in all.iter_mut().zip(given) {
        *place = f64::from(number);
    }
    all
}

fn payload(payload: &Payload) -> [f64; FACT] {
    let mut all = [NONE; FACT];
    match *payload {
        Payload::JobStarted { rows, row_groups, resumed } => {
            all[..3].copy_from_slice(&[rows as f64, f64::from(row_groups), f64::from(resumed)]);
        }
        Payload::JobStopping { stop, aborts } => return numbers([stop as u32, u32::from(aborts)]),
        Payload::JobCompleted { stop, rows_out, rows_dropped, rows_unmade } => {
            let stop = f64::from(stop as u32);
            all[..4].copy_from_slice(&[stop, rows_out as f64, rows_dropped as f64, rows_unmade as f64]);
        }
        Payload::HealthSnapshot {
            running,
            queued,
            delayed,
            row_groups_active,
            row_groups_done,
            rows_out,
            rows_dropped,
            rows_unmade,
        } => {
            all = numbers([running, queued, delayed, row_groups_active, row_groups_done]);
            all[5..].copy_from_slice(&[rows_out as f64, rows_dropped as f64, rows_unmade as f64]);
        }
        Payload::ReadyEnqueued { queued } | Payload::Selected { queued } => return numbers([queued]),
        Payload::RowGroupAdmitted { rows, active } => return numbers([rows, active]),
        Payload::RowGroupAdmissionBlocked { reason } => return numbers([block_code(reason)]),
        Payload::RowGroupTargetChanged { from, to } => return numbers([from, to]),
        Payload::RowGroupCheckpointed { rows, unmade } => return numbers([rows, unmade]),
        Payload::RowGroupDiscarded { reason, rows } => return numbers([discard_code(reason), rows]),
        Payload::NonRetryableDropped { reason, rows } => {
            return numbers([drop_code(reason), rows]);
        }
        Payload::HookFailed { hook } => return numbers([hook as u32]),
        Payload::EarlyShutdown { failures, window } => return numbers([failures, window]),
        Payload::ProviderDegraded { resource, retryable, window } => {
            all = numbers([retryable, window]);
            all[2] = some(resource);
        }
        Payload::RetryableFailures { resource, failure, status, recent, total } => {
            all[..3].copy_from_slice(&[some(resource), f64::from(retry_code(failure)), some(status.map(u32::from))]);
            (all[3], all[4]) = (f64::from(recent), total as f64);
        }
        Payload::AdmissionBlocked { reason, resource, queued } => {
            all = numbers([reason as u32]);
            (all[1], all[2]) = (some(resource), f64::from(queued));
        }
        Payload::AdmissionDenied { reason, resource } => {
            all = numbers([reason as u32]);
            all[1] = some(resource);
        }
        Payload::GroupCapped { resource } => all[0] = some(resource),
        Payload::PressureAdvisorySkipped { pressure, .. } => return numbers([pressure as u32]),
        Payload::TaskLeaseAcquired { active, .. } | Payload::TaskLeaseReleased { active, .. } => {
            return numbers([active]);
        }
        Payload::WorkerSpawned { worker: id }
        | Payload::WorkerSpawnFailed { worker: id }
        | Payload::TaskYielded { worker: id }
        | Payload::TaskResumed { worker: id } => all[0] = worker(id),
        Payload::RetryDeferred { failure, until, round } => {
            all[0] = some(failure.map(retry_code));
            (all[1], all[2]) = (until.as_nanos() as f64 / 1e6, some(round));
        }
        Payload::Cancelled { queued } => return numbers([u32::from(queued)]),
        Payload::QueueDrained { discarded } => return numbers([discarded]),
        Payload::TaskCompleted { worker: id, outcome } => {
            (all[0], all[1]) = (worker(id), f64::from(outcome_code(outcome)));
        }
        Payload::ReleaseDiagnostic { worker: id, answer } => (all[0], all[1]) = (worker(id), f64::from(answer as u32)),
        _ => {}
    }
    all
}
