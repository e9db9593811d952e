//! A checker that observes a run from outside and reports the first *law* that the run breaks. A law is an
//! invariant that every run keeps, whatever its plan, policy and providers. The plan must have no
//! [batched](crate::pipeline::Column::batched) columns: the cells that follow the lead of a batch start
//! without a selection and a lease, which the checker reports as a violation.
//!
//! The input of a [`RunChecker`] is what any host can observe: the plan and the settings, both event streams
//! with all kinds of events, and what the pipeline hands out to hooks and checkpoints. It has its own state,
//! does not read the scheduler's, and shares no code with it. It can therefore check a run under a custom
//! policy as well as under those of the crate. [`World::watched`](super::world::World::watched) creates a
//! simulated [world](super::world::World) with a checker.
//!
//! Terms: a *seed* is a column that is filled before the pre-batch hook. An *unmade* row is one that a run
//! admitted and, because it stopped, neither saved nor dropped. A worker that *yields* releases its task
//! resources while it waits for a call.
//!
//! - [`Law::Stream`]: no event is missing, time never runs backwards, and no event follows the end.
//! - [`Law::Once`]: every task is completed once: attempts are numbered, and none follows a success or a
//!   final failure.
//! - [`Law::ColumnOrder`]: no task starts before its upstreams are complete; ordered columns keep their
//!   order.
//! - [`Law::Caps`]: the limits of resources, of workers and of row groups hold.
//! - [`Law::Calls`]: no more calls are in flight than the model's cap, and none is left at the end of the
//!   run.
//! - [`Law::Joined`]: the two streams can be joined: a call names the execution of the task that makes it,
//!   and a worker runs that execution at the time.
//! - [`Law::Outages`]: a provider that is down gets no calls except one probe at a time, a provider that
//!   fails goes down, and no task fails because of an outage.
//! - [`Law::Room`]: no call waits while its model has room for it, whatever else waits.
//! - [`Law::Leases`]: no worker starts without a lease, none ends twice, and all leases are released.
//! - [`Law::Fifo`]: tasks of one fairness group with equal demands start in the order in which they were
//!   queued.
//! - [`Law::Hooks`]: each hook is called once and at the right time, and no row group is saved without its
//!   hooks.
//! - [`Law::Checkpoints`]: a row group is saved once, when each of its rows is complete or dropped, or
//!   partly after a stop; each one ends once, saved or discarded.
//! - [`Law::Rows`]: rows in = rows out + rows dropped + rows unmade; each dropped row has a counted reason,
//!   and was left out by a hook or had a task that failed or was lost; no row is unmade without a stop.
//! - [`Law::Stops`]: after a stop nothing starts, calls included, and every stop is emitted.
//!
//! Memory is bounded by the rows of the row groups in progress. An event costs O(columns that its column
//! depends on) or less, except an event of a whole row group and a checkpoint, which cost O(rows x columns).

mod calls;
mod caps;
mod checkpoints;
mod fifo;
mod hooks;
mod joined;
mod leases;
mod once;
mod open_row_groups;
mod order;
mod outages;
mod room;
mod rows;
mod stops;
mod stream;
#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use self::open_row_groups::{OpenRowGroups, Rules};
pub use self::room::ResourceLimits;
use crate::pipeline::event::SchedulerEvent;
use crate::pipeline::{ColumnId, FinishedRowGroup, PipelineConfig, Plan, RunReport, SeededRowGroup};
use crate::request::event::RequestEvent;
use crate::request::{ProviderModelId, ResourceId};
use crate::time::Instant;

/// A law that every run keeps. The [module documentation](self) states what each law requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Law {
    /// No event is missing, and no event follows the end.
    Stream,
    /// Every task is completed once.
    Once,
    /// A task starts after its upstreams.
    ColumnOrder,
    /// The limits of the scheduler hold.
    Caps,
    /// The limits of the models hold.
    Calls,
    /// A call names the execution of the task that makes it.
    Joined,
    /// A provider that is down gets no calls except probes.
    Outages,
    /// No call waits while its model has room for it.
    Room,
    /// Every worker holds a lease, and every lease is released.
    Leases,
    /// Tasks of a fairness group with equal demands start first come, first served.
    Fifo,
    /// Each hook is called once and at the right time, and before its row group is saved.
    Hooks,
    /// A row group is saved once, complete or partly after a stop, or it is discarded.
    Checkpoints,
    /// No row is lost or counted twice.
    Rows,
    /// Nothing starts after a stop, and every stop is emitted.
    Stops,
}

