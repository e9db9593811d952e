//! What a run, its workers and its handles share: the machine under its lock, and how each worker is told to stop.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Waker;

use lock_api::Mutex;
use smallvec::SmallVec;

use super::hook::PendingHook;
use crate::gate::Gate;
use crate::id::{FixedMap, SlotKey};
use crate::pipeline::event::{Interest, SchedulerEvent};
use crate::pipeline::{
    Effect, FatalError, FinishedRowGroup, HookError, Pipeline, Progress, ProviderDegraded, RunReport, SaveError, Task,
    TaskOutcome, WorkerId,
};
use crate::request::ResourceId;
use crate::request::event::{Interest as RequestInterest, RequestEvent};
use crate::runtime::Host;
use crate::time::Instant;

/// What is known of a worker that its host dropped.
pub(super) const LOST: &str = "the worker was dropped before it ended: a panic in its task, or the runtime shut down";

/// How many effects are drained under one hold of the lock.
const BATCH: usize = 32;

pub(crate) struct Shared<H: Host> {
    pub(super) host: H,
    /// The gate that its tasks call through, if any. Its lock is taken first, always.
    gate: Option<Gate<H>>,
    state: Mutex<H::Lock, State>,
    /// Whether any worker was ever told to stop: until then workers need not look, and take no lock to be polled.
    stopping: AtomicBool,
}

struct State {
    pipeline: Pipeline,
    /// A entry for each worker that was dispatched and has not been answered for.
    workers: FixedMap<WorkerId, WorkerEntry>,
    /// Taken when the run is woken: it leaves a new one when it is polled.
    run: Option<Waker>,
    phase: Phase,
    /// The run's seat at the gate, until it is over.
    seat: Option<SlotKey>,
}

/// How far the run is. It only ever moves down this list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Never polled.
    Idle,
    Running,
    /// Being cancelled: a worker that is lost now is a cancelled one.
    Cancelling,
    /// Dropped, and so being cancelled: nothing is spawned any more, and whoever commands the machine carries its
    /// effects out.
    Abandoned,
    Over,
}

/// Where a worker is told to stop.
#[derive(Default)]
struct WorkerEntry {
    is_stopped: bool,
    waker: Option<Waker>,
}

/// What is to be begun under one hold of the lock.
pub(super) type Actions = smallvec::IntoIter<[Action; BATCH]>;

/// Something to spawn.
pub(super) enum Action {
    Spawn(Task),
    Hook(PendingHook),
    Save(FinishedRowGroup),
    Warn(ProviderDegraded),
}

/// What was drained under one hold of the lock, to be carried out after it.
#[derive(Default)]
struct DrainedActions {
    actions: SmallVec<[Action; BATCH]>,
    wakes: SmallVec<[Waker; BATCH]>,
    more: bool,
}

/// One turn of the run.
pub(super) struct Step {
    pub(super) actions: SmallVec<[Action; BATCH]>,
    /// There may be more to carry out at this very instant.
    pub(super) more: bool,
    /// Until when there is nothing to do if nobody reports.
    pub(super) next: Option<Instant>,
    pub(super) report: Option<RunReport>,
}

impl<H: Host> Shared<H> {
    pub(super) fn new(host: H, pipeline: Pipeline) -> Arc<Self> {
        Arc::new(Self::with(host, pipeline, None))
    }

    /// The same for tasks that call through a gate: `calls` names the task resources that stand for one of its request resources.
    pub(super) fn through(host: H, pipeline: Pipeline, gate: &Gate<H>, calls: &[(&str, ResourceId)]) -> Arc<Self> {
        let run = Arc::new(Self::with(host, pipeline, Some(gate.clone())));
        let seat = gate.shared.command(|state, _| state.runs.register(&run));
        {
            let mut state = run.state.lock();
            state.seat = Some(seat);
            state.pipeline.call_through(seat, calls);
        }
        run
    }

    fn with(host: H, pipeline: Pipeline, gate: Option<Gate<H>>) -> Self {
        let state = State { pipeline, workers: FixedMap::default(), run: None, phase: Phase::Idle, seat: None };
        Self { host, gate, state: Mutex::new(state), stopping: AtomicBool::new(false) }
    }

    /// Gives the machine one command. With a gate that is one step with what the gate makes of it.
    fn apply<R>(&self, command: impl FnOnce(&mut State, Instant) -> R) -> R {
        let Some(gate) = &self.gate else {
            let now = self.host.now();
            return command(&mut self.state.lock(), now);
        };
        gate.shared.command(|gate, now| {
            let (result, is_waiting) = {
                let mut state = self.state.lock();
                state.pipeline.look_at(now, &gate.machine);
                (command(&mut state, now), state.pipeline.is_waiting_for_suspended())
            };
            if is_waiting {
                gate.serve_runs(now);
                // Not even one of them may have been asked.
                self.resume_dispatch(now);
            }
            result
        })
    }

