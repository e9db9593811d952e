//! What a mock model says: a function of the prompt alone, so that two runs can be compared byte by byte.
//!
//! A prompt with a line that says `one of: a, b, c` gets one of these words. Any other prompt gets a short sentence
//! around the first clause of its last line, cut to the answer length that was asked for.

/// How a sentence may begin.
const OPENINGS: [&str; 6] = ["Noted:", "In short:", "Main point:", "Worth a look:", "For the record:", "Keep in mind:"];

/// How it may go on.
const CLOSINGS: [&str; 5] = [
    "and nothing else out of the ordinary.",
    "with no delay expected.",
    "to be checked again at the next watch.",
    "as already passed on to the harbour office.",
    "until the tide turns.",
];

/// Words of the prompt that a sentence repeats.
const TOPIC_WORDS: usize = 7;

/// A repeated phrase does not begin with words of this length or less: they are prepositions and articles.
const FILLER_CHARS: usize = 3;

/// The answer to `prompt`, of at most `max_tokens` words.
#[must_use]
pub fn answer(prompt: &str, max_tokens: Option<u32>) -> String {
    choice(prompt, 0, max_tokens).text
}

/// One of several answers to the same prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What it says.
    pub text: String,
    /// Whether there was more to say than fitted.
    pub is_cut: bool,
}

/// The answer of this number, from 0; that is the [`answer`].
#[must_use]
pub fn choice(prompt: &str, number: u32, max_tokens: Option<u32>) -> Choice {
    let hash = match number {
        0 => hash_of(prompt),
        _ => hash_of(&format!("{prompt}\0{number}")),
    };
    let text = match choices(prompt) {
        Some(choices) => pick(&choices, hash).to_string(),
        None => sentence(prompt, hash),
    };
    match max_tokens {
        Some(most) if text.split_whitespace().nth(most as usize).is_some() => {
            let kept: Vec<&str> = text.split_whitespace().take(most as usize).collect();
            Choice { text: kept.join(" "), is_cut: true }
        }
        Some(_) => Choice { text: text.split_whitespace().collect::<Vec<_>>().join(" "), is_cut: false },
        None => Choice { text, is_cut: false },
    }
}

/// About how many tokens a text has: the usual four characters each.
#[must_use]
pub fn tokens(text: &str) -> u32 {
    u32::try_from(text.chars().count().div_ceil(4)).unwrap_or(u32::MAX)
}

/// The words after the last `one of:`, if there are any.
fn choices(prompt: &str) -> Option<Vec<&str>> {
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

/// One of `items`, which are never none.
pub(super) fn pick<'a>(items: &[&'a str], hash: u64) -> &'a str {
    items[usize::try_from(hash % items.len() as u64).unwrap_or(0)]
}

/// The 64-bit FNV-1a hash, with its high bits folded into the low ones that [`pick`] looks at.
/// Fowler, Noll, Vo: "The FNV Non-Cryptographic Hash Algorithm".
pub(super) fn hash_of(text: &str) -> u64 {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash ^ (hash >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_prompts_get_equal_answers_and_others_mostly_do_not() {
        let all: std::collections::BTreeSet<String> =
            (0..100).map(|n| answer(&format!("berth {n} buoy adrift"), None)).collect();
        assert_eq!(answer("berth 7 buoy adrift", None), answer("berth 7 buoy adrift", None));
        assert!(all.len() > 15, "{} different answers", all.len());
    }

    #[test]
    fn several_answers_to_one_prompt_begin_with_the_answer_and_differ() {
        let all: std::collections::BTreeSet<String> = (0..20).map(|n| choice("a buoy adrift", n, None).text).collect();
        assert_eq!(choice("a buoy adrift", 0, None).text, answer("a buoy adrift", None));
        assert!(all.len() > 8, "{} different answers", all.len());
    }

    #[test]
    fn an_answer_says_whether_it_was_cut() {
        let whole = choice("a buoy adrift", 0, None);
        let words = u32::try_from(whole.text.split(' ').count()).unwrap();
        assert_eq!(choice("a buoy adrift", 0, Some(words)), whole);
        assert!(choice("a buoy adrift", 0, Some(words - 1)).is_cut);
    }

    #[test]
    fn a_prompt_with_choices_gets_one_of_them_and_each_in_turn() {
        let seen: std::collections::BTreeSet<String> =
            (0..50).map(|n| answer(&format!("Entry {n}.\nAnswer with one of: low, high.\nNow."), None)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["high", "low"]);
    }

    #[test]
    fn an_answer_is_never_longer_than_asked_for_and_no_prompt_is_too_short() {
        assert_eq!(answer("", Some(2)).split(' ').count(), 2);
        assert!(answer("", None).contains("nothing to tell"));
        assert!(answer("Pick one of: ", None).contains("Pick one of"));
    }
}
