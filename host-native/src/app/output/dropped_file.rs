//! `NNNNNN.dropped.jsonl`: the rows that are missing from the rows file of a row group, with the reasons.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The reason of a row that was not generated because the run stopped first. A resumed run generates it.
pub const UNMADE: &str = "unmade";

/// The reason of a row that a column has rejected.
pub const REJECTED: &str = "rejected";

/// The reason of an accepted row after the number of rows to accept was reached.
pub const SURPLUS: &str = "surplus";

/// A line of the file: one row that is missing from the rows file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedLine {
    /// The row number in the dataset.
    pub row: u64,
    /// The column that failed. `None` for an unmade row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// [`UNMADE`], [`REJECTED`], [`SURPLUS`], or the [name](tidegate_core::pipeline::DropReason::name) of a
    /// drop reason.
    pub reason: String,
    /// The error message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl DroppedLine {
    /// Creates the line of an unmade row.
    #[must_use]
    pub fn unmade(row: u64) -> Self {
        Self { row, column: None, reason: UNMADE.to_string(), detail: None }
    }

    /// Creates the line of a row that `column` has rejected.
    #[must_use]
    pub fn rejected(row: u64, column: &str) -> Self {
        Self { row, column: Some(column.to_string()), reason: REJECTED.to_string(), detail: None }
    }

    /// Creates the line of a row that is one too many.
    #[must_use]
    pub fn surplus(row: u64) -> Self {
        Self { row, column: None, reason: SURPLUS.to_string(), detail: None }
    }

    /// Returns whether the row is left out because it was rejected, or is one too many. It is never retried.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        self.reason == REJECTED || self.reason == SURPLUS
    }

    /// Returns whether the row is unmade: every resumed run generates it, also without `--retry-dropped`.
    #[must_use]
    pub fn is_unmade(&self) -> bool {
        self.reason == UNMADE
    }

    /// Returns the column, which is empty for an unmade row, and the reason.
    #[must_use]
    pub fn key(&self) -> (String, String) {
        (self.column.clone().unwrap_or_default(), self.reason.clone())
    }
}

/// The number of dropped rows by column and reason.
pub type DroppedCounts = BTreeMap<(String, String), u64>;
