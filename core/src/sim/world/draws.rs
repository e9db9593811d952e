//! What is left to chance in a run, each draw in a stream of its own.
//!
//! A draw for a task depends on the run's seed, the task and its try; a draw for a row on the seed, the row
//! group and the row. None depends on what happened before, so that two policies can be compared on the same
//! draws.

use alloc::vec::Vec;

use super::Rng;
use crate::pipeline::Task;

/// The streams of a run's seed. Those of its providers are numbered from 0.
const TASKS: u64 = u64::MAX;
const HOOKS: u64 = u64::MAX - 1;

/// The streams of one task.
const CONDITION: u64 = 0;
const TRIES: u64 = 1;
const POISON: u64 = 2;

/// The streams of one try.
const ENDING: u64 = 0;
const CALLS: u64 = 1;

/// The chances of one run.
pub(super) struct Draws {
    tasks: Rng,
    hooks: Rng,
}

impl Draws {
    pub(super) fn of(run: &Rng) -> Self {
        Self { tasks: run.fork(TASKS), hooks: run.fork(HOOKS) }
    }

    /// Whether a task's condition skips it: the same in every try.
    pub(super) fn is_skipped(&self, task: &Task, share: f64) -> bool {
        self.of_task(task).fork(CONDITION).unit_f64() < share
    }

    /// Whether a task makes a call that fails in every try.
    pub(super) fn is_poison(&self, task: &Task, share: f64) -> bool {
        share > 0.0 && self.of_task(task).fork(POISON).unit_f64() < share
    }

    /// A number in `[0, 1)` that decides how a try ends.
    pub(super) fn ending(&self, task: &Task) -> f64 {
        self.of_try(task).fork(ENDING).unit_f64()
    }

    /// What a call is drawn from: calls are counted from 0, and so is how often one was made again.
    pub(super) fn call(&self, task: &Task, call: u32, again: u32) -> Rng {
        let first = self.of_try(task).fork(CALLS).fork(u64::from(call));
        if again == 0 { first } else { first.fork(u64::from(again)) }
    }

    /// The rows that a pre-batch hook leaves out.
    pub(super) fn left_out(&self, row_group: u32, rows: u32, share: f64) -> Vec<u32> {
        let of_group = self.hooks.fork(u64::from(row_group));
        (0..rows).filter(|row| of_group.fork(u64::from(*row)).unit_f64() < share).collect()
    }

    fn of_task(&self, task: &Task) -> Rng {
        let row = task.row.map_or(0, |row| u64::from(row) + 1);
        // A column has at most 2^12 numbers, a row group at most 2^28.
        let place = u64::from(task.row_group) << 12 | task.column.index() as u64;
        self.tasks.fork(place).fork(row)
    }

    fn of_try(&self, task: &Task) -> Rng {
        self.of_task(task).fork(TRIES).fork(u64::from(task.attempt))
    }
}
