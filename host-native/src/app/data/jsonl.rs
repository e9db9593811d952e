//! JSONL datasets: an object a line, all with the same keys. Blank lines are skipped.

use std::fmt;
use std::io::BufRead;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::text::{Bytes, Text};
use super::{Dataset, DatasetError, Row, Source, check_columns};
use crate::app::data::column_type::ValueKind;

pub(super) fn check(path: &Path, bytes: Bytes) -> Result<Dataset, DatasetError> {
    let mut text = Text::new(path, bytes);
    let mut columns: Vec<String> = Vec::new();
    let mut kinds: Vec<ValueKind> = Vec::new();
    let mut lines = Lines::open(&text, text.start(), false)?;
    let mut rows = 0;
    while let Some((at, fields)) = lines.next()? {
        let refuse = |message: String| DatasetError::new(path, Some(lines.number), message);
        if rows == 0 {
            columns = fields.iter().map(|(name, _)| name.clone()).collect();
            check_columns(path, lines.number, &columns)?;
            kinds = vec![ValueKind::Null; columns.len()];
        }
        let values = in_column_order(&columns, fields).map_err(refuse)?;
        kinds = kinds.iter().zip(&values).map(|(kind, value)| kind.or(ValueKind::of(value))).collect();
        text.mark(rows, at);
        rows += 1;
    }
    Ok(Dataset { columns, kinds, rows, source: Source::Jsonl(text) })
}

pub(super) fn read(text: &Text, columns: &[String], range: Range<u64>) -> Result<Vec<Row>, DatasetError> {
    let (skip, at) = text.mark_before(range.start);
    let mut lines = Lines::open(text, at, true)?;
    let wanted = (range.end - range.start) as usize;
    let mut rows = Vec::with_capacity(wanted);
    for _ in 0..skip {
        lines.next()?;
    }
    while rows.len() < wanted {
        let Some((_, fields)) = lines.next()? else { return Err(text.changed()) };
        rows.push(in_column_order(columns, fields).map_err(|_| text.changed())?);
    }
    Ok(rows)
}

/// Where a line begins, and the fields of its object.
type Line = (u64, Vec<(String, Value)>);

/// The objects of a file, line by line.
struct Lines {
    path: PathBuf,
    reader: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    /// Of the latest line, from 1, as counted from where reading began.
    number: u64,
    /// Where the next line begins.
    at: u64,
}

impl Lines {
    fn open(text: &Text, at: u64, again: bool) -> Result<Self, DatasetError> {
        let reader = if again { text.open_again(at)? } else { text.open(at)? };
        Ok(Self { path: text.path.clone(), reader, line: Vec::new(), number: 0, at })
    }

    /// The next object, and where it begins.
    fn next(&mut self) -> Result<Option<Line>, DatasetError> {
        loop {
            self.line.clear();
            let at = self.at;
            let read = self.reader.read_until(b'\n', &mut self.line);
            let refuse = |number, message: String| DatasetError::new(&self.path, Some(number), message);
            let read = read.map_err(|error| refuse(self.number + 1, format!("cannot read: {error}")))?;
            if read == 0 {
                return Ok(None);
            }
            self.at += read as u64;
            self.number += 1;
            let text = std::str::from_utf8(&self.line)
                .map_err(|_| refuse(self.number, "the line is not valid UTF-8".to_string()))?;
            let text = text.strip_suffix('\n').unwrap_or(text);
            if text.trim().is_empty() {
                continue;
            }
            let OrderedObject(fields) = serde_json::from_str(text)
                .map_err(|error| refuse(self.number, format!("expected one JSON object: {}", json_message(&error))))?;
            return Ok(Some((at, fields)));
        }
    }
}

/// The message of a JSON error with the column only: the line is always 1 within a line.
fn json_message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&position) {
        Some(what) => format!("{what} at column {}", error.column()),
        None => text,
    }
}

/// The values of `fields` in the order of `columns`, which they must match one to one.
fn in_column_order(columns: &[String], mut fields: Vec<(String, Value)>) -> Result<Row, String> {
    let mut values = Vec::with_capacity(columns.len());
    for column in columns {
        let Some(at) = fields.iter().position(|(name, _)| name == column) else {
            return Err(format!("the row has no `{column}`, which the first row has (write null for no value)"));
        };
        values.push(fields.swap_remove(at).1);
    }
    match fields.first() {
        Some((name, _)) => Err(format!("the row has `{name}`, which the first row has not")),
        None => Ok(values.into_boxed_slice()),
    }
}

/// A JSON object whose keys keep their order and occur once.
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
                        return Err(serde::de::Error::custom(format_args!("the key `{name}` is there twice")));
                    }
                    fields.push((name, value));
                }
                Ok(OrderedObject(fields))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}
