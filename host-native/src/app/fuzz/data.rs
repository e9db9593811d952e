//! Datasets and decision logs.

use std::path::Path;

use tidegate_core::replay::LogReader;

use super::{fuzz, fuzz_text, json_tokens};
use crate::app::data::{Dataset, DatasetFormat};
use crate::app::replay;

/// A dataset is refused, or each of its rows can be read.
fn check_dataset(bytes: &[u8], format: DatasetFormat) {
    match Dataset::parse(Path::new("fuzz.data"), bytes, format) {
        Ok(dataset) => {
            let rows = dataset.rows();
            let text = String::from_utf8_lossy(bytes);
            let read = dataset.read(0..rows).unwrap_or_else(|error| panic!("{error}: {text:?}"));
            assert_eq!(read.len() as u64, rows, "{text:?}");
            assert!(!dataset.columns().is_empty());
            assert!(dataset.read(rows..rows + 1).is_err());
        }
        Err(error) => assert!(error.to_string().contains("fuzz.data"), "{error}"),
    }
}

#[test]
fn a_csv_dataset_is_refused_or_every_row_is_read() {
    let corpus: [&[u8]; 4] = [
        include_bytes!("../../../example/harbour_log.csv"),
        b"\xff\xfea\0;\0b\0\n\x001\0;\0\xe9\0\n\0",
        b"a,b\n1,2\n\"x\ny\",\"\"\"\"\n",
        b"\xef\xbb\xbfa;b\r\n1;2\r\n",
    ];
    fuzz(&corpus, &["\"", "\"\"", ",", "\n", "\r\n", "\r", "a", "\0", "é", ";", "\t", ",,", "\u{feff}"], |bytes| {
        check_dataset(bytes, DatasetFormat::Csv);
    });
}

#[test]
fn a_jsonl_dataset_is_refused_or_every_row_is_read() {
    let corpus: [&[u8]; 2] = [
        b"{\"a\": 1, \"b\": [true, null]}\n{\"a\": \"x\", \"b\": {\"c\": 1e3}}\n",
        b"{\"a\":\"\\ud83d\\ude00\"}\n\n{\"a\":2}",
    ];
    fuzz(&corpus, &json_tokens(&["\"a\":", "[[[[[[[[[[[[[[[["]), |bytes| check_dataset(bytes, DatasetFormat::Jsonl));
}

#[cfg(feature = "parquet")]
#[test]
fn a_parquet_dataset_is_refused_or_every_row_is_read() {
    use serde_json::json;

    use crate::app::data::column_type::ColumnType;
    use crate::app::data::row_file::{FileRow, Layout, ParquetCompression, RowFormat};

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("fuzz.parquet");
    let columns = [("row", ColumnType::Integer), ("note", ColumnType::Text), ("vector", ColumnType::Numbers)];
    let columns = columns.map(|(name, kind)| (name.to_string(), kind)).to_vec();
    let rows = (0..40).map(|row| FileRow::New(json!({"row": row, "note": "é".repeat(row), "vector": [0.5, row]})));
    let mut corpus = Vec::new();
    Layout { format: RowFormat::Parquet, compression: ParquetCompression::default(), columns }
        .write(rows, &mut corpus)
        .expect("it can be written");
    fuzz(&[&corpus], &["PAR1", "\0", "\x7f", "\u{7ff}"], |bytes| {
        std::fs::write(&path, bytes).expect("it can be written");
        match Dataset::load(&path, DatasetFormat::Parquet, None) {
            Ok(dataset) => drop(dataset.read(0..dataset.rows())),
            Err(error) => assert!(error.to_string().contains("fuzz.parquet"), "{error}"),
        }
    });
}

#[test]
fn a_decision_log_is_replayed_or_refused() {
    let log = include_str!("../../../tests/data/decision_log.jsonl");
    let shared_log = include_str!("../../../tests/data/shared_decision_log.jsonl");
    let leader_log = include_str!("../../../tests/data/leader_decision_log.jsonl");
    // The beginning of a log is a log.
    let corpus: Vec<String> = [(log, 40), (log, 150), (shared_log, 150), (leader_log, 150)]
        .map(|(log, lines)| log.lines().take(lines).map(|line| line.to_string() + "\n").collect())
        .into();
    let corpus: Vec<&str> = corpus.iter().map(String::as_str).collect();
    let tokens =
        ["{", "}", "[", "]", "\"", ":", ",", "\n", "null", "0", "1", "18446744073709551615", "-1", "now", "lease"];
    fuzz_text(&corpus, &tokens, |text| {
        let mut reader = LogReader::default();
        if text.as_bytes().split(|byte| *byte == b'\n').try_for_each(|line| reader.feed(replay::parse(line))).is_ok()
            && let Ok(log) = reader.finish()
        {
            drop(log.replay());
        }
    });
}
