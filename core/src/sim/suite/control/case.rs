//! The cases: the providers whose capacity a contender has to find. The *named* cases are a list in this
//! file. The *drawn* cases are in `drawn`.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::sim::latency::Latency;
use crate::sim::provider::{Capacity, Neighbour, Outage, Overload, ProviderSpec, Rate, Step};
use crate::time::Duration;

/// The duration of a named case.
const SPAN: Duration = Duration::from_secs(120);

/// A provider, and how it is called.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlCase {
    /// The short name. It starts with the kind of the case, and a comma if more follows.
    pub name: String,
    /// The provider's behaviour.
    pub provider: ProviderSpec,
    /// The cap that the provider is registered with: the highest limit that a contender can set, at least 1.
    /// In the named and the drawn cases it exceeds the capacity, which therefore has to be found.
    pub cap: u32,
    /// The duration of the case, above zero.
    pub span: Duration,
    /// The cost of a call in tokens.
    pub tokens: Tokens,
    /// Whether the provider's capacity and rates never change. Only such a case has a goal for its start: see
    /// [`Score::is_in_time`](super::Score::is_in_time).
    pub is_stationary: bool,
}

/// The distribution of the costs of calls in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tokens {
    /// A uniform distribution from the first to the second value, both included. The first must not be the
    /// greater one.
    Between(u32, u32),
    /// A Pareto distribution of shape 1.5: most calls cost little more than `usual`, and a few cost up to
    /// `most`.
    HeavyTailed {
        /// The lowest cost.
        usual: u32,
        /// The highest cost, at least `usual`. Higher costs that are drawn are replaced by it.
        most: u32,
    },
}

impl ControlCase {
    /// Returns the named cases, in the order of the [`Table`](super::Table).
    ///
    /// In a case with "Retry-After 500 ms", each refusal for lack of a slot has a Retry-After of 500 ms.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let [fixed, steps, drift] = [constant(12), stepping(), drifting()];
        let neighbour = || Neighbour { low_share: 0.1, high_share: 0.6, period: Duration::from_secs(3) };
        let rate = |per_minute, burst| Some(Rate::bursting(per_minute, burst));
        let with_neighbour = |case: Self| case.with(|provider| provider.neighbour = Some(neighbour()));
        [
            Self::new("fixed", fixed.clone(), 300).stationary(),
            Self::new("fixed, Retry-After 500 ms", fixed.clone(), 300).stationary().retrying_after(500),
            Self::new("cold", warming(24, 20), 120),
            Self::new("cold, Retry-After 500 ms", warming(24, 20), 120).retrying_after(500),
            Self::new("requests per minute", constant(24), 120)
                .stationary()
                .with(|provider| provider.requests = rate(600, 20)),
            Self::new("few requests per minute", constant(24), 120)
                .stationary()
                .with(|provider| provider.requests = rate(120, 10)),
            Self { tokens: Tokens::Between(100, 500), ..Self::new("tokens per minute", constant(24), 300) }
                .stationary()
                .with(|provider| provider.tokens = rate(180_000, 6_000)),
            Self::new("knee", fixed, 300)
                .stationary()
                .with(|provider| provider.overload = Overload::SlowDown { slope: 1.0 }),
            Self::new("steps", steps.clone(), 120),
            Self::new("steps, Retry-After 500 ms", steps, 120).retrying_after(500),
            with_neighbour(Self::new("neighbour", constant(24), 120)),
            with_neighbour(Self::new("neighbour, Retry-After 500 ms", constant(24), 120)).retrying_after(500),
            Self::new("outage", constant(24), 120).with(|provider| provider.outages = [outage()].into()),
            Self::new("drift", drift.clone(), 120),
            Self::new("drift, Retry-After 500 ms", drift, 120).retrying_after(500),
        ]
        .into()
    }

    /// Returns the case with a duration of `secs` seconds.
    #[must_use]
    pub fn lasting_secs(self, secs: u64) -> Self {
        Self { span: Duration::from_secs(secs), ..self }
    }

    /// Creates a case of this capacity, with a median latency of `median_ms`, a cap of 32 and calls of 300
    /// tokens.
    fn new(name: &str, capacity: Capacity, median_ms: u64) -> Self {
        let latency = Latency::LogNormal { median: Duration::from_millis(median_ms), sigma: 0.3, tail: None };
        let (provider, tokens) =
            (ProviderSpec { capacity, latency, ..ProviderSpec::default() }, Tokens::Between(300, 300));
        Self { name: name.to_string(), provider, cap: 32, span: SPAN, tokens, is_stationary: false }
    }

    fn stationary(self) -> Self {
        Self { is_stationary: true, ..self }
    }

    /// Adds a Retry-After of `millis` to the refusals for lack of a slot.
    fn retrying_after(self, millis: u64) -> Self {
        let retry_after = Some(Duration::from_millis(millis));
        self.with(|provider| provider.overload = Overload::Refuse { retry_after })
    }

    fn with(mut self, change: impl FnOnce(&mut ProviderSpec)) -> Self {
        change(&mut self.provider);
        self
    }

    /// Returns the median latency of the provider's calls, without queueing or slow-down.
    pub(super) fn median(&self) -> Duration {
        match self.provider.latency {
            Latency::Constant { latency } => latency,
            Latency::Uniform { low, high } => Duration::from_nanos(low.as_nanos().midpoint(high.as_nanos())),
            Latency::LogNormal { median, .. } => median,
        }
    }

    /// Returns the sudden changes of the provider's capacity, as times from the start of the case, ascending.
    pub(super) fn steps(&self) -> impl Iterator<Item = Duration> + '_ {
        let steps = match &self.provider.capacity {
            Capacity::Steps { steps, .. } => &steps[..],
            _ => &[],
        };
        steps.iter().map(|step| step.at)
    }
}

fn constant(slots: u32) -> Capacity {
    Capacity::Constant { slots }
}

fn warming(slots: u32, secs: u64) -> Capacity {
    Capacity::WarmUp { slots, warm_up: Duration::from_secs(secs) }
}

fn stepping() -> Capacity {
    let step = |secs, slots| Step { at: Duration::from_secs(secs), slots };
    Capacity::Steps { slots: 24, steps: [step(40, 6), step(80, 24)].into() }
}

fn drifting() -> Capacity {
    Capacity::Drift { from: 6, to: 24, over: Duration::from_secs(40), back_and_forth: true }
}

fn outage() -> Outage {
    Outage {
        timeouts: Duration::from_secs(5),
        recovery: Duration::from_secs(10),
        ..Outage::of_errors(Duration::from_secs(40), Duration::from_secs(5))
    }
}
