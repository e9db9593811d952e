//! `batches.jsonl`: the batches that the runs of a job have submitted.
//!
//! A line is synced before the step after it. So whatever happens, each batch that may exist at the provider
//! has a line `submitted`. Without a later line about the same file of requests, it is not known whether its
//! batch was created.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::OutputDirectory;
use super::error::{OutputError, io_error};
use super::files::{BATCHES, sync_directory};

/// A line of the file. `file` is the id that the provider has given to a file of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BatchLine {
    /// The creation of a batch is about to be requested.
    Submitted {
        /// The file of requests.
        file: String,
        /// The model, as `provider/model`.
        model: String,
        /// The time in seconds since the Unix epoch.
        at: u64,
        /// The estimated input tokens, which are charged until the results are there.
        input_tokens: u32,
        /// The estimated output tokens.
        output_tokens: u32,
        /// The names of the requests; empty if an earlier line about the file has them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        requests: Vec<String>,
    },
    /// The batch was created.
    Created {
        /// The file of requests.
        file: String,
        /// The id of the batch.
        batch: String,
    },
    /// The results were read, and their cost was charged.
    Collected {
        /// The file of requests.
        file: String,
    },
    /// There is no such batch, or none of its requests was made.
    Void {
        /// The file of requests.
        file: String,
    },
    /// The results of these requests have made a cell fail. If its row is retried, they are submitted again.
    Discarded {
        /// The names of the requests.
        requests: Vec<String>,
    },
}

/// The open file.
#[derive(Debug)]
pub struct BatchJournal {
    path: PathBuf,
    file: Mutex<File>,
}

impl OutputDirectory {
    /// Opens the journal of batches, and returns it with its lines. The last line is left out if it was cut
    /// off: then the step after it was not made. If only the end of the line is missing, as after an edit, it
    /// is added.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or written.
    pub fn open_batches(&self) -> Result<(BatchJournal, Vec<BatchLine>), OutputError> {
        let path = self.root.join(BATCHES);
        let open = || File::options().create(true).truncate(false).write(true).open(&path);
        let mut file = open().map_err(io_error(&path))?;
        let mut text = fs::read(&path).map_err(io_error(&path))?;
        let is_whole = text.split(|byte| *byte == b'\n').next_back().is_some_and(is_line);
        if is_whole {
            text.push(b'\n');
        }
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let complete = text.get(..end).unwrap_or_default();
        let mut lines = Vec::new();
        for (index, line) in complete.split(|byte| *byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            let unreadable = |error: serde_json::Error| OutputError::Unreadable {
                path: path.clone(),
                source: std::io::Error::other(format!("line {} is no line of batches: {error}", index + 1)),
            };
            lines.push(serde_json::from_slice(line).map_err(unreadable)?);
        }
        let kept = end - usize::from(is_whole);
        let ready = file.set_len(kept as u64).and_then(|()| file.seek(SeekFrom::End(0)));
        let ready = ready.and_then(|_| if is_whole { file.write_all(b"\n") } else { Ok(()) });
        let ready = ready.and_then(|()| file.sync_all());
        ready.and_then(|()| sync_directory(&self.root)).map_err(io_error(&path))?;
        Ok((BatchJournal { path, file: Mutex::new(file) }, lines))
    }
}

fn is_line(text: &[u8]) -> bool {
    serde_json::from_slice::<BatchLine>(text).is_ok()
}

impl BatchJournal {
    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Appends a line, and syncs the file unless the line is [`BatchLine::Discarded`], whose loss does no
    /// harm. Takes as long as the disk does.
    ///
    /// # Errors
    ///
    /// If the line cannot be written. A part of it is removed again.
    pub fn append(&self, line: &BatchLine) -> Result<(), OutputError> {
        let write = || {
            let mut text = serde_json::to_vec(line)?;
            text.push(b'\n');
            let mut file = self.file.lock();
            let end = file.stream_position()?;
            let is_synced = !matches!(line, BatchLine::Discarded { .. });
            let written = file.write_all(&text).and_then(|()| if is_synced { file.sync_data() } else { Ok(()) });
            if written.is_err() {
                // So that the next line does not follow a part of this one.
                file.set_len(end)?;
                file.seek(SeekFrom::Start(end))?;
            }
            written
        };
        write().map_err(io_error(&self.path))
    }
}
