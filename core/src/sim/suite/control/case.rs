//! The providers that a contender has to find out about.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::drawn;
use crate::sim::latency::Latency;
use crate::sim::provider::{Capacity, Neighbour, Outage, Overload, ProviderSpec, Rate, Step};
use crate::time::Duration;

/// How long a case lasts unless it says otherwise.
const SPAN: Duration = Duration::from_secs(120);

/// A provider and how it is called.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Short name.
    pub name: String,
    /// The provider's behaviour.
    pub provider: ProviderSpec,
    /// The cap it is registered with: more than it bears.
    pub cap: u32,
    /// How long the case lasts.
    pub span: Duration,
    /// What a call costs in tokens.
    pub tokens: Tokens,
    /// Whether what it bears stays as it is.
    pub is_stationary: bool,
}

/// What calls cost in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tokens {
    /// At least the first, at most the second, each as likely.
    Between(u32, u32),
    /// Most cost little more than `usual`, and a few up to `most`: a Pareto law of index 1.5.
    HeavyTailed {
        /// What the cheapest cost.
        usual: u32,
        /// What the dearest cost.
        most: u32,
    },
}

impl Case {
    /// The cases of the table, in its order.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let [fixed, steps, drift] = [constant(12), stepping(), drifting()];
        let neighbour = || Neighbour { low_share: 0.1, high_share: 0.6, period: Duration::from_secs(3) };
        let rate = |per_minute, burst| Some(Rate::bursting(per_minute, burst));
        let shared = |case: Self| case.with(|provider| provider.neighbour = Some(neighbour()));
        [
            Self::new("fixed", fixed.clone(), 300).stationary(),
            Self::new("fixed, asks for 500 ms", fixed.clone(), 300).stationary().asking(500),
            Self::new("cold", warming(24, 20), 120),
            Self::new("cold, asks for 500 ms", warming(24, 20), 120).asking(500),
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
            Self::new("steps, asks for 500 ms", steps, 120).asking(500),
            shared(Self::new("neighbour", constant(24), 120)),
            shared(Self::new("neighbour, asks for 500 ms", constant(24), 120)).asking(500),
            Self::new("outage", constant(24), 120).with(|provider| provider.outages = [outage()].into()),
            Self::new("drift", drift.clone(), 120),
            Self::new("drift, asks for 500 ms", drift, 120).asking(500),
        ]
        .into()
    }

    /// A case drawn from a seed: any kind of provider, from one slot to five hundred, from calls of 20 ms to
    /// calls of 30 s. Its name begins with the kind.
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        drawn::case(seed)
    }

    /// The same for so many seconds.
    #[must_use]
    pub fn lasting_secs(self, secs: u64) -> Self {
        Self { span: Duration::from_secs(secs), ..self }
    }

    /// A provider of this capacity whose calls take about `median_ms`, behind a cap of 32.
    fn new(name: &str, capacity: Capacity, median_ms: u64) -> Self {
        let latency = Latency::LogNormal { median: Duration::from_millis(median_ms), sigma: 0.3, tail: None };
        let (provider, tokens) =
            (ProviderSpec { capacity, latency, ..ProviderSpec::default() }, Tokens::Between(300, 300));
        Self { name: name.to_string(), provider, cap: 32, span: SPAN, tokens, is_stationary: false }
    }

    fn stationary(self) -> Self {
        Self { is_stationary: true, ..self }
    }

    /// The same, with a Retry-After on what is refused for want of a slot.
    fn asking(self, millis: u64) -> Self {
        let retry_after = Some(Duration::from_millis(millis));
        self.with(|provider| provider.overload = Overload::Refuse { retry_after })
    }

    fn with(mut self, change: impl FnOnce(&mut ProviderSpec)) -> Self {
        change(&mut self.provider);
        self
    }

    /// What half of its calls take at most.
    pub(super) fn median(&self) -> Duration {
        match self.provider.latency {
            Latency::Constant { latency } => latency,
            Latency::Uniform { low, high } => Duration::from_nanos(low.as_nanos().midpoint(high.as_nanos())),
            Latency::LogNormal { median, .. } => median,
        }
    }

    /// The sudden changes of its capacity.
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
