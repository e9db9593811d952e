//! Checks that a row group is saved once, when none of its workers is left and each of its rows is complete
//! or dropped.
//!
//! A stop that aborts nothing saves the complete rows of an incomplete row group, if its rows do not depend
//! on each other. The incomplete rows are then unmade, and no complete row is left out. Each admitted row
//! group is reported as saved or as discarded, once.

use alloc::collections::BTreeSet;
use alloc::format;

use super::open_row_groups::{OpenRowGroup, OpenRowGroups, Rules};
use super::{Check, CheckResult, Law, LifecycleStep, ensure};
use crate::map::Map;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload, StopKind};
use crate::pipeline::{ColumnId, FinishedRowGroup, RunReport, Strategy};

/// The row groups in progress, and those whose checkpoint was requested.
#[derive(Clone, Debug, Default)]
pub(super) struct Checkpoints {
    /// By row group whose checkpoint was requested and has not ended: the number of rows to be saved, and of
    /// unmade rows.
    out: Map<u32, (u32, u32)>,
    saved: BTreeSet<u32>,
    /// The row groups that are admitted, and neither saved nor discarded yet.
    in_progress: BTreeSet<u32>,
    incomplete: IncompleteRowGroups,
    /// Whether a stop so far allowed row groups to be saved partly. The checkpoint of such a row group is
    /// still requested if a stop that discards follows at the same instant or while the row group's hook is
    /// running.
    may_save_partly: bool,
}

/// What happens to row groups that are in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum IncompleteRowGroups {
    /// They are completed, because no stop applies to them.
    #[default]
    Finish,
    /// Their complete rows are saved.
    SavePartly,
    /// They are not saved.
    Discard,
}

impl Checkpoints {
    fn on_checkpoint(&mut self, rules: &Rules, open: &OpenRowGroups, group: &FinishedRowGroup) -> CheckResult {
        let row_group = group.row_group;
        let Some(state) = open.group(row_group) else {
            return Err(format!("row group {row_group} is saved without being in progress"));
        };
        let before = self.out.insert(row_group, (group.live.len() as u32, group.unmade.len() as u32));
        ensure(before.is_none(), || format!("row group {row_group} is saved twice"))?;
        let (running, queued) = (state.running, state.queued);
        ensure(running + queued == 0, || format!("it is saved with {running} workers and {queued} tasks queued"))?;
        check_lists(rules, group)?;
        let is_cell = |column: &ColumnId| rules.is_cell(*column);
        for column in rules.plan.order() {
            let rows: &[u32] = if is_cell(column) { &group.live } else { group.live.get(..1).unwrap_or_default() };
            for row in rows {
                let task = (*column, is_cell(column).then_some(*row));
                let is_done = state.is_done(&rules.plan, task);
                ensure(is_done, || format!("row {row} of row group {row_group} lacks column {}", column.index()))?;
            }
        }
        let is_part = !group.unmade.is_empty();
        let is_allowed = self.may_save_partly && are_independent(rules);
        ensure(!is_part || is_allowed, || format!("row group {row_group} is saved partly"))?;
        let is_complete = |row: &&u32| {
            rules
                .plan
                .order()
                .iter()
                .all(|column| state.is_done(&rules.plan, (*column, is_cell(column).then_some(**row))))
        };
        let complete = group.unmade.iter().find(is_complete);
        complete.map_or(Ok(()), |row| {
            Err(format!("row {row} of row group {row_group} is complete, but listed as unmade"))
        })?;
        check_dropped_rows(state, group)
    }

    /// Checks that a discarded row group is not one that a stop must save partly.
    fn check_discard(&self, rules: &Rules, row_group: u32, state: &OpenRowGroup) -> CheckResult {
        let is_due = self.incomplete == IncompleteRowGroups::SavePartly
            && are_independent(rules)
            && !rules.config.pre_batch_hook;
        if !is_due || self.out.contains_key(&row_group) {
            return Ok(());
        }
        let is_complete = |row: &u32| {
            let task_of = |column: &ColumnId| (*column, rules.is_cell(*column).then_some(*row));
            !state.excluded.contains(row)
                && rules.plan.order().iter().all(|column| state.is_done(&rules.plan, task_of(column)))
        };
        let lost = (0..state.rows).find(is_complete);
        lost.map_or(Ok(()), |row| Err(format!("row {row} of row group {row_group} is complete, but discarded")))
    }

    fn end(&mut self, row_group: u32) -> CheckResult {
        ensure(self.in_progress.remove(&row_group), || format!("row group {row_group} ended without being in progress"))
    }
}

