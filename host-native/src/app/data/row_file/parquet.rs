//! Files of rows in Parquet. Those of a run have one Parquet row group each.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, GzipLevel, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use serde_json::{Map, Value};

use super::{Layout, ParquetCompression, StoredRow};
use crate::app::data::Row;
use crate::app::data::column_type::ColumnType;

/// Reads the rows of the file at `path`. The first column holds the row number.
pub(super) fn read(columns: &[(String, ColumnType)], path: &Path) -> io::Result<Vec<(u64, StoredRow)>> {
    let rows = crate::app::data::parquet_rows(path).map_err(io::Error::other)?;
    let read = |values: Row| {
        let number = values.first().and_then(Value::as_u64);
        let number = number.ok_or_else(|| super::invalid_data("a row has no row number".to_string()))?;
        let fields = columns.iter().map(|(name, _)| name.clone()).zip(values.into_vec());
        Ok((number, StoredRow::Fields(fields.collect())))
    };
    rows.into_iter().map(read).collect()
}

/// Writes a file. Collects the rows of a row group in memory.
pub(super) struct Writer<W: Write + Send> {
    file: SerializedFileWriter<W>,
    /// The rows of the current row group. The flag of a row is whether it was read from a file, where JSON
    /// values are already text.
    rows: Vec<(Map<String, Value>, bool)>,
    has_group: bool,
}

impl<W: Write + Send> Writer<W> {
    pub(super) fn new(layout: &Layout, file: W) -> io::Result<Self> {
        let compression = match layout.compression {
            ParquetCompression::Snappy => Compression::SNAPPY,
            ParquetCompression::Zstd => Compression::ZSTD(ZstdLevel::default()),
            ParquetCompression::Lz4 => Compression::LZ4_RAW,
            ParquetCompression::Gzip => Compression::GZIP(GzipLevel::default()),
            ParquetCompression::None => Compression::UNCOMPRESSED,
        };
        let start = || {
            let fields = layout.columns.iter().map(|(name, column_type)| field(name, *column_type));
            let schema = Type::group_type_builder("rows").with_fields(fields.collect::<Result<Vec<_>>>()?).build()?;
            let properties = WriterProperties::builder()
                .set_compression(compression)
                .set_created_by(concat!("tidegate ", env!("CARGO_PKG_VERSION")).to_string())
                .build();
            SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))
        };
        Ok(Self { file: start().map_err(io::Error::other)?, rows: Vec::new(), has_group: false })
    }

    pub(super) fn push(&mut self, row: Map<String, Value>, is_stored: bool) {
        self.rows.push((row, is_stored));
    }

    /// Writes the collected rows as a row group. Fails if the type of a column cannot hold a value.
    pub(super) fn write_group(&mut self, columns: &[(String, ColumnType)]) -> io::Result<()> {
        self.try_write_group(columns).map_err(into_io)
    }

    fn try_write_group(&mut self, columns: &[(String, ColumnType)]) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        self.has_group = true;
        let mut group = self.file.next_row_group()?;
        for (name, column_type) in columns {
            let Some(column) = group.next_column()? else {
                return Err(ParquetError::General(format!("the schema has no column `{name}`")));
            };
            let values: Vec<(&Value, bool)> =
                rows.iter().map(|(row, is_stored)| (row.get(name).unwrap_or(&Value::Null), *is_stored)).collect();
            write_column(column, *column_type, &values).map_err(|error| match error {
                ParquetError::General(why) => ParquetError::General(format!("the column `{name}`: {why}")),
                other => other,
            })?;
        }
        group.close().map(drop)
    }

    /// Completes the file, which has at least one row group.
    pub(super) fn finish(mut self, columns: &[(String, ColumnType)]) -> io::Result<()> {
        if !self.rows.is_empty() || !self.has_group {
            self.write_group(columns)?;
        }
        self.file.close().map(drop).map_err(into_io)
    }
}

/// Returns the error of the file, if there was one.
fn into_io(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        other => io::Error::other(other),
    }
}

fn field(name: &str, column_type: ColumnType) -> Result<TypePtr> {
    let primitive = |physical| Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
    let built = match column_type {
        ColumnType::Bool => primitive(Physical::BOOLEAN).build()?,
        ColumnType::Integer => primitive(Physical::INT64).build()?,
        ColumnType::Number => primitive(Physical::DOUBLE).build()?,
        ColumnType::Text | ColumnType::Null | ColumnType::Json => primitive(Physical::BYTE_ARRAY)
            .with_logical_type(Some(LogicalType::String))
            .with_converted_type(ConvertedType::UTF8)
            .build()?,
        ColumnType::Numbers => {
            let element =
                Type::primitive_type_builder("element", Physical::DOUBLE).with_repetition(Repetition::REQUIRED);
            let list = Type::group_type_builder("list")
                .with_repetition(Repetition::REPEATED)
                .with_fields(vec![Arc::new(element.build()?)]);
            Type::group_type_builder(name)
                .with_repetition(Repetition::OPTIONAL)
                .with_logical_type(Some(LogicalType::List))
                .with_converted_type(ConvertedType::LIST)
                .with_fields(vec![Arc::new(list.build()?)])
                .build()?
        }
    };
    Ok(Arc::new(built))
}

