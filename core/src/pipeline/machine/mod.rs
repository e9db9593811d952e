//! The state machine of a run: its commands and effects.
//!
//! Every command does three things, in this order:
//!
//! 1. *absorb*: record what happened, and which tasks became ready;
//! 2. *settle* the affected row group: start its checkpoint, or begin a salvage round;
//! 3. *pump*: queue the delayed tasks that are due, admit row groups, dispatch tasks, and check whether the
//!    run has ended.
//!
//! The work per command is bounded by the size of the row groups that it admits or drops rows from, and by
//! the number of leases that it grants. One finished cell costs O(out-degree).
//!
//! | file | what it has |
//! | --- | --- |
//! | `absorb` | the end of workers |
//! | `settle` | hooks, salvage rounds and checkpoints |
//! | `pump` | admission and dispatch |
//! | `stop` | how the run stops and ends |
//! | `yielding` | workers that hold no task resources while they wait for a request lease |
//! | `events` | the events of all of these |
//! | `stats`, `explain` | queries |

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
use crate::pipeline::outcome::PipelineEffect;
use crate::pipeline::plan::key::LocalKey;
use crate::pipeline::plan::{ColumnId, Plan};
use crate::pipeline::report::{StopReason, Tally};
use crate::pipeline::retry::{CallTargets, Deferral, Health, Retries, RetryPolicy, RetryableFailures};
use crate::pipeline::row_group::{Pending, RowGroupTarget, RowGroups};
use crate::request::RequestPressure;
use crate::task::BoxedPolicy;
use crate::time::{Instant, Monotonic};

/// The state machine that runs a [`Plan`] over row groups. A driver owns it and carries out its effects.
///
/// Call [`Pipeline::start`] once. Then carry out the effects that [`Pipeline::poll_effect`] returns, and
/// report their results:
///
/// - workers with [`Pipeline::task_finished`], [`Pipeline::task_panicked`] or [`Pipeline::spawn_failed`];
/// - checkpoints with [`Pipeline::checkpoint_finished`];
/// - claims of row groups with [`Pipeline::row_group_claimed`];
/// - configured hooks with [`Pipeline::pre_batch_finished`] and [`Pipeline::post_batch_finished`].
///
/// Arm one timer for [`Pipeline::poll_timeout`], and call [`Pipeline::handle_timeout`] when it fires.
/// Spurious and late calls are harmless, and so are calls that name an unknown worker or row group. The run
/// has ended after [`PipelineEffect::Finished`].
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
    effects: VecDeque<PipelineEffect>,
    /// The fairness group of the first parked task.
    unavailable: Option<Vec<String>>,
    /// Scratch list: the tasks of one row group that became ready during one command.
    ready: Vec<LocalKey>,
}

/// Construction.
impl Pipeline {
    /// Creates a run that has not started.
    ///
    /// Cost and memory do not depend on the number of row groups, except for the lists `done_row_groups` and
    /// `missing_rows` of the configuration.
    ///
    /// # Errors
    /// A setting is out of range, or the fairness group or the demand of a column is invalid.
    pub fn new(plan: Plan, config: PipelineConfig) -> Result<Self, PipelineError> {
        let policy = config.policy.clone().make()?;
        Self::with_policy(plan, config, policy)
    }

    /// Creates a run with a custom task policy, which replaces the policy in `config`. See [`Pipeline::new`].
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
        let pending = if config.claims_row_groups { pending.with_claims() } else { pending };
        Ok(Self {
            has_post_batch_hook: config.post_batch_hook,
            row_groups: RowGroups::new(pending, target, config.pre_batch_hook, config.retries, columns),
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

    /// Returns the plan of the run.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// Effects and the timer.
impl Pipeline {
    /// Returns the next effect. Effects must be carried out in this order.
    pub fn poll_effect(&mut self) -> Option<PipelineEffect> {
        self.effects.pop_front()
    }

    /// Returns the number of effects that were not polled yet.
    #[must_use]
    pub fn pending_effects(&self) -> usize {
        self.effects.len()
    }

    /// Returns when to call [`Pipeline::handle_timeout`]: the first instant at which a delayed task is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.retries.next_due()
    }
}

/// Commands. The commands that report results are in the modules that process them.
impl Pipeline {
    /// Starts the run, and admits the first row groups. A second call has no effect.
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

    /// Sets whether a call of the request resource behind the task resource `resource` would have to wait,
    /// and why.
    ///
    /// Call it whenever this changes. Tasks whose call would have to wait are then passed over while other
    /// tasks could make their calls at once.
    pub fn set_request_pressure(&mut self, now: Instant, resource: &str, pressure: Option<RequestPressure>) {
        let now = self.clock.observe(now);
        if self.tasks.set_request_pressure(resource, pressure) {
            self.pump(now);
        }
    }

    /// Replaces the task policy.
    ///
    /// Workers keep their leases. A group keeps its debt, up to the amount that it holds. Under a policy that
    /// does not lend, released resources repay the debt. O(fairness groups).
    ///
    /// # Errors
    /// A setting of the policy is out of range, or names a resource that the run does not have. Nothing is
    /// changed in this case.
    pub fn set_policy(&mut self, now: Instant, policy: PolicyChoice) -> Result<(), ConfigError> {
        self.tasks.set_policy(policy.make()?)?;
        let now = self.clock.observe(now);
        self.pump(now);
        Ok(())
    }

    /// Sets the weight of a column's fairness group, which other columns may share. It applies from the next
    /// turn of the group on. The limit of leases of the group does not change.
    ///
    /// # Errors
    /// The weight is outside 2^-20 to 2^20, or the plan has no such column.
    pub fn set_weight(&mut self, now: Instant, column: ColumnId, weight: f64) -> Result<(), ConfigError> {
        self.tasks.set_weight(column, weight)?;
        let now = self.clock.observe(now);
        self.pump(now);
        Ok(())
    }

    /// Winds the run down: no further row group is admitted, and the admitted ones are finished and saved.
    ///
    /// The remaining row groups are left for a resumed run. The call has no effect if none remains, or if the
    /// run is stopping already.
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

    /// Drains the run: calls in flight end, and nothing else is started.
    ///
    /// Running tasks cannot start further calls either. Row groups that are not complete after that are saved
    /// in part.
    pub fn drain(&mut self, now: Instant) {
        self.stop_by_command(now, StopReason::Drained, StopMode::DrainPartial);
    }

    /// Cancels the run: nothing more is started, and every worker is aborted.
    ///
    /// The run ends once all workers have ended. Row groups that are not complete are not saved.
    pub fn cancel(&mut self, now: Instant) {
        self.stop_by_command(now, StopReason::Cancelled, StopMode::Abort);
    }

    fn stop_by_command(&mut self, now: Instant, reason: StopReason, mode: StopMode) {
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
    /// Disables dispatching to simulate an internal error: queued tasks stay queued.
    pub(super) fn stop_starting(&mut self) {
        self.tasks.stop_starting();
    }
}
