//! The state of a run under its lock: the machine, its workers, and the lifecycle of the run.

use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Waker;

use smallvec::SmallVec;

use crate::event::Correlation;
use crate::gate::runs::YieldingRun;
use crate::id::{SecondaryMap, SlotKey};
use crate::pipeline::{
    FatalError, FinishedRowGroup, HookError, Pipeline, PipelineEffect, ProviderDegraded, RunReport, SaveError,
    SeededRowGroup, Task, TaskOutcome, WorkerId,
};
use crate::replay::Recorded;
use crate::request::{RequestAdmission, ResourceId};
use crate::time::Instant;
use crate::wake_list::WakeList;
use crate::yielding::{TaskResources, TaskToken};

/// The error of a worker that its host dropped.
pub(super) const LOST: &str = "the worker was dropped before it ended: a panic in its task, or the runtime shut down";

/// The number of effects that are drained under one hold of the lock.
const BATCH: usize = 32;

/// An action that the run performs for its machine outside the lock.
pub(super) enum Action {
    Spawn(Task),
    Hook(PendingHook),
    Save(FinishedRowGroup),
    Warn(ProviderDegraded),
}

/// A hook to call.
#[derive(Debug)]
pub(super) enum PendingHook {
    Claim,
    PreBatch(SeededRowGroup),
    PostBatch(FinishedRowGroup),
}

/// The actions that were drained under one hold of the lock.
pub(super) type Actions = SmallVec<[Action; BATCH]>;
pub(super) type ActionIter = smallvec::IntoIter<[Action; BATCH]>;

/// The lifecycle of a run. It only moves down this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lifecycle {
    /// Never polled.
    Idle,
    Running,
    /// Cancelled. A worker that is lost from now on counts as cancelled.
    Cancelled,
    /// Dropped and therefore cancelled. Nothing is spawned any more, and effects are applied under the lock.
    Abandoned,
    Over,
}

/// A worker, from its dispatch until it has ended.
#[derive(Default)]
struct WorkerEntry {
    must_stop: bool,
    /// Woken when the worker must stop.
    waker: Option<Waker>,
}

pub(super) struct RunState {
    pipeline: Recorded<Pipeline>,
    workers: SecondaryMap<WorkerEntry>,
    lifecycle: Lifecycle,
    /// The waker of the [`PipelineRun`](super::PipelineRun). It is taken to wake the run, which stores a new
    /// one when polled.
    waker: Option<Waker>,
    /// The key of the run at its gate, until the run is over.
    registration: Option<SlotKey>,
    /// Set before the stop of the first worker is requested. Workers read it without the lock.
    is_stopping: Arc<AtomicBool>,
}

impl RunState {
    pub(super) fn new(pipeline: Recorded<Pipeline>, is_stopping: Arc<AtomicBool>) -> Self {
        let (workers, lifecycle) = (SecondaryMap::default(), Lifecycle::Idle);
        Self { pipeline, workers, lifecycle, waker: None, registration: None, is_stopping }
    }

    /// Stores the key of the run at its gate, and maps task resources to request resources of the gate.
    pub(super) fn register(&mut self, registration: SlotKey, calls: &[(&str, ResourceId)]) {
        self.registration = Some(registration);
        self.pipeline.set_request_resources(registration, calls);
    }

    pub(super) fn take_registration(&mut self) -> Option<SlotKey> {
        self.registration.take()
    }

    pub(super) fn is_over(&self) -> bool {
        self.lifecycle == Lifecycle::Over
    }

    /// Returns whether the run was dropped before it was over.
    pub(super) fn is_abandoned(&self) -> bool {
        self.lifecycle == Lifecycle::Abandoned
    }

    pub(super) fn pipeline(&mut self) -> &mut Recorded<Pipeline> {
        &mut self.pipeline
    }

    /// Updates the machine's view of which calls through the gate would have to wait.
    pub(super) fn update_pressure(&mut self, now: Instant, admission: &RequestAdmission) {
        self.pipeline.update_pressure(now, admission);
    }
}

/// Commands.
impl RunState {
    /// Starts the run if it has not started, and runs what is due.
    pub(super) fn catch_up(&mut self, now: Instant) {
        if self.lifecycle == Lifecycle::Idle {
            self.lifecycle = Lifecycle::Running;
            self.pipeline.start(now);
        }
        if self.pipeline.poll_timeout().is_some_and(|at| at <= now) {
            self.pipeline.handle_timeout(now);
        }
    }

    pub(super) fn cancel(&mut self, now: Instant) {
        self.lifecycle = self.lifecycle.max(Lifecycle::Cancelled);
        self.pipeline.cancel(now);
    }

    /// Cancels a run whose handle was dropped. Returns the waker that it had stored.
    pub(super) fn abandon(&mut self, now: Instant) -> Option<Waker> {
        self.lifecycle = self.lifecycle.max(Lifecycle::Abandoned);
        self.pipeline.cancel(now);
        self.take_waker()
    }

