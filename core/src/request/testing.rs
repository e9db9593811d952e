//! A request admission with one resource and a manual clock, for the unit tests.

use std::vec::Vec;

use super::*;
use crate::lease::ReleaseResult;
use crate::time::{Duration, Instant};

pub(crate) const CHAT: ResourceId = ResourceId::new(0, 0);

pub(crate) struct Bench {
    pub(crate) machine: RequestAdmission,
    pub(crate) now: Instant,
}

impl Bench {
    pub(crate) fn new(cap: u32, limit: LimitConfig) -> Self {
        // Without health tracking, no outcome of a call prevents the next one. These tests are about limits
        // and budgets.
        Self::of(RequestConfig { limit, health: None, ..RequestConfig::default() }, cap)
    }

    pub(crate) fn of(config: RequestConfig, cap: u32) -> Self {
        let mut machine = RequestAdmission::new(config).expect("valid settings");
        let model = machine.register(Instant::ZERO, "provider", "model", "default", cap).expect("a valid cap");
        assert_eq!(machine.resource(model, Domain::Chat), Ok(CHAT));
        Self { machine, now: Instant::ZERO }
    }

    pub(crate) fn take(&mut self, calls: u32) -> Vec<RequestLease> {
        (0..calls).map(|_| self.machine.try_acquire(self.now, &Request::new(CHAT)).expect("room")).collect()
    }

    pub(crate) fn end(&mut self, lease: RequestLease, outcome: impl Into<Completion>) {
        assert_eq!(self.machine.release(self.now, lease, &outcome.into()), ReleaseResult::Released);
    }

    pub(crate) fn wait(&mut self, request: Request) -> WaiterId {
        match self.machine.acquire(self.now, &request) {
            AcquireResult::Waiting(waiter) => waiter,
            other => panic!("expected to wait, got {other:?}"),
        }
    }

    pub(crate) fn granted(&mut self) -> Vec<(WaiterId, RequestLease)> {
        core::iter::from_fn(|| match self.machine.poll_effect()? {
            RequestEffect::Granted { waiter, lease } => Some((waiter, lease)),
            other => panic!("expected a grant, got {other:?}"),
        })
        .collect()
    }

    pub(crate) fn state(&self) -> ResourceSnapshot {
        self.machine.snapshot(self.now, CHAT).expect("it was registered")
    }

    pub(crate) fn limit(&self) -> u32 {
        self.state().current_limit
    }

    /// Makes `times` calls one after another, each of which succeeds.
    pub(crate) fn succeed(&mut self, times: u32) {
        for _ in 0..times {
            let lease = self.take(1).remove(0);
            self.end(lease, Outcome::Success);
        }
    }

    pub(crate) fn after(&mut self, span: Duration) {
        self.now += span;
    }
}
