//! Typed access to a TOML table that remembers where everything stood.
//!
//! A [`TableReader`] is opened with the keys its table may hold; any other key is refused at once, so a misspelt
//! optional key is never silently ignored. Values leave it as [`Spanned`] types that are already in range.

use std::num::NonZeroU32;
use std::ops::Range;

use serde_json::{Map, Number, Value};
use tidegate_core::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::source::{FileError, SourceText};

/// Reads the keys of one table.
pub(crate) struct TableReader<'a> {
    source: &'a SourceText,
    /// How the table is called in messages, such as `[[models]]`.
    title: &'static str,
    known: &'static [&'static str],
    table: &'a DeTable<'a>,
    span: Range<usize>,
}

/// What a key is called now that had another name before.
fn new_name(key: &str) -> &str {
    match key {
        "salvage_rounds" => "retries",
        other => other,
    }
}

impl<'a> TableReader<'a> {
    /// Opens `table`, refusing any key that is not in `known`.
    pub(crate) fn open(
        source: &'a SourceText,
        title: &'static str,
        known: &'static [&'static str],
        table: &'a DeTable<'a>,
        span: Range<usize>,
    ) -> Result<Self, FileError> {
        for key in table.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                return Err(source
                    .error(key.span(), format!("unknown key `{name}` in {title}"))
                    .expected(format!("one of: {}", known.join(", ")))
                    .suggest(new_name(name), known.iter().copied()));
            }
        }
        Ok(Self { source, title, known, table, span })
    }

    /// How the table is called in messages.
    pub(crate) fn title(&self) -> &'static str {
        self.title
    }

    /// Where the table stands.
    pub(crate) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The raw value of `key`.
    pub(crate) fn raw(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        debug_assert!(self.known.contains(&key), "`{key}` is asked for but not announced");
        self.table.get(key)
    }

    /// The value of `key`, if it is there.
    pub(crate) fn optional<T: FromToml>(&self, key: &'static str) -> Result<Option<Spanned<T>>, FileError> {
        self.raw(key).map(|value| self.convert(key, value)).transpose()
    }

    /// The value of `key`, or `default` without a place.
    pub(crate) fn or<T: FromToml>(&self, key: &'static str, default: T) -> Result<T, FileError> {
        Ok(self.optional(key)?.map_or(default, Spanned::into_inner))
    }

    /// The value of `key`, which must be there.
    pub(crate) fn required<T: FromToml>(&self, key: &'static str) -> Result<Spanned<T>, FileError> {
        self.optional(key)?.ok_or_else(|| {
            self.source
                .error(self.span(), format!("{} has no `{key}`", self.title))
                .expected(format!("`{key} = ` {}", T::EXPECTED))
        })
    }

    /// The table under `key`, if it is there.
    pub(crate) fn table(
        &self,
        key: &'static str,
        title: &'static str,
        known: &'static [&'static str],
    ) -> Result<Option<TableReader<'a>>, FileError> {
        let Some(value) = self.raw(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Table(table) => Self::open(self.source, title, known, table, value.span()).map(Some),
            other => Err(self.wrong(value.span(), key, other, "a table")),
        }
    }

    /// The tables of the array under `key`; none when it is not there.
    pub(crate) fn tables(
        &self,
        key: &'static str,
        title: &'static str,
        known: &'static [&'static str],
    ) -> Result<Vec<TableReader<'a>>, FileError> {
        let Some(value) = self.raw(key) else { return Ok(Vec::new()) };
        let DeValue::Array(items) = value.get_ref() else {
            return Err(self.wrong(value.span(), key, value.get_ref(), "an array of tables"));
        };
        items
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::Table(table) => Self::open(self.source, title, known, table, item.span()),
                other => Err(self.wrong(item.span(), key, other, "a table")),
            })
            .collect()
    }

    /// The meaning of the word under `key`, which must be one of `words`; `default` when it is not there.
    pub(super) fn choice<T: Copy>(
        &self,
        key: &'static str,
        words: &[(&'static str, T)],
        default: T,
    ) -> Result<T, FileError> {
        let Some(given) = self.optional::<String>(key)? else { return Ok(default) };
        if let Some((_, meaning)) = words.iter().find(|(word, _)| word == given.get_ref()) {
            return Ok(*meaning);
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        Err(self
            .source
            .error(given.span(), format!("`{key}` in {} is the string {:?}", self.title, given.get_ref()))
            .expected(format!("one of: {}", known.join(", ")))
            .suggest(given.get_ref(), known))
    }

    /// The text under `key`, or a number there; `None` when it is not there.
    pub(super) fn setting<T: FromToml>(&self, key: &'static str) -> Result<Option<Setting<T>>, FileError> {
        match self.raw(key) {
            Some(value) if value.get_ref().is_str() => Ok(self.optional(key)?.map(Setting::Template)),
            Some(value) => self.convert(key, value).map(|value| Some(Setting::Fixed(value.into_inner()))),
            None => Ok(None),
        }
    }

    /// An error about the value of `key`.
    pub(super) fn about(&self, key: &'static str, message: impl Into<String>) -> FileError {
        self.source.error(self.raw(key).map_or_else(|| self.span(), Spanned::span), message)
    }

    /// Refuses the value of `key`, which is of the right type but not what is `expected`.
    pub(super) fn refused(&self, key: &'static str, expected: &str) -> FileError {
        match self.raw(key) {
            Some(value) => self.wrong(value.span(), key, value.get_ref(), expected),
            None => self.source.error(self.span(), format!("{} has no `{key}`", self.title)).expected(expected),
        }
    }

    /// The value of `key`, which must be there and within `allowed`.
    pub(super) fn optional_within<T: FromToml + PartialOrd>(
        &self,
        key: &'static str,
        allowed: std::ops::RangeInclusive<T>,
        expected: &str,
    ) -> Result<Option<T>, FileError> {
        match self.optional::<T>(key)?.map(Spanned::into_inner) {
            Some(value) if !allowed.contains(&value) => Err(self.refused(key, expected)),
            value => Ok(value),
        }
    }

    fn convert<T: FromToml>(&self, key: &str, value: &Spanned<DeValue<'a>>) -> Result<Spanned<T>, FileError> {
        match T::from_toml(value.get_ref()) {
            Some(converted) => Ok(Spanned::new(value.span(), converted)),
            None => Err(self.wrong(value.span(), key, value.get_ref(), T::EXPECTED)),
        }
    }

    fn wrong(&self, span: Range<usize>, key: &str, found: &DeValue<'_>, expected: &str) -> FileError {
        self.source.error(span, format!("`{key}` in {} is {}", self.title, describe(found))).expected(expected)
    }
}

/// The value as a person would say it, cut when long.
fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.chars().count() > 40 => {
            format!("the string \"{}…\"", text.chars().take(40).collect::<String>())
        }
        DeValue::String(text) => format!("the string {text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(_) => "a date or time".to_string(),
        DeValue::Array(items) => format!("an array of {} items", items.len()),
        DeValue::Table(_) => "a table".to_string(),
    }
}

/// A setting of a call: the same for all, or a template that says it for each.
#[derive(Clone, Debug)]
pub enum Setting<T> {
    /// The same for all.
    Fixed(T),
    /// What the template's text says.
    Template(Spanned<String>),
}

/// `value` as JSON; `None` for what JSON cannot hold: infinities, and whole numbers beyond 64 bits.
pub(super) fn to_json(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::from(number),
            Err(_) => Value::from(u64::from_toml(value)?),
        },
        DeValue::Float(_) => Value::Number(Number::from_f64(f64::from_toml(value)?)?),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Datetime(datetime) => Value::String(datetime.to_string()),
        DeValue::Array(items) => items.iter().map(|item| to_json(item.get_ref())).collect::<Option<_>>()?,
        DeValue::Table(table) => {
            let entry = |(key, item): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let key: &std::borrow::Cow<'_, str> = key.get_ref();
                Some((key.to_string(), to_json(item.get_ref())?))
            };
            Value::Object(table.iter().map(entry).collect::<Option<_>>()?)
        }
    })
}

