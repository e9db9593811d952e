//! Reads chat completions of OpenAI-compatible APIs.
//!
//! The field `finish_reason` decides what became of the answer. Values are compared without regard to case,
//! up to a colon, since gateways send `content_filter: SAFETY`:
//!
//! | `finish_reason` | result |
//! | --- | --- |
//! | `length`, `max_tokens`, `model_length` (Mistral), `model_context_window_exceeded` (Zhipu) | the answer is truncated |
//! | `content_filter`, `content_filtered`, `safety`, `sensitive`, `recitation` and others of Gemini | [`CallError::ContentFiltered`] |
//! | `refusal`, also as `native_finish_reason`, or a text in `message.refusal` | [`CallError::Refused`] |
//! | `error`, `abort`, `insufficient_system_resource`, `network_error` | [`CallError::Unreadable`]: the provider failed |
//! | `function_call_filter` (Gemini: an invalid call of a tool) | the same |
//! | none, and no text, no reasoning and no output tokens; a choice without `message` | the same |
//! | any other, or none | the answer is complete, or without text [`CallError::Malformed`] |

use serde::Deserialize;
use serde_json::Value;
use tidegate_core::budget::Usage;

use super::CallOutput;
use super::answer::{CallError, error_in_success, excerpt, unreadable};
use super::conversation::ToolTurn;
use super::reasoning::{Content, REASONING, SplitText, THOUGHT, Tag};
use super::tool_calls::chat_turn;
use crate::app::token_counts::TokenCounts;

/// The answer of a chat model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatAnswer {
    /// The text without the reasoning. It is empty if the model reached its limit before the first word.
    pub text: String,
    /// The reasoning of the model, if the provider returned it.
    pub reasoning: Option<String>,
    /// Whether the answer was cut off at the maximum number of tokens.
    pub is_truncated: bool,
    /// The tools that the model calls before it answers. None are called in a truncated answer, whose last
    /// call may be incomplete.
    pub turn: Option<ToolTurn>,
}

/// The fields of a chat completion that are used.
#[derive(Deserialize)]
struct ChatCompletion {
    choices: Vec<Choice>,
    #[serde(default)]
    model: Value,
    #[serde(default)]
    usage: TokenCounts,
}

#[derive(Deserialize)]
struct Choice {
    /// Gemini sends none with an answer that it withholds.
    message: Option<ChoiceMessage>,
    #[serde(default)]
    finish_reason: Value,
    /// The reason of the provider behind `OpenRouter`. For a refusal, `finish_reason` may be `stop` or
    /// `content_filter`.
    #[serde(default)]
    native_finish_reason: Value,
    /// The error of a provider behind a gateway.
    #[serde(default)]
    error: Value,
}

#[derive(Default, Deserialize)]
struct ChoiceMessage {
    content: Option<Content>,
    #[serde(default)]
    refusal: Value,
    #[serde(default)]
    reasoning_content: Value,
    #[serde(default)]
    reasoning: Value,
    #[serde(default)]
    extra_content: Value,
}

impl ChoiceMessage {
    /// Returns the tag in which the provider of this model puts reasoning into the text.
    fn own_tag(&self, model: &Value) -> Option<Tag> {
        if self.extra_content["google"]["thought"] == true {
            return Some(THOUGHT);
        }
        // So gpt-oss is named at Bedrock. Other servers send its reasoning in a field of its own.
        model.as_str().is_some_and(|model| model.contains("openai.gpt-oss")).then_some(REASONING)
    }

    /// Returns the text of a refusal.
    fn refusal(&self) -> Option<String> {
        self.refusal.as_str().map(excerpt).filter(|refusal| !refusal.is_empty())
    }

    /// Returns the reasoning in a field of its own. Some servers send both fields with the same text.
    fn reasoning_field(&self) -> Option<&str> {
        let fields = [&self.reasoning_content, &self.reasoning].into_iter().filter_map(Value::as_str);
        fields.map(str::trim).find(|reasoning| !reasoning.is_empty())
    }

