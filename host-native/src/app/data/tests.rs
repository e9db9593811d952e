use super::*;
use serde_json::json;

fn csv(text: &str) -> Result<Dataset, String> {
    Dataset::parse(Path::new("d.csv"), text.as_bytes(), DatasetFormat::Csv).map_err(|error| error.to_string())
}

fn jsonl(text: &str) -> Result<Dataset, String> {
    Dataset::parse(Path::new("d.jsonl"), text.as_bytes(), DatasetFormat::Jsonl).map_err(|error| error.to_string())
}

fn row(dataset: &Dataset, row: u64) -> Vec<Value> {
    dataset.read(row..row + 1).unwrap().remove(0).into_vec()
}

#[test]
fn csv_values_are_strings_and_may_contain_quotes_and_line_breaks() {
    let dataset = csv("\u{feff}id,note\n1,\"a \"\"big\"\"\nboat\"\n2,\n").unwrap();
    assert_eq!(dataset.columns(), ["id", "note"]);
    assert_eq!(row(&dataset, 0), [json!("1"), json!("a \"big\"\nboat")]);
    assert_eq!(row(&dataset, 1), [json!("2"), json!("")]);
}

#[test]
fn a_csv_row_with_a_wrong_number_of_fields_is_rejected_with_its_line() {
    assert_eq!(csv("a,b\n1,2\n3\n").unwrap_err(), "d.csv:3: the row has 1 fields; expected 2, as in the header");
}

#[test]
fn a_quote_that_is_never_closed_is_rejected() {
    let error = csv("a,b\n1,2\n3,\"open\n4,5\n").unwrap_err();
    assert_eq!(error, "d.csv:3: a quoted field that starts here is never closed");
    csv("a,b\n1,\"x\"\"y\"\n2,5\" pipe\n").expect("quotes inside a field are valid");
}

#[test]
fn a_csv_field_that_is_not_utf8_is_rejected_with_its_line() {
    let error = Dataset::parse(Path::new("d.csv"), b"a,b\n1,\xff\n", DatasetFormat::Csv).unwrap_err();
    assert!(error.to_string().starts_with("d.csv:2: field 2 is not valid UTF-8; it looks like "), "{error}");
}

#[test]
fn jsonl_values_keep_their_types_and_columns_have_the_order_of_the_first_row() {
    let dataset = jsonl("{\"z\": 1, \"a\": [true]}\n\n{\"a\": null, \"z\": 2.5}\n").unwrap();
    assert_eq!(dataset.columns(), ["z", "a"]);
    assert_eq!(row(&dataset, 1), [json!(2.5), json!(null)]);
}

#[test]
fn a_malformed_jsonl_row_is_rejected_with_its_line() {
    for (text, expected) in [
        ("{\"a\":1}\n{\"a\":", "d.jsonl:2: expected one JSON object: EOF while parsing a value at column 5"),
        ("[1]\n", "d.jsonl:1: expected one JSON object: invalid type: sequence, expected an object at column 0"),
        ("{\"a\":1}\n{\"b\":1}\n", "d.jsonl:2: the row has no `a`, which the first row has (write null for no value)"),
        ("{\"a\":1}\n{\"a\":1,\"b\":1}\n", "d.jsonl:2: the row has `b`, which the first row does not have"),
        ("{\"a\":1,\"a\":2}\n", "d.jsonl:1: expected one JSON object: the key `a` occurs twice at column 13"),
    ] {
        assert_eq!(jsonl(text).unwrap_err(), expected);
    }
}

#[test]
fn a_dataset_without_rows_is_rejected() {
    for error in [csv("a,b\n").unwrap_err(), csv("").unwrap_err()] {
        assert_eq!(error, "d.csv: the dataset is empty: expected at least one row");
    }
    assert_eq!(jsonl("{}\n").unwrap_err(), "d.jsonl: the rows have no columns: expected at least one");
    assert!(jsonl("\n\n").unwrap_err().ends_with("the dataset is empty: expected at least one row"));
}

