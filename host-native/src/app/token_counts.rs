//! Reads the field `usage` of a response, in each form that providers give it.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tidegate_core::budget::Usage;

/// The counts of tokens in a `usage` object. Providers omit some of them, or the whole object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TokenCounts {
    /// Input, without what was read from a cache of the Messages API.
    pub(super) input: Option<u32>,
    /// Input that was read from a cache of the Messages API. Other providers count it as input.
    pub(super) cached: Option<u32>,
    /// Output, reasoning included.
    pub(super) output: Option<u32>,
}

impl TokenCounts {
    /// Reads the counts. A value of another form has none.
    ///
    /// The summary of a long conversation (`compaction` of the Messages API) is a request of its own, which
    /// the counts beside `iterations` leave out.
    pub(super) fn of(usage: &Value) -> Self {
        let iterations = usage.get("iterations").and_then(Value::as_array).into_iter().flatten();
        let summaries = iterations.filter(|iteration| iteration["type"] == "compaction");
        summaries.map(Self::of_one).fold(Self::of_one(usage), Self::plus)
    }

    fn of_one(usage: &Value) -> Self {
        let count = |key: &str| whole_number(usage.get(key)?);
        let (input, cached) = if let Some(input) = count("prompt_tokens") {
            // With what was read from a cache or written to it.
            (Some(input), None)
        } else {
            // The Messages API counts these beside the input.
            let written = count("cache_creation_input_tokens").unwrap_or(0);
            (count("input_tokens").map(|input| input.saturating_add(written)), count("cache_read_input_tokens"))
        };
        let output = count("completion_tokens").or_else(|| count("output_tokens"));
        let all_but = |part: u32| Some(count("total_tokens")?.saturating_sub(part));
        let all_input = input.map(|input| input.saturating_add(cached.unwrap_or(0)));
        Self {
            input: input.or_else(|| all_but(output.unwrap_or(0))),
            cached,
            // Some providers count reasoning in the total only. It has the price of output.
            output: output.max(all_input.and_then(all_but)),
        }
    }

    fn plus(self, other: Self) -> Self {
        let sum = |count: Option<u32>, other: Option<u32>| match (count, other) {
            (Some(count), Some(other)) => Some(count.saturating_add(other)),
            (count, other) => count.or(other),
        };
        Self {
            input: sum(self.input, other.input),
            cached: sum(self.cached, other.cached),
            output: sum(self.output, other.output),
        }
    }

    /// Returns the higher one of each count.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            cached: self.cached.max(other.cached),
            output: self.output.max(other.output),
        }
    }

    /// Returns the usage with all input, or `None` if nothing was counted. What was read from a cache is
    /// cheaper, but not free.
    pub(super) fn known(self) -> Option<Usage> {
        let input = self.input.unwrap_or(0).saturating_add(self.cached.unwrap_or(0));
        self.input.or(self.output).map(|_| Usage::tokens(input, self.output.unwrap_or(0)))
    }
}

impl<'de> Deserialize<'de> for TokenCounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|usage| Self::of(&usage))
    }
}

/// Reads a count. Some servers write it as a float or as a string.
fn whole_number(count: &Value) -> Option<u32> {
    let count = match count {
        Value::String(text) => text.parse().ok()?,
        count => count.as_f64()?,
    };
    // The conversion saturates.
    (count >= 0.0).then_some(count as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(usage: &str) -> Option<(u32, u32)> {
        let usage = serde_json::from_str::<TokenCounts>(usage).unwrap().known()?;
        Some((usage.input_tokens, usage.output_tokens))
    }

    #[test]
    fn counts_are_read_under_the_names_of_each_interface() {
        for (usage, expected) in [
            (r#"{"prompt_tokens": 7, "details": {"a": [1, "b"]}, "completion_tokens": 2}"#, (7, 2)),
            (r#"{"input_tokens": 7, "output_tokens": 2}"#, (7, 2)),
            (r#"{"prompt_tokens": 7, "input_tokens": 7, "completion_tokens": 2, "output_tokens": 2}"#, (7, 2)),
            (r#"{"prompt_tokens": 9, "total_tokens": 9}"#, (9, 0)),
        ] {
            assert_eq!(known(usage), Some(expected), "{usage}");
        }
    }

    #[test]
    fn what_is_in_the_total_only_counts_for_the_side_that_lacks_it() {
        for (usage, expected) in [
            (r#"{"prompt_tokens": 7, "total_tokens": 20}"#, (7, 13)),
            (r#"{"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 20}"#, (7, 13)),
            (r#"{"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 3}"#, (7, 2)),
            (r#"{"completion_tokens": 2, "total_tokens": 20}"#, (18, 2)),
            (r#"{"total_tokens": 20}"#, (20, 0)),
            (r#"{"input_tokens": 7, "cache_read_input_tokens": 10, "output_tokens": 2, "total_tokens": 20}"#, (17, 3)),
        ] {
            assert_eq!(known(usage), Some(expected), "{usage}");
        }
    }

    #[test]
    fn the_cache_of_the_messages_api_counts_beside_its_input_and_caches_of_others_are_in_it() {
        let counts = |usage: &str| serde_json::from_str::<TokenCounts>(usage).unwrap();
        let messages = counts(
            r#"{"input_tokens": 7, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 4, "output_tokens": 1}"#,
        );
        assert_eq!(messages, TokenCounts { input: Some(9), cached: Some(4), output: Some(1) });
        assert_eq!(messages.known(), Some(Usage::tokens(13, 1)));
        let other = r#"{"prompt_tokens": 9, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 4, "completion_tokens": 1}"#;
        assert_eq!(counts(other), TokenCounts { input: Some(9), cached: None, output: Some(1) });
    }

    #[test]
    fn floats_and_strings_are_counts_and_values_of_another_form_are_ignored() {
        for (usage, expected) in [
            (r#"{"prompt_tokens": 7.0, "completion_tokens": "2"}"#, Some((7, 2))),
            (r#"{"prompt_tokens": {"a": 1}, "output_tokens": 99999999999}"#, Some((0, u32::MAX))),
            (r#"{"prompt_tokens": "many", "completion_tokens": 1e300}"#, Some((0, u32::MAX))),
            (r#"{"prompt_tokens": -1, "completion_tokens": null}"#, None),
            (r#"{"prompt_tokens": "NaN", "completion_tokens": true}"#, None),
            ("{}", None),
            ("null", None),
            ("true", None),
            ("7", None),
            (r#""7""#, None),
            (r#"[7, {"prompt_tokens": 2}]"#, None),
        ] {
            assert_eq!(known(usage), expected, "{usage}");
        }
    }
}
