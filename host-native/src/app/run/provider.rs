//! A provider and model at run time: its client, its place at the gate, and a meter on both.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_core::budget::{Correction, Usage as Tokens};
use tidegate_core::gate::{Classify, Gate, GateRef, PermitOf};
use tidegate_core::request::{
    AfterCall, Completion, Denial, DenialReason, GroupId, HealthState, Outcome, Request, ResourceId, ResourceSnapshot,
    UnavailableCause,
};
use tidegate_core::yielding::TaskToken;

use crate::app::provider::cost::{Money, Price, SharedLedger};
use crate::app::provider::probe::{SMALLEST_CALL, smallest_call};
use crate::app::provider::usage::{Level, Usage, UsageMeter};
use crate::app::provider::{Answer, CallError, Client, with_stated_rates};
use crate::app::report::summary::{CallCounts, TokenTotals};
use crate::host::TokioHost;

/// What several models of one provider and model id share: the resource, its meter and its counters.
#[derive(Debug)]
pub struct Provider {
    /// `provider/model`.
    pub label: String,
    gate: Gate<TokioHost>,
    resource: ResourceId,
    meter: UsageMeter,
    calls: Calls,
    tokens: Bill,
    trouble: Mutex<Trouble>,
    price: Option<Price>,
    ledger: Arc<SharedLedger>,
}

/// How a call asks to go out.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// In which fairness group it waits.
    pub group: GroupId,
    /// The worker that makes it.
    pub token: Option<TaskToken>,
    /// The tokens it is estimated to take, for budgets and for the cost limit.
    pub estimate: Tokens,
}

/// Tokens so far.
#[derive(Debug, Default)]
struct Bill {
    input: AtomicU64,
    output: AtomicU64,
    /// Answers that did not say what they took.
    unbilled: AtomicU64,
}

#[derive(Debug, Default)]
struct Calls {
    made: AtomicU64,
    succeeded: AtomicU64,
    rate_limited: AtomicU64,
    failed: AtomicU64,
}

/// Why a call brought nothing.
#[derive(Debug)]
pub enum CallFailure {
    /// It was never allowed out.
    NotAdmitted(Denial),
    /// It went out and failed.
    Failed(CallError),
    /// Its provider or model cannot be used any more. What the provider said, if this call went out.
    Unavailable(Option<CallError>),
}

impl Provider {
    /// A provider that calls through `gate` as `resource`, metered from now on.
    ///
    /// # Panics
    /// For a resource that is not the gate's own.
    #[must_use]
    pub fn new(
        label: String,
        gate: Gate<TokioHost>,
        resource: ResourceId,
        price: Option<Price>,
        ledger: Arc<SharedLedger>,
    ) -> Self {
        let snapshot = gate.snapshot(resource).expect("a provider is made of a gate and its own resource");
        let meter = UsageMeter::new(snapshot.at, level(&snapshot));
        Self {
            label,
            gate,
            resource,
            meter,
            calls: Calls::default(),
            tokens: Bill::default(),
            trouble: Mutex::default(),
            price,
            ledger,
        }
    }

    /// Waits for a turn, makes the call that is `attempt`, and reports its outcome to the gate. Repeats that while the provider is down,
    /// as the gate decides. A slot is held for exactly as long as a call is out, and given back also when this future
    /// is dropped.
    ///
    /// A call that the cost limit keeps back is not made, as if its model could not be used any more.
    pub async fn call<T, F>(&self, admission: Admission, mut attempt: impl FnMut() -> F) -> Result<T, CallFailure>
    where
        F: Future<Output = Result<Answer<T>, CallError>>,
    {
        let request = Request { group: Some(admission.group), ..Request::new(self.resource) };
        let request = request.estimated(admission.estimate);
        let estimate = self.cost(admission.estimate);
        let (mut retry, mut failed) = (None, None);
        loop {
            let permit = match self.gate.acquire(request).with_retry(retry).for_task(admission.token).await {
                Ok(permit) => permit,
                Err(denial) => return Err(not_made(denial, failed)),
            };
            if !self.ledger.lock().reserve(estimate) {
                return Err(CallFailure::Unavailable(failed));
            }
            let out = CallOut::new(self, permit, estimate);
            let (answer, stated) = with_stated_rates(attempt()).await;
            out.hear(&stated);
            let after = out.end(&answer);
            let error = match answer {
                Ok(answer) => return Ok(answer.value),
                Err(error) => error,
            };
            // What it says then is about itself, and not about one request.
            if after != AfterCall::Final || matches!(error, CallError::RateLimited { .. }) {
                self.trouble.lock().note(&error);
            }
            match after {
                AfterCall::Final => return Err(CallFailure::Failed(error)),
                AfterCall::Retry(again) => (retry, failed) = (Some(again), Some(error)),
                AfterCall::Unavailable => return Err(CallFailure::Unavailable(Some(error))),
            }
        }
    }

