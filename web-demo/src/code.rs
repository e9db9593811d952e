//! The lines of a script: what of each is code, and what stands in strings.
//!
//! This tells strings, templates, comments and brackets apart, and nothing else. A regular expression is code like any
//! other, so that one with a single quote or bracket in it is an error; so is a template that goes over several lines.

use std::mem;

/// One line.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    /// From 1.
    pub(crate) number: usize,
    pub(crate) text: &'a str,
    /// Without comments, and with nothing between the quotes of strings.
    pub(crate) code: String,
    /// What of the code stands outside of all brackets.
    pub(crate) outer: String,
    /// What stands in quotes, and where in `code` the quote is. A template is one for each stretch between its gaps.
    pub(crate) strings: Vec<(usize, String)>,
    /// Whether it begins within brackets or within a comment.
    pub(crate) is_inside: bool,
    /// Whether it waits for something outside of every `async` function.
    pub(crate) has_outer_await: bool,
}

impl Line<'_> {
    /// Where in the code this word stands by itself: it is neither a property nor a key.
    pub(crate) fn places_of(&self, word: &str) -> Vec<usize> {
        let is_other = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$');
        let stands_alone = |at: &usize| {
            let before = self.code[..*at].strip_suffix("...").unwrap_or(&self.code[..*at]);
            let is_property = before.len() == *at && before.ends_with(['.', '#']);
            let (before, after) = (before.chars().next_back(), self.code[*at + word.len()..].chars().next());
            !is_property
                && !before.is_some_and(is_other)
                && !after.is_some_and(|letter| is_other(letter) || letter == ':')
        };
        self.code.match_indices(word).map(|(at, _)| at).filter(stands_alone).collect()
    }
}

/// What cannot be read: the line's number, from 1, and what was expected there.
pub(crate) type Unread = (usize, &'static str);

/// The lines of a script, or the first that cannot be read.
pub(crate) fn lines(text: &str) -> Result<Vec<Line<'_>>, Unread> {
    let mut reader = Reader::default();
    let mut read = Vec::new();
    for (index, text) in text.lines().enumerate() {
        read.push(reader.read(index + 1, text).map_err(|expected| (index + 1, expected))?);
    }
    if reader.is_in_comment || !reader.around.is_empty() {
        return Err((read.len(), "the end of what was begun: a bracket or a comment is still open"));
    }
    Ok(read)
}

/// What stands between two brackets, so far.
#[derive(Debug, Default)]
struct Within {
    /// What ends it; none around everything.
    end: Option<char>,
    /// Whether it is the gap of a template.
    is_gap: bool,
    /// Whether it is of an `async` function.
    is_async: bool,
    /// Whether an `async` function has been begun that has no brackets of its own yet.
    begins_async: bool,
}

#[derive(Debug, Default)]
struct Reader {
    within: Within,
    around: Vec<Within>,
    is_in_comment: bool,
    word: String,
}

