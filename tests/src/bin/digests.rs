//! Prints the decision digest of every built-in scenario, run to its end with seeds 1 to 3: `NAME SEED DIGEST`.
//!
//! The browser tests compare these lines, made natively, with those of the wasm module.

use anyhow::{Result, bail};
use tidegate_core::sim::scenario::builtin;
use tidegate_core::sim::world::World;

fn main() -> Result<()> {
    for scenario in builtin() {
        for seed in 1..=3 {
            let mut world = World::watched(&scenario, seed)?;
            while world.step() {}
            if let Some(violation) = world.violation() {
                bail!("{} with seed {seed}: {violation}", scenario.name);
            }
            println!("{} {seed} {:016x}", scenario.name, world.digest());
        }
    }
    Ok(())
}