    /// Makes the health calls that the gate asks for, with `client`, for as long as it is polled: the smallest call that shows whether the
    /// model answers, so that a run ends whose last row has a prompt that always fails.
    pub async fn make_health_calls(&self, client: &Client) {
        let mut health_calls = self.gate.health_calls(self.resource);
        let estimate = self.cost(SMALLEST_CALL);
        loop {
            let permit = health_calls.next().await;
            if !self.ledger.lock().reserve(estimate) {
                // The run is about to stop.
                return;
            }
            let out = CallOut::new(self, permit, estimate);
            // Whatever comes of it, this call is not made again.
            let _ = out.end(&smallest_call(client).await);
        }
    }

    /// Why it cannot be used any more, and what to do about it; `None` if it can.
    #[must_use]
    pub fn unavailable(&self) -> Option<String> {
        let HealthState::Unavailable { cause, .. } = self.snapshot().health else { return None };
        let said = self
            .trouble
            .lock()
            .0
            .iter()
            .find(|(of, _)| *of == cause)
            .map_or_else(|| cause.to_string(), |(_, said)| said.clone());
        Some(format!("{} cannot be used: {said}; {}", self.label, what_to_do(cause)))
    }

    /// What so many tokens cost here.
    fn cost(&self, tokens: Tokens) -> Money {
        self.price.map_or_else(Money::default, |price| price.of(tokens))
    }

