//! Files that a page imports and exports: scenario files, traces and decision logs. A module of its own,
//! which a page loads on the first use.

mod exports;
mod scenarios;

pub use self::exports::Exporter;
pub use self::scenarios::{read_scenario, write_scenario};
