//! A provider and model at run time: its resource at the gate, counters and cost.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_core::budget::{RateLimitFeedback, Usage as Tokens};
use tidegate_core::gate::{Classify, Gate, GateRef, PermitOf};
use tidegate_core::request::{
    AfterCall, Completion, Denial, DenialReason, FallbackId, GroupId, HealthState, Outcome, Request, ResourceId,
    ResourceSnapshot, UnavailableCause,
};
use tidegate_core::yielding::TaskToken;

use crate::app::provider::cost::{Money, Price, Reservation, SharedLedger};
use crate::app::provider::probe::{PROBE_USAGE, probe_model};
use crate::app::provider::{CallError, CallOutput, Client, with_rate_feedback};
use crate::app::report::summary::{CallCounts, TokenTotals};
use crate::host::TokioHost;

/// A provider and model id as all models of the file that name them share it: one resource and set of
/// counters.
#[derive(Debug)]
pub struct Provider {
    /// `provider/model`.
    pub label: String,
    gate: Gate<TokioHost>,
    resource: ResourceId,
    calls: CallCounters,
    tokens: TokenCounters,
    /// Answers, each with an image if the model makes images.
    answers: AtomicU64,
    last_errors: Mutex<LastErrors>,
    price: Option<Price>,
    ledger: Arc<SharedLedger>,
}

/// The parameters of one admission to the gate.
#[derive(Clone, Copy, Debug)]
pub struct CallAdmission<'a> {
    /// The fairness group in which the call waits.
    pub group: GroupId,
    /// The resources that are called instead of the first one if it cannot be used.
    pub fallbacks: Option<FallbackId>,
    /// Whether the call was made before.
    pub is_repeated: bool,
    /// The task that makes the call; with a token, it yields its task resources while it waits.
    pub token: Option<TaskToken>,
    /// The estimated tokens of a call at each provider. The cost limit and the rate budgets reserve those of
    /// the provider that is called. From the third fallback on, rate budgets reserve the largest of theirs.
    pub estimates: &'a [Tokens],
}

impl CallAdmission<'_> {
    /// Returns the admission of the `index`-th of several calls that are made at the same time. Only one of
    /// them can yield the resources of the task.
    #[must_use]
    pub(crate) fn nth(self, index: usize) -> Self {
        Self { token: self.token.filter(|_| index == 0), ..self }
    }
}

/// Tokens used so far.
#[derive(Debug, Default)]
struct TokenCounters {
    input: AtomicU64,
    output: AtomicU64,
    /// Answers without a token count.
    unbilled: AtomicU64,
}

#[derive(Debug, Default)]
struct CallCounters {
    made: AtomicU64,
    succeeded: AtomicU64,
    rate_limited: AtomicU64,
    failed: AtomicU64,
}

/// The reason why a call has no answer.
#[derive(Debug)]
pub enum CallFailure {
    /// The gate denied the call; it was never made.
    NotAdmitted(Denial),
    /// The call was made and failed.
    Failed(CallError),
    /// The provider or model has become unavailable. Holds the error of this call if it was made.
    Unavailable(Option<CallError>),
}

impl Provider {
    /// Creates a provider that calls through `gate` as `resource`.
    ///
    /// # Panics
    /// If `resource` does not belong to `gate`.
    #[must_use]
    pub fn new(
        label: String,
        gate: Gate<TokioHost>,
        resource: ResourceId,
        price: Option<Price>,
        ledger: Arc<SharedLedger>,
    ) -> Self {
        assert!(gate.snapshot(resource).is_some(), "the resource belongs to the gate");
        Self {
            label,
            gate,
            resource,
            calls: CallCounters::default(),
            tokens: TokenCounters::default(),
            answers: AtomicU64::new(0),
            last_errors: Mutex::default(),
            price,
            ledger,
        }
    }

