//! A test with a manual clock: 60 requests per minute, at most 3 at once, and a cooldown after a rate limit.
//! No test waits, because time only moves when the test advances it.

use tidegate_core::budget::{BudgetConfig, Dimension};
use tidegate_core::request::{
    Completion, DenialReason, Domain, Outcome, Request, RequestAdmission, RequestConfig, RequestLease,
};
use tidegate_core::time::{Clock, Duration, ManualClock};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::new();
    let mut admission = RequestAdmission::new(RequestConfig::default())?;
    let model = admission.register(clock.now(), "provider", "model", "default", 16)?;
    let chat = admission.resource(model, Domain::Chat)?;
    let one_per_second = BudgetConfig::per_minute(Dimension::Requests, 60).with_burst(3);
    admission.set_budgets(clock.now(), chat, &[one_per_second])?;
    let call = Request::new(chat);

    // Three calls may start at once, then one per second.
    let burst: Vec<RequestLease> = std::iter::from_fn(|| admission.try_acquire(clock.now(), &call).ok()).collect();
    assert_eq!(burst.len(), 3);
    let denial = admission.try_acquire(clock.now(), &call).expect_err("the burst is spent");
    assert_eq!(denial.reason, DenialReason::BudgetExhausted);
    println!("{}: {denial}", clock.now());
    clock.advance(Duration::from_secs(1));
    let fourth = admission.try_acquire(clock.now(), &call)?;

    // The cooldown ends later than the budget allows the next call.
    let cooldown = Duration::from_secs(20);
    let _ = admission.release(clock.now(), fourth, &Completion::rate_limited(Some(cooldown)));
    clock.advance(Duration::from_secs(19));
    let denial = admission.try_acquire(clock.now(), &call).expect_err("the cooldown lasts 20 s");
    println!("{}: {denial}", clock.now());
    clock.advance(Duration::from_secs(1));
    let fifth = admission.try_acquire(clock.now(), &call)?;
    for lease in burst.into_iter().chain([fifth]) {
        let _ = admission.release(clock.now(), lease, &Outcome::Success.into());
    }
    assert_eq!(admission.active_leases(), 0);
    Ok(())
}

#[test]
fn the_example_runs() {
    main().expect("the settings are valid");
}