    /// Brings the machine up to now, takes a batch of its effects, and leaves `waker` to be woken by the next report.
    pub(super) fn step(&self, waker: &Waker) -> Step {
        let waker = waker.clone();
        let mut drained = DrainedActions::default();
        let now = self.apply(|state, now| {
            state.come_up_to(now);
            now
        });
        let (next, report, _unlocked) = {
            let mut state = self.state.lock();
            state.drain(now, &mut drained);
            debug_assert!(
                state.phase != Phase::Over || state.pipeline.report().is_some(),
                "a run that is over has its report"
            );
            let report = if state.phase == Phase::Over { state.pipeline.report().cloned() } else { None };
            (state.pipeline.poll_timeout(), report, state.run.replace(waker))
        };
        self.wake_stopped(&mut drained);
        if report.is_some() {
            self.leave_gate();
        }
        Step { actions: drained.actions, more: drained.more, next, report }
    }

    /// Gives the machine one command and lets the run carry out what follows. What `command` returns is dropped by the
    /// caller, outside the lock.
    fn command<R>(&self, command: impl FnOnce(&mut State, Instant) -> R) -> R {
        let (result, now) = self.apply(|state, now| (command(state, now), now));
        self.notify(now);
        result
    }

    /// Lets the run carry out what its machine wants. Not under any lock.
    pub(crate) fn notify(&self, now: Instant) {
        let (run, abandoned) = {
            let mut state = self.state.lock();
            (state.run.take(), state.phase == Phase::Abandoned)
        };
        if let Some(run) = run {
            run.wake();
        }
        if abandoned {
            self.wind_up(now);
        }
    }

    /// Asks the machine something that commands nothing; or, under the gate's lock, as the task stage of tied requests.
    pub(crate) fn stage<R>(&self, ask: impl FnOnce(&mut Pipeline) -> R) -> R {
        ask(&mut self.state.lock().pipeline)
    }

    /// Does what the machine left undone for the sake of suspended workers. Under the gate's lock only.
    pub(crate) fn resume_dispatch(&self, now: Instant) {
        self.state.lock().pipeline.go_on(now);
    }

    /// In the stead of a run that was dropped: spawns nothing, so that all there is to do is to refuse and to wake.
    fn wind_up(&self, now: Instant) {
        let mut drained = DrainedActions { more: true, ..DrainedActions::default() };
        while drained.more {
            self.apply(|state, _| state.drain(now, &mut drained));
            self.wake_stopped(&mut drained);
        }
        if self.state.lock().phase == Phase::Over {
            self.leave_gate();
        }
    }

    /// No worker is left that could ask the gate for anything.
    fn leave_gate(&self) {
        let seat = self.state.lock().seat.take();
        if let (Some(gate), Some(seat)) = (&self.gate, seat) {
            let _itself = gate.shared.command(|gate, _| gate.runs.unregister(seat));
        }
    }

    fn wake_stopped(&self, drained: &mut DrainedActions) {
        if !drained.wakes.is_empty() {
            // Before the wakers run: a worker that was woken sees it.
            self.stopping.store(true, Ordering::Release);
            drained.wakes.drain(..).for_each(Waker::wake);
        }
    }

    pub(super) fn drain(&self) {
        self.command(|state, now| state.pipeline.drain(now));
    }

    pub(super) fn cancel(&self) {
        self.command(|state, now| {
            state.phase = state.phase.max(Phase::Cancelling);
            state.pipeline.cancel(now);
        });
    }

    pub(super) fn abandon(&self) {
        let _unlocked = self.command(|state, now| {
            state.phase = state.phase.max(Phase::Abandoned);
            state.pipeline.cancel(now);
            state.run.take()
        });
    }

    /// Asks both machines for the events that are wanted.
    pub(super) fn listen(&self, interest: Interest, requests: RequestInterest) {
        self.state.lock().pipeline.set_interest(interest);
        if let Some(gate) = &self.gate {
            gate.with(|machine, now| machine.set_interest(now, requests));
        }
    }

    /// Some of the events that wait, one lock after the other.
    pub(super) fn take_events(&self, requests: &mut Vec<RequestEvent>, scheduler: &mut Vec<SchedulerEvent>) {
        if let Some(gate) = &self.gate {
            gate.shared.take_events(requests);
        }
        let mut state = self.state.lock();
        scheduler.extend(core::iter::from_fn(|| state.pipeline.poll_event()));
    }

