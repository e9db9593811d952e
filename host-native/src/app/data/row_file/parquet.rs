//! Rows as a Parquet file of one row group, compressed with Snappy.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{FileRow, StoredRow};
use crate::app::data::Row;
use crate::app::data::column_type::ValueKind;

pub(super) fn write<T: Serialize>(
    columns: &[(String, ValueKind)],
    rows: impl IntoIterator<Item = FileRow<T>>,
    file: &mut (impl Write + Send),
) -> io::Result<()> {
    let fields = |row: FileRow<T>| Ok((super::fields(&row)?, matches!(row, FileRow::Stored(_))));
    let rows = rows.into_iter().map(fields).collect::<io::Result<Vec<_>>>()?;
    write_file(columns, &rows, file).map_err(io::Error::other)
}

/// The rows of the file at `path`, each with its number, which is in the first column.
pub(super) fn read(columns: &[(String, ValueKind)], path: &Path) -> io::Result<Vec<(u64, StoredRow)>> {
    let rows = crate::app::data::parquet_rows(path).map_err(io::Error::other)?;
    let read = |values: Row| {
        let number = values.first().and_then(Value::as_u64);
        let number = number.ok_or_else(|| super::invalid("a row has no row number".to_string()))?;
        let fields = columns.iter().map(|(name, _)| name.clone()).zip(values.into_vec());
        Ok((number, StoredRow::Fields(fields.collect())))
    };
    rows.into_iter().map(read).collect()
}

