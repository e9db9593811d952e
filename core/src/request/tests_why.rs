//! Why not now: each thing that can keep a call is named, and nothing else.

use std::string::ToString;

use super::testing::*;
use super::*;
use crate::budget::{BudgetConfig, Dimension, Usage};
use crate::time::Duration;

#[test]
fn a_waiter_is_kept_by_the_cap_the_limit_or_the_cooldown() {
    let mut bench = Bench::new(2, AimdConfig { initial_limit: Some(1), ..AimdConfig::default() });
    assert_eq!(bench.machine.why_idle_now(bench.now, CHAT), Some(CallWait::NobodyAsks));
    let first = bench.take(1).remove(0);
    let waiter = bench.wait(Request::new(CHAT));
    let limit = CallWait::Limit { limit: 1, changes_at: None };
    assert_eq!(bench.machine.why_waiting(bench.now, waiter), Some(limit));
    assert_eq!(bench.machine.why_idle_now(bench.now, CHAT), Some(limit));
    let until = bench.now + Duration::from_secs(2);
    bench.end(first, Outcome::RateLimited);
    let why = bench.machine.why_waiting(bench.now, waiter).expect("it waits");
    assert_eq!(why, CallWait::Cooldown { until });
    assert_eq!(why.to_string(), "a cooldown is in force until 2.000s");

    let mut full = Bench::new(1, AimdConfig::default());
    let _lease = full.take(1);
    let waiter = full.wait(Request::new(CHAT));
    assert_eq!(full.machine.why_waiting(full.now, waiter), Some(CallWait::ProviderCap { cap: 1 }));
    assert_eq!(full.machine.why_idle_now(full.now, CHAT), None, "no slot is free");
    full.machine.cancel(full.now, waiter);
    assert_eq!(full.machine.why_waiting(full.now, waiter), None, "it waits no more");
}

#[test]
fn the_next_call_is_kept_by_what_keeps_the_first_waiter_or_by_nothing() {
    let mut bench = Bench::new(2, AimdConfig { initial_limit: Some(1), ..AimdConfig::default() });
    assert_eq!(bench.machine.why_next(bench.now, CHAT), None, "it could go out");
    let first = bench.take(1).remove(0);
    let limit = CallWait::Limit { limit: 1, changes_at: None };
    assert_eq!(bench.machine.why_next(bench.now, CHAT), Some(limit), "though nobody waits");
    bench.wait(Request::new(CHAT));
    assert_eq!(bench.machine.why_next(bench.now, CHAT), Some(limit));
    let until = bench.now + Duration::from_secs(2);
    bench.end(first, Outcome::RateLimited);
    assert_eq!(bench.machine.why_next(bench.now, CHAT), Some(CallWait::Cooldown { until }));
    assert_eq!(bench.machine.why_next(bench.now, ResourceId::new(0, 9)), None);
}

#[test]
fn of_waiters_that_came_at_one_instant_the_first_to_come_is_asked() {
    let mut bench = Bench::new(8, AimdConfig::default());
    let budget = BudgetConfig::per_minute(Dimension::TotalTokens, 6_000);
    bench.machine.set_budgets(bench.now, CHAT, &[budget]).expect("a valid budget");
    let of = |tokens| Request::new(CHAT).estimated(Usage::tokens(tokens, 0));
    let _lease = bench.machine.try_acquire(bench.now, &of(6_000)).expect("the budget is whole");
    let left = bench.wait(of(2_000));
    bench.wait(of(4_000));
    bench.machine.cancel(bench.now, left);
    bench.wait(of(1_000));
    let until = bench.now + Duration::from_secs(40);
    assert_eq!(bench.machine.why_next(bench.now, CHAT), Some(CallWait::Budget { until }));
}
