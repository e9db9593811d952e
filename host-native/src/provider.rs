//! A provider and model at run time: its client, its place at the gate, and a meter on both.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::gate::{Gate, Permit};
use tidegate_core::request::tie::Tie;
use tidegate_core::request::{Completion, Denial, GroupId, Outcome, Request, ResourceId, ResourceSnapshot};

use crate::client::{CallError, ChatClient, ChatRequest};
use crate::host::TokioHost;
use crate::summary::CallCounts;
use crate::usage::{Level, Usage, UsageMeter};

/// What several models of one provider and model id share: the resource, its meter and its counters.
#[derive(Debug)]
pub struct Provider {
    /// `provider/model`.
    pub label: String,
    gate: Gate<TokioHost>,
    resource: ResourceId,
    meter: UsageMeter,
    calls: Calls,
}

#[derive(Debug, Default)]
struct Calls {
    made: AtomicU64,
    succeeded: AtomicU64,
    rate_limited: AtomicU64,
    failed: AtomicU64,
}

/// Why a call brought no text.
#[derive(Debug)]
pub enum CallFailure {
    /// It was never allowed out.
    NotAdmitted(Denial),
    /// It went out and failed.
    Failed(CallError),
}

impl Provider {
    /// A provider that calls through `gate` as `resource`, metered from now on.
    ///
    /// # Panics
    /// For a resource that is not the gate's own.
    #[must_use]
    pub fn new(label: String, gate: Gate<TokioHost>, resource: ResourceId) -> Self {
        let snapshot = gate.snapshot(resource).expect("a provider is made of a gate and its own resource");
        let meter = UsageMeter::new(snapshot.at, level(&snapshot));
        Self { label, gate, resource, meter, calls: Calls::default() }
    }

    /// Waits for a turn in `group`, makes the call, and tells the gate how it ended. The slot is held for exactly as
    /// long as the call is out, and given back also when this future is dropped. A worker with a `tie` holds nothing of the
    /// task stage while it waits.
    pub async fn call(
        &self,
        client: &ChatClient,
        group: GroupId,
        tie: Option<Tie>,
        request: ChatRequest<'_>,
    ) -> Result<String, CallFailure> {
        let admission = Request { group: Some(group), ..Request::new(self.resource) };
        let permit = self.gate.acquire(admission).tied(tie).await.map_err(CallFailure::NotAdmitted)?;
        let out = CallOut::new(self, permit);
        let answer = client.complete(request).await;
        out.end(&answer);
        answer.map_err(CallFailure::Failed)
    }

    /// The gate's name for it.
    #[must_use]
    pub fn resource(&self) -> ResourceId {
        self.resource
    }

    /// Where the provider stands, without changing anything.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "`new` has seen to it")]
    pub fn snapshot(&self) -> ResourceSnapshot {
        self.gate.snapshot(self.resource).expect("`new` has found the resource")
    }

    /// What its slots did so far.
    pub fn usage(&self) -> Usage {
        self.meter.observe(|| {
            let snapshot = self.snapshot();
            (snapshot.at, level(&snapshot))
        })
    }

    /// The calls so far.
    #[must_use]
    pub fn calls(&self) -> CallCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CallCounts {
            made: load(&self.calls.made),
            succeeded: load(&self.calls.succeeded),
            rate_limited: load(&self.calls.rate_limited),
            failed: load(&self.calls.failed),
        }
    }
}

fn level(snapshot: &ResourceSnapshot) -> Level {
    Level {
        in_flight: snapshot.in_flight,
        limit: snapshot.current_limit,
        cap: snapshot.effective_max,
        waiting: snapshot.waiters,
    }
}

/// A call that is out: counted, and metered at both ends, also when it is cut short.
struct CallOut<'a> {
    provider: &'a Provider,
    permit: Option<Permit<'a, TokioHost>>,
}

impl<'a> CallOut<'a> {
    fn new(provider: &'a Provider, permit: Permit<'a, TokioHost>) -> Self {
        provider.calls.made.fetch_add(1, Ordering::Relaxed);
        provider.usage();
        Self { provider, permit: Some(permit) }
    }

    fn end(mut self, answer: &Result<String, CallError>) {
        let calls = &self.provider.calls;
        let count = match answer {
            Ok(_) => &calls.succeeded,
            Err(CallError::RateLimited { .. }) => &calls.rate_limited,
            Err(_) => &calls.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        if let Some(permit) = self.permit.take() {
            permit.finish(completion(answer));
        }
    }
}

impl Drop for CallOut<'_> {
    fn drop(&mut self) {
        // A permit that is still here was cut short: its own drop releases it as cancelled.
        drop(self.permit.take());
        self.provider.usage();
    }
}

/// What the gate should learn from an answer.
fn completion(answer: &Result<String, CallError>) -> Completion {
    match answer {
        Ok(_) => Outcome::Success.into(),
        Err(CallError::RateLimited { retry_after, .. }) => Completion::rate_limited(*retry_after),
        Err(CallError::Timeout) => Outcome::ProviderTimeout.into(),
        Err(
            CallError::Server { .. }
            | CallError::Connection { .. }
            | CallError::Authentication { .. }
            | CallError::NotFound { .. }
            | CallError::Rejected { .. }
            | CallError::Malformed { .. },
        ) => Outcome::ProviderFailure.into(),
    }
}