#[test]
fn a_column_without_a_name_or_with_the_name_of_another_is_rejected() {
    assert_eq!(csv("a,a\n1,2\n").unwrap_err(), "d.csv:1: the column `a` occurs twice");
    assert_eq!(csv("a,\n1,2\n").unwrap_err(), "d.csv:1: column 2 has no name");
    for columns in [["\u{e9}", "e\u{301}"], ["e\u{301}", "\u{e9}"]] {
        let [first, second] = columns;
        let message = format!("the column `{second}` occurs twice, in two forms of Unicode that look the same");
        assert_eq!(csv(&format!("{first},a,{second}\n1,2,3\n")).unwrap_err(), format!("d.csv:1: {message}"));
        assert_eq!(jsonl(&format!("{{\"{first}\":1,\"{second}\":2}}\n")).unwrap_err(), format!("d.jsonl:1: {message}"));
    }
}

/// Reads all rows in chunks of 45 rows, the last chunk first. The index has a different stride.
fn read_in_chunks(dataset: &Dataset) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    let starts: Vec<u64> = (0..dataset.rows()).step_by(45).collect();
    for start in starts.iter().rev() {
        let chunk = dataset.read(*start..(start + 45).min(dataset.rows())).unwrap();
        rows.splice(0..0, chunk.into_iter().map(<[Value]>::into_vec));
    }
    rows
}

#[test]
fn rows_can_be_read_in_any_order() {
    let scratch = tempfile::tempdir().unwrap();
    let (table, lines) = (scratch.path().join("d.csv"), scratch.path().join("d.jsonl"));
    let quoted = |row: u64| format!("{row},\"line {row}\nof \"\"two\"\"\"\r\n");
    std::fs::write(&table, "\u{feff}id,note\n".to_string() + &(0..500).map(quoted).collect::<String>()).unwrap();
    let object = |row: u64| format!("{{\"note\":{row},\"id\":\"{row}\"}}\n\n");
    std::fs::write(&lines, "\u{feff}".to_string() + &(0..500).map(object).collect::<String>()).unwrap();
    let table = Dataset::load(&table, DatasetFormat::Csv, None).unwrap();
    assert_eq!(table.rows(), 500);
    for (number, row) in read_in_chunks(&table).into_iter().enumerate() {
        assert_eq!(row, [json!(number.to_string()), json!(format!("line {number}\nof \"two\""))]);
    }
    let lines = Dataset::load(&lines, DatasetFormat::Jsonl, None).unwrap();
    for (number, row) in read_in_chunks(&lines).into_iter().enumerate() {
        assert_eq!(row, [json!(number), json!(number.to_string())]);
    }
}

#[test]
fn reading_fails_if_the_file_has_changed_or_the_rows_are_beyond_its_end() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("d.csv");
    std::fs::write(&path, "a\n1\n2\n").unwrap();
    let dataset = Dataset::load(&path, DatasetFormat::Csv, None).unwrap();
    assert_eq!(dataset.read(1..9).unwrap_err().message, "there are no rows 1..9: the dataset has 2");
    std::fs::write(&path, "a\n1\n").unwrap();
    assert_eq!(dataset.read(0..1).unwrap_err().message, "the file has changed since the run began");
}

#[test]
fn a_csv_row_that_begins_with_a_byte_order_mark_keeps_it() {
    for end in ["\n", "\r\n", "\r"] {
        let text = format!("a,b{end}\u{feff}1,2{end}\u{feff},{end}");
        let dataset = Dataset::parse(Path::new("d.csv"), text.as_bytes(), DatasetFormat::Csv).unwrap();
        let rows = dataset.read(0..dataset.rows()).unwrap();
        assert_eq!(rows, [["\u{feff}1", "2"], ["\u{feff}", ""]].map(|row| Box::from(row.map(Value::from))), "{end:?}");
    }
}

