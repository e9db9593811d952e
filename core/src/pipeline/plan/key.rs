//! The encoding of a task's id as one 64-bit number.
//!
//! ```text
//! 63            36 35       24 23            0
//! +---------------+-----------+---------------+
//! | row group: 28 | column 12 | row in group  |   all ones in the last field: the whole row group
//! +---------------+-----------+---------------+
//! ```

use crate::pipeline::plan::ColumnId;

const COLUMN_BITS: u32 = 12;
const ROW_BITS: u32 = 24;
const WHOLE_GROUP: u64 = (1 << ROW_BITS) - 1;

/// The key of a task: a column for one row of a row group, or for the whole group if `row` is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskKey {
    pub(crate) row_group: u32,
    pub(crate) column: ColumnId,
    pub(crate) row: Option<u32>,
}

/// The key of a task within its row group: the column, and the row of a cell.
pub(crate) type LocalKey = (ColumnId, Option<u32>);

impl TaskKey {
    /// Returns the key without the row group.
    pub(crate) fn local(self) -> LocalKey {
        (self.column, self.row)
    }

    /// Encodes the key as an item id of the queue. The ids are distinct for all keys within the limits that
    /// [`PlanBuilder`](super::PlanBuilder) and [`PipelineConfig`](crate::pipeline::PipelineConfig) enforce.
    pub(crate) fn to_bits(self) -> u64 {
        let row = self.row.map_or(WHOLE_GROUP, u64::from);
        u64::from(self.row_group) << (COLUMN_BITS + ROW_BITS) | u64::from(self.column.0) << ROW_BITS | row
    }

    /// Decodes a key that [`TaskKey::to_bits`] encoded.
    pub(crate) fn from_bits(bits: u64) -> Self {
        let row = bits & WHOLE_GROUP;
        Self {
            row_group: (bits >> (COLUMN_BITS + ROW_BITS)) as u32,
            column: ColumnId((bits >> ROW_BITS) as u32 & ((1 << COLUMN_BITS) - 1)),
            row: (row != WHOLE_GROUP).then_some(row as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{MAX_COLUMNS, MAX_ROW_GROUP_SIZE, MAX_ROW_GROUPS};

    #[test]
    fn every_key_within_the_limits_is_decoded_from_its_bits() {
        for row_group in [0, 1, MAX_ROW_GROUPS - 1] {
            for column in [0, 1, MAX_COLUMNS as u32 - 1] {
                for row in [None, Some(0), Some(7), Some(MAX_ROW_GROUP_SIZE - 1)] {
                    let key = TaskKey { row_group, column: ColumnId(column), row };
                    assert_eq!(TaskKey::from_bits(key.to_bits()), key);
                }
            }
        }
    }
}
