//! The closed loop: callers that always have another call, request admission, and a mock provider.
//!
//! ```text
//! caller --acquire--> request admission --granted--> provider --end--> release; the caller's next call
//! ```
//!
//! Each caller belongs to a tenant, which is a fairness group of request admission. A call that is refused or
//! fails is not retried: the caller's next call takes its place.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::case::{ControlCase, Tokens};
use super::contender::Contender;
use super::figures::{CallTimes, Run};
use crate::budget::{RateLimitFeedback, Usage};
use crate::error::ConfigError;
use crate::id::{SlotKey, Slots};
use crate::map::Map;
use crate::request::{
    AcquireResult, Completion, Domain, GroupId, Outcome, Request, RequestAdmission, RequestConfig, RequestEffect,
    RequestLease,
};
use crate::sim::provider::{MockProvider, MockResponse};
use crate::sim::rng::Rng;
use crate::time::{Duration, Instant};

/// The latency of the response to a refused or rejected call.
const REFUSAL_LATENCY: Duration = Duration::from_millis(5);
/// The shortest timeout of a call.
const MIN_CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a call, in median latencies of the case.
const TIMEOUT_IN_MEDIANS: u64 = 10;
/// The random stream of the costs of calls, forked from the seed of the run.
const COST_STREAM: u64 = 11;

/// The costs of calls in tokens. The nth accepted call costs the same for every contender and the oracle, so
/// that their goodput can be compared.
pub(super) struct Costs {
    rng: Rng,
    law: Tokens,
    /// The number of calls accepted so far.
    accepted: u64,
}

impl Costs {
    pub(super) fn new(case: &ControlCase, seed: u64) -> Self {
        Self { rng: Rng::new(seed).fork(COST_STREAM), law: case.tokens, accepted: 0 }
    }

    /// Returns the cost of the next call, which stays the same until a call is accepted.
    pub(super) fn next(&self) -> u32 {
        let mut rng = self.rng.fork(self.accepted);
        match self.law {
            Tokens::Between(low, high) => low + rng.below(u64::from(high - low) + 1) as u32,
            Tokens::HeavyTailed { usual, most } => {
                // The inverse of the Pareto distribution function of shape 1.5. The mean is three times the
                // minimum.
                let above = 1.0 - rng.unit_f64();
                ((f64::from(usual) * libm::pow(above, -2.0 / 3.0)) as u32).min(most)
            }
        }
    }

    /// Counts an accepted call.
    pub(super) fn accept(&mut self) {
        self.accepted += 1;
    }
}

/// A call in flight.
struct Call {
    tenant: usize,
    lease: RequestLease,
    /// How the call will end.
    completion: Completion,
    /// Whether the call holds a slot of the provider until it ends.
    holds_slot: bool,
    /// The rate-limit headers of its response.
    stated: [Option<RateLimitFeedback>; 2],
    sent_at: Instant,
}

/// One run of a contender.
struct Loop {
    now: Instant,
    admission: RequestAdmission,
    /// The request of each tenant.
    requests: Vec<Request>,
    provider: MockProvider,
    costs: Costs,
    timeout: Duration,
    /// The calls in flight.
    calls: Slots<Call>,
    /// When each call in flight ends. Calls that end at the same instant end in the order of sending.
    ends: BinaryHeap<Reverse<(Instant, u64, SlotKey)>>,
    /// The tenant of each waiter.
    waiting: Map<u64, usize>,
    run: Run,
    /// The times of every call, if the caller needs them.
    times: Option<Vec<CallTimes>>,
}

/// Returns the timeout of a call of this case.
pub(super) fn call_timeout(case: &ControlCase) -> Duration {
    MIN_CALL_TIMEOUT.max(Duration::from_nanos(case.median().as_nanos().saturating_mul(TIMEOUT_IN_MEDIANS)))
}

/// Runs a contender on a case with one or two tenants of equal weight. Calls that have not ended when the
/// case ends count only as sent.
pub(super) fn run(case: &ControlCase, contender: &Contender, seed: u64, tenants: usize) -> Result<Run, ConfigError> {
    let mut this = Loop::new(case, contender, seed, tenants)?;
    this.run_to_end(case, tenants);
    this.run.refused_by_rate = this.provider.counters().refused_by_rate;
    Ok(this.run)
}

/// Runs a contender on a case with one tenant. Returns the calls in the order in which they were sent.
pub(super) fn times(case: &ControlCase, contender: &Contender, seed: u64) -> Result<Vec<CallTimes>, ConfigError> {
    let mut this = Loop::new(case, contender, seed, 1)?;
    this.times = Some(Vec::new());
    this.run_to_end(case, 1);
    Ok(this.times.unwrap_or_default())
}

