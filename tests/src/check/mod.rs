//! Checkers that watch a run from outside and keep books of their own. They share no code with what they check.

pub mod fairness;
pub mod informed;
pub mod ledger;
pub mod storm;
