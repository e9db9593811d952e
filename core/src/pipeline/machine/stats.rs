//! What there is to read of a run. Nothing here changes anything.

use super::Pipeline;
use crate::pipeline::outcome::FinishedRowGroup;
use crate::pipeline::plan::ColumnId;
use crate::pipeline::report::{Progress, RunReport};
use crate::pipeline::row_group::{RowGroup, RowGroupPhase};
use crate::pipeline::stats::{ColumnStats, GroupStats};
use crate::task::Blocked;

/// Figures of the run.
impl Pipeline {
    /// Where the run stands. O(columns + admitted row groups).
    #[must_use]
    pub fn progress(&self) -> Progress {
        let pending = self.row_groups.pending();
        let groups = self.row_groups.active();
        let savable = groups.iter().filter(|group| group.phase() != RowGroupPhase::Unsaved);
        let complete: u64 = savable.map(|group| u64::from(group.frontier().complete_rows())).sum();
        Progress {
            rows_total: pending.rows(),
            rows_done: pending.done_rows() + self.tally.rows_out() + complete,
            rows_dropped: self.tally.rows_dropped(),
            rows_unmade: self.tally.rows_unmade(),
            row_groups_total: pending.total(),
            row_groups_done: pending.done_groups() + self.tally.row_groups_saved(),
            row_groups_active: groups.len() as u32,
            row_group_target: self.row_groups.target().get(),
            row_group_block: self.row_groups.target().block(),
            running: self.workers.len(),
            suspended: self.tasks.tasks().suspended_leases(),
            queued: self.tasks.tasks().queued(),
            delayed: self.row_groups.counts().delayed(),
            columns: self.tally.columns().to_vec(),
            finished: self.lifecycle.is_finished(),
        }
    }

    /// What the run did; `None` until it has ended and every lease is back.
    #[must_use]
    pub fn report(&self) -> Option<&RunReport> {
        self.lifecycle.report()
    }

    /// The row groups whose checkpoint failed, as they were handed out.
    pub fn unsaved(&self) -> impl Iterator<Item = FinishedRowGroup> {
        let unsaved = self.row_groups.active().iter().filter(|group| group.phase() == RowGroupPhase::Unsaved);
        unsaved.map(RowGroup::finished)
    }

    /// The rows of a row group in work that were not dropped, counted from 0 within it, ascending: those that
    /// a task for the whole row group makes. None of any other row group.
    pub fn live_rows(&self, row_group: u32) -> impl Iterator<Item = u32> {
        let group = self.row_groups.get(row_group);
        group.into_iter().flat_map(|group| (0..group.span().rows).filter(|row| group.frontier().is_live(*row)))
    }

    /// Task leases that are out: one for each worker that has not answered.
    #[must_use]
    pub fn active_leases(&self) -> usize {
        self.tasks.tasks().active_leases()
    }

    /// Tasks that are ready and wait for a lease.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.tasks.tasks().queued()
    }

    /// How often `now` went backwards. It was clamped to the latest seen.
    #[must_use]
    pub fn clock_regressions(&self) -> u64 {
        self.clock.regressions()
    }

    /// Every resource of the task stage: name, leased, limit.
    pub fn usage(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        self.tasks.tasks().usage()
    }

    /// Why no queued task is started: what binds, with its figures, and how many fairness groups it keeps.
    /// Empty heads say that nothing but the next command is missing. O(groups).
    #[must_use]
    pub fn blocked(&self) -> Blocked {
        self.tasks.tasks().explain()
    }
}

/// What a person watches: see [`Pipeline::columns`] and [`Pipeline::groups`].
impl Pipeline {
    /// How the tasks of each column stand, in the order of definition.
    pub fn columns(&self) -> impl Iterator<Item = ColumnStats> {
        let queued = self.row_groups.counts().queued();
        let tallied = self.tally.columns().iter().zip(queued).zip(self.workers.suspended_by_column());
        (0..).map(ColumnId).zip(tallied).map(|(column, ((tasks, queued), suspended))| ColumnStats {
            column,
            queued: *queued,
            running: (tasks.spawned - tasks.ended()) as u32,
            suspended: *suspended,
            tasks: *tasks,
            rows_dropped: self.tally.dropped_for(column),
        })
    }

    /// The fairness groups in order of first mention by a column, each with the first of its columns.
    /// O(columns).
    pub fn groups(&self) -> impl Iterator<Item = GroupStats> {
        let distinct = (0..).map(ColumnId).zip(self.tasks.routes()).scan(0, |known, (column, route)| {
            let is_new = route.group_index == *known;
            *known += usize::from(is_new);
            Some(is_new.then_some((column, route)))
        });
        distinct.flatten().map(|(column, route)| {
            let (weight, admitted_limit) = self.tasks.tasks().settings_of(route.group);
            GroupStats {
                column,
                weight,
                admitted_limit,
                queued: self.tasks.tasks().queued_in(route.group) as u32,
                running: self.tasks.tasks().running_in(route.group),
                debt: self.tasks.tasks().debts_of(route.group).map(|(_, debt)| debt).max().unwrap_or(0),
            }
        })
    }

    /// What queued tasks want of each resource of the task stage, in the order of [`Pipeline::usage`].
    /// O(resources x demands).
    pub fn demand(&self) -> impl Iterator<Item = u64> {
        (0..self.tasks.tasks().usage().count()).map(|resource| self.tasks.tasks().queued_demand(resource))
    }
}