impl Reader {
    fn read<'a>(&mut self, number: usize, text: &'a str) -> Result<Line<'a>, &'static str> {
        let is_inside = self.is_in_comment || !self.around.is_empty();
        let (code, outer, strings) = (String::new(), String::new(), Vec::new());
        let mut line = Line { number, text, code, outer, strings, is_inside, has_outer_await: false };
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            if self.is_in_comment {
                if letter == '*' && letters.next_if_eq(&'/').is_some() {
                    self.is_in_comment = false;
                }
                continue;
            }
            if letter.is_alphanumeric() || matches!(letter, '_' | '$' | '.' | '#') {
                self.word.push(letter);
                self.put(&mut line, letter);
                continue;
            }
            self.end_word(&mut line);
            match letter {
                '/' if letters.peek() == Some(&'/') => break,
                '/' if letters.next_if_eq(&'*').is_some() => self.is_in_comment = true,
                '\\' => {
                    self.put(&mut line, letter);
                    letters.next().into_iter().for_each(|escaped| self.put(&mut line, escaped));
                }
                '"' | '\'' | '`' => self.string(&mut line, letter, &mut letters)?,
                '}' if self.within.is_gap => {
                    self.close(letter)?;
                    self.string(&mut line, '`', &mut letters)?;
                }
                _ => self.bracket(&mut line, letter)?,
            }
        }
        self.end_word(&mut line);
        Ok(line)
    }

    fn put(&self, line: &mut Line<'_>, letter: char) {
        line.code.push(letter);
        if self.around.is_empty() {
            line.outer.push(letter);
        }
    }

    fn end_word(&mut self, line: &mut Line<'_>) {
        let word = mem::take(&mut self.word);
        match word.strip_prefix("...").unwrap_or(&word) {
            "async" => self.within.begins_async = true,
            "await" => line.has_outer_await |= !(self.within.is_async || self.within.begins_async),
            _ => {}
        }
    }

    /// What follows a quote, up to the next, or to the gap of a template.
    fn string(
        &mut self,
        line: &mut Line<'_>,
        quote: char,
        letters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    ) -> Result<(), &'static str> {
        let at = line.code.len();
        let mut string = String::new();
        self.put(line, quote);
        while let Some(letter) = letters.next() {
            if letter == '\\' {
                string.push(letter);
                string.extend(letters.next());
            } else if letter == quote {
                self.put(line, quote);
                line.strings.push((at, string));
                return Ok(());
            } else if quote == '`' && letter == '$' && letters.next_if_eq(&'{').is_some() {
                line.strings.push((at, string));
                self.open('}', true);
                return Ok(());
            } else {
                string.push(letter);
            }
        }
        Err("a string or a template that ends on its line")
    }

    fn bracket(&mut self, line: &mut Line<'_>, letter: char) -> Result<(), &'static str> {
        self.put(line, letter);
        match letter {
            '(' => self.open(')', false),
            '[' => self.open(']', false),
            '{' => self.open('}', false),
            ')' | ']' | '}' => {
                self.close(letter)?;
                if self.around.is_empty() {
                    line.outer.push(letter);
                }
            }
            ';' | ',' => self.within.begins_async = false,
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, end: char, is_gap: bool) {
        let is_async = self.within.is_async || self.within.begins_async;
        let inner = Within { end: Some(end), is_gap, is_async, begins_async: false };
        self.around.push(mem::replace(&mut self.within, inner));
    }

    fn close(&mut self, end: char) -> Result<(), &'static str> {
        let outer = self.around.pop().filter(|_| self.within.end == Some(end));
        self.within = outer.ok_or("brackets in pairs")?;
        // With the body of a function the function ends.
        self.within.begins_async &= end != '}';
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_comments_are_no_code() {
        let read = lines("a(\"b\", 'c}', `d ${e(\"f\")} g`); // h\ni /* j\nk */ + l;\n").expect("it can be read");
        let codes: Vec<_> = read.iter().map(|line| line.code.as_str()).collect();
        assert_eq!(codes, ["a(\"\", '', `e(\"\")``); ", "i ", " + l;"]);
        let strings: Vec<_> = read[0].strings.iter().map(|(_, string)| string.as_str()).collect();
        assert_eq!(strings, ["b", "c}", "d ", "f", " g"]);
        assert_eq!(read.iter().map(|line| line.is_inside).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(read[0].outer, "a(); ");
    }

    #[test]
    fn waiting_outside_of_every_async_function_is_noticed() {
        let outer = |text: &str| lines(text).expect(text).iter().any(|line| line.has_outer_await);
        for text in [
            "await a;",
            "const b = (await a).c;",
            "f(...await a);",
            "if (a) {\n  await b;\n}",
            "async function a() {\n}\nawait b;",
            "f(async () => { await a; });\nconst c = `${await b}`;",
        ] {
            assert!(outer(text), "{text}");
        }
        for text in [
            "async function a(b, { c }) {\n  if (b) {\n    await c;\n  }\n}",
            "class A {\n  async #b() {\n    return [await c];\n  }\n}",
            "const a = async (b, c) => `${await b(c)}`;",
            "\"await a\"; // await b",
            "a.await;",
        ] {
            assert!(!outer(text), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error_with_its_line() {
        for text in ["a;\n`b\nc`;", "a;\n\"b", "a;\n)", "a;\n(]"] {
            assert_eq!(lines(text).expect_err(text).0, 2, "{text}");
        }
        for text in ["(\na;", "a;\n/* b"] {
            assert_eq!(lines(text).expect_err(text).0, 2, "{text}");
        }
    }
}
