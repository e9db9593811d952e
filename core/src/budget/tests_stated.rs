use std::string::ToString;
use std::vec::Vec;

use super::*;
use crate::observe::{CapacityPlan, Source};
use crate::pipeline::PipelineConfig;
use crate::request::event::{Interest, RequestEventKind, RequestEventPayload};
use crate::request::testing::{Bench, CHAT};
use crate::request::{AimdConfig, CallWait, Completion, Outcome, Request, RequestConfig, RequestLease};

const HOLD: Duration = Duration::from_secs(90);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn bench() -> Bench {
    Bench::new(1_000, AimdConfig::default())
}

fn said(limit: u64, remaining: u64, reset: Duration) -> Correction {
    Correction {
        limit: Some(limit),
        remaining: Some(remaining),
        reset_after: Some(reset),
        ..Correction::of(Dimension::Requests)
    }
}

fn say(bench: &mut Bench, lease: &RequestLease, said: Correction) {
    bench.machine.rate_limit_feedback(bench.now, lease.id(), &[said]);
}

/// One call that is answered at once, with this said.
fn call(bench: &mut Bench, said: Correction) {
    let lease = bench.take(1).remove(0);
    say(bench, &lease, said);
    bench.end(lease, Outcome::Success);
}

fn available(bench: &Bench) -> Option<i64> {
    bench.state().budgets.first().map(|budget| budget.available)
}

/// How many calls go out now, none of which ends.
fn room(bench: &mut Bench) -> usize {
    core::iter::from_fn(|| bench.machine.try_acquire(bench.now, &Request::new(CHAT)).ok()).count()
}

/// When the next call goes out, if it waits for it.
fn next_at(bench: &mut Bench) -> Duration {
    let waiter = bench.wait(Request::new(CHAT));
    let at = bench.machine.poll_timeout().expect("it waits for a time");
    assert!(bench.machine.cancel(bench.now, waiter));
    at - bench.now
}

#[test]
fn the_first_answer_that_states_a_rate_paces_the_calls_after_it_without_a_refusal() {
    let mut bench = bench();
    call(&mut bench, said(300, 4, millis(59_200)));
    assert_eq!(room(&mut bench), 3, "as many as the provider says are left, but for one");
    assert_eq!(next_at(&mut bench), millis(200), "300 a minute");
    let [budget] = bench.state().budgets[..] else { panic!("one budget") };
    assert_eq!((budget.limit, budget.config.window, budget.source), (300, secs(60), BudgetSource::Headers));
}

#[test]
fn no_more_go_out_at_once_than_the_provider_ever_had_left() {
    let mut bench = bench();
    call(&mut bench, said(300, 4, millis(200)));
    bench.after(secs(600));
    assert_eq!(room(&mut bench), 4, "one is left for calls that are held up on their way");
}

#[test]
fn the_reason_names_the_provider_s_own_limit_and_an_event_tells_that_it_was_learned() {
    let mut bench = bench();
    bench.machine.set_interest(bench.now, Interest::of(&[RequestEventKind::RateLearned]));
    call(&mut bench, said(300, 0, secs(60)));
    let rate = StatedRate { dimension: Dimension::Requests, limit: 300, window: secs(60) };
    let told: Vec<_> = core::iter::from_fn(|| bench.machine.poll_event()).map(|event| event.payload).collect();
    assert_eq!(told, [RequestEventPayload::RateLearned { rate }]);
    let wait = bench.machine.why_next(bench.now, CHAT).expect("nothing is left");
    assert_eq!(wait, CallWait::StatedRate { rate, until: Instant::ZERO + millis(200) });
    assert_eq!(wait.to_string(), "the provider's own limit of 300 requests a minute: next at 200.000ms");
    call_later(&mut bench, said(300, 0, secs(60)));
    assert_eq!(bench.machine.poll_event(), None, "the same rate is no news");
}

fn call_later(bench: &mut Bench, said: Correction) {
    bench.after(secs(1));
    if next_block(bench).is_some() {
        let wait = next_at(bench);
        bench.after(wait);
    }
    call(bench, said);
}

#[test]
fn nothing_is_learned_where_it_is_switched_off_or_the_recorded_system_is_followed() {
    let off = RequestConfig { rate_limit_headers: false, ..RequestConfig::default() };
    let recorded = RequestConfig { compatibility: true, ..RequestConfig::default() };
    for config in [off, recorded] {
        let mut bench = Bench::of(config, 1_000);
        call(&mut bench, said(300, 0, secs(60)));
        assert_eq!((available(&bench), room(&mut bench)), (None, 1_000));
    }
}