    /// The tokens so far, and what they cost.
    #[must_use]
    pub fn tokens(&self) -> TokenTotals {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (input, output) = (load(&self.tokens.input), load(&self.tokens.output));
        let cost = self.price.map(|price| price.of_many(input, output));
        TokenTotals { input, output, unbilled: load(&self.tokens.unbilled), cost }
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

/// What a person can do about a model that cannot be used.
#[must_use]
pub fn what_to_do(cause: UnavailableCause) -> &'static str {
    match cause {
        UnavailableCause::KeyRejected => "check its key",
        UnavailableCause::QuotaExhausted => "add funds, or raise the quota",
        UnavailableCause::ModelNotFound => "check its `model` and `base_url`",
        UnavailableCause::Outage => "wait until it answers, or see `outage_patience`",
        UnavailableCause::RateLimited => "wait until it takes calls again, or see `rate_limit_patience`",
        _ => "see what the provider said",
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

/// What the provider said last about itself, for each reason for which it may not be usable: a rate limit says nothing about an outage.
#[derive(Debug, Default)]
struct Trouble(Vec<(UnavailableCause, String)>);

impl Trouble {
    fn note(&mut self, error: &CallError) {
        let cause = match error {
            CallError::RateLimited { .. } => UnavailableCause::RateLimited,
            CallError::KeyRejected { .. } => UnavailableCause::KeyRejected,
            CallError::QuotaExhausted { .. } => UnavailableCause::QuotaExhausted,
            CallError::ModelNotFound { .. } => UnavailableCause::ModelNotFound,
            _ => UnavailableCause::Outage,
        };
        self.0.retain(|(of, _)| *of != cause);
        self.0.push((cause, error.to_string()));
    }
}

/// A call that is out: counted, and metered at both ends, also when it is cut short.
struct CallOut<'a, G: GateRef> {
    provider: &'a Provider,
    permit: Option<PermitOf<G>>,
    /// What was set aside for it, and what it has cost: the same, until it is known better.
    estimate: Money,
    cost: Money,
}

impl<'a, G: GateRef> CallOut<'a, G> {
    fn new(provider: &'a Provider, permit: PermitOf<G>, estimate: Money) -> Self {
        provider.calls.made.fetch_add(1, Ordering::Relaxed);
        provider.usage();
        Self { provider, permit: Some(permit), estimate, cost: estimate }
    }

    /// Reports what the answer states of the provider's rates.
    fn hear(&self, stated: &[Correction]) {
        if let Some(permit) = &self.permit {
            permit.rate_limit_feedback(stated);
        }
    }

    fn end<T>(mut self, answer: &Result<Answer<T>, CallError>) -> AfterCall {
        let provider = self.provider;
        let count = match answer {
            Ok(_) => &provider.calls.succeeded,
            Err(CallError::RateLimited { .. }) => &provider.calls.rate_limited,
            Err(_) => &provider.calls.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        match answer {
            Ok(Answer { usage, .. })
            | Err(CallError::Malformed { usage, .. } | CallError::Unreadable { usage, .. }) => match usage {
                Some(used) => {
                    provider.tokens.input.fetch_add(u64::from(used.input_tokens), Ordering::Relaxed);
                    provider.tokens.output.fetch_add(u64::from(used.output_tokens), Ordering::Relaxed);
                    self.cost = provider.cost(*used);
                }
                None => {
                    provider.tokens.unbilled.fetch_add(1, Ordering::Relaxed);
                }
            },
            // Cut short: the provider may have worked on it, so its estimate stands.
            Err(CallError::Timeout | CallError::Broken { .. }) => {}
            Err(_) => self.cost = Money::default(),
        }
        self.permit.take().map_or(AfterCall::Final, |permit| permit.finish_call(completion(answer)))
    }
}

impl<G: GateRef> Drop for CallOut<'_, G> {
    fn drop(&mut self) {
        // A permit that is still here was cut short: its own drop releases it as cancelled.
        drop(self.permit.take());
        self.provider.ledger.lock().settle(self.estimate, self.cost);
        self.provider.usage();
    }
}

/// What became of a call that may not go out, or not again after it `failed` so.
fn not_made(denial: Denial, failed: Option<CallError>) -> CallFailure {
    match (denial.reason, failed) {
        (DenialReason::Unavailable, failed) => CallFailure::Unavailable(failed),
        (DenialReason::RequestAtFault, Some(error)) => CallFailure::Failed(error),
        _ => CallFailure::NotAdmitted(denial),
    }
}

/// What the gate should learn from an answer.
fn completion<T>(answer: &Result<Answer<T>, CallError>) -> Completion {
    match answer {
        Ok(Answer { usage: Some(used), .. }) => Completion::from(Outcome::Success).used(*used),
        Ok(_) => Outcome::Success.into(),
        Err(error) => error.completion(),
    }
}

impl Classify for CallError {
    fn completion(&self) -> Completion {
        match self {
            Self::RateLimited { retry_after, .. } => Completion::rate_limited(*retry_after),
            Self::Timeout | Self::ServerTimeout { .. } => Outcome::ProviderTimeout.into(),
            Self::QuotaExhausted { .. } => Outcome::QuotaExhausted.into(),
            Self::Unreadable { usage, .. } => Completion { usage: *usage, ..Outcome::ProviderFailure.into() },
            // The provider has done its work: what is wrong is in the answer.
            Self::Malformed { usage, .. } => Completion { usage: *usage, ..Outcome::Success.into() },
            Self::Connection { .. } => Outcome::ConnectionFailed.into(),
            Self::KeyRejected { .. } => Outcome::KeyRejected.into(),
            Self::ModelNotFound { .. } => Outcome::ModelNotFound.into(),
            // A command that fails, and does not say that it may work later, fails for its row.
            Self::Rejected { .. } | Self::Command { .. } => Outcome::RequestRejected.into(),
            Self::Server { .. } | Self::Broken { .. } | Self::CommandBusy { .. } => Outcome::ProviderFailure.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::request::{Domain, RequestAdmission, RequestConfig};

    use super::*;
    use crate::app::provider::cost::Ledger;

    /// A provider of one slot and of one unit of the currency for a million tokens, with its group and ledger.
    fn provider(limit: Option<Money>) -> (Provider, GroupId, Arc<SharedLedger>) {
        let host = TokioHost::current().unwrap();
        // A call that fails is not made again.
        let config = RequestConfig { health: None, ..RequestConfig::default() };
        let gate = Gate::new(host, RequestAdmission::new(config).unwrap());
        let (resource, group) = gate.with(|machine, now| {
            let model = machine.register(now, "p", "m", "m", 1).unwrap();
            (machine.resource(model, Domain::Chat).unwrap(), machine.group("g", 1.0).unwrap())
        });
        let ledger = Arc::new(SharedLedger::new(Ledger::new(limit)));
        let price = Price::per_million(1.0, 1.0);
        (Provider::new("p/m".to_string(), gate, resource, price, Arc::clone(&ledger)), group, ledger)
    }

    fn estimated(group: GroupId, tokens: u32) -> Admission {
        Admission { group, token: None, estimate: Tokens::tokens(tokens, 0) }
    }

    #[test]
    fn what_a_provider_says_of_its_rate_explains_no_outage() {
        let mut trouble = Trouble::default();
        let limited = CallError::RateLimited { status: 429, retry_after: None };
        let failed = |status| CallError::Server { status, detail: String::new() };
        for error in [failed(500), failed(502), limited] {
            trouble.note(&error);
        }
        let said = |cause| trouble.0.iter().find(|(of, _)| *of == cause).map(|(_, said)| said.as_str());
        assert_eq!(said(UnavailableCause::Outage), Some(failed(502).to_string().as_str()), "the latest");
        assert_eq!(said(UnavailableCause::RateLimited), Some("rate limited (HTTP 429)"));
        assert_eq!(said(UnavailableCause::KeyRejected), None);
    }

    type Attempt = std::future::Ready<Result<Answer<()>, CallError>>;

    fn answer(usage: Option<Tokens>) -> impl FnMut() -> Attempt {
        move || std::future::ready(Ok(Answer { value: (), usage }))
    }

    fn failure(error: CallError) -> impl FnMut() -> Attempt {
        move || std::future::ready(Err(error.clone()))
    }

    fn money(tokens: u32) -> Money {
        Price::per_million(1.0, 1.0).unwrap().of(Tokens::tokens(tokens, 0))
    }

    #[tokio::test]
    async fn a_call_costs_what_it_says_or_its_estimate_and_a_failed_one_nothing() {
        let (provider, group, ledger) = provider(None);
        provider.call(estimated(group, 50), answer(Some(Tokens::tokens(3, 4)))).await.unwrap();
        assert_eq!(ledger.lock().spent(), money(7));
        provider.call(estimated(group, 50), answer(None)).await.unwrap();
        assert_eq!(ledger.lock().spent(), money(57));
        let refused = CallError::Server { status: 500, detail: String::new() };
        let failed = provider.call(estimated(group, 50), failure(refused)).await;
        assert!(matches!(failed, Err(CallFailure::Failed(CallError::Server { .. }))));
        provider.call(estimated(group, 50), failure(CallError::ServerTimeout { status: 504 })).await.unwrap_err();
        assert_eq!(ledger.lock().spent(), money(57));
        let totals = provider.tokens();
        assert_eq!((totals.input, totals.output, totals.unbilled, totals.cost), (3, 4, 1, Some(money(7))));
    }

    #[tokio::test]
    async fn a_malformed_answer_costs_what_it_says_or_its_estimate_and_so_does_a_call_not_waited_for() {
        let (provider, group, ledger) = provider(None);
        let malformed = |usage| CallError::Malformed { what: "usable", detail: String::new(), usage };
        provider.call(estimated(group, 50), failure(malformed(Some(Tokens::tokens(3, 4))))).await.unwrap_err();
        assert_eq!(ledger.lock().spent(), money(7));
        provider.call(estimated(group, 50), failure(malformed(None))).await.unwrap_err();
        assert_eq!(ledger.lock().spent(), money(57));
        provider.call(estimated(group, 50), failure(CallError::Timeout)).await.unwrap_err();
        assert_eq!(ledger.lock().spent(), money(107));
        let totals = provider.tokens();
        assert_eq!((totals.input, totals.output, totals.unbilled, totals.cost), (3, 4, 1, Some(money(7))));
        let told = completion::<()>(&Err(malformed(Some(Tokens::tokens(3, 4)))));
        assert_eq!(told, Completion::from(Outcome::Success).used(Tokens::tokens(3, 4)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_cut_short_gives_its_slot_back_and_costs_its_estimate() {
        let (provider, group, ledger) = provider(None);
        let endless = std::future::pending::<Result<Answer<()>, CallError>>;
        let short = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(short, provider.call(estimated(group, 50), endless)).await.is_err());
        assert_eq!((ledger.lock().spent(), provider.snapshot().in_flight), (money(50), 0));
    }

    #[tokio::test]
    async fn a_call_that_would_pass_the_limit_is_never_made_and_holds_no_slot() {
        let (provider, group, ledger) = provider(Some(money(60)));
        provider.call(estimated(group, 50), answer(None)).await.unwrap();
        let made = || async { panic!("it is not to be made") };
        let kept = provider.call::<(), _>(estimated(group, 20), made).await;
        assert!(matches!(kept, Err(CallFailure::Unavailable(None))) && ledger.lock().withheld().is_some());
        assert_eq!((provider.snapshot().in_flight, provider.calls().made), (0, 1));
    }
}
