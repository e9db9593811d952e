//! A task policy of one's own, tried in a scenario before it is trusted with money: it is judged by every law
//! of a run, its idle time is laid beside that of the policy the scenario names, and a report says what it
//! does to the groups.

use tidegate_core::pipeline::Strategy;
use tidegate_core::sim::policy::{Criterion, PolicyReport, two_groups};
use tidegate_core::sim::scenario::{Scenario, ScenarioColumn};
use tidegate_core::sim::suite::idle::LowerBound;
use tidegate_core::sim::world::World;
use tidegate_core::task::{Allowed, DenialReason, PolicyView, Refusal, TaskPolicy};
use tidegate_core::time::Duration;

/// A group may have at most half of anything, whether or not somebody else wants the rest.
#[derive(Debug)]
struct HalfAtMost;

impl TaskPolicy for HalfAtMost {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<Allowed, Refusal> {
        let fits = view.demands().all(|(resource, amount)| {
            let half = (view.limit(resource) / 2).max(1);
            view.held(resource) + amount <= half
        });
        if fits { Ok(Allowed::unlimited()) } else { Err(DenialReason::Policy.into()) }
    }
}

/// A wide column of long tasks, and a narrow one of short tasks.
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

/// Runs to the end, and answers the wall time and how much of the resource was used.
fn outcome(mut world: World) -> Result<(Duration, f64), Box<dyn std::error::Error>> {
    while world.step() {}
    if let Some(violation) = world.violation() {
        return Err(violation.clone().into());
    }
    let report = world.finished().ok_or("it stands still and has not ended")?;
    let figures = world.figures().ok_or("it was not accounted for")?;
    let gpu = figures.tasks.iter().find(|resource| resource.name == "gpu").ok_or("there is no such resource")?;
    println!("  {} in {}; {gpu}", report.stop, report.elapsed());
    Ok((report.elapsed(), gpu.utilisation()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scenario = scenario();
    let bound = LowerBound::of(&scenario)?;
    println!("no scheduler needs less than {} ({})", bound.at_least, bound.set_by);
    let (theirs, busy) = outcome(World::accounted(&scenario, 1)?)?;
    let (own, idle) = outcome(World::with_policy(&scenario, 1, Box::new(HalfAtMost))?)?;
    assert!(bound.at_least <= theirs && theirs < own, "a policy that leaves slots idle costs time");
    assert!(busy > idle);

    let report = PolicyReport::run(&two_groups(), 1, Box::new(HalfAtMost))?;
    println!("{report}");
    assert!(report.judgement(Criterion::Borrowing).is_bad(), "free slots are never lent");
    Ok(())
}

#[test]
fn it_runs() {
    main().expect("the policy keeps the laws");
}
