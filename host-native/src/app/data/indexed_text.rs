//! A text dataset in a file or in memory, with an index of row offsets for random access.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::DatasetError;
use super::digest::DigestReader;

/// The index holds the offset of every row whose number is a multiple of this.
const STRIDE: u64 = 64;

/// The UTF-8 byte order mark, which some editors put at the start of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The bytes of a dataset.
#[derive(Debug)]
pub(super) enum Bytes {
    /// In a file, which must not change while it is in use.
    File(PathBuf, FileVersion),
    /// In memory.
    Memory(Cursor<Arc<[u8]>>),
}

/// Length and modification time of a file. A change of either means that the file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileVersion {
    bytes: u64,
    modified: Option<SystemTime>,
}

impl FileVersion {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { bytes: metadata.len(), modified: metadata.modified().ok() }
    }
}

impl Bytes {
    /// Returns whether they begin with the byte order mark of UTF-16, of either byte order.
    pub(super) fn are_utf16(&self) -> io::Result<bool> {
        let mut first = Vec::new();
        self.open_at(0)?.take(2).read_to_end(&mut first)?;
        Ok(matches!(first[..], [0xff, 0xfe] | [0xfe, 0xff]))
    }

    fn open_at(&self, offset: u64) -> io::Result<Box<dyn BufRead + Send>> {
        match self {
            Self::Memory(bytes) => {
                let mut bytes = bytes.clone();
                bytes.set_position(offset);
                Ok(Box::new(bytes))
            }
            Self::File(path, _) => {
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start(offset))?;
                Ok(Box::new(BufReader::with_capacity(64 << 10, file)))
            }
        }
    }

    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let metadata = File::open(path)?.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        Ok(Self::File(path.to_path_buf(), FileVersion::of(&metadata)))
    }
}

/// A text, and the byte offset of every 64th of its rows.
#[derive(Debug)]
pub(super) struct IndexedText {
    pub(super) path: PathBuf,
    bytes: Bytes,
    /// The length of the byte order mark: 0 or 3.
    start: u64,
    /// The offset of row `64 * i` at index `i`.
    row_offsets: Vec<u64>,
}

impl IndexedText {
    pub(super) fn new(path: &Path, bytes: Bytes) -> Self {
        let mut text = Self { path: path.to_path_buf(), bytes, start: 0, row_offsets: Vec::new() };
        let mut first = [0; BYTE_ORDER_MARK.len()];
        let is_long_enough = text.open(0).is_ok_and(|mut reader| reader.read_exact(&mut first).is_ok());
        if is_long_enough && first == BYTE_ORDER_MARK {
            text.start = BYTE_ORDER_MARK.len() as u64;
        }
        text
    }

    /// Returns the offset of the text after the byte order mark.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Opens the text after the byte order mark for a scan. The digest includes the byte order mark.
    pub(super) fn open_for_scan(&self) -> Result<DigestReader<Box<dyn BufRead + Send>>, DatasetError> {
        let mut reader = DigestReader::new(self.open(0)?);
        let mut mark = [0; BYTE_ORDER_MARK.len()];
        reader.read_exact(&mut mark[..self.start as usize]).map_err(|error| self.unreadable(&error))?;
        Ok(reader)
    }

    /// Opens the text at byte `offset`.
    pub(super) fn open(&self, offset: u64) -> Result<Box<dyn BufRead + Send>, DatasetError> {
        self.bytes.open_at(offset).map_err(|error| self.unreadable(&error))
    }

    /// Opens the text at byte `offset`. Fails if the file has changed since the first pass.
    pub(super) fn reopen(&self, offset: u64) -> Result<Box<dyn BufRead + Send>, DatasetError> {
        if let Bytes::File(path, version) = &self.bytes {
            let now = std::fs::metadata(path).map_err(|error| self.unreadable(&error))?;
            if FileVersion::of(&now) != *version {
                return Err(self.changed());
            }
        }
        self.open(offset)
    }

    pub(super) fn unreadable(&self, error: &io::Error) -> DatasetError {
        DatasetError::unreadable(&self.path, error)
    }

    pub(super) fn changed(&self) -> DatasetError {
        DatasetError::new(&self.path, None, "the file has changed since the run began")
    }

    /// Adds the start of row `row` to the index. Must be called for all rows, in order.
    pub(super) fn index_row(&mut self, row: u64, offset: u64) {
        if row.is_multiple_of(STRIDE) {
            self.row_offsets.push(offset);
        }
    }

    /// Returns the nearest indexed row at or before `row`: how many rows before `row` it is (0 to 63), and
    /// its byte offset.
    pub(super) fn seek_point(&self, row: u64) -> (usize, u64) {
        let index = (row / STRIDE) as usize;
        ((row % STRIDE) as usize, self.row_offsets.get(index).copied().unwrap_or(self.start))
    }
}