/// A task, identified by its place in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskName {
    /// The row group.
    pub row_group: u32,
    /// The column.
    pub column: ColumnId,
    /// The row within the row group, or `None` for a task of the whole row group.
    pub row: Option<u32>,
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {} of row group {}", self.column.index(), self.row_group)?;
        self.row.map_or(Ok(()), |row| write!(f, ", row {row}"))
    }
}

/// A broken law: which one, when, and by which task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at {at}, law {law:?} broken{}: {why}", task.map_or_else(String::new, |task| alloc::format!(" by {task}")))]
#[non_exhaustive]
pub struct Violation {
    /// The law that was broken.
    pub law: Law,
    /// The instant at which the violation was detected.
    pub at: Instant,
    /// The task whose event showed the violation, if it was the event of a task.
    pub task: Option<TaskName>,
    /// How the law was broken, in words.
    pub why: String,
}

/// A step between the pipeline and its host, other than the start and end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LifecycleStep<'a> {
    /// The pre-batch hook is called.
    PreBatch(&'a SeededRowGroup),
    /// The pre-batch hook ended.
    PreBatchEnded {
        /// The row group.
        row_group: u32,
        /// The rows that it leaves out, counted from 0 within the row group. `None` if it failed.
        left_out: Option<&'a [u32]>,
    },
    /// The post-batch hook is called.
    PostBatch(&'a FinishedRowGroup),
    /// The post-batch hook ended.
    PostBatchEnded {
        /// The row group.
        row_group: u32,
        /// Whether it succeeded.
        succeeded: bool,
    },
    /// The checkpoint of a row group is requested.
    Checkpoint(&'a FinishedRowGroup),
    /// A checkpoint ended.
    CheckpointEnded {
        /// The row group.
        row_group: u32,
        /// Whether it succeeded.
        succeeded: bool,
    },
    /// The run is cancelled.
    Cancel,
}

/// The result of a check. `Err` describes how the law is broken.
type CheckResult = Result<(), String>;

/// The check of one law: one method for each kind of input. A method that a law does not need accepts
/// everything. `OpenRowGroups` is in the state before the input.
trait Check {
    const LAW: Law;

    fn on_event(&mut self, _rules: &Rules, _open: &OpenRowGroups, _event: &SchedulerEvent) -> CheckResult {
        Ok(())
    }

    fn on_request(&mut self, _event: &RequestEvent) -> CheckResult {
        Ok(())
    }

    fn on_lifecycle_step(&mut self, _rules: &Rules, _open: &OpenRowGroups, _what: &LifecycleStep<'_>) -> CheckResult {
        Ok(())
    }

    fn on_end(&mut self, _rules: &Rules, _report: &RunReport) -> CheckResult {
        Ok(())
    }
}

/// Fails with the description `why` unless `holds` is true.
fn ensure(holds: bool, why: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(why()) }
}

/// Checks one run. See the [module documentation](self).
///
/// Feed it all inputs in the order in which they happen, and stop at the first violation: later results are
/// meaningless.
#[derive(Clone, Debug)]
pub struct RunChecker {
    rules: Rules,
    open: OpenRowGroups,
    stream: stream::Stream,
    once: once::Once,
    order: order::ColumnOrder,
    caps: caps::Caps,
    calls: calls::Calls,
    joined: joined::Joined,
    outages: outages::Outages,
    room: room::Room,
    leases: leases::Leases,
    fifo: fifo::Fifo,
    hooks: hooks::Hooks,
    checkpoints: checkpoints::Checkpoints,
    rows: rows::Balance,
    stops: stops::Stops,
}

/// Runs the same check of every listed law in turn.
macro_rules! check_all {
    ($checker:ident, $at:expr, $task:expr, $($law:ident)*, |$check:ident| $apply:expr) => {
        $({
            let $check = &mut $checker.$law;
            run_check($check, $at, $task, |$check| $apply)?;
        })*
    };
}

/// Runs a check of one law. Its error becomes a violation.
fn run_check<C: Check>(
    check: &mut C,
    at: Instant,
    task: Option<TaskName>,
    apply: impl FnOnce(&mut C) -> CheckResult,
) -> Result<(), Violation> {
    apply(check).map_err(|why| Violation { law: C::LAW, at, task, why })
}

impl RunChecker {
    /// Creates a checker for a run of `plan` under `config` that has not started.
    #[must_use]
    pub fn new(plan: &Plan, config: &PipelineConfig) -> Self {
        let rules = Rules::of(plan, config);
        Self {
            open: OpenRowGroups::default(),
            stream: stream::Stream::default(),
            once: once::Once::default(),
            order: order::ColumnOrder::default(),
            caps: caps::Caps::of(&rules),
            calls: calls::Calls::default(),
            joined: joined::Joined::default(),
            outages: outages::Outages::default(),
            room: room::Room::default(),
            leases: leases::Leases::default(),
            fifo: fifo::Fifo::default(),
            hooks: hooks::Hooks::default(),
            checkpoints: checkpoints::Checkpoints::default(),
            rows: rows::Balance::default(),
            stops: stops::Stops::default(),
            rules,
        }
    }

    /// Sets the most calls of a request resource that may be in flight at once. Without it, only the limit in
    /// force is checked.
    pub fn set_call_cap(&mut self, resource: ResourceId, cap: u32) {
        self.calls.set_cap(resource, cap);
    }

    /// Sets the provider and model of a request resource. Without it, outages of the resource are not
    /// checked.
    pub fn set_model(&mut self, resource: ResourceId, model: ProviderModelId) {
        self.outages.set_model(resource, model);
    }

    /// Sets the request resources that a column calls, in their order. The column calls each one only while
    /// those before it are not usable. Without it, this order is not checked.
    pub fn set_fallbacks(&mut self, column: ColumnId, resources: Vec<ResourceId>) {
        self.outages.set_fallbacks(column, resources);
    }

    /// States that only tasks of the run make calls through request admission. Without it, calls that start
    /// after a stop or that name no task are accepted.
    pub fn expect_no_other_callers(&mut self) {
        self.stops.expect_no_other_callers();
        self.joined.expect_no_other_callers();
    }

    /// Checks the next event of the scheduler.
    pub fn on_event(&mut self, event: &SchedulerEvent) -> Result<(), Violation> {
        let (at, task) = (event.at, open_row_groups::task_of(event));
        let Self { rules, open, .. } = self;
        check_all!(
            self, at, task, stream once order caps joined outages leases fifo hooks checkpoints rows stops,
            |check| check.on_event(rules, open, event)
        );
        open.on_event(rules, event);
        Ok(())
    }

    /// Checks the next event of request admission.
    pub fn on_request_event(&mut self, event: &RequestEvent) -> Result<(), Violation> {
        check_all!(self, event.at, None, stream calls joined outages room, |check| check.on_request(event));
        Ok(())
    }

    /// Checks that no call waits that could start. Call it before time advances, when everything that was due
    /// has been done. `at` is the last instant before the next event. `all_limits` is the state of all
    /// request resources at `at`.
    pub fn on_quiescence(&mut self, at: Instant, all_limits: &[ResourceLimits]) -> Result<(), Violation> {
        run_check(&mut self.room, at, None, |room| room.check_quiescent(at, all_limits))
    }

    /// Checks a step between the pipeline and its host. Call it when a hook or a checkpoint is requested,
    /// and right before its result, or a cancellation, is passed to the pipeline.
    pub fn on_lifecycle_step(&mut self, at: Instant, what: &LifecycleStep<'_>) -> Result<(), Violation> {
        let Self { rules, open, .. } = self;
        check_all!(self, at, None, hooks checkpoints rows stops, |check| check.on_lifecycle_step(rules, open, what));
        self.open.on_lifecycle_step(what);
        Ok(())
    }

    /// Checks the end of the run, after all of its events.
    pub fn finish(&mut self, report: &RunReport) -> Result<(), Violation> {
        let Self { rules, .. } = self;
        let at = report.ended;
        check_all!(self, at, None, stream once calls leases fifo checkpoints rows, |check| check.on_end(rules, report));
        Ok(())
    }
}
