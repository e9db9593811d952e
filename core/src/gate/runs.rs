//! The runs whose workers yield while they wait at the gate.
//!
//! Each run keeps its state behind its own lock, which is only taken while the gate's lock is held. A worker
//! therefore gets its permit and its task resources in one step. The gate uses a run only through
//! [`YieldingRun`].

use alloc::sync::Arc;

use lock_api::{Mutex, RawMutex};
use smallvec::SmallVec;

use crate::event::Correlation;
use crate::id::{SlotKey, Slots};
use crate::time::Instant;
use crate::wake_list::WakeList;
use crate::yielding::{TaskResources, TaskToken};

/// The state of a run, as the gate uses it. The gate calls it under both locks.
///
/// It is `Send`, so a lock around it can move between threads exactly if the lock type can.
pub(crate) trait YieldingRun: TaskResources + Send + 'static {
    /// Returns whether the run began to stop since the last call.
    fn take_stop(&mut self) -> bool;

    /// Returns whether the run postponed a dispatch until its yielded workers had a chance to resume.
    fn has_postponed_dispatch(&self) -> bool;

    /// Makes the postponed dispatch, if there is one.
    fn resume_dispatch(&mut self, now: Instant);

    /// Adds the wakers of the tasks that have something to do because the state changed.
    fn collect_wakers(&mut self, now: Instant, wakes: &mut WakeList);
}

/// The state of a run behind its own lock.
pub(crate) type RunLock<L> = Mutex<L, dyn YieldingRun>;

/// The runs of one gate. A run unregisters when it is over.
pub(super) struct Runs<L> {
    registered: Slots<Arc<RunLock<L>>>,
    /// Runs whose workers yielded or resumed since the last [`Runs::notify_changed`].
    changed: SmallVec<[SlotKey; 2]>,
}

impl<L: RawMutex> Runs<L> {
    pub(super) fn new() -> Self {
        Self { registered: Slots::default(), changed: SmallVec::new() }
    }

    pub(super) fn register(&mut self, run: Arc<RunLock<L>>) -> SlotKey {
        self.registered.insert(run)
    }

    /// Removes a run. The caller drops the returned state after the gate's lock is released.
    pub(super) fn unregister(&mut self, key: SlotKey) -> Option<Arc<RunLock<L>>> {
        self.registered.remove(key)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.registered.len() == 0
    }

    /// Makes the changed runs dispatch again, and collects their wakers.
    pub(super) fn notify_changed(&mut self, now: Instant, wakes: &mut WakeList) {
        for key in self.changed.drain(..) {
            if let Some(run) = self.registered.get(key) {
                let mut run = run.lock();
                run.resume_dispatch(now);
                run.collect_wakers(now, wakes);
            }
        }
    }

    fn mark_changed(&mut self, key: SlotKey) {
        if !self.changed.contains(&key) {
            self.changed.push(key);
        }
    }
}

/// Workers of an unregistered run hold no task resources, so they resume at once.
impl<L: RawMutex> TaskResources for Runs<L> {
    fn yield_resources(&mut self, now: Instant, token: &TaskToken) -> bool {
        let has_yielded = self.registered.get(token.run).is_some_and(|run| run.lock().yield_resources(now, token));
        if has_yielded {
            self.mark_changed(token.run);
        }
        has_yielded
    }

    fn resume(&mut self, now: Instant, token: &TaskToken) -> bool {
        self.registered.get(token.run).is_none_or(|run| run.lock().resume(now, token))
    }

    fn can_resume(&self, token: &TaskToken) -> bool {
        self.registered.get(token.run).is_none_or(|run| run.lock().can_resume(token))
    }

    fn correlation(&self, token: &TaskToken) -> Option<Correlation> {
        self.registered.get(token.run).and_then(|run| run.lock().correlation(token))
    }

    fn is_stopping(&self, run: SlotKey) -> bool {
        self.registered.get(run).is_some_and(|run_state| run_state.lock().is_stopping(run))
    }

    fn blocks(&self, holder: &TaskToken, token: &TaskToken) -> bool {
        holder.run == token.run && self.registered.get(token.run).is_some_and(|run| run.lock().blocks(holder, token))
    }
}
