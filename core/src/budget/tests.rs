use std::vec::Vec;

use super::*;
use crate::request::testing::{Bench, CHAT};
use crate::request::{Denial, DenialReason, Domain, LimitConfig, Request, RequestEffect, RequestLease, WaiterId};

fn bench(budgets: &[BudgetConfig]) -> Bench {
    let mut bench = Bench::new(8, LimitConfig::default());
    bench.machine.set_budgets(bench.now, CHAT, budgets).expect("valid budgets");
    bench
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// One token per second, up to 60.
fn tokens() -> BudgetConfig {
    BudgetConfig::per_minute(Dimension::TotalTokens, 60)
}

fn call(tokens: u32) -> Request {
    Request::new(CHAT).estimated(Usage::tokens(tokens, 0))
}

fn start(bench: &mut Bench, tokens: u32) -> RequestLease {
    bench.machine.try_acquire(bench.now, &call(tokens)).expect("the budget suffices")
}

fn available(bench: &Bench) -> i64 {
    bench.state().budgets[0].available
}

/// Drives the machine to `at` as a host does. Returns the granted waiters with their instants.
fn run_until(bench: &mut Bench, at: Instant) -> Vec<(Instant, WaiterId)> {
    let mut granted = Vec::new();
    while let Some(due) = bench.machine.poll_timeout().filter(|due| *due <= at) {
        bench.now = due;
        bench.machine.handle_timeout(due);
        while let Some(effect) = bench.machine.poll_effect() {
            match effect {
                RequestEffect::Granted { waiter, lease } => {
                    granted.push((due, waiter));
                    bench.end(lease, Outcome::Success);
                }
                RequestEffect::Denied { .. } | RequestEffect::HealthCall { .. } => {}
            }
        }
    }
    bench.now = at;
    granted
}

#[test]
fn a_call_starts_at_the_nanosecond_at_which_its_budget_has_refilled() {
    let mut bench = bench(&[BudgetConfig::per(Duration::from_nanos(7), Dimension::Requests, 3).with_burst(1)]);
    let lease = start(&mut bench, 0);
    bench.end(lease, Outcome::Success);
    let waiter = bench.wait(call(0));
    // A third of 7 ns is not a whole number, so 3 ns is the first instant with enough credit.
    let due = Instant::from_nanos(3);
    assert_eq!(bench.machine.poll_timeout(), Some(due));
    assert_eq!(run_until(&mut bench, Instant::from_nanos(10)), [(due, waiter)]);
}

#[test]
fn a_call_reserves_from_all_budgets_or_from_none() {
    let minute = BudgetConfig::per_minute(Dimension::Requests, 60);
    let input = BudgetConfig::per_minute(Dimension::InputTokens, 600);
    let output = BudgetConfig::per_minute(Dimension::OutputTokens, 60);
    let mut bench = bench(&[minute, input, output]);
    let large = Request::new(CHAT).estimated(Usage::tokens(100, 50));
    let _first = bench.machine.try_acquire(bench.now, &large).expect("room");
    let denial = bench.machine.try_acquire(bench.now, &large).expect_err("only 10 of 60 are left");
    let changes_at = Some(Instant::ZERO + secs(40));
    assert_eq!(denial, Denial { reason: DenialReason::BudgetExhausted, changes_at });
    let left: Vec<_> = bench.state().budgets.iter().map(|budget| budget.available).collect();
    assert_eq!(left, [59, 500, 10]);
}

#[test]
fn a_call_that_was_rate_limited_cancelled_or_never_connected_returns_its_estimate() {
    for outcome in [Outcome::RateLimited, Outcome::LocalCancelled, Outcome::ConnectionFailed, Outcome::TlsFailed] {
        let mut bench = bench(&[tokens(), BudgetConfig::per_day(Dimension::Requests, 5)]);
        let lease = start(&mut bench, 60);
        bench.end(lease, outcome);
        let budgets = bench.state().budgets;
        assert_eq!((budgets[0].available, budgets[1].available), (60, 5), "{outcome:?}");
        assert_eq!((budgets[0].reserved, budgets[1].reserved), (0, 0));
    }
}

#[test]
fn a_call_that_was_rejected_counts_as_a_request_without_tokens() {
    for outcome in [Outcome::RequestRejected, Outcome::KeyRejected, Outcome::QuotaExhausted, Outcome::ModelNotFound] {
        let mut bench = bench(&[tokens(), BudgetConfig::per_day(Dimension::Requests, 5)]);
        let lease = start(&mut bench, 60);
        bench.end(lease, outcome);
        let budgets = bench.state().budgets;
        assert_eq!((budgets[0].available, budgets[1].available), (60, 4), "{outcome:?}");
        let lease = start(&mut bench, 60);
        bench.end(lease, Completion::new(outcome).used(Usage::tokens(10, 0)));
        assert_eq!(available(&bench), 50, "usage reported by the provider still counts");
    }
}

#[test]
fn the_estimate_of_a_call_that_failed_on_the_way_stays_spent() {
    let failures = [
        Outcome::ProviderFailure,
        Outcome::ProviderTimeout,
        Outcome::LocalTimeout,
        Outcome::Unexpected,
        Outcome::Success,
    ];
    for outcome in failures {
        let mut bench = bench(&[tokens()]);
        let lease = start(&mut bench, 40);
        bench.end(lease, outcome);
        assert_eq!(available(&bench), 20, "{outcome:?}");
    }
}

#[test]
fn the_usage_of_a_call_replaces_its_estimate() {
    let mut bench = bench(&[tokens()]);
    let lease = start(&mut bench, 50);
    bench.end(lease, Completion::new(Outcome::Success).used(Usage::tokens(10, 5)));
    assert_eq!(available(&bench), 45);
    let lease = start(&mut bench, 1);
    bench.end(lease, Completion::new(Outcome::LocalCancelled).used(Usage::tokens(20, 0)));
    assert_eq!(available(&bench), 25, "the tokens of a stream that was cut half-way count");
}

#[test]
fn calls_without_estimates_are_limited_by_their_actual_usage() {
    let mut bench = bench(&[tokens()]);
    let lease = start(&mut bench, 0);
    bench.end(lease, Completion::new(Outcome::Success).used(Usage::tokens(90, 0)));
    assert_eq!(available(&bench), -30);
    let waiter = bench.wait(call(0));
    let due = Instant::ZERO + secs(30);
    assert_eq!(run_until(&mut bench, Instant::ZERO + secs(100)), [(due, waiter)]);
}

#[test]
fn an_estimate_larger_than_the_bucket_waits_until_it_is_full_and_overdraws_it() {
    let mut bench = bench(&[tokens()]);
    let _small = start(&mut bench, 10);
    let waiter = bench.wait(call(1_000));
    assert_eq!(run_until(&mut bench, Instant::ZERO + secs(20)), [(Instant::ZERO + secs(10), waiter)]);
    assert_eq!(available(&bench), 60 - 1_000 + 10);
}

#[test]
fn a_small_call_does_not_spend_the_budget_that_a_large_call_waits_for() {
    let mut bench = bench(&[tokens()]);
    let _spent = start(&mut bench, 30);
    let large = bench.wait(call(60));
    let group = bench.machine.group("another", 1.0).expect("a valid weight");
    let small = bench.wait(call(5).in_group(group));
    let denial = bench.machine.try_acquire(bench.now, &call(1)).expect_err("others wait for this budget");
    assert_eq!(denial.reason, DenialReason::QueuedWaitersAhead);
    let [full, next] = [30, 35].map(|at| Instant::ZERO + secs(at));
    assert_eq!(run_until(&mut bench, Instant::ZERO + secs(99)), [(full, large), (next, small)]);
}

#[test]
fn when_a_large_call_is_cancelled_the_small_one_behind_it_starts_at_once() {
    let mut bench = bench(&[tokens()]);
    let _spent = start(&mut bench, 30);
    let large = bench.wait(call(60));
    let small = bench.wait(call(5));
    assert!(bench.machine.cancel(bench.now, large));
    assert_eq!(bench.granted().into_iter().map(|(waiter, _)| waiter).collect::<Vec<_>>(), [small]);
}

#[test]
fn when_a_large_call_times_out_the_small_one_behind_it_starts_at_that_instant() {
    for is_try_made in [false, true] {
        let mut bench = bench(&[tokens()]);
        let _spent = start(&mut bench, 30);
        let _large = bench.wait(call(60).within(secs(3)));
        let small = bench.wait(call(5));
        bench.after(secs(3));
        // A `try_acquire` rejects overdue waiters but grants none. The timeout that it leaves is due at once.
        if is_try_made {
            assert!(bench.machine.try_acquire(bench.now, &call(1)).is_err());
        }
        let at = bench.now;
        assert_eq!(run_until(&mut bench, at), [(at, small)]);
    }
}

#[test]
fn a_spent_budget_does_not_block_a_neighbour_under_the_same_cap() {
    let mut bench = bench(&[tokens()]);
    let model = bench.machine.register(bench.now, "provider", "model", "default", 8).expect("a valid cap");
    let neighbour = bench.machine.resource(model, Domain::Embedding).expect("a known model");
    let _spent = start(&mut bench, 60);
    bench.wait(call(60));
    assert!(bench.machine.try_acquire(bench.now, &Request::new(neighbour)).is_ok());
}

#[test]
fn a_statement_of_the_provider_lowers_a_budget_and_its_waiters_wait_longer() {
    let mut bench = bench(&[tokens()]);
    let correction = RateLimitFeedback { remaining: Some(5), ..RateLimitFeedback::of(Dimension::TotalTokens) };
    assert!(bench.machine.correct_budget(bench.now, CHAT, &correction));
    assert_eq!(available(&bench), 5);
    let waiter = bench.wait(call(10));
    assert_eq!(run_until(&mut bench, Instant::ZERO + secs(9)), [(Instant::ZERO + secs(5), waiter)]);
    assert!(
        !bench.machine.correct_budget(bench.now, CHAT, &RateLimitFeedback::of(Dimension::Requests)),
        "no such budget"
    );
}

#[test]
fn a_statement_raises_a_budget_to_the_amount_that_calls_in_flight_cannot_have_spent() {
    let mut bench = bench(&[tokens()]);
    let lease = start(&mut bench, 60);
    bench.end(lease, Outcome::Success);
    let waiter = bench.wait(call(20));
    let correction = RateLimitFeedback { remaining: Some(50), ..RateLimitFeedback::of(Dimension::TotalTokens) };
    assert!(bench.machine.correct_budget(bench.now, CHAT, &correction));
    let (granted, _lease) = bench.granted().remove(0);
    assert_eq!((granted, available(&bench)), (waiter, 30));
    // The answer may be older than the call of 20 in flight, so a remaining amount of 60 may mean 40.
    let correction = RateLimitFeedback { remaining: Some(60), ..correction };
    assert!(bench.machine.correct_budget(bench.now, CHAT, &correction));
    assert_eq!(available(&bench), 40);
}

#[test]
fn a_limit_of_the_provider_lowers_a_budget_and_never_raises_it_above_the_configured_limit() {
    let mut bench = bench(&[tokens()]);
    let correction = |limit| RateLimitFeedback { limit: Some(limit), ..RateLimitFeedback::of(Dimension::TotalTokens) };
    assert!(bench.machine.correct_budget(bench.now, CHAT, &correction(30)));
    assert_eq!((available(&bench), bench.state().budgets[0].limit), (30, 30));
    bench.after(secs(600));
    assert_eq!(available(&bench), 30);
    assert!(bench.machine.correct_budget(bench.now, CHAT, &correction(1_000)));
    assert_eq!(bench.state().budgets[0].limit, 60);
    let rich = RateLimitFeedback { remaining: Some(900), ..correction(1_000) };
    bench.machine.correct_budget(bench.now, CHAT, &rich);
    assert_eq!(available(&bench), 30, "the remaining amount of a higher limit does not raise ours");
}

#[test]
fn a_reset_time_alone_means_that_the_budget_is_not_full_before_it() {
    let mut bench = bench(&[tokens()]);
    let correction = RateLimitFeedback { reset_after: Some(secs(45)), ..RateLimitFeedback::of(Dimension::TotalTokens) };
    assert!(bench.machine.correct_budget(bench.now, CHAT, &correction));
    assert_eq!(available(&bench), 15);
}

#[test]
fn a_correction_selects_its_budget_by_window_by_limit_or_by_the_shortest_window() {
    let day = BudgetConfig::per_day(Dimension::Requests, 1_000);
    let minute = BudgetConfig::per_minute(Dimension::Requests, 60);
    let mut bench = bench(&[day, minute]);
    let correction = RateLimitFeedback { remaining: Some(9), ..RateLimitFeedback::of(Dimension::Requests) };
    bench.machine.correct_budget(bench.now, CHAT, &correction);
    bench.machine.correct_budget(
        bench.now,
        CHAT,
        &RateLimitFeedback { limit: Some(1_000), remaining: Some(77), ..correction },
    );
    let left = |bench: &Bench| -> Vec<i64> { bench.state().budgets.iter().map(|budget| budget.available).collect() };
    assert_eq!(left(&bench), Vec::from([77, 9]));
    bench.machine.correct_budget(
        bench.now,
        CHAT,
        &RateLimitFeedback { window: Some(day.window), remaining: Some(5), ..correction },
    );
    assert_eq!(left(&bench), Vec::from([5, 9]));
}

#[test]
fn calls_in_flight_when_budgets_are_set_settle_nothing() {
    let mut bench = bench(&[]);
    let before = bench.take(1).remove(0);
    bench.machine.set_budgets(bench.now, CHAT, &[tokens()]).expect("a valid budget");
    let _since = start(&mut bench, 20);
    bench.end(before, Completion::new(Outcome::Success).used(Usage::tokens(30, 0)));
    assert_eq!(available(&bench), 40);
}

#[test]
fn a_budget_out_of_range_is_rejected_with_its_field() {
    let mut bench = bench(&[]);
    for (budget, text) in [
        (BudgetConfig::per_minute(Dimension::Requests, 0), "`budget.limit` is 0; expected a number from 1 to 10^15"),
        (
            BudgetConfig::per(Duration::ZERO, Dimension::Requests, 1),
            "`budget.window` is 0ns; expected longer than zero",
        ),
        (tokens().with_burst(0), "`budget.burst` is 0; expected a number from 1 to 10^15"),
    ] {
        let error = bench.machine.set_budgets(bench.now, CHAT, &[budget]).expect_err("out of range");
        assert_eq!(std::string::ToString::to_string(&error), text);
    }
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let huge = BudgetConfig::per(Duration::MAX, Dimension::TotalTokens, MAX_LIMIT);
    let mut bench = bench(&[huge, BudgetConfig::per(Duration::from_nanos(1), Dimension::TotalTokens, MAX_LIMIT)]);
    let lease = bench.machine.try_acquire(bench.now, &Request::new(CHAT).estimated(Usage::tokens(u32::MAX, u32::MAX)));
    bench.now = Instant::MAX;
    bench.end(lease.expect("a huge budget"), Completion::new(Outcome::Success).used(Usage::tokens(u32::MAX, 1)));
    let correction = RateLimitFeedback {
        limit: Some(u64::MAX),
        remaining: Some(u64::MAX),
        reset_after: Some(Duration::MAX),
        ..RateLimitFeedback::of(Dimension::TotalTokens)
    };
    bench.machine.correct_budget(bench.now, CHAT, &correction);
    let correction =
        RateLimitFeedback { reset_after: Some(Duration::MAX), ..RateLimitFeedback::of(Dimension::TotalTokens) };
    bench.machine.correct_budget(bench.now, CHAT, &correction);
    assert_eq!(bench.state().budgets.len(), 2);
}
