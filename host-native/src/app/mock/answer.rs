//! Generates the texts of a mock model. A text depends on the prompt only, so two runs can be compared byte
//! by byte.
//!
//! If the prompt contains `one of: a, b, c`, the answer is one of these words. Otherwise it is a short
//! sentence that repeats the first clause of the prompt's last line. Either is truncated to the maximum
//! number of tokens of the request. A token is four characters.

/// Beginnings of a sentence.
const OPENINGS: [&str; 6] = ["Noted:", "In short:", "Main point:", "Worth a look:", "For the record:", "Keep in mind:"];

/// Ends of a sentence.
const CLOSINGS: [&str; 5] = [
    "and nothing else out of the ordinary.",
    "with no delay expected.",
    "to be checked again at the next watch.",
    "as already passed on to the harbour office.",
    "until the tide turns.",
];

/// The characters of a token.
const TOKEN_CHARS: usize = 4;

/// The most words of the prompt that a sentence repeats.
const TOPIC_WORDS: usize = 7;

/// A repeated phrase does not begin with words of at most this length, which are mostly prepositions and
/// articles.
const FILLER_CHARS: usize = 3;

/// Returns the answer to `prompt`, of at most `max_tokens` tokens.
pub(super) fn answer(prompt: &str, max_tokens: Option<u32>) -> String {
    generate_text(prompt, 0, max_tokens).text
}

/// One of several answers to a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GeneratedText {
    /// The text.
    pub(super) text: String,
    /// Whether the text was cut at the maximum length.
    pub(super) is_truncated: bool,
}

/// Generates the answer with this number, of at most `max_tokens` tokens. Number 0 is the [`answer`].
pub(super) fn generate_text(prompt: &str, number: u32, max_tokens: Option<u32>) -> GeneratedText {
    truncate(text_of(prompt, number), max_tokens)
}

/// Generates the answer with this number to a prompt that ends with `results` of tools. It has all of them.
pub(super) fn generate_report(prompt: &str, number: u32, results: &[String], max_tokens: Option<u32>) -> GeneratedText {
    truncate(format!("{}\n{}", results.join("\n"), text_of(prompt, number)), max_tokens)
}

fn text_of(prompt: &str, number: u32) -> String {
    let hash = match number {
        0 => hash_text(prompt),
        _ => hash_text(&format!("{prompt}\0{number}")),
    };
    match listed_choices(prompt) {
        Some(choices) => pick(&choices, hash).to_string(),
        None => sentence(prompt, hash),
    }
}

fn truncate(text: String, max_tokens: Option<u32>) -> GeneratedText {
    match max_tokens {
        Some(most) if count_tokens(&text) > most => {
            let kept = text.chars().take((most as usize).saturating_mul(TOKEN_CHARS)).collect();
            GeneratedText { text: kept, is_truncated: true }
        }
        _ => GeneratedText { text, is_truncated: false },
    }
}

/// Returns the number of tokens of a text, rounded up.
pub(super) fn count_tokens(text: &str) -> u32 {
    u32::try_from(text.chars().count().div_ceil(TOKEN_CHARS)).unwrap_or(u32::MAX)
}

/// Returns the words after the last `one of:` on its line; `None` if there are none.
fn listed_choices(prompt: &str) -> Option<Vec<&str>> {
    let (_, list) = prompt.rsplit_once("one of:")?;
    let line = list.lines().next()?;
    let words: Vec<&str> = line
        .split(',')
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
        .filter(|word| !word.is_empty())
        .collect();
    (!words.is_empty()).then_some(words)
}

fn sentence(prompt: &str, hash: u64) -> String {
    let last_line = prompt.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let clause = last_line.split(['.', ',', ';', ':', '?', '!']).next().unwrap_or_default();
    let words: Vec<&str> = clause.split_whitespace().collect();
    let tail = &words[words.len().saturating_sub(TOPIC_WORDS)..];
    let start = tail.iter().position(|word| word.chars().count() > FILLER_CHARS).unwrap_or(0);
    let topic = if tail.is_empty() { "nothing to tell".to_string() } else { tail[start..].join(" ") };
    format!("{} {}, {}", pick(&OPENINGS, hash), topic, pick(&CLOSINGS, hash >> 32))
}

/// Picks one of `items` by the low bits of `hash`. `items` must not be empty.
pub(super) fn pick<'a>(items: &[&'a str], hash: u64) -> &'a str {
    items[usize::try_from(hash % items.len() as u64).unwrap_or(0)]
}

/// Returns the 64-bit FNV-1a hash of a text, with its high bits folded into the low ones that [`pick`] uses.
///
/// Source: Fowler, Noll, Vo, "The FNV Non-Cryptographic Hash Algorithm".
pub(super) fn hash_text(text: &str) -> u64 {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash ^ (hash >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_prompts_give_equal_answers_and_different_prompts_mostly_different_ones() {
        let all: std::collections::BTreeSet<String> =
            (0..100).map(|n| answer(&format!("berth {n} buoy adrift"), None)).collect();
        assert_eq!(answer("berth 7 buoy adrift", None), answer("berth 7 buoy adrift", None));
        assert!(all.len() > 15, "{} different answers", all.len());
    }

    #[test]
    fn numbered_answers_differ_and_the_first_is_the_answer() {
        let all: std::collections::BTreeSet<String> =
            (0..20).map(|n| generate_text("a buoy adrift", n, None).text).collect();
        assert_eq!(generate_text("a buoy adrift", 0, None).text, answer("a buoy adrift", None));
        assert!(all.len() > 8, "{} different answers", all.len());
    }

    #[test]
    fn a_truncated_answer_is_marked() {
        let whole = generate_text("a buoy adrift", 0, None);
        let tokens = count_tokens(&whole.text);
        assert_eq!(generate_text("a buoy adrift", 0, Some(tokens)), whole);
        let cut = generate_text("a buoy adrift", 0, Some(tokens - 1));
        assert!(cut.is_truncated && whole.text.starts_with(&cut.text));
        assert_eq!(count_tokens(&cut.text), tokens - 1);
    }

    #[test]
    fn a_prompt_with_listed_choices_is_answered_with_each_of_them_at_times() {
        let seen: std::collections::BTreeSet<String> =
            (0..50).map(|n| answer(&format!("Entry {n}.\nAnswer with one of: low, high.\nNow."), None)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["high", "low"]);
    }

    #[test]
    fn answers_respect_the_maximum_length_and_empty_prompts_are_answered() {
        assert_eq!(count_tokens(&answer("", Some(2))), 2);
        assert!(answer("", None).contains("nothing to tell"));
        assert!(answer("Pick one of: ", None).contains("Pick one of"));
    }
}
