//! Tests of fallbacks: which resource is used while the preferred one is not usable.

use alloc::vec::Vec;

use super::tests_health::{Bench, CAP, secs};
use super::*;
use crate::budget::{BudgetConfig, BudgetKey, Dimension, Usage, WalletLease, WalletMode};
use crate::time::{Duration, Instant};

/// A bench and a request with fallbacks: first `bench.chat`, then `bench.elsewhere`, which has another
/// provider.
struct FallbackBench {
    bench: Bench,
    request: Request,
}

impl FallbackBench {
    fn new() -> Self {
        Self::with(HealthConfig::default())
    }

    fn with(health: HealthConfig) -> Self {
        let mut bench = Bench::with(health);
        let fallback = bench.machine.fallbacks(&[bench.chat, bench.elsewhere]).expect("two resources");
        let request = Request::new(bench.chat).with_fallbacks(fallback);
        Self { bench, request }
    }

    /// Creates a bench whose models have a budget of 120 tokens a minute each. The request is estimated at
    /// 100 tokens at the first model and at 5 at the next. A model that is unavailable stays so.
    fn with_estimates() -> Self {
        let mut setup = Self::with(HealthConfig { recheck: None, ..HealthConfig::default() });
        let budget = BudgetConfig::per_minute(Dimension::TotalTokens, 120);
        for resource in [setup.bench.chat, setup.bench.elsewhere] {
            setup.bench.machine.set_budgets(setup.bench.now, resource, &[budget]).expect("valid");
        }
        setup.request = setup.request.with_estimates(&[Usage::tokens(100, 0), Usage::tokens(4, 1)]);
        setup
    }

    /// Returns the tokens that the calls in flight have reserved at the first model and at the next.
    fn reserved(&self) -> [u64; 2] {
        [self.bench.chat, self.bench.elsewhere].map(|resource| {
            let snapshot = self.bench.machine.snapshot(self.bench.now, resource).expect("it was registered");
            snapshot.budgets[0].reserved
        })
    }

    /// Starts a call of `tokens` without fallbacks.
    fn spend(&mut self, resource: ResourceId, tokens: u32) -> RequestLease {
        let request = Request::new(resource).estimated(Usage::tokens(tokens, 0));
        self.bench.machine.try_acquire(self.bench.now, &request).expect("there is room")
    }

    fn acquire(&mut self) -> AcquireResult {
        self.bench.machine.acquire(self.bench.now, &self.request)
    }

    /// Returns the lease of a request that is granted at once.
    fn call(&mut self) -> RequestLease {
        match self.acquire() {
            AcquireResult::Granted(lease) => lease,
            other => panic!("expected a grant, got {other:?}"),
        }
    }

    /// Returns the resource of a request that is granted at once.
    fn called_resource(&mut self) -> ResourceId {
        let lease = self.call();
        let resource = lease.resource();
        self.bench.end(lease, Outcome::LocalCancelled);
        resource
    }

    fn wait(&mut self) -> WaiterId {
        match self.acquire() {
            AcquireResult::Waiting(waiter) => waiter,
            other => panic!("expected to wait, got {other:?}"),
        }
    }

    /// Takes every slot of a resource.
    fn fill(&mut self, resource: ResourceId) -> Vec<RequestLease> {
        (0..CAP).map(|_| self.bench.try_one(resource).expect("there is room")).collect()
    }

    /// Returns the waiters that were denied so that they are requested again.
    fn moved_waiters(&mut self) -> Vec<WaiterId> {
        let denied = self.bench.denied();
        assert!(denied.iter().all(|(_, reason)| *reason == DenialReason::UseFallback), "{denied:?}");
        denied.into_iter().map(|(waiter, _)| waiter).collect()
    }

    /// Ends two calls of the first model with a rate limit of `span` each.
    fn rate_limit_twice(&mut self, span: Duration) {
        for _ in 0..2 {
            let lease = self.bench.try_one(self.bench.chat).expect("the cooldown is over");
            let done = Completion { retry_after: Some(span), ..Outcome::RateLimited.into() };
            assert_eq!(self.bench.machine.finish(self.bench.now, lease, &done), AfterCall::Final);
            self.bench.advance_to(self.bench.now + span);
        }
    }
}

