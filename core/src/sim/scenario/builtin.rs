//! The scenarios that come with the crate.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::{Model, Scenario, ScenarioColumn};
use crate::pipeline::Strategy;
use crate::request::AimdConfig;
use crate::request::limit::LimitChoice;
use crate::sim::latency::Latency;
use crate::sim::provider::{Capacity, Neighbour, Outage, Overload, ProviderSpec, Step};
use crate::time::Duration;

/// The scenarios that come with the crate, in the order in which to show them.
#[must_use]
pub fn builtin() -> Vec<Scenario> {
    [
        base("tide", "AIMD finds the tide")
            .says("A provider bears 12 calls and the cap allows 32. Each refusal cuts the limit once, successes raise it.")
            .model("tide", 32, constant(12, 300)),
        base("falling-tide", "The tide falls and rises")
            .says("The provider's capacity drops from 24 to 6 and comes back. The limit follows without a storm.")
            .rows(1_600)
            .model("tide", 32, steps(24, &[(4_000, 6), (12_000, 24)])),
        base("cold-storm", "A cold server, without a ramp")
            .says("The server opens one slot after another over ten seconds. Starting at the full limit storms it.")
            .model("cold", 24, warm_up(24, 10_000)),
        base("cold-ramp", "A cold server, with a matching ramp")
            .says("The same server, and a start-up ramp of the same ten seconds: not a single refusal.")
            .ramped("cold", 24, warm_up(24, 10_000), 10_000),
        base("cold-ramp-too-fast", "A cold server, with a ramp too fast")
            .says("The ramp outruns the server; the first refusal ends it and AIMD takes over.")
            .ramped("cold", 24, warm_up(24, 10_000), 2_500),
        base("two-harbours", "A cooled-down provider beside an open one")
            .says("Each row goes to both. The narrow one pushes back and sets the pace; the wide one works whenever a row is ready.")
            .model("narrow", 16, constant(4, 60))
            .model("wide", 16, constant(16, 60)),
        base("noisy-neighbour", "A noisy neighbour")
            .says("Somebody else takes a varying share of the provider's 24 slots.")
            .rows(1_200)
            .model("shared", 24, neighbour(24)),
        base("outage", "An outage and a recovery")
            .says("The provider fails for two seconds, hangs for two, and recovers. Failed calls get two more rounds; rows that still fail are dropped and counted.")
            .rows(1_200)
            .model("shaky", 16, outage(16)),
    ]
    .map(|draft| draft.0)
    .into()
}

/// A scenario under construction.
struct Draft(Scenario);

fn base(name: &str, title: &str) -> Draft {
    Draft(Scenario {
        name: name.to_string(),
        title: title.to_string(),
        rows: 800,
        row_group_size: 50,
        row_groups: 4,
        submission_limit: 256,
        columns: [ScenarioColumn::new("seed", Strategy::FromScratch)].into(),
        ..Scenario::default()
    })
}

impl Draft {
    fn says(mut self, description: &str) -> Self {
        self.0.description = description.to_string();
        self
    }

    fn rows(mut self, rows: u64) -> Self {
        self.0.rows = rows;
        self
    }

    fn model(self, name: &str, max_parallel: u32, provider: ProviderSpec) -> Self {
        self.ramped(name, max_parallel, provider, 0)
    }

    /// Adds a model with two columns: one that drafts a cell, one that judges it.
    fn ramped(mut self, name: &str, max_parallel: u32, provider: ProviderSpec, ramp_ms: u64) -> Self {
        let request = AimdConfig { ramp: Duration::from_millis(ramp_ms), ..AimdConfig::default() };
        self.0.models.push(Model {
            name: name.to_string(),
            provider,
            max_parallel,
            request,
            task_limit: None,
            algorithm: LimitChoice::Aimd,
        });
        let draft = alloc::format!("{name}_draft");
        for (column, after) in [(draft.clone(), "seed".to_string()), (alloc::format!("{name}_judge"), draft)] {
            self.0.columns.push(ScenarioColumn {
                after: [after].into(),
                model: Some(name.to_string()),
                tokens: 300,
                ..ScenarioColumn::new(&column, Strategy::Cell)
            });
        }
        self
    }
}

fn spec(capacity: Capacity, median_ms: u64) -> ProviderSpec {
    ProviderSpec {
        capacity,
        overload: Overload::Refuse { retry_after: Some(Duration::from_millis(500)) },
        latency: Latency::LogNormal { median: Duration::from_millis(median_ms), sigma: 0.3, tail: None },
        ..ProviderSpec::default()
    }
}

fn constant(slots: u32, median_ms: u64) -> ProviderSpec {
    spec(Capacity::Constant { slots }, median_ms)
}

fn warm_up(slots: u32, warm_up_ms: u64) -> ProviderSpec {
    spec(Capacity::WarmUp { slots, warm_up: Duration::from_millis(warm_up_ms) }, 120)
}

fn steps(slots: u32, steps: &[(u64, u32)]) -> ProviderSpec {
    let steps = steps.iter().map(|(at_ms, slots)| Step { at: Duration::from_millis(*at_ms), slots: *slots }).collect();
    spec(Capacity::Steps { slots, steps }, 120)
}

fn neighbour(slots: u32) -> ProviderSpec {
    let neighbour = Neighbour { low_share: 0.1, high_share: 0.6, period: Duration::from_secs(3) };
    ProviderSpec { neighbour: Some(neighbour), ..constant(slots, 120) }
}

fn outage(slots: u32) -> ProviderSpec {
    let outage = Outage {
        timeouts: Duration::from_secs(2),
        recovery: Duration::from_secs(3),
        ..Outage::of_errors(Duration::from_secs(4), Duration::from_secs(2))
    };
    ProviderSpec { outages: [outage].into(), ..constant(slots, 80) }
}
