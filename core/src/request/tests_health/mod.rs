//! Tests of the health of providers, and the bench that they use.

mod outages;
mod retries;
mod unavailable;

use alloc::vec::Vec;

use super::event::{EventScope, RequestEventPayload};
use super::*;
use crate::lease::ReleaseResult;
use crate::time::{Duration, Instant};

pub(super) const CAP: u32 = 8;

/// A request admission with health tracking. It has two models of one provider, the first of them with two
/// domains, and a model of another provider.
pub(super) struct Bench {
    pub(super) machine: RequestAdmission,
    pub(super) now: Instant,
    pub(super) model: ProviderModelId,
    pub(super) chat: ResourceId,
    pub(super) embedding: ResourceId,
    pub(super) other: ResourceId,
    pub(super) elsewhere: ResourceId,
}

pub(super) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(HealthConfig::default())
    }

    pub(super) fn with(health: HealthConfig) -> Self {
        let config = RequestConfig { health: Some(health), ..RequestConfig::default() };
        let mut machine = RequestAdmission::new(config).expect("valid settings");
        let now = Instant::ZERO + secs(100);
        let model = machine.register(now, "p", "m", "default", CAP).expect("a valid cap");
        let second = machine.register(now, "p", "n", "default", CAP).expect("a valid cap");
        let third = machine.register(now, "q", "m", "default", CAP).expect("a valid cap");
        let mut resource = |model, domain| machine.resource(model, domain).expect("a known model");
        let (chat, embedding) = (resource(model, Domain::Chat), resource(model, Domain::Embedding));
        let (other, elsewhere) = (resource(second, Domain::Chat), resource(third, Domain::Chat));
        Self { machine, now, model, chat, embedding, other, elsewhere }
    }

    pub(super) fn try_one(&mut self, resource: ResourceId) -> Result<RequestLease, Denial> {
        self.machine.try_acquire(self.now, &Request::new(resource))
    }

    pub(super) fn wait(&mut self, resource: ResourceId) -> WaiterId {
        match self.machine.acquire(self.now, &Request::new(resource)) {
            AcquireResult::Waiting(waiter) => waiter,
            answer => panic!("expected to wait, got {answer:?}"),
        }
    }

    /// Ends a call, and makes another request, which must wait.
    pub(super) fn release_and_wait(&mut self, lease: RequestLease, done: &Completion) -> WaiterId {
        assert_eq!(self.machine.release(self.now, lease, done), ReleaseResult::Released);
        self.wait(self.chat)
    }

    pub(super) fn end(&mut self, lease: RequestLease, outcome: Outcome) {
        assert_eq!(self.machine.release(self.now, lease, &outcome.into()), ReleaseResult::Released);
    }

    /// Ends a call that is retried if it failed in an outage.
    pub(super) fn finish(&mut self, lease: RequestLease, outcome: Outcome) -> AfterCall {
        self.machine.finish(self.now, lease, &outcome.into())
    }

    /// Lets a call fail and retries it.
    pub(super) fn fail(&mut self, lease: RequestLease) -> AcquireResult {
        let resource = lease.resource();
        match self.finish(lease, Outcome::ConnectionFailed) {
            AfterCall::Retry(retry) => self.machine.retry(self.now, &Request::new(resource), retry),
            other => panic!("expected a retry, got {other:?}"),
        }
    }

    pub(super) fn fail_and_wait(&mut self, lease: RequestLease) -> WaiterId {
        match self.fail(lease) {
            AcquireResult::Waiting(waiter) => waiter,
            answer => panic!("expected to wait, got {answer:?}"),
        }
    }

    /// Returns the waiters that were denied, with the reasons.
    pub(super) fn denied(&mut self) -> Vec<(WaiterId, DenialReason)> {
        let effects = core::iter::from_fn(|| self.machine.poll_effect());
        effects
            .map(|effect| match effect {
                RequestEffect::Denied { waiter, denial } => (waiter, denial.reason),
                other => panic!("expected a denial, got {other:?}"),
            })
            .collect()
    }

    pub(super) fn granted(&mut self) -> Vec<RequestLease> {
        let effects = core::iter::from_fn(|| self.machine.poll_effect());
        effects
            .filter_map(|effect| if let RequestEffect::Granted { lease, .. } = effect { Some(lease) } else { None })
            .collect()
    }

    pub(super) fn advance_to(&mut self, now: Instant) {
        self.now = now;
        self.machine.handle_timeout(now);
    }

    /// Takes the model down, and returns when its probe is due.
    pub(super) fn take_down(&mut self) -> Instant {
        for _ in 0..5 {
            let lease = self.try_one(self.chat).expect("it is healthy");
            self.end(lease, Outcome::ConnectionFailed);
        }
        let HealthState::Down { probe_at, .. } = self.health() else { panic!("it is down") };
        probe_at
    }

    pub(super) fn health(&self) -> HealthState {
        self.machine.provider_model(self.now, self.model).expect("it was registered").health
    }

    pub(super) fn limit(&self, resource: ResourceId) -> u32 {
        self.machine.stats(self.now, resource).expect("it was registered").limit
    }
}
