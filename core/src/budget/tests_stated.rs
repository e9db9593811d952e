use std::string::ToString;
use std::vec::Vec;

use super::*;
use crate::observe::{CapacityPlan, Source};
use crate::pipeline::PipelineConfig;
use crate::request::event::{RequestEventKind, RequestEventPayload, RequestInterest};
use crate::request::testing::{Bench, CHAT};
use crate::request::{CallWait, Completion, LimitConfig, Outcome, Request, RequestConfig, RequestLease};

const HOLD: Duration = Duration::from_secs(90);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn bench() -> Bench {
    Bench::new(1_000, LimitConfig::default())
}

fn statement(limit: u64, remaining: u64, reset: Duration) -> RateLimitFeedback {
    RateLimitFeedback {
        limit: Some(limit),
        remaining: Some(remaining),
        reset_after: Some(reset),
        ..RateLimitFeedback::of(Dimension::Requests)
    }
}

fn send_statement(bench: &mut Bench, lease: &RequestLease, statement: RateLimitFeedback) {
    bench.machine.rate_limit_feedback(bench.now, lease.id(), &[statement]);
}

/// Makes one call that succeeds at once with this statement.
fn call(bench: &mut Bench, statement: RateLimitFeedback) {
    let lease = bench.take(1).remove(0);
    send_statement(bench, &lease, statement);
    bench.end(lease, Outcome::Success);
}

fn available(bench: &Bench) -> Option<i64> {
    bench.state().budgets.first().map(|budget| budget.available)
}

/// Returns how many calls start now. None of them ends.
fn room(bench: &mut Bench) -> usize {
    core::iter::from_fn(|| bench.machine.try_acquire(bench.now, &Request::new(CHAT)).ok()).count()
}

/// Returns how long the next call waits.
fn next_at(bench: &mut Bench) -> Duration {
    let waiter = bench.wait(Request::new(CHAT));
    let at = bench.machine.poll_timeout().expect("it waits for a time");
    assert!(bench.machine.cancel(bench.now, waiter));
    at - bench.now
}

#[test]
fn the_first_answer_that_states_a_rate_paces_the_later_calls_without_a_rejection() {
    let mut bench = bench();
    call(&mut bench, statement(300, 4, millis(59_200)));
    assert_eq!(room(&mut bench), 3, "the remaining calls that the provider states, less one");
    assert_eq!(next_at(&mut bench), millis(200), "300 a minute");
    let [budget] = bench.state().budgets[..] else { panic!("one budget") };
    assert_eq!((budget.limit, budget.config.window, budget.source), (300, secs(60), BudgetSource::Headers));
}

#[test]
fn no_more_calls_start_at_once_than_the_largest_remaining_amount() {
    let mut bench = bench();
    call(&mut bench, statement(300, 4, millis(200)));
    bench.after(secs(600));
    assert_eq!(room(&mut bench), 4, "one is left for calls that are delayed on their way");
}

#[test]
fn the_wait_reason_names_the_stated_limit_and_an_event_reports_that_it_was_learned() {
    let mut bench = bench();
    bench.machine.set_interest(bench.now, RequestInterest::of(&[RequestEventKind::RateLearned]));
    call(&mut bench, statement(300, 0, secs(60)));
    let rate = StatedRate { dimension: Dimension::Requests, limit: 300, window: secs(60) };
    let events: Vec<_> = core::iter::from_fn(|| bench.machine.poll_event()).map(|event| event.payload).collect();
    assert_eq!(events, [RequestEventPayload::RateLearned { rate }]);
    let wait = bench.machine.why_next(bench.now, CHAT).expect("nothing is left");
    assert_eq!(wait, CallWait::StatedRate { rate, until: Instant::ZERO + millis(200) });
    assert_eq!(wait.to_string(), "the provider's own limit of 300 requests a minute: next at 200.000ms");
    call_later(&mut bench, statement(300, 0, secs(60)));
    assert_eq!(bench.machine.poll_event(), None, "a known rate emits no event");
}

fn call_later(bench: &mut Bench, statement: RateLimitFeedback) {
    bench.after(secs(1));
    if next_block(bench).is_some() {
        let wait = next_at(bench);
        bench.after(wait);
    }
    call(bench, statement);
}

#[test]
fn no_rate_is_learned_if_headers_are_off_or_in_compatibility_mode() {
    let off = RequestConfig { rate_limit_headers: false, ..RequestConfig::default() };
    let recorded = RequestConfig { compatibility: true, ..RequestConfig::default() };
    for config in [off, recorded] {
        let mut bench = Bench::of(config, 1_000);
        call(&mut bench, statement(300, 0, secs(60)));
        assert_eq!((available(&bench), room(&mut bench)), (None, 1_000));
    }
}