#[test]
fn the_digest_is_that_of_the_whole_file() {
    let scratch = tempfile::tempdir().unwrap();
    // More than one buffer of each reader, and a byte order mark.
    let rows = (0..40_000).map(|row| format!("{{\"a\":{row}}}\n\n")).collect::<Vec<_>>().concat();
    for (format, text) in [
        (DatasetFormat::Csv, format!("\u{feff}a,b\n{}", "1,\"x\ny\"\n".repeat(30_000))),
        (DatasetFormat::Csv, "a\n1".to_string()),
        (DatasetFormat::Jsonl, format!("\u{feff}{rows}")),
        (DatasetFormat::Jsonl, "{\"a\":1}".to_string()),
    ] {
        let expected = FileDigest::of(text.as_bytes()).unwrap();
        assert_eq!(expected.bytes, text.len() as u64);
        let path = scratch.path().join("d");
        std::fs::write(&path, &text).unwrap();
        assert_eq!(*Dataset::load(&path, format, None).unwrap().digest(), expected);
        assert_eq!(*Dataset::parse(&path, text.as_bytes(), format).unwrap().digest(), expected);
    }
    let abc = FileDigest::of(&b"abc"[..]).unwrap();
    assert_eq!(abc.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

/// Writes these files to a directory.
fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    directory
}

#[test]
fn the_files_of_a_directory_or_a_pattern_are_one_dataset_in_the_order_of_their_names() {
    let files = [
        ("logs [1]/b.jsonl", "{\"y\":\"b\",\"x\":3}\n{\"x\":4.5,\"y\":null}\n"),
        ("logs [1]/a.jsonl", "{\"x\":1,\"y\":\"a\"}\n{\"x\":2,\"y\":\"a\"}\n"),
        ("logs [1]/notes.csv", "z\n1\n"),
        ("logs [1]/.c.jsonl", "{}"),
    ];
    let directory = directory(&files);
    let load = |name: &str| Dataset::load(&directory.path().join(name), DatasetFormat::Jsonl, None).unwrap();
    for dataset in [load("logs [1]"), load("logs [1]/*.jsonl"), load("*/?.jsonl")] {
        assert_eq!((dataset.rows(), dataset.columns()), (4, &["x".to_string(), "y".to_string()][..]));
        assert_eq!(dataset.column_types(), [ColumnType::Number, ColumnType::Text]);
        let all = dataset.read(0..4).unwrap();
        let numbers: Vec<_> = all.iter().map(|row| row[0].as_f64().unwrap()).collect();
        assert_eq!(numbers, [1.0, 2.0, 3.0, 4.5]);
        assert_eq!(row(&dataset, 2), [json!(3), json!("b")]);
        assert_eq!(dataset.read(1..3).unwrap(), all[1..3]);
        assert_eq!(dataset.read(4..4).unwrap(), all[4..]);
        assert_eq!(dataset.digest(), load("logs [1]").digest());
        assert_eq!(dataset.paths().len(), 2);
    }
}

#[test]
fn names_of_columns_may_differ_between_rows_and_files_in_their_form_of_unicode() {
    let (composed, decomposed) = ("\u{e9}", "e\u{301}");
    let rows = format!("{{\"a\":1,\"{composed}\":2}}\n{{\"{decomposed}\":4,\"a\":3}}\n");
    let dataset = jsonl(&rows).unwrap();
    assert_eq!(dataset.columns(), ["a", composed]);
    assert_eq!(row(&dataset, 1), [json!(3), json!(4)]);
    let both = format!("{{\"{composed}\":1}}\n{{\"{composed}\":1,\"{decomposed}\":1}}\n");
    let error = format!("d.jsonl:2: the row has `{decomposed}`, which the first row does not have");
    assert_eq!(jsonl(&both).unwrap_err(), error);

    let header = |name: &str| format!("{name},b\n1,2\n");
    let other_order = format!("{{\"b\":4,\"{decomposed}\":3}}\n");
    let directory = directory(&[
        ("a.csv", &header(composed)),
        ("b.csv", &header(decomposed)),
        ("a.jsonl", &format!("{{\"{composed}\":1,\"b\":2}}\n")),
        ("b.jsonl", &other_order),
    ]);
    for format in [DatasetFormat::Csv, DatasetFormat::Jsonl] {
        let dataset = Dataset::load(directory.path(), format, None).unwrap();
        assert_eq!(dataset.columns(), [composed, "b"]);
        let expected = if format == DatasetFormat::Csv { [json!("1"), json!("2")] } else { [json!(3), json!(4)] };
        assert_eq!(row(&dataset, 1), expected);
    }
}

#[test]
fn files_that_are_no_dataset_together_are_rejected_with_the_file() {
    let directory = directory(&[("a.csv", "x,y\n1,2\n"), ("b.csv", "y,x\n1,2\n"), ("sub/c.csv", "x,y\n")]);
    let root = directory.path().display().to_string();
    let error = |name: &str| {
        let path = if name.is_empty() { directory.path().to_path_buf() } else { directory.path().join(name) };
        Dataset::load(&path, DatasetFormat::Csv, None).unwrap_err().to_string().replace(&root, "ROOT")
    };
    let columns = "ROOT/b.csv: its columns are y, x, and those of ROOT/a.csv are x, y: expected the same columns in the \
                   same order";
    assert_eq!(error(""), columns);
    assert_eq!(error("?.csv"), columns);
    assert_eq!(error("sub/*"), "ROOT/sub/c.csv: the dataset is empty: expected at least one row");
    assert_eq!(error("*.parquet"), "ROOT/*.parquet: no file matches this pattern");
    assert!(error("a***").starts_with("ROOT/a***: this is not a valid pattern: "), "{}", error("a***"));
    std::fs::remove_dir_all(directory.path().join("sub")).unwrap();
    std::fs::create_dir(directory.path().join("none")).unwrap();
    assert_eq!(error("none"), "ROOT/none: the directory has no csv files");
}

#[test]
fn the_separator_of_a_csv_file_is_found_in_its_header() {
    for (text, columns, first) in [
        ("a;b\n1,5;\"x;y\"\n", vec!["a", "b"], vec!["1,5", "x;y"]),
        ("a\tb,c\td\n1\t2\t3\n", vec!["a", "b,c", "d"], vec!["1", "2", "3"]),
        ("a|b\n1|2\n", vec!["a", "b"], vec!["1", "2"]),
        ("\"a;b;c\",d\n1,2\n", vec!["a;b;c", "d"], vec!["1", "2"]),
        ("a;b,c\n1,2\n", vec!["a;b", "c"], vec!["1", "2"]),
        ("alone\n1;2\n", vec!["alone"], vec!["1;2"]),
        ("\u{feff}a;b\r\n1;2\r\n", vec!["a", "b"], vec!["1", "2"]),
    ] {
        let dataset = csv(text).unwrap();
        assert_eq!(dataset.columns(), columns, "{text:?}");
        assert_eq!(row(&dataset, 0), first, "{text:?}");
    }
    assert_eq!(
        csv("a;b\n1\n").unwrap_err(),
        "d.csv:2: the row has 1 fields; expected 2, as in the header, separated by `;`"
    );
    assert_eq!(csv("a;b\n1;2\n3;\"open\n").unwrap_err(), "d.csv:3: a quoted field that starts here is never closed");
}

/// Writes `text` in this encoding, which has all of its characters.
fn encoded(text: &str, encoding: &'static Encoding) -> Vec<u8> {
    let wide = |to_bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(to_bytes).collect();
    match encoding.name() {
        "UTF-16LE" => wide(u16::to_le_bytes),
        "UTF-16BE" => wide(u16::to_be_bytes),
        _ => {
            let (bytes, _, has_unmappable) = encoding.encode(text);
            assert!(!has_unmappable, "{text} in {}", encoding.name());
            bytes.into_owned()
        }
    }
}

#[test]
fn a_text_in_another_encoding_has_the_rows_and_the_columns_that_it_has_in_utf_8() {
    let scratch = tempfile::tempdir().unwrap();
    for (label, words) in [
        ("windows-1252", "Größe – 5 €"),
        ("latin1", "prénom"),
        ("koi8-r", "гавань"),
        ("shift_jis", "港の日誌ソ表"),
        ("gb18030", "港口日志😀"),
        ("euc-kr", "항구"),
        ("utf-16le", "港😀\u{a0a}\u{d0d}"),
        ("utf-16be", "港😀\u{a0a}\u{d0d}"),
    ] {
        // Many times as much as is decoded at once, with lines of all lengths.
        let rows: Vec<String> = (0..700_usize).map(|row| format!("{row} {}", words.repeat(row % 40))).collect();
        let record = |row: &String| format!("{row},\"{words}\n{row}\"\r\n");
        let object = |row: &String| format!("{}\n", json!({ words: row }));
        let table = format!("id,{words}\r\n{}", rows.iter().map(record).collect::<String>());
        let lines = rows.iter().map(object).collect::<String>();
        let encoding = decoding::encoding_of_label(label).unwrap();
        for (format, text) in [(DatasetFormat::Csv, table), (DatasetFormat::Jsonl, lines)] {
            let plain = Dataset::parse(Path::new("d"), text.as_bytes(), format).unwrap();
            let path = scratch.path().join("d");
            let bytes = encoded(&text, encoding);
            std::fs::write(&path, &bytes).unwrap();
            let dataset = Dataset::load(&path, format, Some(encoding)).unwrap();
            assert_eq!(dataset.columns(), plain.columns(), "{label}");
            assert_eq!(read_in_chunks(&dataset), read_in_chunks(&plain), "{label}");
            assert_eq!(*dataset.digest(), FileDigest::of(&bytes[..]).unwrap(), "the digest is that of the file");
        }
    }
}

#[test]
fn a_byte_order_mark_decides_about_the_encoding() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("d");
    let table = "\u{feff}id,note\n1,é\n2,港\n";
    let lines = "\u{feff}{\"id\":\"1\",\"note\":\"é\"}\n{\"id\":\"2\",\"note\":\"港\"}";
    for encoding in [encoding_rs::UTF_8, encoding_rs::UTF_16LE, encoding_rs::UTF_16BE] {
        for (format, text) in [(DatasetFormat::Csv, table), (DatasetFormat::Jsonl, lines)] {
            std::fs::write(&path, encoded(text, encoding)).unwrap();
            for key in [None, Some(encoding_rs::WINDOWS_1252)] {
                let dataset = Dataset::load(&path, format, key).unwrap();
                assert_eq!(dataset.columns(), ["id", "note"]);
                assert_eq!(row(&dataset, 1), [json!("2"), json!("港")]);
                assert_eq!(row(&dataset, 0), [json!("1"), json!("é")]);
            }
        }
    }
}

