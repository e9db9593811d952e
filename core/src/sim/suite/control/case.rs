//! The providers that a contender has to find out about.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::sim::latency::Latency;
use crate::sim::provider::{Capacity, Neighbour, Outage, Overload, ProviderSpec, Rate, Step};
use crate::sim::rng::Rng;
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
    /// The fewest and the most tokens of a call.
    pub tokens: (u32, u32),
    /// Whether what it bears stays as it is.
    pub is_stationary: bool,
}

impl Case {
    /// The cases of the table, in its order.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let [fixed, steps, drift] = [constant(12), stepping(), drifting()];
        let neighbour = || Neighbour { low_share: 0.1, high_share: 0.6, period: Duration::from_secs(3) };
        let rate = |per_minute, burst| Some(Rate { per_minute, burst: Some(burst) });
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
            Self { tokens: (100, 500), ..Self::new("tokens per minute", constant(24), 300) }
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

    /// A case drawn from a seed: any of the kinds, from two slots to two hundred, from fast calls to slow ones. Its name
    /// begins with the kind.
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut from = |low: u64, high: u64| low + rng.below(high - low + 1);
        let kind = from(0, 7);
        let slots = [from(2, 12), from(8, 40), from(30, 200)][from(0, 2) as usize] as u32;
        let cap = (u64::from(slots) * from(130, 400) / 100 + 1) as u32;
        let median = [from(20, 100), from(80, 600), from(400, 2_500)][from(0, 2) as usize];
        let sigma = from(0, 50) as f64 / 100.0;
        let span = Duration::from_millis((median * 400).clamp(60_000, 400_000));
        let part = |of: u64| Duration::from_nanos(span.as_nanos() * of / 100);
        let low = 1 + from(0, u64::from(slots) / 2) as u32;
        let capacity = match kind {
            1 => Capacity::WarmUp { slots, warm_up: part(from(5, 50)) },
            2 => {
                let down = Step { at: part(from(20, 40)), slots: low };
                let up = Step { at: part(from(50, 75)), slots };
                Capacity::Steps { slots, steps: [down, up].into() }
            }
            3 => Capacity::Drift { from: slots, to: low, over: part(from(20, 100)), back_and_forth: true },
            _ => Capacity::Constant { slots },
        };
        let latency = Latency::LogNormal { median: Duration::from_millis(median), sigma, tail: None };
        let mut case = Self { cap, span, ..Self::new("", capacity, median) };
        case.is_stationary = matches!(kind, 0 | 5 | 6);
        case.provider.latency = latency;
        let name = ["fixed", "cold", "steps", "drift", "neighbour", "knee", "requests", "outage"][kind as usize];
        let mut retry_after = 0;
        match kind {
            4 => {
                let low_share = from(0, 40) as f64 / 100.0;
                let high_share = low_share + from(10, 50) as f64 / 100.0;
                case.provider.neighbour = Some(Neighbour { low_share, high_share, period: part(from(3, 12)) });
            }
            5 => case.provider.overload = Overload::SlowDown { slope: from(80, 200) as f64 / 100.0 },
            6 => {
                // From a fortieth to all of what the slots alone would let through.
                let most = u64::from(slots) * 60_000 / median;
                let per_minute = (most * from(25, 1_000) / 1_000).max(10) as u32;
                let burst = (u64::from(per_minute) / from(10, 60)).max(1) as u32;
                case.provider.requests = Some(Rate { per_minute, burst: Some(burst) });
            }
            7 => {
                let errors = part(from(2, 8));
                let outage = Outage::of_errors(part(from(20, 40)), errors);
                case.provider.outages =
                    [Outage { timeouts: part(from(0, 6)), recovery: part(from(0, 10)), ..outage }].into();
            }
            _ => {}
        }
        if kind != 5 && from(0, 2) == 0 {
            retry_after = from(100, 2_000);
            case = case.asking(retry_after);
        }
        case.name =
            format!("{name}, {slots} slots, {median} ms, sigma {sigma}, Retry-After {retry_after} ms, seed {seed}");
        case
    }

    /// The same for so many seconds.
    #[must_use]
    pub fn lasting_secs(self, secs: u64) -> Self {
        Self { span: Duration::from_secs(secs), ..self }
    }

    /// A provider of this capacity whose calls take about `median_ms`, behind a cap of 32.
    fn new(name: &str, capacity: Capacity, median_ms: u64) -> Self {
        let latency = Latency::LogNormal { median: Duration::from_millis(median_ms), sigma: 0.3, tail: None };
        let provider = ProviderSpec { capacity, latency, ..ProviderSpec::default() };
        Self { name: name.to_string(), provider, cap: 32, span: SPAN, tokens: (300, 300), is_stationary: false }
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