#[test]
fn a_configured_budget_is_corrected_and_no_other_rate_of_its_dimension_is_learned() {
    let mut bench = bench();
    let own = BudgetConfig::per_minute(Dimension::Requests, 100);
    bench.machine.set_budgets(bench.now, CHAT, &[own]).expect("a valid budget");
    let lease = bench.take(1).remove(0);
    let tokens = RateLimitFeedback { dimension: Dimension::TotalTokens, ..statement(9_000, 8_000, secs(7)) };
    assert!(bench.machine.rate_limit_feedback(bench.now, lease.id(), &[statement(300, 40, secs(52)), tokens]));
    let budgets = bench.state().budgets;
    let found: Vec<_> = budgets.iter().map(|budget| (budget.limit, budget.available, budget.source)).collect();
    // The provider allows more than was configured. Its remaining amount can therefore lower ours but not
    // raise it.
    assert_eq!(found, [(100, 40, BudgetSource::Settings), (9_000, 7_992, BudgetSource::Headers)]);
}

#[test]
fn an_old_statement_applies_to_the_time_of_its_call() {
    let mut bench = bench();
    call(&mut bench, statement(300, 299, millis(200)));
    let first = bench.take(1).remove(0);
    bench.after(secs(2));
    let _later = bench.take(100);
    bench.after(secs(8));
    // 298 were left when the call arrived. 100 were sent since, and 50 refilled meanwhile, less the amount
    // above a full bucket.
    send_statement(&mut bench, &first, statement(300, 298, millis(400)));
    let left = available(&bench).expect("it is known");
    assert!((198..=249).contains(&left), "{left}");
}

#[test]
fn calls_that_arrive_out_of_order_do_not_raise_the_remaining_amount() {
    let mut bench = bench();
    let calls = bench.take(8);
    // The call that was sent last arrived first. The other seven are still to be counted, and one is left for
    // delayed calls.
    send_statement(&mut bench, &calls[7], statement(300, 9, millis(200)));
    assert_eq!(room(&mut bench), 1);
    send_statement(&mut bench, &calls[0], statement(300, 0, secs(2)));
    assert_eq!(available(&bench), Some(0));
}

#[test]
fn a_window_refills_all_at_once() {
    let mut bench = bench();
    // A bucket that lacks one of 300 would be full in 0.2 s.
    call(&mut bench, statement(300, 299, secs(59)));
    for left in (0..299).rev() {
        call(&mut bench, statement(300, left, secs(59)));
    }
    assert_eq!((room(&mut bench), next_at(&mut bench)), (0, secs(59)));
    bench.after(secs(59));
    assert_eq!(room(&mut bench), 300);
    assert_eq!(next_at(&mut bench), secs(59), "the next window refills in the same way");
}

#[test]
fn a_window_is_distinguished_from_a_bucket_by_a_reset_that_does_not_move() {
    let mut bench = bench();
    for (left, reset) in [(150, 25), (140, 24), (130, 23), (0, 20)] {
        call_later(&mut bench, statement(300, left, secs(reset)));
    }
    assert_eq!(next_at(&mut bench), secs(20));
    // A bucket is distinguished from a window: every call moves the reset.
    let mut bench = self::bench();
    for (left, reset) in [(150, 62), (100, 41), (50, 50), (0, 60)] {
        call_later(&mut bench, statement(300, left, secs(reset)));
    }
    assert_eq!(next_at(&mut bench), millis(200));
}

#[test]
fn a_limit_per_day_that_names_no_window_is_detected_by_its_reset() {
    let mut bench = bench();
    // 30 of 14400 per day are missing: 6 s each.
    call(&mut bench, statement(14_400, 14_370, secs(180)));
    assert_eq!(bench.state().budgets[0].config.window, secs(86_400));
    call_later(&mut bench, statement(14_400, 0, secs(86_400)));
    assert_eq!(next_at(&mut bench), secs(6));
}

#[test]
fn limits_per_day_and_per_minute_apply_together() {
    let mut bench = bench();
    let of = |window, statement| RateLimitFeedback { window: Some(secs(window)), ..statement };
    let lease = bench.take(1).remove(0);
    let both = [of(60, statement(60, 9, secs(51))), of(86_400, statement(1_000, 500, secs(43_200)))];
    bench.machine.rate_limit_feedback(bench.now, lease.id(), &both);
    assert_eq!((room(&mut bench), next_at(&mut bench)), (8, secs(1)));
    let both = [of(60, statement(60, 30, secs(30))), of(86_400, statement(1_000, 0, secs(86_400)))];
    bench.end(lease, Outcome::Success);
    bench.after(secs(2));
    let lease = bench.take(1).remove(0);
    bench.machine.rate_limit_feedback(bench.now, lease.id(), &both);
    assert!(next_at(&mut bench) >= millis(86_400), "the day is used up");
}

