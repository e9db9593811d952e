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

/// What a scenario is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Suite {
    /// It shows one behaviour: the built-in scenarios.
    Playground,
    /// It is a case of the [`idle`] suite.
    Idle,
}

impl Suite {
    /// Returns the name that programs show: `playground` or `idle`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Playground => "playground",
            Self::Idle => "idle",
        }
    }
}

/// A scenario, and the suite that lists it.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteScenario {
    /// The suite.
    pub suite: Suite,
    /// The scenario.
    pub scenario: Scenario,
}

/// Returns every scenario that comes with the crate, in display order.
///
/// The cases of the [`control`] suite are not included, because they have no rows: a client sends calls to a
/// provider as fast as the limit allows.
#[must_use]
pub fn scenarios() -> Vec<SuiteScenario> {
    let playground = builtin().into_iter().map(|scenario| SuiteScenario { suite: Suite::Playground, scenario });
    let idle = idle::cases().into_iter().map(|case| SuiteScenario { suite: Suite::Idle, scenario: case.scenario });
    playground.chain(idle).collect()
}