#[test]
fn requests_use_the_first_model_and_wait_for_its_limit_while_it_is_usable() {
    let mut setup = FallbackBench::new();
    let leases = setup.fill(setup.bench.chat);
    setup.wait();
    for lease in leases {
        setup.bench.end(lease, Outcome::Success);
    }
    assert_eq!(setup.bench.granted().len(), 1);
    assert_eq!(setup.called_resource(), setup.bench.chat);
}

#[test]
fn while_the_first_is_down_requests_use_the_next_and_requests_without_fallbacks_wait() {
    let mut setup = FallbackBench::new();
    setup.bench.take_down();
    assert_eq!(setup.called_resource(), setup.bench.elsewhere);
    setup.bench.wait(setup.bench.chat);
    assert_eq!(setup.called_resource(), setup.bench.elsewhere);
}

#[test]
fn waiters_of_a_provider_that_goes_down_are_rejected_with_fall_back_in_order() {
    let mut setup = FallbackBench::new();
    let mut leases = setup.fill(setup.bench.chat);
    let waiters = [(); 7].map(|()| setup.wait());
    let without_fallbacks = setup.bench.wait(setup.bench.chat);
    for lease in leases.drain(..4) {
        let _ = setup.bench.finish(lease, Outcome::ConnectionFailed);
    }
    assert_eq!(setup.bench.granted().len(), 4, "it is not down yet");
    let _ = setup.bench.finish(leases.remove(0), Outcome::ConnectionFailed);
    assert_eq!(setup.moved_waiters(), waiters[4..]);
    assert!(setup.bench.machine.why_waiting(setup.bench.now, without_fallbacks).is_some(), "it has no fallback");
    assert_eq!(setup.called_resource(), setup.bench.elsewhere);
}

#[test]
fn a_call_that_failed_in_an_outage_is_retried_at_the_next_model() {
    let mut setup = FallbackBench::new();
    let leases = setup.fill(setup.bench.chat);
    let ends: Vec<AfterCall> =
        leases.into_iter().map(|lease| setup.bench.finish(lease, Outcome::ConnectionFailed)).collect();
    for end in ends {
        let AfterCall::Retry(retry) = end else { panic!("expected a retry, got {end:?}") };
        let answer = setup.bench.machine.retry(setup.bench.now, &setup.request, retry);
        let AcquireResult::Granted(lease) = answer else { panic!("the other is up: {answer:?}") };
        assert_eq!(lease.resource(), setup.bench.elsewhere);
        setup.bench.end(lease, Outcome::Success);
    }
}

#[test]
fn a_failure_at_one_model_does_not_affect_the_retry_at_another() {
    let mut setup = FallbackBench::new();
    // The failure is undecided at its model: no other call is in flight there.
    let lease = setup.bench.try_one(setup.bench.elsewhere).expect("there is room");
    let AfterCall::Retry(retry) = setup.bench.finish(lease, Outcome::ProviderFailure) else { panic!() };
    let answer = setup.bench.machine.retry(setup.bench.now, &setup.request, retry);
    let AcquireResult::Granted(lease) = answer else { panic!("the first is healthy: {answer:?}") };
    assert_eq!(lease.resource(), setup.bench.chat);
}

#[test]
fn when_a_probe_of_the_first_is_due_one_request_makes_it_and_others_use_the_next() {
    let mut setup = FallbackBench::new();
    let due = setup.bench.take_down();
    setup.bench.advance_to(due);
    let probe = setup.call();
    assert_eq!(probe.resource(), setup.bench.chat);
    assert_eq!(setup.called_resource(), setup.bench.elsewhere);
    setup.bench.end(probe, Outcome::Success);
    assert_eq!(setup.called_resource(), setup.bench.chat);
}

#[test]
fn if_all_requests_wait_at_the_next_model_the_first_to_arrive_makes_the_probe() {
    let mut setup = FallbackBench::new();
    let due = setup.bench.take_down();
    let _leases = setup.fill(setup.bench.elsewhere);
    let waiters = [(); 3].map(|()| setup.wait());
    assert_eq!(setup.bench.machine.poll_timeout(), Some(due));
    setup.bench.advance_to(due);
    assert_eq!(setup.moved_waiters(), waiters[..1]);
    setup.bench.advance_to(due + Duration::from_millis(1));
    assert_eq!(setup.moved_waiters(), [], "one is enough");
    let probe = setup.call();
    assert_eq!(probe.resource(), setup.bench.chat);
    setup.bench.end(probe, Outcome::Success);
    assert_eq!(setup.moved_waiters(), waiters[1..], "the first is back");
}

