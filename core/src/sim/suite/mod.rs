//! Suites: fixed sets of runs whose figures are kept, so that a change that costs something is seen.
//!
//! | suite | its question |
//! | --- | --- |
//! | [`idle`] | is capacity ever idle without need? |
//! | [`control`] | how well does a limit find what its provider bears? |

pub mod control;
pub mod idle;

use alloc::vec::Vec;

use super::scenario::{Scenario, builtin};

/// A scenario, and where it belongs.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// `playground` for those to begin with; `idle`.
    pub suite: &'static str,
    /// The scenario.
    pub scenario: Scenario,
}

/// Every scenario that comes with the crate, in the order in which to show them. The cases of the [`control`]
/// suite are none: they are providers under a closed loop, without rows.
#[must_use]
pub fn scenarios() -> Vec<Listed> {
    let playground = builtin().into_iter().map(|scenario| Listed { suite: "playground", scenario });
    let idle = idle::cases().into_iter().map(|case| Listed { suite: "idle", scenario: case.scenario });
    playground.chain(idle).collect()
}