    /// Acquires a slot, makes the call with `attempt`, and reports the outcome to the gate; repeats this as
    /// long as the gate returns a retry.
    ///
    /// The call is made at one of `providers` from the place `from` on: at the first that can be used, if the
    /// admission has fallbacks. They all have the same gate. `attempt` receives the place of the provider,
    /// which is also returned.
    ///
    /// The slot is held exactly while a call is outstanding. It is released also if this future is dropped.
    ///
    /// # Errors
    /// See [`CallFailure`]. A call that would exceed the cost limit is not made and returns
    /// [`CallFailure::Unavailable`].
    ///
    /// # Panics
    /// If `from` is not less than the number of providers, or a provider has no estimate.
    pub async fn call_usable<T, F>(
        providers: &[&Self],
        from: usize,
        admission: CallAdmission<'_>,
        mut attempt: impl FnMut(usize) -> F,
    ) -> Result<(usize, T), (usize, CallFailure)>
    where
        F: Future<Output = Result<CallOutput<T>, CallError>>,
    {
        let first = providers[from];
        // Without fallbacks, the other providers are not called.
        let end = if admission.fallbacks.is_some() { admission.estimates.len() } else { from + 1 };
        let request = Request { group: Some(admission.group), ..Request::new(first.resource) };
        let request = request.with_estimates(&admission.estimates[from..end]).repeated(admission.is_repeated);
        let request = Request { fallback: admission.fallbacks, ..request };
        let (mut at, mut retry, mut failed) = (from, None, None);
        loop {
            let permit = match first.gate.acquire(request).with_retry(retry).for_task(admission.token).await {
                Ok(permit) => permit,
                Err(denial) => return Err((at, denied(denial, failed))),
            };
            at = providers.iter().position(|other| other.resource == permit.resource()).unwrap_or(from);
            let provider = providers[at];
            let estimate = provider.cost_of_answers(1, admission.estimates[at]);
            match provider.ledger.try_reserve(estimate) {
                Reservation::Reserved => {}
                Reservation::Rejected => return Err((at, CallFailure::Unavailable(failed))),
                Reservation::Lacking => {
                    // Meanwhile, others may use the slot, and the share that permits the call may lapse.
                    drop(permit);
                    provider.ledger.until_leased(estimate).await;
                    continue;
                }
            }
            let call = OutstandingCall::new(provider, permit, 1, estimate);
            // On the heap: every task would otherwise be as large as all of its call, and be moved with it.
            let (answer, feedback) = with_rate_feedback(Box::pin(attempt(at))).await;
            call.record_feedback(&feedback);
            let after = call.finish(&answer);
            let error = match answer {
                Ok(answer) => return Ok((at, answer.value)),
                Err(error) => error,
            };
            // Such an error describes the provider and not one request.
            if after != AfterCall::Final || matches!(error, CallError::RateLimited { .. }) {
                provider.last_errors.lock().record(&error);
            }
            match after {
                AfterCall::Final => return Err((at, CallFailure::Failed(error))),
                AfterCall::Retry(again) => (retry, failed) = (Some(again), Some(error)),
                // A request with fallbacks is made once more, and then uses one of them or is denied.
                AfterCall::Unavailable if admission.fallbacks.is_some() => (retry, failed) = (None, Some(error)),
                AfterCall::Unavailable => return Err((at, CallFailure::Unavailable(Some(error)))),
            }
        }
    }

    /// Makes the health calls that the gate requests, with `client`, until this future is dropped or the cost
    /// limit is reached.
    ///
    /// A health call is the smallest call that shows whether the model answers. Without it, an outage would
    /// never end for a run whose remaining prompts all fail.
    pub async fn make_health_calls(&self, client: &Client) {
        let mut health_calls = self.gate.health_calls(self.resource);
        let estimate = self.cost(PROBE_USAGE);
        loop {
            let permit = health_calls.next().await;
            match self.ledger.try_reserve(estimate) {
                Reservation::Reserved => {}
                // The run is about to stop.
                Reservation::Rejected => return,
                Reservation::Lacking => {
                    drop(permit);
                    self.ledger.until_leased(estimate).await;
                    continue;
                }
            }
            // It makes no image.
            let call = OutstandingCall::new(self, permit, 0, estimate);
            // The gate decides when the next health call is made, so the outcome needs no handling here.
            let _ = call.finish(&probe_model(client).await);
        }
    }

    /// Returns why the provider has become unavailable and what to do about it; `None` if it is available.
    #[must_use]
    pub fn unavailable(&self) -> Option<String> {
        let HealthState::Unavailable { cause, .. } = self.snapshot().health else { return None };
        let message = self.last_error(cause).unwrap_or_else(|| cause.to_string());
        Some(format!("{} cannot be used: {message}; {}", self.label, remedy(cause)))
    }

