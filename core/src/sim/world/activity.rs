//! The work of a worker: its calls, one after another, then its local work.
//!
//! After a failed call, the next attempt of the task continues with that call. Real hosts do the same,
//! because they keep the responses of earlier calls. If every attempt began with its first call, a run could
//! never end: a provider that serves fewer calls in a row than a task makes would never let a task
//! complete.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::describe::At;
use super::{DigestEntry, Due, World};
use crate::budget::RateLimitFeedback;
use crate::id::SlotKey;
use crate::pipeline::{ColumnId, FailureKind, FatalError, RetryKind, Task, TaskOutcome, WorkerId};
use crate::request::{
    AcquireResult, AfterCall, Completion, DenialReason, FallbackId, GroupId, Outcome, Request, RequestEffect,
    RequestLease, Retry, WaiterId,
};
use crate::sim::provider::MockResponse;
use crate::sim::scenario::ScenarioColumn;
use crate::time::{Duration, Instant};

/// The time until the response to a refused or rejected call arrives.
const REFUSAL_LATENCY: Duration = Duration::from_millis(5);
/// The time that a call waits for a provider that does not respond.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The work of each task of a column, and the numbers of its workers by activity.
pub(super) struct ColumnWork {
    /// The index of the model that the tasks call first.
    pub(super) provider: Option<usize>,
    /// The models that the tasks may call, in their order, if there are several.
    fallback: Option<FallbackId>,
    /// The fairness group in which the calls wait, or `None` for the model's own.
    tenant: Option<GroupId>,
    /// The number of calls of a task.
    calls: u32,
    /// The number of tokens that a call costs at its provider.
    tokens: u32,
    /// How long the local work of a task takes.
    local: Duration,
    /// `None` if the column has no random outcomes.
    chances: Option<Chances>,
    /// The row of the run whose task panics.
    fatal_at: Option<u64>,
    pub(super) at_work: ColumnWorkers,
}

/// The numbers of workers of a column, by their activity.
#[derive(Default)]
pub(super) struct ColumnWorkers {
    pub(super) calling: u32,
    pub(super) waiting: u32,
    pub(super) local: u32,
}

impl ColumnWorkers {
    /// Returns the number that includes the worker of an activity.
    fn busy(&mut self, activity: &Activity) -> &mut u32 {
        if activity.call.is_some() { &mut self.calling } else { &mut self.local }
    }
}

/// The probabilities of each ending other than success: see the shares of [`ScenarioColumn`].
struct Chances {
    skip: f64,
    fail: f64,
    lose: f64,
    poison: f64,
}

impl ColumnWork {
    pub(super) fn of(
        column: &ScenarioColumn,
        provider: Option<usize>,
        fallback: Option<FallbackId>,
        tenant: Option<GroupId>,
    ) -> Self {
        let ScenarioColumn { skip_share: skip, fail_share: fail, lose_share: lose, poison_share: poison, .. } = *column;
        Self {
            provider,
            fallback,
            tenant,
            calls: if provider.is_some() { column.calls } else { 0 },
            tokens: column.tokens,
            local: column.local,
            chances: column.has_random_outcomes().then_some(Chances { skip, fail, lose, poison }),
            fatal_at: column.fatal_at,
            at_work: ColumnWorkers::default(),
        }
    }
}

/// The activity of a worker.
///
/// Exhaustive on purpose: a page must draw each in a way of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerActivity {
    /// It does local work.
    Local,
    /// It waits until its call may start.
    Waiting,
    /// Its call is in flight.
    Calling,
}

/// A task and the progress of its worker.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub(super) task: Task,
    /// The number of calls made, including one in flight. A call that has failed is not counted.
    calls_made: u32,
    /// How often the present call was repeated, because its failure may have been the provider's.
    repetitions: u32,
    /// How admission repeats the failed call.
    retry: Option<Retry>,
    /// The outcome of the task if admission decides that the failure was the call's own.
    failed: Option<TaskOutcome>,
}

impl Work {
    pub(super) fn column(&self) -> ColumnId {
        self.task.column
    }
}

/// A call in flight or local work, which ends at a scheduled instant.
pub(super) struct Activity {
    work: Work,
    /// The outcome of the task if the task ends with this activity. `None` means that the task panics.
    outcome: Option<TaskOutcome>,
    call: Option<Call>,
}

impl Activity {
    /// Returns the column and the activity of the worker.
    pub(super) fn column_and_activity(&self) -> (ColumnId, WorkerActivity) {
        (self.work.column(), if self.call.is_some() { WorkerActivity::Calling } else { WorkerActivity::Local })
    }
}

