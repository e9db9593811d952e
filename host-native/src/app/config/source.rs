//! The text of a file and the places in it, so that every complaint can point at what it is about.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use crate::app::error::{Error, Exit};
use tidegate_core::error::ConfigError;
use toml::Spanned;
use toml::de::DeValue;

/// A file's text under the name a person knows it by.
#[derive(Clone, Debug)]
pub struct SourceText {
    name: String,
    text: String,
}

/// A line and column (both from 1, columns in characters) of a named file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file as the caller named it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl SourceText {
    /// A text called `name` in messages.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// Reads `path`; a file that is not UTF-8 is refused as unreadable.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| FileError::unreadable(&name, &error.to_string()))?;
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self { name, text }),
            Err(error) => {
                let valid = error.utf8_error().valid_up_to();
                let line = error.as_bytes()[..valid].split(|byte| *byte == b'\n').count();
                Err(FileError::unreadable(&name, &format!("line {line} is not valid UTF-8")))
            }
        }
    }

    /// The whole text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where byte `offset` is. An offset past the end or inside a character is the nearest place before it.
    #[must_use]
    pub fn place(&self, offset: usize) -> Place {
        let before = &self.text[..self.floor_char_boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Place {
            file: self.name.clone(),
            line: 1 + before.matches('\n').count(),
            column: 1 + before[line_start..].chars().count(),
        }
    }

    /// An error about the text in `span`.
    #[must_use]
    pub fn error(&self, span: Range<usize>, message: impl Into<String>) -> FileError {
        FileError(Box::new(FileErrorParts {
            place: Some(self.place(span.start)),
            file: self.name.clone(),
            message: message.into(),
            excerpt: self.excerpt(span),
            expected: None,
            suggestion: None,
        }))
    }

    /// The first line of `span` with a marker under the part that is meant.
    fn excerpt(&self, span: Range<usize>) -> Option<String> {
        let place = self.place(span.start);
        let line = self.text.lines().nth(place.line - 1)?;
        let number = place.line.to_string();
        let indent: String = line.chars().take(place.column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let start = self.floor_char_boundary(span.start);
        let end = self.floor_char_boundary(span.end).max(start);
        let width = self.text[start..end].lines().next().map_or(0, |part| part.chars().count());
        let marker = "^".repeat(width.max(1));
        Some(format!("  {number} | {line}\n  {:width$} | {indent}{marker}", "", width = number.len()))
    }

    fn floor_char_boundary(&self, offset: usize) -> usize {
        (0..=offset.min(self.text.len())).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0)
    }
}

/// A refused file: where, what is there, what was expected, and a suggestion where one is near.
#[derive(Clone, Debug)]
pub struct FileError(Box<FileErrorParts>);

#[derive(Clone, Debug)]
struct FileErrorParts {
    place: Option<Place>,
    file: String,
    message: String,
    excerpt: Option<String>,
    expected: Option<String>,
    suggestion: Option<String>,
}

impl FileError {
    /// A file that could not be read as text at all.
    fn unreadable(file: &str, why: &str) -> Self {
        Self::about(file, format!("cannot read the file: {why}"))
    }

    /// An error about a file as a whole, or about what was taken for one.
    pub(crate) fn about(file: &str, message: impl Into<String>) -> Self {
        Self(Box::new(FileErrorParts {
            place: None,
            file: file.to_string(),
            message: message.into(),
            excerpt: None,
            expected: None,
            suggestion: None,
        }))
    }

    /// Adds what would have been accepted.
    #[must_use]
    pub fn expected(mut self, expected: impl Into<String>) -> Self {
        self.0.expected = Some(expected.into());
        self
    }

    /// The same error without the line of the file, which holds something that must not be shown.
    #[must_use]
    pub fn without_excerpt(mut self) -> Self {
        self.0.excerpt = None;
        self
    }

    /// Adds the closest of `candidates` to `wrong`, if one is close enough to be a slip of the keys.
    #[must_use]
    pub fn suggest<'c>(mut self, wrong: &str, candidates: impl IntoIterator<Item = &'c str>) -> Self {
        self.0.suggestion = closest(wrong, candidates).map(str::to_string);
        self
    }

    /// Where the file is wrong; `None` when it could not be read.
    #[must_use]
    pub fn place(&self) -> Option<&Place> {
        self.0.place.as_ref()
    }

    /// What is wrong, without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &*self.0;
        match &parts.place {
            Some(place) => write!(f, "{place}: {}", parts.message)?,
            None => write!(f, "{}: {}", parts.file, parts.message)?,
        }
        if let Some(excerpt) = &parts.excerpt {
            write!(f, "\n{excerpt}")?;
        }
        if let Some(expected) = &parts.expected {
            write!(f, "\n  expected {expected}")?;
        }
        if let Some(suggestion) = &parts.suggestion {
            write!(f, "\n  did you mean `{suggestion}`?")?;
        }
        Ok(())
    }
}

impl std::error::Error for FileError {}

/// The candidate nearest to `wrong`, unless even that is far off.
fn closest<'c>(wrong: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    /// Below this Jaro-Winkler similarity two names are different words rather than a typing slip.
    const SIMILAR: f64 = 0.8;
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(wrong, candidate), candidate))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// The core's refusal of a value inside `value`, which stands under `key`, at the field it names.
pub(crate) fn config_error(
    source: &SourceText,
    title: &str,
    key: &str,
    error: &ConfigError,
    value: &Spanned<DeValue<'_>>,
) -> FileError {
    let path = error.field.strip_prefix(key).unwrap_or(&error.field).trim_start_matches('.');
    source.error(locate(value, path), format!("`{key}.{path}` in {title} is {}", error.value)).expected(error.expected)
}

/// Where the field at `path`, such as `capacity.steps[2].at_ms`, stands inside `value`; the nearest part of the path
/// that is there, when the rest is a default.
pub(crate) fn locate(value: &Spanned<DeValue<'_>>, path: &str) -> Range<usize> {
    let mut found = value;
    for step in path.split(['.', '[', ']']).filter(|step| !step.is_empty()) {
        let next = match found.get_ref() {
            DeValue::Array(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
            DeValue::Table(table) => table.get(step),
            _ => None,
        };
        match next {
            Some(next) => found = next,
            None => break,
        }
    }
    found.span()
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        Self::new(Exit::Pipeline, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_characters_from_one() {
        let source = SourceText::new("p.toml", "ab\nçé x\n");
        assert_eq!(source.place(0).to_string(), "p.toml:1:1");
        assert_eq!(source.place(source.text().find('x').unwrap()).to_string(), "p.toml:2:4");
        assert_eq!(source.place(999).line, 3);
    }

    #[test]
    fn an_error_shows_the_line_the_expectation_and_a_near_name() {
        let source = SourceText::new("p.toml", "a = 1\nwieght = 2\n");
        let error =
            source.error(6..12, "unknown key `wieght`").expected("`weight`").suggest("wieght", ["name", "weight"]);
        assert_eq!(
            error.to_string(),
            "p.toml:2:1: unknown key `wieght`\n  2 | wieght = 2\n    | ^^^^^^\n  expected `weight`\n  did you mean `weight`?"
        );
    }

    #[test]
    fn a_far_name_is_not_suggested() {
        assert_eq!(closest("zebra", ["name", "weight"]), None);
    }
}
