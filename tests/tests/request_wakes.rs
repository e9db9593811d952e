//! Whoever could go has a wake-up due, however it came about.

use tidegate_core::request::{Acquire, DenialReason, Domain, Effect, Request, RequestAdmission, RequestConfig};
use tidegate_core::time::{Duration, Instant};

/// Inside a group the first goes first, also when its resource is blocked and that of the next is free. A try that
/// refuses the first for its deadline serves nobody, so the next must be left a wake-up: nothing else may come.
#[test]
fn a_waiter_whose_forerunner_a_try_refuses_has_a_wake_up_due() {
    let mut machine = RequestAdmission::new(RequestConfig::default()).expect("valid settings");
    let mut chat = |name| {
        let model = machine.register(Instant::ZERO, name, "model", "default", 1).expect("a valid cap");
        Request::new(machine.resource(model, Domain::Chat).expect("a known model"))
    };
    let (busy, free) = (chat("busy"), chat("free"));
    let group = machine.group("group", 1.0).expect("a valid weight");
    let span = Duration::from_millis(1);

    let Acquire::Granted(_held) = machine.acquire(Instant::ZERO, &busy) else { panic!("there is room") };
    let first = machine.acquire(Instant::ZERO, &busy.in_group(group).within(span));
    let Acquire::Waiting(first) = first else { panic!("the slot is taken") };
    let second = machine.acquire(Instant::ZERO, &free.in_group(group));
    let Acquire::Waiting(second) = second else { panic!("the first of the group goes first") };

    let now = Instant::ZERO + span;
    assert_eq!(machine.try_acquire(now, &busy).map_err(|denial| denial.reason), Err(DenialReason::NoCapacity));
    let Some(Effect::Refused { waiter, .. }) = machine.poll_effect() else { panic!("the deadline has passed") };
    assert_eq!(waiter, first);
    assert_eq!(machine.poll_timeout(), Some(now), "the second could go");
    machine.handle_timeout(now);
    let Some(Effect::Granted { waiter, .. }) = machine.poll_effect() else { panic!("the second goes") };
    assert_eq!(waiter, second);
}
