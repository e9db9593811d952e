//! Parquet datasets, flat or nested. Each value becomes the nearest JSON type.
//!
//! | Parquet type | JSON value |
//! | --- | --- |
//! | boolean, integer, float | boolean, number; null for a float that is not finite |
//! | string, enum, JSON | string |
//! | date, timestamp | ISO 8601 text in UTC, such as `2024-05-01` or `2024-05-01T12:00:00.250Z` |
//! | time of day, decimal, interval and others | text |
//! | bytes | text if they are valid UTF-8, base64 otherwise |
//! | group, list, map | object, array, object |
//!
//! A date or timestamp outside of the years -9999 to 9999 becomes a number, and so does a timestamp in
//! nanoseconds inside of a group, list or map.
//!
//! Pages may be uncompressed, or compressed with Snappy, gzip, Zstandard or LZ4.

use std::collections::BTreeMap;
use std::fs::File;
use std::iter;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use parking_lot::Mutex;
use parquet::basic::{LogicalType, TimeUnit};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::BasicTypeInfo;
use serde_json::{Number, Value};

use super::digest::FileDigest;
use super::indexed_text::FileVersion;
use super::{Dataset, DatasetError, Row, Source, check_columns};
use crate::app::data::column_type::ColumnType;
use crate::app::data::utc;

/// The maximum number of buffered rows. Row groups are read nearly in order, so few rows need to be buffered.
const MAX_BUFFERED_ROWS: u64 = 1 << 18;

/// A Parquet file that is read from front to back.
#[derive(Debug)]
pub(super) struct ParquetSource {
    path: PathBuf,
    version: FileVersion,
    /// For each top-level column, whether it is a timestamp in nanoseconds. The library returns those as
    /// plain integers.
    is_nanos: Vec<bool>,
    /// Rows that are not buffered, as disjoint ranges: start to end, exclusive.
    skipped_rows: BTreeMap<u64, u64>,
    cursor: Mutex<Cursor>,
}

/// The read position, and the rows before it that may still be read.
#[derive(Default)]
struct Cursor {
    rows: Option<RowIter<'static>>,
    next: u64,
    buffered: BTreeMap<u64, Row>,
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor")
            .field("next", &self.next)
            .field("buffered", &self.buffered.len())
            .finish_non_exhaustive()
    }
}

/// Reads the file at `path`, to check it and to find its column types and its digest. Keeps no row in memory.
pub(super) fn scan(path: &Path) -> Result<Dataset, DatasetError> {
    let digest = File::open(path).and_then(FileDigest::of).map_err(|error| DatasetError::unreadable(path, &error))?;
    let (source, columns, mut cursor) = start(path)?;
    let mut column_types = vec![ColumnType::Null; columns.len()];
    while let Some(values) = cursor.read(&source)? {
        column_types =
            column_types.iter().zip(&values).map(|(known, value)| known.unify(ColumnType::of(value))).collect();
    }
    Ok(Dataset { columns, column_types, rows: cursor.next, digest, source: Source::Parquet(source) })
}

/// Reads all rows of the file at `path`.
pub(super) fn read_all(path: &Path) -> Result<Vec<Row>, DatasetError> {
    let (source, _, mut cursor) = start(path)?;
    iter::from_fn(|| cursor.read(&source).transpose()).collect()
}

/// Opens the file at `path`. Returns it with its columns and a cursor before the first row.
fn start(path: &Path) -> Result<(ParquetSource, Vec<String>, Cursor), DatasetError> {
    let (reader, version) = open(path)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let columns: Vec<String> = schema.root_schema().get_fields().iter().map(|field| field.name().to_string()).collect();
    check_columns(path, 1, &columns)?;
    let is_nanos =
        schema.root_schema().get_fields().iter().map(|field| is_nanosecond_timestamp(field.get_basic_info())).collect();
    let source = ParquetSource {
        path: path.to_path_buf(),
        version,
        is_nanos,
        skipped_rows: BTreeMap::new(),
        cursor: Mutex::new(Cursor::default()),
    };
    let cursor = Cursor { rows: Some(iterate(path, reader)?), ..Cursor::default() };
    Ok((source, columns, cursor))
}

