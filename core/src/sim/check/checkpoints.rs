//! A row group is saved once, when no worker of it is left and every row is complete or dropped. Each one that is admitted is
//! told to be saved or to be discarded, once.

use alloc::collections::BTreeSet;
use alloc::format;

use super::books::{Books, GroupBook, Rules};
use super::{Check, Handover, Law, Verdict, hold};
use crate::map::Map;
use crate::pipeline::event::{SchedulerEvent, SchedulerFact};
use crate::pipeline::{ColumnId, DropReason, FinishedRowGroup, RunReport};

/// The row groups that were handed out.
#[derive(Clone, Debug, Default)]
pub(super) struct Checkpoints {
    /// With the rows to be saved; those of done ones are kept for the end.
    out: Map<u32, u32>,
    saved: BTreeSet<u32>,
    /// Admitted, and neither saved nor discarded.
    in_work: BTreeSet<u32>,
}

impl Checkpoints {
    fn hand_out(&mut self, rules: &Rules, books: &Books, group: &FinishedRowGroup) -> Verdict {
        let row_group = group.row_group;
        let Some(book) = books.group(row_group) else {
            return Err(format!("row group {row_group} is saved, and is not in work"));
        };
        let before = self.out.insert(row_group, group.live.len() as u32);
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
        accounted(book, group)
    }

    fn leave(&mut self, row_group: u32) -> Verdict {
        hold(self.in_work.remove(&row_group), || format!("row group {row_group} left, and was not in work"))
    }
}

/// Whether each row of the group is in one of the lists.
fn is_whole(rules: &Rules, group: &FinishedRowGroup) -> Verdict {
    let FinishedRowGroup { row_group, first_row, rows, .. } = *group;
    let first = u64::from(row_group) * u64::from(rules.config.row_group_size);
    hold(rows == rules.rows_of(row_group) && first_row == first, || {
        format!("row group {row_group} is saved as {rows} rows from row {first_row}")
    })?;
    let listed = group.live.iter().copied().chain(group.dropped.iter().map(|dropped| dropped.row));
    let distinct: BTreeSet<u32> = listed.clone().filter(|row| *row < rows).collect();
    hold(distinct.len() == rows as usize && listed.count() == rows as usize, || {
        format!("not every row of row group {row_group} is either saved or dropped, once")
    })
}

/// Whether each row was given up before, or was left over by a stop.
fn accounted(book: &GroupBook, group: &FinishedRowGroup) -> Verdict {
    let is_told = |row: u32| book.dropped.contains(&row);
    let unknown = group.dropped.iter().find(|row| !is_told(row.row) && row.reason != DropReason::Stopped);
    unknown.map_or(Ok(()), |row| Err(format!("{row:?} of row group {} was never given up", group.row_group)))?;
    let revived = group.live.iter().find(|row| is_told(**row));
    revived.map_or(Ok(()), |row| Err(format!("row {row} of row group {} was given up before", group.row_group)))
}

impl Check for Checkpoints {
    const LAW: Law = Law::Checkpoints;

    fn on_event(&mut self, rules: &Rules, books: &Books, event: &SchedulerEvent) -> Verdict {
        let Some(row_group) = event.correlation.row_group else { return Ok(()) };
        match event.fact {
            SchedulerFact::RowGroupAdmitted { rows, .. } => {
                let expected = rules.rows_of(row_group);
                hold(rows == expected, || format!("row group {row_group} has {rows} rows, not {expected}"))?;
                let is_done = rules.config.done_row_groups.contains(&row_group) || self.saved.contains(&row_group);
                hold(!is_done, || format!("row group {row_group} was admitted, and is saved already"))?;
                let is_new = self.in_work.insert(row_group);
                hold(is_new, || format!("row group {row_group} was admitted twice"))
            }
            SchedulerFact::WorkerSpawned { .. } => hold(!self.out.contains_key(&row_group), || {
                format!("a worker was started for row group {row_group} after it was handed out")
            }),
            SchedulerFact::RowGroupCheckpointed { rows } => {
                let expected = self.out.remove(&row_group);
                self.saved.insert(row_group);
                self.leave(row_group)?;
                hold(expected == Some(rows), || format!("{rows} rows were saved; handed out were {expected:?}"))
            }
            SchedulerFact::RowGroupDiscarded { .. } => {
                let busy = books.group(row_group).map_or(0, |book| book.running);
                hold(busy == 0, || format!("row group {row_group} is discarded with {busy} workers"))?;
                self.leave(row_group)
            }
            _ => Ok(()),
        }
    }

    fn on_end(&mut self, _: &Rules, _: &RunReport) -> Verdict {
        let left = self.in_work.first();
        left.map_or(Ok(()), |row_group| Err(format!("row group {row_group} was neither saved nor discarded")))
    }

    fn on_handover(&mut self, rules: &Rules, books: &Books, what: &Handover<'_>) -> Verdict {
        match *what {
            Handover::Checkpoint(group) => self.hand_out(rules, books, group),
            Handover::CheckpointAnswered { row_group, .. } => {
                hold(self.out.contains_key(&row_group), || format!("row group {row_group} was not handed out"))
            }
            _ => Ok(()),
        }
    }
}
