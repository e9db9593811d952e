//! The state that all providers of one request admission share: leases, waiters, timers, effects and events.

use alloc::collections::VecDeque;

use super::answer::{Denial, FailedProbes, RequestEffect, WaiterId};
use super::config::RequestConfig;
use super::correlations::Correlations;
use super::event::{EventLog, EventScope, RequestEventPayload};
use super::fallbacks::Fallbacks;
use super::keys::{FallbackId, ResourceId};
use super::provider::{Attempt, CallRecord, RecordedInstant};
use super::timers::Timer;
use super::yielding::YieldingWaiters;
use crate::budget::Usage;
use crate::id::{SlotKey, Slots};
use crate::lease::Ledger;
use crate::time::Instant;
use crate::timer_queue::TimerQueue;

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) resource: ResourceId,
    /// The slot of the resource at its provider and model.
    pub(super) slot: u32,
    /// The number of the command that queued it. Lower numbers arrived earlier.
    pub(super) number: u64,
    /// When it was queued. Known if it has a deadline, or if events were enabled then.
    pub(super) since: RecordedInstant,
    pub(super) deadline: Option<Instant>,
    pub(super) estimate: Usage,
    /// The run whose worker makes the request, if it is known.
    pub(super) run: Option<SlotKey>,
    pub(super) failed_probes: FailedProbes,
    /// Whether it is a retry whose last failure is undecided: see `provider/health.rs`.
    pub(super) is_undecided: bool,
    /// Whether [`YieldingWaiters`] has an entry for it.
    pub(super) is_yielding: bool,
    /// Its list of fallbacks, if it has one.
    pub(super) fallback: Option<FallbackId>,
    /// Its node in the queue of its provider and model.
    pub(super) node: u32,
}

impl Waiter {
    pub(super) fn slot(&self) -> usize {
        self.slot as usize
    }

    pub(super) fn attempt(&self) -> Attempt {
        Attempt { failed_probes: self.failed_probes, is_undecided: self.is_undecided, is_health_call: false }
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: RequestConfig,
    /// The number of commands carried out.
    pub(super) sequence: u64,
    pub(super) ledger: Ledger<CallRecord>,
    pub(super) waiters: Slots<Waiter>,
    pub(super) yielding: YieldingWaiters,
    pub(super) fallbacks: Fallbacks,
    pub(super) timers: TimerQueue<Timer>,
    pub(super) effects: VecDeque<RequestEffect>,
    pub(super) events: EventLog,
    pub(super) correlations: Correlations,
}

impl Shared {
    pub(super) fn new(config: RequestConfig) -> Self {
        Self {
            sequence: 0,
            ledger: Ledger::new(config.controller),
            waiters: Slots::default(),
            yielding: YieldingWaiters::default(),
            fallbacks: Fallbacks::default(),
            timers: TimerQueue::default(),
            effects: VecDeque::new(),
            events: EventLog::default(),
            correlations: Correlations::default(),
            config,
        }
    }

    pub(super) fn waiter_id(&self, key: SlotKey) -> WaiterId {
        WaiterId::new(self.config.controller, key)
    }

    #[inline]
    pub(super) fn emit(&mut self, now: Instant, resource: ResourceId, payload: RequestEventPayload) {
        self.events.push(now, EventScope::Resource(resource), payload);
    }

    /// Emits that the request of the current command was denied at once.
    #[cold]
    pub(super) fn emit_denied(&mut self, now: Instant, resource: ResourceId, denial: Denial) {
        if self.events.is_on() {
            let (place, about) = (EventScope::Resource(resource), self.correlations.current());
            self.events.push_correlated(now, place, about, RequestEventPayload::from(denial));
        }
    }
}
