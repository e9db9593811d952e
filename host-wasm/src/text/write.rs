//! Values to JSON text, as `serde_json` writes it, in half the code: nothing here can fail but a key that is no text. Of numbers
//! there are those that occur: up to 64 bits, and 128 without a sign.

use std::fmt::{self, Display};

use serde::ser::{
    Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::decimal;

/// The compact JSON text of a value. O(length of the text). Fails for a value that has none: one with a table whose keys are no
/// texts.
pub(crate) fn write_json<T: Serialize>(value: &T) -> Result<String, NoJson> {
    let mut text = String::new();
    value.serialize(Writer(&mut text)).map(|()| text)
}

/// A value has no JSON. Of the types in this program none is so, and why is not worth the code that could say it.
#[derive(Debug)]
pub(crate) struct NoJson;

impl Display for NoJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value has no JSON")
    }
}

impl std::error::Error for NoJson {}

impl Error for NoJson {
    fn custom<T: Display>(_: T) -> Self {
        Self
    }
}

type Written = Result<(), NoJson>;

struct Writer<'t>(&'t mut String);

impl<'t> Writer<'t> {
    fn put(self, text: &str) {
        self.0.push_str(text);
    }

    fn open(self, opening: &str, closing: &'static str) -> Open<'t> {
        self.0.push_str(opening);
        Open { text: self.0, has_items: false, closing }
    }

    /// A table with one entry, up to its value.
    fn variant(&mut self, name: &str) {
        self.0.push('{');
        quote(name, self.0);
        self.0.push(':');
    }
}

impl<'t> Serializer for Writer<'t> {
    type Ok = ();
    type Error = NoJson;
    type SerializeSeq = Open<'t>;
    type SerializeTuple = Open<'t>;
    type SerializeTupleStruct = Open<'t>;
    type SerializeTupleVariant = Open<'t>;
    type SerializeMap = Open<'t>;
    type SerializeStruct = Open<'t>;
    type SerializeStructVariant = Open<'t>;

    fn serialize_bool(self, yes: bool) -> Written {
        self.put(if yes { "true" } else { "false" });
        Ok(())
    }

    fn serialize_i8(self, number: i8) -> Written {
        self.serialize_i64(number.into())
    }

    fn serialize_i16(self, number: i16) -> Written {
        self.serialize_i64(number.into())
    }

    fn serialize_i32(self, number: i32) -> Written {
        self.serialize_i64(number.into())
    }

    fn serialize_i64(self, number: i64) -> Written {
        self.put(&number.to_string());
        Ok(())
    }

    fn serialize_u8(self, number: u8) -> Written {
        self.serialize_u64(number.into())
    }

    fn serialize_u16(self, number: u16) -> Written {
        self.serialize_u64(number.into())
    }

    fn serialize_u32(self, number: u32) -> Written {
        self.serialize_u64(number.into())
    }

    fn serialize_u64(self, number: u64) -> Written {
        self.put(&number.to_string());
        Ok(())
    }

    /// In parts of 19 digits: so many fit into what is written anyway.
    fn serialize_u128(self, number: u128) -> Written {
        const PART: u128 = 10_000_000_000_000_000_000;
        if let Ok(number) = u64::try_from(number) {
            return self.serialize_u64(number);
        }
        Writer(self.0).serialize_u128(number / PART)?;
        self.put(&format!("{:019}", (number % PART) as u64));
        Ok(())
    }

    /// There are none in this program, and their digits would be others.
    fn serialize_f32(self, _: f32) -> Written {
        Err(NoJson)
    }

    fn serialize_f64(self, number: f64) -> Written {
        self.put(&decimal::write(number));
        Ok(())
    }

    fn serialize_char(self, letter: char) -> Written {
        self.serialize_str(letter.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, text: &str) -> Written {
        quote(text, self.0);
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Written {
        bytes.serialize(self)
    }

    fn serialize_none(self) -> Written {
        self.put("null");
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Written {
        self.put("null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Written {
        self.put("null");
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Written {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        mut self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Written {
        self.variant(variant);
        value.serialize(Writer(self.0))?;
        self.put("}");
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Open<'t>, NoJson> {
        Ok(self.open("[", "]"))
    }

    fn serialize_tuple(self, _: usize) -> Result<Open<'t>, NoJson> {
        Ok(self.open("[", "]"))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Open<'t>, NoJson> {
        Ok(self.open("[", "]"))
    }

    fn serialize_tuple_variant(
        mut self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Open<'t>, NoJson> {
        self.variant(variant);
        Ok(self.open("[", "]}"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Open<'t>, NoJson> {
        Ok(self.open("{", "}"))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Open<'t>, NoJson> {
        Ok(self.open("{", "}"))
    }

    fn serialize_struct_variant(
        mut self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Open<'t>, NoJson> {
        self.variant(variant);
        Ok(self.open("{", "}}"))
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Written {
        self.serialize_str(&value.to_string())
    }
}

/// A list or a table that is being written.
struct Open<'t> {
    text: &'t mut String,
    has_items: bool,
    closing: &'static str,
}

impl Open<'_> {
    fn separate(&mut self) {
        if self.has_items {
            self.text.push(',');
        }
        self.has_items = true;
    }

    fn name(&mut self, name: &str) {
        self.separate();
        quote(name, self.text);
        self.text.push(':');
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.separate();
        value.serialize(Writer(self.text))
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Written {
        self.name(name);
        value.serialize(Writer(self.text))
    }
}

macro_rules! write_items {
    ($($kind:ident $method:ident),*) => {
        $(impl $kind for Open<'_> {
            type Ok = ();
            type Error = NoJson;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
                self.item(value)
            }

            fn end(self) -> Written {
                self.text.push_str(self.closing);
                Ok(())
            }
        })*
    };
}

write_items!(
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
);

macro_rules! write_fields {
    ($($kind:ident),*) => {
        $(impl $kind for Open<'_> {
            type Ok = ();
            type Error = NoJson;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Written {
                self.field(name, value)
            }

            fn end(self) -> Written {
                self.text.push_str(self.closing);
                Ok(())
            }
        })*
    };
}

write_fields!(SerializeStruct, SerializeStructVariant);

impl SerializeMap for Open<'_> {
    type Ok = ();
    type Error = NoJson;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Written {
        self.separate();
        let from = self.text.len();
        key.serialize(Writer(self.text))?;
        match self.text.as_bytes().get(from) {
            Some(b'"') => {}
            Some(b'[' | b'{' | b'n') | None => return Err(NoJson),
            // Numbers and the like are keys as texts.
            Some(_) => {
                self.text.insert(from, '"');
                self.text.push('"');
            }
        }
        self.text.push(':');
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        value.serialize(Writer(self.text))
    }

    fn end(self) -> Written {
        self.text.push_str(self.closing);
        Ok(())
    }
}

/// Adds `text` in quotation marks.
fn quote(text: &str, to: &mut String) {
    to.push('"');
    for letter in text.chars() {
        match letter {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            '\u{8}' => to.push_str("\\b"),
            '\u{c}' => to.push_str("\\f"),
            '\0'..' ' => {
                let code = letter as u32;
                to.push_str(if code < 16 { "\\u000" } else { "\\u001" });
                to.push(char::from_digit(code % 16, 16).unwrap_or('0'));
            }
            _ => to.push(letter),
        }
    }
    to.push('"');
}
