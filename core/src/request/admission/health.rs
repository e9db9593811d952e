//! Calls that are made again because of an outage, and providers that are down, back or unavailable. The
//! rules are in `provider/health.rs`.

use alloc::vec::Vec;

use super::{Address, Located, RequestAdmission};
use crate::call::Completion;
use crate::id::SlotKey;
use crate::request::HealthConfig;
use crate::request::answer::{Acquire, AfterCall, Denial, DenialReason, RequestLease, Retry};
use crate::request::keys::{ProviderModelId, Request, ResourceId};
use crate::request::provider::{Attempt, Change, RetryStatus};
use crate::request::shared::Waiter;
use crate::request::snapshot::{HealthState, UnavailableCause};
use crate::time::Instant;
use crate::yielding::{TaskResources, TaskToken};

/// Calls that are made again.
impl RequestAdmission {
    /// Ends a call like [`RequestAdmission::release`], for a caller that makes it again if it failed in an
    /// outage. A lease that is not live is [`AfterCall::Final`].
    ///
    /// Without [`RequestConfig::health`](crate::request::RequestConfig::health) every outcome is final.
    #[expect(clippy::needless_pass_by_value, reason = "a lease is given back, not lent")]
    pub fn finish(&mut self, now: Instant, lease: RequestLease, done: &Completion) -> AfterCall {
        match self.end_call(now, lease.id, done) {
            Ok((at, true)) => self.providers[at].last_end().after,
            Ok((_, false)) | Err(_) => AfterCall::Final,
        }
    }

