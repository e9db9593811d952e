//! The job that saves one row group.

use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;

use super::Workload;
use super::job::{Failure, Job, JobKind};
use super::shared::Shared;
use crate::pipeline::{FinishedRowGroup, SaveError};
use crate::runtime::Host;

/// A job that saves one finished row group, spawned on the host by [`PipelineRun`](super::PipelineRun).
///
/// It runs to its end even if the run is cancelled or dropped. If it is dropped before its end, it reports
/// the group as not saved.
pub type Checkpoint<H, W> = Job<H, CheckpointKind<W>>;

/// The kind of job that saves a row group.
pub struct CheckpointKind<W> {
    row_group: u32,
    workload: PhantomData<fn(W)>,
}

impl<H: Host, W: Workload> Checkpoint<H, W> {
    pub(super) fn of_group(shared: Arc<Shared<H>>, workload: Arc<W>, group: FinishedRowGroup) -> Self {
        let kind = CheckpointKind { row_group: group.row_group, workload: PhantomData };
        Self::new(shared, kind, (workload, group))
    }
}

impl<W: Workload> JobKind for CheckpointKind<W> {
    type Start = (Arc<W>, FinishedRowGroup);
    type Work = W::Save;
    type Output = ();
    type Error = SaveError;

    const PANICKED: &'static str = "saving panicked";
    const PANICKED_IN_DROP: &'static str = "saving panicked when it was dropped";

    fn start((workload, group): Self::Start) -> W::Save {
        workload.checkpoint(group)
    }

    fn report<H: Host>(&mut self, shared: &Shared<H>, result: Option<Result<(), SaveError>>) {
        let lost = || Err(SaveError::from("saving did not finish: it panicked, or its host shut down"));
        shared.checkpoint_ended(self.row_group, result.unwrap_or_else(lost));
    }
}

impl From<Failure> for SaveError {
    fn from(Failure(message): Failure) -> Self {
        Self(message)
    }
}

impl<W> fmt::Debug for CheckpointKind<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").field("row_group", &self.row_group).finish()
    }
}
