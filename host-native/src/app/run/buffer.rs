//! Buffers the values of row groups from their first task to their checkpoint. The core knows rows only by
//! index; their values are here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::app::data::Row;
use crate::app::output::CallLine;

/// The buffers of all row groups in progress.
#[derive(Debug)]
pub struct RowGroupBuffers {
    columns: usize,
    groups: Mutex<BTreeMap<u32, Arc<RwLock<RowGroupBuffer>>>>,
}

/// The values of one row group, and the errors of missing ones.
#[derive(Debug)]
pub struct RowGroupBuffer {
    rows: u32,
    /// The rows of the dataset; empty until they are read.
    seeds: Vec<Row>,
    /// The generated values, column by column.
    values: Vec<Option<Arc<Value>>>,
    /// The latest error by column, and by row unless it concerns all rows; removed when a retry succeeds.
    failures: BTreeMap<(usize, Option<u32>), String>,
    /// The skipped cells, by column, and by row unless all rows are skipped.
    skips: BTreeSet<(usize, Option<u32>)>,
    /// The rejected rows, each with the column that rejected it.
    rejected: BTreeMap<u32, usize>,
    /// The calls by column, and by row unless they are for all rows, if the job keeps them.
    calls: BTreeMap<(usize, Option<u32>), CallLine>,
}

impl RowGroupBuffer {
    /// Returns the seed values of row `row` of the group; empty until they are read.
    #[must_use]
    pub fn seeds(&self, row: u32) -> &[Value] {
        self.seeds.get(row as usize).map_or(&[], |row| row)
    }

    /// Returns the value of the generated column `column` in row `row` of the group.
    #[must_use]
    pub fn value(&self, column: usize, row: u32) -> Option<&Arc<Value>> {
        self.values.get(self.index(column, row)?)?.as_ref()
    }

    /// Returns the latest error of `column` that concerns row `row`.
    #[must_use]
    pub fn failure(&self, column: usize, row: u32) -> Option<&str> {
        let failure = self.failures.get(&(column, Some(row))).or_else(|| self.failures.get(&(column, None)));
        failure.map(String::as_str)
    }

    /// Returns whether the condition of `column` did not hold for row `row`.
    #[must_use]
    pub fn is_skipped(&self, column: usize, row: u32) -> bool {
        self.skips.contains(&(column, Some(row))) || self.skips.contains(&(column, None))
    }

    /// Returns the calls that are kept.
    pub fn calls(&self) -> impl Iterator<Item = &CallLine> {
        self.calls.values()
    }

    /// Returns the column that rejected row `row`, if one did.
    #[must_use]
    pub fn rejected_by(&self, row: u32) -> Option<usize> {
        self.rejected.get(&row).copied()
    }

    fn index(&self, column: usize, row: u32) -> Option<usize> {
        (row < self.rows).then(|| column * self.rows as usize + row as usize)
    }
}

impl RowGroupBuffers {
    /// Creates buffers for `columns` generated columns.
    #[must_use]
    pub fn new(columns: usize) -> Self {
        Self { columns, groups: Mutex::new(BTreeMap::new()) }
    }

    /// Creates the buffer of row group `group` with `rows` rows, unless it exists.
    pub fn open(&self, group: u32, rows: u32) {
        let buffer = || RowGroupBuffer {
            rows,
            seeds: Vec::new(),
            values: vec![None; self.columns * rows as usize],
            failures: BTreeMap::new(),
            skips: BTreeSet::new(),
            rejected: BTreeMap::new(),
            calls: BTreeMap::new(),
        };
        self.groups.lock().entry(group).or_insert_with(|| Arc::new(RwLock::new(buffer())));
    }

    /// Calls `read` with the buffer of row group `group`; returns `None` if there is none. Meanwhile this
    /// buffer is locked for writing. Other row groups are not.
    pub fn read<T>(&self, group: u32, read: impl FnOnce(&RowGroupBuffer) -> T) -> Option<T> {
        Some(read(&self.get(group)?.read()))
    }

    fn get(&self, group: u32) -> Option<Arc<RwLock<RowGroupBuffer>>> {
        self.groups.lock().get(&group).cloned()
    }

    /// Sets the seed values of row group `group`.
    pub fn set_seeds(&self, group: u32, rows: Vec<Row>) {
        if let Some(buffer) = self.get(group) {
            buffer.write().seeds = rows;
        }
    }

    /// Sets the value of `column`, in row `row` or in all rows of the group, and clears its error.
    pub fn set_value(&self, group: u32, column: usize, row: Option<u32>, filled: &Arc<Value>) {
        let Some(buffer) = self.get(group) else { return };
        let mut buffer = buffer.write();
        for row in row.map_or(0..buffer.rows, |row| row..row + 1) {
            let index = buffer.index(column, row);
            if let Some(value) = index.and_then(|index| buffer.values.get_mut(index)) {
                *value = Some(Arc::clone(filled));
            }
        }
        buffer.failures.remove(&(column, row));
    }

    /// Marks `column` as skipped, in row `row` or in all rows of the group.
    pub fn mark_skipped(&self, group: u32, column: usize, row: Option<u32>) {
        if let Some(buffer) = self.get(group) {
            buffer.write().skips.insert((column, row));
        }
    }

