//! What a run, its jobs and its handles share: the state under its lock, and the gate that its tasks call
//! through.
//!
//! Every command takes the same steps: take the lock, give the machine the command, release the lock, wake
//! the run. With a gate the command is one step with what the gate decides because of it, and the gate's lock
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
use crate::pipeline::event::{Interest, SchedulerEvent};
use crate::pipeline::{FatalError, HookError, Pipeline, Progress, RunReport, SaveError, TaskOutcome, WorkerId};
use crate::replay::Recorded;
use crate::request::ResourceId;
use crate::request::event::{Interest as RequestInterest, RequestEvent};
use crate::runtime::Host;
use crate::time::Instant;
use crate::wake_list::WakeList;

pub struct Shared<H: Host> {
    pub(super) host: H,
    /// The gate that its tasks call through, if any.
    gate: Option<Gate<H>>,
    /// The gate keeps it too, and only takes its lock inside its own.
    state: Arc<Mutex<H::Lock, RunState>>,
    /// Whether any worker was ever told to stop. Until then workers take no lock to be polled.
    is_stopping: Arc<AtomicBool>,
}

impl<H: Host> fmt::Debug for Shared<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// What the run does after one drain of its machine.
pub(super) struct Step {
    pub(super) actions: Actions,
    /// Workers that were told to stop.
    pub(super) stopped: WakeList,
    /// The waker that the run left before.
    pub(super) replaced: Option<Waker>,
    /// Whether there may be more to do at this very instant.
    pub(super) has_more: bool,
    /// The next deadline of the machine.
    pub(super) next: Option<Instant>,
    pub(super) report: Option<RunReport>,
}

/// Wakes the run when it is dropped: after a command, also if a waker at the gate panicked meanwhile.
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

    /// The same for tasks that call through a gate: `calls` names the task resources that stand for request
    /// resources.
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

    /// Gives the machine one command, without waking the run.
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

    /// Gives the machine one command and wakes the run. The caller drops the result outside the lock.
    fn command<R>(&self, command: impl FnOnce(&mut RunState, Instant) -> R) -> R {
        let notify = NotifyOnDrop(self);
        let result = self.apply(command);
        drop(notify);
        result
    }

    /// Wakes the run. One that nothing polls any more has its effects carried out instead.
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

    /// Brings the machine up to date, takes a batch of its effects, and leaves `waker` to be woken by the
    /// next change.
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

    /// Unregisters a run that is over from its gate. No worker is left that could wait there.
    pub(super) fn unregister(&self) {
        let registration = self.state.lock().take_registration();
        if let (Some(gate), Some(registration)) = (&self.gate, registration) {
            gate.unregister_run(registration);
        }
    }

    /// Reads the machine, or gives it a command that changes nothing for others.
    pub(super) fn read<R>(&self, read: impl FnOnce(&mut Recorded<Pipeline>) -> R) -> R {
        read(self.state.lock().pipeline())
    }

    /// Asks both machines for the events that are wanted.
    pub(super) fn set_interest(&self, interest: Interest, requests: RequestInterest) {
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
    /// Whether any worker may have been told to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Whether `worker` must stop. If not, `waker` is woken when it must.
    pub(super) fn watch_stop(&self, worker: WorkerId, waker: &Waker) -> bool {
        let waker = waker.clone();
        let (must_stop, replaced) = self.state.lock().watch_stop(worker, waker);
        drop(replaced);
        must_stop
    }

    /// Reports the end of `worker`; `None` if it was dropped before its end.
    pub(super) fn worker_ended(&self, worker: WorkerId, result: Option<Result<TaskOutcome, FatalError>>) {
        let unused_waker = self.command(|state, now| state.end_worker(now, worker, result));
        drop(unused_waker);
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
        // The gate keeps no run that has no handle.
        self.unregister();
    }
}
