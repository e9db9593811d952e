//! Objects and texts of JavaScript, and TOML, to and from the core's types.
//!
//! Whatever comes in is read into a [`Node`] first: objects as the JSON text that JavaScript makes of them, files as TOML.
//! A node knows where it stood, and [`read`] turns it into a type of the core, so that each type is read by one piece of
//! code and every mistake is told with its place. What goes out is JSON text that
//! JavaScript parses: faster than making objects property by property, and smaller.

mod decimal;
mod json;
mod pretty;
mod read;
#[cfg(feature = "files")]
mod toml;
#[cfg(feature = "engine")]
mod write;

use std::fmt;

use serde::de::{Expected, Unexpected};

pub(crate) use self::json::parse as parse_json;
pub(crate) use self::pretty::pretty;
pub(crate) use self::read::read;
#[cfg(feature = "files")]
pub(crate) use self::toml::{parse as parse_toml, write as write_toml};
#[cfg(feature = "engine")]
pub(crate) use self::write::write_json;

/// A value, and where it begins in its text, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) at: usize,
    pub(crate) value: Value,
}

/// What JSON and TOML have in common.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Whole(i128),
    Decimal(f64),
    Text(String),
    List(Vec<Node>),
    /// Keys with their places, in their order.
    Table(Vec<(Key, Node)>),
}

/// The name of an entry, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) at: usize,
    pub(crate) name: String,
}

/// What is wrong, and with what. All code that reads hands it on: so it is one pointer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mistake(Box<Told>);

#[derive(Clone, Debug, PartialEq)]
struct Told {
    /// What is wrong.
    what: String,
    /// Where in the text.
    at: Option<usize>,
    /// The way to the value from the outermost, such as `models[0].provider`; empty for that itself.
    path: String,
    /// Which value of a sequence was missed, until the place is known.
    missed: Option<usize>,
}

impl Mistake {
    pub(crate) fn new(what: impl Into<String>, at: usize) -> Self {
        Self(Box::new(Told { what: what.into(), at: Some(at), path: String::new(), missed: None }))
    }

    /// A mistake without a place yet.
    fn nowhere(what: String) -> Self {
        Self(Box::new(Told { what, at: None, path: String::new(), missed: None }))
    }

    /// The same, of the value at this place, unless a more exact one is known.
    fn at(mut self, at: usize) -> Self {
        self.0.at = self.0.at.or(Some(at));
        self.0.missed = None;
        self
    }

    /// The same, of a struct with these fields: what was missed is one of them.
    fn of_field(mut self, fields: &[&str]) -> Self {
        if let Some(name) = self.0.missed.and_then(|nth| fields.get(nth)) {
            self.0.what = ["missing field `", name, "`"].concat();
        }
        self
    }

    /// The same, seen from one level further out. `step` is a key, or `[n]`.
    fn inside(mut self, step: &str) -> Self {
        let joint = if self.0.path.is_empty() || self.0.path.starts_with('[') { "" } else { "." };
        self.0.path = [step, joint, &self.0.path].concat();
        self.0.missed = None;
        self
    }

    /// The same, seen from the list of which it is an item.
    #[cold]
    fn inside_item(self, nth: usize) -> Self {
        self.inside(&["[", &nth.to_string(), "]"].concat())
    }

    #[cfg(any(feature = "files", test))]
    /// The whole message, with line and column of `text`, from 1.
    pub(crate) fn in_text(&self, text: &str) -> String {
        let before = text.get(..self.0.at.unwrap_or(0)).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        format!("line {line}, column {column}: {self}")
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.path.is_empty() {
            f.write_str(&self.0.path)?;
            f.write_str(": ")?;
        }
        f.write_str(&self.0.what)
    }
}

impl std::error::Error for Mistake {}

impl serde::de::Error for Mistake {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Self::nowhere(what.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::nowhere(format!("invalid type: {}, expected {expected}", described(&found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::nowhere(format!("invalid value: {}, expected {expected}", described(&found)))
    }

    fn invalid_length(found: usize, expected: &dyn Expected) -> Self {
        let mut mistake = Self::nowhere(format!("invalid length {found}, expected {expected}"));
        mistake.0.missed = Some(found);
        mistake
    }
}

/// What was found, in the words of `serde`, but for texts as they stand. Its own words come with the formatting of floats and
/// the tables of Unicode.
fn described(found: &Unexpected<'_>) -> String {
    let kind = match *found {
        Unexpected::Bool(yes) => return format!("boolean `{yes}`"),
        Unexpected::Unsigned(number) => return format!("integer `{number}`"),
        Unexpected::Signed(number) => return format!("integer `{number}`"),
        Unexpected::Float(number) if number.is_finite() => {
            return format!("floating point `{}`", decimal::write(number));
        }
        // TOML has these.
        Unexpected::Float(number) if number.is_nan() => "floating point `NaN`",
        Unexpected::Float(number) if number > 0.0 => "floating point `inf`",
        Unexpected::Float(_) => "floating point `-inf`",
        Unexpected::Str(text) => return ["string \"", text, "\""].concat(),
        Unexpected::Unit => "null",
        Unexpected::Seq => "sequence",
        Unexpected::Map => "map",
        Unexpected::Enum => "enum",
        Unexpected::Other(kind) => kind,
        // Of these there are none in JSON or TOML.
        _ => "value of another kind",
    };
    kind.to_owned()
}

#[cfg(test)]
mod tests;
