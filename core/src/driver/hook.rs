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
use crate::pipeline::{ClaimedRowGroup, HookError};
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

/// What a hook resolves with.
#[derive(Debug)]
pub enum HookResult {
    /// The claimed row group, if there is one.
    Claimed(Option<ClaimedRowGroup>),
    /// The rows to leave out. None after a post-batch hook.
    LeftOut(Vec<u32>),
}

/// The hook of a workload, as a future.
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
    type Output = Result<HookResult, HookError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &self.pending {
            PendingHook::Claim => self.workload.poll_claim(context).map_ok(HookResult::Claimed),
            PendingHook::PreBatch(batch) => self.workload.poll_pre_batch(*batch, context).map_ok(HookResult::LeftOut),
            PendingHook::PostBatch(group) => {
                self.workload.poll_post_batch(group, context).map_ok(|()| HookResult::LeftOut(Vec::new()))
            }
        }
    }
}

impl<W: Workload> JobKind for HookKind<W> {
    type Start = HookWork<W>;
    type Work = HookWork<W>;
    type Output = HookResult;
    type Error = HookError;

    const PANICKED: &'static str = "the hook panicked";
    const PANICKED_IN_DROP: &'static str = "the hook panicked when it was dropped";

    fn start(start: HookWork<W>) -> HookWork<W> {
        start
    }

    fn report<H: Host>(&mut self, shared: &Shared<H>, result: Option<Result<HookResult, HookError>>) {
        let lost = || Err(HookError::from("the hook did not finish: it panicked, or its host shut down"));
        let result = result.unwrap_or_else(lost);
        match self.target {
            HookTarget::Claim => shared.claim_ended(result.map(HookResult::claimed)),
            HookTarget::PreBatch(row_group) => shared.pre_batch_ended(row_group, result.map(HookResult::left_out)),
            HookTarget::PostBatch(row_group) => shared.post_batch_ended(row_group, result.map(drop)),
        }
    }
}

impl HookResult {
    fn claimed(self) -> Option<ClaimedRowGroup> {
        match self {
            Self::Claimed(claimed) => claimed,
            Self::LeftOut(_) => None,
        }
    }

    fn left_out(self) -> Vec<u32> {
        match self {
            Self::LeftOut(rows) => rows,
            Self::Claimed(_) => Vec::new(),
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
