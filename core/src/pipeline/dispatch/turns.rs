//! Whose turn it is in a column that keeps an order.
//!
//! The tasks of an ordered column form one line: by row group, then by row. Its first one that is neither done nor
//! dropped has the turn; only that one is queued, the others stay out of the queue, where they hold up nothing. It keeps
//! the turn while it is deferred or delayed, and while a worker still runs it after its row was dropped.
//!
//! No two columns can wait for each other's turn: a task waits for the same row group's earlier columns, and for its own
//! column's earlier places, both of which come before it in the order by row group, column and row. Row groups are
//! admitted in their order, so the one whose turn it is has been admitted, or is the next to be.

use alloc::vec::Vec;

use crate::pipeline::machine::{Pipeline, State};
use crate::pipeline::plan::{ColumnId, Plan};

/// The turns of all ordered columns.
#[derive(Clone, Debug)]
pub(in crate::pipeline) struct Turns(Vec<Turn>);

/// The first place of a column's line that was not passed yet.
#[derive(Clone, Copy, Debug)]
struct Turn {
    column: ColumnId,
    row_group: u32,
    row: u32,
}

impl Turns {
    pub(in crate::pipeline) fn of(plan: &Plan) -> Self {
        let ordered = plan.order().iter().copied().filter(|column| plan.is_ordered(*column));
        Self(ordered.map(|column| Turn { column, row_group: 0, row: 0 }).collect())
    }
}

impl Turns {
    /// The row group and row whose turn it is; `None` for a column without an order.
    pub(in crate::pipeline) fn holder(&self, plan: &Plan, column: ColumnId) -> Option<(u32, Option<u32>)> {
        let turn = self.0.iter().find(|turn| turn.column == column)?;
        Some((turn.row_group, plan.is_cell(column).then_some(turn.row)))
    }
}

impl Pipeline {
    /// Queues, for every ordered column, the task that has the turn, if it is ready. O(ordered columns), and once for
    /// each place that was passed.
    pub(in crate::pipeline) fn pass_turns(&mut self) {
        if self.state != State::Running {
            return;
        }
        let (plan, now) = (&self.plan, self.clock.latest());
        for turn in &mut self.turns.0 {
            let column = turn.column;
            let counts = &self.tally.columns[column.index()];
            if counts.spawned > counts.ended() {
                continue;
            }
            while let Some(group) = self.groups.first_from(turn.row_group) {
                if group.span.row_group != turn.row_group {
                    // The ones between were saved, by this run or by an earlier one.
                    (turn.row_group, turn.row) = (group.span.row_group, 0);
                }
                let is_cell = plan.is_cell(column);
                let places = if is_cell { group.span.rows } else { 1 };
                let place = |row: u32| (column, is_cell.then_some(row));
                while turn.row < places && group.frontier.is_settled(plan, place(turn.row)) {
                    turn.row += 1;
                }
                if turn.row < places {
                    if group.frontier.is_ready(plan, place(turn.row)) {
                        let (dispatcher, teller) = (&mut self.dispatcher, &mut self.teller);
                        self.routes[column.index()].queue(plan, group, place(turn.row), dispatcher, teller, now);
                        self.tally.queued[column.index()] += 1;
                    }
                    break;
                }
                (turn.row_group, turn.row) = (turn.row_group + 1, 0);
            }
        }
    }
}
