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
use parquet::basic::{LogicalType, TimeUnit};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::BasicTypeInfo;
use serde_json::{Number, Value};

use super::text::Stamp;
use super::{Dataset, DatasetError, Row, Source, check_columns};
use crate::app::data::calendar::Moment;
use crate::app::data::column_type::ValueKind;

/// Rows that were passed and may still be asked for: row groups in work are asked for nearly in order.
const MAX_KEPT: u64 = 1 << 18;

/// A Parquet file, read from front to back.
#[derive(Debug)]
pub(super) struct Table {
    path: PathBuf,
    stamp: Stamp,
    /// By column whether it is a timestamp in nanoseconds, which the library gives as a mere number.
    nanos: Vec<bool>,
    /// Rows that nobody will ask for, from first to end, apart from each other: they are not kept.
    passed_over: BTreeMap<u64, u64>,
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
    let nanos = schema.root_schema().get_fields().iter().map(|field| is_nanos(field.get_basic_info())).collect();
    let table = Table {
        path: path.to_path_buf(),
        stamp,
        nanos,
        passed_over: BTreeMap::new(),
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

fn is_nanos(info: &BasicTypeInfo) -> bool {
    matches!(info.logical_type_ref(), Some(LogicalType::Timestamp(kind)) if kind.unit == TimeUnit::NANOS)
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

    /// Keeps no row of `rows` when reading passes it. O(log ranges) but for ranges that become one.
    pub(super) fn pass_over(&mut self, rows: Range<u64>) {
        let (mut first, mut end) = (rows.start, rows.end);
        if first >= end {
            return;
        }
        while let Some((&start, &until)) = self.passed_over.range(..=end).next_back()
            && until >= first
        {
            self.passed_over.remove(&start);
            (first, end) = (first.min(start), end.max(until));
        }
        self.passed_over.insert(first, end);
    }

    #[cfg(test)]
    pub(super) fn passed_over(&self) -> Vec<Range<u64>> {
        self.passed_over.iter().map(|(first, end)| *first..*end).collect()
    }

    fn is_passed_over(&self, row: u64) -> bool {
        self.passed_over.range(..=row).next_back().is_some_and(|(_, end)| row < *end)
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
            if !self.is_passed_over(at) && range.start - at <= MAX_KEPT && (cursor.kept.len() as u64) < MAX_KEPT {
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
            Err(_) => {
                return Err(refuse(
                    "the row cannot be read: the file is damaged, or has a type that is not known here".to_string(),
                ));
            }
        };
        let fields = row.into_columns();
        if fields.len() != table.nanos.len() {
            return Err(refuse(format!("the row has {} values; expected {}", fields.len(), table.nanos.len())));
        }
        let value = |((_, field), is_nanos): (&(String, Field), &bool)| match field {
            Field::Long(nanos) if *is_nanos => timestamp(*nanos, 1_000_000_000, 9),
            field => to_json(field),
        };
        let values: Row = fields.iter().zip(&table.nanos).map(value).collect();
        self.next += 1;
        Ok(Some(values))
    }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::column::writer::ColumnWriter;
    use parquet::data_type::{ByteArray, FixedLenByteArray};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use serde_json::json;

    use super::*;
    use crate::app::data::row_file::Layout;
    use crate::app::data::row_file::RowFormat;

    const SCHEMA: &str = "message m {
        REQUIRED INT32 day (DATE);
        REQUIRED INT64 millis (TIMESTAMP(MILLIS,true));
        REQUIRED INT64 micros (TIMESTAMP(MICROS,true));
        REQUIRED INT64 nanos (TIMESTAMP(NANOS,false));
        REQUIRED INT32 small (INTEGER(8,true));
        REQUIRED INT64 large (INTEGER(64,false));
        REQUIRED FLOAT tenth;
        REQUIRED DOUBLE none;
        REQUIRED INT64 money (DECIMAL(10,2));
        REQUIRED BYTE_ARRAY text (UTF8);
        REQUIRED BYTE_ARRAY bytes;
        REQUIRED FIXED_LEN_BYTE_ARRAY (3) raw;
        REQUIRED GROUP place { REQUIRED DOUBLE lat; OPTIONAL BYTE_ARRAY name (UTF8); }
    }";

    /// A file with a value of each type, as other programs write them.
    fn write_types(path: &Path) {
        let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
        let file = File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(WriterProperties::default())).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut longs = [1_714_564_800_000, 1_714_564_800_250_000, 1_714_564_800_000_000_007, -1, 12_345].into_iter();
        let (mut ints, mut doubles) = ([19_844, -5].into_iter(), [f64::NAN, 53.5].into_iter());
        let mut texts = ["é", "plain", "pier"].into_iter();
        while let Some(mut column) = group.next_column().unwrap() {
            let written = match column.untyped() {
                ColumnWriter::Int32ColumnWriter(writer) => writer.write_batch(&[ints.next().unwrap()], None, None),
                ColumnWriter::Int64ColumnWriter(writer) => writer.write_batch(&[longs.next().unwrap()], None, None),
                ColumnWriter::FloatColumnWriter(writer) => writer.write_batch(&[0.1], None, None),
                ColumnWriter::DoubleColumnWriter(writer) => writer.write_batch(&[doubles.next().unwrap()], None, None),
                ColumnWriter::ByteArrayColumnWriter(writer) => {
                    writer.write_batch(&[ByteArray::from(texts.next().unwrap())], Some(&[1]), None)
                }
                ColumnWriter::FixedLenByteArrayColumnWriter(writer) => {
                    writer.write_batch(&[FixedLenByteArray::from(vec![0xff, 0x00, 0x10])], None, None)
                }
                _ => panic!("there is no such column"),
            };
            written.unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn rows_that_nobody_will_ask_for_are_not_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("r.parquet");
        let columns = vec![("n".to_string(), ValueKind::Integer)];
        let layout = Layout { format: RowFormat::Parquet, columns };
        let mut file = File::create(&path).unwrap();
        layout
            .write((0..100).map(|row| crate::app::data::row_file::FileRow::Made(json!({ "n": row }))), &mut file)
            .unwrap();
        let mut dataset = check(&path).unwrap();
        for rows in [0..20, 40..50, 50..60, 30..40, 25..25] {
            dataset.pass_over(rows);
        }
        let Source::Parquet(table) = &dataset.source else { panic!("it is a Parquet file") };
        assert_eq!(table.passed_over, BTreeMap::from([(0, 20), (30, 60)]));
        assert_eq!(dataset.read(80..81).unwrap()[0][0], 80);
        let kept: Vec<u64> = table.cursor.lock().kept.keys().copied().collect();
        assert_eq!(kept, (20..30).chain(60..80).collect::<Vec<u64>>());
        assert_eq!(dataset.read(25..26).unwrap()[0][0], 25);
        assert_eq!(table.cursor.lock().next, 81, "it was kept, so nothing is read again");
    }

    #[test]
    fn every_type_becomes_its_nearest_value() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("types.parquet");
        write_types(&path);
        let dataset = check(&path).unwrap();
        let row = dataset.read(0..1).unwrap().remove(0);
        let named: serde_json::Map<_, _> = dataset.columns().iter().cloned().zip(row).collect();
        let expected = json!({
            "day": "2024-05-01",
            "millis": "2024-05-01T12:00:00Z",
            "micros": "2024-05-01T12:00:00.250000Z",
            "nanos": "2024-05-01T12:00:00.000000007Z",
            "small": -5,
            "large": u64::MAX,
            "tenth": 0.1,
            "none": null,
            "money": "123.45",
            "text": "é",
            "bytes": "plain",
            "raw": "/wAQ",
            "place": { "lat": 53.5, "name": "pier" },
        });
        assert_eq!(Value::Object(named), expected);
    }
}