#[test]
fn the_likely_encoding_of_a_text_that_is_not_utf_8_is_named_with_the_key_to_write() {
    for (label, text, name) in [
        ("windows-1252", "Die Größe der Fähre, für übermorgen geändert", "windows-1252"),
        ("shift_jis", "港の日誌には今日の潮の高さを書きます", "Shift_JIS"),
        ("windows-1251", "Журнал гавани: уровень воды сегодня", "windows-1251"),
        ("utf-16le", "the log of the harbour", "UTF-16LE"),
        ("utf-16be", "the log of the harbour", "UTF-16BE"),
    ] {
        let encoding = decoding::encoding_of_label(label).unwrap();
        let advice =
            format!("it looks like {name}: write `encoding = \"{label}\"` in [seed], or save the file as UTF-8");
        let is_wide = label.starts_with("utf-16");
        // The first letters are beyond the first chunk.
        let table = format!("id,note\n{}2,\"{text}\"\n", "1,x\n".repeat(30_000));
        let lines = format!("{{\"note\":1}}\n{{\"note\":\"{text}\"}}\n");
        for (format, text, place) in
            [(DatasetFormat::Csv, table, ":30002: field 2"), (DatasetFormat::Jsonl, lines, ":2: the line")]
        {
            let error = Dataset::parse(Path::new("d"), &encoded(&text, encoding), format).unwrap_err().to_string();
            let fault =
                if is_wide { "d: the file is not UTF-8".to_string() } else { format!("d{place} is not valid UTF-8") };
            assert_eq!(error, format!("{fault}; {advice}"));
        }
    }
}

