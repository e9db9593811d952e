//! Tests of why a call waits whose limit is a share.

use alloc::boxed::Box;
use alloc::string::ToString as _;

use super::*;
use crate::request::CallWait;

type Handle = MemberHandle<parking_lot::RawMutex>;

#[test]
fn a_call_waits_for_the_share_of_its_process_with_the_leader_and_the_age_of_the_decision() {
    let mut admission = RequestAdmission::new(RequestConfig::default()).expect("valid");
    let model = admission.register(at(0), "p", "m", "default", 8).expect("valid");
    let resource = admission.resource(model, Domain::Chat).expect("valid");
    let share = ShareConfig { on_loss: OnLoss::Stop, ..ShareConfig::default() };
    let settings = SessionSettings { share, choice: LimitChoice::Fixed { limit: 8 }, limit: LimitConfig::default() };
    let install = |member| {
        let handle = Handle::new(member);
        (Box::new(handle.clone()) as Box<dyn LimitAlgorithm>, handle)
    };
    let handle = admission.share_limit(at(0), resource, MemberId(1), 5, &settings, install).expect("valid");
    let why = |admission: &RequestAdmission, now| admission.why_next(at(now), resource).map(|wait| wait.to_string());

    let none = "this process has no slots of the shared limit: waits for its first share";
    assert_eq!(why(&admission, 0).as_deref(), Some(none), "not that calls are spaced in time");

    let report = handle.with(|member| next_report(member, at(0)));
    let decide = decide(&mut leader(4, None), at(10), &[report]);
    assert!(handle.with(|member| member.on_decision(at(100), &decide.decision)));
    admission.refresh_limit(at(100), resource).expect("known");
    assert_eq!(why(&admission, 100), None);
    for _ in 0..4 {
        assert!(matches!(admission.acquire(at(100), &Request::new(resource)), AcquireResult::Granted(_)));
    }
    assert!(matches!(admission.acquire(at(100), &Request::new(resource)), AcquireResult::Waiting(_)));
    let full = "its share of the limit is reached, and 4 are in flight: 4 of 4 slots, 1 process, leader 00000000, \
                decision 0.3 s ago";
    assert_eq!(why(&admission, 400).as_deref(), Some(full));
    let wait = admission.why_next(at(400), resource);
    assert!(matches!(wait, Some(CallWait::Share { in_flight: 4, member }) if member.room == 4), "{wait:?}");

    // Its lease lapses.
    let lost = "this process has no slots of the shared limit: no share for 8 s, 0 slots until it is back; last 4 of 4";
    assert_eq!(why(&admission, 9_000).as_deref(), Some(lost));
}
