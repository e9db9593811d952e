//! Random cases: providers of every kind, drawn from seeds.
//!
//! | kind | the provider |
//! | --- | --- |
//! | fixed | has a fixed capacity |
//! | cold | starts with one slot and opens the others one by one |
//! | steps | loses slots once, and gets them back later |
//! | square | alternates between two capacities |
//! | sine | has a capacity that follows a sine wave |
//! | drift | has a capacity that slowly falls and rises |
//! | neighbour | is shared with another client that takes a varying share |
//! | knee | refuses no call, and gets slower |
//! | requests | limits calls per minute, with a burst |
//! | bursts | limits calls per minute, with a burst of 1 to 5. Calls are long |
//! | windows | limits calls in windows of 1 or 10 s. Calls are long |
//! | pool | refuses a share of all calls at any load |
//! | surge | refuses traffic that grows too fast |
//! | joint | limits slots, calls per minute and tokens per minute |
//! | tokens | limits tokens per minute. A few calls cost very many |
//! | outage | fails, does not answer, recovers |
//! | faults | fails single calls, cuts off their answers, or leaves them unanswered |

use alloc::format;
use alloc::vec::Vec;

use super::case::{ControlCase, Tokens};
use crate::sim::latency::Latency;
use crate::sim::provider::{
    Capacity, Faults, Neighbour, Outage, Overload, ProviderSpec, Rate, RetryAfter, Step, Surge,
};
use crate::sim::rng::Rng;
use crate::time::Duration;

/// Draws a provider of one kind.
type DrawProvider = fn(&mut Draw) -> ProviderSpec;

/// The kinds: the name, whether such a provider is stationary, and the function that draws it.
const KINDS: [(&str, bool, DrawProvider); 17] = [
    ("fixed", true, fixed),
    ("cold", false, cold),
    ("steps", false, steps),
    ("square", false, square),
    ("sine", false, sine),
    ("drift", false, drift),
    ("neighbour", false, neighbour),
    ("knee", true, knee),
    ("requests", true, requests),
    ("bursts", true, bursts),
    ("windows", true, windows),
    ("pool", true, pool),
    ("surge", false, surge),
    ("joint", true, joint),
    ("tokens", true, tokens),
    ("outage", false, outage),
    ("faults", true, faults),
];

/// The highest number of calls in flight that a rate allows if calls are long.
const MAX_IN_FLIGHT: u64 = 400;
/// The number of steps in one period of a sine wave.
const SAMPLES: u64 = 48;

/// The properties drawn for every case, before those of its kind. The function of the kind may replace them.
struct Draw {
    rng: Rng,
    /// The highest capacity.
    slots: u32,
    /// The median latency in milliseconds.
    median: u64,
    /// The duration of the case.
    span: Duration,
    tokens: Tokens,
    /// The Retry-After of refusals that no rate causes.
    retry_after: Option<Duration>,
}

impl Draw {
    /// Draws an integer from `low` to `high`, both included and all equally likely.
    fn from(&mut self, low: u64, high: u64) -> u64 {
        low + self.rng.below(high - low + 1)
    }

    /// Draws a number from `low` to `high` thousandths.
    fn share(&mut self, low: u64, high: u64) -> f64 {
        self.from(low, high) as f64 / 1_000.0
    }

    /// Draws a part of the case's duration, from `low` to `high` hundredths.
    fn part(&mut self, low: u64, high: u64) -> Duration {
        let part = self.from(low, high);
        Duration::from_nanos(self.span.as_nanos() * part / 100)
    }

    /// Returns the throughput of the slots: the number of calls answered per minute if all are in use.
    fn most_per_minute(&self) -> u64 {
        u64::from(self.slots) * 60_000 / self.median
    }

    /// Draws a lower capacity: at least 1, and at most half of the slots plus 1.
    fn low(&mut self) -> u32 {
        1 + self.from(0, u64::from(self.slots) / 2) as u32
    }

    fn draw_retry_after(&mut self) -> RetryAfter {
        [RetryAfter::Exact, RetryAfter::Seconds, RetryAfter::Never][self.from(0, 2) as usize]
    }

    /// Draws a rate, and calls of 1 to 30 s. Returns the rate, in calls per minute.
    ///
    /// There are enough slots that only the rate refuses calls: by Little's law, rate x latency calls are in
    /// flight when the rate is used in full, and the slots are at least a quarter more.
    fn long_calls(&mut self) -> u32 {
        let per_minute = [60, 120, 300, 600, 1_200, 3_000][self.from(0, 5) as usize];
        self.median = self.from(1_000, 30_000).min(MAX_IN_FLIGHT * 60_000 / per_minute);
        self.span = span_of(self.median);
        let needed = (per_minute * self.median / 60_000) as u32;
        self.slots = (self.from(64, 512) as u32).max(needed + needed / 4);
        per_minute as u32
    }
}

