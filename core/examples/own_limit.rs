//! A custom limit algorithm: it halves the limit on every rate limit and adds one for every success.

use tidegate_core::limit::{CallReport, LimitAlgorithm};
use tidegate_core::request::{Completion, Domain, Outcome, Request, RequestAdmission, RequestConfig};
use tidegate_core::time::{Duration, Instant};

/// Halves the limit on every rate limit, and adds one for each success.
#[derive(Debug)]
struct Halving {
    limit: u32,
    max: u32,
}

impl LimitAlgorithm for Halving {
    fn limit(&self, _now: Instant) -> u32 {
        self.limit
    }

    fn on_outcome(&mut self, _now: Instant, call: &CallReport) {
        match call.outcome {
            Outcome::RateLimited => self.limit = (self.limit / 2).max(1),
            Outcome::Success => self.limit = (self.limit + 1).min(self.max),
            _ => {}
        }
    }

    fn set_max(&mut self, _now: Instant, max: u32, _lifts: bool) {
        self.max = max;
        self.limit = self.limit.min(max);
    }
}

fn main() -> Result<(), tidegate_core::error::ConfigError> {
    let mut now = Instant::ZERO;
    let mut admission = RequestAdmission::new(RequestConfig::default())?;
    let model = admission.register(now, "provider", "model", "default", 8)?;
    let chat = admission.resource(model, Domain::Chat)?;
    admission.set_algorithm(now, chat, Box::new(Halving { limit: 8, max: 8 }))?;

    let rate_limited = Completion::rate_limited(Some(Duration::from_secs(1)));
    for (outcome, expected) in [(rate_limited, 4), (Outcome::Success.into(), 5), (Outcome::Success.into(), 6)] {
        let Ok(lease) = admission.try_acquire(now, &Request::new(chat)) else { break };
        let _ = admission.release(now, lease, &outcome);
        let state = admission.snapshot(now, chat).expect("it was registered");
        println!("{now}: {:?}, the limit is {}", outcome.outcome, state.current_limit);
        assert_eq!(state.current_limit, expected);
        now += Duration::from_secs(1);
    }
    Ok(())
}

#[test]
fn the_example_runs() {
    main().expect("the settings are valid");
}
