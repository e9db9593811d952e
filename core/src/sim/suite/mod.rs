//! Suites: fixed sets of runs whose figures are kept, so that a change that costs something is seen.

pub mod control;
