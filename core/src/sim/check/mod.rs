//! Does a run keep its laws? Checkers that watch it from outside and keep books of their own.
//!
//! A [`RunChecker`] is told what anybody could see: the plan and the settings, both event streams with all
//! their kinds, and what the pipeline hands out to hooks and checkpoints. It never looks into the scheduler,
//! and shares no code with it, so that it can judge a policy of your own as well as those that come with the
//! crate. A simulated [world](super::world::World) brings one along:
//! [`World::watched`](super::world::World::watched).
//!
//! | file | the law |
//! | --- | --- |
//! | `stream` | no event is missing, time never runs backwards, nothing comes after the end |
//! | `once` | every task is made once: tries are numbered, and none follows a success or a failure for good |
//! | `order` | no task starts before its upstreams are complete; ordered columns keep their order |
//! | `caps` | the limits of resources, of workers and of row groups hold |
//! | `calls` | no more calls are out than the model bears, and the run leaves none behind |
//! | `joined` | a call names the execution of the task that makes it, and a worker has that task |
//! | `outages` | a provider that is down is left alone but for one probe at a time, one that fails is taken down, and no task pays for it |
//! | `room` | no call waits while its model has room for it, whatever else waits |
//! | `leases` | no worker starts without a lease, none ends twice, and all leases come back |
//! | `fifo` | tasks that ask for the same in the same fairness group start in the order they came |
//! | `hooks` | hooks are called once and in their place, and rows that one left out are gone |
//! | `checkpoints` | a row group is saved once, when every row of it is complete or dropped, or by a stop in part; each leaves once, saved or discarded |
//! | `rows` | rows in = rows out + rows dropped + rows unmade, each dropped one by the end of a task and with a counted reason, and none unmade without a stop |
//! | `stops` | after a stop nothing starts, no call either, and every stop is told |
//!
//! Memory is bounded by the row groups in work; each event costs O(out-degree of its column) or less, but for
//! a task of a whole row group and for a checkpoint, which cost O(rows).

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
use crate::pipeline::{Batch, ColumnId, FinishedRowGroup, PipelineConfig, Plan, RunReport};
use crate::request::event::RequestEvent;
use crate::request::{ProviderModelId, ResourceId};
use crate::time::Instant;

/// A law that every run keeps. The [module](self) says what each is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Law {
    /// No event is missing, and nothing comes after the end.
    Stream,
    /// Every task is made once.
    Once,
    /// Upstreams come first.
    ColumnOrder,
    /// Limits of the scheduler hold.
    Caps,
    /// Limits of the models hold.
    Calls,
    /// A call names the task that makes it.
    Joined,
    /// A provider that is down is left alone.
    Outages,
    /// No call waits while its model has room for it.
    Room,
    /// Every worker holds a lease, and every lease comes back.
    Leases,
    /// First come, first served, within a fairness group.
    Fifo,
    /// Hooks are called once and in their place.
    Hooks,
    /// A row group is saved once, complete or by a stop in part, or discarded.
    Checkpoints,
    /// No row is lost or doubled.
    Rows,
    /// Nothing starts after a stop, and every stop is told.
    Stops,
}

/// A task, by its place in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskName {
    /// The row group.
    pub row_group: u32,
    /// The column.
    pub column: ColumnId,
    /// The row within the group; `None`: the whole group.
    pub row: Option<u32>,
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {} of row group {}", self.column.index(), self.row_group)?;
        self.row.map_or(Ok(()), |row| write!(f, ", row {row}"))
    }
}

/// A law that was broken: which, when, by what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at {at}, law {law:?} broken{}: {why}", task.map_or_else(String::new, |task| alloc::format!(" by {task}")))]
#[non_exhaustive]
pub struct Violation {
    /// Which law.
    pub law: Law,
    /// When it was noticed.
    pub at: Instant,
    /// The task it was noticed by, if it was one.
    pub task: Option<TaskName>,
    /// What is wrong, in words.
    pub why: String,
}

