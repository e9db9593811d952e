//! A text that rows are in: in a file or in memory, with marks at some of its rows.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::DatasetError;

/// Rows from one mark to the next.
const STRIDE: u64 = 64;

/// What some editors begin a UTF-8 file with.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Where the bytes are.
#[derive(Debug)]
pub(super) enum Bytes {
    /// In a file, which must not change.
    File(PathBuf, Stamp),
    /// In the program.
    Memory(Cursor<Arc<[u8]>>),
}

/// Tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { bytes: metadata.len(), modified: metadata.modified().ok() }
    }
}

impl Bytes {
    pub(super) fn of_file(path: &Path) -> io::Result<Self> {
        let metadata = File::open(path)?.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        Ok(Self::File(path.to_path_buf(), Stamp::of(&metadata)))
    }
}

/// A text, and where every 64th of its rows begins.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) path: PathBuf,
    bytes: Bytes,
    /// Length of the byte order mark.
    start: u64,
    marks: Vec<u64>,
}

impl Text {
    pub(super) fn new(path: &Path, bytes: Bytes) -> Self {
        let mut text = Self { path: path.to_path_buf(), bytes, start: 0, marks: Vec::new() };
        let mut first = [0; BYTE_ORDER_MARK.len()];
        let begins_with_mark = text.open(0).is_ok_and(|mut reader| reader.read_exact(&mut first).is_ok());
        if begins_with_mark && first == BYTE_ORDER_MARK {
            text.start = BYTE_ORDER_MARK.len() as u64;
        }
        text
    }

    /// Where the text begins.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// The text from byte `at` on.
    pub(super) fn open(&self, at: u64) -> Result<Box<dyn BufRead + Send>, DatasetError> {
        self.open_file(at).map_err(|error| self.unreadable(&error))
    }

    fn open_file(&self, at: u64) -> io::Result<Box<dyn BufRead + Send>> {
        match &self.bytes {
            Bytes::Memory(bytes) => {
                let mut bytes = bytes.clone();
                bytes.set_position(at);
                Ok(Box::new(bytes))
            }
            Bytes::File(path, _) => {
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start(at))?;
                Ok(Box::new(BufReader::with_capacity(64 << 10, file)))
            }
        }
    }

    /// The same after the check, of which the text must be the same still.
    pub(super) fn open_again(&self, at: u64) -> Result<Box<dyn BufRead + Send>, DatasetError> {
        if let Bytes::File(path, stamp) = &self.bytes {
            let now = std::fs::metadata(path).map_err(|error| self.unreadable(&error))?;
            if Stamp::of(&now) != *stamp {
                return Err(self.changed());
            }
        }
        self.open(at)
    }

    pub(super) fn unreadable(&self, error: &io::Error) -> DatasetError {
        DatasetError::new(&self.path, None, format!("cannot read: {error}"))
    }

    pub(super) fn changed(&self) -> DatasetError {
        DatasetError::new(&self.path, None, "the file has changed since the run began")
    }

    /// Takes in that row `row` begins at byte `at`. Rows come in order.
    pub(super) fn mark(&mut self, row: u64, at: u64) {
        if row.is_multiple_of(STRIDE) {
            self.marks.push(at);
        }
    }

    /// How many rows before `row` the nearest mark is, and its byte.
    pub(super) fn mark_before(&self, row: u64) -> (usize, u64) {
        let mark = (row / STRIDE) as usize;
        ((row % STRIDE) as usize, self.marks.get(mark).copied().unwrap_or(self.start))
    }
}
