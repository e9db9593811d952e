//! Why a slot is idle: exactly one cause for each slot at each instant.

use alloc::string::String;
use core::fmt;

/// Why a slot of a resource is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum IdleCause {
    /// What could be made next waits for tasks that run.
    DependencyHorizon,
    /// All that the row groups in work need now is under way; further ones wait for the row-group cap or
    /// target.
    RowGroupTarget,
    /// No worker runs: a row group waits for its hook or its checkpoint.
    HookOrCheckpoint,
    /// No worker runs: the tasks that are left are paused until they may be tried again.
    RetryPause,
    /// The run is stopping, or has nothing left to do.
    RunEnding,
    /// A queued task wants it, and not enough of it is free for that task.
    TooFewSlots,
    /// Every queued task that wants it is short of another resource, which is named.
    OtherResource,
    /// A queued task's group has its share.
    GroupCap,
    /// A queued task's group has borrowed as much as it may.
    BorrowDebt,
    /// The task policy says no for a reason of its own.
    Policy,
    /// A queued task could start, but workers that yielded go first.
    YieldedFirst,
    /// A queued task could start, and the stream does not say what keeps it.
    Unexplained,
    /// Nobody asks for a call, while tasks are queued for a worker.
    TaskAdmission,
    /// Calls wait, and the adaptive limit is below the maximum.
    RequestLimit,
    /// Calls wait for a provider that is down.
    Outage,
    /// Calls wait for a cooldown to end.
    Cooldown,
    /// Calls wait: other domains use the cap that the provider and model share.
    ProviderCap,
    /// Calls wait whose workers have yielded and cannot have their task resources back yet.
    TaskSlots,
    /// Calls wait, and a slot is open for them: for a budget, or for somebody whose turn is first.
    RequestTurn,
}

impl IdleCause {
    /// Whether something wanted the resource: the causes of starved idle time, as opposed to frontier idle
    /// time.
    #[must_use]
    pub const fn is_starved(self) -> bool {
        !matches!(
            self,
            Self::DependencyHorizon
                | Self::RowGroupTarget
                | Self::HookOrCheckpoint
                | Self::RetryPause
                | Self::RunEnding
                | Self::TaskAdmission
        )
    }

    /// The cause in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DependencyHorizon => "the next tasks wait for running ones",
            Self::RowGroupTarget => "no more row groups are admitted",
            Self::HookOrCheckpoint => "a hook or a checkpoint is under way",
            Self::RetryPause => "failed tasks are paused",
            Self::RunEnding => "the run is ending",
            Self::TooFewSlots => "the next task needs more than is free",
            Self::OtherResource => "another resource is short",
            Self::GroupCap => "the group has its share",
            Self::BorrowDebt => "the group has borrowed as much as it may",
            Self::Policy => "the policy says no",
            Self::YieldedFirst => "workers that yielded go first",
            Self::Unexplained => "not told",
            Self::TaskAdmission => "tasks wait for a worker",
            Self::RequestLimit => "the adaptive limit is below the maximum",
            Self::Outage => "the provider is down",
            Self::Cooldown => "a cooldown is in force",
            Self::ProviderCap => "other domains use the provider's cap",
            Self::TaskSlots => "yielded workers wait for their task resources",
            Self::RequestTurn => "a budget is spent, or another's turn is first",
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
pub struct CauseShare {
    /// The cause.
    pub cause: IdleCause,
    /// The resource that is short, where the cause is another resource.
    pub resource: Option<String>,
    /// Slot-nanoseconds.
    pub slot_ns: u128,
}
