//! Queries of the figures of a run. They change nothing.

use super::Pipeline;
use crate::pipeline::lifecycle::RunState;
use crate::pipeline::outcome::FinishedRowGroup;
use crate::pipeline::plan::ColumnId;
use crate::pipeline::report::{Progress, RunReport};
use crate::pipeline::row_group::{RowGroup, RowGroupPhase};
use crate::pipeline::stats::{ColumnStats, GroupStats};

/// Figures of the run.
impl Pipeline {
    /// Returns the progress of the run. O(columns + admitted row groups).
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
            yielded: self.tasks.tasks().yielded_leases(),
            queued: self.tasks.tasks().queued(),
            delayed: self.row_groups.counts().delayed(),
            columns: self.tally.columns().to_vec(),
            finished: self.lifecycle.is_finished(),
        }
    }

    /// Returns whether the run has stopped before its end, and awaits only what is in progress.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        matches!(self.lifecycle.state(), RunState::Stopping(_))
    }

    /// Returns the result of the run, or `None` until it has ended and all leases are released.
    #[must_use]
    pub fn report(&self) -> Option<&RunReport> {
        self.lifecycle.report()
    }

    /// Returns the row groups whose post-batch hook or checkpoint failed, as they were passed to it.
    pub fn unsaved(&self) -> impl Iterator<Item = FinishedRowGroup> {
        let unsaved = self.row_groups.active().iter().filter(|group| group.phase() == RowGroupPhase::Unsaved);
        unsaved.map(RowGroup::finished)
    }

    /// Returns the rows of an active row group that were not dropped, counted from 0 within it, ascending.
    ///
    /// These are the rows that a task for the whole row group computes. The iterator is empty for any other
    /// row group.
    pub fn live_rows(&self, row_group: u32) -> impl Iterator<Item = u32> {
        let group = self.row_groups.get(row_group);
        group.into_iter().flat_map(|group| (0..group.span().rows).filter(|row| group.frontier().is_live(*row)))
    }

    /// Returns the number of task leases: one for each worker that has not ended, except those that
    /// [follow](crate::pipeline::Task::follows) the lead of their batch.
    #[must_use]
    pub fn active_leases(&self) -> usize {
        self.tasks.tasks().active_leases()
    }

    /// Returns the number of tasks that are ready and wait for a task lease.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.tasks.tasks().queued()
    }

    /// Returns how often `now` went backwards. Such a value is replaced by the latest instant so far.
    #[must_use]
    pub fn clock_regressions(&self) -> u64 {
        self.clock.regressions()
    }

    /// Returns the name, the leased amount and the limit of every task resource.
    pub fn usage(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        self.tasks.tasks().usage()
    }
}

/// Figures by column and by fairness group.
impl Pipeline {
    /// Returns the state of the tasks of each column, in the order of definition.
    pub fn columns(&self) -> impl Iterator<Item = ColumnStats> {
        let queued = self.row_groups.counts().queued();
        let tallied = self.tally.columns().iter().zip(queued).zip(self.workers.yielded_by_column());
        (0..).map(ColumnId).zip(tallied).map(|(column, ((tasks, queued), yielded))| ColumnStats {
            column,
            queued: *queued,
            running: (tasks.spawned - tasks.ended()) as u32,
            yielded: *yielded,
            tasks: *tasks,
            rows_dropped: self.tally.dropped_for(column),
        })
    }

    /// Returns the state of each fairness group, in the order in which columns mention them. O(columns).
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

    /// Returns the sum of the demands of queued tasks for each task resource, in the order of
    /// [`Pipeline::usage`]. O(resources x demands).
    pub fn demand(&self) -> impl Iterator<Item = u64> {
        (0..self.tasks.tasks().usage().count()).map(|resource| self.tasks.tasks().queued_demand(resource))
    }
}
