//! The async driver of a pipeline. It is the same in every host.
//!
//! [`run`] returns a future, [`PipelineRun`], that drives the [`Pipeline`]. It spawns a [`Worker`] for every
//! dispatched task, a [`Checkpoint`] for every finished row group and a [`HookCall`] for every claim and hook
//! of a row group. It keeps one sleep for the machine's next deadline, and resolves with the report. Each of
//! these [jobs](Job) reports its end to the machine and wakes the run, which then spawns what became
//! possible. Nothing polls in between.
//!
//! Only the run spawns. A host may drop a spawned job at any time. A worker that is dropped before its end,
//! for example by a runtime that shuts down, is reported as lost. This makes the run fatal, or counts as
//! cancelled if the run is already cancelled. In both cases its lease is released. The future of a worker is
//! dropped before the machine gets the outcome, so a run that has ended holds nothing.
//!
//! No waker, sink or workload code runs under a lock. A panic in a [`Workload`] stops the run and appears in
//! its report: as a fatal error if it was in a task, or else as a failed hook or checkpoint. A panic in a
//! [`TaskPolicy`](crate::task::TaskPolicy) stops the run as [`PolicyPanicked`](crate::pipeline::StopReason).
//! With the feature `std`, a panic is caught where it happens and the report contains its message. Without
//! it, the panic unwinds to the host, and the report states that the worker was lost. A panicking waker does
//! not prevent other tasks from being woken: see [`gate`](crate::gate).

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
use crate::pipeline::event::{SchedulerEvent, SchedulerInterest};
use crate::pipeline::{
    ClaimedRowGroup, FinishedRowGroup, HookError, Pipeline, PipelineCommand, ProviderDegraded, RunReport,
    SeededRowGroup, Task, TaskOutcome,
};
use crate::replay::{Recorded, Stamped};
use crate::request::ResourceId;
use crate::runtime::{Host, Spawn};
use outbox::Outbox;
use shared::Shared;

/// The number of batches of effects that one poll handles before it yields to other tasks.
const ROUNDS: usize = 16;

/// The work of a run: how to run tasks and how to save finished rows. Cell values live here, never in the
/// core.
pub trait Workload: 'static {
    /// A running task. An error means a bug in the host or in user code, and stops the run. Problems of one
    /// row and temporary problems are outcomes instead.
    type Work: Future<Output = Result<TaskOutcome, FatalError>>;
    /// A row group that is being saved.
    type Save: Future<Output = Result<(), SaveError>>;

    /// Starts `task`. Called in the worker that runs it, so that hosts with threads start tasks on all of
    /// them.
    ///
    /// The future is dropped when the task must stop. It must then leave nothing behind.
    ///
    /// A task of several calls should keep its answers for the next try. If each try started anew, tasks
    /// could block each other forever at a provider that serves fewer calls in a row than one task makes.
    fn work(&self, task: Task) -> Self::Work;

    /// Starts to save a row group. Called once for each row group, after all its tasks have ended. Saving is
    /// never stopped, so nothing is saved by half.
    fn checkpoint(&self, group: FinishedRowGroup) -> Self::Save;

    /// Polls the claim of a row group that no other run computes. It resolves with the row group and its
    /// missing rows, or with `None` if none is left for this run. Called only for pipelines with
    /// [`claims_row_groups`](crate::pipeline::PipelineConfig::claims_row_groups). By default none is left.
    ///
    /// Called in the same way as [`Workload::poll_pre_batch`], for one row group at a time. A run that ends
    /// does not wait for it.
    fn poll_claim(&self, context: &mut Context<'_>) -> Poll<Result<Option<ClaimedRowGroup>, HookError>> {
        let _ = context;
        Poll::Ready(Ok(None))
    }

    /// Polls the pre-batch hook of a row group. It resolves with the rows to leave out, counted from 0 within
    /// the row group. Called only for pipelines with
    /// [`pre_batch_hook`](crate::pipeline::PipelineConfig::pre_batch_hook). By default no row is left out.
    ///
    /// Called once, and again whenever it returned pending and the waker of `context` was woken. A hook that
    /// awaits something must therefore keep its future in the workload. The hook is never stopped.
    fn poll_pre_batch(&self, group: SeededRowGroup, context: &mut Context<'_>) -> Poll<Result<Vec<u32>, HookError>> {
        let _ = (group, context);
        Poll::Ready(Ok(Vec::new()))
    }

    /// Polls the post-batch hook of a row group, before its checkpoint starts. Called in the same way as
    /// [`Workload::poll_pre_batch`], for pipelines with
    /// [`post_batch_hook`](crate::pipeline::PipelineConfig::post_batch_hook). Does nothing by default.
    fn poll_post_batch(&self, group: &FinishedRowGroup, context: &mut Context<'_>) -> Poll<Result<(), HookError>> {
        let _ = (group, context);
        Poll::Ready(Ok(()))
    }

    /// Reports that most of the latest answers of a provider were retryable failures. Only for observation.
    /// Does nothing by default.
    fn warn(&self, _warning: &ProviderDegraded) {}
}

/// Runs `pipeline` with the tasks of `workload` on `host`. Nothing starts before the returned future is
/// polled.
pub fn run<H, W>(host: H, pipeline: impl Into<Recorded<Pipeline>>, workload: Arc<W>) -> PipelineRun<H, W>
where
    H: Host + Spawn<Worker<H, W>> + Spawn<Checkpoint<H, W>> + Spawn<HookCall<H, W>>,
    W: Workload,
{
    let shared = Shared::new(host, pipeline.into());
    PipelineRun { alarm: Alarm::new(), workload, owner: Owner { shared }, sinks: None }
}

