//! Suites: fixed sets of simulated runs whose figures are recorded, so that a regression is visible.
//!
//! | suite | question |
//! | --- | --- |
//! | [`idle`] | Is capacity ever idle although it could be used? |
//! | [`control`] | How well does a limit algorithm find the capacity of its provider? |

pub mod control;
pub mod idle;

use alloc::vec::Vec;

use super::scenario::{Scenario, builtin};

/// A scenario, and the suite that lists it.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// `playground` for the built-in scenarios, `idle` for the cases of the idle suite.
    pub suite: &'static str,
    /// The scenario.
    pub scenario: Scenario,
}

/// Returns every scenario that comes with the crate, in display order.
///
/// The cases of the [`control`] suite are not included, because they have no rows: a client sends calls to a
/// provider as fast as the limit allows.
#[must_use]
pub fn scenarios() -> Vec<Listed> {
    let playground = builtin().into_iter().map(|scenario| Listed { suite: "playground", scenario });
    let idle = idle::cases().into_iter().map(|case| Listed { suite: "idle", scenario: case.scenario });
    playground.chain(idle).collect()
}