    /// Takes the waker of the run.
    pub(super) fn take_waker(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    /// Reports the end of a worker. `None` means that it was dropped before its end. Returns the waker that
    /// it had stored.
    pub(super) fn end_worker(
        &mut self,
        now: Instant,
        worker: WorkerId,
        result: Option<Result<TaskOutcome, FatalError>>,
    ) -> Option<Waker> {
        let entry = self.workers.remove(worker.key())?;
        let is_cancelled = matches!(self.lifecycle, Lifecycle::Cancelled | Lifecycle::Abandoned);
        let result = result.unwrap_or_else(|| {
            if entry.must_stop || is_cancelled { Ok(TaskOutcome::Cancelled) } else { Err(FatalError::from(LOST)) }
        });
        // The machine counts reports about workers that are not live. The caller cannot react to the error.
        let _ = match result {
            Ok(outcome) => self.pipeline.task_finished(now, worker, outcome),
            Err(error) => self.pipeline.task_panicked(now, worker, error),
        };
        entry.waker
    }

    /// Returns whether a worker must stop, and the waker that `waker` replaces. `waker` is woken when the
    /// worker must stop.
    pub(super) fn watch_stop(&mut self, worker: WorkerId, waker: Waker) -> (bool, Option<Waker>) {
        // A worker without an entry has ended, so it must stop.
        let Some(entry) = self.workers.get_mut(worker.key()) else { return (true, Some(waker)) };
        (entry.must_stop, entry.waker.replace(waker))
    }
}

/// Effects.
impl RunState {
    /// Takes up to a batch of effects. Returns whether there may be more.
    pub(super) fn drain(&mut self, now: Instant, actions: &mut Actions, wakes: &mut WakeList) -> bool {
        for _ in 0..BATCH {
            let Some(effect) = self.pipeline.poll_effect() else { return false };
            actions.extend(self.apply_effect(now, effect, wakes));
        }
        true
    }

    /// Stores `waker` for the next change. Returns the next deadline, the report if the run is over, and the
    /// waker that was replaced.
    pub(super) fn park(&mut self, waker: Waker) -> (Option<Instant>, Option<RunReport>, Option<Waker>) {
        debug_assert!(!self.is_over() || self.pipeline.report().is_some(), "a run that is over has its report");
        let report = if self.is_over() { self.pipeline.report().cloned() } else { None };
        (self.pipeline.poll_timeout(), report, self.waker.replace(waker))
    }

    /// Applies one effect, or returns the action that the run must perform outside the lock.
    fn apply_effect(&mut self, now: Instant, effect: PipelineEffect, wakes: &mut WakeList) -> Option<Action> {
        let is_abandoned = self.is_abandoned();
        match effect {
            PipelineEffect::Spawn(task) if is_abandoned => {
                let _ = self.pipeline.task_finished(now, task.worker, TaskOutcome::Cancelled);
            }
            PipelineEffect::ClaimRowGroup if is_abandoned => self.pipeline.row_group_claimed(now, Ok(None)),
            PipelineEffect::PreBatch(batch) if is_abandoned => {
                self.pipeline.pre_batch_finished(now, batch.row_group, Err(hook_not_called()));
            }
            PipelineEffect::PostBatch(group) if is_abandoned => {
                self.pipeline.post_batch_finished(now, group.row_group, Err(hook_not_called()));
            }
            PipelineEffect::Checkpoint(group) if is_abandoned => {
                let not_saved = SaveError(String::from("the run was dropped before this row group was saved"));
                self.pipeline.checkpoint_finished(now, group.row_group, Err(not_saved));
            }
            PipelineEffect::Spawn(task) => {
                self.workers.insert(task.worker.key(), WorkerEntry::default());
                return Some(Action::Spawn(task));
            }
            PipelineEffect::ClaimRowGroup => return Some(Action::Hook(PendingHook::Claim)),
            PipelineEffect::PreBatch(batch) => return Some(Action::Hook(PendingHook::PreBatch(batch))),
            PipelineEffect::PostBatch(group) => return Some(Action::Hook(PendingHook::PostBatch(group))),
            PipelineEffect::Checkpoint(group) => return Some(Action::Save(group)),
            PipelineEffect::Warn(_) if is_abandoned => {}
            PipelineEffect::Warn(warning) => return Some(Action::Warn(warning)),
            PipelineEffect::Abort(worker) => {
                // Set before the worker is woken, because the worker reads the flag without the lock.
                self.is_stopping.store(true, Ordering::Release);
                if let Some(entry) = self.workers.get_mut(worker.key()) {
                    entry.must_stop = true;
                    wakes.push(entry.waker.take());
                }
            }
            PipelineEffect::Finished => self.lifecycle = Lifecycle::Over,
        }
        None
    }
}

fn hook_not_called() -> HookError {
    HookError(String::from("the run was dropped before the hook was called"))
}

impl YieldingRun for RunState {
    fn take_stop(&mut self) -> bool {
        self.pipeline.take_stop()
    }

    fn has_postponed_dispatch(&self) -> bool {
        self.pipeline.is_waiting_for_yielded()
    }

    fn resume_dispatch(&mut self, now: Instant) {
        self.pipeline.resume_dispatch(now);
    }

    /// Applies the effects of an abandoned run, because nothing polls it. There are at most as many as there
    /// are running workers, hooks and checkpoints.
    fn collect_wakers(&mut self, now: Instant, wakes: &mut WakeList) {
        wakes.push(self.take_waker());
        while self.is_abandoned()
            && let Some(effect) = self.pipeline.poll_effect()
        {
            let action = self.apply_effect(now, effect, wakes);
            debug_assert!(action.is_none(), "an abandoned run starts nothing");
        }
    }
}

impl TaskResources for RunState {
    fn yield_resources(&mut self, now: Instant, token: &TaskToken) -> bool {
        self.pipeline.yield_resources(now, token)
    }

    fn resume(&mut self, now: Instant, token: &TaskToken) -> bool {
        self.pipeline.resume(now, token)
    }

    fn can_resume(&self, token: &TaskToken) -> bool {
        self.pipeline.can_resume(token)
    }

    fn correlation(&self, token: &TaskToken) -> Option<Correlation> {
        self.pipeline.correlation(token)
    }

    fn is_stopping(&self, run: SlotKey) -> bool {
        self.pipeline.is_stopping(run)
    }

    fn blocks(&self, holder: &TaskToken, token: &TaskToken) -> bool {
        self.pipeline.blocks(holder, token)
    }
}
