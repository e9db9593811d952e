//! The async loop that runs a pipeline: the same in every host.
//!
//! [`run`] returns a future, [`Run`], that drives the [`Pipeline`]. It spawns a [`Worker`] for every task the
//! machine dispatches, a [`Checkpoint`] for every finished row group and a [`HookCall`] for every hook of
//! one. It keeps one sleep for the machine's next deadline, and resolves with the report. Each of these
//! [jobs](Job) reports its end to the machine itself and wakes the run, which then spawns what became
//! possible. Nothing polls in between.
//!
//! Only the run spawns. A host may drop what it was given to spawn, at once or later. A worker that is
//! dropped before its end, as by a runtime that shuts down, is reported as lost. That makes the run fatal, or
//! counts as cancelled if the run is cancelled anyway. Either way its lease is released. What a worker's
//! future owns is dropped before the machine gets the outcome, so a run that has ended holds nothing.
//!
//! No waker, no sink and no code of a workload runs under a lock. A panic in a [`Workload`] stops the run and
//! is in its report: as a fatal error if it was in a task, as a failed hook or checkpoint otherwise. So is a
//! panic in a [`TaskPolicy`](crate::task::TaskPolicy), as [`PolicyPanicked`](crate::pipeline::StopReason).
//! With the feature `std` it is caught where it happened and the report has its message; without, it unwinds
//! to the host, and the report says that the worker was lost. A waker that panics keeps no other task from
//! being woken: see [`gate`](crate::gate).

mod checkpoint;
mod hook;
mod job;
mod outbox;
mod shared;
mod state;
mod worker;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use pin_project_lite::pin_project;

pub use crate::pipeline::{FatalError, Progress, SaveError};
pub use checkpoint::Checkpoint;
pub use hook::HookCall;
pub use job::Job;
pub use worker::Worker;

use crate::gate::Gate;
use crate::gate::alarm::Alarm;
use crate::observe::Sinks;
use crate::pipeline::event::{Interest, SchedulerEvent};
use crate::pipeline::{
    Batch, FinishedRowGroup, HookError, Pipeline, PipelineCommand, ProviderDegraded, RunReport, Task, TaskOutcome,
};
use crate::replay::{Recorded, Stamped};
use crate::request::ResourceId;
use crate::runtime::{Host, Spawn};
use outbox::Outbox;
use shared::Shared;

/// How many batches of effects one poll carries out before it lets others run.
const ROUNDS: usize = 16;

/// What a run does: the tasks, and how finished rows are kept. Values of cells live here, never in the core.
pub trait Workload: 'static {
    /// One task under way. An error is a bug in the host or in user code, and stops the run; whatever is the
    /// matter with one row, or passes, is an outcome.
    type Work: Future<Output = Result<TaskOutcome, FatalError>>;
    /// One row group being saved.
    type Save: Future<Output = Result<(), SaveError>>;

    /// Begins `task`. Called in the worker that runs it, so that hosts with threads begin tasks on all of
    /// them.
    ///
    /// The future is dropped when the task is to stop; it then leaves nothing behind.
    ///
    /// A task of several calls should keep the answers it has for its next try: if each try began anew, tasks
    /// could refuse each other for ever where a provider serves fewer calls in a row than a task makes.
    fn work(&self, task: Task) -> Self::Work;

    /// Begins to save a row group: called once for each, after all its tasks have ended. It is never told to
    /// stop, so that nothing is saved by half.
    fn checkpoint(&self, group: FinishedRowGroup) -> Self::Save;

    /// Works on the pre-batch hook of a row group; ready with the rows to leave out, counted from 0 within
    /// it. Only for pipelines with [`pre_batch_hook`](crate::pipeline::PipelineConfig::pre_batch_hook).
    /// Leaves out none by default.
    ///
    /// Called once, and after each pending answer again when the waker of `context` was woken, so that a hook
    /// that awaits something keeps its future in the workload. It is never told to stop.
    fn poll_pre_batch(&self, batch: Batch, context: &mut Context<'_>) -> Poll<Result<Vec<u32>, HookError>> {
        let _ = (batch, context);
        Poll::Ready(Ok(Vec::new()))
    }

    /// Works on the post-batch hook of a row group, before its checkpoint begins. Called as
    /// [`Workload::poll_pre_batch`] is, for pipelines with
    /// [`post_batch_hook`](crate::pipeline::PipelineConfig::post_batch_hook). Does nothing by default.
    fn poll_post_batch(&self, group: &FinishedRowGroup, context: &mut Context<'_>) -> Poll<Result<(), HookError>> {
        let _ = (group, context);
        Poll::Ready(Ok(()))
    }

    /// A provider mostly fails, though not for good. For whoever watches the run; nothing by default.
    fn warn(&self, _warning: &ProviderDegraded) {}
}

