//! The pressure cases: another client holds the slots of one provider for some time, and a second provider is
//! free.
//!
//! ```text
//! seed --+--> a_pressured   calls `held`, whose only slot is held from outside for the first 50 ms
//!        '--> z_open        calls `open`
//! ```
//!
//! Calls take 1 ms, and each provider serves one at a time. The task resource of each model is as large as
//! the number of workers. Workers that only wait for `held` can therefore occupy every worker slot that could
//! be used to call `open`.
//!
//! With one worker slot, 32 rows and both columns:
//!
//! | case | wall time | the worker slot |
//! | --- | --- | --- |
//! | control | 50 + 64 ms | waits with `a_pressured` until `held` is free, then runs all calls in turn |
//! | advisory | 50 + 32 ms | runs `z_open` for 32 ms without waiting. `held` is free 18 ms later |
//! | yield | 50 + 62 ms | is released by two workers, which lets two `z_open` run. The third keeps it |
//! | both | 50 + 32 ms | is used as with the advisory alone. Yielding gains nothing more here |
//!
//! Yielding alone gains so little because the number of yielded workers is limited to
//! [`YIELD_FACTOR`](crate::yielding::YIELD_FACTOR) for each call that `held` can serve, which is two in
//! total. The limit exists because a started worker keeps the data of its task in memory: tasks should wait
//! in the queue of the scheduler instead. The advisory decides which tasks are started in the first place.

use alloc::string::ToString;

use super::{IdleCase, Target};
use crate::limit::LimitChoice;
use crate::pipeline::{AdaptiveRowGroups, Strategy};
use crate::request::LimitConfig;
use crate::sim::latency::Latency;
use crate::sim::provider::{Capacity, ProviderSpec};
use crate::sim::scenario::{Holder, Model, Scenario, ScenarioColumn};
use crate::time::Duration;

const HELD: &str = "held";
const OPEN: &str = "open";

/// Creates a model that serves `slots` calls at once, each of which takes `latency`.
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
        request: LimitConfig::default(),
        task_limit: None,
    }
}

/// Creates the scenario above with row groups of `buffer` rows and `capacity` worker slots.
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

pub(super) fn cases() -> [IdleCase; 6] {
    let near = Target::NearBound { within_ppm: 10_000 };
    let lone = |name, advisory, yields, targets: &[Target], description| {
        let scenario = Scenario { advisory, yields, ..scenario(32, 64, 1, 1) };
        let case = IdleCase::new("request-pressure", name, "Another client holds one provider for 50 ms", scenario);
        IdleCase { targets: targets.into(), is_quick: true, ..case.about(HELD).described(description) }
    };
    let combined = |name, on: bool| {
        let adaptive = Some(AdaptiveRowGroups::default());
        let scenario = Scenario { advisory: on, yields: on, adaptive, ..scenario(512, 1, 8, 4) };
        let title = "Another client holds one provider for 50 ms, with many small row groups";
        let case = IdleCase::new("adaptive-request-pressure", name, title, scenario).about(HELD);
        let targets = [Target::NoSlowerThan { case: "adaptive-request-pressure/control" }, near];
        IdleCase { targets: targets.into_iter().filter(|_| on).collect(), is_quick: true, ..case }
    };
    let faster = Target::FasterThan { case: "request-pressure/control" };
    [
        lone("control", false, false, &[], "The only worker slot is kept by a task that waits for the held provider."),
        lone("advisory", true, false, &[faster, near], "Tasks that would only wait are skipped: no time is lost."),
        lone(
            "yield",
            false,
            true,
            &[faster],
            "Two workers per call that the held provider can serve may wait without the slot. The third keeps it, so only \
             two calls of the open provider get through: yielding is no substitute for the advisory.",
        ),
        lone("both", true, true, &[faster, near], "The same as with the advisory alone: yielding gains nothing more."),
        combined("control", false),
        combined("combined", true),
    ]
}
