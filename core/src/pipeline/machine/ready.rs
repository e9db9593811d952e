//! What becomes of a task that waits for nothing more.
//!
//! It is skipped, where an upstream was and its column says so, which may make further tasks ready; or it is queued; or,
//! in an ordered column, it waits for its turn.

use crate::pipeline::machine::{Pipeline, State};
use crate::pipeline::plan::key::TaskKey;
use crate::pipeline::row_group::frontier::Stage;

/// Tasks for which room is kept in the scratch list.
const SCRATCH: usize = 256;

impl Pipeline {
    /// Skips or queues the tasks of a row group that were found ready. A run that stops queues none; it still skips, since
    /// a row that lacks nothing else is complete.
    pub(in crate::pipeline) fn enqueue_ready(&mut self, row_group: u32) {
        let Some(group) = self.groups.get_mut(row_group) else { return self.ready.clear() };
        let now = self.clock.latest();
        let mut at = 0;
        // The list grows while it is worked off, by one task for each edge of the plan at most.
        while let Some(place) = self.ready.get(at).copied() {
            at += 1;
            let entry = group.frontier.entry_mut(&self.plan, place);
            if self.teller.is_on() && self.state == State::Running {
                self.teller.ready(now, TaskKey { row_group, column: place.0, row: place.1 }, *entry);
            }
            match entry.stage {
                Stage::Done | Stage::Dropped => {}
                Stage::Skipping => {
                    self.tally.columns[place.0.index()].skipped_with_upstream += 1;
                    group.frontier.complete(&self.plan, place, true, &mut self.ready);
                }
                _ if self.state != State::Running => {}
                // Queued by `pass_turns`.
                _ if self.plan.is_ordered(place.0) => entry.stage = Stage::Waiting,
                _ => {
                    self.tally.queued[place.0.index()] += 1;
                    self.routes[place.0.index()].queue(
                        &self.plan,
                        group,
                        place,
                        &mut self.dispatcher,
                        &mut self.teller,
                        now,
                    );
                }
            }
        }
        self.ready.clear();
        // A large row group fills the list once, when it is admitted; its room is not kept for the rest of the run.
        self.ready.shrink_to(SCRATCH);
    }
}