/// Runs `pipeline` with the tasks of `workload` on `host`. Nothing begins before the returned future is
/// polled.
pub fn run<H, W>(host: H, pipeline: impl Into<Recorded<Pipeline>>, workload: Arc<W>) -> Run<H, W>
where
    H: Host + Spawn<Worker<H, W>> + Spawn<Checkpoint<H, W>> + Spawn<HookCall<H, W>>,
    W: Workload,
{
    let shared = Shared::new(host, pipeline.into());
    Run { alarm: Alarm::new(), workload, owner: Owner { shared }, sinks: None }
}

/// The same for tasks that make their calls through `gate`: the run and the gate decide together.
///
/// `calls` names the resources of the task stage that stand for one of the gate's, such as `request:model`:
/// tasks that would only wait there are passed over while others could call at once. And a worker that asks
/// the gate with the [`token`](Task::token) of its task
/// ([`AcquireOf::for_task`](crate::gate::AcquireOf::for_task)) gives back what it holds while it waits, and
/// gets it back together with its permit: see [`yielding`](crate::yielding).
///
/// Any number of runs may share one gate, and others may use it beside them. The run is on the gate's
/// [host](Gate::host).
pub fn run_through<H, W>(
    pipeline: impl Into<Recorded<Pipeline>>,
    workload: Arc<W>,
    gate: &Gate<H>,
    calls: &[(&str, ResourceId)],
) -> Run<H, W>
where
    H: Host + Spawn<Worker<H, W>> + Spawn<Checkpoint<H, W>> + Spawn<HookCall<H, W>>,
    W: Workload,
{
    let shared = Shared::through(pipeline.into(), gate, calls);
    Run { alarm: Alarm::new(), workload, owner: Owner { shared }, sinks: None }
}

pin_project! {
    /// A run of a pipeline. Made by [`run`] and [`run_through`].
    ///
    /// Dropping it before it is ready cancels the run: tasks under way are told to stop and every lease comes
    /// back, with nobody to await it. A checkpoint under way finishes by itself.
    #[must_use = "a run that is not awaited does nothing, and is cancelled when it is dropped"]
    pub struct Run<H, W>
    where
        H: Host,
        W: Workload,
    {
        #[pin]
        alarm: Alarm<H>,
        workload: Arc<W>,
        owner: Owner<H>,
        sinks: Option<Box<Sinks>>,
    }
}

impl<H: Host, W: Workload> Run<H, W> {
    /// A handle to watch and to cancel the run with, from anywhere.
    #[must_use]
    pub fn handle(&self) -> RunHandle<H> {
        RunHandle { shared: Arc::clone(&self.owner.shared) }
    }

    /// Lets `sinks` hear the events of the run and, of one that calls through a gate, the gate's: those of
    /// others who use the gate too. Call it before the run is polled. Events wait until the run is polled
    /// next, and are handed on outside any lock; a run that is dropped before its end tells no more.
    ///
    /// The gate's events go to one run only: of several that share a gate, give sinks for them to one.
    pub fn with_sinks(mut self, sinks: Sinks) -> Self {
        self.owner.shared.set_interest(sinks.scheduler_interest(), sinks.request_interest());
        self.sinks = Some(Box::new(sinks));
        self
    }
}

