//! Simulation: seeded randomness, mock providers, scenarios, and a world that runs the machines in virtual time.
//!
//! ```
//! use tidegate_core::sim::{scenario, world::World};
//!
//! let calm = scenario::builtin().into_iter().next().expect("there are built-in scenarios");
//! let mut world = World::new(&calm, 7)?;
//! while world.step() {}
//! let report = world.finished().expect("a world that stands still has finished");
//! assert_eq!(report.rows_in, calm.rows);
//! # Ok::<(), tidegate_core::sim::scenario::ScenarioError>(())
//! ```

pub mod check;
pub mod executor;
pub mod latency;
pub mod provider;
pub mod rng;
pub mod scenario;
pub mod world;
