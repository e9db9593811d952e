//! The events of a run, in the order in which things happen.

use alloc::vec::Vec;
use core::hash::Hasher;

use super::event::{Correlation, EventLog, Interest, SchedulerEvent, SchedulerFact};
use super::key::TaskKey;
use super::plan::{Plan, Strategy};
use super::scheduler::Pipeline;
use crate::handle::FixedHasher;
use crate::task::{GroupKind, TaskGroup};
use crate::time::Instant;

/// Makes the events of a run.
#[derive(Clone, Debug)]
pub(super) struct Teller {
    run: u32,
    log: EventLog,
    /// By column.
    columns: Vec<Label>,
}

/// What the events of a column's tasks say of them.
#[derive(Clone, Copy, Debug)]
struct Label {
    strategy: Strategy,
    group_kind: GroupKind,
    group: u64,
}

impl Teller {
    pub(super) fn new(run: u32, plan: &Plan) -> Self {
        let columns = plan.columns().iter().map(|column| Label {
            strategy: column.strategy,
            group_kind: column.group.kind,
            group: hash_of(&column.group),
        });
        Self { run, log: EventLog::default(), columns: columns.collect() }
    }

    /// Whether anybody wants anything. The one branch that unwanted events cost.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.log.is_on()
    }

    /// Something happened to the run as a whole.
    #[inline]
    pub(super) fn run(&mut self, at: Instant, fact: SchedulerFact) {
        if self.is_on() {
            self.push(at, Correlation { run: self.run, ..Correlation::default() }, fact);
        }
    }

    /// Something happened to a row group.
    #[inline]
    pub(super) fn row_group(&mut self, at: Instant, row_group: u32, fact: SchedulerFact) {
        if self.is_on() {
            let row_group = Some(row_group);
            self.push(at, Correlation { run: self.run, row_group, ..Correlation::default() }, fact);
        }
    }

    /// Something happened to a task in this try of it.
    #[inline]
    pub(super) fn task(&mut self, at: Instant, key: TaskKey, attempt: u32, fact: SchedulerFact) {
        if self.is_on() {
            self.push_task(at, key, attempt, fact);
        }
    }

    #[cold]
    fn push_task(&mut self, at: Instant, key: TaskKey, attempt: u32, fact: SchedulerFact) {
        let Label { strategy, group_kind, group } = self.columns[key.column.index()];
        let correlation = Correlation {
            run: self.run,
            row_group: Some(key.row_group),
            column: Some(key.column),
            row: key.row,
            strategy: Some(strategy),
            group_kind: Some(group_kind),
            group: Some(group),
            task: Some(key.to_bits()),
            attempt: Some(attempt),
        };
        self.push(at, correlation, fact);
    }

    #[cold]
    fn push(&mut self, at: Instant, correlation: Correlation, fact: SchedulerFact) {
        self.log.record(fact.kind(), |sequence| SchedulerEvent { sequence, at, correlation, fact });
    }
}

/// Events.
impl Pipeline {
    /// Asks for these kinds of events from now on, and no others.
    pub fn set_interest(&mut self, interest: Interest) {
        self.teller.log.set_interest(interest);
    }

    /// The next event that was asked for. Where nothing was, there is none.
    pub fn poll_event(&mut self) -> Option<SchedulerEvent> {
        self.teller.log.pop()
    }

    /// Events that were lost because nobody drained them.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.teller.log.dropped()
    }
}

/// The same on every target and in every process.
fn hash_of(group: &TaskGroup) -> u64 {
    let mut hasher = FixedHasher::default();
    hasher.write_u32(group.kind as u32);
    for part in &group.identity {
        hasher.write(part.as_bytes());
        hasher.write_u64(part.len() as u64);
    }
    hasher.finish()
}