    /// Returns the latest error that counts as an outage.
    #[must_use]
    pub fn outage_error(&self) -> Option<String> {
        self.last_error(UnavailableCause::Outage)
    }

    fn last_error(&self, cause: UnavailableCause) -> Option<String> {
        self.last_errors.lock().message(cause).map(str::to_string)
    }

    /// Reserves the estimated cost of a batch. Returns `false` if it must not be submitted.
    pub fn reserve(&self, estimate: Tokens) -> bool {
        self.ledger.lock().reserve(self.cost(estimate))
    }

    /// Releases the reserved cost of a batch, after the cost of its results was charged. `unreported` is the
    /// estimate of its answers without a token count, which is charged.
    pub fn release(&self, estimate: Tokens, unreported: Tokens) {
        self.ledger.lock().settle(self.cost(estimate), self.cost(unreported));
    }

    /// Counts answers of a batch that have no token count.
    pub fn count_unreported(&self, answers: u32) {
        self.tokens.unbilled.fetch_add(u64::from(answers), Ordering::Relaxed);
    }

    /// Rejects all further calls of the run, since the output cannot be written. `why` is the error message.
    pub fn stop_unwritable(&self, why: String) {
        self.ledger.lock().stop_unwritable(why);
    }

    /// Returns the cost of `tokens`; 0 without a price.
    #[must_use]
    pub fn cost(&self, tokens: Tokens) -> Money {
        self.cost_of_answers(0, tokens)
    }

    /// Returns the cost of answers with `tokens` together, each with an image if the model makes images.
    fn cost_of_answers(&self, answers: u64, tokens: Tokens) -> Money {
        let (input, output) = (u64::from(tokens.input_tokens), u64::from(tokens.output_tokens));
        self.price.map_or_else(Money::default, |price| price.of_many(input, output, answers))
    }

    /// Returns the tokens used so far, and the cost of all answered calls.
    #[must_use]
    pub fn tokens(&self) -> TokenTotals {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (input, output) = (load(&self.tokens.input), load(&self.tokens.output));
        let cost = self.price.map(|price| price.of_many(input, output, load(&self.answers)));
        TokenTotals { input, output, unbilled: load(&self.tokens.unbilled), cost }
    }

    /// Returns its resource at the gate.
    #[must_use]
    pub fn resource(&self) -> ResourceId {
        self.resource
    }

    /// Returns its state at the gate, without changing it.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "`new` has checked the resource")]
    pub fn snapshot(&self) -> ResourceSnapshot {
        self.gate.snapshot(self.resource).expect("`new` has checked the resource")
    }

    /// Returns the calls made so far.
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

/// Returns what a user can do about an unavailable model.
#[must_use]
pub fn remedy(cause: UnavailableCause) -> &'static str {
    match cause {
        UnavailableCause::KeyRejected => "check its key",
        UnavailableCause::QuotaExhausted => "add funds, or raise the quota",
        UnavailableCause::ModelNotFound => "check its `model` and `base_url`",
        UnavailableCause::Outage => "wait until it answers, or see `outage_patience`",
        UnavailableCause::RateLimited => "wait until it takes calls again, or see `rate_limit_patience`",
        UnavailableCause::TlsFailed => "check its address and its settings of TLS",
        _ => "read the message of the provider",
    }
}

/// The latest error by cause of unavailability. A rate limit does not explain an outage, so each cause has
/// its own.
#[derive(Debug, Default)]
struct LastErrors(Vec<(UnavailableCause, String)>);

impl LastErrors {
    fn record(&mut self, error: &CallError) {
        let cause = match error {
            CallError::RateLimited { .. } => UnavailableCause::RateLimited,
            CallError::KeyRejected { .. } => UnavailableCause::KeyRejected,
            CallError::QuotaExhausted { .. } => UnavailableCause::QuotaExhausted,
            CallError::Tls { .. } => UnavailableCause::TlsFailed,
            CallError::ModelNotFound { .. } | CallError::BatchBlocked { .. } => UnavailableCause::ModelNotFound,
            _ => UnavailableCause::Outage,
        };
        self.0.retain(|(of, _)| *of != cause);
        self.0.push((cause, error.to_string()));
    }