#[test]
fn a_probe_is_sent_however_far_away_the_reset_is_and_its_success_overrides_the_header() {
    for reset in [secs(86_400), Duration::MAX, secs(3_000)] {
        let mut bench = bench();
        let never = statement(1, 0, reset);
        call(&mut bench, never);
        assert_eq!(next_at(&mut bench), HOLD);
        bench.after(HOLD);
        // The call succeeds, so the statement was wrong.
        call(&mut bench, never);
        if next_block(&mut bench).is_some() {
            bench.after(HOLD);
            call(&mut bench, never);
        }
        assert_eq!(room(&mut bench), 1_000);
    }
}

fn next_block(bench: &mut Bench) -> Option<CallWait> {
    bench.machine.why_next(bench.now, CHAT)
}

#[test]
fn a_distrusted_statement_applies_again_once_a_call_is_rate_limited() {
    let mut bench = bench();
    let never = statement(1, 0, secs(86_400));
    call(&mut bench, never);
    bench.after(HOLD);
    call(&mut bench, never);
    assert_eq!(next_block(&mut bench), None);
    let lease = bench.take(1).remove(0);
    send_statement(&mut bench, &lease, never);
    bench.end(lease, Completion::rate_limited(Some(Duration::from_nanos(1))));
    bench.after(secs(1));
    assert!(matches!(next_block(&mut bench), Some(CallWait::StatedRate { .. })));
}

#[test]
fn a_remaining_amount_that_is_always_zero_paces_calls_but_does_not_stop_them() {
    let mut bench = bench();
    call(&mut bench, statement(300, 0, secs(60)));
    for _ in 0..100 {
        assert_eq!(next_at(&mut bench), millis(200));
        bench.after(millis(200));
        call(&mut bench, statement(300, 0, secs(60)));
    }
}

#[test]
fn a_reset_in_the_past_delays_calls_only_as_long_as_the_rate() {
    let mut bench = bench();
    call(&mut bench, statement(300, 0, Duration::ZERO));
    assert_eq!(next_at(&mut bench), millis(200));
}

#[test]
fn impossible_numbers_are_ignored() {
    let nothing = RateLimitFeedback::of(Dimension::Requests);
    for statement in [
        statement(0, 0, secs(60)),
        statement(u64::MAX, 0, secs(60)),
        RateLimitFeedback { limit: None, ..statement(9, 0, secs(60)) },
        RateLimitFeedback { remaining: None, ..statement(9, 0, secs(60)) },
        RateLimitFeedback { reset_after: None, ..statement(9, 0, secs(60)) },
        RateLimitFeedback { window: Some(Duration::ZERO), reset_after: None, ..statement(9, 0, secs(60)) },
        nothing,
    ] {
        let mut bench = bench();
        call(&mut bench, statement);
        assert_eq!(available(&bench), None, "{statement:?}");
    }
    let mut bench = bench();
    call(&mut bench, statement(10, u64::MAX, secs(60)));
    assert_eq!(room(&mut bench), 10, "more cannot be left than the limit");
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let mut bench = bench();
    for (window, reset) in
        [(None, Duration::MAX), (Some(Duration::MAX), Duration::MAX), (None, Duration::from_nanos(1))]
    {
        let lease = bench.take(1).remove(0);
        let statement = RateLimitFeedback { window, ..statement(MAX_LIMIT, 1, reset) };
        bench.machine.rate_limit_feedback(bench.now, lease.id(), &[statement]);
        bench.end(lease, Completion::from(Outcome::Success).used(Usage::tokens(u32::MAX, u32::MAX)));
        bench.after(secs(100));
    }
    bench.now = Instant::MAX;
    assert_eq!(bench.state().budgets.len(), 2);
}

#[test]
fn a_budget_is_removed_when_its_headers_stop() {
    let mut bench = bench();
    call(&mut bench, statement(300, 5, secs(59)));
    for _ in 0..33 {
        bench.after(secs(1));
        bench.succeed(1);
    }
    assert_eq!((available(&bench), room(&mut bench)), (None, 1_000));
}

#[test]
fn a_limit_that_changes_to_and_fro_delays_no_call_for_a_while() {
    let mut bench = bench();
    let (one, other) = (statement(300, 0, secs(60)), statement(60, 0, secs(60)));
    for statement in [one, other, one, other, one] {
        assert!(next_block(&mut bench).is_none_or(|wait| matches!(wait, CallWait::StatedRate { .. })));
        bench.after(secs(1));
        call(&mut bench, statement);
    }
    assert_eq!(room(&mut bench), 1_000, "two accounts behind one address");
    bench.after(secs(600));
    assert_eq!(room(&mut bench), 0);
}