/// Returns the duration of a case whose calls take `median` milliseconds. It is that of 400 calls one after
/// another, but from 60 to 400 s, and always that of at least 60 calls.
pub(super) fn span_of(median: u64) -> Duration {
    Duration::from_millis((median * 400).clamp(60_000, 400_000).max(median * 60))
}

impl ControlCase {
    /// Draws a case from a seed.
    ///
    /// It is a provider of any kind, with 1 to about 500 slots and calls of 20 ms to 30 s. The cap is 1.3 to
    /// 20 times the slots, but at most 2000. The name starts with the kind. A seed always gives the same
    /// case.
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut from = |low: u64, high: u64| low + rng.below(high - low + 1);
        // Every alternative is drawn, so that later draws do not depend on the choice.
        let (kind, is_stationary, make) = KINDS[from(0, KINDS.len() as u64 - 1) as usize];
        let slots = [from(1, 4), from(4, 40), from(30, 200), from(150, 500)][from(0, 3) as usize] as u32;
        let cap_percent = [from(130, 400), from(130, 400), from(400, 2_000)][from(0, 2) as usize];
        let median = [from(20, 100), from(80, 600), from(400, 2_500)][from(0, 2) as usize];
        let sigma = from(0, 50) as f64 / 100.0;
        let retry_after_ms = [0, 0, 0, from(100, 1_000), from(1_000, 5_000), from(5_000, 30_000)][from(0, 5) as usize];
        let retry_after = (retry_after_ms > 0).then(|| Duration::from_millis(retry_after_ms));
        let mut draw =
            Draw { rng, slots, median, span: span_of(median), tokens: Tokens::Between(300, 300), retry_after };
        let mut provider = make(&mut draw);
        let Draw { slots, median, span, tokens, .. } = draw;
        provider.latency = Latency::LogNormal { median: Duration::from_millis(median), sigma, tail: None };
        if let Overload::Refuse { retry_after: of_slots } = &mut provider.overload {
            *of_slots = retry_after;
        }
        let name =
            format!("{kind}, {slots} slots, {median} ms, sigma {sigma}, Retry-After {retry_after_ms} ms, seed {seed}");
        let cap = (u64::from(slots) * cap_percent / 100 + 1).min(2_000) as u32;
        Self { name, provider, cap, span, tokens, is_stationary }
    }
}

fn of_capacity(capacity: Capacity) -> ProviderSpec {
    ProviderSpec { capacity, ..ProviderSpec::default() }
}

fn fixed(draw: &mut Draw) -> ProviderSpec {
    of_capacity(Capacity::Constant { slots: draw.slots })
}

fn cold(draw: &mut Draw) -> ProviderSpec {
    let warm_up = draw.part(5, 50);
    of_capacity(Capacity::WarmUp { slots: draw.slots, warm_up })
}

fn steps(draw: &mut Draw) -> ProviderSpec {
    let slots = draw.slots;
    let down = Step { at: draw.part(20, 40), slots: draw.low() };
    let up = Step { at: draw.part(50, 75), slots };
    of_capacity(Capacity::Steps { slots, steps: [down, up].into() })
}

fn square(draw: &mut Draw) -> ProviderSpec {
    let (slots, low, half) = (draw.slots, draw.low(), draw.from(5_000, 60_000));
    let step = |nth: u64| Step {
        at: Duration::from_millis(nth * half),
        slots: if nth.is_multiple_of(2) { slots } else { low },
    };
    let steps: Vec<Step> = (1..=draw.span.as_nanos() / 1_000_000 / half).map(step).collect();
    of_capacity(Capacity::Steps { slots, steps })
}

fn sine(draw: &mut Draw) -> ProviderSpec {
    let (slots, low, period) = (draw.slots, draw.low(), draw.from(15_000, 120_000));
    let (middle, swing) = (f64::from(slots + low) / 2.0, f64::from(slots - slots.min(low)) / 2.0);
    let sample = |nth: u64| {
        let angle = core::f64::consts::TAU * (nth % SAMPLES) as f64 / SAMPLES as f64;
        let at = Duration::from_millis(nth * period / SAMPLES);
        Step { at, slots: libm::round(middle + swing * libm::cos(angle)) as u32 }
    };
    let steps: Vec<Step> = (1..=draw.span.as_nanos() / 1_000_000 * SAMPLES / period).map(sample).collect();
    of_capacity(Capacity::Steps { slots, steps })
}

fn drift(draw: &mut Draw) -> ProviderSpec {
    let (from, to, over) = (draw.slots, draw.low(), draw.part(20, 100));
    of_capacity(Capacity::Drift { from, to, over, back_and_forth: true })
}

fn neighbour(draw: &mut Draw) -> ProviderSpec {
    let low_share = draw.share(0, 400);
    let high_share = low_share + draw.share(100, 500);
    let period = draw.part(3, 12);
    ProviderSpec { neighbour: Some(Neighbour { low_share, high_share, period }), ..fixed(draw) }
}

