//! Splits the reasoning of a model from its answer.
//!
//! | source | shape |
//! | --- | --- |
//! | DeepSeek, vLLM, SGLang, xAI | `message.reasoning_content` |
//! | OpenRouter, Groq, Ollama, vLLM | `message.reasoning` |
//! | Mistral | parts of `message.content` with `type` `thinking` |
//! | Databricks | parts of `message.content` with a `summary` |
//! | models without a parser for their reasoning | `<think>` blocks at the start of the text |
//! | Gemini with `include_thoughts` | a [`THOUGHT`] block, if `message.extra_content` says so |
//! | gpt-oss at Bedrock | a [`REASONING`] block at the start of the text |

use serde::Deserialize;
use serde_json::Value;

/// The content of a message: a text, or a list of parts.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "invalid `content`, expected a text or a list of parts")]
pub(super) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

/// A part of a message. Only texts and reasoning are used.
#[derive(Debug, Deserialize)]
pub(super) struct Part {
    #[serde(default)]
    text: Option<String>,
    /// The reasoning: a text, or a list of parts with a `text`.
    #[serde(default)]
    thinking: Value,
    /// The summary of the reasoning: a list of parts with a `text`.
    #[serde(default)]
    summary: Value,
}

/// A text, and the reasoning that was in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SplitText {
    pub(super) text: String,
    /// Each piece of reasoning.
    pub(super) reasoning: Vec<String>,
}

impl Content {
    /// Splits the content. With `has_reasoning`, the response has reasoning in a field of its own, so that an
    /// end tag alone belongs to the answer. `own_tag` is that of the provider.
    pub(super) fn split(self, has_reasoning: bool, own_tag: Option<Tag>) -> SplitText {
        match self {
            Self::Text(text) => split_text(text, has_reasoning, own_tag),
            Self::Parts(parts) => {
                let mut split = SplitText::default();
                for Part { text, thinking, summary } in parts {
                    split.text.push_str(text.as_deref().unwrap_or_default());
                    for thought in [thinking, summary] {
                        let nested = thought.as_array().map_or(&[][..], Vec::as_slice);
                        let nested = nested.iter().filter_map(|part| part["text"].as_str());
                        let thought: String = thought.as_str().into_iter().chain(nested).collect();
                        split.reasoning.extend(non_empty(&thought));
                    }
                }
                let SplitText { text, reasoning } = split_text(split.text, !split.reasoning.is_empty(), own_tag);
                split.reasoning.extend(reasoning);
                SplitText { text, reasoning: split.reasoning }
            }
        }
    }
}

/// The tags around a block of reasoning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    start: &'static str,
    end: &'static str,
}

const THINK: Tag = Tag { start: "<think>", end: "</think>" };

/// The tag of Gemini.
pub(super) const THOUGHT: Tag = Tag { start: "<thought>", end: "</thought>" };

/// The tag of Bedrock.
pub(super) const REASONING: Tag = Tag { start: "<reasoning>", end: "</reasoning>" };

impl Tag {
    /// Returns the block at the start of `text`, and what is after it. A block that is not closed takes the
    /// whole rest.
    fn block(self, text: &str) -> Option<(&str, &str)> {
        let inner = text.trim_start().strip_prefix(self.start)?;
        Some(inner.split_once(self.end).unwrap_or((inner, "")))
    }
}

/// Splits one block with the tag of the provider, else all `<think>` blocks.
///
/// Other blocks with the tag of a provider are part of the answer: prompts may ask for them.
fn split_text(text: String, has_reasoning: bool, own_tag: Option<Tag>) -> SplitText {
    match own_tag.and_then(|tag| tag.block(&text)) {
        Some((thought, answer)) => {
            SplitText { text: answer.trim_start().to_string(), reasoning: non_empty(thought).into_iter().collect() }
        }
        None => split_blocks(text, has_reasoning),
    }
}

/// Splits the `<think>` blocks at the start of `text` from the answer.
///
/// Some servers put the start tag into the prompt, so that the text has the end tag only.
fn split_blocks(text: String, has_reasoning: bool) -> SplitText {
    let mut reasoning = Vec::new();
    let mut rest = text.as_str();
    if !has_reasoning
        && let Some((thought, answer)) = text.split_once(THINK.end)
        && !thought.contains(THINK.start)
    {
        reasoning.extend(non_empty(thought));
        rest = answer;
    }
    while let Some((thought, answer)) = THINK.block(rest) {
        reasoning.extend(non_empty(thought));
        rest = answer;
    }
    // White space between the reasoning and the answer belongs to neither. Other answers stay as they are.
    if rest.len() == text.len() && !has_reasoning {
        return SplitText { text, reasoning };
    }
    SplitText { text: rest.trim_start().to_string(), reasoning }
}

fn non_empty(thought: &str) -> Option<String> {
    let thought = thought.trim();
    (!thought.is_empty()).then(|| thought.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> (String, Vec<String>) {
        let SplitText { text, reasoning } = split_blocks(text.to_string(), false);
        (text, reasoning)
    }

    fn of(text: &str, reasoning: &[&str]) -> (String, Vec<String>) {
        (text.to_string(), reasoning.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_block_at_the_start_is_reasoning_and_the_rest_is_the_answer() {
        assert_eq!(split("<think>\nSee.\n</think>\n\nYes."), of("Yes.", &["See."]));
        assert_eq!(split("\n <think>a</think><think>b</think> Yes. "), of("Yes. ", &["a", "b"]));
        assert_eq!(split("<think>\n\n</think>\n\nYes."), of("Yes.", &[]), "an empty block, as Qwen sends it");
        assert_eq!(split("<think>a</think>"), of("", &["a"]));
    }

    #[test]
    fn a_block_that_is_not_closed_is_reasoning_to_the_end() {
        assert_eq!(split("<think>\nSee. And then"), of("", &["See. And then"]));
        assert_eq!(split("<think>"), of("", &[]));
    }

    #[test]
    fn an_end_tag_without_a_start_tag_ends_the_reasoning_unless_it_has_a_field_of_its_own() {
        assert_eq!(split("See.\n</think>\n\nYes."), of("Yes.", &["See."]));
        let own = split_blocks("\n\nThe tag is </think>.".to_string(), true);
        assert_eq!(own, SplitText { text: "The tag is </think>.".to_string(), reasoning: Vec::new() });
    }

    #[test]
    fn a_text_without_a_block_at_its_start_stays_as_it_is() {
        for text in ["", "  Yes.\n", "The tag <think> opens a block, </think> closes it.", "<thinking>x</thinking>"] {
            assert_eq!(split(text), of(text, &[]));
        }
    }
}
