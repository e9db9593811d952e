//! Prints the decision digest of every built-in scenario, run to its end with seeds 1 to 3: `NAME SEED DIGEST`.
//!
//! The browser tests compare these lines, made natively, with those of the wasm module.

use tidegate_core::sim::scenario::{ScenarioError, builtin};
use tidegate_core::sim::world::World;

fn main() -> Result<(), ScenarioError> {
    for scenario in builtin() {
        for seed in 1..=3 {
            let mut world = World::new(&scenario, seed)?;
            while world.step() {}
            println!("{} {seed} {:016x}", scenario.name, world.digest());
        }
    }
    Ok(())
}
