//! Recorded runs of limit algorithms of other crates (the peers) on the examples of the control suite.
//!
//! The program does not depend on those crates. The test `tests/tests/integration/control` does: it runs
//! their algorithms, compares the results with the file `peers.jsonl`, and can write the file again.

use serde::{Deserialize, Serialize};
use tidegate_core::sim::suite::control::{ControlCase, ControlTrace, Oracle};

use crate::app::error::Error;

/// A JSON line for each example and algorithm.
const PEER_RECORDS: &str = include_str!("peers.jsonl");

/// A recorded run of a peer on an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerRecord {
    /// The name of the case.
    pub case: String,
    /// The calls that the oracle had answered when the run was recorded. A case whose oracle now answers
    /// another number has changed since, and its record is left out.
    pub oracle_answered: u64,
    /// The run over time, with its score.
    pub trace: ControlTrace,
}

impl PeerRecord {
    /// Parses all records of the embedded file.
    pub fn load_all() -> Result<Vec<Self>, Error> {
        let wrong = |(nth, error): (usize, serde_json::Error)| {
            Error::Internal(format!("line {} of the recorded peers: {error}", nth + 1))
        };
        let lines = PEER_RECORDS.lines().enumerate();
        lines.map(|(nth, line)| serde_json::from_str(line).map_err(|error| wrong((nth, error)))).collect()
    }

    /// Returns whether this is a record of the current version of the case.
    #[must_use]
    pub fn matches_case(&self, case: &ControlCase, oracle: &Oracle) -> bool {
        self.case == case.name && self.oracle_answered == oracle.answered()
    }
}
