//! The jobs that a run spawns on its host. A job is a future of the workload that reports its end to the
//! machine exactly once.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker, ready};

use pin_project_lite::pin_project;

use super::shared::Shared;
use crate::panics;
use crate::runtime::Host;

/// A kind of job: the workload code that it runs, and how its result is reported.
pub trait JobKind: fmt::Debug {
    /// The input that the future is made from.
    type Start;
    /// The future of the workload.
    type Work: Future<Output = Result<Self::Output, Self::Error>>;
    /// The output of a successful job.
    type Output;
    /// The error of a failed job.
    type Error: From<Failure>;

    /// The start of the error message for a panic.
    const PANICKED: &'static str;
    /// The start of the error message for a panic while the future is dropped.
    const PANICKED_IN_DROP: &'static str;

    /// Starts the future of the workload.
    fn start(start: Self::Start) -> Self::Work;

    /// Returns the output of a job that must stop. Otherwise returns `None` and arranges that `waker` is
    /// woken when it must.
    fn poll_stop<H: Host>(&mut self, _shared: &Shared<H>, _waker: &Waker) -> Option<Self::Output> {
        None
    }

    /// Reports the result to the machine. `None` means that the job was dropped before its end.
    fn report<H: Host>(&mut self, shared: &Shared<H>, result: Option<Result<Self::Output, Self::Error>>);
}

/// A failure that is not an error of the workload: a panic, or the drop of the job before its end.
#[derive(Debug)]
pub struct Failure(pub(super) String);

pin_project! {
    /// A job of a run, spawned on the host by [`PipelineRun`](super::PipelineRun). Its kinds are
    /// [`Worker`](super::Worker), [`Checkpoint`](super::Checkpoint) and [`HookCall`](super::HookCall).
    ///
    /// The machine gets the result exactly once, after the future of the workload is dropped. This also holds
    /// for a job that is dropped before its end. With the feature `std`, a panic in the workload becomes an
    /// error with the panic's message and does not reach the host.
    #[must_use = "a job that is not polled ends as lost"]
    pub struct Job<H, K>
    where
        H: Host,
        K: JobKind,
    {
        // Fields are dropped in this order, so the report to the machine comes last.
        #[pin]
        work: Option<K::Work>,
        // Taken at the first poll.
        start: Option<K::Start>,
        report: Report<H, K>,
    }
}

impl<H: Host, K: JobKind> Job<H, K> {
    pub(super) fn new(shared: Arc<Shared<H>>, kind: K, start: K::Start) -> Self {
        Self { work: None, start: Some(start), report: Report { shared, kind, is_sent: false } }
    }
}

impl<H: Host, K: JobKind> Future for Job<H, K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        if this.report.is_sent {
            return Poll::Ready(());
        }
        let polled = panics::catch(K::PANICKED, || {
            if let Some(output) = this.report.kind.poll_stop(&this.report.shared, context.waker()) {
                return Poll::Ready(Some(Ok(output)));
            }
            if let Some(start) = this.start.take() {
                this.work.set(Some(K::start(start)));
            }
            match this.work.as_mut().as_pin_mut() {
                Some(work) => work.poll(context).map(Some),
                // Reached only if `K::start` panicked, the panic unwound to the host, and the host polls
                // again.
                None => Poll::Ready(None),
            }
        });
        let failed = |message| Poll::Ready(Some(Err(K::Error::from(Failure(message)))));
        let result = ready!(polled.unwrap_or_else(failed));
        let dropped = panics::catch(K::PANICKED_IN_DROP, || {
            *this.start = None;
            this.work.set(None);
        });
        let result = match (result, dropped) {
            (Some(Ok(_)), Err(message)) => Some(Err(K::Error::from(Failure(message)))),
            (result, _) => result,
        };
        this.report.send(result);
        Poll::Ready(())
    }
}

impl<H: Host, K: JobKind> fmt::Debug for Job<H, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("kind", &self.report.kind).finish_non_exhaustive()
    }
}

/// The report that the machine waits for. If it is dropped before it is sent, it reports the job as lost.
struct Report<H: Host, K: JobKind> {
    shared: Arc<Shared<H>>,
    kind: K,
    is_sent: bool,
}

impl<H: Host, K: JobKind> Report<H, K> {
    fn send(&mut self, result: Option<Result<K::Output, K::Error>>) {
        // Set first, so that a panicking waker does not cause a second report.
        self.is_sent = true;
        self.kind.report(&self.shared, result);
    }
}

impl<H: Host, K: JobKind> Drop for Report<H, K> {
    fn drop(&mut self) {
        if !self.is_sent {
            self.send(None);
        }
    }
}
