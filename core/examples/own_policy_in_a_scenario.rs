//! A custom task policy, tested in a scenario before it is used with real providers. The run is checked
//! against every law of a run, its idle time is compared with that of the scenario's own policy, and a report
//! shows the effect on the groups.

use tidegate_core::pipeline::Strategy;
use tidegate_core::sim::policy::{Criterion, PolicyReport, two_groups};
use tidegate_core::sim::scenario::{Scenario, ScenarioColumn};
use tidegate_core::sim::suite::idle::LowerBound;
use tidegate_core::sim::world::World;
use tidegate_core::task::{PolicyDenial, PolicyGrant, PolicyView, TaskDenialReason, TaskPolicy};
use tidegate_core::time::Duration;

/// A group may hold at most half of any resource, even if no other group needs the rest.
#[derive(Debug)]
struct HalfAtMost;

impl TaskPolicy for HalfAtMost {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
        let fits = view.demands().all(|(resource, amount)| {
            let half = (view.limit(resource) / 2).max(1);
            view.held(resource) + amount <= half
        });
        if fits { Ok(PolicyGrant::unlimited()) } else { Err(TaskDenialReason::Policy.into()) }
    }
}

/// Two columns that share one resource: one of long tasks and one of short tasks.
fn scenario() -> Scenario {
    let column = |name: &str, ms| ScenarioColumn {
        holds: [("gpu".to_owned(), 1)].into(),
        local: Duration::from_millis(ms),
        ..ScenarioColumn::new(name, Strategy::Cell)
    };
    Scenario {
        rows: 64,
        resources: [("gpu".to_owned(), 8)].into(),
        columns: [column("long", 90), column("short", 10)].into(),
        ..Scenario::default()
    }
}

/// Runs to the end. Returns the wall time and the utilisation of the resource.
fn run(mut world: World) -> Result<(Duration, f64), Box<dyn std::error::Error>> {
    while world.step() {}
    if let Some(violation) = world.violation() {
        return Err(violation.clone().into());
    }
    let report = world.finished().ok_or("the run stalled before its end")?;
    let figures = world.figures().ok_or("the world has no account")?;
    let gpu = figures.tasks.iter().find(|resource| resource.name == "gpu").ok_or("there is no such resource")?;
    println!("  {} in {}; {gpu}", report.stop, report.elapsed());
    Ok((report.elapsed(), gpu.utilisation()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scenario = scenario();
    let bound = LowerBound::of(&scenario)?;
    println!("no scheduler needs less than {} ({})", bound.at_least, bound.set_by);
    let (default_time, default_use) = run(World::accounted(&scenario, 1)?)?;
    let (own_time, own_use) = run(World::with_policy(&scenario, 1, Box::new(HalfAtMost))?)?;
    assert!(bound.at_least <= default_time && default_time < own_time, "a policy that leaves slots idle costs time");
    assert!(default_use > own_use);

    let report = PolicyReport::run(&two_groups(), 1, Box::new(HalfAtMost))?;
    println!("{report}");
    assert!(report.judgement(Criterion::Borrowing).is_bad(), "free slots are never lent");
    Ok(())
}

#[test]
fn the_example_runs() {
    main().expect("the policy keeps the laws");
}
