//! What stands in `manifest.json`: what the run was, what is done, and how it ended.

use std::fmt::Write as _;
use std::io::{self, Read};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::done::DoneRowGroups;
use crate::pipeline_file::RowFormat;

/// Bytes of a dataset that are in memory at once to be hashed.
const CHUNK: usize = 1 << 16;

/// The version of the manifest's form.
pub const MANIFEST_SCHEMA: u32 = 2;

/// What `manifest.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`MANIFEST_SCHEMA`].
    pub schema: u32,
    /// The program and version that wrote it, such as `tidegate 0.1.0`.
    pub program: String,
    /// The pipeline file as it was named.
    pub pipeline: String,
    /// The key of the row number.
    pub row_key: String,
    /// The columns of every output row after the row number, in order.
    pub columns: Vec<String>,
    /// The first row of the dataset that is asked for, counted from 0.
    #[serde(default)]
    pub first_row: u64,
    /// Rows that are asked for.
    pub rows_in: u64,
    /// Rows per row group; the last may have fewer.
    pub row_group_size: u32,
    /// How rows are written.
    pub format: RowFormat,
    /// What the rows depend on.
    pub identity: Identity,
    /// The row groups that are written, as ranges such as `"0-311"`. A running program brings it up to date every second or
    /// so; the files in `rows` are what counts.
    #[serde(default)]
    pub done: DoneRowGroups,
    /// How far the run came.
    #[serde(flatten)]
    pub state: RunState,
}

/// How far a run came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RunState {
    /// It runs, or it was killed: the row groups that are there are whole.
    Running,
    /// It ended.
    Ended {
        /// Why, such as `completed`.
        reason: String,
        /// Rows written, those of earlier runs included.
        rows_out: u64,
        /// Rows dropped, those of earlier runs included.
        rows_dropped: u64,
        /// Row groups written, those of earlier runs included.
        row_groups: u64,
    },
}

/// Hashes (SHA-256, hexadecimal) of what decides which rows a run makes. Two runs whose identities agree make rows that
/// belong together; limits, rates, keys and retries may differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The dataset, byte for byte.
    pub dataset: String,
    /// The columns of the pipeline file, with their prompts and options.
    pub columns: String,
    /// Which model of which provider each model of the file is.
    pub models: String,
}

impl Identity {
    /// The identity of a run over this dataset; `columns` and `models` are any text that differs when they do.
    pub fn of(dataset: impl Read, columns: &str, models: &str) -> io::Result<Self> {
        Ok(Self { dataset: hash(dataset)?, columns: hash(columns.as_bytes())?, models: hash(models.as_bytes())? })
    }
}

impl Manifest {
    /// What keeps a run of this manifest from going on where `earlier` stopped: the first thing that has changed.
    #[must_use]
    pub fn differs_from(&self, earlier: &Self) -> Option<&'static str> {
        let Self { identity, .. } = self;
        [
            (self.identity.dataset != earlier.identity.dataset, "the dataset has changed"),
            ((self.first_row, self.rows_in) != (earlier.first_row, earlier.rows_in), "the rows asked for have changed"),
            (
                identity.columns != earlier.identity.columns,
                "[[columns]] of the pipeline file, or their seed, have changed",
            ),
            (identity.models != earlier.identity.models, "a model is another provider's, or another model"),
            (self.columns != earlier.columns, "the output columns have changed"),
            (self.format != earlier.format, "`format` in [output] has changed"),
            (self.row_key != earlier.row_key, "`row_key` in [output] has changed"),
            (self.row_group_size != earlier.row_group_size, "`row_group_size` in [run] has changed"),
        ]
        .into_iter()
        .find_map(|(changed, what)| changed.then_some(what))
    }

    /// Rows of row group `row_group`.
    #[must_use]
    pub fn rows_of(&self, row_group: u32) -> u64 {
        let size = u64::from(self.row_group_size);
        self.rows_in.saturating_sub(u64::from(row_group) * size).min(size)
    }

    /// Row groups of the whole run.
    #[must_use]
    pub fn row_groups(&self) -> u64 {
        self.rows_in.div_ceil(u64::from(self.row_group_size.max(1)))
    }
}

fn hash(mut bytes: impl Read) -> io::Result<String> {
    let mut hasher = Context::new(&SHA256);
    let mut chunk = vec![0; CHUNK];
    loop {
        match bytes.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => hasher.update(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let mut text = String::with_capacity(64);
    for byte in hasher.finish().as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(columns: &str) -> Identity {
        Identity::of(&b"data"[..], columns, "models").unwrap()
    }

    #[test]
    fn a_change_of_what_decides_the_rows_is_named() {
        let before = Manifest {
            schema: MANIFEST_SCHEMA,
            program: "tidegate 0.0.0".to_string(),
            pipeline: "p.toml".to_string(),
            row_key: "row".to_string(),
            columns: vec!["a".to_string()],
            first_row: 0,
            rows_in: 10,
            row_group_size: 4,
            format: RowFormat::Jsonl,
            identity: identity("columns"),
            done: DoneRowGroups::default(),
            state: RunState::Running,
        };
        let same = Manifest { program: "tidegate 9".to_string(), pipeline: "moved.toml".to_string(), ..before.clone() };
        assert_eq!(same.differs_from(&before), None);
        let changed = Manifest { identity: identity("other columns"), ..before.clone() };
        assert_eq!(
            changed.differs_from(&before),
            Some("[[columns]] of the pipeline file, or their seed, have changed")
        );
        let changed = Manifest { row_group_size: 5, ..before.clone() };
        assert_eq!(changed.differs_from(&before), Some("`row_group_size` in [run] has changed"));
        assert_eq!((before.row_groups(), before.rows_of(0), before.rows_of(2), before.rows_of(3)), (3, 4, 2, 0));
    }
}
