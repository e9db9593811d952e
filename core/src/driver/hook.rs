//! One hook of a row group being called.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use super::Workload;
use super::shared::Shared;
use crate::panics;
use crate::pipeline::{Batch, FinishedRowGroup, HookError};
use crate::runtime::Host;

/// A hook of a row group under way, spawned on the host by [`Run`](super::Run).
///
/// It runs to its end also when the run is cancelled or dropped. Dropped half-way, it reports that the hook failed.
#[must_use = "a hook that is not polled is not called"]
pub struct HookCall<H, W>
where
    H: Host,
    W: Workload,
{
    // Gone before the machine learns the result.
    workload: Option<Arc<W>>,
    answer: Answer<H>,
}

impl<H: Host, W: Workload> HookCall<H, W> {
    pub(super) fn new(shared: Arc<Shared<H>>, workload: Arc<W>, owed: PendingHook) -> Self {
        Self { workload: Some(workload), answer: Answer { shared, owed: Some(owed) } }
    }
}

impl<H: Host, W: Workload> Future for HookCall<H, W> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Nothing in it is pinned.
        let Self { workload: kept, answer } = self.get_mut();
        let Some(workload) = kept else { return Poll::Ready(()) };
        match &answer.owed {
            Some(PendingHook::PreBatch(batch)) => {
                let row_group = batch.row_group;
                let polled = panics::catch(PANICKED, || workload.poll_pre_batch(*batch, context));
                let result = ready!(polled.unwrap_or_else(|message| Poll::Ready(Err(HookError(message)))));
                // One after the other: a workload that goes here and panics leaves the answer to `Answer`.
                *kept = None;
                answer.owed = None;
                answer.shared.pre_batch_ended(row_group, result);
            }
            Some(PendingHook::PostBatch(group)) => {
                let row_group = group.row_group;
                let polled = panics::catch(PANICKED, || workload.poll_post_batch(group, context));
                let result = ready!(polled.unwrap_or_else(|message| Poll::Ready(Err(HookError(message)))));
                *kept = None;
                answer.owed = None;
                answer.shared.post_batch_ended(row_group, result);
            }
            None => {}
        }
        Poll::Ready(())
    }
}

impl<H: Host, W: Workload> fmt::Debug for HookCall<H, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookCall").field("owed", &self.answer.owed).finish_non_exhaustive()
    }
}

const PANICKED: &str = "the hook panicked";

/// The answer the machine is owed for one hook. Dropped before it was given, it reports the hook as failed.
struct Answer<H: Host> {
    shared: Arc<Shared<H>>,
    owed: Option<PendingHook>,
}

/// For what.
#[derive(Debug)]
pub(super) enum PendingHook {
    PreBatch(Batch),
    PostBatch(FinishedRowGroup),
}

impl<H: Host> Drop for Answer<H> {
    fn drop(&mut self) {
        let why = || HookError(String::from("the hook was broken off: it panicked, or its host shut down"));
        match self.owed.take() {
            Some(PendingHook::PreBatch(batch)) => self.shared.pre_batch_ended(batch.row_group, Err(why())),
            Some(PendingHook::PostBatch(group)) => self.shared.post_batch_ended(group.row_group, Err(why())),
            None => {}
        }
    }
}