/// A type that a TOML value either is or is not.
pub(crate) trait FromToml: Sized {
    /// What the value has to be, in words.
    const EXPECTED: &'static str;

    /// The value, or `None` when it is of another type or out of range.
    fn from_toml(value: &DeValue<'_>) -> Option<Self>;
}

impl FromToml for String {
    const EXPECTED: &'static str = "a string that is not empty";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        value.as_str().filter(|text| !text.trim().is_empty()).map(str::to_string)
    }
}

impl FromToml for Value {
    const EXPECTED: &'static str = "a value that JSON can hold";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        to_json(value)
    }
}

impl FromToml for Map<String, Value> {
    const EXPECTED: &'static str = "a table of values that JSON can hold";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        match to_json(value)? {
            Value::Object(map) => Some(map),
            _ => None,
        }
    }
}

impl FromToml for Vec<Value> {
    const EXPECTED: &'static str = "an array of at least one value";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        match to_json(value)? {
            Value::Array(items) if !items.is_empty() => Some(items),
            _ => None,
        }
    }
}

impl FromToml for Vec<f64> {
    const EXPECTED: &'static str = "an array of finite numbers";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        value.as_array()?.iter().map(|item| f64::from_toml(item.get_ref())).collect()
    }
}

impl FromToml for Vec<Spanned<String>> {
    const EXPECTED: &'static str = "an array of strings, none of them empty";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        let one = |item: &Spanned<DeValue<'_>>| Some(Spanned::new(item.span(), String::from_toml(item.get_ref())?));
        value.as_array()?.iter().map(one).collect()
    }
}

