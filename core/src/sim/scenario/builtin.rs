//! The scenarios that come with the crate.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::{Model, Scenario, ScenarioColumn};
use crate::limit::LimitChoice;
use crate::pipeline::{PolicyChoice, Strategy};
use crate::request::LimitConfig;
use crate::sim::latency::Latency;
use crate::sim::provider::{Capacity, Neighbour, Outage, Overload, ProviderSpec, Rate, RetryAfter, Step};
use crate::task::BoundedBorrowConfig;
use crate::time::Duration;

/// Returns the scenarios that come with the crate, in display order.
#[must_use]
pub fn builtin() -> Vec<Scenario> {
    [
        base("unknown-limit", "AIMD finds an unknown limit")
            .about("The provider serves 12 calls at once and the cap allows 32. A burst of 429s cuts the limit once, successes raise it.")
            .model("silent", 32, constant(12, 300)),
        base("falling-capacity", "The capacity falls and rises")
            .about("The provider's capacity drops from 24 to 6 and comes back. The limit follows without a storm of 429s.")
            .rows(1_600)
            .model("silent", 32, steps(24, &[(4_000, 6), (12_000, 24)])),
        base("cold-storm", "A cold server, without a ramp")
            .about("The server opens one slot after another over ten seconds. Starting at the full limit causes a storm of 429s.")
            .model("cold", 24, warm_up(24, 10_000)),
        base("cold-ramp", "A cold server, with a matching ramp")
            .about("The same server with a start-up ramp of the same ten seconds: not a single call is refused.")
            .model_with_ramp("cold", 24, warm_up(24, 10_000), 10_000),
        base("cold-ramp-too-fast", "A cold server, with a ramp too fast")
            .about("The ramp rises faster than the server warms up. The first 429 ends it and AIMD takes over.")
            .model_with_ramp("cold", 24, warm_up(24, 10_000), 2_500),
        base("two-harbours", "A cooled-down provider beside an open one")
            .about("Each row calls both providers. The narrow one answers 429 and sets the pace; the wide one works whenever a row is ready.")
            .model("narrow", 16, constant(4, 60))
            .model("wide", 16, constant(16, 60)),
        base("noisy-neighbour", "A noisy neighbour")
            .about("Another client takes a varying share of the provider's 24 slots.")
            .rows(1_200)
            .model("shared", 24, neighbour(24)),
        base("outage", "An outage and a recovery")
            .about("The provider fails for two seconds, hangs for two, and recovers. Calls that fail are retried once it is back: no row is lost.")
            .rows(1_200)
            .model("shaky", 16, outage(16)),
        base("storm", "A storm of 429s, without a limit")
            .about("Forty calls at once against a provider that serves eight. Nothing adapts: after each Retry-After, all of them are sent again.")
            .rows(300)
            .model("stormy", 40, constant(8, 300))
            .with_fixed_limit(40),
        base("borrow-and-repay", "Borrow from a neighbour, and repay")
            .about("Two groups share 16 workers. While the second has nothing to do, the first borrows up to six of its eight. Once the second has tasks, borrowed workers are repaid as they finish, before the first starts new ones.")
            .rows(600)
            .model("ample", 64, constant(64, 200))
            .in_two_groups(16, 6, 4_000),
        base("rate-limit", "600 calls a minute")
            .about("The provider counts calls, not slots: 600 a minute, and 20 at once after a quiet time. A limit on calls at once cannot follow it; a pace can.")
            .rows(150)
            .model("metered", 32, metered(600, 20)),
        base("crowd", "Ten thousand calls at once")
            .about("A provider that serves 10 000 calls at once, and 12 000 workers: the cost of the scheduler itself.")
            .rows(16_000)
            .model("crowded", 10_000, constant(10_000, 6_000))
            .crowded(12_000, 1_000, 16),
    ]
    .map(|draft| draft.0)
    .into()
}

/// A scenario that is being built.
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
    fn about(mut self, description: &str) -> Self {
        self.0.description = description.to_string();
        self
    }

    fn rows(mut self, rows: u64) -> Self {
        self.0.rows = rows;
        self
    }

    fn model(self, name: &str, max_parallel: u32, provider: ProviderSpec) -> Self {
        self.model_with_ramp(name, max_parallel, provider, 0)
    }

    /// Gives all models a fixed limit, which never adapts.
    fn with_fixed_limit(mut self, limit: u32) -> Self {
        self.0.models.iter_mut().for_each(|model| model.algorithm = LimitChoice::Fixed { limit });
        self
    }

    /// Makes the two columns of the model independent of each other, and lets the second one start `late_ms`
    /// later. A group may borrow up to `borrows` workers.
    fn in_two_groups(mut self, workers: u32, borrows: u32, late_ms: u64) -> Self {
        let config = BoundedBorrowConfig { default_ceiling: Some(borrows), ..BoundedBorrowConfig::default() };
        self.0.policy = PolicyChoice::BoundedBorrow(config);
        (self.0.submission_limit, self.0.row_groups) = (workers, 1);
        self.0.row_group_size = u32::try_from(self.0.rows).unwrap_or(u32::MAX);
        let late = "late".to_string();
        for (column, (name, after)) in
            self.0.columns[1..].iter_mut().zip([("first", "seed".to_string()), ("second", late.clone())])
        {
            (column.name, column.after) = (name.to_string(), [after].into());
        }
        let local = Duration::from_millis(late_ms);
        let after = ["seed".to_string()].into();
        self.0.columns.push(ScenarioColumn { after, local, ..ScenarioColumn::new(&late, Strategy::FullColumn) });
        self
    }

    /// Sets the number of workers and the size and number of row groups.
    fn crowded(mut self, workers: u32, row_group_size: u32, row_groups: u32) -> Self {
        let run = &mut self.0;
        (run.submission_limit, run.row_group_size, run.row_groups) = (workers, row_group_size, row_groups);
        self
    }

    /// Adds a model with a start-up ramp and two columns: one drafts a cell, one judges it.
    fn model_with_ramp(mut self, name: &str, max_parallel: u32, provider: ProviderSpec, ramp_ms: u64) -> Self {
        let request = LimitConfig { ramp: Duration::from_millis(ramp_ms), ..LimitConfig::default() };
        self.0.models.push(Model {
            name: name.to_string(),
            domain_of: None,
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

/// Creates a provider with log-normal latencies that refuses calls beyond its capacity, with a Retry-After of
/// half a second.
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

fn metered(per_minute: u32, burst: u32) -> ProviderSpec {
    let rate = Rate { per_minute, burst: Some(burst), window: None, retry_after: RetryAfter::Exact };
    ProviderSpec { requests: Some(rate), ..constant(32, 400) }
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