impl<H, W> Future for Run<H, W>
where
    H: Host + Spawn<Worker<H, W>> + Spawn<Checkpoint<H, W>> + Spawn<HookCall<H, W>>,
    W: Workload,
{
    type Output = RunReport;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<RunReport> {
        let mut this = self.project();
        let shared = &this.owner.shared;
        for _ in 0..ROUNDS {
            let mut step = shared.step(context.waker());
            // A panic of the host loses no wake-up, and a panic of a waker loses no action.
            Outbox::new(shared, this.workload, step.actions).carry_out();
            step.stopped.wake_all();
            drop(step.replaced);
            if let Some(sinks) = this.sinks {
                sinks.feed(|requests, scheduler| shared.take_events(requests, scheduler));
            }
            if let Some(report) = step.report {
                shared.unregister();
                this.sinks.take().into_iter().for_each(|mut sinks| sinks.finish());
                return Poll::Ready(report);
            }
            if !step.has_more {
                core::task::ready!(this.alarm.as_mut().poll_until(&shared.host, step.next, context));
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The run's own hold on what is shared: cancels the run when it is dropped before the end.
struct Owner<H: Host> {
    shared: Arc<Shared<H>>,
}

impl<H: Host> Drop for Owner<H> {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}

/// Watches and cancels a [`Run`]. Clones are handles to the same run; they do not keep it going.
pub struct RunHandle<H: Host> {
    shared: Arc<Shared<H>>,
}

impl<H: Host> RunHandle<H> {
    /// Winds the run down: no further row group is begun, and those in work are finished and saved. The
    /// report's reason is then [`StopReason::WoundDown`](crate::pipeline::StopReason::WoundDown). A
    /// run may still be cancelled meanwhile.
    pub fn wind_down(&self) {
        self.shared.wind_down();
    }

    /// Drains the run: calls that were let out end, and no other is let out. The run resolves then, whatever
    /// pause its providers are in. Row groups that are not complete are saved in part. This holds for calls
    /// that are asked for with the [token](crate::pipeline::Task::token) of their task; the run waits for all
    /// others.
    pub fn drain(&self) {
        self.shared.drain();
    }

    /// Stops the run: nothing more is begun, tasks under way are told to stop, and the run resolves once
    /// every lease is back. Row groups that are complete by then are kept.
    pub fn cancel(&self) {
        self.shared.cancel();
    }

    /// The commands of the run's pipeline that were recorded since the last call: see [`Recorded::start_recording`].
    #[must_use]
    pub fn take_commands(&self) -> Vec<Stamped<PipelineCommand>> {
        self.shared.read(Recorded::take_commands)
    }

    /// The hash over its decisions so far: see [`Recorded::decision_digest`].
    #[must_use]
    pub fn decision_digest(&self) -> u64 {
        self.shared.read(|pipeline| pipeline.decision_digest())
    }

    /// How far the run is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.shared.progress()
    }

    /// Reads the run's machine, for what [`RunHandle::progress`] does not say. `read` runs under the run's
    /// lock: it must be short, and must not call back into the run.
    pub fn inspect<R>(&self, read: impl FnOnce(&Pipeline) -> R) -> R {
        self.shared.read(|pipeline| read(pipeline))
    }

    /// Asks for the run's events of these kinds from now on, and for no others: for a host that takes events
    /// itself, with [`RunHandle::take_events`]. A run that was given [sinks](Run::with_sinks) takes them
    /// first.
    pub fn listen(&self, interest: Interest) {
        self.shared.read(|pipeline| pipeline.set_interest(interest));
    }

    /// Moves the events that wait to the end of `into`. They come whenever the run was polled or given a
    /// command; no more than [`MAX_PENDING`](crate::event::MAX_PENDING) wait.
    pub fn take_events(&self, into: &mut Vec<SchedulerEvent>) {
        self.shared.read(|pipeline| into.extend(core::iter::from_fn(|| pipeline.poll_event())));
    }
}

impl<H: Host> Clone for RunHandle<H> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<H: Host> fmt::Debug for RunHandle<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunHandle").finish_non_exhaustive()
    }
}

impl<H: Host, W: Workload> fmt::Debug for Run<H, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").finish_non_exhaustive()
    }
}