impl FromToml for bool {
    const EXPECTED: &'static str = "true or false";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        value.as_bool()
    }
}

impl FromToml for u64 {
    const EXPECTED: &'static str = "a whole number, 0 or more";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        let number = value.as_integer()?;
        Self::from_str_radix(number.as_str(), number.radix()).ok()
    }
}

impl FromToml for i64 {
    const EXPECTED: &'static str = "a whole number of 64 bits";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        let number = value.as_integer()?;
        Self::from_str_radix(number.as_str(), number.radix()).ok()
    }
}

impl FromToml for u32 {
    const EXPECTED: &'static str = "a whole number from 0 to 4294967295";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        Self::try_from(u64::from_toml(value)?).ok()
    }
}

impl FromToml for NonZeroU32 {
    const EXPECTED: &'static str = "a whole number from 1 to 4294967295";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        Self::new(u32::from_toml(value)?)
    }
}

impl FromToml for f64 {
    const EXPECTED: &'static str = "a finite number";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        let number: Self = match value {
            DeValue::Float(number) => number.as_str().parse().ok()?,
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok()?,
            _ => return None,
        };
        number.is_finite().then_some(number)
    }
}

impl FromToml for Duration {
    const EXPECTED: &'static str = "a duration such as \"250ms\", \"1.5s\", \"10m\" or \"1h\"";

    fn from_toml(value: &DeValue<'_>) -> Option<Self> {
        parse_duration(value.as_str()?)
    }
}

/// Reads a decimal number with a unit: `us`, `ms`, `s`, `m` or `h`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    let number = number.trim_end();
    if number.is_empty() || !number.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return None;
    }
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_a_number_with_a_unit() {
        for (text, millis) in [("250ms", 250), ("1.5s", 1_500), ("2 s", 2_000), ("10m", 600_000), ("1h", 3_600_000)] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for refused in ["", "5", "s", "-1s", "1e3s", "5 days", "1..2s"] {
            assert_eq!(parse_duration(refused), None, "{refused}");
        }
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_the_range() {
        let source = SourceText::new("p.toml", "max = 0\n");
        let table = DeTable::parse(source.text()).unwrap();
        let span = table.span();
        let reader = TableReader::open(&source, "[run]", &["max"], table.get_ref(), span).unwrap();
        let error = reader.required::<NonZeroU32>("max").unwrap_err().to_string();
        assert!(error.starts_with("p.toml:1:7: `max` in [run] is 0\n"), "{error}");
        assert!(error.contains("expected a whole number from 1 to 4294967295"), "{error}");
    }

    #[test]
    fn a_missing_key_is_named_with_what_it_should_hold() {
        let source = SourceText::new("p.toml", "\n[run]\n");
        let table = DeTable::parse(source.text()).unwrap();
        let root = TableReader::open(&source, "the file", &["run"], table.get_ref(), table.span()).unwrap();
        let run = root.table("run", "[run]", &["size"]).unwrap().unwrap();
        let error = run.required::<u32>("size").unwrap_err().to_string();
        assert!(error.starts_with("p.toml:2:1: [run] has no `size`"), "{error}");
    }
}
