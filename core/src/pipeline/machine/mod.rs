//! The commands and effects of a run: a thin facade over row groups, tasks, workers, retries and the life
//! cycle.
//!
//! Every command does three things, in this order:
//!
//! 1. *absorb*: record what happened, and which tasks became ready;
//! 2. *settle* the row group it happened to: hand it out for its checkpoint, or begin a salvage round;
//! 3. *pump*: queue the delayed tasks that are due, admit row groups, dispatch, and check whether the run is
//!    over.
//!
//! Work per command is bounded by the size of the row groups it admits or drops from and by the leases it
//! grants; one finished cell costs O(out-degree).
//!
//! | file | what it has |
//! | --- | --- |
//! | `absorb` | the end of workers |
//! | `settle` | hooks and checkpoints, and what comes after the last worker of a row group |
//! | `pump` | admission and dispatch |
//! | `stop` | how the run stops and ends |
//! | `yielding` | workers that hold nothing while they wait for a request lease |
//! | `events` | the events of all of these |
//! | `stats`, `explain` | what there is to read |

mod absorb;
mod events;
mod explain;
mod pump;
mod settle;
mod stats;
mod stop;
mod yielding;

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::ConfigError;
use crate::pipeline::config::{PipelineConfig, PipelineError, PolicyChoice};
use crate::pipeline::dispatch::{ColumnCursors, TaskQueue, Workers};
use crate::pipeline::event::EventEmitter;
use crate::pipeline::lifecycle::{Lifecycle, RunState, StopMode};
use crate::pipeline::outcome::Effect;
use crate::pipeline::plan::key::LocalKey;
use crate::pipeline::plan::{ColumnId, Plan};
use crate::pipeline::report::{StopReason, Tally};
use crate::pipeline::retry::{CallTargets, Deferral, Health, Retries, RetryPolicy, RetryableFailures};
use crate::pipeline::row_group::{Pending, RowGroupTarget, RowGroups};
use crate::request::RequestPressure;
use crate::task::BoxedPolicy;
use crate::time::{Instant, Monotonic};

/// Runs a [`Plan`] over row groups: a machine for a driver to own.
///
/// Call [`Pipeline::start`] once, then carry out what [`Pipeline::poll_effect`] returns and report back with
/// [`Pipeline::task_finished`] or [`Pipeline::task_panicked`] and with [`Pipeline::checkpoint_finished`], and
/// for the configured hooks with [`Pipeline::pre_batch_finished`] and [`Pipeline::post_batch_finished`]. Arm
/// one timer for [`Pipeline::poll_timeout`]. Spurious, late and foreign calls are harmless. The run is over
/// after [`Effect::Finished`].
#[derive(Debug)]
pub struct Pipeline {
    plan: Plan,
    /// Whether a post-batch hook is called for each row group.
    has_post_batch_hook: bool,
    row_groups: RowGroups,
    tasks: TaskQueue,
    workers: Workers,
    column_cursors: ColumnCursors,
    retries: Retries,
    targets: CallTargets,
    deferral: Deferral,
    retryable: RetryableFailures,
    health: Health,
    lifecycle: Lifecycle,
    tally: Tally,
    emitter: EventEmitter,
    clock: Monotonic,
    effects: VecDeque<Effect>,
    /// The fairness group of the first task that is parked.
    unavailable: Option<Vec<String>>,
    /// Scratch: tasks of one row group that became ready during one command.
    ready: Vec<LocalKey>,
}

/// Set-up.
impl Pipeline {
    /// Creates a run that has not started. Cost and memory do not depend on the number of row groups, but for
    /// the lists of those that are done and of rows that are missing.
    pub fn new(plan: Plan, config: PipelineConfig) -> Result<Self, PipelineError> {
        let policy = config.policy.clone().make()?;
        Self::with_policy(plan, config, policy)
    }

    /// The same under a task policy of the caller's own, in place of the one that `config` names.
    pub fn with_policy(plan: Plan, config: PipelineConfig, policy: BoxedPolicy) -> Result<Self, PipelineError> {
        config.validate(&plan)?;
        let tasks = TaskQueue::new(&plan, &config, policy)?;
        let (retries, floor, ceiling) = (config.retries, config.retry_floor, config.retry_ceiling);
        let retry = RetryPolicy { run: u64::from(config.run), retries, floor, ceiling };
        let target = RowGroupTarget::new(config.adaptive, config.row_groups, config.row_group_size);
        let columns = plan.columns().len();
        let targets = CallTargets::new(&plan, &tasks, &[]);
        let health = Health::new(&config, targets.len());
        let retryable = RetryableFailures::new(&config, targets.len());
        let pending = Pending::new(config.rows, config.row_group_size, config.done_row_groups, config.missing_rows);
        Ok(Self {
            has_post_batch_hook: config.post_batch_hook,
            row_groups: RowGroups::new(pending, target, config.pre_batch_hook, columns),
            workers: Workers::new(&plan, &tasks, config.yield_while_waiting),
            column_cursors: ColumnCursors::new(&plan),
            retries: Retries::new(retry),
            deferral: Deferral::new(&plan, &targets),
            targets,
            retryable,
            health,
            lifecycle: Lifecycle::new(),
            tally: Tally::new(columns),
            emitter: EventEmitter::new(config.run, &plan),
            clock: Monotonic::default(),
            effects: VecDeque::new(),
            unavailable: None,
            ready: Vec::new(),
            tasks,
            plan,
        })
    }

