//! Fallbacks: what is called while the model that comes first is of no use.

use alloc::vec::Vec;

use super::tests_health::{Bench, CAP, secs};
use super::*;
use crate::time::{Duration, Instant};

/// A bench, and a request that would rather have the first of these models than the next: two of different
/// providers, and a third.
struct Choice {
    bench: Bench,
    request: Request,
}

impl Choice {
    fn new() -> Self {
        Self::with(HealthConfig::default())
    }

    fn with(health: HealthConfig) -> Self {
        let mut bench = Bench::with(health);
        let fallback = bench.machine.fallbacks(&[bench.chat, bench.elsewhere]).expect("two resources");
        let request = Request::new(bench.chat).with_fallbacks(fallback);
        Self { bench, request }
    }

    fn ask(&mut self) -> Acquire {
        self.bench.machine.acquire(self.bench.now, &self.request)
    }

    /// The lease of a request that may go out at once.
    fn call(&mut self) -> RequestLease {
        match self.ask() {
            Acquire::Granted(lease) => lease,
            other => panic!("it may go out: {other:?}"),
        }
    }

    /// The resource that a request may call at once.
    fn called(&mut self) -> ResourceId {
        let lease = self.call();
        let resource = lease.resource();
        self.bench.end(lease, Outcome::LocalCancelled);
        resource
    }

    fn wait(&mut self) -> WaiterId {
        match self.ask() {
            Acquire::Waiting(waiter) => waiter,
            other => panic!("it waits: {other:?}"),
        }
    }

    /// Takes every slot of a resource.
    fn fill(&mut self, resource: ResourceId) -> Vec<RequestLease> {
        (0..CAP).map(|_| self.bench.try_one(resource).expect("there is room")).collect()
    }

    /// The waiters that are to ask again.
    fn moved(&mut self) -> Vec<WaiterId> {
        let rejected = self.bench.rejected();
        assert!(rejected.iter().all(|(_, reason)| *reason == DenialReason::FallBack), "{rejected:?}");
        rejected.into_iter().map(|(waiter, _)| waiter).collect()
    }

    /// Refuses calls of the first model, until it has refused for so long.
    fn refuse_for(&mut self, span: Duration) {
        for _ in 0..2 {
            let lease = self.bench.try_one(self.bench.chat).expect("the cooldown is over");
            let done = Completion { retry_after: Some(span), ..Outcome::RateLimited.into() };
            assert_eq!(self.bench.machine.finish(self.bench.now, lease, &done), AfterCall::Final);
            self.bench.at(self.bench.now + span);
        }
    }
}

#[test]
fn the_first_model_is_called_while_it_is_of_use_and_its_limit_is_waited_for() {
    let mut choice = Choice::new();
    let leases = choice.fill(choice.bench.chat);
    choice.wait();
    for lease in leases {
        choice.bench.end(lease, Outcome::Success);
    }
    assert_eq!(choice.bench.granted().len(), 1);
    assert_eq!(choice.called(), choice.bench.chat);
}

#[test]
fn while_the_first_is_down_the_next_is_called_and_others_of_its_resource_wait() {
    let mut choice = Choice::new();
    choice.bench.take_down();
    assert_eq!(choice.called(), choice.bench.elsewhere);
    choice.bench.wait(choice.bench.chat);
    assert_eq!(choice.called(), choice.bench.elsewhere);
}

#[test]
fn what_waits_for_a_provider_that_goes_down_is_told_to_ask_again_in_its_order() {
    let mut choice = Choice::new();
    let mut leases = choice.fill(choice.bench.chat);
    let waiters = [(); 7].map(|()| choice.wait());
    let stays = choice.bench.wait(choice.bench.chat);
    for lease in leases.drain(..4) {
        let _ = choice.bench.finish(lease, Outcome::ConnectionFailed);
    }
    assert_eq!(choice.bench.granted().len(), 4, "it is not down yet");
    let _ = choice.bench.finish(leases.remove(0), Outcome::ConnectionFailed);
    assert_eq!(choice.moved(), waiters[4..]);
    assert!(choice.bench.machine.why_waiting(choice.bench.now, stays).is_some(), "it has no fallback");
    assert_eq!(choice.called(), choice.bench.elsewhere);
}

