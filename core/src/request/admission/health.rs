//! Retries of calls that failed in an outage, and the effects of a change of health on waiters. The rules are
//! in `provider/health/`.

use alloc::vec::Vec;

use super::{Address, Located, RequestAdmission};
use crate::call::Completion;
use crate::id::SlotKey;
use crate::request::HealthConfig;
use crate::request::keys::{ProviderModelId, Request, ResourceId};
use crate::request::provider::{Attempt, HealthChange, RetryStatus};
use crate::request::result::{AcquireResult, AfterCall, Denial, DenialReason, RequestLease, Retry};
use crate::request::snapshot::{HealthState, UnavailableCause};
use crate::request::waiter::Waiter;
use crate::time::Instant;
use crate::yielding::{TaskResources, TaskToken};

/// Retries.
impl RequestAdmission {
    /// Ends a call like [`RequestAdmission::release`], for a caller that retries calls that failed in an
    /// outage. Returns [`AfterCall::Final`] for a lease that is not active.
    ///
    /// Without [health tracking](crate::request::RequestConfig::health), every outcome is final.
    #[expect(clippy::needless_pass_by_value, reason = "a release consumes the lease")]
    pub fn finish(&mut self, now: Instant, lease: RequestLease, done: &Completion) -> AfterCall {
        match self.end_call(now, lease.id, done) {
            Ok((at, true)) => self.providers[at].last_end().after,
            Ok((_, false)) | Err(_) => AfterCall::Final,
        }
    }

    /// Requests a call again that failed in an outage, or in a streak of failures that may become one. The
    /// request waits until the provider is back. If other calls show that the provider is up, the failure was
    /// caused by the call itself, and the request is denied with [`DenialReason::RequestAtFault`].
    pub fn retry(&mut self, now: Instant, request: &Request, retry: Retry) -> AcquireResult {
        let now = self.begin(now);
        let (request, at) = self.locate_retry(now, request, retry);
        match at {
            Ok(at) => {
                self.expire(now);
                self.enqueue(now, &request, &at, None, None)
            }
            Err(denial) => self.deny(now, &request, denial),
        }
    }

    /// Repeats a call like [`RequestAdmission::retry`], for a worker of a run. The worker yields as in
    /// [`RequestAdmission::acquire_yielding`].
    pub fn retry_yielding(
        &mut self,
        now: Instant,
        request: &Request,
        retry: Retry,
        token: TaskToken,
        tasks: &mut dyn TaskResources,
    ) -> AcquireResult {
        let now = self.begin(now);
        let (request, at) = self.locate_retry(now, request, retry);
        self.acquire_located(now, &request, at, token, tasks)
    }

    /// Resolves the fallbacks of a retry, so that it may use another model than before, and locates its
    /// resource.
    fn locate_retry(&mut self, now: Instant, request: &Request, retry: Retry) -> (Request, Result<Located, Denial>) {
        match self.resolve_fallback(now, request) {
            Ok(chosen) => {
                let request = chosen.unwrap_or(*request);
                (request, self.locate_attempt(now, &request, retry))
            }
            Err(denial) => (*request, Err(denial)),
        }
    }

    fn locate_attempt(&mut self, now: Instant, request: &Request, retry: Retry) -> Result<Located, Denial> {
        let at = self.locate(now, request)?;
        let is_undecided = match self.providers[at.provider].retry_status(retry) {
            RetryStatus::RequestAtFault => {
                return Err(Denial { reason: DenialReason::RequestAtFault, changes_at: None });
            }
            RetryStatus::Undecided => true,
            RetryStatus::Preserved => false,
        };
        Ok(Located {
            attempt: Attempt { failed_probes: retry.failed_probes, is_undecided, is_health_call: false },
            ..at
        })
    }
}

/// Provider health.
impl RequestAdmission {
    /// Returns when providers count as down and how they are probed, or `None` if health is not tracked.
    #[must_use]
    pub fn health_config(&self) -> Option<&HealthConfig> {
        self.shared.config.health.as_ref().filter(|_| !self.shared.config.compatibility)
    }

    /// Allows calls again to a provider and model that is [unavailable](HealthState::Unavailable), down or
    /// suspected, for example after an operator has paid a bill or changed a key. If the key was rejected or
    /// the quota was exhausted, every model of the provider is reopened. Limits climb from 1 to their
    /// previous values. Returns whether anything changed.
    pub fn reopen(&mut self, now: Instant, model: ProviderModelId) -> bool {
        let now = self.begin(now);
        let is_own = model.controller() == self.shared.config.controller;
        let Some(provider) = self.providers.get(model.index()).filter(|_| is_own) else { return false };
        let is_of_account = |state| matches!(state, HealthState::Unavailable { cause, .. } if cause.is_of_account());
        let (name, reopens_account) = (provider.provider.clone(), is_of_account(provider.health_state()));
        let mut has_changed = false;
        for at in 0..self.providers.len() {
            let other = &mut self.providers[at];
            let is_affected =
                at == model.index() || reopens_account && other.provider == name && is_of_account(other.health_state());
            let change = if is_affected { other.reopen(now) } else { HealthChange::None };
            if change != HealthChange::None {
                has_changed = true;
                other.emit_health(now, change, &mut self.shared);
                other.unblock_all();
                self.apply_health_change(now, at, change);
                self.serve(now, at, None, None);
            }
        }
        self.expire(now);
        self.serve_unserved(now, None);
        has_changed
    }