    /// The plan it runs.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// Effects and the timer.
impl Pipeline {
    /// The next thing to carry out, in order.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Effects that were not polled yet.
    #[must_use]
    pub fn pending_effects(&self) -> usize {
        self.effects.len()
    }

    /// When to call [`Pipeline::handle_timeout`]: the first instant at which a delayed task is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.retries.next_due()
    }
}

/// Commands. The other ones are in the modules that absorb them.
impl Pipeline {
    /// Begins the run: admits the first row groups. A second call changes nothing.
    pub fn start(&mut self, now: Instant) {
        let now = self.clock.observe(now);
        if self.lifecycle.start(now) {
            self.emit_started(now);
        }
        self.pump(now);
    }

    /// Queues the delayed tasks that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.clock.observe(now);
        self.pump(now);
    }

    /// Sets whether a call of the request resource that `resource` stands for would have to wait, and why:
    /// call it whenever that changes. Tasks that would only wait are then passed over while others could call
    /// at once.
    pub fn set_request_pressure(&mut self, now: Instant, resource: &str, pressure: Option<RequestPressure>) {
        let now = self.clock.observe(now);
        if self.tasks.set_request_pressure(resource, pressure) {
            self.pump(now);
        }
    }

    /// Replaces the task policy. Workers stay, and so does what a group owes, as far as it holds as much;
    /// under a policy that lends nothing it is repaid by what comes back. O(fairness groups).
    ///
    /// # Errors
    /// A setting of the policy that is out of range, or about a resource that the run does not have. Nothing
    /// is changed then.
    pub fn set_policy(&mut self, now: Instant, policy: PolicyChoice) -> Result<(), ConfigError> {
        self.tasks.set_policy(policy.make()?)?;
        let now = self.clock.observe(now);
        self.pump(now);
        Ok(())
    }

    /// Gives a column's fairness group, which other columns may share, another weight from its next turn on.
    /// What it may hold while others press stays.
    ///
    /// # Errors
    /// A weight outside 2^-20 to 2^20, or a column of another plan.
    pub fn set_weight(&mut self, now: Instant, column: ColumnId, weight: f64) -> Result<(), ConfigError> {
        self.tasks.set_weight(column, weight)?;
        let now = self.clock.observe(now);
        self.pump(now);
        Ok(())
    }

    /// Winds the run down: no further row group is admitted, and those in work are finished and saved. What
    /// is left is for a resumed run. Nothing changes if there is none, or if the run is stopping already.
    pub fn wind_down(&mut self, now: Instant) {
        let now = self.clock.observe(now);
        if matches!(self.lifecycle.state(), RunState::Idle | RunState::Running) && self.row_groups.close() {
            self.lifecycle.wind_down();
            self.emit_wound_down();
            if self.lifecycle.is_running() {
                self.pump(now);
            }
        }
    }

    /// Drains the run: calls that are out end, and nothing else is started, no call of a task that is under
    /// way either. Row groups that are not complete then are saved in part.
    pub fn drain(&mut self, now: Instant) {
        self.stop_by_hand(now, StopReason::Drained, StopMode::DrainPartial);
    }

    /// Stops the run: nothing more is started, every worker is aborted and waited for, row groups that are
    /// not complete are not saved.
    pub fn cancel(&mut self, now: Instant) {
        self.stop_by_hand(now, StopReason::Cancelled, StopMode::Abort);
    }

    fn stop_by_hand(&mut self, now: Instant, reason: StopReason, mode: StopMode) {
        let now = self.clock.observe(now);
        if self.lifecycle.mark_start(now) {
            self.emit_started(now);
        }
        self.stop(reason, mode);
        self.pump(now);
    }
}

#[cfg(test)]
impl Pipeline {
    /// Breaks the machine: queued tasks stay, and none is started.
    pub(super) fn stop_starting(&mut self) {
        self.tasks.stop_starting();
    }
}