    /// Takes the content of a message of this model, and returns its text and all reasoning.
    fn split(&mut self, model: &Value) -> SplitText {
        let (field, own_tag) = (self.reasoning_field().map(str::to_string), self.own_tag(model));
        let content = self.content.take().map(|content| content.split(field.is_some(), own_tag));
        let SplitText { text, reasoning } = content.unwrap_or_default();
        SplitText { text, reasoning: field.into_iter().chain(reasoning).collect() }
    }
}

/// How an answer ended, according to its `finish_reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerEnd {
    Complete,
    Truncated,
    Filtered,
    Refused,
    Failed,
}

impl AnswerEnd {
    fn of(finish_reason: &Value) -> Self {
        let reason = finish_reason.as_str().unwrap_or_default().split(':').next().unwrap_or_default();
        match reason.trim().to_ascii_lowercase().as_str() {
            "length" | "max_tokens" | "model_length" | "model_context_window_exceeded" => Self::Truncated,
            "content_filter"
            | "content_filtered"
            | "safety"
            | "sensitive"
            | "recitation"
            | "prohibited_content"
            | "blocklist"
            | "spii"
            | "image_safety"
            | "image_recitation"
            | "image_prohibited_content" => Self::Filtered,
            "refusal" => Self::Refused,
            "error" | "abort" | "insufficient_system_resource" | "network_error" | "function_call_filter" => {
                Self::Failed
            }
            _ => Self::Complete,
        }
    }
}

impl Choice {
    /// Returns the answer of this model, or the error that the choice states. `turn` has the tools that it
    /// calls.
    fn into_answer(
        mut self,
        model: &Value,
        usage: Option<Usage>,
        turn: Option<ToolTurn>,
    ) -> Result<ChatAnswer, CallError> {
        let end = self.end();
        if let Some(error) = self.stated_error(end, usage) {
            return Err(error);
        }
        let is_truncated = end == AnswerEnd::Truncated;
        let turn = turn.filter(|_| !is_truncated);
        let split = self.message.as_mut().map(|message| message.split(model));
        let SplitText { text, reasoning } = split.unwrap_or_default();
        if text.is_empty() && !is_truncated && turn.is_none() {
            return Err(self.without_text(usage));
        }
        let reasoning = (!reasoning.is_empty()).then(|| reasoning.join("\n\n"));
        Ok(ChatAnswer { text, reasoning, is_truncated, turn })
    }

    /// Returns how the answer ended. A provider behind a gateway knows a refusal best.
    fn end(&self) -> AnswerEnd {
        match AnswerEnd::of(&self.native_finish_reason) {
            AnswerEnd::Refused => AnswerEnd::Refused,
            _ => AnswerEnd::of(&self.finish_reason),
        }
    }

    /// Returns the error of a choice that says that it is no answer.
    fn stated_error(&self, end: AnswerEnd, usage: Option<Usage>) -> Option<CallError> {
        let refusal = self.message.as_ref().and_then(ChoiceMessage::refusal);
        match end {
            AnswerEnd::Filtered => Some(CallError::ContentFiltered { detail: refusal.unwrap_or_default(), usage }),
            AnswerEnd::Failed => {
                let reason = excerpt(self.finish_reason.as_str().unwrap_or_default());
                let error = self.error["message"].as_str().map(|message| format!(": {}", excerpt(message)));
                let detail = format!("finish_reason {reason}{}", error.unwrap_or_default());
                Some(CallError::Unreadable { what: "complete", detail, usage })
            }
            AnswerEnd::Refused => Some(CallError::Refused { detail: refusal.unwrap_or_default(), usage }),
            AnswerEnd::Complete | AnswerEnd::Truncated => refusal.map(|detail| CallError::Refused { detail, usage }),
        }
    }