    /// Keeps the calls for `column`, in row `row` or in all rows of the group, beside those of earlier
    /// attempts.
    pub fn add_calls(&self, group: u32, column: usize, row: Option<u32>, calls: CallLine) {
        if let Some(buffer) = self.get(group) {
            buffer.write().calls.entry((column, row)).or_default().add(calls);
        }
    }

    /// Marks row `row` as rejected by `column`, unless a column before it has rejected it.
    pub fn reject(&self, group: u32, column: usize, row: u32) {
        if let Some(buffer) = self.get(group) {
            let mut buffer = buffer.write();
            let first = buffer.rejected.entry(row).or_insert(column);
            *first = column.min(*first);
        }
    }

    /// Returns whether row `row` of the group, or all its rows, are rejected.
    pub fn is_rejected(&self, group: u32, row: Option<u32>) -> bool {
        let is_rejected = |buffer: &RowGroupBuffer| match row {
            Some(row) => buffer.rejected.contains_key(&row),
            None => buffer.rejected.len() == buffer.rows as usize,
        };
        self.read(group, is_rejected).unwrap_or(false)
    }

    /// Sets the error of `column`, in row `row` or in all rows of the group.
    pub fn set_failure(&self, group: u32, column: usize, row: Option<u32>, why: String) {
        if let Some(buffer) = self.get(group) {
            buffer.write().failures.insert((column, row), why);
        }
    }

    /// Removes and returns the buffer of row group `group`.
    pub fn take(&self, group: u32) -> Option<Arc<RwLock<RowGroupBuffer>>> {
        self.groups.lock().remove(&group)
    }

    /// Restores the buffer of row group `group` after a failed write.
    pub fn restore(&self, group: u32, buffer: Arc<RwLock<RowGroupBuffer>>) {
        self.groups.lock().insert(group, buffer);
    }
}

/// A row of the output: the row number, and the values of the output columns in order.
#[derive(Debug)]
pub struct OutputRow<'a> {
    /// The key of the row number.
    pub row_key: &'a str,
    /// The row number in the dataset, from 0.
    pub row: u64,
    /// The names and values of the columns after the row number.
    pub fields: Vec<(&'a str, &'a Value)>,
}

impl Serialize for OutputRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1 + self.fields.len()))?;
        map.serialize_entry(self.row_key, &self.row)?;
        for (name, value) in &self.fields {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::PATIENCE;
    use serde_json::json;

    #[test]
    fn a_value_is_set_in_its_cell_and_clears_its_error() {
        let buffers = RowGroupBuffers::new(2);
        buffers.open(3, 2);
        buffers.set_failure(3, 0, Some(1), "busy".to_string());
        buffers.set_failure(3, 1, Some(0), "refused".to_string());
        buffers.set_value(3, 0, Some(1), &Arc::new(json!({"x": [1]})));
        buffers.open(3, 2);
        let group = buffers.take(3).unwrap();
        let group = group.read();
        assert_eq!(group.value(0, 1).map(|value| &**value), Some(&json!({"x": [1]})));
        assert_eq!((group.value(0, 0), group.value(1, 2)), (None, None));
        assert_eq!((group.failure(0, 1), group.failure(1, 0)), (None, Some("refused")));
        assert!(buffers.read(3, |_| ()).is_none());
    }

    #[test]
    fn a_value_or_error_of_a_whole_group_concerns_every_row() {
        let buffers = RowGroupBuffers::new(1);
        buffers.open(0, 2);
        buffers.set_failure(0, 0, None, "busy".to_string());
        assert_eq!(buffers.read(0, |group| group.failure(0, 1).map(str::to_string)), Some(Some("busy".to_string())));
        buffers.set_value(0, 0, None, &Arc::new(json!("all")));
        let group = buffers.take(0).unwrap();
        let group = group.read();
        assert!(!group.is_skipped(0, 1));
        assert!((0..2).all(|row| group.value(0, row).is_some_and(|value| **value == "all")));
        assert_eq!(group.failure(0, 1), None);
    }

    #[test]
    fn a_row_group_can_be_read_and_written_while_another_one_is_read() {
        let buffers = RowGroupBuffers::new(1);
        buffers.open(0, 1);
        buffers.open(1, 1);
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            buffers.read(0, |_| {
                scope.spawn(|| {
                    buffers.set_value(1, 0, None, &Arc::new(json!("one")));
                    let value = buffers.read(1, |group| group.value(0, 0).cloned());
                    sender.send((value, buffers.read(0, |group| group.value(0, 0).is_some())))
                });
                let one = Some(Some(Arc::new(json!("one"))));
                assert_eq!(receiver.recv_timeout(PATIENCE), Ok((one, Some(false))));
            });
        });
    }

    #[test]
    fn an_output_row_keeps_the_order_of_its_columns() {
        let (one, text) = (json!(1), json!("text"));
        let row = OutputRow { row_key: "row", row: 4, fields: vec![("z", &one), ("a", &Value::Null), ("m", &text)] };
        assert_eq!(serde_json::to_string(&row).unwrap(), r#"{"row":4,"z":1,"a":null,"m":"text"}"#);
    }
}
