//! One task on its way: begun, watched, and answered for exactly once.

use alloc::sync::Arc;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use pin_project_lite::pin_project;

use super::Workload;
use super::shared::{LOST, Shared};
use crate::panics;
use crate::pipeline::{FatalError, Task, TaskOutcome, WorkerId};
use crate::runtime::Host;

pin_project! {
    /// A task of a run, spawned on the host by [`Run`](super::Run). Its lease exists before it does.
    ///
    /// It ends with the task, or as soon as it is told to stop. However it ends, dropped half-way included, the machine
    /// learns its outcome once, after the task's future is gone. A panic in the task ends it as fatal, with the message
    /// in the report, and does not reach the host where it can be caught (feature `std`).
    #[must_use = "a worker that is not polled ends as lost"]
    pub struct Worker<H, W>
    where
        H: Host,
        W: Workload,
    {
        // Fields are dropped in this order: what the task owns first, the answer to the machine last.
        #[pin]
        work: Option<W::Work>,
        // Taken at the first poll.
        task: Option<(Arc<W>, Task)>,
        answer: Answer<H>,
    }
}

impl<H: Host, W: Workload> Worker<H, W> {
    pub(super) fn new(shared: Arc<Shared<H>>, workload: Arc<W>, task: Task) -> Self {
        let answer = Answer { shared, worker: task.worker, watching: None, given: false };
        Self { work: None, task: Some((workload, task)), answer }
    }
}

impl<H: Host, W: Workload> Future for Worker<H, W> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        if this.answer.given {
            return Poll::Ready(());
        }
        let ended = if this.answer.is_is_stopped(context.waker()) {
            *this.task = None;
            Ok(TaskOutcome::Cancelled)
        } else {
            let polled = panics::catch("a task panicked", || {
                if let Some((workload, task)) = this.task.take() {
                    this.work.set(Some(workload.work(task)));
                }
                match this.work.as_mut().as_pin_mut() {
                    Some(work) => work.poll(context),
                    // Only after a panic in `Workload::work` that went on to a host that goes on polling.
                    None => Poll::Ready(Err(FatalError::from(LOST))),
                }
            });
            core::task::ready!(polled.unwrap_or_else(|message| Poll::Ready(Err(FatalError(message)))))
        };
        let dropped = panics::catch("a task panicked when it was dropped", || this.work.set(None));
        this.answer.give(ended.and_then(|outcome| dropped.map(|()| outcome).map_err(FatalError)));
        Poll::Ready(())
    }
}

impl<H: Host, W: Workload> fmt::Debug for Worker<H, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("worker", &self.answer.worker).finish_non_exhaustive()
    }
}

/// The outcome the machine is owed for one worker. Dropped before it was given, it reports the worker as lost.
struct Answer<H: Host> {
    shared: Arc<Shared<H>>,
    worker: WorkerId,
    /// The waker left at the worker's entry.
    watching: Option<Waker>,
    given: bool,
}

impl<H: Host> Answer<H> {
    /// Takes the lock only for a waker that is not at the entry yet, or once the run is telling workers to stop.
    fn is_is_stopped(&mut self, waker: &Waker) -> bool {
        let watched = self.watching.as_ref().is_some_and(|watching| watching.will_wake(waker));
        if watched && !self.shared.is_stopping() {
            return false;
        }
        if !watched {
            self.watching = Some(waker.clone());
        }
        self.shared.watch(self.worker, waker)
    }

    fn give(&mut self, ended: Result<TaskOutcome, FatalError>) {
        self.given = true;
        self.shared.worker_ended(self.worker, Some(ended));
    }
}

impl<H: Host> Drop for Answer<H> {
    fn drop(&mut self) {
        if !self.given {
            self.shared.worker_ended(self.worker, None);
        }
    }
}
