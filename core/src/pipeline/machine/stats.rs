//! What there is to see of a run. Nothing here changes anything.

use alloc::vec::Vec;

use crate::pipeline::machine::{Pipeline, State};
use crate::pipeline::outcome::FinishedRowGroup;
use crate::pipeline::plan::ColumnId;
use crate::pipeline::report::{Progress, RunReport, TaskCounts};
use crate::pipeline::row_group::Phase;
use crate::replay::{RunCommand, Sequence, Stamped};
use crate::task::Blocked;

/// Facts.
impl Pipeline {
    /// Where the run stands. O(columns + admitted row groups).
    #[must_use]
    pub fn progress(&self) -> Progress {
        let in_sight = self.groups.iter().filter(|group| group.phase != Phase::Unsaved);
        let complete: u64 = in_sight.map(|group| u64::from(group.frontier.complete_rows())).sum();
        Progress {
            rows_total: self.rows(),
            rows_done: self.pending.done_rows() + self.tally.rows_out + complete,
            rows_dropped: self.tally.rows_dropped,
            row_groups_total: self.pending.total(),
            row_groups_done: self.pending.done_groups() + self.tally.row_groups_saved,
            row_groups_active: self.groups.len() as u32,
            row_group_target: self.target.get(),
            row_group_block: self.target.blocked,
            running: self.workers.len(),
            suspended: self.dispatcher.suspended_leases(),
            queued: self.dispatcher.queued(),
            delayed: self.delays.len(),
            columns: self.tally.columns.clone(),
            finished: self.state == State::Finished,
        }
    }

    /// What the run did; `None` until it has ended and every lease is back.
    #[must_use]
    pub fn report(&self) -> Option<&RunReport> {
        self.report.as_ref()
    }

    /// The row groups whose checkpoint failed, as they were handed out.
    pub fn unsaved(&self) -> impl Iterator<Item = FinishedRowGroup> {
        let unsaved = self.groups.iter().filter(|group| group.phase == Phase::Unsaved);
        unsaved.map(|group| group.finished(&self.plan))
    }

    /// The rows of a row group in work that were not dropped, counted from 0 within it, ascending: those that a task for the
    /// whole row group makes. None of any other row group.
    pub fn live_rows(&self, row_group: u32) -> impl Iterator<Item = u32> {
        let group = self.groups.get(row_group);
        group.into_iter().flat_map(|group| (0..group.span.rows).filter(|row| group.frontier.is_live(*row)))
    }

    /// Task leases that are out: one for each worker that has not answered.
    #[must_use]
    pub fn active_leases(&self) -> usize {
        self.dispatcher.active_leases()
    }

    /// Tasks that are ready and wait for a lease.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.dispatcher.queued()
    }

    /// How often `now` went backwards. It was clamped to the latest seen.
    #[must_use]
    pub fn clock_regressions(&self) -> u64 {
        self.clock.regressions()
    }

    /// Every resource of the task stage: name, leased, limit.
    pub fn usage(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        self.dispatcher.usage()
    }

    /// Why no queued task is started: what binds, with its figures, and how many fairness groups it keeps. Empty heads say
    /// that nothing but the next command is missing. O(groups).
    #[must_use]
    pub fn blocked(&self) -> Blocked {
        self.dispatcher.explain()
    }
}

/// What a person watches: see [`Pipeline::columns`] and [`Pipeline::groups`].
impl Pipeline {
    /// How the tasks of each column stand, in the order of definition.
    pub fn columns(&self) -> impl Iterator<Item = ColumnGauges> {
        let tallied = self.tally.columns.iter().zip(&self.tally.queued).zip(&self.yielding.suspended_in);
        (0..).map(ColumnId).zip(tallied).map(|(column, ((tasks, queued), suspended))| ColumnGauges {
            column,
            queued: *queued,
            running: (tasks.spawned - tasks.ended()) as u32,
            suspended: *suspended,
            tasks: *tasks,
            rows_dropped: self.tally.dropped_for(column),
        })
    }

    /// The fairness groups in order of first mention by a column, each with the first of its columns. O(columns).
    pub fn groups(&self) -> impl Iterator<Item = GroupGauges> {
        let distinct = (0..).map(ColumnId).zip(&self.routes).scan(0, |known, (column, route)| {
            let is_new = route.patience == *known;
            *known += usize::from(is_new);
            Some(is_new.then_some((column, route)))
        });
        distinct.flatten().map(|(column, route)| {
            let (weight, admitted_limit) = self.dispatcher.settings_of(route.group);
            GroupGauges {
                column,
                weight,
                admitted_limit,
                queued: self.dispatcher.queued_in(route.group) as u32,
                running: self.dispatcher.running_in(route.group),
                debt: self.dispatcher.debts_of(route.group).map(|(_, debt)| debt).max().unwrap_or(0),
            }
        })
    }

    /// What queued tasks want of each resource of the task stage, in the order of [`Pipeline::usage`]. O(resources x demands).
    pub fn demand(&self) -> impl Iterator<Item = u64> {
        (0..self.dispatcher.usage().count()).map(|resource| self.dispatcher.queued_demand(resource))
    }
}

/// How the tasks of one column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnGauges {
    /// The column.
    pub column: ColumnId,
    /// Ready, and without a worker.
    pub queued: u32,
    /// With a worker.
    pub running: u32,
    /// Those of them that hold nothing while they wait for a request lease.
    pub suspended: u32,
    /// What became of those before.
    pub tasks: TaskCounts,
    /// Rows that were dropped because this column failed or was missing.
    pub rows_dropped: u64,
}

/// How one fairness group stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupGauges {
    /// The first column of the group.
    pub column: ColumnId,
    /// Its weight.
    pub weight: f64,
    /// Leases it may hold while others press; `None`: no bound.
    pub admitted_limit: Option<u32>,
    /// Its tasks that are ready, and without a worker.
    pub queued: u32,
    /// Its tasks with a worker that holds something.
    pub running: u32,
    /// What it owes of the resource of which it owes most.
    pub debt: u32,
}

/// Taking down.
impl Pipeline {
    /// Takes down every command from now on, numbered by `sequence`: see [`replay`](crate::replay). To be replayed, a log
    /// has to begin before the start.
    pub fn record(&mut self, sequence: &Sequence) {
        self.recorder.begin(sequence);
    }

    /// The commands that were taken down since the last call.
    pub fn take_commands(&mut self) -> Vec<Stamped<RunCommand>> {
        self.recorder.take()
    }

    /// A hash over every effect that was polled since [`Pipeline::record`].
    #[must_use]
    pub fn decision_digest(&self) -> u64 {
        self.recorder.digest()
    }
}
