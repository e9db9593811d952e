//! Suites: fixed sets of runs whose figures are kept, so that a change that costs something is seen.
//!
//! | suite | its question |
//! | --- | --- |
//! | [`idle`] | is capacity ever idle without need? |
//! | [`control`] | how well does a limit find what its provider bears? |

pub mod control;
pub mod idle;
