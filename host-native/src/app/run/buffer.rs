//! The values of rows while their row group is in work: those of the dataset, and those made so far. The core knows rows
//! only by number; what is in them is here.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::app::data::Row;

/// The values of all row groups in work. A group takes memory from its first task to its checkpoint.
#[derive(Debug)]
pub struct Cells {
    columns: usize,
    groups: Mutex<HashMap<u32, CellGroup>>,
}

/// The values of one row group, and why those that are missing are missing.
#[derive(Debug)]
pub struct CellGroup {
    rows: u32,
    /// The rows of the dataset, once they are read.
    seeds: Vec<Row>,
    /// The generated values, column by column.
    values: Vec<Option<Arc<Value>>>,
    /// The latest failure by column, and row if it was a row's; removed when a retry succeeds.
    failures: HashMap<(usize, Option<u32>), String>,
    /// Whose task found its condition not to hold, by column, and row if it was a row's.
    skips: BTreeSet<(usize, Option<u32>)>,
}

impl CellGroup {
    /// What the dataset has for row `row` of the group; nothing before it was read.
    #[must_use]
    pub fn seeds(&self, row: u32) -> &[Value] {
        self.seeds.get(row as usize).map_or(&[], |row| row)
    }

    /// The value of the generated `column` in row `row` of the group.
    #[must_use]
    pub fn value(&self, column: usize, row: u32) -> Option<&Arc<Value>> {
        self.values.get(self.index(column, row)?)?.as_ref()
    }

    /// The latest failure of `column` that concerned row `row`.
    #[must_use]
    pub fn failure(&self, column: usize, row: u32) -> Option<&str> {
        let failure = self.failures.get(&(column, Some(row))).or_else(|| self.failures.get(&(column, None)));
        failure.map(String::as_str)
    }

    /// Whether the task of `column` that concerned row `row` found that there is nothing to make.
    #[must_use]
    pub fn is_skipped(&self, column: usize, row: u32) -> bool {
        self.skips.contains(&(column, Some(row))) || self.skips.contains(&(column, None))
    }

    fn index(&self, column: usize, row: u32) -> Option<usize> {
        (row < self.rows).then(|| column * self.rows as usize + row as usize)
    }
}

impl Cells {
    /// No values yet, for `columns` generated columns.
    #[must_use]
    pub fn new(columns: usize) -> Self {
        Self { columns, groups: Mutex::new(HashMap::new()) }
    }

    /// Makes room for row group `group` of `rows` rows, unless there is.
    pub fn open(&self, group: u32, rows: u32) {
        self.groups.lock().entry(group).or_insert_with(|| CellGroup {
            rows,
            seeds: Vec::new(),
            values: vec![None; self.columns * rows as usize],
            failures: HashMap::new(),
            skips: BTreeSet::new(),
        });
    }

    /// Reads row group `group`; `None` when it is not in work.
    pub fn read<T>(&self, group: u32, read: impl FnOnce(&CellGroup) -> T) -> Option<T> {
        self.groups.lock().get(&group).map(read)
    }

    /// Keeps what the dataset has for row group `group`.
    pub fn seed(&self, group: u32, rows: Vec<Row>) {
        if let Some(cells) = self.groups.lock().get_mut(&group) {
            cells.seeds = rows;
        }
    }

    /// Keeps `filled` as the value of `column`, in row `row` or in all rows of the group.
    pub fn fill(&self, group: u32, column: usize, row: Option<u32>, filled: &Arc<Value>) {
        let mut groups = self.groups.lock();
        let Some(cells) = groups.get_mut(&group) else { return };
        for row in row.map_or(0..cells.rows, |row| row..row + 1) {
            if let Some(value) = cells.index(column, row).and_then(|index| cells.values.get_mut(index)) {
                *value = Some(Arc::clone(filled));
            }
        }
        cells.failures.remove(&(column, row));
    }

    /// Notes that there is nothing to make for `column`, in row `row` or in all rows of the group.
    pub fn skip(&self, group: u32, column: usize, row: Option<u32>) {
        if let Some(cells) = self.groups.lock().get_mut(&group) {
            cells.skips.insert((column, row));
        }
    }

    /// Keeps why `column` has no value, in row `row` or in all rows of the group.
    pub fn fail(&self, group: u32, column: usize, row: Option<u32>, why: String) {
        if let Some(cells) = self.groups.lock().get_mut(&group) {
            cells.failures.insert((column, row), why);
        }
    }

    /// Gives row group `group` up, with all its memory.
    pub fn take(&self, group: u32) -> Option<CellGroup> {
        self.groups.lock().remove(&group)
    }

    /// Takes row group `group` back, whose values could not be written.
    pub fn put_back(&self, group: u32, cells: CellGroup) {
        self.groups.lock().insert(group, cells);
    }
}

/// One line of output: the row number, the seed values, the generated values, in this order.
#[derive(Debug)]
pub struct OutputRow<'a> {
    /// The key of the row number.
    pub row_key: &'a str,
    /// The row number in the dataset, from 0.
    pub row: u64,
    /// Seed columns with their values.
    pub seeds: (&'a [String], &'a [Value]),
    /// Generated columns with their values.
    pub generated: Vec<(&'a str, &'a Value)>,
}

impl Serialize for OutputRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1 + self.seeds.0.len() + self.generated.len()))?;
        map.serialize_entry(self.row_key, &self.row)?;
        for (name, value) in self.seeds.0.iter().zip(self.seeds.1) {
            map.serialize_entry(name, value)?;
        }
        for (name, value) in &self.generated {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_go_where_they_belong_and_a_success_forgets_the_failure() {
        let cells = Cells::new(2);
        cells.open(3, 2);
        cells.fail(3, 0, Some(1), "busy".to_string());
        cells.fail(3, 1, Some(0), "refused".to_string());
        cells.fill(3, 0, Some(1), &Arc::new(json!({"x": [1]})));
        cells.open(3, 2);
        let group = cells.take(3).unwrap();
        assert_eq!(group.value(0, 1).map(|value| &**value), Some(&json!({"x": [1]})));
        assert_eq!((group.value(0, 0), group.value(1, 2)), (None, None));
        assert_eq!((group.failure(0, 1), group.failure(1, 0)), (None, Some("refused")));
        assert!(cells.read(3, |_| ()).is_none());
    }

    #[test]
    fn a_whole_group_value_or_failure_concerns_every_row() {
        let cells = Cells::new(1);
        cells.open(0, 2);
        cells.fail(0, 0, None, "busy".to_string());
        assert_eq!(cells.read(0, |group| group.failure(0, 1).map(str::to_string)), Some(Some("busy".to_string())));
        cells.fill(0, 0, None, &Arc::new(json!("all")));
        let group = cells.take(0).unwrap();
        assert!(!group.is_skipped(0, 1));
        assert!((0..2).all(|row| group.value(0, row).is_some_and(|value| **value == "all")));
        assert_eq!(group.failure(0, 1), None);
    }

    #[test]
    fn an_output_row_keeps_the_order_of_columns() {
        let text = json!("text");
        let row = OutputRow {
            row_key: "row",
            row: 4,
            seeds: (&["z".to_string(), "a".to_string()], &[Value::from(1), Value::Null]),
            generated: vec![("m", &text)],
        };
        assert_eq!(serde_json::to_string(&row).unwrap(), r#"{"row":4,"z":1,"a":null,"m":"text"}"#);
    }
}
