//! A dataset of several files: the files that a path stands for, and their rows as one sequence.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use glob::MatchOptions;

use super::column_type::ColumnType;
use super::digest::FileDigest;
use super::{Dataset, DatasetError, DatasetFormat, Row, Source};
use crate::app::template::is_same_name;

/// The files of a dataset, in the order of their names, with at least one row each.
#[derive(Debug)]
pub(super) struct Files(Vec<Part>);

#[derive(Debug)]
struct Part {
    /// The number of its first row in the whole dataset.
    first_row: u64,
    dataset: Dataset,
}

impl Part {
    /// Returns which of its rows are in `rows`, which count from the start of the whole dataset.
    fn overlap(&self, rows: &Range<u64>) -> Range<u64> {
        let within = |row: u64| row.saturating_sub(self.first_row).min(self.dataset.rows);
        within(rows.start)..within(rows.end)
    }
}

/// Returns the files that `path` stands for, in the order of their names: the file itself, the files of
/// `format` in a directory, or the files that match a pattern such as `logs/*.jsonl`.
pub(super) fn dataset_files(path: &Path, format: DatasetFormat) -> Result<Vec<PathBuf>, DatasetError> {
    let unreadable = |error: &std::io::Error| DatasetError::unreadable(path, error);
    let mut files = Vec::new();
    let none_found;
    if path.is_dir() {
        for entry in fs::read_dir(path).map_err(|error| unreadable(&error))? {
            let file = entry.map_err(|error| unreadable(&error))?.path();
            let is_hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if !is_hidden && file.is_file() && DatasetFormat::of(&file) == Some(format) {
                files.push(file);
            }
        }
        none_found = format!("the directory has no {} files", format.name());
    } else if let Some(pattern) = path.to_str().filter(|text| text.contains(['*', '?', '[']) && !path.exists()) {
        // The directory of the pipeline file is no part of the pattern, whatever characters it has.
        let directory = path.ancestors().find(|ancestor| ancestor.is_dir()).and_then(Path::to_str).unwrap_or_default();
        let pattern = format!("{}{}", glob::Pattern::escape(directory), &pattern[directory.len()..]);
        // As in a shell, `*` matches no hidden file.
        let options = MatchOptions { require_literal_leading_dot: true, ..MatchOptions::new() };
        let pattern = glob::glob_with(&pattern, options)
            .map_err(|error| DatasetError::new(path, None, format!("this is not a valid pattern: {}", error.msg)))?;
        for file in pattern {
            let file = file.map_err(|error| DatasetError::unreadable(error.path(), error.error()))?;
            if file.is_file() {
                files.push(file);
            }
        }
        none_found = "no file matches this pattern".to_string();
    } else {
        return Ok(vec![path.to_path_buf()]);
    }
    if files.is_empty() {
        return Err(DatasetError::new(path, None, none_found));
    }
    files.sort();
    Ok(files)
}

/// Joins the datasets of several files. All must have the columns of the first, in the same order unless they
/// are JSONL, whose values have names.
pub(super) fn join(datasets: Vec<Dataset>) -> Result<Dataset, DatasetError> {
    let mut parts: Vec<Part> = Vec::new();
    let mut rows = 0;
    for mut dataset in datasets {
        if let Some(Part { dataset: first, .. }) = parts.first() {
            if let Source::Jsonl(_) = dataset.source {
                dataset.reorder_columns(&first.columns);
            }
            let mut names = dataset.columns.iter().zip(&first.columns);
            let is_same = dataset.columns.len() == first.columns.len()
                && names.all(|(name, of_first)| is_same_name(name, of_first));
            if !is_same {
                let message = format!(
                    "its columns are {}, and those of {} are {}: expected the same columns in the same order",
                    dataset.columns.join(", "),
                    first.path().display(),
                    first.columns.join(", ")
                );
                return Err(DatasetError::new(dataset.path(), None, message));
            }
        }
        let first_row = rows;
        rows += dataset.rows;
        parts.push(Part { first_row, dataset });
    }
    let mut column_types = vec![ColumnType::Null; parts[0].dataset.columns.len()];
    for Part { dataset, .. } in &parts {
        let types = column_types.iter().zip(&dataset.column_types);
        column_types = types.map(|(known, other)| known.unify(*other)).collect();
    }
    let digests = parts.iter().map(|part| part.dataset.digest.sha256.as_str()).collect::<Vec<_>>().join("\n");
    let bytes = parts.iter().map(|part| part.dataset.digest.bytes).sum();
    let digest = FileDigest { bytes, ..FileDigest::of_bytes(digests.as_bytes()) };
    let columns = parts[0].dataset.columns.clone();
    Ok(Dataset { columns, column_types, rows, digest, source: Source::Files(Files(parts)) })
}

impl Dataset {
    /// Gives the columns this order, if they are these columns.
    pub(super) fn reorder_columns(&mut self, order: &[String]) {
        let at = |name: &String| self.columns.iter().position(|column| is_same_name(column, name));
        let Some(places) = order.iter().map(at).collect::<Option<Vec<_>>>() else { return };
        if places.len() == self.columns.len() {
            self.column_types = places.iter().map(|place| self.column_types[*place]).collect();
            self.columns = order.to_vec();
        }
    }
}

impl Files {
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|part| part.dataset.path())
    }

    #[cfg(feature = "parquet")]
    pub(super) fn datasets(&self) -> impl Iterator<Item = &Dataset> {
        self.0.iter().map(|part| &part.dataset)
    }

    pub(super) fn read(&self, rows: &Range<u64>) -> Result<Vec<Row>, DatasetError> {
        let mut all = Vec::new();
        for part in &self.0 {
            let overlap = part.overlap(rows);
            if !overlap.is_empty() {
                all.extend(part.dataset.read(overlap)?);
            }
        }
        Ok(all)
    }

    pub(super) fn skip_rows(&mut self, rows: &Range<u64>) {
        for part in &mut self.0 {
            let overlap = part.overlap(rows);
            part.dataset.skip_rows(overlap);
        }
    }
}
