//! JSONL datasets: one object per line, all with the same keys. Blank lines are skipped.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::indexed_text::IndexedText;
use super::{Dataset, DatasetError, Row, Source, check_columns};
use crate::app::data::column_type::ColumnType;
use crate::app::template::is_same_name;

/// Checks all rows and indexes where they start. Keeps no row in memory.
pub(super) fn scan(path: &Path, mut text: IndexedText) -> Result<Dataset, DatasetError> {
    let mut columns: Vec<String> = Vec::new();
    let mut column_types: Vec<ColumnType> = Vec::new();
    let mut lines = LineReader::new(BufReader::new(text.open_for_scan()?), 0);
    let mut rows = 0;
    while let Some((offset, fields)) = lines.next(&text)? {
        let error_at = |message: String| DatasetError::new(path, Some(lines.number), message);
        if rows == 0 {
            columns = fields.iter().map(|(name, _)| name.clone()).collect();
            check_columns(path, lines.number, &columns)?;
            column_types = vec![ColumnType::Null; columns.len()];
        }
        let values = in_column_order(&columns, fields).map_err(error_at)?;
        column_types =
            column_types.iter().zip(&values).map(|(known, value)| known.unify(ColumnType::of(value))).collect();
        text.index_row(rows, offset);
        rows += 1;
    }
    let digest = text.finish_scan(lines.reader.into_inner())?;
    Ok(Dataset { columns, column_types, rows, digest, source: Source::Jsonl(text) })
}

/// Reads the given rows. The file must not have changed since [`scan`].
pub(super) fn read(text: &IndexedText, columns: &[String], range: Range<u64>) -> Result<Vec<Row>, DatasetError> {
    let (skip, offset) = text.seek_point(range.start);
    let mut lines = LineReader::new(text.reopen(offset)?, offset);
    let wanted = (range.end - range.start) as usize;
    let mut rows = Vec::with_capacity(wanted);
    for _ in 0..skip {
        lines.next(text)?;
    }
    while rows.len() < wanted {
        let Some((_, fields)) = lines.next(text)? else { return Err(text.changed()) };
        rows.push(in_column_order(columns, fields).map_err(|_| text.changed())?);
    }
    Ok(rows)
}

/// The byte offset of a line, and the fields of its object.
type Line = (u64, Vec<(String, Value)>);

/// Reads the objects of a file line by line.
struct LineReader<R> {
    reader: R,
    line: Vec<u8>,
    /// The number of the current line, counted from 1 at the line where reading started.
    number: u64,
    /// The byte offset of the next line.
    offset: u64,
}

impl<R: BufRead> LineReader<R> {
    fn new(reader: R, offset: u64) -> Self {
        Self { reader, line: Vec::new(), number: 0, offset }
    }

    /// Returns the next object of `text` and the byte offset of its line, or `None` at the end.
    fn next(&mut self, text: &IndexedText) -> Result<Option<Line>, DatasetError> {
        loop {
            self.line.clear();
            let offset = self.offset;
            let read = self.reader.read_until(b'\n', &mut self.line);
            // Without a line: the text is read and decoded ahead of this one.
            let read = read.map_err(|error| text.unreadable(&error))?;
            if read == 0 {
                return Ok(None);
            }
            self.offset += read as u64;
            self.number += 1;
            let error_at = |message: String| DatasetError::new(&text.path, Some(self.number), message);
            let line = std::str::from_utf8(&self.line).map_err(|_| error_at(text.not_utf8("the line")))?;
            let line = line.strip_suffix('\n').unwrap_or(line);
            if line.trim().is_empty() {
                continue;
            }
            let OrderedObject(fields) = serde_json::from_str(line)
                .map_err(|error| error_at(format!("expected one JSON object: {}", json_message(&error))))?;
            return Ok(Some((offset, fields)));
        }
    }
}

/// Returns the message of a JSON error with its column. The line is omitted: it is always 1, since each line
/// is parsed on its own.
fn json_message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&position) {
        Some(what) => format!("{what} at column {}", error.column()),
        None => text,
    }
}

/// Returns the values of `fields` in the order of `columns`. Fails unless the names match one to one, in
/// whatever form of Unicode.
fn in_column_order(columns: &[String], mut fields: Vec<(String, Value)>) -> Result<Row, String> {
    let mut values = Vec::with_capacity(columns.len());
    for column in columns {
        let exactly = fields.iter().position(|(name, _)| name == column);
        let Some(index) = exactly.or_else(|| fields.iter().position(|(name, _)| is_same_name(name, column))) else {
            return Err(format!("the row has no `{column}`, which the first row has (write null for no value)"));
        };
        values.push(fields.swap_remove(index).1);
    }
    match fields.first() {
        Some((name, _)) => Err(format!("the row has `{name}`, which the first row does not have")),
        None => Ok(values.into_boxed_slice()),
    }
}

/// A JSON object with unique keys in file order.
struct OrderedObject(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for OrderedObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = OrderedObject;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedObject, A::Error> {
                let mut fields: Vec<(String, Value)> = Vec::with_capacity(map.size_hint().unwrap_or(0));
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if fields.iter().any(|(known, _)| *known == name) {
                        return Err(serde::de::Error::custom(format_args!("the key `{name}` occurs twice")));
                    }
                    fields.push((name, value));
                }
                Ok(OrderedObject(fields))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}
