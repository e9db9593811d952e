//! Estimates the number of tokens of a text, before the provider counts them.
//!
//! [`likely`] is for the operator's own prompts: for costs, and for reservations that the provider's count
//! corrects. [`most`] is for texts of clients who may want to spend more than a budget allows: a byte-level
//! tokenizer never makes more than one token of a byte, but a few times fewer of words, so only plain words
//! count less than their bytes.
//!
//! | text | likely | most |
//! | --- | --- | --- |
//! | a word: at most 20 ASCII letters in lower case, the first may be a capital | 1 for 4 bytes | 1 for each 3 letters begun |
//! | one space before a word | 1 for 4 bytes | 0 |
//! | digits, symbols, other spaces, longer words, mixed case | 1 for 4 bytes | 1 for each byte |
//! | other scripts | 1 for each byte | 1 for each byte |
//!
//! English prose has about 4 letters per token, so the second estimate is too high by about a half. Base64,
//! digits and minified code have 1 to 3 bytes per token, so the second is never too low, and the first is.

/// The length of the longest run of letters that is taken for a word. Longer ones are mostly not prose.
const MAX_WORD_BYTES: usize = 20;

const LETTERS_PER_TOKEN: usize = 3;

/// Returns the likely number of tokens of `text`, at most `u32::MAX`.
pub(super) fn likely(text: &str) -> u32 {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    saturated(ascii.div_ceil(4) + (text.len() - ascii))
}

/// Returns a count as a `u32`, at most `u32::MAX`.
pub(super) fn saturated(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the largest number of tokens that `text` may have.
pub(super) fn most(text: &str) -> usize {
    let mut rest = text.as_bytes();
    let mut tokens = 0;
    while let Some(first) = rest.first() {
        let is_space = *first == b' ';
        let after_space = &rest[usize::from(is_space)..];
        let run = after_space.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        tokens += match word_tokens(&after_space[..run]) {
            // The space is part of the first token of the word.
            Some(tokens) => tokens,
            None => run + usize::from(is_space),
        };
        rest = &after_space[run..];
        if run == 0 && !is_space {
            tokens += 1;
            rest = &rest[1..];
        }
    }
    tokens
}

/// Counts [`most`] of a text that arrives in pieces, with bounded memory.
#[derive(Debug, Default)]
pub(super) struct MostTokens {
    counted: usize,
    /// The letters and digits at the end of the text, with the space before them: they may become a longer
    /// word.
    last: String,
}

impl MostTokens {
    pub(super) fn push(&mut self, piece: &str) {
        self.last.push_str(piece);
        let run = self.last.bytes().rev().take_while(u8::is_ascii_alphanumeric).count();
        let before = self.last[..self.last.len() - run].trim_end_matches(' ');
        let space = usize::from(before.len() + run < self.last.len());
        let done = self.last.len() - run - space;
        self.counted += most(&self.last[..done]);
        self.last.drain(..done);
        // Each further byte of what is too long for a word is one token.
        let enough = 1 + MAX_WORD_BYTES + 1;
        self.counted += self.last.len().saturating_sub(enough);
        self.last.truncate(enough);
    }

    pub(super) fn total(&self) -> usize {
        self.counted + most(&self.last)
    }
}

/// Returns the tokens of a run of letters and digits if it is a word.
fn word_tokens(run: &[u8]) -> Option<usize> {
    let (first, others) = run.split_first()?;
    let is_word = first.is_ascii_alphabetic() && others.iter().all(u8::is_ascii_lowercase);
    (is_word && run.len() <= MAX_WORD_BYTES).then(|| run.len().div_ceil(LETTERS_PER_TOKEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_any_script_is_estimated_at_no_less_than_its_bytes_can_take() {
        assert_eq!((likely(""), likely("harbours"), likely("harbours 1")), (0, 2, 3));
        for text in ["港の灯台", "🚢⚓", "маяк", "منارة"] {
            assert_eq!(likely(text) as usize, text.len(), "{text}");
            assert_eq!(most(text), text.len(), "{text}");
        }
    }

    #[test]
    fn words_count_less_than_their_bytes() {
        for (text, tokens) in [
            ("", 0),
            ("a", 1),
            ("tide", 2),
            ("The tide is in.", 1 + 2 + 1 + 1 + 1),
            (" The", 1),
            ("x  y", 1 + 1 + 1),
            ("end \n", 1 + 1 + 1),
        ] {
            assert_eq!(most(text), tokens, "{text:?}");
        }
    }

    #[test]
    fn a_text_in_pieces_counts_as_much_as_the_whole() {
        let text = "The  tide, at 06:30 and qwertyuiopasdfghjklzxcvbnm 港 aGVsbG8gd29ybGQsIHRoaXMgaXMgYmFzZTY0 end ";
        for first in (0..=text.len()).filter(|at| text.is_char_boundary(*at)) {
            for second in (first..=text.len()).filter(|at| text.is_char_boundary(*at)) {
                let mut tokens = MostTokens::default();
                for piece in [&text[..first], &text[first..second], &text[second..]] {
                    tokens.push(piece);
                }
                assert_eq!(tokens.total(), most(text), "{first} {second}");
                assert!(tokens.last.len() <= MAX_WORD_BYTES + 2);
            }
        }
    }

    #[test]
    fn all_other_text_counts_one_token_per_byte() {
        for text in [
            "aGVsbG8gd29ybGQsIHRoaXMgaXMgYmFzZTY0",
            "20261125063019",
            "0xdeadbeef0123456789",
            "(){[;]=?:}",
            "SHOUTING",
            "camelCase",
            "\t\t\n\n",
            "qwertyuiopasdfghjklzxcvbnm",
            "\u{6d77}\u{306e}\u{98a8}",
        ] {
            assert_eq!(most(text), text.len(), "{text:?}");
        }
    }
}
