//! The events of a run, in the order in which things happen.

use alloc::vec::Vec;
use core::hash::Hasher;

use crate::id::FixedHasher;
use crate::lease::LeaseId;
use crate::pipeline::event::{
    Correlation, EventLog, Interest, SchedulerEvent, SchedulerEventKind, SchedulerFact, StopKind,
};
use crate::pipeline::machine::{Pipeline, State};
use crate::pipeline::outcome::{DropReason, RetryKind, WorkerId};
use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::plan::{ColumnId, Plan, Strategy};
use crate::pipeline::report::StopReason;
use crate::pipeline::retry::backoff::Verdict;
use crate::pipeline::row_group::Span;
use crate::pipeline::row_group::frontier::{Entry, Stage};
use crate::pipeline::row_group::target::RowGroupBlock;
use crate::task::{DenialReason, Denied, GroupKind, ResourceId, TaskGroup};
use crate::time::Instant;

/// Makes the events of a run.
#[derive(Clone, Debug)]
pub(in crate::pipeline) struct Teller {
    run: u32,
    log: EventLog,
    /// By column.
    columns: Vec<Label>,
    /// What was told last, where only a change is news.
    told: Told,
    /// Scratch.
    denied: Vec<Denied>,
}

/// What the events of a column's tasks say of them.
#[derive(Clone, Copy, Debug)]
struct Label {
    strategy: Strategy,
    group_kind: GroupKind,
    group: u64,
}

/// What was told last.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    queue: Option<Standing>,
    block: Option<RowGroupBlock>,
    overrides: u64,
    skips: u64,
}

/// How a round of dispatching ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Empty,
    Blocked { reason: DenialReason, resource: Option<ResourceId> },
}

impl Teller {
    pub(in crate::pipeline) fn new(run: u32, plan: &Plan) -> Self {
        let columns = plan.columns().iter().map(|column| Label {
            strategy: column.strategy,
            group_kind: column.group.kind,
            group: hash_of(&column.group),
        });
        let columns = columns.collect();
        Self { run, log: EventLog::default(), columns, told: Told::default(), denied: Vec::new() }
    }

    /// Whether anybody wants anything. The one branch that unwanted events cost.
    #[inline]
    pub(in crate::pipeline) fn is_on(&self) -> bool {
        self.log.is_on()
    }

    /// Something happened to the run as a whole.
    #[inline]
    pub(in crate::pipeline) fn run(&mut self, at: Instant, fact: SchedulerFact) {
        if self.is_on() {
            self.push(at, Correlation { run: self.run, ..Correlation::default() }, fact);
        }
    }

    /// Something happened to a row group.
    #[inline]
    pub(in crate::pipeline) fn row_group(&mut self, at: Instant, row_group: u32, fact: SchedulerFact) {
        self.row(at, row_group, None, fact);
    }

    /// Something happened to a row, or to a row group, on account of no task.
    #[inline]
    fn row(&mut self, at: Instant, row_group: u32, row: Option<u32>, fact: SchedulerFact) {
        if self.is_on() {
            let row_group = Some(row_group);
            self.push(at, Correlation { run: self.run, row_group, row, ..Correlation::default() }, fact);
        }
    }

    /// Something happened to a column's fairness group.
    #[inline]
    pub(in crate::pipeline) fn group(&mut self, at: Instant, column: ColumnId, fact: SchedulerFact) {
        if self.is_on() {
            let Label { group_kind, group, .. } = self.columns[column.index()];
            let (group_kind, group) = (Some(group_kind), Some(group));
            self.push(at, Correlation { run: self.run, group_kind, group, ..Correlation::default() }, fact);
        }
    }

    /// A task waits for nothing more, and is queued or waits for its turn.
    #[cold]
    pub(in crate::pipeline) fn ready(&mut self, at: Instant, key: TaskKey, entry: Entry) {
        match entry.stage {
            Stage::Waiting => self.task(at, key, entry.attempts, SchedulerFact::DependencyReady),
            Stage::Deferred | Stage::Delayed => self.task(at, key, entry.attempts, SchedulerFact::SalvageRedispatched),
            _ => {}
        }
    }

    /// A task was dropped with its row, unless a worker has it.
    #[inline]
    pub(in crate::pipeline) fn dropped(&mut self, at: Instant, key: TaskKey, entry: Entry) {
        if self.is_on() && matches!(entry.stage, Stage::Queued | Stage::Deferred | Stage::Delayed) {
            let queued = entry.stage == Stage::Queued;
            self.task(at, key, entry.attempts, SchedulerFact::Cancelled { queued });
        }
    }