fn open(path: &Path) -> Result<(SerializedFileReader<File>, FileVersion), DatasetError> {
    let unreadable = |error: &dyn std::fmt::Display| DatasetError::new(path, None, format!("cannot read: {error}"));
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    let version = FileVersion::of(&file.metadata().map_err(|error| unreadable(&error))?);
    // The library panics on some malformed files.
    let reader = catch_unwind(AssertUnwindSafe(|| SerializedFileReader::new(file)));
    let reader = reader.unwrap_or_else(|_| Err(parquet::errors::ParquetError::General("it is corrupted".to_string())));
    let reader =
        reader.map_err(|error| DatasetError::new(path, None, format!("this is not a Parquet file: {error}")))?;
    if !has_valid_offsets(&reader) {
        return Err(DatasetError::new(path, None, "this Parquet file is corrupted"));
    }
    Ok((reader, version))
}

fn is_nanosecond_timestamp(info: &BasicTypeInfo) -> bool {
    matches!(info.logical_type_ref(), Some(LogicalType::Timestamp(kind)) if kind.unit == TimeUnit::NANOS)
}

/// Returns whether no offset or size of a page is negative. The library panics otherwise.
fn has_valid_offsets(reader: &SerializedFileReader<File>) -> bool {
    let mut chunks = reader.metadata().row_groups().iter().flat_map(RowGroupMetaData::columns);
    chunks.all(|chunk| {
        let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
        start >= 0 && chunk.data_page_offset() >= 0 && chunk.compressed_size() >= 0
    })
}

fn iterate(path: &Path, reader: SerializedFileReader<File>) -> Result<RowIter<'static>, DatasetError> {
    let rows = catch_unwind(AssertUnwindSafe(|| RowIter::from_file_into(Box::new(reader))));
    rows.map_err(|_| DatasetError::new(path, None, "this Parquet file is corrupted"))
}

impl ParquetSource {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Excludes `rows` from the buffer. O(log ranges), plus the ranges that are merged.
    pub(super) fn skip_rows(&mut self, rows: Range<u64>) {
        let (mut first, mut end) = (rows.start, rows.end);
        if first >= end {
            return;
        }
        while let Some((&start, &stop)) = self.skipped_rows.range(..=end).next_back()
            && stop >= first
        {
            self.skipped_rows.remove(&start);
            (first, end) = (first.min(start), end.max(stop));
        }
        self.skipped_rows.insert(first, end);
    }

    #[cfg(test)]
    pub(super) fn skipped_rows(&self) -> Vec<Range<u64>> {
        self.skipped_rows.iter().map(|(first, end)| *first..*end).collect()
    }

    fn is_skipped(&self, row: u64) -> bool {
        self.skipped_rows.range(..=row).next_back().is_some_and(|(_, end)| row < *end)
    }

    /// Reads the rows of `range`. Rows before it are buffered, unless they were skipped.
    pub(super) fn read(&self, range: Range<u64>) -> Result<Vec<Row>, DatasetError> {
        let mut cursor = self.cursor.lock();
        let wanted = range.end - range.start;
        if range.start < cursor.next {
            let buffered: Vec<Row> = range.clone().map_while(|row| cursor.buffered.remove(&row)).collect();
            if buffered.len() as u64 == wanted {
                return Ok(buffered);
            }
            // The rows were read before, or the buffer was full: start over from the first row.
            *cursor = Cursor::default();
        }
        if cursor.rows.is_none() {
            let (reader, version) = open(&self.path)?;
            if version != self.version {
                return Err(self.changed());
            }
            cursor.rows = Some(iterate(&self.path, reader)?);
        }
        while cursor.next < range.start {
            let row_number = cursor.next;
            let row = cursor.read(self)?.ok_or_else(|| self.changed())?;
            if !self.is_skipped(row_number)
                && range.start - row_number <= MAX_BUFFERED_ROWS
                && (cursor.buffered.len() as u64) < MAX_BUFFERED_ROWS
            {
                cursor.buffered.insert(row_number, row);
            }
        }
        range.map(|_| cursor.read(self)?.ok_or_else(|| self.changed())).collect()
    }

    fn changed(&self) -> DatasetError {
        DatasetError::new(&self.path, None, "the file has changed since the run began")
    }
}

