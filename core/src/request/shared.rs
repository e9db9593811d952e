//! The state that all providers of one request admission share: leases, waiters, timers, effects and events.

use alloc::collections::VecDeque;

use super::config::RequestConfig;
use super::correlations::Correlations;
use super::event::{EventLog, EventScope, RequestEventPayload};
use super::fallbacks::Fallbacks;
use super::keys::ResourceId;
use super::provider::resource::CallRecord;
use super::result::{Denial, RequestEffect, WaiterId};
use super::timers::Timer;
use super::waiter::Waiter;
use super::yielding::YieldingWaiters;
use crate::id::{SlotKey, Slots};
use crate::lease::Ledger;
use crate::time::Instant;
use crate::timer_queue::TimerQueue;

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
