//! The job that makes one call of the workload: it claims a row group, or runs a hook of one.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};

use super::Workload;
use super::job::{Failure, Job, JobKind};
use super::shared::Shared;
use super::state::PendingHook;
use crate::pipeline::HookError;
use crate::runtime::Host;

/// A job that claims a row group or calls one hook of it, spawned on the host by
/// [`PipelineRun`](super::PipelineRun).
///
/// It runs to its end even if the run is cancelled or dropped. If it is dropped before its end, it reports
/// that the hook failed.
pub type HookCall<H, W> = Job<H, HookKind<W>>;

/// The kind of job that calls a hook.
pub struct HookKind<W> {
    target: HookTarget,
    workload: PhantomData<fn(W)>,
}

/// The hook that is called, and its row group.
#[derive(Clone, Copy, Debug)]
enum HookTarget {
    Claim,
    PreBatch(u32),
    PostBatch(u32),
}

/// The hook of a workload, as a future. It resolves with the rows to leave out (pre-batch), the claimed row
/// group if there is one (claim), or nothing (post-batch).
pub struct HookWork<W> {
    workload: Arc<W>,
    pending: PendingHook,
}

impl<H: Host, W: Workload> HookCall<H, W> {
    pub(super) fn of_hook(shared: Arc<Shared<H>>, workload: Arc<W>, pending: PendingHook) -> Self {
        let target = match &pending {
            PendingHook::Claim => HookTarget::Claim,
            PendingHook::PreBatch(batch) => HookTarget::PreBatch(batch.row_group),
            PendingHook::PostBatch(group) => HookTarget::PostBatch(group.row_group),
        };
        let kind = HookKind { target, workload: PhantomData };
        Self::new(shared, kind, HookWork { workload, pending })
    }
}

impl<W: Workload> Future for HookWork<W> {
    type Output = Result<Vec<u32>, HookError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &self.pending {
            PendingHook::Claim => self.workload.poll_claim(context).map_ok(Vec::from_iter),
            PendingHook::PreBatch(batch) => self.workload.poll_pre_batch(*batch, context),
            PendingHook::PostBatch(group) => self.workload.poll_post_batch(group, context).map_ok(|()| Vec::new()),
        }
    }
}

impl<W: Workload> JobKind for HookKind<W> {
    type Start = HookWork<W>;
    type Work = HookWork<W>;
    type Output = Vec<u32>;
    type Error = HookError;

    const PANICKED: &'static str = "the hook panicked";
    const PANICKED_IN_DROP: &'static str = "the hook panicked when it was dropped";

    fn start(start: HookWork<W>) -> HookWork<W> {
        start
    }

    fn report<H: Host>(&mut self, shared: &Shared<H>, result: Option<Result<Vec<u32>, HookError>>) {
        let lost = || Err(HookError::from("the hook did not finish: it panicked, or its host shut down"));
        let result = result.unwrap_or_else(lost);
        match self.target {
            HookTarget::Claim => shared.claim_ended(result.map(|claimed| claimed.first().copied())),
            HookTarget::PreBatch(row_group) => shared.pre_batch_ended(row_group, result),
            HookTarget::PostBatch(row_group) => shared.post_batch_ended(row_group, result.map(drop)),
        }
    }
}

impl From<Failure> for HookError {
    fn from(Failure(message): Failure) -> Self {
        Self(message)
    }
}

impl<W> fmt::Debug for HookWork<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookWork").finish_non_exhaustive()
    }
}

impl<W> fmt::Debug for HookKind<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookKind").field("target", &self.target).finish()
    }
}
