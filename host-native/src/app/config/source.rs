//! The text of a file, locations in it, and errors that point at them. [`miette`] renders the errors.

use std::fmt;
use std::iter;
use std::ops::Range;
use std::path::Path;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents, SourceCode,
    SourceSpan, SpanContents, ThemeStyles,
};

use crate::app::error::{Error, Exit};
use crate::app::provider::key::is_name_of_key;

/// The text of a file and its name in messages.
#[derive(Clone, Debug)]
pub struct SourceText {
    name: String,
    text: String,
}

/// A line and column of a named file.
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
    /// Creates a source with the text of a file that messages call `name`.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// Reads the file at `path`. Returns an error if it cannot be read or is not valid UTF-8.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let name = path.display().to_string();
        let bytes =
            std::fs::read(path).map_err(|error| FileError::about(&name, format!("cannot read the file: {error}")))?;
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self::new(name, text)),
            Err(error) => {
                let valid = error.utf8_error().valid_up_to();
                let line = error.as_bytes()[..valid].split(|byte| *byte == b'\n').count();
                Err(FileError::about(&name, format!("cannot read the file: line {line} is not valid UTF-8")))
            }
        }
    }

    /// Returns the whole text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the location of byte `offset`. An offset past the end or inside a character is rounded down.
    #[must_use]
    pub fn place(&self, offset: usize) -> Place {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Place {
            file: self.name.clone(),
            line: 1 + before.matches('\n').count(),
            column: 1 + before[line_start..].chars().count(),
        }
    }

    /// Returns an error about the text in `span`.
    #[must_use]
    pub fn error(&self, span: Range<usize>, message: impl Into<String>) -> FileError {
        let place = self.place(span.start);
        FileError(Box::new(FileErrorParts {
            subject: place.to_string(),
            message: message.into(),
            excerpt: Some(self.excerpt(place.line, span)).filter(Excerpt::may_be_shown),
            place: Some(place),
            expected: None,
            help: None,
        }))
    }

    /// Returns the line in which `span` begins.
    fn excerpt(&self, number: usize, span: Range<usize>) -> Excerpt {
        let start = self.text.floor_char_boundary(span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line = self.text[line_start..].lines().next().unwrap_or_default().to_string();
        let in_line = |offset: usize| (offset - line_start).min(line.len());
        let marked = in_line(start)..in_line(self.text.floor_char_boundary(span.end).max(start));
        Excerpt { number, line, marked }
    }
}

/// A line of a file, and the part of it that an error marks.
#[derive(Clone, Debug)]
struct Excerpt {
    number: usize,
    line: String,
    marked: Range<usize>,
}

impl Excerpt {
    /// Returns whether the line has text, and none that may be a key. People paste keys where the name of a
    /// variable is expected.
    fn may_be_shown(&self) -> bool {
        !self.line.is_empty()
            && !self.line.contains("api_key")
            && !self.line.contains("uthorization")
            && !names_in(&self.line).any(|name| is_name_of_key(name) && name != "row_key")
            && !has_value_of_key(&self.line)
    }
}

/// Returns the names in a line that have a value: the words before `=` or `:`, also in quotes.
fn names_in(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    line.match_indices(['=', ':']).map(move |(at, _)| {
        let before = line[..at].trim_end_matches(|c: char| c.is_whitespace() || "\"'\\".contains(c));
        &before[before.trim_end_matches(is_part).len()..]
    })
}

/// Returns whether a word of a line begins like a key of many providers.
fn has_value_of_key(line: &str) -> bool {
    line.match_indices("sk-").any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "-_".contains(c)))
}

impl SourceCode for Excerpt {
    /// Returns the whole line, independent of the span.
    fn read_span<'a>(
        &'a self,
        _: &SourceSpan,
        _: usize,
        _: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let span = (0, self.line.len()).into();
        Ok(Box::new(MietteSpanContents::new(self.line.as_bytes(), span, self.number - 1, 0, 1)))
    }
}

/// An error in a file: its location, the value found, the value expected, and a suggestion if a similar name
/// exists. `{}` formats it without colours, `{:#}` with colours for terminals.
#[derive(Clone, Debug)]
pub struct FileError(Box<FileErrorParts>);

#[derive(Clone, Debug)]
struct FileErrorParts {
    /// The location, or the name of the file.
    subject: String,
    message: String,
    place: Option<Place>,
    excerpt: Option<Excerpt>,
    expected: Option<String>,
    help: Option<String>,
}

impl FileError {
    /// Creates an error about a whole file, or about a path that is not a file.
    pub(crate) fn about(file: &str, message: impl fmt::Display) -> Self {
        Self(Box::new(FileErrorParts {
            subject: file.to_string(),
            message: message.to_string(),
            place: None,
            excerpt: None,
            expected: None,
            help: None,
        }))
    }

    /// Adds what was expected.
    #[must_use]
    pub fn expected(mut self, expected: impl fmt::Display) -> Self {
        self.0.expected = Some(format!("expected {expected}"));
        self
    }

    /// Removes the line of the file from the error, because it contains a secret.
    #[must_use]
    pub fn without_excerpt(mut self) -> Self {
        self.0.excerpt = None;
        self
    }