    fn message(&self, cause: UnavailableCause) -> Option<&str> {
        self.0.iter().find(|(of, _)| *of == cause).map(|(_, message)| message.as_str())
    }
}

/// An outstanding call. Counts it at its start, and settles its cost at its end, also if it is cancelled.
struct OutstandingCall<'a, G: GateRef> {
    provider: &'a Provider,
    permit: Option<PermitOf<G>>,
    /// The images that it makes, if the model makes images: 1, or 0 for a health call.
    answers: u64,
    /// The cost reserved for the call, and its cost as far as known; equal until the answer has a token
    /// count.
    estimate: Money,
    cost: Money,
}

impl<'a, G: GateRef> OutstandingCall<'a, G> {
    fn new(provider: &'a Provider, permit: PermitOf<G>, answers: u64, estimate: Money) -> Self {
        provider.calls.made.fetch_add(1, Ordering::Relaxed);
        Self { provider, permit: Some(permit), answers, estimate, cost: estimate }
    }

    /// Reports the rate limits that the answer states to the gate.
    fn record_feedback(&self, feedback: &[RateLimitFeedback]) {
        if let Some(permit) = &self.permit {
            permit.rate_limit_feedback(feedback);
        }
    }

    fn finish<T>(mut self, answer: &Result<CallOutput<T>, CallError>) -> AfterCall {
        let provider = self.provider;
        let count = match answer {
            Ok(_) => Some(&provider.calls.succeeded),
            Err(CallError::RateLimited { .. }) => Some(&provider.calls.rate_limited),
            Err(CallError::NotSent { .. }) => None,
            Err(_) => Some(&provider.calls.failed),
        };
        match count {
            Some(count) => count.fetch_add(1, Ordering::Relaxed),
            None => provider.calls.made.fetch_sub(1, Ordering::Relaxed),
        };
        let (is_charged, usage) = match answer {
            Ok(CallOutput { usage, .. }) => (true, *usage),
            Err(error) => error.charged_usage(),
        };
        if is_charged {
            provider.answers.fetch_add(self.answers, Ordering::Relaxed);
        }
        match (usage, answer) {
            (Some(used), _) => {
                provider.tokens.input.fetch_add(u64::from(used.input_tokens), Ordering::Relaxed);
                provider.tokens.output.fetch_add(u64::from(used.output_tokens), Ordering::Relaxed);
                self.cost = provider.cost_of_answers(self.answers, used);
            }
            (None, _) if is_charged => {
                provider.tokens.unbilled.fetch_add(1, Ordering::Relaxed);
            }
            // The provider may have processed the call, so its estimated cost stands.
            (None, Err(CallError::Timeout | CallError::Broken { .. })) => {}
            (None, _) => self.cost = Money::default(),
        }
        self.permit.take().map_or(AfterCall::Final, |permit| permit.finish_call(completion(answer)))
    }
}

impl<G: GateRef> Drop for OutstandingCall<'_, G> {
    fn drop(&mut self) {
        // Dropping an unfinished permit releases its slot as cancelled.
        drop(self.permit.take());
        self.provider.ledger.lock().settle(self.estimate, self.cost);
    }
}

/// Returns the failure of a call that the gate denied, where `failed` is the error of its previous attempt.
fn denied(denial: Denial, failed: Option<CallError>) -> CallFailure {
    match (denial.reason, failed) {
        (DenialReason::Unavailable, failed) => CallFailure::Unavailable(failed),
        (DenialReason::RequestAtFault, Some(error)) => CallFailure::Failed(error),
        _ => CallFailure::NotAdmitted(denial),
    }
}

/// Returns the completion that is reported to the gate.
fn completion<T>(answer: &Result<CallOutput<T>, CallError>) -> Completion {
    match answer {
        Ok(CallOutput { usage: Some(used), .. }) => Completion::from(Outcome::Success).used(*used),
        Ok(_) => Outcome::Success.into(),
        Err(error) => error.completion(),
    }
}