#[test]
fn a_call_that_failed_in_an_outage_is_made_again_elsewhere() {
    let mut choice = Choice::new();
    let leases = choice.fill(choice.bench.chat);
    let ends: Vec<AfterCall> =
        leases.into_iter().map(|lease| choice.bench.finish(lease, Outcome::ConnectionFailed)).collect();
    for end in ends {
        let AfterCall::Retry(retry) = end else { panic!("it is made again: {end:?}") };
        let answer = choice.bench.machine.retry(choice.bench.now, &choice.request, retry);
        let Acquire::Granted(lease) = answer else { panic!("the other is up: {answer:?}") };
        assert_eq!(lease.resource(), choice.bench.elsewhere);
        choice.bench.end(lease, Outcome::Success);
    }
}

#[test]
fn how_a_call_failed_at_one_model_says_nothing_of_it_at_another() {
    let mut choice = Choice::new();
    // Undecided there: one failure, and nothing else is out.
    let lease = choice.bench.try_one(choice.bench.elsewhere).expect("there is room");
    let AfterCall::Retry(retry) = choice.bench.finish(lease, Outcome::ProviderFailure) else { panic!() };
    let answer = choice.bench.machine.retry(choice.bench.now, &choice.request, retry);
    let Acquire::Granted(lease) = answer else { panic!("the first is healthy: {answer:?}") };
    assert_eq!(lease.resource(), choice.bench.chat);
}

#[test]
fn when_its_probe_is_due_one_request_calls_the_first_again_and_the_others_the_next() {
    let mut choice = Choice::new();
    let due = choice.bench.take_down();
    choice.bench.at(due);
    let probe = choice.call();
    assert_eq!(probe.resource(), choice.bench.chat);
    assert_eq!(choice.called(), choice.bench.elsewhere);
    choice.bench.end(probe, Outcome::Success);
    assert_eq!(choice.called(), choice.bench.chat);
}

#[test]
fn with_everybody_waiting_elsewhere_the_first_to_come_is_told_to_make_the_probe() {
    let mut choice = Choice::new();
    let due = choice.bench.take_down();
    let _leases = choice.fill(choice.bench.elsewhere);
    let waiters = [(); 3].map(|()| choice.wait());
    assert_eq!(choice.bench.machine.poll_timeout(), Some(due));
    choice.bench.at(due);
    assert_eq!(choice.moved(), waiters[..1]);
    choice.bench.at(due + Duration::from_millis(1));
    assert_eq!(choice.moved(), [], "one is enough");
    let probe = choice.call();
    assert_eq!(probe.resource(), choice.bench.chat);
    choice.bench.end(probe, Outcome::Success);
    assert_eq!(choice.moved(), waiters[1..], "the first is back");
}

#[test]
fn a_refused_key_an_empty_account_and_a_missing_model_send_everything_to_the_next() {
    for outcome in [Outcome::KeyRefused, Outcome::QuotaExhausted, Outcome::ModelNotFound] {
        let mut choice = Choice::with(HealthConfig { recheck: None, ..HealthConfig::default() });
        let mut leases = choice.fill(choice.bench.chat);
        let waiter = choice.wait();
        let lease = leases.remove(0);
        assert_eq!(choice.bench.finish(lease, outcome), AfterCall::Unavailable);
        assert_eq!((choice.moved(), choice.called()), (alloc::vec![waiter], choice.bench.elsewhere), "{outcome:?}");
    }
}

#[test]
fn a_request_is_rejected_as_unavailable_only_if_all_of_its_models_are() {
    let mut choice = Choice::with(HealthConfig { recheck: None, ..HealthConfig::default() });
    let lease = choice.call();
    choice.bench.end(lease, Outcome::KeyRefused);
    let lease = choice.fill(choice.bench.elsewhere).remove(0);
    let waiter = choice.wait();
    choice.bench.end(lease, Outcome::QuotaExhausted);
    assert_eq!(choice.bench.rejected(), [(waiter, DenialReason::Unavailable)]);
    let denial = Denial { reason: DenialReason::Unavailable, changes_at: None };
    assert_eq!(choice.ask(), Acquire::Denied(denial));
}

#[test]
fn a_provider_that_has_refused_for_too_long_is_left_but_for_one_call_after_each_pause() {
    let mut choice = Choice::new();
    choice.refuse_for(secs(10));
    assert_eq!(choice.called(), choice.bench.chat, "it has refused for 20 s");
    choice.bench.at(choice.bench.now + secs(10));
    let trial = choice.call();
    assert_eq!(trial.resource(), choice.bench.chat, "the one call");
    assert_eq!(choice.called(), choice.bench.elsewhere);
    let done = Completion { retry_after: Some(secs(5)), ..Outcome::RateLimited.into() };
    let _ = choice.bench.machine.finish(choice.bench.now, trial, &done);
    assert_eq!(choice.called(), choice.bench.elsewhere, "a pause is in force");
    choice.bench.at(choice.bench.now + secs(5));
    let trial = choice.call();
    choice.bench.end(trial, Outcome::Success);
    assert_eq!([(); 2].map(|()| choice.called()), [choice.bench.chat; 2], "it is back");
}

