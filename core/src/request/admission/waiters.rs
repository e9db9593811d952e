//! The waiters: which are served, denied or removed, and the timers that this depends on.

use super::{Address, RequestAdmission};
use crate::id::{SlotKey, Slots};
use crate::request::fallbacks::Fallbacks;
use crate::request::keys::Request;
use crate::request::provider::{HealthChange, ProviderModel, TaskSide, reborrow};
use crate::request::result::{Denial, DenialReason, RequestEffect, RequestLease};
use crate::request::shared::Shared;
use crate::request::timers::Timer;
use crate::request::waiter::Waiter;
use crate::time::Instant;

/// Waiters.
impl RequestAdmission {
    /// Serves the waiters of one provider and model, and arms their wake-up. Returns the lease of the waiter
    /// `direct` if it is granted; other grants become effects.
    pub(super) fn serve(
        &mut self,
        now: Instant,
        at: usize,
        direct: Option<SlotKey>,
        tasks: TaskSide<'_>,
    ) -> Option<RequestLease> {
        let provider = &mut self.providers[at];
        let granted = if provider.has_offers() { provider.serve(now, direct, tasks, &mut self.shared) } else { None };
        self.arm_wake(now, at);
        self.trim();
        granted
    }

    pub(super) fn arm_wake(&mut self, now: Instant, at: usize) {
        let wake = self.providers[at].next_wake(now);
        if wake != self.providers[at].wake_at {
            self.providers[at].wake_at = wake;
            if let Some(wake) = wake {
                self.arm(wake, Timer::Wake(at as u32));
            }
        }
    }

    /// Reduces [`Self::unserved`] to the providers and models with a waiter that could be granted. For a
    /// command that serves no waiter: as long as the list is not empty, [`RequestAdmission::handle_timeout`]
    /// is due at once and serves it.
    #[inline]
    pub(super) fn prune_unserved(&mut self, now: Instant) {
        if !self.unserved.is_empty() {
            self.drop_idle_unserved(now);
        }
    }

    #[cold]
    pub(super) fn drop_idle_unserved(&mut self, now: Instant) {
        let mut unserved = core::mem::take(&mut self.unserved);
        unserved.retain(|at| {
            let is_eligible = self.providers[*at as usize].has_eligible_waiter(now, &mut self.shared);
            if !is_eligible {
                self.arm_wake(now, *at as usize);
            }
            is_eligible
        });
        self.unserved = unserved;
        self.trim();
    }

    /// Serves every provider and model at which a timer was due.
    #[inline]
    pub(super) fn serve_unserved(&mut self, now: Instant, mut tasks: TaskSide<'_>) {
        let mut next = 0;
        while let Some(at) = self.unserved.get(next).copied() {
            self.serve(now, at as usize, None, reborrow(&mut tasks));
            next += 1;
        }
        self.unserved.clear();
    }

    /// Returns the request with the resource that it uses at `now` according to its fallbacks, or `None` if
    /// it has no fallbacks.
    #[inline]
    pub(super) fn resolve_fallback(&mut self, now: Instant, request: &Request) -> Result<Option<Request>, Denial> {
        match request.fallback {
            None => Ok(None),
            Some(fallback) => self.choose_fallback(now, request, fallback).map(Some),
        }
    }

    pub(super) fn mark_unserved(&mut self, at: u32) {
        if !self.unserved.contains(&at) {
            self.unserved.push(at);
        }
    }

    /// Processes due timers: denies waiters whose deadline has passed, and marks providers whose waiters may
    /// be granted as unserved.
    #[inline]
    pub(super) fn expire(&mut self, now: Instant) {
        if self.shared.timers.next().is_some_and(|at| at <= now) {
            self.expire_due(now);
        }
    }

    #[inline(never)]
    pub(super) fn expire_due(&mut self, now: Instant) {
        while let Some(timer) = self.pop_due(now) {
            match timer {
                Timer::Deadline(key) => self.deny_waiter(now, key, DenialReason::QueueTimeout),
                Timer::Fallback => {
                    self.shared.fallbacks.wake_at = None;
                    self.move_fallback_waiters(now);
                }
                Timer::Wake(at) => {
                    let provider = &mut self.providers[at as usize];
                    provider.wake_at = None;
                    let change = provider.end_patience(now);
                    provider.wake(now, &mut self.shared);
                    self.mark_unserved(at);
                    if change != HealthChange::None {
                        self.providers[at as usize].emit_health(now, change, &mut self.shared);
                        self.apply_health_change(now, at as usize, change);
                    }
                }
            }
        }
        self.trim();
    }

    /// Removes a waiter and denies it with an effect. Waiters behind it may be eligible now, so its provider
    /// is marked as unserved.
    pub(super) fn deny_waiter(&mut self, now: Instant, key: SlotKey, reason: DenialReason) {
        let Some(waiter) = self.remove(now, key, reason) else { return };
        let Address { provider, slot } = self.address(waiter.resource);
        let changes_at = match reason {
            DenialReason::UseFallback => waiter.deadline,
            _ => self.providers[provider as usize].next_change(now, slot as usize),
        };
        let denial = Denial { reason, changes_at };
        self.shared.effects.push_back(RequestEffect::Denied { waiter: self.shared.waiter_id(key), denial });
        self.mark_unserved(provider);
    }

    pub(super) fn remove(&mut self, now: Instant, key: SlotKey, reason: DenialReason) -> Option<Waiter> {
        let resource = self.shared.waiters.get(key)?.resource;
        let at = self.address(resource).provider as usize;
        let removed = self.providers[at].withdraw(now, key, &mut self.shared)?;
        if self.shared.events.is_on() {
            let id = self.shared.waiter_id(key);
            self.providers[at].emit_withdrawn(now, id, &removed, reason, &mut self.shared);
        }
        Some(removed)
    }
}

/// Time.
impl RequestAdmission {
    pub(super) fn arm(&mut self, at: Instant, timer: Timer) {
        let Self { shared: Shared { timers, waiters, fallbacks, .. }, providers, .. } = self;
        timers.arm(at, timer, |at, timer| is_current(waiters, providers, fallbacks, at, *timer));
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        let Self { shared: Shared { timers, waiters, fallbacks, .. }, providers, .. } = self;
        let due = timers.pop_due(now, |at, timer| is_current(waiters, providers, fallbacks, at, *timer));
        due.map(|(_, timer)| timer)
    }

    #[inline]
    pub(super) fn trim(&mut self) {
        let Self { shared: Shared { timers, waiters, fallbacks, .. }, providers, .. } = self;
        timers.trim(|at, timer| is_current(waiters, providers, fallbacks, at, *timer));
    }
}

fn is_current(
    waiters: &Slots<Waiter>,
    providers: &[ProviderModel],
    fallbacks: &Fallbacks,
    at: Instant,
    timer: Timer,
) -> bool {
    match timer {
        Timer::Fallback => fallbacks.wake_at == Some(at),
        Timer::Deadline(key) => waiters.get(key).is_some_and(|waiter| waiter.deadline == Some(at)),
        Timer::Wake(provider) => providers[provider as usize].wake_at == Some(at),
    }
}