#[test]
fn a_configured_budget_is_corrected_and_no_other_of_its_dimension_is_learned() {
    let mut bench = bench();
    let own = BudgetConfig::per_minute(Dimension::Requests, 100);
    bench.machine.set_budgets(bench.now, CHAT, &[own]).expect("a valid budget");
    let lease = bench.take(1).remove(0);
    let tokens = Correction { dimension: Dimension::TotalTokens, ..said(9_000, 8_000, secs(7)) };
    assert!(bench.machine.rate_limit_feedback(bench.now, lease.id(), &[said(300, 40, secs(52)), tokens]));
    let budgets = bench.state().budgets;
    let found: Vec<_> = budgets.iter().map(|budget| (budget.limit, budget.available, budget.source)).collect();
    // The provider allows more than was configured: what is left of that says nothing about ours but that it
    // is no more.
    assert_eq!(found, [(100, 40, BudgetSource::Settings), (9_000, 7_992, BudgetSource::Headers)]);
}

#[test]
fn an_old_statement_is_read_as_of_its_call_and_not_as_of_now() {
    let mut bench = bench();
    call(&mut bench, said(300, 299, millis(200)));
    let first = bench.take(1).remove(0);
    bench.after(secs(2));
    let _later = bench.take(100);
    bench.after(secs(8));
    // 298 were left when it came; 100 have gone since, and 50 came back meanwhile, but for what a full bucket
    // does not take.
    say(&mut bench, &first, said(300, 298, millis(400)));
    let left = available(&bench).expect("it is known");
    assert!((198..=249).contains(&left), "{left}");
}

#[test]
fn calls_that_arrive_in_another_order_than_they_were_sent_cannot_make_it_seem_more() {
    let mut bench = bench();
    let calls = bench.take(8);
    // The one that was sent last has arrived first: the other seven are still to be counted, and one is left
    // for latecomers.
    say(&mut bench, &calls[7], said(300, 9, millis(200)));
    assert_eq!(room(&mut bench), 1);
    say(&mut bench, &calls[0], said(300, 0, secs(2)));
    assert_eq!(available(&bench), Some(0));
}

#[test]
fn a_window_opens_all_at_once_and_not_bit_by_bit() {
    let mut bench = bench();
    // A bucket that lacks one of 300 would be whole in 0.2 s.
    call(&mut bench, said(300, 299, secs(59)));
    for left in (0..299).rev() {
        call(&mut bench, said(300, left, secs(59)));
    }
    assert_eq!((room(&mut bench), next_at(&mut bench)), (0, secs(59)));
    bench.after(secs(59));
    assert_eq!(room(&mut bench), 300);
    assert_eq!(next_at(&mut bench), secs(59), "and so is the next");
}

#[test]
fn a_window_is_told_from_a_bucket_by_a_reset_that_stays() {
    let mut bench = bench();
    for (left, reset) in [(150, 25), (140, 24), (130, 23), (0, 20)] {
        call_later(&mut bench, said(300, left, secs(reset)));
    }
    assert_eq!(next_at(&mut bench), secs(20));
    // And a bucket from a window: every call moves the reset.
    let mut bench = self::bench();
    for (left, reset) in [(150, 62), (100, 41), (50, 50), (0, 60)] {
        call_later(&mut bench, said(300, left, secs(reset)));
    }
    assert_eq!(next_at(&mut bench), millis(200));
}

#[test]
fn a_limit_per_day_without_a_name_is_known_by_its_reset() {
    let mut bench = bench();
    // 30 of 14400 a day are missing: 6 s each.
    call(&mut bench, said(14_400, 14_370, secs(180)));
    assert_eq!(bench.state().budgets[0].config.window, secs(86_400));
    call_later(&mut bench, said(14_400, 0, secs(86_400)));
    assert_eq!(next_at(&mut bench), secs(6));
}

#[test]
fn limits_per_day_and_per_minute_hold_beside_each_other() {
    let mut bench = bench();
    let of = |window, said| Correction { window: Some(secs(window)), ..said };
    let lease = bench.take(1).remove(0);
    let both = [of(60, said(60, 9, secs(51))), of(86_400, said(1_000, 500, secs(43_200)))];
    bench.machine.rate_limit_feedback(bench.now, lease.id(), &both);
    assert_eq!((room(&mut bench), next_at(&mut bench)), (8, secs(1)));
    let both = [of(60, said(60, 30, secs(30))), of(86_400, said(1_000, 0, secs(86_400)))];
    bench.end(lease, Outcome::Success);
    bench.after(secs(2));
    let lease = bench.take(1).remove(0);
    bench.machine.rate_limit_feedback(bench.now, lease.id(), &both);
    assert!(next_at(&mut bench) >= millis(86_400), "the day is used up");
}

