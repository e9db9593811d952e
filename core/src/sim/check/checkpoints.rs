//! A row group is saved once, when no worker of it is left and every row is complete or dropped. A stop that
//! aborts nothing saves the complete rows of one that is not, if its rows do not depend on each other; rows
//! that are not complete then are unmade, and a complete row is never left behind. Each one that is admitted
//! is told to be saved or to be discarded, once.

use alloc::collections::BTreeSet;
use alloc::format;

use super::open_row_groups::{OpenRowGroup, OpenRowGroups, Rules};
use super::{Check, CheckResult, Law, LifecycleStep, hold};
use crate::map::Map;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload, StopKind};
use crate::pipeline::{ColumnId, FinishedRowGroup, RunReport, Strategy};

/// The row groups that were handed out.
#[derive(Clone, Debug, Default)]
pub(super) struct Checkpoints {
    /// With the rows to be saved and those that are unmade.
    out: Map<u32, (u32, u32)>,
    saved: BTreeSet<u32>,
    /// Admitted, and neither saved nor discarded.
    in_work: BTreeSet<u32>,
    stop: Stop,
    /// Whether row groups were to be saved in part at any time: what was decided then is handed out even if
    /// something worse stops the run at the same instant, or while its hook is at work.
    was_in_part: bool,
}

/// What is known of the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stop {
    #[default]
    None,
    /// Row groups that are not complete are saved in part.
    InPart,
    /// They are not saved.
    Strict,
}

impl Checkpoints {
    fn on_checkpoint(&mut self, rules: &Rules, open: &OpenRowGroups, group: &FinishedRowGroup) -> CheckResult {
        let row_group = group.row_group;
        let Some(book) = open.group(row_group) else {
            return Err(format!("row group {row_group} is saved, and is not in work"));
        };
        let before = self.out.insert(row_group, (group.live.len() as u32, group.unmade.len() as u32));
        hold(before.is_none(), || format!("row group {row_group} is saved twice"))?;
        let (running, queued) = (book.running, book.queued);
        hold(running + queued == 0, || format!("it is saved with {running} workers and {queued} tasks queued"))?;
        is_whole(rules, group)?;
        let is_cell = |column: &ColumnId| rules.is_cell(*column);
        for column in rules.plan.order() {
            let rows: &[u32] = if is_cell(column) { &group.live } else { group.live.get(..1).unwrap_or_default() };
            for row in rows {
                let place = (*column, is_cell(column).then_some(*row));
                let is_done = book.is_done(&rules.plan, place);
                hold(is_done, || format!("row {row} of row group {row_group} lacks column {}", column.index()))?;
            }
        }
        let is_part = !group.unmade.is_empty();
        let may_be = self.was_in_part && are_independent(rules);
        hold(!is_part || may_be, || format!("row group {row_group} is saved in part"))?;
        let unmade = |row: &&u32| {
            rules
                .plan
                .order()
                .iter()
                .all(|column| book.is_done(&rules.plan, (*column, is_cell(column).then_some(**row))))
        };
        let complete = group.unmade.iter().find(unmade);
        complete
            .map_or(Ok(()), |row| Err(format!("row {row} of row group {row_group} is complete, and left unmade")))?;
        accounted(book, group)
    }

    /// A row group is discarded: not one that a stop has to save in part.
    fn discard(&self, rules: &Rules, row_group: u32, book: &OpenRowGroup) -> CheckResult {
        let is_due = self.stop == Stop::InPart && are_independent(rules) && !rules.config.pre_batch_hook;
        if !is_due || self.out.contains_key(&row_group) {
            return Ok(());
        }
        let is_complete = |row: &u32| {
            let place = |column: &ColumnId| (*column, rules.is_cell(*column).then_some(*row));
            !book.dropped.contains(row)
                && rules.plan.order().iter().all(|column| book.is_done(&rules.plan, place(column)))
        };
        let lost = (0..book.rows).find(is_complete);
        lost.map_or(Ok(()), |row| Err(format!("row {row} of row group {row_group} is complete, and thrown away")))
    }

    fn leave(&mut self, row_group: u32) -> CheckResult {
        hold(self.in_work.remove(&row_group), || format!("row group {row_group} left, and was not in work"))
    }
}

