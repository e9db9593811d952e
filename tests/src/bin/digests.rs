//! Prints the decision digest of every scenario of every suite, run to its end: `NAME SEED DIGEST`. Those of the playground
//! with seeds 1 to 3, the others with seed 1.
//!
//! With `changed` it prints runs in whose midst somebody changes things, and what: `NAME SEED DIGEST CHANGES`, the changes as
//! JSON. With `scenarios` it prints the scenarios themselves, as JSON. The tests of the wasm modules compare these lines, made
//! natively, with their own.

use anyhow::{Result, bail};
use tidegate_core::limit::LimitChoice;
use tidegate_core::pipeline::PolicyChoice;
use tidegate_core::request::LimitConfig;
use tidegate_core::sim::scenario::{Change, Intervention, Scenario, builtin};
use tidegate_core::sim::suite::{self, Suite, SuiteScenario};
use tidegate_core::sim::world::World;
use tidegate_core::time::{Duration, Instant};

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        None => as_they_are(),
        Some("changed") => changed(),
        Some("scenarios") => scenarios(),
        Some(other) => bail!("`{other}` is unknown: nothing, `changed` or `scenarios`"),
    }
}

fn as_they_are() -> Result<()> {
    for SuiteScenario { suite, scenario } in suite::scenarios() {
        for seed in 1..=if suite == Suite::Playground { 3 } else { 1 } {
            let digest = digest(&scenario, seed, &[])?;
            println!("{} {seed} {digest:016x}", scenario.name);
        }
    }
    Ok(())
}

fn changed() -> Result<()> {
    for scenario in builtin().into_iter().filter(|scenario| scenario.changes.is_empty()) {
        let changes = changes_of(&scenario);
        let digest = digest(&scenario, 1, &changes)?;
        println!("{} 1 {digest:016x} {}", scenario.name, serde_json::to_string(&changes)?);
    }
    Ok(())
}

fn scenarios() -> Result<()> {
    for SuiteScenario { scenario, .. } in suite::scenarios() {
        println!("{}", serde_json::to_string(&scenario)?);
    }
    Ok(())
}

/// Runs to the end, changing things as a person would: while it goes on.
fn digest(scenario: &Scenario, seed: u64, changes: &[Change]) -> Result<u64> {
    let mut world = World::watched(scenario, seed)?;
    for change in changes {
        world.advance_to(Instant::ZERO + change.at);
        world.change(change.what.clone())?;
    }
    while world.step() {}
    match world.violation() {
        Some(violation) => bail!("{} with seed {seed}: {violation}", scenario.name),
        None => Ok(world.digest()),
    }
}

/// One change of each kind, half a second apart.
fn changes_of(scenario: &Scenario) -> Vec<Change> {
    let Some(model) = scenario.models.first().map(|model| &model.name) else { return Vec::new() };
    let column = scenario.columns.last().map(|column| column.name.clone()).unwrap_or_default();
    let model = || model.clone();
    let request =
        LimitConfig { successes_until_increase: 5, ramp: Duration::from_millis(700), ..LimitConfig::default() };
    let all = [
        Intervention::Capacity { model: model(), slots: Some(3) },
        Intervention::Refuse { model: model(), span: Duration::from_millis(120) },
        Intervention::Slow { model: model(), factor: 2.5, span: Duration::from_millis(300) },
        Intervention::Request { model: model(), request },
        Intervention::Policy { policy: PolicyChoice::StrictFair },
        Intervention::Weight { column, weight: 3.0 },
        Intervention::MaxParallel { model: model(), calls: 9 },
        Intervention::Algorithm { model: model(), algorithm: LimitChoice::Fixed { limit: 4 } },
        Intervention::Capacity { model: model(), slots: None },
    ];
    let at = |nth: u64| Duration::from_millis(500 * nth);
    (1..).zip(all).map(|(nth, what)| Change { at: at(nth), what }).collect()
}
