//! One row group being saved.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::Workload;
use super::shared::Shared;
use crate::executor::Host;
use crate::pipeline::{FinishedRowGroup, SaveError};

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
        if let Some((workload, group)) = this.group.take() {
            this.save.set(Some(workload.checkpoint(group)));
        }
        let Some(save) = this.save.as_mut().as_pin_mut() else { return Poll::Ready(()) };
        let result = core::task::ready!(save.poll(context));
        this.save.set(None);
        this.answer.give(result);
        Poll::Ready(())
    }
}

impl<H: Host, W: Workload> fmt::Debug for Checkpoint<H, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").field("row_group", &self.answer.row_group).finish_non_exhaustive()
    }
}

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
            self.give(Err(SaveError(String::from("saving was broken off: it panicked, or its host shut down"))));
        }
    }
}