    /// Sets whether the host makes health calls to the provider and model of `resource`. The leases of the
    /// calls are for `resource`, typically one of the domain
    /// [`Healthcheck`](crate::request::Domain::Healthcheck).
    ///
    /// While enabled, the machine emits
    /// [`RequestEffect::HealthCall`](crate::request::RequestEffect::HealthCall) when a
    /// health call gives more information than a waiting call: after three failed probes of an outage, and
    /// when an undecided failure needs another outcome but no other call is in flight. Its lease is released
    /// like any other. A health call that ends as local cancelled is due again at once. Returns whether this
    /// machine created the resource.
    pub fn set_health_calls(&mut self, now: Instant, resource: ResourceId, makes_them: bool) -> bool {
        let now = self.begin(now);
        let Some(Address { provider, slot }) = self.find(resource) else { return false };
        let at = provider as usize;
        self.providers[at].health_calls = makes_them.then_some(slot as usize);
        self.providers[at].unblock_all();
        self.expire(now);
        self.serve(now, at, None, None);
        self.serve_unserved(now, None);
        true
    }

    /// Applies the change of health of the last call that ended.
    #[cold]
    pub(super) fn apply_last_end(&mut self, now: Instant, at: usize) {
        self.apply_health_change(now, at, self.providers[at].last_end().change);
        if !self.providers[at].has_waiters() {
            self.serve_unserved(now, None);
        }
    }

    /// Applies a change of health to the waiters of a provider and model.
    #[cold]
    pub(super) fn apply_health_change(&mut self, now: Instant, at: usize, change: HealthChange) {
        self.move_fallback_waiters(now);
        match change {
            HealthChange::None | HealthChange::ProbeDue => {}
            HealthChange::StreakEnded => {
                for key in self.providers[at].take_undecided(&mut self.shared) {
                    self.deny_waiter(now, key, DenialReason::RequestAtFault);
                }
            }
            // These failures are preserved now. The waiters stay in the queue like all others.
            HealthChange::Down { .. } => {
                drop(self.providers[at].take_undecided(&mut self.shared));
                self.shared.yielding.mark_down();
            }
            HealthChange::Cleared => {
                for key in self.providers[at].take_undecided(&mut self.shared) {
                    let Some(waiter) = self.shared.waiters.get_mut(key) else { continue };
                    waiter.failed_probes = waiter.failed_probes.plus_one(at as u32);
                    if self.providers[at].is_poison(waiter) {
                        self.deny_waiter(now, key, DenialReason::RequestAtFault);
                    }
                }
            }
            HealthChange::Recovered { .. } => {
                for key in self.waiters_of(at, |waiter| self.providers[at].is_poison(waiter)) {
                    self.deny_waiter(now, key, DenialReason::RequestAtFault);
                }
            }
            HealthChange::Unavailable { cause, .. } => {
                self.deny_all(now, at);
                if cause.is_of_account() {
                    self.close_account(now, at, cause);
                }
            }
        }
    }

    /// Makes a new model unavailable if the account of its provider is unavailable.
    pub(super) fn inherit_account_closure(&mut self, now: Instant, at: usize) {
        let name = &self.providers[at].provider;
        let of_account = self.providers.iter().find_map(|other| match other.health_state() {
            HealthState::Unavailable { cause, probe_at, .. } if cause.is_of_account() && other.provider == *name => {
                Some((cause, probe_at))
            }
            _ => None,
        });
        if let Some((cause, probe_at)) = of_account {
            let pause = probe_at.map(|probe_at| probe_at.saturating_duration_since(now));
            let change = self.providers[at].close(now, cause, pause);
            self.providers[at].emit_health(now, change, &mut self.shared);
        }
    }

    /// Makes every other model of the provider at `at` unavailable.
    fn close_account(&mut self, now: Instant, at: usize, cause: UnavailableCause) {
        let name = self.providers[at].provider.clone();
        for other in 0..self.providers.len() {
            let provider = &mut self.providers[other];
            let change = if provider.provider == name { provider.close(now, cause, None) } else { HealthChange::None };
            if change != HealthChange::None {
                provider.emit_health(now, change, &mut self.shared);
                self.deny_all(now, other);
            }
        }
    }

    /// Denies every waiter of a provider and model that became unavailable.
    fn deny_all(&mut self, now: Instant, at: usize) {
        self.move_fallback_waiters(now);
        drop(self.providers[at].take_undecided(&mut self.shared));
        for key in self.waiters_of(at, |_| true) {
            self.deny_waiter(now, key, DenialReason::Unavailable);
        }
    }

    /// Returns the waiters of a provider and model that match `is_affected`. O(waiters of all providers and
    /// models).
    fn waiters_of(&self, at: usize, is_affected: impl Fn(&Waiter) -> bool) -> Vec<SlotKey> {
        let is_here = |waiter: &Waiter| self.address(waiter.resource).provider as usize == at;
        let waiters = self.shared.waiters.iter().filter(|(_, waiter)| is_here(waiter) && is_affected(waiter));
        waiters.map(|(key, _)| key).collect()
    }
}