#[test]
fn what_waits_in_a_pause_goes_elsewhere_at_the_instant_at_which_it_is_too_long() {
    let mut choice = Choice::new();
    let lease = choice.call();
    let done = Completion { retry_after: Some(secs(3_600)), ..Outcome::RateLimited.into() };
    let _ = choice.bench.machine.finish(choice.bench.now, lease, &done);
    let waiter = choice.wait();
    let after = choice.bench.now + secs(30);
    assert_eq!(choice.bench.machine.poll_timeout(), Some(after));
    choice.bench.at(Instant::from_nanos(after.as_nanos() - 1));
    assert_eq!(choice.moved(), []);
    choice.bench.at(after);
    assert_eq!((choice.moved(), choice.called()), (alloc::vec![waiter], choice.bench.elsewhere));
}

#[test]
fn a_request_that_comes_at_the_instant_at_which_a_patience_ends_calls_the_next() {
    let rate_limit_patience = Some(secs(10));
    let mut choice = Choice::with(HealthConfig { rate_limit_patience, recheck: None, ..HealthConfig::default() });
    let lease = choice.call();
    let done = Completion { retry_after: Some(secs(9)), ..Outcome::RateLimited.into() };
    let _ = choice.bench.machine.finish(choice.bench.now, lease, &done);
    choice.bench.wait(choice.bench.chat);
    choice.bench.now += secs(10);
    assert_eq!(choice.called(), choice.bench.elsewhere);
}

#[test]
fn if_none_is_of_use_a_request_waits_for_the_one_that_may_be_soonest() {
    let mut choice = Choice::new();
    choice.bench.take_down();
    let lease = choice.call();
    assert_eq!(lease.resource(), choice.bench.elsewhere);
    choice.bench.end(lease, Outcome::KeyRefused);
    // The one is down for half a second, the other closed for a minute.
    let waiter = choice.wait();
    let probe_at = choice.bench.machine.poll_timeout().expect("a probe is due");
    assert!(probe_at - choice.bench.now < secs(1));
    choice.bench.at(probe_at);
    let Some(Effect::Granted { waiter: granted, lease }) = choice.bench.machine.poll_effect() else {
        panic!("it is the probe")
    };
    assert_eq!((granted, lease.resource()), (waiter, choice.bench.chat));
}

#[test]
fn a_deadline_holds_wherever_a_request_waits() {
    let mut choice = Choice::new();
    choice.bench.take_down();
    let _leases = choice.fill(choice.bench.elsewhere);
    choice.request = choice.request.within(Duration::from_millis(100));
    let waiter = choice.wait();
    choice.bench.at(choice.bench.now + Duration::from_millis(100));
    assert_eq!(choice.bench.rejected(), [(waiter, DenialReason::QueueTimeout)]);
}

#[test]
fn pressure_on_the_first_is_that_on_what_is_called_instead() {
    let mut choice = Choice::new();
    choice.bench.take_down();
    let pressure = |choice: &Choice| choice.bench.machine.pressure(choice.bench.now, choice.bench.chat);
    assert_eq!(pressure(&choice), None);
    let _leases = choice.fill(choice.bench.elsewhere);
    assert_eq!(pressure(&choice), Some(RequestPressure::CapReached));
}

#[test]
fn equal_lists_have_one_id_and_lists_that_make_no_sense_are_refused() {
    let mut bench = Bench::new();
    let lists = [[bench.chat, bench.other], [bench.other, bench.chat], [bench.chat, bench.other]];
    let ids = lists.map(|list| bench.machine.fallbacks(&list).expect("two resources"));
    assert!(ids[0] == ids[2] && ids[0] != ids[1]);
    let foreign = ResourceId::new(7, 0);
    for list in [&[bench.chat][..], &[bench.chat, bench.other, bench.chat], &[bench.chat, foreign]] {
        assert_eq!(bench.machine.fallbacks(list).expect_err("it makes no sense").field, "resources");
    }
    // A list for another resource, and one of another controller.
    for fallback in [ids[1], FallbackId::new(9).expect("a small number")] {
        let request = Request::new(bench.chat).with_fallbacks(fallback);
        let denial = bench.machine.try_acquire(bench.now, &request).expect_err("it is not known");
        assert_eq!(denial.reason, DenialReason::Unregistered);
    }
}
