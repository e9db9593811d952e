//! The pipelines whose workers give back what they hold while they wait for this gate.
//!
//! Each keeps its machine under a lock of its own, which is only ever taken inside the gate's. So a worker gets its permit
//! and its task resources in one step that nobody can come between.
//!
//! What a gate asks of a run is put down by the runs as they enter. So a program whose gates serve no pipeline carries no
//! pipeline along: the linker finds nobody who names one.

use alloc::sync::Arc;

use smallvec::SmallVec;

use crate::driver::shared::Shared as Run;
use crate::id::{SlotKey, Slots};
use crate::runtime::Host;
use crate::time::Instant;
use crate::yielding::{TaskResources, YieldToken};

/// Runs to be told, once the lock is open, that their machine has something for them.
pub(super) struct News<H: Host> {
    runs: SmallVec<[Arc<Run<H>>; 2]>,
    notify: Option<fn(&Run<H>, Instant)>,
}

impl<H: Host> News<H> {
    pub(super) fn tell(self, now: Instant) {
        let Some(notify) = self.notify else { return };
        for run in &self.runs {
            notify(run, now);
        }
    }
}

/// The runs before a gate. One that is over leaves: until then it is kept, so none is dropped under the lock.
pub(crate) struct Runs<H: Host> {
    seats: Slots<Arc<Run<H>>>,
    /// Those whose workers gave something back or took it again.
    changed: SmallVec<[SlotKey; 2]>,
    /// The same for all runs; there once one has entered.
    asks: Option<Asks<H>>,
}

/// What the gate asks of a run.
struct Asks<H: Host> {
    go_on: fn(&Run<H>, Instant),
    notify: fn(&Run<H>, Instant),
    stage: fn(&Run<H>, Ask<'_>),
}

/// Something to ask of a run's task stage, under the locks of both.
type Ask<'a> = &'a mut dyn FnMut(&mut dyn TaskResources);

impl<H: Host> Default for Runs<H> {
    fn default() -> Self {
        Self { seats: Slots::default(), changed: SmallVec::new(), asks: None }
    }
}

impl<H: Host> Runs<H> {
    /// A seat for one more run.
    pub(crate) fn enter(&mut self, run: &Arc<Run<H>>) -> SlotKey {
        let stage = |run: &Run<H>, ask: Ask<'_>| run.stage(|pipeline| ask(pipeline));
        self.asks = Some(Asks { go_on: Run::go_on, notify: Run::notify, stage });
        self.seats.insert(Arc::clone(run))
    }

    /// Gives up a seat. What is answered is to be dropped once the lock is open.
    pub(crate) fn leave(&mut self, seat: SlotKey) -> Option<Arc<Run<H>>> {
        self.seats.remove(seat)
    }

    /// Lets the runs that changed do what they left undone.
    pub(super) fn go_on(&mut self, now: Instant) {
        let Some(asks) = &self.asks else { return };
        for seat in &self.changed {
            if let Some(run) = self.seats.get(*seat) {
                (asks.go_on)(run, now);
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
        let runs = self.changed.drain(..).filter_map(|seat| self.seats.get(seat).cloned()).collect();
        News { runs, notify: self.asks.as_ref().map(|asks| asks.notify) }
    }

    /// What the task stage of the run in `seat` answers; `None` for a run that is over.
    fn ask<R>(&self, seat: SlotKey, ask: impl FnOnce(&mut dyn TaskResources) -> R) -> Option<R> {
        let (run, asks) = (self.seats.get(seat)?, self.asks.as_ref()?);
        let (mut ask, mut answer) = (Some(ask), None);
        (asks.stage)(run, &mut |stage| answer = ask.take().map(|ask| ask(stage)));
        answer
    }

    fn note(&mut self, seat: SlotKey) {
        if !self.changed.contains(&seat) {
            self.changed.push(seat);
        }
    }
}

/// A run that is over holds nothing: its workers may go at once.
impl<H: Host> TaskResources for Runs<H> {
    fn suspend(&mut self, now: Instant, tie: &YieldToken) -> bool {
        let is_suspended = self.ask(tie.run, |stage| stage.suspend(now, tie)) == Some(true);
        if is_suspended {
            self.note(tie.run);
        }
        is_suspended
    }

    fn resume(&mut self, now: Instant, tie: &YieldToken) -> bool {
        self.ask(tie.run, |stage| stage.resume(now, tie)).unwrap_or(true)
    }

    fn can_resume(&self, tie: &YieldToken) -> bool {
        self.ask(tie.run, |stage| stage.can_resume(tie)).unwrap_or(true)
    }

    fn blocks(&self, holder: &YieldToken, token: &YieldToken) -> bool {
        holder.run == token.run && self.ask(token.run, |stage| stage.blocks(holder, token)) == Some(true)
    }
}
