//! Parquet datasets: any flat or nested table, its values as their nearest JSON types.
//!
//! | in the file | as a value |
//! | --- | --- |
//! | booleans, integers, floats | true or false, numbers; a float that is not finite is null |
//! | strings, enums, JSON | strings |
//! | dates, timestamps | ISO 8601 text in UTC, such as `2024-05-01` and `2024-05-01T12:00:00Z`, with a fraction if there is one |
//! | times of day, decimals, intervals and the like | text |
//! | bytes | text if they are UTF-8, else base64 |
//! | groups, lists, maps | objects, lists, objects |
//!
//! Pages may be plain, or compressed with Snappy or gzip.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row as ParquetRow};
use serde_json::{Number, Value};

use super::text::Stamp;
use super::{Dataset, DatasetError, Row, Source, check_columns};
use crate::fill::calendar::Moment;
use crate::kind::ValueKind;

/// Rows that were passed and may still be asked for: row groups in work are asked for nearly in order.
const MAX_KEPT: u64 = 1 << 18;

/// A Parquet file, read from front to back.
#[derive(Debug)]
pub(super) struct Table {
    path: PathBuf,
    stamp: Stamp,
    columns: usize,
    /// The first row that may be asked for: those before it are not kept.
    pub(super) first: u64,
    cursor: Mutex<Cursor>,
}

/// Where reading is, and what was passed on the way.
#[derive(Default)]
struct Cursor {
    rows: Option<RowIter<'static>>,
    next: u64,
    kept: BTreeMap<u64, Row>,
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("next", &self.next).field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

/// Reads all of the file at `path` once, keeping no row.
pub(super) fn check(path: &Path) -> Result<Dataset, DatasetError> {
    let (reader, stamp) = open(path)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let columns: Vec<String> = schema.root_schema().get_fields().iter().map(|field| field.name().to_string()).collect();
    check_columns(path, 1, &columns)?;
    let table = Table {
        path: path.to_path_buf(),
        stamp,
        columns: columns.len(),
        first: 0,
        cursor: Mutex::new(Cursor::default()),
    };
    let mut cursor = Cursor { rows: Some(iterate(path, reader)?), ..Cursor::default() };
    let mut kinds = vec![ValueKind::Null; columns.len()];
    while let Some(values) = cursor.read(&table)? {
        kinds = kinds.iter().zip(&values).map(|(kind, value)| kind.or(ValueKind::of(value))).collect();
    }
    Ok(Dataset { columns, kinds, rows: cursor.next, source: Source::Parquet(table) })
}

fn open(path: &Path) -> Result<(SerializedFileReader<File>, Stamp), DatasetError> {
    let unreadable = |error: &dyn std::fmt::Display| DatasetError::new(path, None, format!("cannot read: {error}"));
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    let stamp = Stamp::of(&file.metadata().map_err(|error| unreadable(&error))?);
    // The library asserts what a well-formed file has.
    let reader = catch_unwind(AssertUnwindSafe(|| SerializedFileReader::new(file)));
    let reader = reader.unwrap_or_else(|_| Err(parquet::errors::ParquetError::General("it is damaged".to_string())));
    let reader =
        reader.map_err(|error| DatasetError::new(path, None, format!("this is not a Parquet file: {error}")))?;
    if !is_sound(&reader) {
        return Err(DatasetError::new(path, None, "this Parquet file is damaged"));
    }
    Ok((reader, stamp))
}

/// Whether the places that the file says its pages are at can be places at all. The library asserts it.
fn is_sound(reader: &SerializedFileReader<File>) -> bool {
    let mut chunks = reader.metadata().row_groups().iter().flat_map(RowGroupMetaData::columns);
    chunks.all(|chunk| {
        let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
        start >= 0 && chunk.data_page_offset() >= 0 && chunk.compressed_size() >= 0
    })
}

fn iterate(path: &Path, reader: SerializedFileReader<File>) -> Result<RowIter<'static>, DatasetError> {
    let rows = catch_unwind(AssertUnwindSafe(|| RowIter::from_file_into(Box::new(reader))));
    rows.map_err(|_| DatasetError::new(path, None, "this Parquet file is damaged"))
}