    /// Asks for a call again that failed in an outage, or in what may become one. It waits for the provider
    /// to come back. Its failure counts for nothing, unless the provider turns out to be up: then the call is
    /// rejected with [`DenialReason::FailureStands`].
    pub fn retry(&mut self, now: Instant, request: &Request, retry: Retry) -> Acquire {
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

    /// [`RequestAdmission::retry`] for a worker of a run, as [`RequestAdmission::acquire_yielding`] is for a
    /// first try.
    pub fn retry_yielding(
        &mut self,
        now: Instant,
        request: &Request,
        retry: Retry,
        token: TaskToken,
        tasks: &mut dyn TaskResources,
    ) -> Acquire {
        let now = self.begin(now);
        let (request, at) = self.locate_retry(now, request, retry);
        self.request_resume(now, &request, at, token, tasks)
    }

    /// The call that is made again, which may be one of another model now.
    fn locate_retry(&mut self, now: Instant, request: &Request, retry: Retry) -> (Request, Result<Located, Denial>) {
        match self.chosen(now, request) {
            Ok(chosen) => {
                let request = chosen.unwrap_or(*request);
                (request, self.stand_in_line(now, &request, retry))
            }
            Err(denial) => (*request, Err(denial)),
        }
    }

    fn stand_in_line(&mut self, now: Instant, request: &Request, retry: Retry) -> Result<Located, Denial> {
        let at = self.locate(now, request)?;
        let is_undecided = match self.providers[at.provider].retry_status(retry) {
            RetryStatus::FailureStands => {
                return Err(Denial { reason: DenialReason::FailureStands, changes_at: None });
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

/// Health.
impl RequestAdmission {
    /// When its providers count as down, and how they are probed then; `None`: they never do.
    #[must_use]
    pub fn health_config(&self) -> Option<&HealthConfig> {
        self.shared.config.health.as_ref().filter(|_| !self.shared.config.compatibility)
    }

    /// Lets calls go out again to a provider and model that is [unavailable](HealthState::Unavailable), down
    /// or suspected: a person has paid a bill or changed a key. If the key was refused or the account was
    /// empty, every model of the provider is reopened. Limits climb from 1 to what they were. Returns whether
    /// anything changed.
    pub fn reopen(&mut self, now: Instant, model: ProviderModelId) -> bool {
        let now = self.begin(now);
        let is_own = model.controller() == self.shared.config.controller;
        let Some(provider) = self.providers.get(model.index()).filter(|_| is_own) else { return false };
        let is_of_account = |state| matches!(state, HealthState::Unavailable { cause, .. } if cause.is_of_account());
        let (name, whole) = (provider.provider.clone(), is_of_account(provider.health_state()));
        let mut is_any = false;
        for at in 0..self.providers.len() {
            let other = &mut self.providers[at];
            let is_meant =
                at == model.index() || whole && other.provider == name && is_of_account(other.health_state());
            let change = if is_meant { other.reopen(now) } else { Change::None };
            if change != Change::None {
                is_any = true;
                other.emit_health(now, change, &mut self.shared);
                other.unblock_all();
                self.apply_health_change(now, at, change);
                self.serve(now, at, None, None);
            }
        }
        self.expire(now);
        self.serve_unserved(now, None);
        is_any
    }

    /// Says that the host makes health calls of a provider and model under `resource`, most often one of the
    /// domain [`Healthcheck`](crate::request::Domain::Healthcheck), or that it does no longer.
    ///
    /// While it does, it is asked for a [health call](crate::request::Effect::HealthCall) where that says
    /// more than the calls that wait: when three probes of an outage have failed, and when nothing else is
    /// out that could decide whose fault a failure was. Its lease is released like any other; released as
    /// local cancelled, it is due again at once. Returns whether this controller made the resource.
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

    /// Does what follows from the last end of a call.
    #[cold]
    pub(super) fn follow_last_end(&mut self, now: Instant, at: usize) {
        self.apply_health_change(now, at, self.providers[at].last_end().change);
        if !self.providers[at].has_waiters() {
            self.serve_unserved(now, None);
        }
    }

    /// Does what follows from a change of health at a provider and model.
    #[cold]
    pub(super) fn apply_health_change(&mut self, now: Instant, at: usize, change: Change) {
        self.reconsider_fallbacks(now);
        match change {
            Change::None | Change::ProbeDue => {}
            Change::StreakEnded => {
                for key in self.providers[at].take_undecided(&mut self.shared) {
                    self.reject(now, key, DenialReason::FailureStands);
                }
            }
            // They are preserved from now on, and wait like all others.
            Change::Down { .. } => {
                drop(self.providers[at].take_undecided(&mut self.shared));
                self.shared.yielding.mark_down();
            }
            Change::Cleared => {
                for key in self.providers[at].take_undecided(&mut self.shared) {
                    let Some(waiter) = self.shared.waiters.get_mut(key) else { continue };
                    waiter.failed_probes = waiter.failed_probes.and_one(at as u32);
                    if self.providers[at].charges(waiter) {
                        self.reject(now, key, DenialReason::FailureStands);
                    }
                }
            }
            Change::Recovered { .. } => {
                for key in self.waiters_of(at, |waiter| self.providers[at].charges(waiter)) {
                    self.reject(now, key, DenialReason::FailureStands);
                }
            }
            Change::Unavailable { cause, .. } => {
                self.reject_all(now, at);
                if cause.is_of_account() {
                    self.close_account(now, at, cause);
                }
            }
        }
    }

    /// Closes a new model if the account of its provider is closed.
    pub(super) fn join_account(&mut self, now: Instant, at: usize) {
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

    /// Closes every other model of the provider at `at`.
    fn close_account(&mut self, now: Instant, at: usize, cause: UnavailableCause) {
        let name = self.providers[at].provider.clone();
        for other in 0..self.providers.len() {
            let provider = &mut self.providers[other];
            let change = if provider.provider == name { provider.close(now, cause, None) } else { Change::None };
            if change != Change::None {
                provider.emit_health(now, change, &mut self.shared);
                self.reject_all(now, other);
            }
        }
    }

    /// Rejects every waiter of a provider and model that became unavailable.
    fn reject_all(&mut self, now: Instant, at: usize) {
        self.reconsider_fallbacks(now);
        drop(self.providers[at].take_undecided(&mut self.shared));
        for key in self.waiters_of(at, |_| true) {
            self.reject(now, key, DenialReason::Unavailable);
        }
    }

    /// O(waiters of all providers and models).
    fn waiters_of(&self, at: usize, is_meant: impl Fn(&Waiter) -> bool) -> Vec<SlotKey> {
        let is_here = |waiter: &Waiter| self.address(waiter.resource).provider as usize == at;
        let waiters = self.shared.waiters.iter().filter(|(_, waiter)| is_here(waiter) && is_meant(waiter));
        waiters.map(|(key, _)| key).collect()
    }
}
