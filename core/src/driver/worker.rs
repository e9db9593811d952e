//! The job that runs one task.

use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::task::Waker;

use super::Workload;
use super::job::{Failure, Job, JobKind};
use super::shared::Shared;
use crate::pipeline::{FatalError, Task, TaskOutcome, WorkerId};
use crate::runtime::Host;

/// A job that runs one task, spawned on the host by [`PipelineRun`](super::PipelineRun). The lease of the
/// task exists before the worker does.
///
/// It ends with the task, or as soon as it must stop. A panic in the task makes the run fatal.
pub type Worker<H, W> = Job<H, WorkerKind<W>>;

/// The kind of job that runs a task.
pub struct WorkerKind<W> {
    worker: WorkerId,
    /// The waker that the run wakes when this worker must stop.
    stop_waker: Option<Waker>,
    workload: PhantomData<fn(W)>,
}

impl<H: Host, W: Workload> Worker<H, W> {
    pub(super) fn of_task(shared: Arc<Shared<H>>, workload: Arc<W>, task: Task) -> Self {
        let kind = WorkerKind { worker: task.worker, stop_waker: None, workload: PhantomData };
        Self::new(shared, kind, (workload, task))
    }
}

impl<W: Workload> JobKind for WorkerKind<W> {
    type Start = (Arc<W>, Task);
    type Work = W::Work;
    type Output = TaskOutcome;
    type Error = FatalError;

    const PANICKED: &'static str = "a task panicked";
    const PANICKED_IN_DROP: &'static str = "a task panicked when it was dropped";

    fn start((workload, task): Self::Start) -> W::Work {
        workload.work(task)
    }

    /// Takes the lock only to register a new waker, or once the run has requested a stop of workers.
    fn poll_stop<H: Host>(&mut self, shared: &Shared<H>, waker: &Waker) -> Option<TaskOutcome> {
        let is_registered = self.stop_waker.as_ref().is_some_and(|stop_waker| stop_waker.will_wake(waker));
        if is_registered && !shared.is_stopping() {
            return None;
        }
        let must_stop = shared.watch_stop(self.worker, waker);
        if !is_registered {
            self.stop_waker = Some(waker.clone());
        }
        must_stop.then_some(TaskOutcome::Cancelled)
    }

    fn report<H: Host>(&mut self, shared: &Shared<H>, result: Option<Result<TaskOutcome, FatalError>>) {
        shared.worker_ended(self.worker, result);
    }
}

impl From<Failure> for FatalError {
    fn from(Failure(message): Failure) -> Self {
        Self(message)
    }
}

impl<W> fmt::Debug for WorkerKind<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Worker").field(&self.worker).finish()
    }
}