/// A call in flight, with its end already decided.
struct Call {
    /// The index of the model.
    provider: usize,
    lease: RequestLease,
    completion: Completion,
    /// Whether it holds a slot of the provider. Calls that are refused or fail at once hold none.
    holds_slot: bool,
    /// The rates that the headers of its response state: requests, then tokens.
    stated: [Option<RateLimitFeedback>; 2],
}

/// The state of a worker.
#[derive(Clone, Copy)]
pub(super) enum Worker {
    /// Its call waits for admission.
    Waiting(WaiterId),
    /// It has an activity, which has this key.
    Busy(SlotKey),
}

impl World {
    pub(super) fn spawn(&mut self, task: &Task) {
        self.add_to_digest(DigestEntry::WorkerStarted, task.worker.to_bits());
        let column = &self.column_work[task.column.index()];
        let completed = if column.calls > 1 { self.completed_calls.remove(&position_of(task)) } else { None };
        let work = Work { task: *task, calls_made: completed.unwrap_or(0), repetitions: 0, retry: None, failed: None };
        match &column.chances {
            Some(chances) if self.draws.is_skipped(task, chances.skip) => {
                self.schedule(self.now, Activity { work, outcome: Some(TaskOutcome::Skipped), call: None });
            }
            _ => self.continue_work(work),
        }
    }

    /// Starts a worker's next call, or its local work.
    fn continue_work(&mut self, work: Work) {
        let column = &self.column_work[work.task.column.index()];
        if column.provider.is_some() && work.calls_made < column.calls {
            return self.request_call(work);
        }
        let (at, outcome) = (self.now + column.local, self.ending(&work.task));
        self.record_activity(&work.task, WorkerActivity::Local);
        self.schedule(at, Activity { work, outcome, call: None });
    }

    /// Requests a worker's call, or requests it again.
    fn request_call(&mut self, work: Work) {
        let column = &self.column_work[work.task.column.index()];
        let Some(provider) = column.provider else { return };
        let first = Request::new(self.providers[provider].resource);
        let is_repeated = work.task.attempt > 1;
        let request = Request { group: column.tenant, fallback: column.fallback, is_repeated, ..first };
        let Self { admission, pipeline, now, .. } = self;
        let answer = match (work.retry, work.task.token) {
            (None, Some(token)) => admission.acquire_yielding(*now, &request, token, pipeline),
            (None, None) => admission.acquire(*now, &request),
            (Some(retry), Some(token)) => admission.retry_yielding(*now, &request, retry, token, pipeline),
            (Some(retry), None) => admission.retry(*now, &request, retry),
        };
        match answer {
            AcquireResult::Granted(lease) => self.call(work, lease),
            AcquireResult::Waiting(waiter) => {
                self.record_activity(&work.task, WorkerActivity::Waiting);
                self.workers.insert(work.task.worker.to_bits(), Worker::Waiting(waiter));
                self.column_work[work.task.column.index()].at_work.waiting += 1;
                self.waiting.insert(waiter.to_bits(), work);
            }
            AcquireResult::Denied(denial) => self.reject(work, denial.reason),
        }
    }

    /// Ends a worker whose call was denied, unless the call must be requested at another model.
    fn reject(&mut self, work: Work, reason: DenialReason) {
        let outcome = match reason {
            DenialReason::UseFallback => return self.request_call(work),
            DenialReason::Unavailable => TaskOutcome::Unavailable,
            DenialReason::Cancelled => TaskOutcome::Cancelled,
            DenialReason::RequestAtFault => work.failed.unwrap_or_else(not_admitted),
            _ => not_admitted(),
        };
        self.end_attempt(&work, Some(outcome));
    }

    pub(super) fn deliver(&mut self, effect: RequestEffect) {
        match effect {
            RequestEffect::Granted { waiter, lease } => match self.take_waiting(waiter) {
                Some(work) => self.call(work, lease),
                None => {
                    if let Err(lease) = self.holders.take(waiter, lease) {
                        let _ = self.admission.release(self.now, lease, &Outcome::LocalCancelled.into());
                    }
                }
            },
            RequestEffect::Denied { waiter, denial } => {
                if let Some(work) = self.take_waiting(waiter) {
                    self.reject(work, denial.reason);
                }
            }
            RequestEffect::HealthCall { lease } => self.begin_health_call(lease),
        }
    }

    fn take_waiting(&mut self, waiter: WaiterId) -> Option<Work> {
        let work = self.waiting.remove(&waiter.to_bits())?;
        self.column_work[work.task.column.index()].at_work.waiting -= 1;
        Some(work)
    }