fn write_column(
    mut column: SerializedColumnWriter<'_>,
    column_type: ColumnType,
    values: &[(&Value, bool)],
) -> Result<()> {
    match column.untyped() {
        ColumnWriter::BoolColumnWriter(writer) => {
            let (present, levels) = optional(values, |value, _| value.as_bool())?;
            writer.write_batch(&present, Some(&levels), None)?;
        }
        ColumnWriter::Int64ColumnWriter(writer) => {
            let (present, levels) = optional(values, |value, _| integer(value))?;
            writer.write_batch(&present, Some(&levels), None)?;
        }
        ColumnWriter::DoubleColumnWriter(writer) if column_type == ColumnType::Numbers => {
            let (present, levels, repeats) = lists(values);
            writer.write_batch(&present, Some(&levels), Some(&repeats))?;
        }
        ColumnWriter::DoubleColumnWriter(writer) => {
            let (present, levels) = optional(values, |value, _| value.as_f64())?;
            writer.write_batch(&present, Some(&levels), None)?;
        }
        ColumnWriter::ByteArrayColumnWriter(writer) => {
            let (present, levels) = optional(values, |value, is_stored| text(value, column_type, is_stored))?;
            writer.write_batch(&present, Some(&levels), None)?;
        }
        _ => return Err(ParquetError::General("a column has an unexpected physical type".to_string())),
    }
    column.close()
}

/// Returns the values that are not null, and a definition level for each row: 1 for a value, 0 for null.
/// Fails for a value that the type of the column cannot hold, since omitting it would change the data.
fn optional<T>(values: &[(&Value, bool)], read: impl Fn(&Value, bool) -> Option<T>) -> Result<(Vec<T>, Vec<i16>)> {
    let mut present = Vec::with_capacity(values.len());
    let mut levels = Vec::with_capacity(values.len());
    for &(value, is_stored) in values {
        levels.push(i16::from(!value.is_null()));
        if value.is_null() {
            continue;
        }
        match read(value, is_stored) {
            Some(value) => present.push(value),
            None => return Err(ParquetError::General(format!("its type cannot hold {value}"))),
        }
    }
    Ok((present, levels))
}

/// Returns an integer, also for a number such as `3.0`, which the JSON Schema type `integer` accepts.
fn integer(value: &Value) -> Option<i64> {
    /// 2^53: up to this magnitude, an `f64` represents every integer exactly.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = || value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= EXACT);
    value.as_i64().or_else(|| float().map(|number| number as i64))
}

/// Returns the text of a value. A value that is not a string becomes JSON text, and so does every new value
/// of a [`ColumnType::Json`] column; a value that was read from a file is JSON text already. Null has no
/// text.
fn text(value: &Value, column_type: ColumnType, is_stored: bool) -> Option<ByteArray> {
    let text = match value {
        Value::Null => return None,
        Value::String(text) if is_stored || column_type != ColumnType::Json => text.clone(),
        other => other.to_string(),
    };
    Some(ByteArray::from(text.into_bytes()))
}