impl Cursor {
    /// Returns the next row, or `None` at the end.
    fn read(&mut self, source: &ParquetSource) -> Result<Option<Row>, DatasetError> {
        let number = self.next + 1;
        let error_in_row = |message: String| DatasetError::new(&source.path, Some(number), message);
        let Some(rows) = &mut self.rows else { return Ok(None) };
        let row = match catch_unwind(AssertUnwindSafe(|| rows.next())) {
            Ok(None) => return Ok(None),
            Ok(Some(Ok(row))) => row,
            Ok(Some(Err(error))) => return Err(error_in_row(format!("the row cannot be read: {error}"))),
            Err(_) => {
                return Err(error_in_row(
                    "the row cannot be read: the file is corrupted, or has an unsupported type".to_string(),
                ));
            }
        };
        let fields = row.into_columns();
        if fields.len() != source.is_nanos.len() {
            return Err(error_in_row(format!(
                "the row has {} values; expected {}",
                fields.len(),
                source.is_nanos.len()
            )));
        }
        let value = |((_, field), is_nanos): (&(String, Field), &bool)| match field {
            Field::Long(nanos) if *is_nanos => timestamp(*nanos, 1_000_000_000, 9),
            field => to_json(field),
        };
        let values: Row = fields.iter().zip(&source.is_nanos).map(value).collect();
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
        // Through the shortest text, so that the `f32` 0.1 becomes 0.1 and not 0.10000000149011612.
        Field::Float(number) => float(number.to_string().parse().unwrap_or(f64::NAN)),
        Field::Double(number) => float(*number),
        Field::Str(text) => Value::String(text.clone()),
        Field::Bytes(bytes) => Value::String(match std::str::from_utf8(bytes.data()) {
            Ok(text) => text.to_string(),
            Err(_) => BASE64.encode(bytes.data()),
        }),
        Field::Date(days) => utc::from_unix(i64::from(*days) * 86_400, 1)
            .map_or_else(|| Value::from(*days), |datetime| Value::String(datetime.date().to_string())),
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

/// Formats a timestamp. One outside of the years -9999 to 9999 stays a number.
fn timestamp(ticks: i64, per_second: i64, digits: usize) -> Value {
    utc::from_unix(ticks, per_second)
        .map_or_else(|| Value::from(ticks), |datetime| Value::String(utc::format(datetime, digits)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::basic::{Compression, GzipLevel, ZstdLevel};
    use parquet::column::writer::ColumnWriter;
    use parquet::data_type::{ByteArray, FixedLenByteArray};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use serde_json::json;

    use super::*;
    use crate::app::data::row_file::RowFormat;
    use crate::app::data::row_file::{Layout, ParquetCompression};

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

    /// Writes a file with one value of each type, as other programs do.
    fn write_types(path: &Path, compression: Compression) {
        let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
        let file = File::create(path).unwrap();
        let properties = WriterProperties::builder().set_compression(compression).build();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
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
                _ => panic!("the schema has no such column"),
            };
            written.unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn skipped_rows_are_not_buffered() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("r.parquet");
        let columns = vec![("n".to_string(), ColumnType::Integer)];
        let layout = Layout { format: RowFormat::Parquet, compression: ParquetCompression::default(), columns };
        let mut file = File::create(&path).unwrap();
        layout
            .write((0..100).map(|row| crate::app::data::row_file::FileRow::New(json!({ "n": row }))), &mut file)
            .unwrap();
        let mut dataset = scan(&path).unwrap();
        for rows in [0..20, 40..50, 50..60, 30..40, 25..25] {
            dataset.skip_rows(rows);
        }
        let Source::Parquet(table) = &dataset.source else { panic!("this is a Parquet file") };
        assert_eq!(table.skipped_rows, BTreeMap::from([(0, 20), (30, 60)]));
        assert_eq!(dataset.read(80..81).unwrap()[0][0], 80);
        let buffered: Vec<u64> = table.cursor.lock().buffered.keys().copied().collect();
        assert_eq!(buffered, (20..30).chain(60..80).collect::<Vec<u64>>());
        assert_eq!(dataset.read(25..26).unwrap()[0][0], 25);
        assert_eq!(table.cursor.lock().next, 81, "a buffered row is not read again");
    }

    #[test]
    fn each_type_becomes_the_nearest_json_type_under_each_compression() {
        let scratch = tempfile::tempdir().unwrap();
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
        for compression in [
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::GZIP(GzipLevel::default()),
            Compression::ZSTD(ZstdLevel::default()),
            Compression::LZ4,
            Compression::LZ4_RAW,
        ] {
            let path = scratch.path().join("types.parquet");
            write_types(&path, compression);
            let dataset = scan(&path).unwrap();
            let row = dataset.read(0..1).unwrap().remove(0);
            let named: serde_json::Map<_, _> = dataset.columns().iter().cloned().zip(row).collect();
            assert_eq!(Value::Object(named), expected, "{compression}");
        }
    }
}