impl Table {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn read(&self, range: Range<u64>) -> Result<Vec<Row>, DatasetError> {
        let mut cursor = self.cursor.lock();
        let wanted = range.end - range.start;
        if range.start < cursor.next {
            let kept: Vec<Row> = range.clone().map_while(|row| cursor.kept.remove(&row)).collect();
            if kept.len() as u64 == wanted {
                return Ok(kept);
            }
            // Asked for again, or long passed: from the beginning.
            *cursor = Cursor::default();
        }
        if cursor.rows.is_none() {
            let (reader, stamp) = open(&self.path)?;
            if stamp != self.stamp {
                return Err(self.changed());
            }
            cursor.rows = Some(iterate(&self.path, reader)?);
        }
        while cursor.next < range.start {
            let at = cursor.next;
            let row = cursor.read(self)?.ok_or_else(|| self.changed())?;
            if at >= self.first && range.start - at <= MAX_KEPT && (cursor.kept.len() as u64) < MAX_KEPT {
                cursor.kept.insert(at, row);
            }
        }
        range.map(|_| cursor.read(self)?.ok_or_else(|| self.changed())).collect()
    }

    fn changed(&self) -> DatasetError {
        DatasetError::new(&self.path, None, "the file has changed since the run began")
    }
}

impl Cursor {
    /// The next row; none at the end.
    fn read(&mut self, table: &Table) -> Result<Option<Row>, DatasetError> {
        let number = self.next + 1;
        let refuse = |why: String| DatasetError::new(&table.path, Some(number), why);
        let Some(rows) = &mut self.rows else { return Ok(None) };
        let row = match catch_unwind(AssertUnwindSafe(|| rows.next())) {
            Ok(None) => return Ok(None),
            Ok(Some(Ok(row))) => row,
            Ok(Some(Err(error))) => return Err(refuse(format!("the row cannot be read: {error}"))),
            Err(_) => return Err(refuse("the row cannot be read: the file is damaged".to_string())),
        };
        let values: Row = values_of(row).into_iter().map(|(_, value)| value).collect();
        if values.len() != table.columns {
            return Err(refuse(format!("the row has {} values; expected {}", values.len(), table.columns)));
        }
        self.next += 1;
        Ok(Some(values))
    }
}

fn values_of(row: ParquetRow) -> Vec<(String, Value)> {
    row.into_columns().into_iter().map(|(name, field)| (name, to_json(&field))).collect()
}

fn to_json(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Bool(flag) => Value::Bool(*flag),
        Field::Byte(number) => Value::from(*number),
        Field::Short(number) => Value::from(*number),
        Field::Int(number) => Value::from(*number),
        Field::Long(number) => Value::from(*number),
        Field::UByte(number) => Value::from(*number),
        Field::UShort(number) => Value::from(*number),
        Field::UInt(number) => Value::from(*number),
        Field::ULong(number) => Value::from(*number),
        Field::Float16(number) => float(f64::from(f32::from(*number))),
        // By way of its shortest text: 0.1 of 32 bits is 0.1, and not 0.10000000149011612.
        Field::Float(number) => float(number.to_string().parse().unwrap_or(f64::NAN)),
        Field::Double(number) => float(*number),
        Field::Str(text) => Value::String(text.clone()),
        Field::Bytes(bytes) => Value::String(match std::str::from_utf8(bytes.data()) {
            Ok(text) => text.to_string(),
            Err(_) => base64(bytes.data()),
        }),
        Field::Date(days) => Value::String(Moment::from_unix(i64::from(*days) * 86_400).date()),
        Field::TimestampMillis(millis) => timestamp(*millis, 1_000, 3),
        Field::TimestampMicros(micros) => timestamp(*micros, 1_000_000, 6),
        Field::Group(row) => row.get_column_iter().map(|(name, field)| (name.clone(), to_json(field))).collect(),
        Field::ListInternal(list) => list.elements().iter().map(to_json).collect(),
        Field::MapInternal(map) => {
            let key = |key: &Field| match to_json(key) {
                Value::String(text) => text,
                other => other.to_string(),
            };
            map.entries().iter().map(|(name, field)| (key(name), to_json(field))).collect()
        }
        other => Value::String(other.to_string()),
    }
}

fn float(number: f64) -> Value {
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

fn timestamp(ticks: i64, per_second: i64, digits: usize) -> Value {
    let moment = Moment::from_unix(ticks.div_euclid(per_second)).to_string();
    let fraction = ticks.rem_euclid(per_second);
    let seconds = moment.trim_end_matches('Z');
    Value::String(if fraction == 0 { moment } else { format!("{seconds}.{fraction:0digits$}Z") })
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = (0..3).fold(0_u32, |word, at| word << 8 | u32::from(chunk.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            let letter = char::from(LETTERS[(word >> (18 - 6 * at)) as usize & 63]);
            text.push(if at <= chunk.len() { letter } else { '=' });
        }
    }
    text
}
