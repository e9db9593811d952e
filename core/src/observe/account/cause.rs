//! The causes of idle slots. Each idle slot has exactly one cause at each instant.

use alloc::string::String;
use core::fmt;

/// Why a slot of a resource is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum IdleCause {
    /// The next tasks wait for tasks that are running.
    DependencyHorizon,
    /// All tasks of the row groups in progress that can run are running. Further row groups wait for the cap
    /// or target of row groups.
    RowGroupTarget,
    /// No worker runs, and a row group waits for its hook or its checkpoint.
    HookOrCheckpoint,
    /// No worker runs, and the remaining tasks are delayed until their next attempt.
    #[cfg_attr(feature = "serde", serde(rename = "retry_pause"))]
    RetryDelay,
    /// The run is stopping, or has no work left.
    RunEnding,
    /// A queued task needs the resource, and too few of its slots are free for that task.
    TooFewSlots,
    /// Every queued task that needs the resource is short of another resource, which
    /// [`CauseShare::resource`] names.
    OtherResource,
    /// A queued task's group has used its share.
    GroupCap,
    /// A queued task's group has reached its borrowing limit, or must repay its debt first.
    BorrowDebt,
    /// The task policy denies a queued task for a reason of its own.
    Policy,
    /// A queued task could start, but yielded workers resume first.
    YieldedFirst,
    /// A queued task could start, and no event explains why it does not.
    Unexplained,
    /// No call waits, while tasks are queued for a worker.
    TaskAdmission,
    /// Calls wait, and the adaptive limit is below the maximum.
    RequestLimit,
    /// Calls wait for a provider that is down.
    Outage,
    /// Calls wait for a cooldown to end.
    Cooldown,
    /// Calls wait, because other domains use the cap that the provider and model share.
    ProviderCap,
    /// Calls wait whose workers have yielded and cannot get their task resources back yet.
    TaskSlots,
    /// Calls wait although a slot is free for them: a budget is spent, or another waiter goes first.
    RequestTurn,
}

impl IdleCause {
    /// Returns whether something waited for the resource. These are the causes of starved idle time; the
    /// others are causes of frontier idle time.
    #[must_use]
    pub const fn is_starved(self) -> bool {
        !matches!(
            self,
            Self::DependencyHorizon
                | Self::RowGroupTarget
                | Self::HookOrCheckpoint
                | Self::RetryDelay
                | Self::RunEnding
                | Self::TaskAdmission
        )
    }

    /// Returns a description of the cause.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DependencyHorizon => "the next tasks wait for running ones",
            Self::RowGroupTarget => "no more row groups are admitted",
            Self::HookOrCheckpoint => "a hook or a checkpoint is under way",
            Self::RetryDelay => "failed tasks are delayed",
            Self::RunEnding => "the run is ending",
            Self::TooFewSlots => "the next task needs more than is free",
            Self::OtherResource => "another resource is short",
            Self::GroupCap => "the group has its share",
            Self::BorrowDebt => "the group has borrowed as much as it may",
            Self::Policy => "the policy denies the next task",
            Self::YieldedFirst => "workers that yielded go first",
            Self::Unexplained => "no event explains it",
            Self::TaskAdmission => "tasks wait for a worker",
            Self::RequestLimit => "the adaptive limit is below the maximum",
            Self::Outage => "the provider is down",
            Self::Cooldown => "a cooldown is in force",
            Self::ProviderCap => "other domains use the provider's cap",
            Self::TaskSlots => "yielded workers wait for their task resources",
            Self::RequestTurn => "a budget is spent, or another waiter goes first",
        }
    }
}

impl fmt::Display for IdleCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The part of a resource's idle time that has one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct CauseShare {
    /// The cause.
    pub cause: IdleCause,
    /// The resource that is short, for [`IdleCause::OtherResource`].
    pub resource: Option<String>,
    /// The idle time in slot-nanoseconds.
    pub slot_ns: u128,
}
