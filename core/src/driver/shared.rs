//! The data shared by a run, its jobs and its handles: the state under its lock, and the gate that its tasks
//! call through.
//!
//! Every command takes the same steps: take the lock, pass the command to the machine, release the lock, wake
//! the run. With a gate, the command and the gate's decisions because of it are one step, and the gate's lock
//! is taken first.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Waker;

use lock_api::Mutex;

use super::state::{Actions, RunState};
use crate::gate::Gate;
use crate::gate::runs::YieldingRun as _;
use crate::pipeline::event::{SchedulerEvent, SchedulerInterest};
use crate::pipeline::{
    ClaimedRowGroup, FatalError, HookError, Pipeline, Progress, RunReport, SaveError, TaskOutcome, WorkerId,
};
use crate::replay::Recorded;
use crate::request::ResourceId;
use crate::request::event::{RequestEvent, RequestInterest};
use crate::runtime::Host;
use crate::time::Instant;
use crate::wake_list::WakeList;

pub struct Shared<H: Host> {
    pub(super) host: H,
    /// The gate that the tasks call through, if any.
    gate: Option<Gate<H>>,
    /// The gate holds a reference too. It takes this lock only while it holds its own.
    state: Arc<Mutex<H::Lock, RunState>>,
    /// Whether the stop of any worker was ever requested. Until then, polling a worker takes no lock.
    is_stopping: Arc<AtomicBool>,
}

impl<H: Host> fmt::Debug for Shared<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// The result of one drain of the machine.
pub(super) struct Step {
    pub(super) actions: Actions,
    /// The wakers of workers that must stop.
    pub(super) stopped: WakeList,
    /// The waker that the run had stored before.
    pub(super) replaced: Option<Waker>,
    /// Whether more effects may be pending at the same instant.
    pub(super) has_more: bool,
    /// The next deadline of the machine.
    pub(super) next: Option<Instant>,
    pub(super) report: Option<RunReport>,
}

/// Wakes the run on drop: after a command, even if a waker at the gate panicked during it.
struct NotifyOnDrop<'a, H: Host>(&'a Shared<H>);

impl<H: Host> Drop for NotifyOnDrop<'_, H> {
    fn drop(&mut self) {
        self.0.notify();
    }
}

impl<H: Host> Shared<H> {
    pub(super) fn new(host: H, pipeline: Recorded<Pipeline>) -> Arc<Self> {
        Arc::new(Self::with(host, pipeline, None))
    }

    /// Creates the shared data of a run whose tasks call through a gate. `calls` maps task resources to
    /// request resources.
    pub(super) fn through(pipeline: Recorded<Pipeline>, gate: &Gate<H>, calls: &[(&str, ResourceId)]) -> Arc<Self> {
        let run = Self::with(gate.host().clone(), pipeline, Some(gate.clone()));
        let registration = gate.register_run(Arc::clone(&run.state) as _);
        run.state.lock().register(registration, calls);
        Arc::new(run)
    }

    fn with(host: H, pipeline: Recorded<Pipeline>, gate: Option<Gate<H>>) -> Self {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let state = Arc::new(Mutex::new(RunState::new(pipeline, Arc::clone(&is_stopping))));
        Self { host, gate, state, is_stopping }
    }

    /// Runs one command on the machine, without waking the run.
    fn apply<R>(&self, command: impl FnOnce(&mut RunState, Instant) -> R) -> R {
        let Some(gate) = &self.gate else {
            let now = self.host.now();
            return command(&mut self.state.lock(), now);
        };
        gate.command_run(&self.state, |state, admission, now| {
            state.update_pressure(now, admission);
            command(state, now)
        })
    }

    /// Runs one command on the machine and wakes the run. The caller drops the result outside the lock.
    fn command<R>(&self, command: impl FnOnce(&mut RunState, Instant) -> R) -> R {
        let notify = NotifyOnDrop(self);
        let result = self.apply(command);
        drop(notify);
        result
    }

    /// Wakes the run. The effects of an abandoned run are applied here instead, because nothing polls it.
    fn notify(&self) {
        let mut wakes = WakeList::default();
        let is_abandoned = {
            let mut state = self.state.lock();
            wakes.push(state.take_waker());
            state.is_abandoned()
        };
        if is_abandoned {
            self.apply(|state, now| state.collect_wakers(now, &mut wakes));
            if self.state.lock().is_over() {
                self.unregister();
            }
        }
        wakes.wake_all();
    }