/// What passes between the pipeline and its host apart from tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LifecycleStep<'a> {
    /// The pre-batch hook is called.
    PreBatch(&'a Batch),
    /// The pre-batch hook answered: the rows it leaves out, or `None` if it failed.
    PreBatchAnswered {
        /// Its row group.
        row_group: u32,
        /// Counted from 0 within the group.
        left_out: Option<&'a [u32]>,
    },
    /// The post-batch hook is called.
    PostBatch(&'a FinishedRowGroup),
    /// The post-batch hook answered.
    PostBatchAnswered {
        /// Its row group.
        row_group: u32,
        /// Whether it worked.
        works: bool,
    },
    /// A row group is handed out for its checkpoint.
    Checkpoint(&'a FinishedRowGroup),
    /// A checkpoint ended.
    CheckpointAnswered {
        /// Its row group.
        row_group: u32,
        /// Whether it worked.
        works: bool,
    },
    /// Somebody cancels the run.
    Cancel,
}

/// Why a law is broken, in words.
type CheckResult = Result<(), String>;

/// One law: what it has to see, and what must hold then. The books are as they were before.
trait Check {
    const LAW: Law;

    fn on_event(&mut self, _rules: &Rules, _books: &OpenRowGroups, _event: &SchedulerEvent) -> CheckResult {
        Ok(())
    }

    fn on_request(&mut self, _event: &RequestEvent) -> CheckResult {
        Ok(())
    }

    fn on_lifecycle_step(&mut self, _rules: &Rules, _books: &OpenRowGroups, _what: &LifecycleStep<'_>) -> CheckResult {
        Ok(())
    }

    fn on_end(&mut self, _rules: &Rules, _report: &RunReport) -> CheckResult {
        Ok(())
    }
}

/// Refuses unless `holds`.
fn hold(holds: bool, why: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(why()) }
}

/// Watches one run. See the [module documentation](self).
///
/// Feed it everything in the order in which it happens, and stop at the first violation: what comes after one
/// is noise.
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

/// Puts one question to every law in turn.
macro_rules! ask_all {
    ($checker:ident, $at:expr, $task:expr, $($law:ident)*, |$check:ident| $question:expr) => {
        $({
            let $check = &mut $checker.$law;
            judge($check, $at, $task, |$check| $question)?;
        })*
    };
}

/// Makes a violation of what one law says.
fn judge<C: Check>(
    check: &mut C,
    at: Instant,
    task: Option<TaskName>,
    question: impl FnOnce(&mut C) -> CheckResult,
) -> Result<(), Violation> {
    question(check).map_err(|why| Violation { law: C::LAW, at, task, why })
}

impl RunChecker {
    /// Books for a run of `plan` under `config` that has not started.
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

    /// Says that a request resource bears at most `cap` calls at once. Without it, only its adaptive limit is
    /// checked.
    pub fn cap_calls(&mut self, resource: ResourceId, cap: u32) {
        self.calls.set_cap(resource, cap);
    }

    /// Says which provider and model a request resource belongs to. Without it, its outages are not checked.
    pub fn owned_by(&mut self, resource: ResourceId, model: ProviderModelId) {
        self.outages.owned_by(resource, model);
    }

    /// Says which resources a column calls, each while those before it are of no use. Without it, that is not
    /// checked.
    pub fn falls_back(&mut self, column: ColumnId, resources: Vec<ResourceId>) {
        self.outages.falls_back(column, resources);
    }

    /// Says that nobody else makes calls through the controller. Without it, calls that begin after a stop,
    /// or that name no task, are not checked.
    pub fn call_alone(&mut self) {
        self.stops.call_alone();
        self.joined.call_alone();
    }

    /// The next event of the run.
    pub fn on_event(&mut self, event: &SchedulerEvent) -> Result<(), Violation> {
        let (at, task) = (event.at, open_row_groups::task_of(event));
        let Self { rules, open, .. } = self;
        ask_all!(
            self, at, task, stream once order caps joined outages leases fifo hooks checkpoints rows stops,
            |check| check.on_event(rules, open, event)
        );
        open.on_event(rules, event);
        Ok(())
    }

    /// The next event of request admission.
    pub fn on_request_event(&mut self, event: &RequestEvent) -> Result<(), Violation> {
        ask_all!(self, event.at, None, stream calls joined outages room, |check| check.on_request(event));
        Ok(())
    }

    /// Nothing more happens at `at`: everything that was due is done, and this is how all request resources
    /// stand. To be told before time goes on, with the last instant before the next event.
    pub fn on_quiescence(&mut self, at: Instant, all_limits: &[ResourceLimits]) -> Result<(), Violation> {
        judge(&mut self.room, at, None, |room| room.check_quiescent(at, all_limits))
    }

    /// Something passed between the pipeline and its host: told when a hook or a checkpoint is handed out,
    /// and right before the answer, or the cancellation, is given to the pipeline.
    pub fn on_lifecycle_step(&mut self, at: Instant, what: &LifecycleStep<'_>) -> Result<(), Violation> {
        let Self { rules, open, .. } = self;
        ask_all!(self, at, None, hooks checkpoints rows stops, |check| check.on_lifecycle_step(rules, open, what));
        self.open.on_lifecycle_step(what);
        Ok(())
    }

    /// The run is over, and every event was told.
    pub fn finish(&mut self, report: &RunReport) -> Result<(), Violation> {
        let Self { rules, .. } = self;
        let at = report.ended;
        ask_all!(self, at, None, stream once calls leases fifo checkpoints rows, |check| check.on_end(rules, report));
        Ok(())
    }
}