fn knee(draw: &mut Draw) -> ProviderSpec {
    let slope = draw.share(800, 2_000);
    ProviderSpec { overload: Overload::SlowDown { slope }, ..fixed(draw) }
}

/// The rate is from a fortieth to all of the throughput of the slots, but at least 10 per minute. The burst
/// is that of one to six seconds.
fn requests(draw: &mut Draw) -> ProviderSpec {
    let per_minute = (draw.most_per_minute() * draw.from(25, 1_000) / 1_000).max(10) as u32;
    let burst = (u64::from(per_minute) / draw.from(10, 60)).max(1) as u32;
    let retry_after = draw.draw_retry_after();
    ProviderSpec { requests: Some(Rate { retry_after, ..Rate::bursting(per_minute, burst) }), ..fixed(draw) }
}

fn bursts(draw: &mut Draw) -> ProviderSpec {
    let per_minute = draw.long_calls();
    let (burst, retry_after) = (draw.from(1, 5) as u32, draw.draw_retry_after());
    ProviderSpec { requests: Some(Rate { retry_after, ..Rate::bursting(per_minute, burst) }), ..fixed(draw) }
}

fn windows(draw: &mut Draw) -> ProviderSpec {
    let per_minute = draw.long_calls();
    let window = Duration::from_secs([1, 10][draw.from(0, 1) as usize]);
    let retry_after = draw.draw_retry_after();
    ProviderSpec { requests: Some(Rate { retry_after, ..Rate::in_windows(per_minute, window) }), ..fixed(draw) }
}

fn pool(draw: &mut Draw) -> ProviderSpec {
    let refused_share = draw.share(50, 500);
    let faults = Faults { refused_share, retry_after: draw.retry_after, ..Faults::default() };
    ProviderSpec { faults: Some(faults), ..fixed(draw) }
}

/// Every period lets through 2 to 20 % of the throughput of the slots.
fn surge(draw: &mut Draw) -> ProviderSpec {
    let period = draw.from(1_000, 10_000);
    let usual = draw.most_per_minute() * period / 60_000;
    let least = (usual * draw.from(20, 200) / 1_000).max(1) as u32;
    let growth = draw.share(1_200, 2_000);
    let surge = Surge { period: Duration::from_millis(period), growth, least, retry_after: draw.retry_after };
    ProviderSpec { surge: Some(surge), ..fixed(draw) }
}

/// The two rates are 0.4 to 1.5 times what the throughput of the slots needs, so any of the three limits may
/// be the bottleneck.
fn joint(draw: &mut Draw) -> ProviderSpec {
    let usual = draw.from(100, 1_000) as u32;
    draw.tokens = Tokens::Between(usual / 2, usual + usual / 2);
    let most = draw.most_per_minute();
    let requests = (most * draw.from(400, 1_500) / 1_000).max(10);
    let tokens = (most * u64::from(usual) * draw.from(400, 1_500) / 1_000).max(u64::from(usual) * 10);
    let retry_after = draw.draw_retry_after();
    // The burst is one part of `parts` of what a minute allows.
    let rate = |per_minute: u64, parts: u64| {
        let per_minute = per_minute.min(1_000_000_000) as u32;
        Some(Rate { retry_after, ..Rate::bursting(per_minute, (u64::from(per_minute) / parts).max(1) as u32) })
    };
    let (requests, tokens) = (rate(requests, draw.from(10, 60)), rate(tokens, draw.from(10, 60)));
    ProviderSpec { requests, tokens, ..fixed(draw) }
}

/// The rate is 10 to 90 % of what the throughput of the slots needs: the mean cost of a call is about three
/// times the usual one.
fn tokens(draw: &mut Draw) -> ProviderSpec {
    let usual = draw.from(50, 500) as u32;
    draw.tokens = Tokens::HeavyTailed { usual, most: usual * 100 };
    let per_minute = draw.most_per_minute() * u64::from(usual) * 3 * draw.from(100, 900) / 1_000;
    let per_minute = per_minute.clamp(u64::from(usual) * 60, 1_000_000_000) as u32;
    let retry_after = draw.draw_retry_after();
    let burst = (per_minute / draw.from(6, 60) as u32).max(1);
    ProviderSpec { tokens: Some(Rate { retry_after, ..Rate::bursting(per_minute, burst) }), ..fixed(draw) }
}

fn outage(draw: &mut Draw) -> ProviderSpec {
    let outage = Outage::of_errors(draw.part(20, 40), draw.part(2, 8));
    let outage = Outage { timeouts: draw.part(0, 6), recovery: draw.part(0, 10), ..outage };
    ProviderSpec { outages: [outage].into(), ..fixed(draw) }
}

fn faults(draw: &mut Draw) -> ProviderSpec {
    let faults = Faults {
        error_share: draw.share(0, 100),
        hang_share: draw.share(0, 20),
        cut_share: draw.share(0, 50),
        ..Faults::default()
    };
    ProviderSpec { faults: Some(faults), ..fixed(draw) }
}
