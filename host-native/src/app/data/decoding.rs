//! Texts in other encodings than UTF-8, which are decoded while they are read.
//!
//! The rows of a dataset are read again by their offsets in the decoded text. A [`Checkpoint`] at the end of
//! a line in about every 64 KiB says where decoding can start, so that no more than this is decoded in vain.

use std::io::{self, BufRead, Read};

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Decoder, DecoderResult, Encoding, ISO_2022_JP, REPLACEMENT, UTF_8, UTF_16BE, UTF_16LE};

/// The most bytes that are read and decoded at a time.
pub(super) const CHUNK: usize = 64 << 10;

/// How many chunks with letters other than those of ASCII are looked at to find out an encoding.
const DETECTED_CHUNKS: usize = 16;

/// A text with at least so many letters in UTF-8 for each part that is not UTF-8 is a damaged one in UTF-8.
const LETTERS_PER_FAULT: usize = 4;

/// A place between two lines, in bytes of the decoded text and of the encoded one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Checkpoint {
    pub(super) decoded: u64,
    pub(super) encoded: u64,
}

/// Reads an encoded text, which has no byte order mark, as UTF-8.
pub(super) struct DecodingReader<R> {
    inner: R,
    decoder: Decoder,
    /// The text that was decoded last, and how much of it has been read.
    decoded: Vec<u8>,
    read: usize,
    /// Where the text after `decoded` begins.
    next: Checkpoint,
    /// The number of line feeds before `next`.
    lines: u64,
    checkpoints: Vec<Checkpoint>,
    has_ended: bool,
}

impl<R: BufRead> DecodingReader<R> {
    /// Creates a reader of `inner`, whose text is at `start`.
    pub(super) fn new(inner: R, encoding: &'static Encoding, start: Checkpoint) -> Self {
        Self {
            inner,
            decoder: encoding.new_decoder_without_bom_handling(),
            decoded: Vec::new(),
            read: 0,
            next: start,
            lines: 0,
            checkpoints: Vec::new(),
            has_ended: false,
        }
    }

    /// Returns the source, and where decoding can start.
    pub(super) fn into_parts(self) -> (R, Vec<Checkpoint>) {
        (self.inner, self.checkpoints)
    }

    fn decode_more(&mut self) -> io::Result<()> {
        let available = self.inner.fill_buf()?;
        self.has_ended = available.is_empty();
        let chunk = &available[..available.len().min(CHUNK)];
        let wide = [UTF_16LE, UTF_16BE].contains(&self.decoder.encoding());
        let line_end = after_last_line(chunk, wide, self.next.encoded);
        let chunk = &chunk[..line_end.unwrap_or(chunk.len())];
        let most = self.decoder.max_utf8_buffer_length_without_replacement(chunk.len());
        self.decoded.resize(most.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?, 0);
        let (result, consumed, written) =
            self.decoder.decode_to_utf8_without_replacement(chunk, &mut self.decoded, self.has_ended);
        self.decoded.truncate(written);
        self.read = 0;
        self.lines += memchr::memchr_iter(b'\n', &self.decoded).count() as u64;
        if let DecoderResult::Malformed(..) = result {
            let (line, name) = (self.lines + 1, self.decoder.encoding().name());
            self.decoded.clear();
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("line {line} is not valid {name}")));
        }
        self.inner.consume(consumed);
        self.next.encoded += consumed as u64;
        self.next.decoded += written as u64;
        if line_end.is_some() {
            self.checkpoints.push(self.next);
        }
        Ok(())
    }
}

impl<R: BufRead> BufRead for DecodingReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.read == self.decoded.len() && !self.has_ended {
            self.decode_more()?;
        }
        Ok(&self.decoded[self.read..])
    }

    fn consume(&mut self, amount: usize) {
        self.read += amount;
    }
}

impl<R: BufRead> Read for DecodingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

/// Returns the length of `chunk` up to the end of its last line, where a decoder has no state. `wide` is
/// whether each character takes two or four bytes from an even `offset` on. In the other encodings, no byte
/// of a character of several bytes is that of a line end.
fn after_last_line(chunk: &[u8], wide: bool, offset: u64) -> Option<usize> {
    if !wide {
        return memchr::memrchr2(b'\n', b'\r', chunk).map(|at| at + 1);
    }
    let odd = (offset % 2) as usize;
    let units = chunk.get(odd..)?.chunks_exact(2);
    let is_line_end = |unit: &[u8]| matches!(unit, [0, b'\n' | b'\r'] | [b'\n' | b'\r', 0]);
    units.enumerate().rfind(|(_, unit)| is_line_end(unit)).map(|(at, _)| odd + 2 * at + 2)
}

/// Returns the encoding with this WHATWG label, such as `windows-1252`; `None` if there is none, or if a text
/// in it cannot be decoded from the start of any line.
pub(crate) fn encoding_of_label(label: &str) -> Option<&'static Encoding> {
    Encoding::for_label(label.as_bytes()).filter(|encoding| ![ISO_2022_JP, REPLACEMENT].contains(encoding))
}

/// Returns the likely encoding of a text that is not UTF-8, or not all of it.
pub(super) fn likely_encoding(mut text: impl Read) -> io::Result<&'static Encoding> {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    let mut chunk = Vec::with_capacity(CHUNK);
    let (mut seen, mut letters, mut faults) = (0, 0, 0);
    while seen < DETECTED_CHUNKS {
        chunk.clear();
        if text.by_ref().take(CHUNK as u64).read_to_end(&mut chunk)? == 0 {
            break;
        }
        if !chunk.is_ascii() {
            detector.feed(&chunk, false);
            seen += 1;
            for part in chunk.utf8_chunks() {
                letters += part.valid().chars().filter(|letter| !letter.is_ascii()).count();
                faults += usize::from(!part.invalid().is_empty());
            }
        }
    }
    // In other encodings, some of the letters look like UTF-8 by chance; in UTF-8, a chunk may end within a
    // letter.
    if letters >= LETTERS_PER_FAULT * faults {
        return Ok(UTF_8);
    }
    Ok(detector.guess(None, Utf8Detection::Deny))
}

/// Returns the encoding of a text without a byte order mark that begins as ASCII letters in UTF-16 do.
pub(super) fn utf16_without_mark(first: &[u8]) -> Option<&'static Encoding> {
    match first {
        [1..=u8::MAX, 0, 1..=u8::MAX, 0, ..] => Some(UTF_16LE),
        [0, 1..=u8::MAX, 0, 1..=u8::MAX, ..] => Some(UTF_16BE),
        _ => None,
    }
}
