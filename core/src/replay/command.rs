//! What machines are told.

use alloc::string::String;
use alloc::vec::Vec;

use crate::budget::{BudgetConfig, Correction};
use crate::id::SlotKey;
use crate::lease::LeaseId;
use crate::limit::LimitChoice;
use crate::pipeline::{ColumnId, PolicyChoice, TaskOutcome, WorkerId};
use crate::request::{AimdConfig, Completion, Domain, ProviderModelId, Request, RequestPressure, ResourceId, WaiterId};
use crate::time::Instant;
use crate::yielding::YieldToken;

/// A command of either machine.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Command {
    /// Of the [`Pipeline`](crate::pipeline::Pipeline).
    Run(RunCommand),
    /// Of the [`RequestAdmission`](crate::request::RequestAdmission).
    Request(RequestCommand),
}

/// A command of a [`Pipeline`](crate::pipeline::Pipeline): its methods by name.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", tag = "do"))]
#[expect(missing_docs, reason = "the arguments of the method of that name")]
#[non_exhaustive]
pub enum RunCommand {
    /// Also its calls, as the resources that stand for them.
    CallThrough {
        run: SlotKey,
        calls: Vec<(String, ResourceId)>,
    },
    Start {
        now: Instant,
    },
    HandleTimeout {
        now: Instant,
    },
    TaskFinished {
        now: Instant,
        worker: WorkerId,
        outcome: TaskOutcome,
    },
    TaskBroke {
        now: Instant,
        worker: WorkerId,
        cause: String,
    },
    SpawnFailed {
        now: Instant,
        worker: WorkerId,
    },
    /// `left_out` or the error.
    PreBatchFinished {
        now: Instant,
        row_group: u32,
        result: Result<Vec<u32>, String>,
    },
    PostBatchFinished {
        now: Instant,
        row_group: u32,
        result: Result<(), String>,
    },
    CheckpointFinished {
        now: Instant,
        row_group: u32,
        result: Result<(), String>,
    },
    /// `looked`: it was seen with the next command, and told of to nobody.
    SetRequestPressure {
        now: Instant,
        resource: String,
        #[cfg_attr(feature = "serde", serde(default))]
        pressure: Option<RequestPressure>,
        looked: bool,
    },
    GoOn {
        now: Instant,
    },
    SetPolicy {
        now: Instant,
        policy: PolicyChoice,
    },
    SetWeight {
        now: Instant,
        column: ColumnId,
        weight: f64,
    },
    Drain {
        now: Instant,
    },
    Cancel {
        now: Instant,
    },
}

/// A command of a [`RequestAdmission`](crate::request::RequestAdmission): its methods by name.
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
        config: AimdConfig,
    },
    Reconfigure {
        now: Instant,
        resource: ResourceId,
        config: AimdConfig,
    },
    ChooseAlgorithm {
        now: Instant,
        resource: ResourceId,
        choice: LimitChoice,
    },
    /// Code cannot be taken down: replaying this is an error.
    SetAlgorithm {
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
        said: Correction,
    },
    Group {
        name: String,
        weight: f64,
    },
    SetResourceWeight {
        resource: ResourceId,
        weight: f64,
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
        token: YieldToken,
    },
    ResumeYielded {
        now: Instant,
    },
    Cancel {
        now: Instant,
        waiter: WaiterId,
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
