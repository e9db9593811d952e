//! Drives request admission without a gate or a runtime. After each command, the caller performs the effects
//! and waits until the one timeout.

use tidegate_core::request::{AcquireResult, Domain, Outcome, Request, RequestAdmission, RequestConfig, RequestEffect};
use tidegate_core::time::{Duration, Instant};

fn main() -> Result<(), tidegate_core::error::ConfigError> {
    let mut now = Instant::ZERO;
    let mut admission = RequestAdmission::new(RequestConfig::default())?;
    let model = admission.register(now, "provider", "model", "default", 1)?;
    let call = Request::new(admission.resource(model, Domain::Chat)?);

    let AcquireResult::Granted(first) = admission.acquire(now, &call) else { return Ok(()) };
    let second = admission.acquire(now, &call);
    println!("{now}: one call is in flight, the second: {second:?}");

    now += Duration::from_millis(40);
    let answer = admission.release(now, first, &Outcome::RateLimited.into());
    println!(
        "{now}: the call was rate-limited; the lease is {answer:?}, next wake-up at {:?}",
        admission.poll_timeout()
    );

    while let Some(at) = admission.poll_timeout() {
        now = at;
        admission.handle_timeout(now);
        while let Some(RequestEffect::Granted { waiter, lease }) = admission.poll_effect() {
            println!("{now}: {waiter:?} is granted");
            let _ = admission.release(now, lease, &Outcome::Success.into());
        }
    }
    assert_eq!((admission.active_leases(), admission.waiting()), (0, 0));
    Ok(())
}

#[test]
fn the_example_runs() {
    main().expect("the settings are valid");
}
