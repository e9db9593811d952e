//! One row group being saved.

use alloc::sync::Arc;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::Workload;
use super::shared::Shared;
use crate::panics;
use crate::pipeline::{FinishedRowGroup, SaveError};
use crate::runtime::Host;

pin_project! {
    /// A finished row group on its way to be saved, spawned on the host by [`Run`](super::Run).
    ///
    /// It runs to its end also when the run is cancelled or dropped. Dropped half-way, it reports the group as not
    /// saved.
    #[must_use = "a checkpoint that is not polled saves nothing"]
    pub struct Checkpoint<H, W>
    where
        H: Host,
        W: Workload,
    {
        // Fields are dropped in this order: what saving owns first, the answer to the machine last.
        #[pin]
        save: Option<W::Save>,
        // Taken at the first poll.
        group: Option<(Arc<W>, FinishedRowGroup)>,
        answer: Answer<H>,
    }
}

impl<H: Host, W: Workload> Checkpoint<H, W> {
    pub(super) fn new(shared: Arc<Shared<H>>, workload: Arc<W>, group: FinishedRowGroup) -> Self {
        let answer = Answer { shared, row_group: group.row_group, given: false };
        Self { save: None, group: Some((workload, group)), answer }
    }
}

impl<H: Host, W: Workload> Future for Checkpoint<H, W> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        if this.answer.given {
            return Poll::Ready(());
        }
        let polled = panics::catch("saving panicked", || {
            if let Some((workload, group)) = this.group.take() {
                this.save.set(Some(workload.checkpoint(group)));
            }
            match this.save.as_mut().as_pin_mut() {
                Some(save) => save.poll(context),
                // Only after a panic in `Workload::checkpoint` that went on to a host that goes on polling.
                None => Poll::Ready(Err(SaveError::from(LOST))),
            }
        });
        let result = core::task::ready!(polled.unwrap_or_else(|message| Poll::Ready(Err(SaveError(message)))));
        let dropped = panics::catch("saving panicked when it was dropped", || this.save.set(None));
        this.answer.give(result.and(dropped.map_err(SaveError)));
        Poll::Ready(())
    }
}

impl<H: Host, W: Workload> fmt::Debug for Checkpoint<H, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").field("row_group", &self.answer.row_group).finish_non_exhaustive()
    }
}

/// What is known of a checkpoint that its host dropped.
const LOST: &str = "saving was broken off: it panicked, or its host shut down";

/// The result the machine is owed for one row group. Dropped before it was given, it reports the group as not saved.
struct Answer<H: Host> {
    shared: Arc<Shared<H>>,
    row_group: u32,
    given: bool,
}

impl<H: Host> Answer<H> {
    fn give(&mut self, result: Result<(), SaveError>) {
        self.given = true;
        self.shared.checkpoint_ended(self.row_group, result);
    }
}

impl<H: Host> Drop for Answer<H> {
    fn drop(&mut self) {
        if !self.given {
            self.give(Err(SaveError::from(LOST)));
        }
    }
}