    /// Removes an activity. Returns `None` if it was removed before, because its worker was aborted.
    fn take_activity(&mut self, key: SlotKey) -> Option<Activity> {
        let activity = self.activities.remove(key)?;
        *self.column_work[activity.work.task.column.index()].at_work.busy(&activity) -= 1;
        Some(activity)
    }

    fn call(&mut self, work: Work, lease: RequestLease) {
        let (task, column) = (work.task, &self.column_work[work.task.column.index()]);
        let resource = lease.resource();
        let Some(provider) = self.providers.iter().position(|provider| provider.resource == resource) else { return };
        let tokens = column.tokens;
        let mut draws = self.draws.call(&task, work.calls_made, work.repetitions);
        self.add_to_digest(DigestEntry::CallStarted, task.worker.to_bits());
        self.record_activity(&task, WorkerActivity::Calling);
        let answer = self.providers[provider].mock.arrive_drawing(self.now, tokens, &mut draws);
        let stated = self.providers[provider].mock.stated_rates(self.now);
        let (at, holds_slot, mut completion, mut outcome) = self.consequence(answer);
        if completion.outcome == Outcome::Success && self.is_poison(&work) {
            (completion, outcome) = (Outcome::ProviderFailure.into(), failed(RetryKind::ServerError, None));
        }
        let call = Some(Call { provider, lease, completion, holds_slot, stated });
        let work = Work { calls_made: work.calls_made + 1, ..work };
        self.schedule(at, Activity { work, outcome: Some(outcome), call });
    }

    /// Returns whether a worker's present call is a poison request, which fails in every attempt. Only the
    /// last call of a task can be one.
    fn is_poison(&self, work: &Work) -> bool {
        let column = &self.column_work[work.task.column.index()];
        let is_last = work.calls_made + 1 >= column.calls;
        is_last && column.chances.as_ref().is_some_and(|chances| self.draws.is_poison(&work.task, chances.poison))
    }

    /// Returns when a call with this response ends, whether it holds one of the provider's slots until then,
    /// and its outcome for admission and for the task.
    pub(super) fn consequence(&self, answer: MockResponse) -> (Instant, bool, Completion, TaskOutcome) {
        match answer {
            MockResponse::Accept { finish_at } => (finish_at, true, Outcome::Success.into(), TaskOutcome::Success),
            MockResponse::Corrupt { at, .. } => {
                (at, true, Outcome::ProviderFailure.into(), failed(RetryKind::ServerError, None))
            }
            MockResponse::Refuse { retry_after, .. } => (
                self.now + REFUSAL_LATENCY,
                false,
                Completion::rate_limited(retry_after),
                failed(RetryKind::RateLimited, retry_after),
            ),
            MockResponse::Reject { because } => {
                (self.now + REFUSAL_LATENCY, false, because.outcome().into(), TaskOutcome::Unavailable)
            }
            MockResponse::Fail { at, .. } => {
                (at, false, Outcome::ProviderFailure.into(), failed(RetryKind::ServerError, None))
            }
            MockResponse::Hang { until } => (
                until.min(self.now + CALL_TIMEOUT),
                false,
                Outcome::ProviderTimeout.into(),
                failed(RetryKind::Timeout, None),
            ),
        }
    }

    fn schedule(&mut self, at: Instant, activity: Activity) {
        let Task { worker, column, .. } = activity.work.task;
        *self.column_work[column.index()].at_work.busy(&activity) += 1;
        let key = self.activities.insert(activity);
        self.workers.insert(worker.to_bits(), Worker::Busy(key));
        self.schedule_at(at, Due::Activity(key));
    }

    /// Ends an activity whose instant has come, and starts the next one or ends the attempt.
    pub(super) fn complete(&mut self, key: SlotKey) {
        // The event of an aborted activity stays on the heap.
        let Some(Activity { work, outcome, call }) = self.take_activity(key) else { return };
        let Some(call) = call else { return self.finish(work.task.worker, outcome) };
        self.end_provider_call(call.provider, call.holds_slot);
        let stated: Vec<RateLimitFeedback> = call.stated.into_iter().flatten().collect();
        if !stated.is_empty() {
            self.admission.rate_limit_feedback(self.now, call.lease.id(), &stated);
        }
        match self.admission.finish(self.now, call.lease, &call.completion) {
            AfterCall::Final => {}
            AfterCall::Retry(retry) => {
                let (calls_made, repetitions) = (work.calls_made - 1, work.repetitions + 1);
                return self.request_call(Work {
                    calls_made,
                    repetitions,
                    retry: Some(retry),
                    failed: outcome,
                    ..work
                });
            }
            AfterCall::Unavailable if self.column_work[work.task.column.index()].fallback.is_some() => {
                let (calls_made, repetitions) = (work.calls_made - 1, work.repetitions + 1);
                return self.request_call(Work { calls_made, repetitions, ..work });
            }
            AfterCall::Unavailable => return self.end_attempt(&work, Some(TaskOutcome::Unavailable)),
        }
        let work = Work { repetitions: 0, retry: None, failed: None, ..work };
        let column = &self.column_work[work.task.column.index()];
        let is_last = work.calls_made >= column.calls && column.local.is_zero();
        match outcome {
            Some(TaskOutcome::Success) if is_last => {
                let outcome = self.ending(&work.task);
                self.finish(work.task.worker, outcome);
            }
            Some(TaskOutcome::Success) => self.continue_work(work),
            failure => self.end_attempt(&Work { calls_made: work.calls_made - 1, ..work }, failure),
        }
    }