    pub(super) fn progress(&self) -> Progress {
        self.state.lock().pipeline.progress()
    }

    /// Whether any worker may have been told to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Whether `worker` was told to stop; if not, `waker` is woken when it is.
    pub(super) fn watch(&self, worker: WorkerId, waker: &Waker) -> bool {
        let waker = waker.clone();
        let mut state = self.state.lock();
        // A worker without a entry was answered for already: there is nothing left to do for it.
        let Some(entry) = state.workers.get_mut(&worker) else { return true };
        let (told, replaced) = (entry.is_stopped, entry.waker.replace(waker));
        drop(state);
        drop(replaced);
        told
    }

    /// The end of `worker`; `None`: it was lost on the way.
    pub(super) fn worker_ended(&self, worker: WorkerId, ended: Option<Result<TaskOutcome, FatalError>>) {
        let _unlocked = self.command(|state, now| {
            let entry = state.workers.remove(&worker)?;
            let stopped = entry.is_stopped || matches!(state.phase, Phase::Cancelling | Phase::Abandoned);
            let lost = || if stopped { Ok(TaskOutcome::Cancelled) } else { Err(FatalError::from(LOST)) };
            // The machine counts any other answer; there is nobody here to tell.
            let _ = match ended.unwrap_or_else(lost) {
                Ok(outcome) => state.pipeline.task_finished(now, worker, outcome),
                Err(error) => state.pipeline.task_broke(now, worker, error),
            };
            entry.waker
        });
    }

    pub(super) fn pre_batch_ended(&self, row_group: u32, result: Result<Vec<u32>, HookError>) {
        self.command(|state, now| state.pipeline.pre_batch_finished(now, row_group, result));
    }

    pub(super) fn post_batch_ended(&self, row_group: u32, result: Result<(), HookError>) {
        self.command(|state, now| state.pipeline.post_batch_finished(now, row_group, result));
    }

    pub(super) fn checkpoint_ended(&self, row_group: u32, result: Result<(), SaveError>) {
        self.command(|state, now| state.pipeline.checkpoint_finished(now, row_group, result));
    }
}

impl State {
    /// Begins the run if it has not begun, and does what is due.
    fn come_up_to(&mut self, now: Instant) {
        if self.phase == Phase::Idle {
            self.phase = Phase::Running;
            self.pipeline.start(now);
        }
        if self.pipeline.poll_timeout().is_some_and(|at| at <= now) {
            self.pipeline.handle_timeout(now);
        }
    }

    /// Takes up to [`BATCH`] effects; says in `drained.more` whether there may be more.
    fn drain(&mut self, now: Instant, drained: &mut DrainedActions) {
        for _ in 0..BATCH {
            match self.pipeline.poll_effect() {
                Some(Effect::Spawn(task)) if self.phase == Phase::Abandoned => {
                    let _ = self.pipeline.task_finished(now, task.worker, TaskOutcome::Cancelled);
                }
                Some(Effect::Spawn(task)) => {
                    self.workers.insert(task.worker, WorkerEntry::default());
                    drained.actions.push(Action::Spawn(task));
                }
                Some(Effect::PreBatch(batch)) if self.phase == Phase::Abandoned => {
                    self.pipeline.pre_batch_finished(now, batch.row_group, Err(uncalled()));
                }
                Some(Effect::PreBatch(batch)) => drained.actions.push(Action::Hook(PendingHook::PreBatch(batch))),
                Some(Effect::PostBatch(group)) if self.phase == Phase::Abandoned => {
                    self.pipeline.post_batch_finished(now, group.row_group, Err(uncalled()));
                }
                Some(Effect::PostBatch(group)) => drained.actions.push(Action::Hook(PendingHook::PostBatch(group))),
                Some(Effect::Checkpoint(group)) if self.phase == Phase::Abandoned => {
                    let refused = SaveError(String::from("the run was dropped before this row group was saved"));
                    self.pipeline.checkpoint_finished(now, group.row_group, Err(refused));
                }
                Some(Effect::Checkpoint(group)) => drained.actions.push(Action::Save(group)),
                Some(Effect::Abort(worker)) => {
                    if let Some(entry) = self.workers.get_mut(&worker) {
                        entry.is_stopped = true;
                        drained.wakes.extend(entry.waker.take());
                    }
                }
                Some(Effect::Warn(warning)) => drained.actions.push(Action::Warn(warning)),
                Some(Effect::Finished) => self.phase = Phase::Over,
                None => {
                    drained.more = false;
                    return;
                }
            }
        }
        drained.more = true;
    }
}

fn uncalled() -> HookError {
    HookError(String::from("the run was dropped before the hook was called"))
}
