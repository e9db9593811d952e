//! Locates errors of templates in the pipeline file.

use std::ops::Range;

use toml::Spanned;

use crate::app::config::pipeline::{FileError, SourceText};
use crate::app::template::{StaticError, TemplateError, is_part, normal_form};

/// Returns an error in the template `text`, as close to its place as the notation of the string allows.
pub(crate) fn template_error(
    source: &SourceText,
    text: &Spanned<String>,
    error: &TemplateError,
    message: String,
) -> FileError {
    let by_line = || line_start(source, text, error.line?).map(|start| start..start + 1);
    let span = error.span.clone().and_then(|part| span_in_file(source, text, part)).or_else(by_line);
    source.error(span.unwrap_or_else(|| text.span()), message)
}

/// Returns a static error of the template `text`, with its place.
pub(super) fn static_error(source: &SourceText, text: &Spanned<String>, found: StaticError) -> FileError {
    let span = span_in_file(source, text, found.span).unwrap_or_else(|| find_word(source, text, &found.word));
    let error = source.error(span, found.message).expected(found.expected);
    error.suggest(&found.word, found.candidates.iter().map(String::as_str))
}

/// Returns the span in the file of the bytes `part` of a template's text; `None` if the string is written
/// with escapes.
fn span_in_file(source: &SourceText, text: &Spanned<String>, part: Range<usize>) -> Option<Range<usize>> {
    let span = text.span();
    let start = span.start + source.text().get(span)?.find(text.get_ref().as_str())?;
    Some(start + part.start..start + part.end)
}

/// Returns the offset in the file of a line of a template's text, counted from 1. `None` for a later line of
/// a string that is written on one line.
fn line_start(source: &SourceText, text: &Spanned<String>, line: usize) -> Option<usize> {
    let span = text.span();
    let raw = source.text().get(span.clone())?;
    let starts_on_next_line = raw.starts_with("\"\"\"\n") || raw.starts_with("'''\n");
    let skip = line - 1 + usize::from(starts_on_next_line);
    let (before, _) = raw.match_indices('\n').nth(skip.checked_sub(1)?)?;
    Some(span.start + before + 1)
}

/// Returns the span in the file of the first whole word `word` in a template's text, or of the first that is
/// `word` in another form of Unicode; the span of the whole text if there is none.
pub(super) fn find_word(source: &SourceText, text: &Spanned<String>, word: &str) -> Range<usize> {
    let span = text.span();
    let raw = source.text().get(span.clone()).unwrap_or_default();
    let whole = raw.match_indices(word).find(|(at, _)| {
        let (before, after) = (raw[..*at].chars().next_back(), raw[at + word.len()..].chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    });
    let written = whole.map(|(at, _)| at..at + word.len()).or_else(|| {
        let normal = normal_form(word);
        let mut next = 0;
        raw.split_inclusive(|c| !is_part(c)).find_map(|piece| {
            let (at, part) = (next, piece.trim_end_matches(|c| !is_part(c)));
            next += piece.len();
            (normal_form(part) == normal).then(|| at..at + part.len())
        })
    });
    written.map_or(span.clone(), |part| span.start + part.start..span.start + part.end)
}
