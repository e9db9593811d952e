//! CSV datasets (RFC 4180): a header line, and a string in every field. The fields are separated by the one
//! of `,`, `;`, tab and `|` that occurs most often in the header line; some spreadsheets write another than
//! the comma.

use std::io::{self, BufRead, Read as _};
use std::ops::Range;
use std::path::Path;

use serde_json::Value;

use super::indexed_text::IndexedText;
use super::{Dataset, DatasetError, Row, Source, check_columns};
use crate::app::data::column_type::ColumnType;

/// The separators that are recognised, the usual one first.
const SEPARATORS: [u8; 4] = *b",;\t|";

/// How much of the header line is searched for separators, in bytes.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Checks all rows and indexes where they start. Keeps no row in memory.
pub(super) fn scan(path: &Path, mut text: IndexedText) -> Result<Dataset, DatasetError> {
    let separator = separator(&text)?;
    let mut reader = csv::ReaderBuilder::new().delimiter(separator).from_reader(text.open_for_scan()?);
    let headers = reader.headers().map_err(|error| csv_error(&text, separator, &error))?;
    let columns: Vec<String> = headers.iter().map(str::to_string).collect();
    check_columns(path, 1, &columns)?;
    let mut record = csv::StringRecord::new();
    let (mut rows, mut last) = (0, (0, 1));
    while reader.read_record(&mut record).map_err(|error| csv_error(&text, separator, &error))? {
        if let Some(position) = record.position() {
            last = (position.byte(), position.line());
            text.index_row(rows, position.byte());
        }
        rows += 1;
    }
    let (byte, line) = last;
    let digest = text.finish_scan(reader.into_inner())?;
    let tail = text.open(byte)?;
    if ends_inside_quotes(tail, separator).map_err(|error| text.unreadable(&error))? {
        return Err(DatasetError::new(path, Some(line), "a quoted field that starts here is never closed"));
    }
    let column_types = vec![ColumnType::Text; columns.len()];
    Ok(Dataset { columns, column_types, rows, digest, source: Source::Csv(text, separator) })
}

/// Returns the separator that occurs most often outside of quotes in the header line; the comma if there is
/// none.
fn separator(text: &IndexedText) -> Result<u8, DatasetError> {
    let mut header = Vec::new();
    let mut start = text.open(0)?.take(MAX_HEADER_BYTES);
    start.read_until(b'\n', &mut header).map_err(|error| text.unreadable(&error))?;
    let outside = header.split(|byte| *byte == b'"').step_by(2);
    let mut counts = [0; SEPARATORS.len()];
    for byte in outside.flatten() {
        if let Some(at) = SEPARATORS.iter().position(|separator| separator == byte) {
            counts[at] += 1;
        }
    }
    // Of equal counts, the first.
    let most = (0..counts.len()).rev().max_by_key(|at| counts[*at]);
    Ok(most.map_or(b',', |at| SEPARATORS[at]))
}

/// Reads the given rows. The file must not have changed since [`scan`].
pub(super) fn read(text: &IndexedText, separator: u8, rows: Range<u64>) -> Result<Vec<Row>, DatasetError> {
    let (skip, at) = text.seek_point(rows.start);
    // From the end of the line before: a csv reader drops a byte order mark at its start, and a row may begin
    // with one.
    let at = at.saturating_sub(1);
    let mut reader = csv::ReaderBuilder::new().has_headers(false).delimiter(separator).from_reader(text.reopen(at)?);
    let records = reader.records().skip(skip).take((rows.end - rows.start) as usize);
    let row = |record: Result<csv::StringRecord, csv::Error>| {
        let record = record.map_err(|error| csv_error(text, separator, &error))?;
        Ok(record.iter().map(|field| Value::String(field.to_string())).collect())
    };
    let read: Vec<Row> = records.map(row).collect::<Result<_, DatasetError>>()?;
    if read.len() as u64 == rows.end - rows.start { Ok(read) } else { Err(text.changed()) }
}

fn csv_error(text: &IndexedText, separator: u8, error: &csv::Error) -> DatasetError {
    let line = error.position().map(csv::Position::line);
    let message = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            let separated = match separator {
                b',' => String::new(),
                b'\t' => ", separated by tabs".to_string(),
                other => format!(", separated by `{}`", char::from(other)),
            };
            format!("the row has {len} fields; expected {expected_len}, as in the header{separated}")
        }
        csv::ErrorKind::Utf8 { err, .. } => text.not_utf8(&format!("field {}", err.field() + 1)),
        csv::ErrorKind::Io(error) => format!("cannot read: {error}"),
        _ => error.to_string(),
    };
    DatasetError::new(&text.path, line, message)
}

/// Returns whether CSV text, read from the start of a record, ends inside a quoted field. The reader of the
/// `csv` crate accepts such text: it puts everything after a stray quote into one field.
fn ends_inside_quotes(record: impl BufRead, separator: u8) -> io::Result<bool> {
    let mut in_quotes = false;
    let mut at_field_start = true;
    for byte in record.bytes() {
        let byte = byte?;
        // A doubled quote toggles the state twice, which leaves it unchanged.
        if byte == b'"' && (in_quotes || at_field_start) {
            in_quotes = !in_quotes;
        }
        // A quote right after a closing quote continues the field.
        at_field_start = !in_quotes && (byte == separator || matches!(byte, b'\n' | b'\r' | b'"'));
    }
    Ok(in_quotes)
}
