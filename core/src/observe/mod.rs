//! Observability: why is capacity idle?
//!
//! [`IdleAccount`] integrates what a resource was doing over time, exactly, in constant memory.

mod idle;

pub use idle::{IdleAccount, IdleFigures};