    /// Something happened to a task in this try of it.
    #[inline]
    pub(in crate::pipeline) fn task(&mut self, at: Instant, key: TaskKey, attempt: u32, fact: SchedulerFact) {
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
    /// Asks for these kinds of events from now on, and no others. O(1), and what is told only when it changes is told anew.
    pub fn set_interest(&mut self, interest: Interest) {
        let denials = [SchedulerEventKind::AdmissionDenied, SchedulerEventKind::GroupCapped];
        self.dispatcher.watch_denials(denials.iter().any(|kind| interest.contains(*kind)));
        let (overrides, skips) = (self.dispatcher.liveness_overrides(), self.dispatcher.advisory_skips());
        self.teller.told = Told { overrides, skips, ..Told::default() };
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

/// The run and its row groups.
impl Pipeline {
    pub(in crate::pipeline) fn tell_started(&mut self, now: Instant) {
        let (rows, row_groups, resumed) = (self.rows(), self.pending.total(), self.pending.done_groups());
        self.teller.run(now, SchedulerFact::JobStarted { rows, row_groups, resumed });
    }

    /// What makes the run stop. A run that stops already is not stopped again by what it still sees.
    #[cold]
    pub(in crate::pipeline) fn tell_why(&mut self, reason: &StopReason) {
        let now = self.clock.latest();
        match *reason {
            StopReason::EarlyShutdown { failures, window } if self.state == State::Running => {
                self.teller.run(now, SchedulerFact::EarlyShutdown { failures, window });
            }
            StopReason::HookFailed { row_group, hook, .. } => {
                self.teller.row_group(now, row_group, SchedulerFact::HookFailed { hook });
            }
            _ => {}
        }
    }

    #[cold]
    pub(in crate::pipeline) fn tell_finished(&mut self, now: Instant) {
        self.tell_health(now);
        let (rows_out, rows_dropped) = (self.tally.rows_out, self.tally.rows_dropped);
        let Some(report) = &self.report else { return };
        let stop = StopKind::from(&report.stop);
        self.teller.run(now, SchedulerFact::JobCompleted { stop, rows_out, rows_dropped });
    }

    fn tell_health(&mut self, now: Instant) {
        let fact = SchedulerFact::HealthSnapshot {
            running: self.workers.len() as u32,
            queued: self.dispatcher.queued() as u32,
            delayed: self.delays.len() as u32,
            row_groups_active: self.groups.len() as u32,
            row_groups_done: self.pending.done_groups() + self.tally.row_groups_saved,
            rows_out: self.tally.rows_out,
            rows_dropped: self.tally.rows_dropped,
        };
        self.teller.run(now, fact);
    }

    #[cold]
    pub(in crate::pipeline) fn tell_admitted(&mut self, span: Span) {
        let fact = SchedulerFact::RowGroupAdmitted { rows: span.rows, active: self.groups.len() as u32 };
        self.teller.row_group(self.clock.latest(), span.row_group, fact);
    }

    #[cold]
    pub(in crate::pipeline) fn tell_saved(&mut self, now: Instant, row_group: u32, rows: u32) {
        self.teller.row_group(now, row_group, SchedulerFact::RowGroupCheckpointed { rows });
        self.tell_health(now);
    }

    #[cold]
    pub(in crate::pipeline) fn tell_discarded(&mut self, row_group: u32, reason: DropReason, rows: u32) {
        let now = self.clock.latest();
        self.teller.row_group(now, row_group, SchedulerFact::RowGroupDiscarded { reason, rows });
        self.tell_health(now);
    }

    #[inline]
    pub(in crate::pipeline) fn tell_target(&mut self, from: u32) {
        let to = self.target.get();
        if from != to {
            self.teller.run(self.clock.latest(), SchedulerFact::RowGroupTargetChanged { from, to });
        }
    }

    /// Why no further row group is admitted, if that is another reason than the last one.
    #[cold]
    pub(in crate::pipeline) fn tell_row_group_block(&mut self, now: Instant) {
        let reason = match self.target.blocked {
            _ if self.pending.is_empty() => RowGroupBlock::NoPendingRowGroups,
            Some(reason) => reason,
            None if self.target.is_adaptive() => return,
            None => RowGroupBlock::AtCap,
        };
        if self.teller.told.block.replace(reason) != Some(reason) {
            self.teller.run(now, SchedulerFact::RowGroupAdmissionBlocked { reason });
        }
    }
}

/// Tasks.
impl Pipeline {
    /// A task was selected, leased and handed out, in one step.
    #[cold]
    pub(in crate::pipeline) fn tell_spawned(&mut self, key: TaskKey, attempt: u32, worker: WorkerId, lease: LeaseId) {
        let now = self.clock.latest();
        self.tell_denials(now);
        let (overrides, skips) = (self.dispatcher.liveness_overrides(), self.dispatcher.advisory_skips());
        let before = self.teller.told;
        self.teller.told = Told { overrides, skips, ..before };
        if before.skips != skips
            && let Some(skip) = self.dispatcher.last_advisory_skip()
        {
            let (pressure, preferred) = (skip.pressure, skip.preferred);
            self.tell_task(now, skip.skipped, SchedulerFact::PressureAdvisorySkipped { pressure, preferred });
        }
        let active = self.dispatcher.active_leases() as u32;
        let queued = self.dispatcher.queued() as u32;
        if before.overrides != overrides {
            self.teller.task(now, key, attempt, SchedulerFact::LivenessOverride);
        }
        self.teller.task(now, key, attempt, SchedulerFact::Selected { queued });
        self.teller.task(now, key, attempt, SchedulerFact::TaskLeaseAcquired { lease, active });
        self.teller.task(now, key, attempt, SchedulerFact::WorkerSpawned { worker });
        if queued == 0 {
            self.teller.run(now, SchedulerFact::QueueDrained { discarded: 0 });
        }
    }

    /// Nothing more can be started for now.
    #[cold]
    pub(in crate::pipeline) fn tell_round(&mut self) {
        let now = self.clock.latest();
        self.tell_denials(now);
        self.dispatcher.end_round();
        let queued = self.dispatcher.queued() as u32;
        if queued == 0 {
            if self.teller.told.queue.replace(Standing::Empty) != Some(Standing::Empty) {
                self.teller.run(now, SchedulerFact::QueueEmpty);
            }
        } else if let Some(Denied { task, reason, resource }) = self.dispatcher.first_denial() {
            let standing = Some(Standing::Blocked { reason, resource });
            if core::mem::replace(&mut self.teller.told.queue, standing) != standing {
                let resource = resource.map(|resource| resource.0);
                self.tell_task(now, task, SchedulerFact::AdmissionBlocked { reason, resource, queued });
            }
        }
    }

    fn tell_denials(&mut self, now: Instant) {
        let mut denied = core::mem::take(&mut self.teller.denied);
        self.dispatcher.take_denials(&mut denied);
        for Denied { task, reason, resource } in denied.drain(..) {
            let resource = resource.map(|resource| resource.0);
            let fact = match reason {
                DenialReason::GroupCap => SchedulerFact::GroupCapped { resource },
                _ => SchedulerFact::AdmissionDenied { reason, resource },
            };
            self.tell_task(now, task, fact);
        }
        self.teller.denied = denied;
    }

    /// A worker gave back what it holds, or has it again.
    #[inline]
    pub(in crate::pipeline) fn tell_worker(&mut self, now: Instant, key: TaskKey, fact: SchedulerFact) {
        if self.teller.is_on() {
            let attempt = self.attempts_of(key);
            self.teller.task(now, key, attempt, fact);
        }
    }

    /// A worker is gone: how, and what it held.
    #[cold]
    pub(in crate::pipeline) fn tell_ended(&mut self, now: Instant, key: TaskKey, fact: SchedulerFact, lease: LeaseId) {
        let active = self.dispatcher.active_leases() as u32;
        let attempt = self.attempts_of(key);
        self.teller.task(now, key, attempt, fact);
        self.teller.task(now, key, attempt, SchedulerFact::TaskLeaseReleased { lease, active });
    }

    /// Rows were given up for a task, or because a hook does not want them.
    #[cold]
    pub(in crate::pipeline) fn tell_dropped(&mut self, key: TaskKey, reason: DropReason, rows: u32, from_queue: bool) {
        let now = self.clock.latest();
        if rows > 0 {
            let fact = SchedulerFact::NonRetryableDropped { reason, rows };
            // A hook leaves rows out on account of no task.
            if reason == DropReason::PreBatch {
                self.teller.row(now, key.row_group, key.row, fact);
            } else {
                let attempt = self.attempts_of(key);
                self.teller.task(now, key, attempt, fact);
            }
        }
        if from_queue && self.dispatcher.queued() == 0 {
            self.teller.run(now, SchedulerFact::QueueDrained { discarded: 0 });
        }
    }

    fn tell_task(&mut self, now: Instant, task: u64, fact: SchedulerFact) {
        let key = TaskKey::from_bits(task);
        let attempt = self.attempts_of(key);
        self.teller.task(now, key, attempt, fact);
    }

    fn attempts_of(&mut self, key: TaskKey) -> u32 {
        let Some(group) = self.groups.get_mut(key.row_group) else { return 0 };
        group.frontier.entry_mut(&self.plan, (key.column, key.row)).attempts
    }
}

/// What is told of a task that did not end for good, after `rounds` salvage rounds.
pub(in crate::pipeline) fn kept(
    running: bool,
    verdict: Verdict,
    failure: Option<RetryKind>,
    rounds: u8,
) -> SchedulerFact {
    match verdict {
        Verdict::Delay { until } if running => SchedulerFact::RetryDeferred { failure, until, round: None },
        Verdict::Defer { not_before } if running => {
            SchedulerFact::RetryDeferred { failure, until: not_before, round: Some(u32::from(rounds) + 1) }
        }
        _ => SchedulerFact::Cancelled { queued: false },
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