/// Whether each row of the group is in one of the lists.
fn is_whole(rules: &Rules, group: &FinishedRowGroup) -> CheckResult {
    let FinishedRowGroup { row_group, first_row, rows, .. } = *group;
    let first = u64::from(row_group) * u64::from(rules.config.row_group_size);
    hold(rows == rules.rows_of(row_group) && first_row == first, || {
        format!("row group {row_group} is saved as {rows} rows from row {first_row}")
    })?;
    let listed = group.live.iter().chain(&group.unmade).copied().chain(group.dropped.iter().map(|dropped| dropped.row));
    let mut distinct: BTreeSet<u32> = listed.clone().filter(|row| *row < rows).collect();
    let (kept, count) = (rules.kept_rows(row_group), listed.count());
    let is_once = distinct.len() == count && distinct.is_disjoint(&kept);
    distinct.extend(kept);
    hold(is_once && distinct.len() == rows as usize, || {
        format!("not every row of row group {row_group} is saved, dropped or unmade, once")
    })
}

/// Whether rows do not depend on the others of their row group.
fn are_independent(rules: &Rules) -> bool {
    rules.plan.columns().iter().all(|column| matches!(column.strategy, Strategy::Cell | Strategy::FromScratch))
}

/// Whether each row that is dropped was given up before, and no other.
fn accounted(book: &OpenRowGroup, group: &FinishedRowGroup) -> CheckResult {
    let is_told = |row: u32| book.dropped.contains(&row);
    let unknown = group.dropped.iter().find(|row| !is_told(row.row));
    unknown.map_or(Ok(()), |row| Err(format!("{row:?} of row group {} was never given up", group.row_group)))?;
    let revived = group.live.iter().chain(&group.unmade).find(|row| is_told(**row));
    revived.map_or(Ok(()), |row| Err(format!("row {row} of row group {} was given up before", group.row_group)))
}

impl Check for Checkpoints {
    const LAW: Law = Law::Checkpoints;

    fn on_event(&mut self, rules: &Rules, open: &OpenRowGroups, event: &SchedulerEvent) -> CheckResult {
        if let SchedulerEventPayload::JobStopping { stop, aborts } = event.payload {
            self.stop = match stop {
                StopKind::WoundDown => Stop::None,
                StopKind::CheckpointFailed | StopKind::HookFailed => Stop::Strict,
                _ if aborts || self.stop == Stop::Strict => Stop::Strict,
                _ => Stop::InPart,
            };
            self.was_in_part |= self.stop == Stop::InPart;
        }
        let Some(row_group) = event.correlation.row_group else { return Ok(()) };
        match event.payload {
            SchedulerEventPayload::RowGroupAdmitted { rows, .. } => {
                let expected = rules.rows_of(row_group) - rules.kept_rows(row_group).len() as u32;
                hold(rows == expected, || format!("row group {row_group} has {rows} rows, not {expected}"))?;
                let is_done = rules.config.done_row_groups.contains(&row_group) || self.saved.contains(&row_group);
                hold(!is_done, || format!("row group {row_group} was admitted, and is saved already"))?;
                let is_new = self.in_work.insert(row_group);
                hold(is_new, || format!("row group {row_group} was admitted twice"))
            }
            SchedulerEventPayload::WorkerSpawned { .. } => hold(!self.out.contains_key(&row_group), || {
                format!("a worker was started for row group {row_group} after it was handed out")
            }),
            SchedulerEventPayload::RowGroupCheckpointed { rows, unmade } => {
                let expected = self.out.remove(&row_group);
                self.saved.insert(row_group);
                self.leave(row_group)?;
                hold(expected == Some((rows, unmade)), || {
                    format!("{rows} rows were saved and {unmade} unmade; handed out were {expected:?}")
                })
            }
            SchedulerEventPayload::RowGroupDiscarded { rows, .. } => {
                if let Some(book) = open.group(row_group) {
                    let busy = book.running;
                    hold(busy == 0, || format!("row group {row_group} is discarded with {busy} workers"))?;
                    let expected = book.rows - book.dropped.len() as u32;
                    hold(rows == expected, || {
                        format!("{rows} rows of row group {row_group} are unmade, not {expected}")
                    })?;
                    self.discard(rules, row_group, book)?;
                }
                self.leave(row_group)
            }
            _ => Ok(()),
        }
    }

    fn on_end(&mut self, _: &Rules, _: &RunReport) -> CheckResult {
        let left = self.in_work.first();
        left.map_or(Ok(()), |row_group| Err(format!("row group {row_group} was neither saved nor discarded")))
    }

    fn on_lifecycle_step(&mut self, rules: &Rules, open: &OpenRowGroups, what: &LifecycleStep<'_>) -> CheckResult {
        match *what {
            LifecycleStep::Checkpoint(group) => self.on_checkpoint(rules, open, group),
            LifecycleStep::CheckpointAnswered { row_group, .. } => {
                hold(self.out.contains_key(&row_group), || format!("row group {row_group} was not handed out"))
            }
            _ => Ok(()),
        }
    }
}
