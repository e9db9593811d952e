//! The pipelines whose workers give back what they hold while they wait for this gate.
//!
//! Each keeps its machine under a lock of its own, which is only ever taken inside the gate's. So a worker gets its permit
//! and its task resources in one step that nobody can come between.

use alloc::sync::Arc;

use smallvec::SmallVec;

use crate::driver::shared::Shared as Run;
use crate::executor::Host;
use crate::handle::{SlotKey, Slots};
use crate::request::tie::{TaskStage, Tie};
use crate::time::Instant;

/// Runs to be told, once the lock is open, that their machine has something for them.
pub(super) type News<H> = SmallVec<[Arc<Run<H>>; 2]>;

/// The runs before a gate. One that is over leaves: until then it is kept, so none is dropped under the lock.
pub(crate) struct Runs<H: Host> {
    seats: Slots<Arc<Run<H>>>,
    /// Those whose workers gave something back or took it again.
    changed: SmallVec<[SlotKey; 2]>,
}

impl<H: Host> Default for Runs<H> {
    fn default() -> Self {
        Self { seats: Slots::default(), changed: SmallVec::new() }
    }
}

impl<H: Host> Runs<H> {
    /// A seat for one more run.
    pub(crate) fn enter(&mut self, run: &Arc<Run<H>>) -> SlotKey {
        self.seats.insert(Arc::clone(run))
    }

    /// Gives up a seat. What is answered is to be dropped once the lock is open.
    pub(crate) fn leave(&mut self, seat: SlotKey) -> Option<Arc<Run<H>>> {
        self.seats.remove(seat)
    }

    /// Lets the runs that changed do what they left undone.
    pub(super) fn go_on(&mut self, now: Instant) {
        for seat in &self.changed {
            if let Some(run) = self.seats.get(*seat) {
                run.go_on(now);
            }
        }
    }

    /// Whether no run calls through the gate: then there is never any news.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.seats.len() == 0
    }

    pub(super) fn has_news(&self) -> bool {
        !self.changed.is_empty()
    }

    pub(super) fn take_news(&mut self) -> News<H> {
        self.changed.drain(..).filter_map(|seat| self.seats.get(seat).cloned()).collect()
    }

    fn note(&mut self, seat: SlotKey) {
        if !self.changed.contains(&seat) {
            self.changed.push(seat);
        }
    }
}

/// A run that is over holds nothing: its workers may go at once.
impl<H: Host> TaskStage for Runs<H> {
    fn suspend(&mut self, now: Instant, tie: &Tie) -> bool {
        let run = self.seats.get(tie.run);
        let is_suspended = run.is_some_and(|run| run.stage(|pipeline| pipeline.suspend(now, tie)));
        if is_suspended {
            self.note(tie.run);
        }
        is_suspended
    }

    fn resume(&mut self, now: Instant, tie: &Tie) -> bool {
        self.seats.get(tie.run).is_none_or(|run| run.stage(|pipeline| pipeline.resume(now, tie)))
    }

    fn can_resume(&self, tie: &Tie) -> bool {
        self.seats.get(tie.run).is_none_or(|run| run.stage(|pipeline| pipeline.can_resume(tie)))
    }

    fn is_kept_by(&self, tie: &Tie, other: &Tie) -> bool {
        let run = self.seats.get(tie.run).filter(|_| tie.run == other.run);
        run.is_some_and(|run| run.stage(|pipeline| pipeline.is_kept_by(tie, other)))
    }
}
