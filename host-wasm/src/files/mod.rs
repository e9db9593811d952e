//! What a page takes along and away: scenario files, traces and decision logs. A module of its own, which a page loads
//! when somebody asks for one of these.

mod exports;
mod scenarios;

pub use self::exports::Exporter;
pub use self::scenarios::{read_scenario, write_scenario};
