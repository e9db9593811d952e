//! `NNNNNN.dropped.jsonl`: the rows of a row group that are not in its rows file, and why.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The reason of a row that the run stopped before. A resumed run makes it.
pub const UNMADE: &str = "unmade";

/// A row that is not in the rows file of its row group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedLine {
    /// Its number in the dataset.
    pub row: u64,
    /// The column that failed; none of a row that is unmade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// [`UNMADE`], or the [name](tidegate_core::pipeline::DropReason::name) of the reason.
    pub reason: String,
    /// What happened, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl DroppedLine {
    /// A row that the run stopped before.
    #[must_use]
    pub fn unmade(row: u64) -> Self {
        Self { row, column: None, reason: UNMADE.to_string(), detail: None }
    }

    /// Whether a resumed run makes it without being asked to.
    #[must_use]
    pub fn is_unmade(&self) -> bool {
        self.reason == UNMADE
    }

    /// Its column and reason.
    #[must_use]
    pub fn key(&self) -> (String, String) {
        (self.column.clone().unwrap_or_default(), self.reason.clone())
    }
}

/// Dropped rows by column and reason.
pub type DroppedCounts = BTreeMap<(String, String), u64>;

/// The lines of the file at `path`; `None` if there is no such file.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<DroppedLine>>> {
    let file = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    file.lines().map(|line| Ok(serde_json::from_str(&line?)?)).collect::<io::Result<_>>().map(Some)
}

pub(super) fn write<'a>(lines: impl IntoIterator<Item = &'a DroppedLine>, file: &mut impl Write) -> io::Result<()> {
    for line in lines {
        serde_json::to_writer(&mut *file, line)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}