/// Returns the elements of all lists with their definition and repetition levels, for the three-level list of
/// the Parquet format. Definition levels: 0 for null, 1 for an empty list, 2 for an element. Repetition
/// levels: 0 for the first element of a list, 1 for the others.
fn lists(values: &[(&Value, bool)]) -> (Vec<f64>, Vec<i16>, Vec<i16>) {
    let (mut present, mut levels, mut repeats) = (Vec::new(), Vec::new(), Vec::new());
    for (value, _) in values {
        let numbers = value.as_array().map(|list| list.iter().filter_map(Value::as_f64).collect::<Vec<f64>>());
        match numbers {
            Some(numbers) if !numbers.is_empty() => {
                repeats.extend((0..numbers.len()).map(|at| i16::from(at > 0)));
                levels.extend(numbers.iter().map(|_| 2));
                present.extend(numbers);
            }
            other => {
                levels.push(i16::from(other.is_some()));
                repeats.push(0);
            }
        }
    }
    (present, levels, repeats)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::data::row_file::{FileRow, RowFormat};
    use crate::app::data::{Dataset, DatasetFormat};
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use serde_json::json;

    fn write(
        columns: &[(String, ColumnType)],
        rows: impl IntoIterator<Item = FileRow<Value>>,
        file: &mut (impl Write + Send),
    ) -> io::Result<()> {
        write_compressed(ParquetCompression::default(), columns, rows, file)
    }

    fn write_compressed(
        compression: ParquetCompression,
        columns: &[(String, ColumnType)],
        rows: impl IntoIterator<Item = FileRow<Value>>,
        file: &mut (impl Write + Send),
    ) -> io::Result<()> {
        Layout { format: RowFormat::Parquet, compression, columns: columns.to_vec() }.write(rows, file)
    }

    #[test]
    fn a_file_has_the_compression_that_is_given_and_is_read_back() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("r.parquet");
        let columns = [("note".to_string(), ColumnType::Text)];
        for (compression, name) in [
            (ParquetCompression::Snappy, "SNAPPY"),
            (ParquetCompression::Zstd, "ZSTD"),
            (ParquetCompression::Lz4, "LZ4_RAW"),
            (ParquetCompression::Gzip, "GZIP"),
            (ParquetCompression::None, "UNCOMPRESSED"),
        ] {
            let rows = (0..50).map(|row| FileRow::New(json!({"note": format!("entry {row} of the log")})));
            write_compressed(compression, &columns, rows, &mut std::fs::File::create(&path).unwrap()).unwrap();
            let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
            let written = reader.metadata().row_group(0).column(0).compression();
            assert!(format!("{written:?}").starts_with(name), "{written:?}");
            let dataset = Dataset::load(&path, DatasetFormat::Parquet, None).unwrap();
            assert_eq!(dataset.read(49..50).unwrap()[0][0], "entry 49 of the log", "{name}");
        }
    }

    #[test]
    fn values_are_read_back_unchanged_and_those_of_json_columns_as_json_text() {
        let column_types = [
            ("row", ColumnType::Integer),
            ("flag", ColumnType::Bool),
            ("share", ColumnType::Number),
            ("note", ColumnType::Text),
            ("vector", ColumnType::Numbers),
            ("any", ColumnType::Json),
        ];
        let columns: Vec<_> = column_types.map(|(name, column_type)| (name.to_string(), column_type)).to_vec();
        let rows = [
            json!({"row": 0, "flag": true, "share": 1, "note": "é", "vector": [0.5, -1.0], "any": {"a": [1]}}),
            json!({"row": 1, "flag": null, "share": null, "note": null, "vector": null, "any": null}),
            json!({"row": 2, "flag": false, "share": 0.25, "note": "", "vector": [], "any": "text"}),
        ];
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("r.parquet");
        let mut file = std::fs::File::create(&path).unwrap();
        write(&columns, rows.map(FileRow::New), &mut file).unwrap();
        let dataset = Dataset::load(&path, DatasetFormat::Parquet, None).unwrap();
        assert_eq!(dataset.columns(), column_types.map(|(name, _)| name));
        let read: Vec<Value> =
            dataset.read(0..3).unwrap().into_iter().map(|row| Value::Array(row.into_vec())).collect();
        assert_eq!(read[0], json!([0, true, 1.0, "é", [0.5, -1.0], "{\"a\":[1]}"]));
        assert_eq!(read[1], json!([1, null, null, null, null, null]));
        assert_eq!(read[2], json!([2, false, 0.25, "", [], "\"text\""]));
    }

    #[test]
    fn integers_may_have_a_zero_fraction_and_a_value_that_does_not_fit_is_an_error() {
        assert_eq!(integer(&json!(3.0)), Some(3));
        assert_eq!(integer(&json!(3.5)), None);
        let columns = [("n".to_string(), ColumnType::Integer)];
        let error = write(&columns, [FileRow::New(json!({ "n": u64::MAX }))], &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("the column `n`: ") && error.contains("18446744073709551615"), "{error}");
    }

    #[test]
    fn an_empty_row_group_is_a_file_without_rows() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("r.parquet");
        let columns = [("n".to_string(), ColumnType::Integer), ("v".to_string(), ColumnType::Numbers)];
        write(&columns, Vec::<FileRow<Value>>::new(), &mut std::fs::File::create(&path).unwrap()).unwrap();
        let error = Dataset::load(&path, DatasetFormat::Parquet, None).unwrap_err();
        assert_eq!(error.message, "the dataset is empty: expected at least one row");
    }

    #[test]
    fn a_file_that_is_not_parquet_or_is_corrupted_does_not_panic() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("r.parquet");
        std::fs::write(&path, "id,note\n1,a\n").unwrap();
        let error = Dataset::load(&path, DatasetFormat::Parquet, None).unwrap_err();
        assert!(error.message.starts_with("this is not a Parquet file: "), "{error}");
        let columns = vec![("a".to_string(), ColumnType::Text)];
        let mut whole = Vec::new();
        write(&columns, (0..50).map(|row| FileRow::New(json!({"a": format!("text {row}")}))), &mut whole).unwrap();
        for at in (0..whole.len()).step_by(3) {
            let mut broken = whole.clone();
            broken[at] ^= 0x55;
            std::fs::write(&path, &broken).unwrap();
            // Either result is fine, as long as nothing panics.
            let _ = Dataset::load(&path, DatasetFormat::Parquet, None).map(|dataset| dataset.read(0..dataset.rows()));
        }
    }

    #[test]
    fn rows_can_be_read_in_any_order() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("r.parquet");
        let columns = vec![("n".to_string(), ColumnType::Integer)];
        let mut file = std::fs::File::create(&path).unwrap();
        write(&columns, (0..300).map(|row| FileRow::New(json!({ "n": row }))), &mut file).unwrap();
        let dataset = Dataset::load(&path, DatasetFormat::Parquet, None).unwrap();
        for start in [40, 0, 20, 60, 250, 100, 0] {
            let rows = dataset.read(start..start + 20).unwrap();
            assert!(rows.iter().zip(start..).all(|(row, number)| row[0] == number), "{start}");
        }
    }
}
