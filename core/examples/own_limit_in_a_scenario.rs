//! A custom limit algorithm, tested in a scenario before it is used with a real provider. The run uses
//! virtual time, is checked against every law of a run, and is compared with the scenario's own algorithm.

use tidegate_core::limit::{CallReport, LimitAlgorithm};
use tidegate_core::request::Outcome;
use tidegate_core::sim::scenario::{Scenario, builtin};
use tidegate_core::sim::world::World;
use tidegate_core::time::Instant;

/// Halves the limit on every rate limit, and adds one for each success.
struct Halving {
    limit: u32,
    max: u32,
}

impl LimitAlgorithm for Halving {
    fn limit(&self, _now: Instant) -> u32 {
        self.limit
    }

    fn on_outcome(&mut self, _now: Instant, call: &CallReport) {
        match call.outcome {
            Outcome::RateLimited => self.limit = (self.limit / 2).max(1),
            Outcome::Success => self.limit = (self.limit + 1).min(self.max),
            _ => {}
        }
    }

    fn set_max(&mut self, _now: Instant, max: u32, _lifts: bool) {
        self.max = max;
        self.limit = self.limit.min(max);
    }
}

/// Runs to the end. Returns the number of calls that the provider refused with 429.
fn run(mut world: World) -> Result<u64, Box<dyn std::error::Error>> {
    while world.step() {}
    if let Some(violation) = world.violation() {
        return Err(violation.clone().into());
    }
    let report = world.finished().ok_or("the run stalled before its end")?;
    let provider = world.sample().providers.remove(0);
    println!("  {}: {} in {}, {} calls refused", provider.algorithm, report.stop, report.elapsed(), provider.refused);
    Ok(provider.refused)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The capacity of the provider drops from 24 to 6 calls, and recovers.
    let is_falling = |scenario: &Scenario| scenario.name == "falling-capacity";
    let scenario = builtin().into_iter().find(is_falling).ok_or("there is no such scenario")?;
    let few = run(World::accounted(&scenario, 1)?)?;
    let own = World::with_limit(&scenario, 1, |model| Some(Box::new(Halving { limit: 1, max: model.cap() })))?;
    let many = run(own)?;
    assert!(few < many, "a limit that grows with every success is rate-limited more often");
    Ok(())
}

#[test]
fn the_example_runs() {
    main().expect("the limit keeps the laws");
}
