//! Simulation: seeded randomness, mock providers, scenarios, a world that runs the machines in virtual time, and checkers
//! that watch it.
//!
//! ```
//! use tidegate_core::sim::{scenario, world::World};
//!
//! let calm = scenario::builtin().into_iter().next().expect("there are built-in scenarios");
//! let mut world = World::watched(&calm, 7)?;
//! while world.step() {}
//! assert_eq!(world.violation(), None);
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
pub mod suite;
pub mod world;
