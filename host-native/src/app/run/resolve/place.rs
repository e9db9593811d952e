//! Where a template, and what is in it, stands in the pipeline file.

use std::ops::Range;

use toml::Spanned;

use crate::app::config::pipeline::{FileError, SourceText};
use crate::app::template::{TemplateError, TemplateFault};

/// An error inside a template, at its place in the pipeline file as near as the notation of the string allows.
pub(crate) fn template_error(
    source: &SourceText,
    text: &Spanned<String>,
    error: &TemplateError,
    message: String,
) -> FileError {
    let by_line = || line_start(source, text, error.line?).map(|start| start..start + 1);
    let span = error.span.clone().and_then(|part| exact(source, text, part)).or_else(by_line);
    source.error(span.unwrap_or_else(|| text.span()), message)
}

/// What is wrong with a template whatever its values are, at its place.
pub(super) fn fault_error(source: &SourceText, text: &Spanned<String>, fault: TemplateFault) -> FileError {
    let span = exact(source, text, fault.span).unwrap_or_else(|| find_word(source, text, &fault.word));
    let error = source.error(span, fault.message).expected(fault.expected);
    error.suggest(&fault.word, fault.candidates.iter().map(String::as_str))
}

/// Where the bytes `part` of a template's text stand in the file, if the string is written as it is: without escapes.
fn exact(source: &SourceText, text: &Spanned<String>, part: Range<usize>) -> Option<Range<usize>> {
    let span = text.span();
    let start = span.start + source.text().get(span)?.find(text.get_ref().as_str())?;
    Some(start + part.start..start + part.end)
}

/// Where a line of a template's text, counted from 1, begins in the file; of another line than the first only if the string is written
/// on several.
fn line_start(source: &SourceText, text: &Spanned<String>, line: usize) -> Option<usize> {
    let span = text.span();
    let raw = source.text().get(span.clone())?;
    let first_line_apart = raw.starts_with("\"\"\"\n") || raw.starts_with("'''\n");
    let skip = line - 1 + usize::from(first_line_apart);
    let (before, _) = raw.match_indices('\n').nth(skip.checked_sub(1)?)?;
    Some(span.start + before + 1)
}

/// Where `word` stands in a template's text as a whole word; the whole text when it is written with escapes.
pub(super) fn find_word(source: &SourceText, text: &Spanned<String>, word: &str) -> Range<usize> {
    let span = text.span();
    let raw = source.text().get(span.clone()).unwrap_or_default();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let whole = raw.match_indices(word).find(|(at, _)| {
        let (before, after) = (raw[..*at].chars().next_back(), raw[at + word.len()..].chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    });
    whole.map_or(span.clone(), |(at, _)| span.start + at..span.start + at + word.len())
}