#[test]
fn a_refused_key_an_exhausted_quota_a_missing_model_and_an_error_of_tls_move_all_requests_to_the_next() {
    for outcome in [Outcome::KeyRejected, Outcome::QuotaExhausted, Outcome::ModelNotFound, Outcome::TlsFailed] {
        let mut setup = FallbackBench::with(HealthConfig { recheck: None, ..HealthConfig::default() });
        let mut leases = setup.fill(setup.bench.chat);
        let waiter = setup.wait();
        let lease = leases.remove(0);
        assert_eq!(setup.bench.finish(lease, outcome), AfterCall::Unavailable);
        assert_eq!(
            (setup.moved_waiters(), setup.called_resource()),
            (alloc::vec![waiter], setup.bench.elsewhere),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_request_is_rejected_as_unavailable_only_if_all_its_models_are_unavailable() {
    let mut setup = FallbackBench::with(HealthConfig { recheck: None, ..HealthConfig::default() });
    let lease = setup.call();
    setup.bench.end(lease, Outcome::KeyRejected);
    let lease = setup.fill(setup.bench.elsewhere).remove(0);
    let waiter = setup.wait();
    setup.bench.end(lease, Outcome::QuotaExhausted);
    assert_eq!(setup.bench.denied(), [(waiter, DenialReason::Unavailable)]);
    let denial = Denial { reason: DenialReason::Unavailable, changes_at: None };
    assert_eq!(setup.acquire(), AcquireResult::Denied(denial));
}

#[test]
fn after_fallback_after_of_rate_limits_only_one_trial_call_follows_each_pause() {
    let mut setup = FallbackBench::new();
    setup.rate_limit_twice(secs(10));
    assert_eq!(setup.called_resource(), setup.bench.chat, "it has been rate limited for 20 s");
    setup.bench.advance_to(setup.bench.now + secs(10));
    let trial = setup.call();
    assert_eq!(trial.resource(), setup.bench.chat, "the trial call");
    assert_eq!(setup.called_resource(), setup.bench.elsewhere);
    let done = Completion { retry_after: Some(secs(5)), ..Outcome::RateLimited.into() };
    let _ = setup.bench.machine.finish(setup.bench.now, trial, &done);
    assert_eq!(setup.called_resource(), setup.bench.elsewhere, "a pause is in force");
    setup.bench.advance_to(setup.bench.now + secs(5));
    let trial = setup.call();
    setup.bench.end(trial, Outcome::Success);
    assert_eq!([(); 2].map(|()| setup.called_resource()), [setup.bench.chat; 2], "it is back");
}

#[test]
fn a_trial_call_that_waits_for_a_shared_budget_asks_for_it() {
    let mut setup = FallbackBench::new();
    setup.rate_limit_twice(secs(30));
    let (now, chat) = (setup.bench.now, setup.bench.chat);
    let budget = BudgetConfig::per_minute(Dimension::Requests, 60);
    let key = BudgetKey::of_each(&[budget]).next().expect("it is one");
    let lease = |granted| WalletLease { granted: [(key, granted)].into(), mode: WalletMode::Scarce };
    let machine = &mut setup.bench.machine;
    machine.set_budgets(now, chat, &[budget]).expect("valid");
    machine.lease_budgets(now, chat, &lease(0)).expect("known");
    assert_eq!(setup.called_resource(), setup.bench.elsewhere, "no call waits for the trial");
    assert_eq!(setup.bench.machine.report_budgets(now, chat)[&key].call, 1);
    setup.bench.machine.lease_budgets(now, chat, &lease(1)).expect("known");
    assert_eq!(setup.called_resource(), chat);
}

#[test]
fn trial_calls_that_are_rate_limited_are_spaced_by_doubling_pauses() {
    let mut setup = FallbackBench::new();
    setup.rate_limit_twice(secs(30));
    let mut pauses = Vec::new();
    for _ in 0..3 {
        let trial = setup.call();
        assert_eq!(trial.resource(), setup.bench.chat);
        let done = Completion { retry_after: Some(Duration::from_millis(1)), ..Outcome::RateLimited.into() };
        let _ = setup.bench.machine.finish(setup.bench.now, trial, &done);
        let start = setup.bench.now;
        while setup.called_resource() == setup.bench.elsewhere {
            setup.bench.advance_to(setup.bench.now + Duration::from_millis(10));
        }
        pauses.push(setup.bench.now - start);
    }
    // The first pause follows the rate limit that began the change-over, and the others those of the trials.
    assert!(pauses[0] >= Duration::from_millis(400), "{pauses:?}");
    assert!(pauses.windows(2).all(|pair| pair[1] > pair[0]), "{pauses:?}");
}

#[test]
fn a_call_that_was_the_trial_is_repeated_at_the_next_model() {
    for pause in [Duration::from_millis(1), secs(10)] {
        let mut setup = FallbackBench::new();
        setup.rate_limit_twice(secs(15));
        setup.bench.advance_to(setup.bench.now + secs(60));
        let trial = setup.call();
        assert_eq!(trial.resource(), setup.bench.chat);
        let done = Completion { retry_after: Some(pause), ..Outcome::RateLimited.into() };
        let _ = setup.bench.machine.finish(setup.bench.now, trial, &done);
        // The next trial is due, and this is the last call.
        setup.bench.advance_to(setup.bench.now + secs(60));
        setup.request = setup.request.repeated(true);
        assert_eq!(setup.called_resource(), setup.bench.elsewhere, "{pause}");
        setup.request = setup.request.repeated(false);
        assert_eq!(setup.called_resource(), setup.bench.chat, "another call makes the trial after {pause}");
    }
}

#[test]
fn a_repeated_call_waits_for_a_model_that_only_limits_if_no_other_is_usable() {
    let mut setup = FallbackBench::with(HealthConfig { recheck: None, ..HealthConfig::default() });
    setup.rate_limit_twice(secs(30));
    setup.request = setup.request.repeated(true);
    let lease = setup.call();
    assert_eq!(lease.resource(), setup.bench.elsewhere);
    setup.bench.end(lease, Outcome::KeyRejected);
    assert_eq!(setup.called_resource(), setup.bench.chat);
}

#[test]
fn of_the_waiters_at_the_next_model_one_that_is_not_repeated_makes_the_trial_call() {
    let mut setup = FallbackBench::new();
    setup.rate_limit_twice(secs(30));
    let trial = setup.call();
    let done = Completion { retry_after: Some(secs(1)), ..Outcome::RateLimited.into() };
    let _ = setup.bench.machine.finish(setup.bench.now, trial, &done);
    let _leases = setup.fill(setup.bench.elsewhere);
    setup.request = setup.request.repeated(true);
    setup.wait();
    setup.request = setup.request.repeated(false);
    let waiter = setup.wait();
    let due = setup.bench.machine.poll_timeout().expect("the trial falls due");
    setup.bench.advance_to(due);
    assert_eq!(setup.moved_waiters(), [waiter]);
    assert_eq!(setup.called_resource(), setup.bench.chat);
}

#[test]
fn waiters_in_a_cooldown_move_exactly_when_fallback_after_has_passed() {
    let mut setup = FallbackBench::new();
    let lease = setup.call();
    let done = Completion { retry_after: Some(secs(3_600)), ..Outcome::RateLimited.into() };
    let _ = setup.bench.machine.finish(setup.bench.now, lease, &done);
    let waiter = setup.wait();
    let after = setup.bench.now + secs(30);
    assert_eq!(setup.bench.machine.poll_timeout(), Some(after));
    setup.bench.advance_to(Instant::from_nanos(after.as_nanos() - 1));
    assert_eq!(setup.moved_waiters(), []);
    setup.bench.advance_to(after);
    assert_eq!((setup.moved_waiters(), setup.called_resource()), (alloc::vec![waiter], setup.bench.elsewhere));
}

#[test]
fn a_request_at_the_instant_at_which_the_patience_ends_uses_the_next_model() {
    let rate_limit_patience = Some(secs(10));
    let mut setup = FallbackBench::with(HealthConfig { rate_limit_patience, recheck: None, ..HealthConfig::default() });
    let lease = setup.call();
    let done = Completion { retry_after: Some(secs(9)), ..Outcome::RateLimited.into() };
    let _ = setup.bench.machine.finish(setup.bench.now, lease, &done);
    setup.bench.wait(setup.bench.chat);
    setup.bench.now += secs(10);
    assert_eq!(setup.called_resource(), setup.bench.elsewhere);
}

#[test]
fn if_no_model_is_usable_a_request_waits_for_the_one_that_may_be_usable_first() {
    let mut setup = FallbackBench::new();
    setup.bench.take_down();
    let lease = setup.call();
    assert_eq!(lease.resource(), setup.bench.elsewhere);
    setup.bench.end(lease, Outcome::KeyRejected);
    // The first is down for half a second, and the second is unavailable for a minute.
    let waiter = setup.wait();
    let probe_at = setup.bench.machine.poll_timeout().expect("a probe is due");
    assert!(probe_at - setup.bench.now < secs(1));
    setup.bench.advance_to(probe_at);
    let Some(RequestEffect::Granted { waiter: granted, lease }) = setup.bench.machine.poll_effect() else {
        panic!("it is the probe")
    };
    assert_eq!((granted, lease.resource()), (waiter, setup.bench.chat));
}

#[test]
fn a_deadline_applies_to_a_wait_at_any_model() {
    let mut setup = FallbackBench::new();
    setup.bench.take_down();
    let _leases = setup.fill(setup.bench.elsewhere);
    setup.request = setup.request.within(Duration::from_millis(100));
    let waiter = setup.wait();
    setup.bench.advance_to(setup.bench.now + Duration::from_millis(100));
    assert_eq!(setup.bench.denied(), [(waiter, DenialReason::QueueTimeout)]);
}

#[test]
fn the_pressure_of_the_first_model_is_that_of_the_model_used_instead() {
    let mut setup = FallbackBench::new();
    setup.bench.take_down();
    let pressure = |setup: &FallbackBench| setup.bench.machine.pressure(setup.bench.now, setup.bench.chat);
    assert_eq!(pressure(&setup), None);
    let _leases = setup.fill(setup.bench.elsewhere);
    assert_eq!(pressure(&setup), Some(RequestPressure::CapReached));
}

#[test]
fn equal_lists_have_one_id_and_invalid_lists_are_rejected() {
    let mut bench = Bench::new();
    let lists = [[bench.chat, bench.other], [bench.other, bench.chat], [bench.chat, bench.other]];
    let ids = lists.map(|list| bench.machine.fallbacks(&list).expect("two resources"));
    assert!(ids[0] == ids[2] && ids[0] != ids[1]);
    let foreign = ResourceId::new(7, 0);
    for list in [&[bench.chat][..], &[bench.chat, bench.other, bench.chat], &[bench.chat, foreign]] {
        assert_eq!(bench.machine.fallbacks(list).expect_err("the list is invalid").field, "resources");
    }
    // A list of another resource, and one that does not exist.
    for fallback in [ids[1], FallbackId::new(9).expect("a small number")] {
        let request = Request::new(bench.chat).with_fallbacks(fallback);
        let denial = bench.machine.try_acquire(bench.now, &request).expect_err("it is not known");
        assert_eq!(denial.reason, DenialReason::Unregistered);
    }
}

#[test]
fn a_call_reserves_the_estimate_of_the_model_that_is_chosen() {
    let mut setup = FallbackBench::with_estimates();
    let lease = setup.call();
    assert_eq!(setup.reserved(), [100, 0]);
    setup.bench.end(lease, Outcome::KeyRejected);
    let _waited = setup.call();
    assert_eq!(setup.reserved(), [0, 5]);
    let _tried = setup.bench.machine.try_acquire(setup.bench.now, &setup.request).expect("there is room");
    assert_eq!(setup.reserved(), [0, 10]);
}

#[test]
fn a_call_without_estimates_of_its_fallbacks_reserves_the_same_at_each_model() {
    for estimated in [Request::estimated, |request: Request, estimate| request.with_estimates(&[estimate])] {
        let mut setup = FallbackBench::with_estimates();
        setup.request = Request { fallback: setup.request.fallback, ..Request::new(setup.bench.chat) };
        setup.request = estimated(setup.request, Usage::tokens(7, 0)).with_estimates(&[]);
        let lease = setup.call();
        assert_eq!(setup.reserved(), [7, 0]);
        setup.bench.end(lease, Outcome::KeyRejected);
        let _lease = setup.call();
        assert_eq!(setup.reserved(), [0, 7]);
    }
}

#[test]
fn a_waiter_that_moves_to_the_next_model_waits_for_its_estimate_there() {
    let mut setup = FallbackBench::with_estimates();
    let rejected = setup.bench.try_one(setup.bench.chat).expect("there is room");
    let _first = setup.call();
    let waiter = setup.wait();
    assert_eq!(setup.bench.machine.poll_timeout(), Some(setup.bench.now + secs(40)), "80 tokens are missing");
    let _spent = setup.spend(setup.bench.elsewhere, 117);
    setup.bench.end(rejected, Outcome::KeyRejected);
    assert_eq!(setup.moved_waiters(), [waiter]);
    let waiter = setup.wait();
    let fits_at = setup.bench.now + secs(1);
    let expected = CallWait::Budget { until: fits_at };
    assert_eq!(setup.bench.machine.why_waiting(setup.bench.now, waiter), Some(expected));
    assert_eq!(setup.bench.machine.poll_timeout(), Some(fits_at), "2 tokens are missing");
    setup.bench.advance_to(fits_at);
    let resources: Vec<ResourceId> = setup.bench.granted().iter().map(RequestLease::resource).collect();
    assert_eq!((resources, setup.reserved()), (alloc::vec![setup.bench.elsewhere], [100, 122]));
}

#[test]
fn a_waiter_that_moves_back_reserves_the_estimate_of_the_first_model() {
    let mut setup = FallbackBench::with_estimates();
    let due = setup.bench.take_down();
    let _spent = setup.spend(setup.bench.elsewhere, 120);
    let waiter = setup.wait();
    assert_eq!(setup.reserved(), [0, 120]);
    setup.bench.advance_to(due);
    assert_eq!(setup.moved_waiters(), [waiter]);
    let probe = setup.call();
    assert_eq!((probe.resource(), setup.reserved()), (setup.bench.chat, [100, 120]));
    setup.bench.end(probe, Outcome::Success);
}

#[test]
fn a_call_that_is_made_again_reserves_the_estimate_of_the_next_model() {
    for outcome in [Outcome::KeyRejected, Outcome::ConnectionFailed] {
        let mut setup = FallbackBench::with_estimates();
        let lease = setup.call();
        if outcome == Outcome::ConnectionFailed {
            let _ = setup.bench.take_down();
        }
        let again = match setup.bench.finish(lease, outcome) {
            AfterCall::Retry(retry) => setup.bench.machine.retry(setup.bench.now, &setup.request, retry),
            AfterCall::Unavailable => setup.acquire(),
            AfterCall::Final => panic!("expected a retry"),
        };
        let AcquireResult::Granted(lease) = again else { panic!("the next is usable: {again:?}") };
        assert_eq!((lease.resource(), setup.reserved()), (setup.bench.elsewhere, [0, 5]), "{outcome:?}");
    }
}

#[test]
fn from_the_fourth_resource_on_the_estimate_is_the_largest_of_theirs() {
    let usages = [(1, 1), (2, 2), (3, 3), (4, 9), (6, 0)].map(|(input, output)| Usage::tokens(input, output));
    let resource = ResourceId::new(0, 0);
    let estimates_of = |given: &[Usage]| {
        let request = Request::new(resource).with_estimates(given);
        [0, 1, 2, 3, 4, 5].map(|place| request.moved_to(resource, place).estimate)
    };
    let [first, second, third, fourth, _] = usages;
    let largest = Usage::tokens(6, 9);
    assert_eq!(estimates_of(&usages), [first, second, third, largest, largest, largest]);
    assert_eq!(estimates_of(&usages[..4]), [first, second, third, fourth, fourth, fourth]);
    assert_eq!(estimates_of(&usages[..3]), [first, second, third, third, third, third]);
    assert_eq!(estimates_of(&usages[..1]), [first; 6]);
}

#[cfg(feature = "redis")]
#[test]
fn a_request_without_estimates_of_its_fallbacks_is_written_as_before() {
    let FallbackBench { request, .. } = FallbackBench::new();
    let written =
        r#"{"resource":0,"group":null,"timeout":null,"estimate":{"input_tokens":100,"output_tokens":0},"fallback":1}"#;
    let estimates = [100, 5].map(|tokens| Usage::tokens(tokens, 0));
    assert_eq!(serde_json::to_string(&request.estimated(estimates[0])).unwrap(), written);
    assert_eq!(serde_json::from_str::<Request>(written).unwrap(), request.estimated(estimates[0]));
    let request = request.with_estimates(&estimates);
    let text = serde_json::to_string(&request).unwrap();
    assert!(text.contains("\"fallback_estimates\":[{"), "{text}");
    assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
}
