//! The random draws of a run. Each draw has a [stream](Rng::fork) of its own.
//!
//! ```text
//! run -- provider 0, 1, ...
//!     -- tasks -- task -- condition
//!     |                -- poison
//!     |                -- attempt -- ending
//!     |                           -- calls -- call -- repetition
//!     -- hooks -- row group -- row
//! ```
//!
//! A draw for a task depends on the run's seed, the task and its attempt. A draw for a row depends on the
//! seed, the row group and the row. No draw depends on what happened before, so two policies can be compared
//! on the same draws.

use alloc::vec::Vec;

use super::Rng;
use crate::pipeline::Task;

/// The streams of a run's seed. The streams of its providers are numbered from 0.
const TASKS: u64 = u64::MAX;
const HOOKS: u64 = u64::MAX - 1;

/// The streams of one task.
const CONDITION: u64 = 0;
const ATTEMPTS: u64 = 1;
const POISON: u64 = 2;

/// The streams of one attempt.
const ENDING: u64 = 0;
const CALLS: u64 = 1;

/// The random draws of one run.
pub(super) struct Draws {
    tasks: Rng,
    hooks: Rng,
}

impl Draws {
    pub(super) fn of(run: &Rng) -> Self {
        Self { tasks: run.fork(TASKS), hooks: run.fork(HOOKS) }
    }

    /// Returns whether a task's condition skips it. The result is the same in every attempt.
    pub(super) fn is_skipped(&self, task: &Task, share: f64) -> bool {
        self.of_task(task).fork(CONDITION).unit_f64() < share
    }

    /// Returns whether a task makes a poison request, which fails in every attempt.
    pub(super) fn is_poison(&self, task: &Task, share: f64) -> bool {
        share > 0.0 && self.of_task(task).fork(POISON).unit_f64() < share
    }

    /// Returns a number in `[0, 1)` that decides how an attempt ends.
    pub(super) fn ending(&self, task: &Task) -> f64 {
        self.of_attempt(task).fork(ENDING).unit_f64()
    }

    /// Returns the generator for a call of a task. The calls of an attempt and the repetitions of a call are
    /// counted from 0.
    pub(super) fn call(&self, task: &Task, call: u32, repetitions: u32) -> Rng {
        let first = self.of_attempt(task).fork(CALLS).fork(u64::from(call));
        if repetitions == 0 { first } else { first.fork(u64::from(repetitions)) }
    }

    /// Returns the rows that a pre-batch hook leaves out.
    pub(super) fn left_out(&self, row_group: u32, rows: u32, share: f64) -> Vec<u32> {
        let of_group = self.hooks.fork(u64::from(row_group));
        (0..rows).filter(|row| of_group.fork(u64::from(*row)).unit_f64() < share).collect()
    }

    fn of_task(&self, task: &Task) -> Rng {
        let row = task.row.map_or(0, |row| u64::from(row) + 1);
        // A plan has at most 2^12 columns, so each pair of row group and column has a number of its own.
        let column = u64::from(task.row_group) << 12 | task.column.index() as u64;
        self.tasks.fork(column).fork(row)
    }

    fn of_attempt(&self, task: &Task) -> Rng {
        self.of_task(task).fork(ATTEMPTS).fork(u64::from(task.attempt))
    }
}