impl Classify for CallError {
    fn completion(&self) -> Completion {
        match self {
            Self::RateLimited { retry_after, .. } => Completion::rate_limited(*retry_after),
            Self::Timeout | Self::ServerTimeout { .. } | Self::NotAnswered { .. } => Outcome::ProviderTimeout.into(),
            Self::QuotaExhausted { .. } => Outcome::QuotaExhausted.into(),
            Self::Unreadable { usage, .. } => Completion { usage: *usage, ..Outcome::ProviderFailure.into() },
            // The provider did its work; the error is in the content of the answer.
            Self::Malformed { usage, .. }
            | Self::NotDownloaded { usage, .. }
            | Self::ContentFiltered { usage, .. }
            | Self::Refused { usage, .. } => Completion { usage: *usage, ..Outcome::Success.into() },
            Self::NotSent { .. } => Outcome::LocalCancelled.into(),
            Self::Connection { .. } => Outcome::ConnectionFailed.into(),
            Self::Tls { .. } => Outcome::TlsFailed.into(),
            Self::KeyRejected { .. } => Outcome::KeyRejected.into(),
            // As for a missing model, calls wait for a person, and no row is dropped.
            Self::ModelNotFound { .. } | Self::BatchBlocked { .. } => Outcome::ModelNotFound.into(),
            // A command fails for its row only, unless it says that it is busy.
            Self::Rejected { .. } | Self::Command { .. } | Self::CommandNotStarted { .. } => {
                Outcome::RequestRejected.into()
            }
            Self::Server { .. } | Self::Broken { .. } | Self::CommandBusy { .. } => Outcome::ProviderFailure.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::budget::{BudgetConfig, Dimension};
    use tidegate_core::request::{Domain, RequestAdmission, RequestConfig};

    use super::*;
    use crate::app::provider::cost::{LeasedPart, Ledger};

    /// Creates a provider with one slot and a price of one unit of currency per million tokens, with a group
    /// and its ledger.
    fn provider(limit: Option<Money>) -> (Provider, GroupId, Arc<SharedLedger>) {
        let host = TokioHost::current().unwrap();
        // Without health states, the gate never returns a retry.
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

    fn estimated(group: GroupId, tokens: u32) -> (GroupId, Tokens) {
        (group, Tokens::tokens(tokens, 0))
    }

    impl Provider {
        async fn call<T, F>(
            &self,
            (group, estimate): (GroupId, Tokens),
            mut attempt: impl FnMut() -> F,
        ) -> Result<T, CallFailure>
        where
            F: Future<Output = Result<CallOutput<T>, CallError>>,
        {
            let estimates = &[estimate];
            let admission = CallAdmission { group, fallbacks: None, is_repeated: false, token: None, estimates };
            let answer = Self::call_usable(&[self], 0, admission, |_| attempt()).await;
            answer.map(|(_, value)| value).map_err(|(_, failure)| failure)
        }
    }

    #[test]
    fn a_rate_limit_does_not_explain_an_outage() {
        let mut last_errors = LastErrors::default();
        let limited = CallError::RateLimited { status: 429, retry_after: None };
        let failed = |status| CallError::Server { status, detail: String::new() };
        for error in [failed(500), failed(502), limited] {
            last_errors.record(&error);
        }
        assert_eq!(last_errors.message(UnavailableCause::Outage), Some(failed(502).to_string().as_str()), "the latest");
        assert_eq!(last_errors.message(UnavailableCause::RateLimited), Some("rate limited (HTTP 429)"));
        assert_eq!(last_errors.message(UnavailableCause::KeyRejected), None);
    }

    type Attempt = std::future::Ready<Result<CallOutput<()>, CallError>>;

    fn answer(usage: Option<Tokens>) -> impl FnMut() -> Attempt {
        move || std::future::ready(Ok(CallOutput { value: (), usage }))
    }

    fn failure(error: CallError) -> impl FnMut() -> Attempt {
        move || std::future::ready(Err(error.clone()))
    }

    fn money(tokens: u32) -> Money {
        Price::per_million(1.0, 1.0).unwrap().of_many(u64::from(tokens), 0, 0)
    }

    #[tokio::test]
    async fn a_call_costs_its_token_count_or_else_its_estimate_and_a_failed_call_costs_nothing() {
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
    async fn a_malformed_answer_costs_its_token_count_or_its_estimate_and_a_timeout_costs_its_estimate() {
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
        let reported = completion::<()>(&Err(malformed(Some(Tokens::tokens(3, 4)))));
        assert_eq!(reported, Completion::from(Outcome::Success).used(Tokens::tokens(3, 4)));
        let gone = CallError::NotDownloaded { detail: String::new(), usage: Some(Tokens::tokens(3, 4)) };
        assert_eq!(completion::<()>(&Err(gone.clone())), reported, "the provider has answered");
        provider.call(estimated(group, 50), failure(gone)).await.unwrap_err();
        assert_eq!(ledger.lock().spent(), money(114));
    }

    #[tokio::test]
    async fn each_provider_of_a_call_reserves_its_own_estimate_from_its_budgets() {
        let host = TokioHost::current().unwrap();
        let gate = Gate::new(host, RequestAdmission::new(RequestConfig::default()).unwrap());
        let (resources, group) = gate.with(|machine, now| {
            let resources = ["a", "b", "c"].map(|name| {
                let model = machine.register(now, name, "m", "m", 1).unwrap();
                let resource = machine.resource(model, Domain::Chat).unwrap();
                let budget = BudgetConfig::per_minute(Dimension::TotalTokens, 1_000);
                machine.set_budgets(now, resource, &[budget]).unwrap();
                resource
            });
            (resources, machine.group("g", 1.0).unwrap())
        });
        let ledger = Arc::new(SharedLedger::new(Ledger::new(None)));
        let providers = resources
            .map(|resource| Provider::new("p/m".to_string(), gate.clone(), resource, None, Arc::clone(&ledger)));
        let providers: Vec<&Provider> = providers.iter().collect();
        let estimates = [100, 20, 3].map(|tokens| Tokens::tokens(tokens, 0));
        let list = gate.with(|machine, _| machine.fallbacks(&resources[1..]).unwrap());
        for (from, fallbacks, reserved) in [
            (0, None, vec![(0, [100, 0, 0])]),
            (1, Some(list), vec![(1, [0, 20, 0]), (2, [0, 0, 3])]),
            (2, None, vec![(2, [0, 0, 3])]),
        ] {
            let admission = CallAdmission { group, fallbacks, is_repeated: false, token: None, estimates: &estimates };
            let mut seen = Vec::new();
            let attempt = |at| {
                let reserved = |provider: &Provider| provider.snapshot().budgets[0].reserved;
                seen.push((at, [0, 1, 2].map(|place| reserved(providers[place]))));
                let rejected = CallError::KeyRejected { status: 401 };
                std::future::ready(if at == 1 { Err(rejected) } else { Ok(CallOutput { value: (), usage: None }) })
            };
            Provider::call_usable(&providers, from, admission, attempt).await.unwrap();
            assert_eq!(seen, reserved);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_call_releases_its_slot_and_costs_its_estimate() {
        let (provider, group, ledger) = provider(None);
        let endless = std::future::pending::<Result<CallOutput<()>, CallError>>;
        let short = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(short, provider.call(estimated(group, 50), endless)).await.is_err());
        assert_eq!((ledger.lock().spent(), provider.snapshot().in_flight), (money(50), 0));
    }

    #[tokio::test]
    async fn a_call_that_lacks_a_lease_holds_no_slot_and_is_made_once_it_is_leased() {
        let (provider, group, ledger) = provider(Some(money(60)));
        let lease = |tokens| LeasedPart { amount: money(tokens), ..LeasedPart::default() };
        ledger.lock().set_lease(lease(10));
        let lends = async {
            ledger.until_refill().await;
            assert_eq!((provider.snapshot().in_flight, provider.calls().made), (0, 0));
            ledger.update(|ledger| ledger.set_lease(lease(50)));
        };
        let (called, ()) = tokio::join!(provider.call(estimated(group, 50), answer(None)), lends);
        called.unwrap();
        assert_eq!((provider.calls().made, ledger.lock().spent()), (1, money(50)));
    }

    #[tokio::test]
    async fn a_call_that_would_exceed_the_cost_limit_is_not_made_and_holds_no_slot() {
        let (provider, group, ledger) = provider(Some(money(60)));
        provider.call(estimated(group, 50), answer(None)).await.unwrap();
        let made = || async { panic!("the call must not be made") };
        let kept = provider.call::<(), _>(estimated(group, 20), made).await;
        assert!(matches!(kept, Err(CallFailure::Unavailable(None))) && ledger.lock().stop_reason().is_some());
        assert_eq!((provider.snapshot().in_flight, provider.calls().made), (0, 1));
    }
}