    /// Returns the error of a complete answer without text: the provider failed if the model did not begin.
    fn without_text(&self, usage: Option<Usage>) -> CallError {
        let reason = self.finish_reason.as_str().map(excerpt);
        let has_tokens = usage.is_some_and(|usage| usage.output_tokens > 0);
        // Ollama ends an answer so that its model could not begin.
        let has_begun = self
            .message
            .as_ref()
            .is_some_and(|message| reason.is_some() || has_tokens || message.reasoning_field().is_some());
        let reason = reason.map(|reason| format!(" (finish_reason {reason})")).unwrap_or_default();
        let detail = format!("it has no text{reason}");
        if has_begun {
            CallError::Malformed { what: "a chat completion", detail, usage }
        } else {
            CallError::Unreadable { what: "complete", detail, usage }
        }
    }
}

/// Parses JSON. A text is checked to be UTF-8 as a whole, which takes less time than for each of its strings.
fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> serde_json::Result<T> {
    std::str::from_utf8(body).map_or_else(|_| serde_json::from_slice(body), serde_json::from_str)
}

/// Reads the first choice and the token usage. Calls of tools are read if the request has tools.
pub(crate) fn read_completion(body: &[u8], has_tools: bool) -> Result<CallOutput<ChatAnswer>, CallError> {
    let what = "a chat completion";
    let completion: ChatCompletion = parse(body).map_err(|error| unreadable(what, &error, body))?;
    let usage = completion.usage.known();
    let Some(choice) = completion.choices.into_iter().next() else {
        let detail = "it has no choices".to_string();
        return Err(error_in_success(body).unwrap_or(CallError::Malformed { what, detail, usage }));
    };
    let turn = if has_tools { chat_turn(body) } else { None };
    Ok(CallOutput { value: choice.into_answer(&completion.model, usage, turn)?, usage })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USAGE: &str = r#""usage":{"prompt_tokens":7,"completion_tokens":2}"#;

    /// Reads a completion with this choice and a usage of 7 and 2 tokens.
    fn read(choice: &str) -> Result<ChatAnswer, CallError> {
        let read = read_completion(format!(r#"{{"choices":[{choice}],{USAGE}}}"#).as_bytes(), false)?;
        assert_eq!(read.usage, KNOWN_USAGE);
        Ok(read.value)
    }

    const KNOWN_USAGE: Option<Usage> = Some(Usage::tokens(7, 2));

    #[test]
    fn a_body_that_is_not_a_completion_is_an_error_with_the_reason() {
        for (body, expected) in [
            ("", "it is empty"),
            ("<html>busy</html>", "it is not JSON (expected value at line 1 column 1)"),
            ("{}", "missing field `choices` at line 1 column 2"),
            (r#"{"choices":[]}"#, "it has no choices"),
        ] {
            let error = read_completion(body.as_bytes(), false).unwrap_err().to_string();
            assert_eq!(error, format!("the answer is not a chat completion: {expected}"));
        }
    }

    #[test]
    fn a_choice_without_text_is_an_error_with_the_reason_and_the_token_usage() {
        for (choices, expected) in [
            (r#"[{"message":{"content":null},"finish_reason":"stop"}]"#, "it has no text (finish_reason stop)"),
            (r#"[{"message":{"content":""},"finish_reason":"stop"}]"#, "it has no text (finish_reason stop)"),
            (r#"[{"message":{"content":[{"type":"text","text":""}]}}]"#, "it has no text"),
            (r#"[{"message":{"tool_calls":[]}}]"#, "it has no text"),
            ("[]", "it has no choices"),
            (r#"[{"message":{"content":7}}]"#, "invalid `content`, expected a text or a list of parts"),
            (r#"[{"message":{"content":"<think>So</think>"},"finish_reason":"stop"}]"#, "it has no text"),
        ] {
            let body = format!(r#"{{"choices":{choices},{USAGE}}}"#);
            let (CallError::Malformed { detail, usage, .. } | CallError::Unreadable { detail, usage, .. }) =
                read_completion(body.as_bytes(), false).unwrap_err()
            else {
                panic!("{body}")
            };
            assert!(detail.starts_with(expected), "{detail}");
            assert_eq!(usage, KNOWN_USAGE, "{body}");
        }
    }

    #[test]
    fn an_answer_that_ends_at_the_token_limit_is_truncated_even_without_text() {
        for (content, text) in [(r#""The pier"#, "The pier"), ("null", ""), (r#"""#, "")] {
            let content = if content.starts_with('"') { format!("{content}\"") } else { content.to_string() };
            for reason in ["length", "max_tokens", "MAX_TOKENS", "model_length", "model_context_window_exceeded"] {
                let choice = format!(r#"{{"message":{{"content":{content}}},"finish_reason":"{reason}"}}"#);
                let answer = read(&choice).unwrap();
                assert_eq!((answer.text.as_str(), answer.is_truncated), (text, true), "{choice}");
            }
        }
        assert!(!read(r#"{"message":{"content":"x"},"finish_reason":"stop"}"#).unwrap().is_truncated);
    }

    #[test]
    fn counts_and_reasoning_that_are_null_or_empty_are_absent() {
        let body = br#"{"choices":[{"message":{"content":"x"}}],"usage":null}"#;
        assert_eq!(read_completion(body, false).unwrap().usage, None);
        let plain = read(r#"{"message":{"content":"Yes.","reasoning":null,"reasoning_content":""}}"#).unwrap();
        assert_eq!((plain.text.as_str(), plain.reasoning), ("Yes.", None));
    }

    #[test]
    fn a_filtered_a_refused_and_an_aborted_answer_are_different_errors() {
        let refused = |detail: &str| CallError::Refused { detail: detail.to_string(), usage: KNOWN_USAGE };
        let failed =
            |detail: &str| CallError::Unreadable { what: "complete", detail: detail.to_string(), usage: KNOWN_USAGE };
        for (what, choice, expected) in [
            ("gateway to Anthropic, refusal", r#"{"message":{"content":""},"finish_reason":"refusal"}"#, refused("")),
            (
                "DeepSeek, no resources",
                r#"{"message":{"content":"The"},"finish_reason":"insufficient_system_resource"}"#,
                failed("finish_reason insufficient_system_resource"),
            ),
            (
                "Zhipu, sensitive",
                r#"{"message":{"content":""},"finish_reason":"sensitive"}"#,
                CallError::ContentFiltered { detail: String::new(), usage: KNOWN_USAGE },
            ),
            (
                "Zhipu, network_error",
                r#"{"message":{"content":"The"},"finish_reason":"network_error"}"#,
                failed("finish_reason network_error"),
            ),
            ("vLLM, abort", r#"{"message":{"content":""},"finish_reason":"abort"}"#, failed("finish_reason abort")),
        ] {
            assert_eq!(read(choice), Err(expected), "{what}");
        }
        for reason in [
            "content_filter: SAFETY",
            "content_filter:PROHIBITED_CONTENT",
            "SAFETY",
            "RECITATION",
            "PROHIBITED_CONTENT",
            "BLOCKLIST",
            "SPII",
            "IMAGE_SAFETY",
            "IMAGE_RECITATION",
            "IMAGE_PROHIBITED_CONTENT",
        ] {
            for message in [r#"{"content":"The"}"#, r#"{"content":null}"#, r#"{"content":""}"#] {
                let choice = format!(r#"{{"message":{message},"finish_reason":"{reason}"}}"#);
                let filtered = CallError::ContentFiltered { detail: String::new(), usage: KNOWN_USAGE };
                assert_eq!(read(&choice), Err(filtered), "Gemini, {choice}");
            }
        }
        assert_eq!(read(r#"{"message":{"content":"x","refusal":""}}"#).unwrap().text, "x");
    }
}
