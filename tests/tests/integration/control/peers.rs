//! The limit algorithms of other crates, behind the trait.
//!
//! All of them are plain objects, so nothing of theirs is bypassed but their semaphores. Neither crate pauses after a
//! refusal, so none is made here without a Retry-After; one with it stops the calls in the controller, as it does for all.

use std::fmt;

use throttle_net::AdaptiveStrategy;
use tidegate_core::limit::{CallReport, LimitAlgorithm};
use tidegate_core::request::Outcome;
use tidegate_core::sim::suite::control::Contender;
use tidegate_core::time::{Duration, Instant};
use tower_acc::Algorithm;

/// Where each starts: `tower-acc`'s default.
const INITIAL: u32 = 20;

pub(crate) fn all() -> Vec<Contender> {
    let tower = |name, make: fn(usize) -> Box<dyn Algorithm + Send>| {
        Contender::new(name, move |cap| Ok(Box::new(Tower { algorithm: make(cap as usize), max: cap })))
    };
    vec![
        tower("tower-acc Aimd", |cap| {
            Box::new(tower_acc::Aimd::builder().initial_limit(cap.min(INITIAL as usize)).max_limit(cap).build())
        }),
        tower("tower-acc Gradient2", |cap| {
            Box::new(tower_acc::Gradient2::builder().initial_limit(cap.min(INITIAL as usize)).max_limit(cap).build())
        }),
        tower("tower-acc Vegas", |cap| {
            Box::new(tower_acc::Vegas::builder().initial_limit(cap.min(INITIAL as usize)).max_limit(cap).build())
        }),
        throttle("throttle-net Aimd", || Box::<throttle_net::Aimd>::default()),
        throttle("throttle-net Vegas", || Box::<throttle_net::Vegas>::default()),
    ]
}

fn is_refusal(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::RateLimited | Outcome::ProviderFailure | Outcome::ProviderTimeout)
}

fn std_span(span: Duration) -> std::time::Duration {
    std::time::Duration::from_nanos(span.as_nanos())
}

struct Tower {
    algorithm: Box<dyn Algorithm + Send>,
    max: u32,
}

impl fmt::Debug for Tower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tower").field("limit", &self.algorithm.max_concurrency()).finish_non_exhaustive()
    }
}

impl LimitAlgorithm for Tower {
    fn limit(&self, _now: Instant) -> u32 {
        u32::try_from(self.algorithm.max_concurrency()).unwrap_or(u32::MAX).clamp(1, self.max)
    }

    fn on_outcome(&mut self, _now: Instant, call: &CallReport) {
        let at_once = call.in_flight as usize + 1;
        self.algorithm.update(std_span(call.latency), at_once, is_refusal(call.outcome), false);
    }

    fn cooldown(&self, _now: Instant, call: &CallReport) -> Option<Duration> {
        Some(call.retry_after.unwrap_or(Duration::ZERO))
    }

    fn set_max(&mut self, _now: Instant, max: u32, _lifts: bool) {
        self.max = max;
    }
}

fn throttle(name: &str, make: fn() -> Box<dyn Strategy>) -> Contender {
    Contender::new(name, move |cap| Ok(Box::new(Throttle { strategy: make(), limit: cap.min(INITIAL), max: cap })))
}

/// A strategy that can be shown.
trait Strategy: AdaptiveStrategy + fmt::Debug {}

impl<S: AdaptiveStrategy + fmt::Debug> Strategy for S {}

#[derive(Debug)]
struct Throttle {
    strategy: Box<dyn Strategy>,
    limit: u32,
    max: u32,
}

impl LimitAlgorithm for Throttle {
    fn limit(&self, _now: Instant) -> u32 {
        self.limit
    }

    fn on_outcome(&mut self, _now: Instant, call: &CallReport) {
        let outcome = match call.outcome {
            outcome if is_refusal(outcome) => throttle_net::Outcome::Failure,
            _ => throttle_net::Outcome::Success { rtt: std_span(call.latency) },
        };
        self.limit = self.strategy.adjust(self.limit, call.in_flight + 1, outcome).clamp(1, self.max);
    }

    fn cooldown(&self, _now: Instant, call: &CallReport) -> Option<Duration> {
        Some(call.retry_after.unwrap_or(Duration::ZERO))
    }

    fn set_max(&mut self, _now: Instant, max: u32, _lifts: bool) {
        self.max = max;
        self.limit = self.limit.min(max);
    }
}