/// `rows`: each with whether it stood in a file before.
fn write_file(
    columns: &[(String, ValueKind)],
    rows: &[(Map<String, Value>, bool)],
    file: &mut (impl Write + Send),
) -> Result<()> {
    let fields = columns.iter().map(|(name, kind)| field(name, *kind)).collect::<Result<Vec<_>>>()?;
    let schema = Arc::new(Type::group_type_builder("rows").with_fields(fields).build()?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("tidegate ", env!("CARGO_PKG_VERSION")).to_string())
        .build();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (name, kind) in columns {
        let Some(column) = group.next_column()? else {
            return Err(ParquetError::General(format!("there is no place for the column {name}")));
        };
        let values: Vec<(&Value, bool)> =
            rows.iter().map(|(row, is_stored)| (row.get(name).unwrap_or(&Value::Null), *is_stored)).collect();
        write_column(column, *kind, &values)
            .map_err(|error| ParquetError::General(format!("the column `{name}`: {error}")))?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

fn field(name: &str, kind: ValueKind) -> Result<TypePtr> {
    let primitive = |physical| Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
    let built = match kind {
        ValueKind::Bool => primitive(Physical::BOOLEAN).build()?,
        ValueKind::Integer => primitive(Physical::INT64).build()?,
        ValueKind::Number => primitive(Physical::DOUBLE).build()?,
        ValueKind::Text | ValueKind::Null | ValueKind::Json => primitive(Physical::BYTE_ARRAY)
            .with_logical_type(Some(LogicalType::String))
            .with_converted_type(ConvertedType::UTF8)
            .build()?,
        ValueKind::Numbers => {
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

fn write_column(mut column: SerializedColumnWriter<'_>, kind: ValueKind, values: &[(&Value, bool)]) -> Result<()> {
    match column.untyped() {
        ColumnWriter::BoolColumnWriter(writer) => {
            let (present, levels) = optional(values, |value, _| value.as_bool())?;
            writer.write_batch(&present, Some(&levels), None)?;
        }
        ColumnWriter::Int64ColumnWriter(writer) => {
            let (present, levels) = optional(values, |value, _| whole_number(value))?;
            writer.write_batch(&present, Some(&levels), None)?;
        }
        ColumnWriter::DoubleColumnWriter(writer) if kind == ValueKind::Numbers => {
            let (present, levels, repeats) = lists(values);
            writer.write_batch(&present, Some(&levels), Some(&repeats))?;
        }
        ColumnWriter::DoubleColumnWriter(writer) => {
            let (present, levels) = optional(values, |value, _| value.as_f64())?;
            writer.write_batch(&present, Some(&levels), None)?;
        }
        ColumnWriter::ByteArrayColumnWriter(writer) => {
            let (present, levels) = optional(values, |value, is_stored| text(value, kind, is_stored))?;
            writer.write_batch(&present, Some(&levels), None)?;
        }
        _ => return Err(ParquetError::General("a column has a type that no row has".to_string())),
    }
    column.close()
}

/// The values that are there, and for each row whether it has one. A value that the column's type cannot hold is an
/// error: to leave it out would change the data.
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

/// A whole number, also one that is written with a fraction of nothing: a schema's `integer` takes `3.0`.
fn whole_number(value: &Value) -> Option<i64> {
    /// Up to here every whole number is a double.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = || value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= EXACT);
    value.as_i64().or_else(|| float().map(|number| number as i64))
}

/// A text as it is; anything else, and everything in a column of anything, as JSON, which what stood in a
/// file is already. Null is null in both.
fn text(value: &Value, kind: ValueKind, is_stored: bool) -> Option<ByteArray> {
    let text = match value {
        Value::Null => return None,
        Value::String(text) if is_stored || kind != ValueKind::Json => text.clone(),
        other => other.to_string(),
    };
    Some(ByteArray::from(text.into_bytes()))
}

/// Levels as the three-level list of the format has them: 0 no list, 1 an empty one, 2 an element; an element that goes
/// on with a list repeats at 1.
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
    use crate::app::data::{Dataset, DatasetFormat};
    use serde_json::json;

    #[test]
    fn what_is_written_is_read_back_as_it_was_and_anything_as_json_text() {
        let kinds = [
            ("row", ValueKind::Integer),
            ("flag", ValueKind::Bool),
            ("share", ValueKind::Number),
            ("note", ValueKind::Text),
            ("vector", ValueKind::Numbers),
            ("any", ValueKind::Json),
        ];
        let columns: Vec<_> = kinds.map(|(name, kind)| (name.to_string(), kind)).to_vec();
        let rows = [
            json!({"row": 0, "flag": true, "share": 1, "note": "é", "vector": [0.5, -1.0], "any": {"a": [1]}}),
            json!({"row": 1, "flag": null, "share": null, "note": null, "vector": null, "any": null}),
            json!({"row": 2, "flag": false, "share": 0.25, "note": "", "vector": [], "any": "text"}),
        ];
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("r.parquet");
        let mut file = std::fs::File::create(&path).unwrap();
        write(&columns, rows.map(FileRow::Made), &mut file).unwrap();
        let dataset = Dataset::load(&path, DatasetFormat::Parquet).unwrap();
        assert_eq!(dataset.columns(), kinds.map(|(name, _)| name));
        let read: Vec<Value> =
            dataset.read(0..3).unwrap().into_iter().map(|row| Value::Array(row.into_vec())).collect();
        assert_eq!(read[0], json!([0, true, 1.0, "é", [0.5, -1.0], "{\"a\":[1]}"]));
        assert_eq!(read[1], json!([1, null, null, null, null, null]));
        assert_eq!(read[2], json!([2, false, 0.25, "", [], "\"text\""]));
    }

    #[test]
    fn whole_numbers_are_those_that_are_whole_and_what_does_not_fit_is_an_error() {
        assert_eq!(whole_number(&json!(3.0)), Some(3));
        assert_eq!(whole_number(&json!(3.5)), None);
        let columns = [("n".to_string(), ValueKind::Integer)];
        let error =
            write(&columns, [FileRow::Made(json!({ "n": u64::MAX }))], &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("the column `n`: ") && error.contains("18446744073709551615"), "{error}");
    }

    #[test]
    fn a_group_without_rows_is_a_file_without_rows() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("r.parquet");
        let columns = [("n".to_string(), ValueKind::Integer), ("v".to_string(), ValueKind::Numbers)];
        write(&columns, Vec::<FileRow<Value>>::new(), &mut std::fs::File::create(&path).unwrap()).unwrap();
        let error = Dataset::load(&path, DatasetFormat::Parquet).unwrap_err();
        assert_eq!(error.message, "the dataset is empty: expected at least one row");
    }

    #[test]
    fn a_file_that_is_not_parquet_or_is_cut_is_refused_without_a_panic() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("r.parquet");
        std::fs::write(&path, "id,note\n1,a\n").unwrap();
        let error = Dataset::load(&path, DatasetFormat::Parquet).unwrap_err();
        assert!(error.message.starts_with("this is not a Parquet file: "), "{error}");
        let columns = vec![("a".to_string(), ValueKind::Text)];
        let mut whole = Vec::new();
        write(&columns, (0..50).map(|row| FileRow::Made(json!({"a": format!("text {row}")}))), &mut whole).unwrap();
        for at in (0..whole.len()).step_by(3) {
            let mut broken = whole.clone();
            broken[at] ^= 0x55;
            std::fs::write(&path, &broken).unwrap();
            // Refused, or read as something else: whatever it is, it is not a crash.
            let _ = Dataset::load(&path, DatasetFormat::Parquet).map(|dataset| dataset.read(0..dataset.rows()));
        }
    }

    #[test]
    fn rows_are_found_in_any_order() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("r.parquet");
        let columns = vec![("n".to_string(), ValueKind::Integer)];
        let mut file = std::fs::File::create(&path).unwrap();
        write(&columns, (0..300).map(|row| FileRow::Made(json!({ "n": row }))), &mut file).unwrap();
        let dataset = Dataset::load(&path, DatasetFormat::Parquet).unwrap();
        for start in [40, 0, 20, 60, 250, 100, 0] {
            let rows = dataset.read(start..start + 20).unwrap();
            assert!(rows.iter().zip(start..).all(|(row, number)| row[0] == number), "{start}");
        }
    }
}