/// Checks that each row of the row group is in exactly one of the lists.
fn check_lists(rules: &Rules, group: &FinishedRowGroup) -> CheckResult {
    let FinishedRowGroup { row_group, first_row, rows, .. } = *group;
    let first = u64::from(row_group) * u64::from(rules.config.row_group_size);
    ensure(rows == rules.rows_of(row_group) && first_row == first, || {
        format!("row group {row_group} is saved as {rows} rows from row {first_row}")
    })?;
    let listed = group.live.iter().chain(&group.unmade).copied().chain(group.dropped.iter().map(|dropped| dropped.row));
    let mut distinct: BTreeSet<u32> = listed.clone().filter(|row| *row < rows).collect();
    let (kept, count) = (rules.kept_rows(row_group), listed.count());
    let is_once = distinct.len() == count && distinct.is_disjoint(&kept);
    distinct.extend(kept);
    ensure(is_once && distinct.len() == rows as usize, || {
        format!("not every row of row group {row_group} is saved, dropped or unmade exactly once")
    })
}

/// Returns whether no row depends on other rows of its row group.
fn are_independent(rules: &Rules) -> bool {
    rules.plan.columns().iter().all(|column| matches!(column.strategy, Strategy::Cell | Strategy::FromScratch))
}

/// Checks that an event excluded each row that is listed as dropped, and no other listed row.
fn check_dropped_rows(state: &OpenRowGroup, group: &FinishedRowGroup) -> CheckResult {
    let is_excluded = |row: u32| state.excluded.contains(&row);
    let unknown = group.dropped.iter().find(|row| !is_excluded(row.row));
    unknown.map_or(Ok(()), |row| Err(format!("{row:?} of row group {} was never dropped", group.row_group)))?;
    let revived = group.live.iter().chain(&group.unmade).find(|row| is_excluded(**row));
    revived.map_or(Ok(()), |row| Err(format!("row {row} of row group {} was dropped before", group.row_group)))
}

impl Check for Checkpoints {
    const LAW: Law = Law::Checkpoints;

    fn on_event(&mut self, rules: &Rules, open: &OpenRowGroups, event: &SchedulerEvent) -> CheckResult {
        if let SchedulerEventPayload::JobStopping { stop, aborts } = event.payload {
            self.incomplete = match stop {
                StopKind::WoundDown => IncompleteRowGroups::Finish,
                StopKind::CheckpointFailed | StopKind::HookFailed => IncompleteRowGroups::Discard,
                _ if aborts || self.incomplete == IncompleteRowGroups::Discard => IncompleteRowGroups::Discard,
                _ => IncompleteRowGroups::SavePartly,
            };
            self.may_save_partly |= self.incomplete == IncompleteRowGroups::SavePartly;
        }
        let Some(row_group) = event.correlation.row_group else { return Ok(()) };
        match event.payload {
            SchedulerEventPayload::RowGroupAdmitted { rows, .. } => {
                let expected = rules.rows_of(row_group) - rules.kept_rows(row_group).len() as u32;
                ensure(rows == expected, || format!("row group {row_group} has {rows} rows, not {expected}"))?;
                let is_done = rules.config.done_row_groups.contains(&row_group) || self.saved.contains(&row_group);
                ensure(!is_done, || format!("row group {row_group} was admitted, but is already saved"))?;
                let is_new = self.in_progress.insert(row_group);
                ensure(is_new, || format!("row group {row_group} was admitted twice"))
            }
            SchedulerEventPayload::WorkerSpawned { .. } => ensure(!self.out.contains_key(&row_group), || {
                format!("a worker was started for row group {row_group} after its checkpoint was requested")
            }),
            SchedulerEventPayload::RowGroupCheckpointed { rows, unmade } => {
                let expected = self.out.remove(&row_group);
                self.saved.insert(row_group);
                self.end(row_group)?;
                ensure(expected == Some((rows, unmade)), || {
                    format!("{rows} rows were saved and {unmade} unmade; the checkpoint had {expected:?}")
                })
            }
            SchedulerEventPayload::RowGroupDiscarded { rows, .. } => {
                if let Some(state) = open.group(row_group) {
                    let busy = state.running;
                    ensure(busy == 0, || format!("row group {row_group} is discarded with {busy} workers"))?;
                    let expected = state.rows - state.excluded.len() as u32;
                    ensure(rows == expected, || {
                        format!("{rows} rows of row group {row_group} are unmade, not {expected}")
                    })?;
                    self.check_discard(rules, row_group, state)?;
                }
                self.end(row_group)
            }
            _ => Ok(()),
        }
    }

    fn on_end(&mut self, _: &Rules, _: &RunReport) -> CheckResult {
        let left = self.in_progress.first();
        left.map_or(Ok(()), |row_group| Err(format!("row group {row_group} was neither saved nor discarded")))
    }

    fn on_lifecycle_step(&mut self, rules: &Rules, open: &OpenRowGroups, what: &LifecycleStep<'_>) -> CheckResult {
        match *what {
            LifecycleStep::Checkpoint(group) => self.on_checkpoint(rules, open, group),
            LifecycleStep::CheckpointEnded { row_group, .. } => ensure(self.out.contains_key(&row_group), || {
                format!("the checkpoint of row group {row_group} was not requested")
            }),
            _ => Ok(()),
        }
    }
}