/// Runs `pipeline` with tasks that make their calls through `gate`. The run and the gate decide together.
///
/// `calls` maps task resources, such as `request:model`, to the request resources of the gate that they stand
/// for. Tasks that would only wait at the gate are skipped while other tasks could make calls at once. A
/// worker that acquires with the [`token`](Task::token) of its task
/// ([`AcquireOf::for_task`](crate::gate::AcquireOf::for_task)) releases its task resources while it waits,
/// and gets them back together with its permit: see [`yielding`](crate::yielding).
///
/// Several runs and other callers may share one gate. The run uses the [host](Gate::host) of the gate.
pub fn run_through<H, W>(
    pipeline: impl Into<Recorded<Pipeline>>,
    workload: Arc<W>,
    gate: &Gate<H>,
    calls: &[(&str, ResourceId)],
) -> PipelineRun<H, W>
where
    H: Host + Spawn<Worker<H, W>> + Spawn<Checkpoint<H, W>> + Spawn<HookCall<H, W>>,
    W: Workload,
{
    let shared = Shared::through(pipeline.into(), gate, calls);
    PipelineRun { alarm: Alarm::new(), workload, owner: Owner { shared }, sinks: None }
}

pin_project! {
    /// A run of a pipeline. Created by [`run`] and [`run_through`].
    ///
    /// Dropping it before it is ready cancels the run: running tasks are stopped and every lease is released,
    /// without anything to await. A running checkpoint finishes by itself.
    #[must_use = "a run that is not awaited does nothing, and is cancelled when it is dropped"]
    pub struct PipelineRun<H, W>
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

impl<H: Host, W: Workload> PipelineRun<H, W> {
    /// Returns a handle that watches and controls the run from anywhere.
    #[must_use]
    pub fn handle(&self) -> RunHandle<H> {
        RunHandle { shared: Arc::clone(&self.owner.shared) }
    }

    /// Sends the events of the run to `sinks`. Call it before the run is polled.
    ///
    /// For a run that calls through a gate, the sinks also get the events of the gate, including those of
    /// other users of the gate. The events of a gate go to one run only, so of several runs that share a
    /// gate, give request sinks to one.
    ///
    /// Events wait until the next poll of the run and are passed on outside any lock. A run that is dropped
    /// before its end emits no further events.
    pub fn with_sinks(mut self, sinks: Sinks) -> Self {
        self.owner.shared.set_interest(sinks.scheduler_interest(), sinks.request_interest());
        self.sinks = Some(Box::new(sinks));
        self
    }
}

impl<H, W> Future for PipelineRun<H, W>
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
            // If the host panics here, no wake-up is lost. If a waker panics, no action is lost.
            Outbox::new(shared, this.workload, step.actions).run_actions();
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

/// The run's reference to the shared data. Dropping it before the end cancels the run.
struct Owner<H: Host> {
    shared: Arc<Shared<H>>,
}

impl<H: Host> Drop for Owner<H> {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}

/// A handle that watches and controls a [`PipelineRun`]. Clones are handles to the same run. A handle does
/// not keep the run going.
pub struct RunHandle<H: Host> {
    shared: Arc<Shared<H>>,
}

impl<H: Host> RunHandle<H> {
    /// Winds the run down: no further row group is started, and started ones are finished and saved. The
    /// reason in the report is then [`StopReason::WoundDown`](crate::pipeline::StopReason::WoundDown). The
    /// run may still be cancelled afterwards.
    pub fn wind_down(&self) {
        self.shared.wind_down();
    }

    /// Drains the run: calls in flight end, and no further call is granted. The run then resolves, even if
    /// its providers are paused. Incomplete row groups are saved in part.
    ///
    /// This applies to calls that were requested with the [token](crate::pipeline::Task::token) of their
    /// task. The run waits for all other calls.
    pub fn drain(&self) {
        self.shared.drain();
    }

    /// Cancels the run: nothing more is started, running tasks are stopped, and the run resolves once every
    /// lease is released. Row groups that are complete by then are kept.
    pub fn cancel(&self) {
        self.shared.cancel();
    }

    /// Takes the commands of the run's pipeline that were recorded since the last call: see
    /// [`Recorded::start_recording`].
    #[must_use]
    pub fn take_commands(&self) -> Vec<Stamped<PipelineCommand>> {
        self.shared.read(Recorded::take_commands)
    }

    /// Returns the hash over the decisions of the run so far: see [`Recorded::decision_digest`].
    #[must_use]
    pub fn decision_digest(&self) -> u64 {
        self.shared.read(|pipeline| pipeline.decision_digest())
    }

    /// Returns the progress of the run.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.shared.progress()
    }

    /// Reads the run's machine, for details that [`RunHandle::progress`] does not include. `read` runs under
    /// the run's lock: it must be short, and must not call back into the run.
    pub fn inspect<R>(&self, read: impl FnOnce(&Pipeline) -> R) -> R {
        self.shared.read(|pipeline| read(pipeline))
    }

    /// Sets the kinds of events that the run emits from now on. For a host that takes events itself, with
    /// [`RunHandle::take_events`]. The [sinks](PipelineRun::with_sinks) of a run take them first.
    pub fn listen(&self, interest: SchedulerInterest) {
        self.shared.read(|pipeline| pipeline.set_interest(interest));
    }

    /// Moves the pending events to the end of `into`. New ones appear whenever the run is polled or gets a
    /// command. At most [`MAX_PENDING`](crate::event::MAX_PENDING) are kept.
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

impl<H: Host, W: Workload> fmt::Debug for PipelineRun<H, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelineRun").finish_non_exhaustive()
    }
}
