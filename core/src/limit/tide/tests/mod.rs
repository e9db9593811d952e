//! Tests of the algorithm as a whole. The helpers are here.

mod concurrency;
mod laws;
mod rates;
mod retry_after;

use std::boxed::Box;
use std::vec::Vec;

use super::*;
use crate::request::testing::{Bench, CHAT};
use crate::request::{Completion, LimitConfig, Request, RequestLease};

const REFUSED: Completion = Completion::rate_limited(None);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns a bench whose limit is a `Tide` of at most 64 concurrent calls.
fn bench(config: TideConfig) -> Bench {
    bench_of(64, config)
}

/// Returns a bench whose limit is a `Tide` of at most `max` concurrent calls.
fn bench_of(max: u32, config: TideConfig) -> Bench {
    let mut bench = Bench::new(max, LimitConfig::default());
    let tide = Tide::new(config).expect("valid settings");
    bench.machine.set_algorithm(bench.now, CHAT, Box::new(tide)).expect("a known resource");
    bench
}

/// A mock provider. From the time a call is sent and the accepted calls in flight, it returns the latency of
/// the call, and the Retry-After if it refuses the call.
type Provider<'a> = &'a mut dyn FnMut(Instant, usize) -> (Duration, Option<Option<Duration>>);

impl Bench {
    /// Sends `calls` calls, each as soon as the limit allows.
    fn send(&mut self, calls: usize) -> Vec<RequestLease> {
        let mut out = Vec::new();
        while out.len() < calls {
            match self.machine.try_acquire(self.now, &Request::new(CHAT)) {
                Ok(lease) => out.push(lease),
                Err(_) => self.after(millis(1)),
            }
            assert!(self.now < Instant::from_nanos(3_600_000_000_000), "the limit allows no call for an hour");
        }
        out
    }

    /// Keeps as many calls in flight as the limit allows for `span`. Returns how many were answered and how
    /// many refused.
    fn serve(&mut self, span: Duration, provider: Provider) -> (usize, usize) {
        let end = self.now + span;
        let mut out: Vec<(Instant, RequestLease, Completion)> = Vec::new();
        let (mut answered, mut refused) = (0, 0);
        while self.now < end || !out.is_empty() {
            while self.now < end
                && let Ok(lease) = self.machine.try_acquire(self.now, &Request::new(CHAT))
            {
                let accepted = out.iter().filter(|call| call.2.outcome == Outcome::Success).count();
                let (takes, refusal) = provider(self.now, accepted);
                let completion = refusal.map_or(Completion::from(Outcome::Success), Completion::rate_limited);
                out.push((self.now + takes, lease, completion));
            }
            self.after(millis(1));
            for (_, lease, completion) in out.extract_if(.., |call| call.0 <= self.now).collect::<Vec<_>>() {
                *if completion.outcome == Outcome::Success { &mut answered } else { &mut refused } += 1;
                self.end(lease, completion);
            }
        }
        (answered, refused)
    }

    /// Serves from a provider that answers `slots` calls after 100 ms and refuses more after 5 ms. Returns
    /// the refusals.
    fn serve_slots(&mut self, span: Duration, slots: usize, retry_after: Option<Duration>) -> usize {
        let refused = (millis(5), Some(retry_after));
        self.serve(span, &mut |_, out| if out < slots { (millis(100), None) } else { refused }).1
    }

    /// Serves from a bucket of `burst` nanoseconds, full at first. The n-th call takes 150 ms and costs
    /// `cost(n)`.
    fn serve_bucket(&mut self, span: Duration, burst: u64, cost: impl Fn(u64) -> u64) -> (usize, usize) {
        let (mut level, mut at, mut accepted) = (burst, self.now, 0);
        self.serve(span, &mut |now, _| {
            level = burst.min(level + (now - at).as_nanos());
            at = now;
            match cost(accepted).checked_sub(level) {
                None | Some(0) => {
                    level -= cost(accepted);
                    accepted += 1;
                    (millis(150), None)
                }
                Some(missing) => (millis(5), Some(Some(Duration::from_nanos(missing)))),
            }
        })
    }
}

fn starting_at(initial_limit: u32) -> Bench {
    bench(TideConfig { initial_limit, ..TideConfig::default() })
}

/// Returns a bench whose limit starts at its maximum.
fn starting_at_most(max: u32) -> Bench {
    bench_of(max, TideConfig { initial_limit: max, ..TideConfig::default() })
}

/// Returns a bench on which every Retry-After stops the resource.
fn obeying(initial_limit: u32) -> Bench {
    bench(TideConfig { initial_limit, retry_after: RetryAfterStops::Resource, ..TideConfig::default() })
}

#[test]
fn a_setting_out_of_range_returns_an_error_that_names_it() {
    let standard = TideConfig::default();
    for (config, field) in [
        (TideConfig { initial_limit: 0, ..standard }, "initial_limit"),
        (TideConfig { probe_after: 0, ..standard }, "probe_after"),
        (TideConfig { probe_after_most: 15, ..standard }, "probe_after_most"),
        (TideConfig { decrease_factor: 1.0, ..standard }, "decrease_factor"),
        (TideConfig { decrease_factor: f64::NAN, ..standard }, "decrease_factor"),
        (TideConfig { longest_pause: Duration::ZERO, ..standard }, "longest_pause"),
        (TideConfig { latency_tolerance: 1.0, ..standard }, "latency_tolerance"),
    ] {
        assert_eq!(Tide::new(config).unwrap_err().field, field);
    }
}
