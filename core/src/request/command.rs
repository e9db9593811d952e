//! The commands of request admission as values, for recording and replay.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::keys::{Domain, ProviderModelId, Request, ResourceId};
use super::result::{Retry, WaiterId};
use crate::budget::{BudgetConfig, RateLimitFeedback, WalletLease};
use crate::call::Completion;
use crate::lease::LeaseId;
use crate::limit::{LimitChoice, LimitConfig};
use crate::share::{LeaderCommand, MemberCommand, MemberId, SessionSettings};
use crate::time::{Duration, Instant};
use crate::yielding::TaskToken;

/// A command of a [`RequestAdmission`](super::RequestAdmission): one variant for each method, with the
/// method's arguments.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", tag = "do"))]
#[expect(missing_docs, reason = "the arguments of the method of that name")]
#[non_exhaustive]
pub enum RequestCommand {
    Register {
        now: Instant,
        provider: String,
        model: String,
        alias: String,
        max_parallel: u32,
    },
    Resource {
        owner: ProviderModelId,
        domain: Domain,
    },
    Configure {
        now: Instant,
        resource: ResourceId,
        config: LimitConfig,
    },
    Reconfigure {
        now: Instant,
        resource: ResourceId,
        config: LimitConfig,
    },
    ChooseAlgorithm {
        now: Instant,
        resource: ResourceId,
        choice: LimitChoice,
    },
    /// A custom algorithm cannot be recorded, so replaying this command is an error.
    SetAlgorithm {
        now: Instant,
        resource: ResourceId,
    },
    /// The limit of the resource becomes a share of one that several processes [share](crate::share).
    ShareLimit {
        now: Instant,
        resource: ResourceId,
        id: MemberId,
        seed: u64,
        settings: Box<SessionSettings>,
    },
    /// A command of the [`Member`](crate::share::Member) `id`. It has no effect if this member is not the
    /// limit of the resource any more.
    DriveMember {
        now: Instant,
        resource: ResourceId,
        id: MemberId,
        command: MemberCommand,
    },
    /// A command of the [`Coordinator`](crate::share::Coordinator) of the process with the member `id`. It
    /// changes nothing of the resource. `now` is the leader's instant: that of the host, plus the time for
    /// which the machine was suspended.
    DriveLeader {
        now: Instant,
        resource: ResourceId,
        id: MemberId,
        command: LeaderCommand,
    },
    RefreshLimit {
        now: Instant,
        resource: ResourceId,
    },
    SetSuspended {
        suspended: Duration,
    },
    LeaseBudgets {
        now: Instant,
        resource: ResourceId,
        lease: WalletLease,
    },
    ReportBudgets {
        now: Instant,
        resource: ResourceId,
    },
    SetBudgets {
        now: Instant,
        resource: ResourceId,
        budgets: Vec<BudgetConfig>,
    },
    CorrectBudget {
        now: Instant,
        resource: ResourceId,
        correction: RateLimitFeedback,
    },
    RateLimitFeedback {
        now: Instant,
        lease: LeaseId,
        corrections: Vec<RateLimitFeedback>,
    },
    Group {
        name: String,
        weight: f64,
    },
    SetResourceWeight {
        resource: ResourceId,
        weight: f64,
    },
    Fallbacks {
        resources: Vec<ResourceId>,
    },
    TryAcquire {
        now: Instant,
        request: Request,
    },
    Acquire {
        now: Instant,
        request: Request,
    },
    AcquireYielding {
        now: Instant,
        request: Request,
        token: TaskToken,
    },
    ResumeYielded {
        now: Instant,
    },
    DenyStopping {
        now: Instant,
    },
    Cancel {
        now: Instant,
        waiter: WaiterId,
    },
    Retry {
        now: Instant,
        request: Request,
        retry: Retry,
    },
    RetryYielding {
        now: Instant,
        request: Request,
        retry: Retry,
        token: TaskToken,
    },
    Finish {
        now: Instant,
        lease: LeaseId,
        done: Completion,
    },
    Reopen {
        now: Instant,
        model: ProviderModelId,
    },
    SetPaused {
        now: Instant,
        model: ProviderModelId,
        is_paused: bool,
    },
    SetHealthCalls {
        now: Instant,
        resource: ResourceId,
        makes_them: bool,
    },
    Release {
        now: Instant,
        lease: LeaseId,
        done: Completion,
    },
    HandleTimeout {
        now: Instant,
    },
    Shutdown {
        now: Instant,
    },
}
