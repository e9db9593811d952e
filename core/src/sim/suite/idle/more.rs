//! Further cases: pipelines of other shapes than in the sweeps.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::pressure::model;
use super::sweeps::MODEL;
use super::{IdleCase, Target};
use crate::pipeline::{MAX_COLUMNS, PolicyChoice, Strategy};
use crate::sim::provider::{Capacity, Overload, ProviderSpec, Step};
use crate::sim::scenario::{Model, Scenario, ScenarioColumn};
use crate::task::GroupKind;
use crate::time::Duration;

pub(super) fn cases() -> Vec<IdleCase> {
    let mut cases = Vec::new();
    cases.extend(late_peer());
    cases.extend(cooldown());
    cases.push(dynamic_calls());
    cases.extend(fans());
    cases.push(bottleneck());
    cases.push(generate_then_judge());
    cases.extend(very_many());
    cases
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// Creates a cell column of local work that holds one unit of the task resource `model`.
fn local_column(name: &str, after: &[&str], local: Duration) -> ScenarioColumn {
    ScenarioColumn {
        after: names(after),
        holds: BTreeMap::from([(MODEL.to_string(), 1)]),
        kind: Some(GroupKind::CustomModel),
        local,
        ..ScenarioColumn::new(name, Strategy::Cell)
    }
}

/// Creates a cell column that makes one call for each task.
fn calling_column(name: &str, after: &[&str], model: &str) -> ScenarioColumn {
    ScenarioColumn { after: names(after), model: Some(model.to_string()), ..ScenarioColumn::new(name, Strategy::Cell) }
}

fn seed() -> ScenarioColumn {
    ScenarioColumn::new("seed", Strategy::FromScratch)
}

/// Creates a scenario of 256 rows in four row groups, with a task resource `model` of this limit and twice as
/// many workers.
fn sized(columns: Vec<ScenarioColumn>, model_limit: u32) -> Scenario {
    Scenario {
        rows: 256,
        row_group_size: 64,
        row_groups: 4,
        submission_limit: 2 * model_limit,
        resources: BTreeMap::from([(MODEL.to_string(), model_limit)]),
        columns,
        ..Scenario::default()
    }
}

/// Returns cases in which 512 hot tasks of 0.5 s fill the model at once, and 256 peer tasks of 50 ms are
/// ready 50 ms later.
///
/// Each peer task needs the single task of `late`, which holds no slot of the model. The 512 hot tasks are
/// two columns of 256 rows in one fairness group.
fn late_peer() -> [IdleCase; 2] {
    let hot = |name: &str| ScenarioColumn {
        group: Some("hot".to_string()),
        weight: 4.0,
        admitted_limit: Some(8),
        ..local_column(name, &[], millis(500))
    };
    let late = ScenarioColumn { local: millis(50), ..ScenarioColumn::new("late", Strategy::FullColumn) };
    let peer = ScenarioColumn { admitted_limit: Some(8), ..local_column("peer", &["late"], millis(50)) };
    let base =
        Scenario { row_group_size: 256, row_groups: 1, ..sized([hot("hot_a"), hot("hot_b"), late, peer].into(), 8) };
    let case = |name: &str, policy, targets: &[Target]| {
        let scenario = Scenario { policy, ..base.clone() };
        let title = "Peers become ready while a heavy root column has all slots";
        IdleCase {
            targets: targets.into(),
            is_quick: true,
            ..IdleCase::new("late-peer", name, title, scenario).about(MODEL)
        }
    };
    let sooner = Target::ShorterGap { case: "late-peer/strict" };
    [
        case("strict", PolicyChoice::StrictFair, &[Target::Greedy]),
        case("bounded", PolicyChoice::default(), &[Target::Greedy, sooner]),
    ]
}

/// Returns cases in which provider `a` refuses all calls for two seconds, with a matching Retry-After.
/// Provider `b` serves all calls, and its calls take longer in total than those of `a` and the two seconds.
fn cooldown() -> [IdleCase; 2] {
    let blocked = ProviderSpec {
        capacity: Capacity::Steps { slots: 0, steps: [Step { at: millis(2_000), slots: 4 }].into() },
        overload: Overload::Refuse { retry_after: Some(millis(2_000)) },
        ..model("a", 4, millis(20)).provider
    };
    let models: Vec<Model> =
        [Model { provider: blocked, ..model("a", 4, millis(20)) }, model("b", 4, millis(80))].into();
    let columns = [seed(), calling_column("at_a", &["seed"], "a"), calling_column("at_b", &["seed"], "b")];
    let base = Scenario { resources: BTreeMap::new(), models, ..sized(columns.into(), 4) };
    let case = |name: &str, on: bool, targets: &[Target]| {
        let scenario = Scenario { advisory: on, yields: on, ..base.clone() };
        let title = "One provider cools down for 2 s, the other is free";
        IdleCase {
            targets: targets.into(),
            is_quick: true,
            ..IdleCase::new("cooldown", name, title, scenario).about("b")
        }
    };
    let targets = [Target::Utilisation { at_least_ppm: 980_000 }, Target::FasterThan { case: "cooldown/control" }];
    [case("control", false, &[]), case("both", true, &targets)]
}

/// Returns a case with columns whose tasks make no call, one call, and five calls.
fn dynamic_calls() -> IdleCase {
    let column = |name: &str, calls| ScenarioColumn { calls, ..calling_column(name, &["seed"], "api") };
    let columns = [seed(), column("none", 0), column("one", 1), column("five", 5)];
    let scenario = Scenario {
        resources: BTreeMap::new(),
        models: [model("api", 8, millis(10))].into(),
        ..sized(columns.into(), 8)
    };
    let targets = [Target::Greedy].into();
    IdleCase {
        targets,
        ..IdleCase::new("dynamic-calls", "none-one-five", "Tasks with no call, one, and five", scenario).about("api")
    }
}

/// Returns a case in which eight columns feed one, and a case in which one column feeds eight.
fn fans() -> [IdleCase; 2] {
    let many: Vec<String> = (0..8).map(|i| format!("wide_{i}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let fan_in = many.iter().map(|name| local_column(name, &["seed"], millis(3)));
    let fan_in = core::iter::once(seed()).chain(fan_in).chain([local_column("one", &many, millis(6))]);
    let fan_out = [seed(), local_column("one", &["seed"], millis(6))].into_iter();
    let fan_out = fan_out.chain(many.iter().map(|name| local_column(name, &["one"], millis(3))));
    let case = |name: &str, title: &str, columns: Vec<ScenarioColumn>| {
        let targets = [Target::Greedy].into();
        IdleCase { targets, ..IdleCase::new("fan", name, title, sized(columns, 8)).about(MODEL) }
    };
    [case("in", "Eight columns into one", fan_in.collect()), case("out", "One column into eight", fan_out.collect())]
}

/// Returns a case with a column whose tasks run one at a time, between two columns whose tasks run eight at a
/// time.
fn bottleneck() -> IdleCase {
    let neck = ScenarioColumn {
        holds: BTreeMap::from([("neck".to_string(), 1)]),
        ..local_column("neck", &["before"], millis(2))
    };
    let columns =
        [seed(), local_column("before", &["seed"], millis(8)), neck, local_column("after", &["neck"], millis(8))];
    let mut scenario = sized(columns.into(), 8);
    scenario.resources.insert("neck".to_string(), 1);
    let targets = [Target::Greedy].into();
    let title = "A column of one at a time between two wide ones";
    IdleCase { targets, ..IdleCase::new("bottleneck", "neck", title, scenario).about("neck") }
}

/// Returns a case in which a slow model writes and a fast one judges.
fn generate_then_judge() -> IdleCase {
    let columns = [seed(), calling_column("draft", &["seed"], "writer"), calling_column("score", &["draft"], "judge")];
    let models = [model("writer", 8, millis(40)), model("judge", 2, millis(8))];
    let scenario = Scenario { resources: BTreeMap::new(), models: models.into(), ..sized(columns.into(), 8) };
    let targets = [Target::Greedy].into();
    let title = "A slow model writes, a fast one judges";
    IdleCase { targets, ..IdleCase::new("generate-judge", "two-models", title, scenario).about("writer") }
}

/// Returns cases with a million row groups, and with the highest number of fairness groups in a pipeline,
/// which is one per column. The benches measure the queue and the dispatcher alone with 10^4 groups.
fn very_many() -> [IdleCase; 2] {
    let one = local_column("only", &[], millis(1));
    let row_groups = Scenario { rows: 1_000_000, row_group_size: 1, row_groups: 16, ..sized([one].into(), 8) };
    let columns = (0..MAX_COLUMNS)
        .map(|i| ScenarioColumn { weight: (1 + i % 7) as f64, ..local_column(&format!("c{i}"), &[], millis(1)) });
    let groups = Scenario { rows: 4, row_group_size: 4, ..sized(columns.collect(), 64) };
    let near = || [Target::NearBound { within_ppm: 1_000 }].into();
    let case = |name: &str, title: &str, scenario| IdleCase {
        targets: near(),
        ..IdleCase::new("very-many", name, title, scenario).about(MODEL)
    };
    [
        case("row-groups", "A million row groups of one row", row_groups)
            .described("A row group costs nothing before it is admitted: only those in progress use memory."),
        case("fairness-groups", "4096 fairness groups, as many as a pipeline may have", groups).described(
            "A column is in one fairness group, and a plan has at most 4096 columns. Their weights range from 1 to 7.",
        ),
    ]
}
