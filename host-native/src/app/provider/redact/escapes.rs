//! Reads the escapes of URLs, JSON and HTML, in which a response may quote a key.

use memchr::memchr3_iter;

/// The maximum length of an escape.
pub(super) const MAX_ESCAPE_BYTES: usize = 16;

/// Returns whether a byte may be a part of an escape.
pub(super) fn may_be_in_escape(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"%\\&#;/\"'".contains(&byte)
}

/// Returns the start of the escape that `index` is within, also of escapes in what escapes stand for, down to
/// `levels`. Returns `index` if there is none.
pub(super) fn escape_start(text: &[u8], index: usize, levels: u32) -> usize {
    match Decoded::new(text) {
        Some(decoded) if levels > 0 => {
            decoded.source_index(escape_start(&decoded.text, decoded.text_index(index), levels - 1))
        }
        _ => index,
    }
}

/// A text in which each escape of a URL, of JSON and of HTML is replaced by the character it stands for.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    pub(super) text: Vec<u8>,
    /// For each escape, its end in `text` and in the source.
    ends: Vec<(usize, usize)>,
    /// The length of `text` without an escape at its end that is not complete.
    pub(super) complete_len: usize,
}

impl Decoded {
    /// Decodes `source`. Returns `None` if it has no escapes.
    pub(super) fn new(source: &[u8]) -> Option<Self> {
        let (mut decoded, mut copied, mut is_complete) = (Self::default(), 0, true);
        for at in memchr3_iter(b'%', b'\\', b'&', source) {
            if at < copied {
                continue;
            }
            match Escape::read(&source[at..]) {
                Escape::None => {}
                Escape::Incomplete => {
                    is_complete = false;
                    decoded.complete_len = decoded.text.len() + at - copied;
                    break;
                }
                Escape::Character { byte, len } => {
                    decoded.text.extend_from_slice(&source[copied..at]);
                    decoded.text.push(byte);
                    copied = at + len;
                    decoded.ends.push((decoded.text.len(), copied));
                }
            }
        }
        if is_complete && decoded.ends.is_empty() {
            return None;
        }
        decoded.text.extend_from_slice(&source[copied..]);
        if is_complete {
            decoded.complete_len = decoded.text.len();
        }
        Some(decoded)
    }

    /// Returns the position in the source of a position in `text`.
    pub(super) fn source_index(&self, index: usize) -> usize {
        let before = self.ends.partition_point(|(end, _)| *end <= index);
        let (end, source_end) = before.checked_sub(1).map_or((0, 0), |last| self.ends[last]);
        source_end + (index - end)
    }

    /// Returns the position in `text` of a position in the source, or of the escape that it is within.
    fn text_index(&self, index: usize) -> usize {
        let before = self.ends.partition_point(|(_, source_end)| *source_end <= index);
        let (end, source_end) = before.checked_sub(1).map_or((0, 0), |last| self.ends[last]);
        let next = self.ends.get(before).map_or(usize::MAX, |(end, _)| end - 1);
        (end + (index - source_end)).min(next)
    }
}

/// What a text that begins with `%`, `\` or `&` begins with.
#[derive(Clone, Copy, Debug)]
enum Escape {
    None,
    /// The text ends within an escape, or may do so.
    Incomplete,
    /// An escape of `len` bytes for the character `byte`.
    Character {
        byte: u8,
        len: usize,
    },
}

impl Escape {
    fn read(text: &[u8]) -> Self {
        match *text {
            [b'%', ref rest @ ..] => Self::hex(1, rest, 2),
            [b'\\', b'u', ref rest @ ..] => Self::hex(2, rest, 4),
            [b'\\', b'x', ref rest @ ..] => Self::hex(2, rest, 2),
            [b'\\', byte @ (b'/' | b'"' | b'\'' | b'\\'), ..] => Self::Character { byte, len: 2 },
            [b'\\'] => Self::Incomplete,
            [b'&', ref rest @ ..] => Self::html(rest),
            _ => Self::None,
        }
    }

    /// Reads an escape that has `count` hexadecimal digits after its first `before` bytes.
    fn hex(before: usize, text: &[u8], count: usize) -> Self {
        let digits = &text[..text.len().min(count)];
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return Self::None;
        }
        if digits.len() < count {
            return Self::Incomplete;
        }
        Self::character(digits, 16, before + count)
    }

    /// Reads the rest of a character reference of HTML, after its `&`.
    fn html(text: &[u8]) -> Self {
        let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'#';
        let name = &text[..text.iter().take(MAX_ESCAPE_BYTES - 2).take_while(is_name).count()];
        let len = name.len() + 2;
        match (name, text.get(name.len())) {
            (_, None) => Self::Incomplete,
            ([b'#', b'x' | b'X', digits @ ..], Some(b';')) => Self::character(digits, 16, len),
            ([b'#', digits @ ..], Some(b';')) => Self::character(digits, 10, len),
            (name, Some(b';')) => {
                let known = NAMED.iter().find(|(known, _)| *known == name);
                known.map_or(Self::None, |(_, byte)| Self::Character { byte: *byte, len })
            }
            _ => Self::None,
        }
    }

    /// Returns the escape of `len` bytes for the character whose code is `digits`. Keys have no others than
    /// those of one byte.
    fn character(digits: &[u8], radix: u32, len: usize) -> Self {
        let code = std::str::from_utf8(digits).ok().and_then(|digits| u8::from_str_radix(digits, radix).ok());
        code.map_or(Self::None, |byte| Self::Character { byte, len })
    }
}

/// The names that HTML has for characters of keys.
const NAMED: [(&[u8], u8); 11] = [
    (b"amp", b'&'),
    (b"lt", b'<'),
    (b"gt", b'>'),
    (b"quot", b'"'),
    (b"apos", b'\''),
    (b"plus", b'+'),
    (b"sol", b'/'),
    (b"equals", b'='),
    (b"colon", b':'),
    (b"lowbar", b'_'),
    (b"period", b'.'),
];
