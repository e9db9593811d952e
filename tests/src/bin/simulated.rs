//! Runs scenarios to their end and prints how fast: `NAME EVENTS TASKS SECONDS`, the best of three. Arguments: names.
//!
//! `host-wasm/npm/bench/simulated.mjs` prints the same of the wasm module beside it.

use std::time::Instant;

use anyhow::{Context, Result};
use tidegate_core::sim::suite;
use tidegate_core::sim::world::World;

fn main() -> Result<()> {
    let all = suite::scenarios();
    for name in std::env::args().skip(1) {
        let listed = all.iter().find(|listed| listed.scenario.name == name);
        let scenario = &listed.with_context(|| format!("no scenario is called `{name}`"))?.scenario;
        let mut best = f64::INFINITY;
        let (mut events, mut tasks) = (0, 0);
        for _ in 0..3 {
            let begun = Instant::now();
            let mut world = World::accounted(scenario, 1)?;
            while world.step() {}
            best = best.min(begun.elapsed().as_secs_f64());
            let columns = world.finished().map(|report| &*report.columns).unwrap_or_default();
            (events, tasks) = (world.steps(), columns.iter().map(|column| column.tasks.spawned).sum::<u64>());
        }
        println!("{name} {events} {tasks} {best}");
    }
    Ok(())
}
