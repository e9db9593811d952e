//! A text dataset in a file or in memory, with an index of row offsets for random access. Offsets are those
//! in the text as UTF-8, after its byte order mark.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use encoding_rs::{Encoding, UTF_8};

use super::DatasetError;
use super::decoding::{CHUNK, Checkpoint, DecodingReader, likely_encoding, utf16_without_mark};
use super::digest::{DigestReader, FileDigest};

/// The index holds the offset of every row whose number is a multiple of this: the default size of a row
/// group, so that reading one reads no row before it.
const STRIDE: u64 = 32;

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
                Ok(Box::new(BufReader::with_capacity(CHUNK, file)))
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

/// A text, and the byte offset of every 32nd of its rows.
#[derive(Debug)]
pub(super) struct IndexedText {
    pub(super) path: PathBuf,
    bytes: Bytes,
    encoding: &'static Encoding,
    /// The length of the byte order mark, which some editors put at the start of a file.
    mark: u64,
    /// Where decoding can start besides the start of the text, in order. None for UTF-8.
    checkpoints: Vec<Checkpoint>,
    /// The offset of row `32 * i` at index `i`.
    row_offsets: Vec<u64>,
}

/// Reads a whole text for a scan, and hashes the bytes of the file.
pub(super) enum ScanReader {
    Utf8(Box<FileReader>),
    Encoded(Box<DecodingReader<BufReader<FileReader>>>),
}

type FileReader = DigestReader<Box<dyn BufRead + Send>>;

impl Read for ScanReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Utf8(reader) => reader.read(buffer),
            Self::Encoded(reader) => reader.read(buffer),
        }
    }
}

impl IndexedText {
    /// Creates the text of `bytes` in the encoding of its byte order mark, else in `encoding`, else in UTF-8.
    /// Fails if it looks like UTF-16 without either.
    pub(super) fn new(path: &Path, bytes: Bytes, encoding: Option<&'static Encoding>) -> Result<Self, DatasetError> {
        let unreadable = |error| DatasetError::unreadable(path, &error);
        let mut first = Vec::new();
        bytes.open_at(0).and_then(|text| text.take(4).read_to_end(&mut first)).map_err(unreadable)?;
        let (encoding, mark) = match (Encoding::for_bom(&first), encoding, utf16_without_mark(&first)) {
            (Some((encoding, mark)), _, _) => (encoding, mark as u64),
            (None, Some(encoding), _) => (encoding, 0),
            (None, None, Some(likely)) => {
                return Err(DatasetError::new(path, None, format!("the file is not UTF-8; {}", advice(likely))));
            }
            (None, None, None) => (UTF_8, 0),
        };
        let (path, checkpoints, row_offsets) = (path.to_path_buf(), Vec::new(), Vec::new());
        Ok(Self { path, bytes, encoding, mark, checkpoints, row_offsets })
    }

    /// Opens the text for a scan, which [`finish_scan`](Self::finish_scan) ends. The digest is that of the
    /// file.
    pub(super) fn open_for_scan(&self) -> Result<ScanReader, DatasetError> {
        let unreadable = |error| self.unreadable(&error);
        let mut reader = DigestReader::new(self.bytes.open_at(0).map_err(unreadable)?);
        io::copy(&mut reader.by_ref().take(self.mark), &mut io::sink()).map_err(unreadable)?;
        Ok(if self.encoding == UTF_8 {
            ScanReader::Utf8(Box::new(reader))
        } else {
            let start = Checkpoint::default();
            let reader = BufReader::with_capacity(CHUNK, reader);
            ScanReader::Encoded(Box::new(DecodingReader::new(reader, self.encoding, start)))
        })
    }

    /// Reads the rest of the file, and returns the digest of all of it. From here on, reading from an offset
    /// is cheap.
    pub(super) fn finish_scan(&mut self, reader: ScanReader) -> Result<FileDigest, DatasetError> {
        let digest = match reader {
            ScanReader::Utf8(reader) => reader.finish(),
            ScanReader::Encoded(reader) => {
                let (reader, checkpoints) = reader.into_parts();
                self.checkpoints = checkpoints;
                reader.into_inner().finish()
            }
        };
        digest.map_err(|error| self.unreadable(&error))
    }

    /// Opens the text at byte `offset`.
    pub(super) fn open(&self, offset: u64) -> Result<Box<dyn BufRead + Send>, DatasetError> {
        let unreadable = |error| self.unreadable(&error);
        if self.encoding == UTF_8 {
            return self.bytes.open_at(self.mark + offset).map_err(unreadable);
        }
        let before = self.checkpoints.partition_point(|checkpoint| checkpoint.decoded <= offset);
        let start = before.checked_sub(1).map_or_else(Checkpoint::default, |at| self.checkpoints[at]);
        let encoded = self.bytes.open_at(self.mark + start.encoded).map_err(unreadable)?;
        let mut text = DecodingReader::new(encoded, self.encoding, start);
        io::copy(&mut text.by_ref().take(offset - start.decoded), &mut io::sink()).map_err(unreadable)?;
        Ok(Box::new(text))
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

    /// Returns the message for a part of the text that is not valid UTF-8, with the likely encoding of the
    /// file.
    pub(super) fn not_utf8(&self, what: &str) -> String {
        let advice = match self.bytes.open_at(self.mark).and_then(likely_encoding) {
            Ok(likely) if likely == UTF_8 => "the text around it is, so repair it there".to_string(),
            // The mark overrides `encoding`.
            Ok(likely) if self.mark > 0 => {
                format!("the file begins with the byte order mark of UTF-8; without the mark, {}", advice(likely))
            }
            Ok(likely) => advice(likely),
            Err(error) => format!("cannot read: {error}"),
        };
        format!("{what} is not valid UTF-8; {advice}")
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

    /// Returns the nearest indexed row at or before `row`: how many rows before `row` it is (0 to 31), and
    /// its byte offset.
    pub(super) fn seek_point(&self, row: u64) -> (usize, u64) {
        let index = (row / STRIDE) as usize;
        ((row % STRIDE) as usize, self.row_offsets.get(index).copied().unwrap_or(0))
    }
}

fn advice(likely: &'static Encoding) -> String {
    let name = likely.name();
    let label = name.to_ascii_lowercase();
    format!("it looks like {name}: write `encoding = \"{label}\"` in [seed], or save the file as UTF-8")
}