    /// Ends an attempt whose latest call has not succeeded. The next attempt continues with that call.
    fn end_attempt(&mut self, work: &Work, outcome: Option<TaskOutcome>) {
        if self.column_work[work.task.column.index()].calls > 1 {
            self.completed_calls.insert(position_of(&work.task), work.calls_made);
        }
        self.finish(work.task.worker, outcome);
    }

    /// Returns the outcome of an attempt whose work is done. `None` means that the task panics.
    fn ending(&self, task: &Task) -> Option<TaskOutcome> {
        let column = &self.column_work[task.column.index()];
        let rows = match task.row {
            Some(row) => (task.first_row + u64::from(row), 1),
            None => (task.first_row, u64::from(task.rows)),
        };
        if column.fatal_at.is_some_and(|row| (rows.0..rows.0 + rows.1).contains(&row)) {
            return None;
        }
        let Some(chances) = &column.chances else { return Some(TaskOutcome::Success) };
        let draw = self.draws.ending(task);
        Some(if draw < chances.fail {
            TaskOutcome::Failed(FailureKind::Other)
        } else if draw < chances.fail + chances.lose {
            TaskOutcome::Cancelled
        } else {
            TaskOutcome::Success
        })
    }

    pub(super) fn abort(&mut self, worker: WorkerId) {
        match self.workers.get(&worker.to_bits()).copied() {
            Some(Worker::Waiting(waiter)) => {
                self.admission.cancel(self.now, waiter);
                self.take_waiting(waiter);
            }
            Some(Worker::Busy(key)) => {
                if let Some(Activity { call: Some(call), .. }) = self.take_activity(key) {
                    self.end_provider_call(call.provider, call.holds_slot);
                    let _ = self.admission.release(self.now, call.lease, &Outcome::LocalCancelled.into());
                }
            }
            None => return,
        }
        self.finish(worker, Some(TaskOutcome::Cancelled));
    }

    /// Returns the column of a busy worker, and a description of what it does.
    pub(super) fn describe_busy(&self, key: SlotKey) -> Option<(ColumnId, String)> {
        let activity = self.activities.get(key)?;
        let mut ends = self.events.iter().filter(|Reverse((_, _, due))| *due == Due::Activity(key));
        let until = At(ends.next().map_or(self.now, |Reverse((at, _, _))| *at));
        let why = match &activity.call {
            Some(call) if call.holds_slot => format!("its call is in flight until {until}"),
            Some(_) => format!("its call fails or is refused, and the response arrives at {until}"),
            None => format!("it does local work until {until}"),
        };
        Some((activity.work.task.column, why))
    }

    pub(super) fn end_provider_call(&mut self, provider: usize, holds_slot: bool) {
        if holds_slot {
            self.providers[provider].mock.finish(self.now);
        }
    }

    /// Ends a worker. `None` means that its task panics.
    fn finish(&mut self, worker: WorkerId, outcome: Option<TaskOutcome>) {
        self.workers.remove(&worker.to_bits());
        self.add_to_digest(DigestEntry::WorkerEnded, worker.to_bits());
        self.record_change(worker, None);
        self.forward_pressure();
        let _ = match outcome {
            Some(outcome) => self.pipeline.task_finished(self.now, worker, outcome),
            None => self.pipeline.task_panicked(self.now, worker, FatalError::from("the scenario has a bug here")),
        };
    }
}

/// A task, whatever its attempt: the row group, the column and the row.
pub(super) type TaskPosition = (u32, usize, Option<u32>);

fn position_of(task: &Task) -> TaskPosition {
    (task.row_group, task.column.index(), task.row)
}

fn failed(kind: RetryKind, retry_after: Option<Duration>) -> TaskOutcome {
    TaskOutcome::Retryable { kind, status: None, retry_after }
}

fn not_admitted() -> TaskOutcome {
    failed(RetryKind::AdmissionTimeout, None)
}
