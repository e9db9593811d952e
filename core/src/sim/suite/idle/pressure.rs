//! The pressure cases: one provider is held by somebody outside for a while, and one is open.
//!
//! ```text
//! seed --+--> a_pressured   calls `held`, whose only slot somebody has for the first 50 ms
//!        '--> z_open        calls `open`
//! ```
//!
//! Calls take 1 ms, each provider bears one, and the task resource of each model is as large as the capacity,
//! so that workers who only wait for `held` can take every worker slot from those who could call `open`.
//!
//! With one worker slot, 32 rows and the two columns in turn:
//!
//! | case | wall time | the slot is |
//! | --- | --- | --- |
//! | control | 50 + 64 ms | with the first `a_pressured` until `held` is free; then with one call after another |
//! | advisory | 50 + 32 ms | with `z_open` for 32 ms, since its calls go out at once; 18 ms later `held` is free |
//! | yield | 50 + 62 ms | given back by two workers in turn, each of which lets one `z_open` by; the third keeps it |
//! | both | 50 + 32 ms | as with the advisory, which leaves nothing to gain by yielding here |
//!
//! Yielding alone gains so little because no more workers may hold nothing than
//! [`YIELD_FACTOR`](crate::yielding::YIELD_FACTOR) for each call that `held` bears, two in all: a worker that
//! was started has its task's data, and the queue in front of a provider is to stand in the scheduler. Which
//! tasks are started in the first place is the advisory's business.

use alloc::string::ToString;

use super::{Case, Target};
use crate::limit::LimitChoice;
use crate::pipeline::{AdaptiveRowGroups, Strategy};
use crate::request::AimdConfig;
use crate::sim::latency::Latency;
use crate::sim::provider::{Capacity, ProviderSpec};
use crate::sim::scenario::{Holder, Model, Scenario, ScenarioColumn};
use crate::time::Duration;

const HELD: &str = "held";
const OPEN: &str = "open";

/// A model that bears so many calls, each of which takes so long.
pub(super) fn model(name: &str, slots: u32, latency: Duration) -> Model {
    Model {
        name: name.to_string(),
        domain_of: None,
        provider: ProviderSpec {
            capacity: Capacity::Constant { slots },
            latency: Latency::Constant { latency },
            ..ProviderSpec::default()
        },
        max_parallel: slots,
        algorithm: LimitChoice::Aimd,
        request: AimdConfig::default(),
        task_limit: None,
    }
}

fn scenario(rows: u64, buffer: u32, row_groups: u32, capacity: u32) -> Scenario {
    let model = |name| Model { task_limit: Some(capacity), ..model(name, 1, Duration::from_millis(1)) };
    let column = |name, model: &str| ScenarioColumn {
        after: ["seed".to_string()].into(),
        model: Some(model.to_string()),
        weight: f64::from(capacity),
        ..ScenarioColumn::new(name, Strategy::Cell)
    };
    let seed = ScenarioColumn::new("seed", Strategy::FromScratch);
    let until = Duration::from_millis(50);
    Scenario {
        rows,
        row_group_size: buffer,
        row_groups,
        submission_limit: capacity,
        models: [model(HELD), model(OPEN)].into(),
        columns: [seed, column("a_pressured", HELD), column("z_open", OPEN)].into(),
        holders: [Holder { model: HELD.to_string(), slots: 1, from: Duration::ZERO, until }].into(),
        ..Scenario::default()
    }
}

pub(super) fn cases() -> [Case; 6] {
    let near = Target::NearBound { within_ppm: 10_000 };
    let lone = |name, advisory, yields, targets: &[Target], what| {
        let scenario = Scenario { advisory, yields, ..scenario(32, 64, 1, 1) };
        let case = Case::new("request-pressure", name, "One provider is held by somebody else for 50 ms", scenario);
        Case { targets: targets.into(), is_quick: true, ..case.about(HELD).showing(what) }
    };
    let combined = |name, on: bool| {
        let adaptive = Some(AdaptiveRowGroups::default());
        let scenario = Scenario { advisory: on, yields: on, adaptive, ..scenario(512, 1, 8, 4) };
        let title = "The same, with many small row groups";
        let case = Case::new("adaptive-request-pressure", name, title, scenario).about(HELD);
        let targets = [Target::NoSlowerThan { case: "adaptive-request-pressure/control" }, near];
        Case { targets: targets.into_iter().filter(|_| on).collect(), is_quick: true, ..case }
    };
    let faster = Target::FasterThan { case: "request-pressure/control" };
    [
        lone("control", false, false, &[], "The only worker slot is kept by a task that waits for the held provider."),
        lone("advisory", true, false, &[faster, near], "Tasks that would only wait are passed over: nothing is lost."),
        lone(
            "yield",
            false,
            true,
            &[faster],
            "Two workers per call that the held provider bears may wait without the slot. The third keeps it, so that only \
             two calls of the open provider get by: yielding is no substitute for the advisory.",
        ),
        lone("both", true, true, &[faster, near], "As with the advisory alone: it leaves nothing to gain by yielding."),
        combined("control", false),
        combined("combined", true),
    ]
}