    /// Adds the candidate most similar to `wrong` as a suggestion, if it is similar enough to be a typing
    /// error.
    #[must_use]
    pub fn suggest<'c>(mut self, wrong: &str, candidates: impl IntoIterator<Item = &'c str>) -> Self {
        self.0.help = closest(wrong, candidates).map(|name| format!("did you mean `{name}`?"));
        self
    }

    /// Adds advice on how to fix the error.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.0.help = Some(help.into());
        self
    }

    /// Returns the location of the error, or `None` if it is about the whole file.
    #[must_use]
    pub fn place(&self) -> Option<&Place> {
        self.0.place.as_ref()
    }

    /// Returns the message without the location.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for FileErrorParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.message)
    }
}

impl std::error::Error for FileErrorParts {}

impl Diagnostic for FileErrorParts {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.excerpt.as_ref().map(|excerpt| excerpt as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let marked = self.excerpt.as_ref()?.marked.clone();
        Some(Box::new(iter::once(LabeledSpan::new_primary_with_span(self.expected.clone(), marked))))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        // Without an excerpt there is no label to show what was expected.
        let expected = self.expected.as_deref().filter(|_| self.excerpt.is_none());
        let lines: Vec<&str> = expected.into_iter().chain(self.help.as_deref()).collect();
        (!lines.is_empty()).then(|| Box::new(lines.join("\n")) as Box<dyn fmt::Display>)
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut theme = if f.alternate() { GraphicalTheme::unicode() } else { GraphicalTheme::none() };
        // The first line is `FILE:LINE:COLUMN: MESSAGE`, a format that editors recognise.
        theme.characters.error.clear();
        theme.styles.error = ThemeStyles::none().error;
        let handler = GraphicalReportHandler::new_themed(theme).with_wrap_lines(false);
        let mut report = String::new();
        handler.render_report(&mut report, &*self.0)?;
        f.write_str(report.trim())
    }
}

impl std::error::Error for FileError {}

/// Returns the candidate most similar to `wrong`, or `None` if none is similar.
fn closest<'c>(wrong: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    /// The Jaro-Winkler similarity below which two names count as different words, not as a typing error.
    const MIN_SIMILARITY: f64 = 0.8;
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(wrong, candidate), candidate))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
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
    fn an_error_shows_the_line_the_expectation_and_a_similar_name() {
        let source = SourceText::new("p.toml", "a = 1\nwieght = 2\n");
        let error =
            source.error(6..12, "unknown key `wieght`").expected("`weight`").suggest("wieght", ["name", "weight"]);
        let shown = [
            "p.toml:2:1: unknown key `wieght`",
            "   ,----",
            " 2 | wieght = 2",
            "   : ^^^|^^",
            "   :    `-- expected `weight`",
            "   `----",
            "  help: did you mean `weight`?",
        ];
        assert_eq!(error.to_string(), shown.join("\n"));
    }

    #[test]
    fn an_error_without_its_line_still_shows_what_was_expected() {
        let source = SourceText::new("p.toml", "url = \"https://me:secret@host\"\n");
        let error = source.error(6..30, "`url` holds a password").without_excerpt().expected("none");
        assert_eq!(error.to_string(), "p.toml:1:7: `url` holds a password\n  help: expected none");
    }

    #[test]
    fn a_line_that_may_have_a_key_is_not_shown() {
        let is_shown = |line: &str| {
            let error = SourceText::new("p.toml", line).error(0..1, "wrong").to_string();
            error.contains(line)
        };
        for line in [
            "extra_headers = { api-key = \"0123456789\" }",
            "extra_headers = { \"X-Api-Key\" = '0123456789' }",
            "extra_body = '{\"client_secret\": \"0123456789\"}'",
            "base_url = \"https://host/v1?access-token=0123456789\"",
            "model = \"sk-0123456789\"",
            "note = 1 # sk-0123456789",
        ] {
            assert!(!is_shown(line), "{line}");
        }
        for line in [
            "prompt = \"The key facts of task-1, risk-free: {{ note }}\"",
            "row_key = \"row\"",
            "max_tokens = 5",
            "name = \"key\"",
        ] {
            assert!(is_shown(line), "{line}");
        }
    }

    #[test]
    fn an_error_about_an_empty_file_still_shows_what_was_expected() {
        let error = SourceText::new("p.toml", "").error(0..0, "the file has no [seed]").expected("[seed]");
        assert_eq!(error.to_string(), "p.toml:1:1: the file has no [seed]\n  help: expected [seed]");
    }

    #[test]
    fn only_the_alternate_format_has_colours() {
        let error = SourceText::new("p.toml", "a = 1\n").error(0..1, "unknown key `a`");
        assert!(!error.to_string().contains('\x1b') && format!("{error:#}").contains('\x1b'));
        assert!(format!("{error:#}").starts_with("p.toml:1:1: unknown"), "{error:#}");
    }

    #[test]
    fn a_dissimilar_name_is_not_suggested() {
        assert_eq!(closest("zebra", ["name", "weight"]), None);
    }
}
