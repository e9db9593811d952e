//! JSON text to nodes. Numbers stay exact: JavaScript's own parser would round those above 2^53.

use super::{Key, Mistake, Node, Value, decimal};

/// Values within values, at most.
const DEEPEST: usize = 128;

/// Reads a text that is one JSON value. O(length).
pub(crate) fn parse(text: &str) -> Result<Node, Mistake> {
    let mut parser = Parser { text, at: 0 };
    parser.skip_space();
    let node = parser.value(DEEPEST)?;
    parser.skip_space();
    if parser.at < text.len() { Err(parser.mistake("there is something after the value")) } else { Ok(node) }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Parser<'t> {
    fn mistake(&self, what: &str) -> Mistake {
        Mistake::new(["it is not JSON: ", what].concat(), self.at)
    }

    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip(&mut self, is_wanted: impl Fn(u8) -> bool) -> &'t str {
        let from = self.at;
        while self.next().is_some_and(&is_wanted) {
            self.at += 1;
        }
        // Only ASCII is skipped, so both ends are ends of characters.
        self.text.get(from..self.at).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        self.skip(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    }

    /// Passes over `byte`, if it is next, and the space behind it.
    fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.next() == Some(byte);
        if is_next {
            self.at += 1;
            self.skip_space();
        }
        is_next
    }

    fn value(&mut self, depth: usize) -> Result<Node, Mistake> {
        let Some(depth) = depth.checked_sub(1) else { return Err(self.mistake("it is nested too deeply")) };
        let at = self.at;
        let value = match self.next() {
            Some(b'{') => self.table(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Value::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.word()?,
        };
        Ok(Node { at, value })
    }

    fn table(&mut self, depth: usize) -> Result<Value, Mistake> {
        let mut entries = Vec::new();
        self.takes(b'{');
        while !self.takes(b'}') {
            if !entries.is_empty() && !self.takes(b',') {
                return Err(self.mistake("expected `,` or `}`"));
            }
            let at = self.at;
            if self.next() != Some(b'"') {
                return Err(self.mistake("expected a key"));
            }
            let key = Key { at, name: self.string()? };
            self.skip_space();
            if !self.takes(b':') {
                return Err(self.mistake("expected `:`"));
            }
            entries.push((key, self.value(depth)?));
            self.skip_space();
        }
        // `takes` went past the space behind, which belongs to nobody.
        Ok(Value::Table(entries))
    }

    fn list(&mut self, depth: usize) -> Result<Value, Mistake> {
        let mut items = Vec::new();
        self.takes(b'[');
        while !self.takes(b']') {
            if !items.is_empty() && !self.takes(b',') {
                return Err(self.mistake("expected `,` or `]`"));
            }
            items.push(self.value(depth)?);
            self.skip_space();
        }
        Ok(Value::List(items))
    }

    fn word(&mut self) -> Result<Value, Mistake> {
        let from = self.at;
        let value = match self.skip(|byte| byte.is_ascii_lowercase()) {
            "null" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => {
                self.at = from;
                return Err(self.mistake("expected a value"));
            }
        };
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, Mistake> {
        let from = self.at;
        let text = self.skip(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
        let digits = text.strip_prefix('-').unwrap_or(text);
        let whole = digits.bytes().take_while(u8::is_ascii_digit).count();
        let is_whole = whole == digits.len();
        // As JSON has it: no zero in front, and digits on both sides of the point.
        let is_plain = whole == 1 || (whole > 1 && !digits.starts_with('0'));
        let point_is_followed = digits.get(whole..).is_none_or(|rest| {
            rest.strip_prefix('.').is_none_or(|rest| rest.starts_with(|next: char| next.is_ascii_digit()))
        });
        let whole = || text.parse::<u64>().map(i128::from).or_else(|_| text.parse::<i64>().map(i128::from));
        let number = if is_whole { whole().ok().map(Value::Whole) } else { None };
        let number =
            number.or_else(|| Some(decimal::read(text)).filter(|number| number.is_finite()).map(Value::Decimal));
        number.filter(|_| is_plain && point_is_followed).ok_or_else(|| {
            self.at = from;
            self.mistake("this is no number")
        })
    }

    fn string(&mut self) -> Result<String, Mistake> {
        let mut string = String::new();
        self.at += 1;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let plain = rest.find(|c: char| matches!(c, '"' | '\\') || c < ' ').unwrap_or(rest.len());
            string.push_str(rest.get(..plain).unwrap_or_default());
            self.at += plain;
            match self.next() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(string);
                }
                Some(b'\\') => string.push(self.escaped()?),
                _ => return Err(self.mistake("a text does not end")),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, Mistake> {
        self.at += 1;
        let escape = self.next();
        self.at += 1;
        Ok(match escape {
            Some(plain @ (b'"' | b'\\' | b'/')) => char::from(plain),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let unit = self.unit()?;
                let has_second = (0xD800..0xDC00).contains(&unit) && self.rest().starts_with("\\u");
                let code = if has_second { self.second_half(unit)? } else { unit };
                // Half of a pair is no character; JavaScript writes such texts so.
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            _ => {
                self.at -= 1;
                return Err(self.mistake("unknown escape"));
            }
        })
    }

    /// The character of a pair of which `high` is the first half; `high` itself if what follows is no second half.
    fn second_half(&mut self, high: u32) -> Result<u32, Mistake> {
        let before = self.at;
        self.at += 2;
        let low = self.unit()?;
        if (0xDC00..0xE000).contains(&low) {
            return Ok(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00));
        }
        self.at = before;
        Ok(high)
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Four hexadecimal digits.
    fn unit(&mut self) -> Result<u32, Mistake> {
        let digits = self.rest().get(..4).filter(|four| four.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let unit = digits.and_then(|four| u32::from_str_radix(four, 16).ok());
        let unit = unit.ok_or_else(|| self.mistake("expected four hexadecimal digits"))?;
        self.at += 4;
        Ok(unit)
    }
}