#[test]
fn the_remaining_amount_may_jump_and_the_latest_answer_counts() {
    let mut bench = bench();
    for left in [299_u64, 3, 250, 0, 120] {
        call_later(&mut bench, statement(300, left, secs(30)));
        assert!(
            available(&bench).is_some_and(|now| (0..=300).contains(&now) && (now - left.cast_signed()).abs() <= 5),
            "{left}"
        );
    }
}

#[test]
fn a_rate_limited_call_returns_nothing_that_the_provider_did_not_count() {
    let mut bench = bench();
    call(&mut bench, statement(60, 1, secs(59)));
    let lease = bench.take(1).remove(0);
    send_statement(&mut bench, &lease, statement(60, 0, secs(60)));
    bench.end(lease, Completion::rate_limited(Some(Duration::from_nanos(1))));
    assert_eq!(available(&bench), Some(0));
}

#[test]
fn calls_without_an_estimate_count_as_the_typical_usage() {
    let mut bench = bench();
    let tokens = |left, reset| RateLimitFeedback { dimension: Dimension::TotalTokens, ..statement(6_000, left, reset) };
    let used = |tokens| Completion::from(Outcome::Success).used(Usage::tokens(tokens, 0));
    // The typical usage is not known yet, so only the limit algorithm applies.
    let lease = bench.take(1).remove(0);
    send_statement(&mut bench, &lease, tokens(1_006, secs(50)));
    assert_eq!(next_block(&mut bench), None);
    bench.end(lease, used(200));
    // Four calls of 200, and spare room for one more in case they use more.
    assert_eq!(room(&mut bench), 4);
    let wait = next_block(&mut bench).expect("the tokens are spent");
    assert!(wait.to_string().starts_with("the provider's own limit of 6000 tokens a minute: next at"), "{wait}");
}

#[test]
fn calls_with_an_estimate_count_as_their_estimate() {
    let mut bench = bench();
    let lease = bench.take(1).remove(0);
    let statement = RateLimitFeedback { dimension: Dimension::TotalTokens, ..statement(6_000, 1_000, secs(50)) };
    send_statement(&mut bench, &lease, statement);
    let request = Request::new(CHAT).estimated(Usage::tokens(300, 100));
    let granted = core::iter::from_fn(|| bench.machine.try_acquire(bench.now, &request).ok()).count();
    assert_eq!((granted, available(&bench)), (2, Some(194)));
}

#[test]
fn a_very_large_output_estimate_counts_as_twice_the_typical_output() {
    let mut bench = bench();
    let tokens = RateLimitFeedback { dimension: Dimension::TotalTokens, ..statement(6_000, 5_000, secs(10)) };
    let lease = bench.take(1).remove(0);
    send_statement(&mut bench, &lease, tokens);
    bench.end(lease, Completion::from(Outcome::Success).used(Usage::tokens(100, 200)));
    let request = Request::new(CHAT).estimated(Usage::tokens(100, 32_000));
    let granted = core::iter::from_fn(|| bench.machine.try_acquire(bench.now, &request).ok()).count();
    assert_eq!(granted, 9, "calls of 500 each");
}

#[test]
fn at_most_eight_rates_of_a_resource_are_kept() {
    let mut bench = bench();
    let lease = bench.take(1).remove(0);
    let all: Vec<_> =
        (1..20).map(|nth| RateLimitFeedback { window: Some(secs(nth)), ..statement(9, 9, secs(1)) }).collect();
    bench.machine.rate_limit_feedback(bench.now, lease.id(), &all);
    assert_eq!(bench.state().budgets.len(), 8);
}

#[test]
fn a_statement_for_a_call_that_has_ended_is_ignored() {
    let mut bench = bench();
    let lease = bench.take(1).remove(0);
    let id = lease.id();
    bench.end(lease, Outcome::Success);
    assert!(!bench.machine.rate_limit_feedback(bench.now, id, &[statement(9, 0, secs(60))]));
}

#[test]
fn waiters_start_at_once_when_an_answer_states_a_larger_remaining_amount() {
    let mut bench = bench();
    call(&mut bench, statement(60, 1, secs(59)));
    let lease = bench.take(1).remove(0);
    let waiter = bench.wait(Request::new(CHAT));
    send_statement(&mut bench, &lease, statement(60, 50, secs(10)));
    assert_eq!(bench.granted().into_iter().map(|(waiter, _)| waiter).collect::<Vec<_>>(), [waiter]);
}

#[test]
fn the_capacity_plan_of_a_run_lists_the_stated_rates() {
    let mut bench = bench();
    call(&mut bench, statement(300, 100, secs(40)));
    let mut plan = CapacityPlan::of(&PipelineConfig::default());
    plan.add_stated_rates(bench.now, &bench.machine);
    let rate = plan.value("rate:provider/model/chat:requests_per_minute").expect("it was stated");
    assert_eq!((rate.value, rate.source), (Some(300), Source::Headers));
}
