//! What becomes of a worker that could not be started, and of an answer for one that does not run.
//!
//! A spawn that failed never was: its lease is back, its try is not counted, and its column has one worker less to its
//! name. The task is kept like one whose worker was lost, for the next salvage round of its row group, and dropped when its
//! rounds are used up. A host that can start nothing at all therefore ends its run, and never spins.

use crate::id::KeyState;
use crate::lease::ReleaseAnswer;
use crate::pipeline::event::SchedulerFact;
use crate::pipeline::machine::Pipeline;
use crate::pipeline::outcome::WorkerId;
use crate::pipeline::row_group::frontier::Stage;
use crate::replay::RunCommand;
use crate::time::Instant;

impl Pipeline {
    /// A worker could not be started: an answer to [`Effect::Spawn`](crate::pipeline::Effect::Spawn) in place of
    /// [`Pipeline::task_finished`]. All of the spawn is rolled back. The task has used up a salvage round, is tried again
    /// once its row group is quiet, and is dropped as [`WorkerLost`](crate::pipeline::DropReason::WorkerLost) when no round is left.
    /// A second answer for one worker, or one for a worker never asked for, changes nothing and says so.
    pub fn spawn_failed(&mut self, now: Instant, worker: WorkerId) -> ReleaseAnswer {
        self.recorder.note(self.effects.len(), || RunCommand::SpawnFailed { now, worker });
        let now = self.clock.observe(now);
        let Some(failed) = self.workers.remove(worker.0) else { return self.refuse(now, worker) };
        let (key, lease) = (failed.key, failed.lease.id());
        let answer = self.release(failed);
        if self.teller.is_on() {
            self.tell_ended(now, key, SchedulerFact::WorkerSpawnFailed { worker }, lease);
        }
        self.tally.columns[key.column.index()].spawned -= 1;
        if let Some(group) = self.groups.get_mut(key.row_group) {
            group.running -= 1;
            let entry = group.frontier.entry_mut(&self.plan, (key.column, key.row));
            entry.attempts -= 1;
            if entry.stage != Stage::Dropped {
                let rounds = entry.rounds;
                let verdict = self.judge_lost(now, rounds);
                self.carry_out(key, verdict, None);
            }
        }
        self.enqueue_ready(key.row_group);
        self.settle(now, key.row_group);
        self.pump(now);
        answer
    }

    /// The answer for a worker that does not run.
    #[cold]
    pub(in crate::pipeline) fn refuse(&mut self, now: Instant, worker: WorkerId) -> ReleaseAnswer {
        let answer = match self.workers.state(worker.0) {
            KeyState::Spent => ReleaseAnswer::Duplicate,
            _ => ReleaseAnswer::UnknownLease,
        };
        self.teller.run(now, SchedulerFact::ReleaseDiagnostic { worker, answer });
        answer
    }
}