impl Loop {
    fn new(case: &ControlCase, contender: &Contender, seed: u64, tenants: usize) -> Result<Self, ConfigError> {
        let now = Instant::ZERO;
        // Health tracking is off, so that only the limit holds calls back during an outage.
        let config = RequestConfig { limit: contender.settings.clone(), health: None, ..RequestConfig::default() };
        let mut admission = RequestAdmission::new(config)?;
        let model = admission.register(now, "provider", "model", "default", case.cap)?;
        let resource = admission.resource(model, Domain::Chat)?;
        if let Some(make) = &contender.make {
            admission.set_algorithm(now, resource, make(case.cap)?)?;
        }
        let groups = ["one", "other"].iter().take(tenants).map(|name| admission.group(name, 1.0));
        let groups: Vec<GroupId> = groups.collect::<Result<_, _>>()?;
        let request = |group: GroupId| Request { group: Some(group), ..Request::new(resource) };
        Ok(Self {
            now,
            requests: groups.into_iter().map(request).collect(),
            admission,
            provider: MockProvider::new(&case.provider, seed)?,
            costs: Costs::new(case, seed),
            timeout: call_timeout(case),
            calls: Slots::default(),
            ends: BinaryHeap::new(),
            waiting: Map::default(),
            run: Run::default(),
            times: None,
        })
    }

    fn run_to_end(&mut self, case: &ControlCase, tenants: usize) {
        // With twice as many callers as the cap, some call always waits.
        for caller in 0..2 * case.cap as usize {
            self.start_call(caller % tenants);
        }
        let end = Instant::ZERO + case.span;
        while let Some(at) = self.next_event().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.handle_event();
        }
    }

    /// Returns when the next call ends or the timer of request admission fires.
    fn next_event(&self) -> Option<Instant> {
        let end = self.ends.peek().map(|Reverse((at, ..))| *at);
        [end, self.admission.poll_timeout()].into_iter().flatten().min()
    }

    /// Ends one call if one is due, and handles the timeout otherwise. Then sends the calls that were
    /// granted.
    fn handle_event(&mut self) {
        match self.ends.peek().copied() {
            Some(Reverse((at, _, key))) if at <= self.now => {
                self.ends.pop();
                self.end_call(key);
            }
            _ => self.admission.handle_timeout(self.now),
        }
        while let Some(effect) = self.admission.poll_effect() {
            if let RequestEffect::Granted { waiter, lease } = effect
                && let Some(tenant) = self.waiting.remove(&waiter.to_bits())
            {
                self.send(tenant, lease);
            }
        }
    }

    fn start_call(&mut self, tenant: usize) {
        match self.admission.acquire(self.now, &self.requests[tenant]) {
            AcquireResult::Granted(lease) => self.send(tenant, lease),
            AcquireResult::Waiting(waiter) => {
                self.waiting.insert(waiter.to_bits(), tenant);
            }
            AcquireResult::Denied(_) => {}
        }
    }

    /// Sends a granted call to the provider, which decides at once how and when it ends.
    fn send(&mut self, tenant: usize, lease: RequestLease) {
        self.run.sent += 1;
        let tokens = self.costs.next();
        let answer = self.provider.arrive(self.now, tokens);
        let stated = self.provider.stated_rates(self.now);
        let (at, completion, holds_slot) = match answer {
            MockResponse::Accept { finish_at } => {
                (finish_at, Completion::from(Outcome::Success).used(Usage::tokens(tokens, 0)), true)
            }
            MockResponse::Corrupt { at, .. } => (at, Outcome::ProviderFailure.into(), true),
            MockResponse::Refuse { retry_after, .. } => {
                (self.now + REFUSAL_LATENCY, Completion::rate_limited(retry_after), false)
            }
            MockResponse::Reject { because } => (self.now + REFUSAL_LATENCY, because.outcome().into(), false),
            MockResponse::Fail { at, .. } => (at, Outcome::ProviderFailure.into(), false),
            MockResponse::Hang { until } => {
                (until.min(self.now + self.timeout), Outcome::ProviderTimeout.into(), false)
            }
        };
        if holds_slot {
            self.costs.accept();
        }
        if let Some(times) = &mut self.times {
            let is_refused = completion.outcome == Outcome::RateLimited;
            times.push(CallTimes { sent: self.now, ended: at, is_refused });
        }
        let key = self.calls.insert(Call { tenant, lease, completion, holds_slot, stated, sent_at: self.now });
        self.ends.push(Reverse((at, self.run.sent, key)));
    }

    /// Counts and releases a call that ends now, and starts the caller's next one.
    fn end_call(&mut self, key: SlotKey) {
        let Some(Call { tenant, lease, completion, holds_slot, stated, sent_at }) = self.calls.remove(key) else {
            return;
        };
        if holds_slot {
            self.provider.finish(self.now);
        }
        match completion.outcome {
            Outcome::Success => self.run.answer(self.now, self.now - sent_at, tenant),
            Outcome::RateLimited => self.run.refuse(self.now),
            _ => self.run.failed += 1,
        }
        let stated: Vec<RateLimitFeedback> = stated.into_iter().flatten().collect();
        if !stated.is_empty() {
            self.admission.rate_limit_feedback(self.now, lease.id(), &stated);
        }
        let _ = self.admission.release(self.now, lease, &completion);
        self.start_call(tenant);
    }
}
