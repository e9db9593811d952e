//! Files of finished rows: JSONL, CSV or Parquet.
//!
//! | format | text | numbers, true and false | null | lists and objects |
//! | --- | --- | --- | --- | --- |
//! | JSONL | as it is | as they are | null | as they are |
//! | CSV | as it is | as JSON writes them | empty, like the empty text | JSON text |
//! | Parquet | UTF-8 | typed, where the whole column has one type | null | vectors as lists of doubles, others as JSON text |
//!
//! The types of Parquet columns follow from the pipeline file and the dataset, so all files of a run have the same. A
//! column that may hold values of several types is JSON text throughout.

#[cfg(feature = "parquet")]
mod parquet;

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::kind::ValueKind;
use crate::pipeline_file::RowFormat;

/// How rows are written, and of which columns.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// The format.
    pub format: RowFormat,
    /// The columns in order, the row number included. JSONL needs none.
    pub columns: Vec<(String, ValueKind)>,
}

impl Layout {
    /// Writes `rows` to `file`.
    pub fn write<T: Serialize>(
        &self,
        rows: impl IntoIterator<Item = T>,
        file: &mut (impl Write + Send),
    ) -> io::Result<()> {
        match self.format {
            RowFormat::Jsonl => write_jsonl(rows, file),
            RowFormat::Csv => self.write_csv(rows, file),
            #[cfg(feature = "parquet")]
            RowFormat::Parquet => parquet::write(&self.columns, rows, file),
        }
    }

    fn write_csv<T: Serialize>(&self, rows: impl IntoIterator<Item = T>, file: &mut impl Write) -> io::Result<()> {
        let mut writer = csv::Writer::from_writer(file);
        writer.write_record(self.columns.iter().map(|(name, _)| name))?;
        for row in rows {
            let row = fields(&row)?;
            writer.write_record(self.columns.iter().map(|(name, _)| field_text(row.get(name))))?;
        }
        writer.flush()
    }
}

fn write_jsonl<T: Serialize>(rows: impl IntoIterator<Item = T>, file: &mut impl Write) -> io::Result<()> {
    for row in rows {
        serde_json::to_writer(&mut *file, &row)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}

/// The values of a row by column.
fn fields(row: &impl Serialize) -> io::Result<Map<String, Value>> {
    match serde_json::to_value(row)? {
        Value::Object(fields) => Ok(fields),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a row is not an object")),
    }
}

fn field_text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn csv_has_a_header_and_json_where_a_field_is_no_text() {
        let columns = ["row", "note", "tags"].map(|name| (name.to_string(), ValueKind::Json)).to_vec();
        let layout = Layout { format: RowFormat::Csv, columns };
        let rows =
            [json!({"row": 0, "note": "a \"b\",\nc", "tags": ["x", 1]}), json!({"row": 1, "note": null, "tags": true})];
        let mut file = Vec::new();
        layout.write(rows, &mut file).unwrap();
        let text = String::from_utf8(file).unwrap();
        assert_eq!(text, "row,note,tags\n0,\"a \"\"b\"\",\nc\",\"[\"\"x\"\",1]\"\n1,,true\n");
    }
}