    /// Brings the machine up to date, takes a batch of its effects, and stores `waker` for the next change.
    pub(super) fn step(&self, waker: &Waker) -> Step {
        let waker = waker.clone();
        let now = self.apply(|state, now| {
            state.catch_up(now);
            now
        });
        let (mut actions, mut stopped) = (Actions::new(), WakeList::default());
        let mut state = self.state.lock();
        let has_more = state.drain(now, &mut actions, &mut stopped);
        let (next, report, replaced) = state.park(waker);
        drop(state);
        Step { actions, stopped, replaced, has_more, next, report }
    }

    /// Unregisters a finished run from its gate. It has no workers left that could wait there.
    pub(super) fn unregister(&self) {
        let registration = self.state.lock().take_registration();
        if let (Some(gate), Some(registration)) = (&self.gate, registration) {
            gate.unregister_run(registration);
        }
    }

    /// Reads the machine, or runs a command on it that needs no wake-up and no gate.
    pub(super) fn read<R>(&self, read: impl FnOnce(&mut Recorded<Pipeline>) -> R) -> R {
        read(self.state.lock().pipeline())
    }

    /// Sets the event interest of both machines.
    pub(super) fn set_interest(&self, interest: SchedulerInterest, requests: RequestInterest) {
        self.read(|pipeline| pipeline.set_interest(interest));
        if let Some(gate) = &self.gate {
            gate.with(|machine, now| machine.set_interest(now, requests));
        }
    }

    /// Moves the pending events of both machines to the given lists, one lock after the other.
    pub(super) fn take_events(&self, requests: &mut Vec<RequestEvent>, scheduler: &mut Vec<SchedulerEvent>) {
        if let Some(gate) = &self.gate {
            gate.take_events(requests);
        }
        self.read(|pipeline| scheduler.extend(core::iter::from_fn(|| pipeline.poll_event())));
    }

    pub(super) fn progress(&self) -> Progress {
        self.read(|pipeline| pipeline.progress())
    }
}

/// Commands of handles.
impl<H: Host> Shared<H> {
    pub(super) fn wind_down(&self) {
        self.command(|state, now| state.pipeline().wind_down(now));
    }

    pub(super) fn drain(&self) {
        self.command(|state, now| state.pipeline().drain(now));
    }

    pub(super) fn cancel(&self) {
        self.command(RunState::cancel);
    }

    /// Cancels a run that is dropped before its end.
    pub(super) fn abandon(&self) {
        let unused_waker = self.command(RunState::abandon);
        drop(unused_waker);
    }
}

/// Commands of jobs.
impl<H: Host> Shared<H> {
    /// Returns whether any worker may have to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Returns whether `worker` must stop. If not, `waker` is woken when it must.
    pub(super) fn watch_stop(&self, worker: WorkerId, waker: &Waker) -> bool {
        let waker = waker.clone();
        let (must_stop, replaced) = self.state.lock().watch_stop(worker, waker);
        drop(replaced);
        must_stop
    }

    /// Reports the end of `worker`. `None` means that it was dropped before its end.
    pub(super) fn worker_ended(&self, worker: WorkerId, result: Option<Result<TaskOutcome, FatalError>>) {
        let unused_waker = self.command(|state, now| state.end_worker(now, worker, result));
        drop(unused_waker);
    }

    pub(super) fn claim_ended(&self, result: Result<Option<ClaimedRowGroup>, HookError>) {
        self.command(|state, now| state.pipeline().row_group_claimed(now, result));
    }

    pub(super) fn pre_batch_ended(&self, row_group: u32, result: Result<Vec<u32>, HookError>) {
        self.command(|state, now| state.pipeline().pre_batch_finished(now, row_group, result));
    }

    pub(super) fn post_batch_ended(&self, row_group: u32, result: Result<(), HookError>) {
        self.command(|state, now| state.pipeline().post_batch_finished(now, row_group, result));
    }

    pub(super) fn checkpoint_ended(&self, row_group: u32, result: Result<(), SaveError>) {
        self.command(|state, now| state.pipeline().checkpoint_finished(now, row_group, result));
    }
}

impl<H: Host> Drop for Shared<H> {
    fn drop(&mut self) {
        // The gate must not keep a run that has no handle.
        self.unregister();
    }
}
