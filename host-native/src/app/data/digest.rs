//! The SHA-256 of a file, computed while the file is read.

use std::fmt::Write as _;
use std::io::{self, Read, Write};

use ring::digest::{Context, Digest, SHA256, digest};

/// The hash and the length of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDigest {
    /// The SHA-256 in hexadecimal.
    pub sha256: String,
    /// The length in bytes.
    pub bytes: u64,
}

impl FileDigest {
    /// Returns the digest of bytes in memory.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self { sha256: hexadecimal(digest(&SHA256, bytes)), bytes: bytes.len() as u64 }
    }

    /// Reads all bytes and returns their digest.
    pub fn of(bytes: impl Read) -> io::Result<Self> {
        DigestReader::new(bytes).finish()
    }
}

/// Hashes what is read through it.
pub(super) struct DigestReader<R> {
    inner: R,
    hasher: Context,
    bytes: u64,
}

impl<R: Read> DigestReader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, hasher: Context::new(&SHA256), bytes: 0 }
    }

    /// Reads the rest, and returns the digest of everything that was read.
    pub(super) fn finish(mut self) -> io::Result<FileDigest> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(FileDigest { sha256: hexadecimal(self.hasher.finish()), bytes: self.bytes })
    }
}

/// Hashes what is written through it.
pub(crate) struct DigestWriter<W> {
    inner: W,
    hasher: Context,
    bytes: u64,
}

impl<W> DigestWriter<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, hasher: Context::new(&SHA256), bytes: 0 }
    }

    /// Returns what was written to, and the digest of everything that was written.
    pub(crate) fn finish(self) -> (W, FileDigest) {
        (self.inner, FileDigest { sha256: hexadecimal(self.hasher.finish()), bytes: self.bytes })
    }
}

impl<W: Write> Write for DigestWriter<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn hexadecimal(digest: Digest) -> String {
    let mut text = String::with_capacity(64);
    for byte in digest.as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl<R: Read> Read for DigestReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}
