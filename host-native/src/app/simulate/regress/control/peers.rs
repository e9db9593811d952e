//! What the limit algorithms of other crates did on the examples, as a file of the repository.
//!
//! The program does not depend on those crates. A test that does runs their algorithms, compares them with the file, and writes it anew:
//! `tests/tests/integration/control`.

use serde::{Deserialize, Serialize};
use tidegate_core::sim::suite::control::{ControlCase, Oracle, Trace};

use crate::app::error::Error;

/// A line for each example and algorithm.
const RECORDED: &str = include_str!("peers.jsonl");

/// A run of a peer on an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// The name of the case.
    pub case: String,
    /// What the oracle had when it was recorded. A case of another figure is another case, and its record is not shown.
    pub oracle_answered: u64,
    /// The run.
    pub trace: Trace,
}

impl Recorded {
    /// The file's records.
    pub fn all() -> Result<Vec<Self>, Error> {
        let wrong = |(nth, error): (usize, serde_json::Error)| {
            Error::Internal(format!("the recorded peers, line {}: {error}", nth + 1))
        };
        let lines = RECORDED.lines().enumerate();
        lines.map(|(nth, line)| serde_json::from_str(line).map_err(|error| wrong((nth, error)))).collect()
    }

    /// Whether it is a record of this case as it is now.
    #[must_use]
    pub fn is_of(&self, case: &ControlCase, oracle: &Oracle) -> bool {
        self.case == case.name && self.oracle_answered == oracle.answered()
    }
}
