//! Measures the time from the end of a task's last upstream to the task's own start.

use alloc::vec::Vec;

use crate::map::Map;
use crate::observe::Histogram;
use crate::pipeline::event::Correlation;
use crate::pipeline::{Plan, Strategy};
use crate::time::Instant;

/// When the upstreams of the row groups in progress completed.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    columns: Vec<Column>,
    row_groups: Map<u32, Completions>,
    pub(super) gap: Histogram,
}

#[derive(Clone, Debug)]
struct Column {
    upstreams: Vec<usize>,
    is_cell: bool,
    /// Whether a cell of another column depends on a cell of this one.
    feeds_cells: bool,
    feeds: bool,
}

#[derive(Clone, Debug, Default)]
struct Completions {
    /// The latest completion of each column.
    latest: Map<usize, Instant>,
    /// The completion of each cell that another cell depends on, by column and row.
    cells: Map<(usize, u32), Instant>,
}

impl Gaps {
    pub(super) fn new(plan: &Plan) -> Self {
        let is_cell = |column: &crate::pipeline::ColumnId| plan.columns()[column.index()].strategy == Strategy::Cell;
        let columns = plan.columns().iter().map(|column| plan.column_id(&column.name));
        let columns = columns.map(|id| {
            let [upstreams, downstreams] =
                [id.map_or(&[][..], |id| plan.upstreams(id)), id.map_or(&[][..], |id| plan.downstreams(id))];
            let is_cell_column = id.as_ref().is_some_and(is_cell);
            Column {
                upstreams: upstreams.iter().map(|upstream| upstream.index()).collect(),
                is_cell: is_cell_column,
                feeds_cells: is_cell_column && downstreams.iter().any(is_cell),
                feeds: !downstreams.is_empty(),
            }
        });
        Self { columns: columns.collect(), row_groups: Map::default(), gap: Histogram::default() }
    }

    pub(super) fn completed(&mut self, at: Instant, correlation: &Correlation) {
        let (Some(column), Some(row_group)) = (correlation.column, correlation.row_group) else { return };
        let Some(known) = self.columns.get(column.index()).filter(|column| column.feeds) else { return };
        let completions = self.row_groups.entry(row_group).or_default();
        completions.latest.insert(column.index(), at);
        if let Some(row) = correlation.row.filter(|_| known.feeds_cells) {
            completions.cells.insert((column.index(), row), at);
        }
    }

    pub(super) fn started(&mut self, at: Instant, correlation: &Correlation) {
        let (Some(column), Some(row_group)) = (correlation.column, correlation.row_group) else { return };
        let Some(known) = self.columns.get(column.index()) else { return };
        let Some(completions) = self.row_groups.get(&row_group) else { return };
        let completed = |upstream: &usize| match correlation.row.filter(|_| self.columns[*upstream].is_cell) {
            Some(row) => completions.cells.get(&(*upstream, row)),
            None => completions.latest.get(upstream),
        };
        if let Some(last) = known.upstreams.iter().filter_map(completed).max() {
            self.gap.record(at - *last);
        }
    }

    /// Removes a row group that has ended.
    pub(super) fn remove_row_group(&mut self, row_group: u32) {
        self.row_groups.remove(&row_group);
    }

    pub(super) fn clear(&mut self) {
        self.row_groups.clear();
    }
}
