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
pub(super) struct PendingNotifications<H: Host> {
    runs: SmallVec<[Arc<Run<H>>; 2]>,
    notify: Option<fn(&Run<H>, Instant)>,
}

impl<H: Host> PendingNotifications<H> {
    pub(super) fn notify(self, now: Instant) {
        let Some(notify) = self.notify else { return };
        for run in &self.runs {
            notify(run, now);
        }
    }
}

/// The runs before a gate. One that is over leaves: until then it is kept, so none is dropped under the lock.
pub(crate) struct Runs<H: Host> {
    registered: Slots<Arc<Run<H>>>,
    /// Those whose workers gave something back or took it again.
    changed: SmallVec<[SlotKey; 2]>,
    /// The same for all runs; there once one has entered.
    asks: Option<Asks<H>>,
}

/// What the gate asks of a run.
struct Asks<H: Host> {
    resume_dispatch: fn(&Run<H>, Instant),
    notify: fn(&Run<H>, Instant),
    stage: fn(&Run<H>, Ask<'_>),
}

/// Something to ask of a run's task stage, under the locks of both.
type Ask<'a> = &'a mut dyn FnMut(&mut dyn TaskResources);

impl<H: Host> Default for Runs<H> {
    fn default() -> Self {
        Self { registered: Slots::default(), changed: SmallVec::new(), asks: None }
    }
}

impl<H: Host> Runs<H> {
    /// Registers one more run.
    pub(crate) fn register(&mut self, run: &Arc<Run<H>>) -> SlotKey {
        let stage = |run: &Run<H>, ask: Ask<'_>| run.stage(|pipeline| ask(pipeline));
        self.asks = Some(Asks { resume_dispatch: Run::resume_dispatch, notify: Run::notify, stage });
        self.registered.insert(Arc::clone(run))
    }

    /// Removes a run. What is answered is to be dropped once the lock is open.
    pub(crate) fn unregister(&mut self, key: SlotKey) -> Option<Arc<Run<H>>> {
        self.registered.remove(key)
    }

    /// Lets the runs that changed do what they left undone.
    pub(super) fn resume_dispatch(&mut self, now: Instant) {
        let Some(asks) = &self.asks else { return };
        for key in &self.changed {
            if let Some(run) = self.registered.get(*key) {
                (asks.resume_dispatch)(run, now);
            }
        }
    }

    /// Whether no run calls through the gate: then there is never any news.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.registered.len() == 0
    }

    pub(super) fn has_notifications(&self) -> bool {
        !self.changed.is_empty()
    }

    pub(super) fn take_notifications(&mut self) -> PendingNotifications<H> {
        let runs = self.changed.drain(..).filter_map(|key| self.registered.get(key).cloned()).collect();
        PendingNotifications { runs, notify: self.asks.as_ref().map(|asks| asks.notify) }
    }

    /// What the task stage of the run with this `key` answers; `None` for a run that is over.
    fn ask<R>(&self, key: SlotKey, ask: impl FnOnce(&mut dyn TaskResources) -> R) -> Option<R> {
        let (run, asks) = (self.registered.get(key)?, self.asks.as_ref()?);
        let (mut ask, mut answer) = (Some(ask), None);
        (asks.stage)(run, &mut |stage| answer = ask.take().map(|ask| ask(stage)));
        answer
    }

    fn note(&mut self, key: SlotKey) {
        if !self.changed.contains(&key) {
            self.changed.push(key);
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