#[test]
fn however_far_away_the_reset_is_a_call_goes_out_in_time_and_is_believed_more_than_the_header() {
    for reset in [secs(86_400), Duration::MAX, secs(3_000)] {
        let mut bench = bench();
        let never = said(1, 0, reset);
        call(&mut bench, never);
        assert_eq!(next_at(&mut bench), HOLD);
        bench.after(HOLD);
        // It is answered, so what was stated is not so.
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
fn what_is_not_believed_counts_again_once_a_call_is_refused() {
    let mut bench = bench();
    let never = said(1, 0, secs(86_400));
    call(&mut bench, never);
    bench.after(HOLD);
    call(&mut bench, never);
    assert_eq!(next_block(&mut bench), None);
    let lease = bench.take(1).remove(0);
    say(&mut bench, &lease, never);
    bench.end(lease, Completion::rate_limited(Some(Duration::from_nanos(1))));
    bench.after(secs(1));
    assert!(matches!(next_block(&mut bench), Some(CallWait::StatedRate { .. })));
}

#[test]
fn nothing_left_for_ever_is_a_bucket_at_its_rate_and_no_stop() {
    let mut bench = bench();
    call(&mut bench, said(300, 0, secs(60)));
    for _ in 0..100 {
        assert_eq!(next_at(&mut bench), millis(200));
        bench.after(millis(200));
        call(&mut bench, said(300, 0, secs(60)));
    }
}

#[test]
fn a_reset_that_is_past_stops_nothing_longer_than_the_rate_does() {
    let mut bench = bench();
    call(&mut bench, said(300, 0, Duration::ZERO));
    assert_eq!(next_at(&mut bench), millis(200));
}

#[test]
fn numbers_that_cannot_be_are_no_statement() {
    let nothing = Correction::of(Dimension::Requests);
    for said in [
        said(0, 0, secs(60)),
        said(u64::MAX, 0, secs(60)),
        Correction { limit: None, ..said(9, 0, secs(60)) },
        Correction { remaining: None, ..said(9, 0, secs(60)) },
        Correction { reset_after: None, ..said(9, 0, secs(60)) },
        Correction { window: Some(Duration::ZERO), reset_after: None, ..said(9, 0, secs(60)) },
        nothing,
    ] {
        let mut bench = bench();
        call(&mut bench, said);
        assert_eq!(available(&bench), None, "{said:?}");
    }
    let mut bench = bench();
    call(&mut bench, said(10, u64::MAX, secs(60)));
    assert_eq!(room(&mut bench), 10, "more cannot be left than the limit");
}

#[test]
fn the_largest_numbers_overflow_nothing() {
    let mut bench = bench();
    for (window, reset) in
        [(None, Duration::MAX), (Some(Duration::MAX), Duration::MAX), (None, Duration::from_nanos(1))]
    {
        let lease = bench.take(1).remove(0);
        let said = Correction { window, ..said(MAX_LIMIT, 1, reset) };
        bench.machine.rate_limit_feedback(bench.now, lease.id(), &[said]);
        bench.end(lease, Completion::from(Outcome::Success).used(Usage::tokens(u32::MAX, u32::MAX)));
        bench.after(secs(100));
    }
    bench.now = Instant::MAX;
    assert_eq!(bench.state().budgets.len(), 2);
}

#[test]
fn headers_that_stop_coming_are_given_up() {
    let mut bench = bench();
    call(&mut bench, said(300, 5, secs(59)));
    for _ in 0..33 {
        bench.after(secs(1));
        bench.succeed(1);
    }
    assert_eq!((available(&bench), room(&mut bench)), (None, 1_000));
}

#[test]
fn a_limit_that_changes_to_and_fro_holds_nothing_back_for_a_while() {
    let mut bench = bench();
    let (one, other) = (said(300, 0, secs(60)), said(60, 0, secs(60)));
    for said in [one, other, one, other, one] {
        assert!(next_block(&mut bench).is_none_or(|wait| matches!(wait, CallWait::StatedRate { .. })));
        bench.after(secs(1));
        call(&mut bench, said);
    }
    assert_eq!(room(&mut bench), 1_000, "two accounts behind one address");
    bench.after(secs(600));
    assert_eq!(room(&mut bench), 0);
}

#[test]
fn what_is_left_may_jump_and_the_latest_answer_counts() {
    let mut bench = bench();
    for left in [299_u64, 3, 250, 0, 120] {
        call_later(&mut bench, said(300, left, secs(30)));
        assert!(
            available(&bench).is_some_and(|now| (0..=300).contains(&now) && (now - left.cast_signed()).abs() <= 5),
            "{left}"
        );
    }
}

#[test]
fn a_refused_call_gives_nothing_back_that_the_provider_did_not_count() {
    let mut bench = bench();
    call(&mut bench, said(60, 1, secs(59)));
    let lease = bench.take(1).remove(0);
    say(&mut bench, &lease, said(60, 0, secs(60)));
    bench.end(lease, Completion::rate_limited(Some(Duration::from_nanos(1))));
    assert_eq!(available(&bench), Some(0));
}

#[test]
fn calls_without_an_estimate_count_as_what_others_used() {
    let mut bench = bench();
    let tokens = |left, reset| Correction { dimension: Dimension::TotalTokens, ..said(6_000, left, reset) };
    let used = |tokens| Completion::from(Outcome::Success).used(Usage::tokens(tokens, 0));
    // Nothing is known of what calls use: the limit algorithm is left alone with them.
    let lease = bench.take(1).remove(0);
    say(&mut bench, &lease, tokens(1_006, secs(50)));
    assert_eq!(next_block(&mut bench), None);
    bench.end(lease, used(200));
    // Four of 200, and room for one more in case they use more.
    assert_eq!(room(&mut bench), 4);
    let wait = next_block(&mut bench).expect("the tokens are spent");
    assert!(wait.to_string().starts_with("the provider's own limit of 6000 tokens a minute: next at"), "{wait}");
}

#[test]
fn calls_with_an_estimate_count_as_that() {
    let mut bench = bench();
    let lease = bench.take(1).remove(0);
    let said = Correction { dimension: Dimension::TotalTokens, ..said(6_000, 1_000, secs(50)) };
    say(&mut bench, &lease, said);
    let request = Request::new(CHAT).estimated(Usage::tokens(300, 100));
    let granted = core::iter::from_fn(|| bench.machine.try_acquire(bench.now, &request).ok()).count();
    assert_eq!((granted, available(&bench)), (2, Some(194)));
}

#[test]
fn an_output_that_is_estimated_at_all_that_is_allowed_counts_as_twice_the_usual() {
    let mut bench = bench();
    let tokens = Correction { dimension: Dimension::TotalTokens, ..said(6_000, 5_000, secs(10)) };
    let lease = bench.take(1).remove(0);
    say(&mut bench, &lease, tokens);
    bench.end(lease, Completion::from(Outcome::Success).used(Usage::tokens(100, 200)));
    let request = Request::new(CHAT).estimated(Usage::tokens(100, 32_000));
    let granted = core::iter::from_fn(|| bench.machine.try_acquire(bench.now, &request).ok()).count();
    assert_eq!(granted, 9, "of 500 each");
}

#[test]
fn no_more_than_eight_rates_of_a_resource_are_kept() {
    let mut bench = bench();
    let lease = bench.take(1).remove(0);
    let all: Vec<_> = (1..20).map(|nth| Correction { window: Some(secs(nth)), ..said(9, 9, secs(1)) }).collect();
    bench.machine.rate_limit_feedback(bench.now, lease.id(), &all);
    assert_eq!(bench.state().budgets.len(), 8);
}

#[test]
fn an_answer_to_a_call_that_has_ended_says_nothing() {
    let mut bench = bench();
    let lease = bench.take(1).remove(0);
    let id = lease.id();
    bench.end(lease, Outcome::Success);
    assert!(!bench.machine.rate_limit_feedback(bench.now, id, &[said(9, 0, secs(60))]));
}

#[test]
fn waiters_go_at_once_when_an_answer_states_more() {
    let mut bench = bench();
    call(&mut bench, said(60, 1, secs(59)));
    let lease = bench.take(1).remove(0);
    let waiter = bench.wait(Request::new(CHAT));
    say(&mut bench, &lease, said(60, 50, secs(10)));
    assert_eq!(bench.granted().into_iter().map(|(waiter, _)| waiter).collect::<Vec<_>>(), [waiter]);
}

#[test]
fn the_capacity_plan_of_a_run_lists_the_rates_that_were_stated() {
    let mut bench = bench();
    call(&mut bench, said(300, 100, secs(40)));
    let mut plan = CapacityPlan::of(&PipelineConfig::default());
    plan.add_stated_rates(bench.now, &bench.machine);
    let rate = plan.value("rate:provider/model/chat:requests_per_minute").expect("it was stated");
    assert_eq!((rate.value, rate.source), (Some(300), Source::Headers));
}
