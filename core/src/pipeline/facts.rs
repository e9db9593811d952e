//! What there is to see of a run. Nothing here changes anything.

use alloc::vec::Vec;

use super::outcome::FinishedRowGroup;
use super::report::{Progress, RunReport};
use super::row_group::Phase;
use super::scheduler::{Pipeline, State};
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