#[test]
fn one_fault_in_a_text_in_utf_8_is_to_be_repaired_and_is_no_other_encoding() {
    let note = "Die Größe der Fähre, für übermorgen geändert".as_bytes();
    // In a short text and beyond the letters that are looked at.
    for lines in [1, 40_000] {
        let csv = [&b"id,note\n"[..], &[b"1,\"", note, b"\"\n"].concat().repeat(lines), b"2,K\xf6ln\n"].concat();
        let jsonl =
            [&[b"{\"note\":\"", note, b"\"}\n"].concat().repeat(lines)[..], b"{\"note\":\"K\xf6ln\"}\n"].concat();
        for (format, text, place) in [
            (DatasetFormat::Csv, csv, format!("{}: field 2", lines + 2)),
            (DatasetFormat::Jsonl, jsonl, format!("{}: the line", lines + 1)),
        ] {
            let error = Dataset::parse(Path::new("d"), &text, format).unwrap_err().to_string();
            assert_eq!(error, format!("d:{place} is not valid UTF-8; the text around it is, so repair it there"));
        }
    }
}

#[test]
fn the_byte_order_mark_of_a_text_that_is_not_utf_8_is_named() {
    let text = "id,note\n1,\"Die Größe der Fähre, für übermorgen geändert\"\n";
    let bytes = [b"\xef\xbb\xbf", &encoded(text, encoding_rs::WINDOWS_1252)[..]].concat();
    let error = Dataset::parse(Path::new("d"), &bytes, DatasetFormat::Csv).unwrap_err().to_string();
    assert_eq!(
        error,
        "d:2: field 2 is not valid UTF-8; the file begins with the byte order mark of UTF-8; without the mark, it \
         looks like windows-1252: write `encoding = \"windows-1252\"` in [seed], or save the file as UTF-8"
    );
}

#[test]
fn a_text_that_its_encoding_does_not_have_is_rejected_with_its_line() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("d");
    for (label, bytes, name) in [
        ("shift_jis", &b"\x81\nc\n"[..], "Shift_JIS"),
        ("utf-16le", b"\x3d\xd8\n\0", "UTF-16LE"),
        ("utf-16be", b"\0c\0", "UTF-16BE"),
    ] {
        let encoding = decoding::encoding_of_label(label).unwrap();
        for (format, valid) in [(DatasetFormat::Csv, "a\nb\n"), (DatasetFormat::Jsonl, "{\"a\":1}\n{\"a\":2}\n")] {
            std::fs::write(&path, [&encoded(valid, encoding), bytes].concat()).unwrap();
            let error = Dataset::load(&path, format, Some(encoding)).unwrap_err().to_string();
            assert_eq!(error, format!("{}: cannot read: line 3 is not valid {name}", path.display()));
        }
    }
}

#[test]
fn encodings_that_cannot_be_decoded_from_the_start_of_a_line_are_none() {
    for label in ["iso-2022-jp", "replacement", "utf-32", "", "cp850"] {
        assert_eq!(decoding::encoding_of_label(label), None, "{label}");
    }
}
