//! `NNNNNN.calls.jsonl`: what the columns of a row group have asked their models, if the job keeps it.

use std::collections::BTreeMap;
use std::mem;

use serde::{Deserialize, Serialize};

use super::OutputDirectory;
use super::error::{OutputError, io_error, unreadable};
use super::files::{calls_name, read_lines, write_atomically, write_lines};
use crate::app::provider::conversation::{Message, Role, ToolCall, ToolTurn};
use crate::app::provider::tool_calls::MAX_CALLS;

/// A message of a call, without the content of its images and recordings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallMessage {
    /// The author.
    pub role: Role,
    /// The text.
    pub content: String,
    /// The addresses and paths of its images and recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<String>,
    /// The tools that it calls, each with its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<String>,
    /// The tool that it is the result of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

impl From<&Message> for CallMessage {
    fn from(message: &Message) -> Self {
        let media = message.media.iter().map(|media| media.name().to_string()).collect();
        let tool = message.result.as_ref().map(|result| result.tool.clone());
        Self {
            role: message.role,
            content: message.content.clone(),
            media,
            tool_calls: shown_calls(message.turn.as_ref()),
            tool,
        }
    }
}

/// Returns the calls of a turn as they are kept: not more than a conversation goes on with.
pub fn shown_calls(turn: Option<&ToolTurn>) -> Vec<String> {
    turn.map_or_else(Vec::new, |turn| turn.calls.iter().take(MAX_CALLS).map(ToolCall::shown).collect())
}

/// How often one model was called for a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCallCounts {
    /// `provider/model`.
    pub model: String,
    /// The number of calls, including retries.
    pub calls: u32,
    /// The calls that were made because one before had failed, or because its answer was of no use.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A line of the file: the calls for one cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallLine {
    /// The row number in the dataset. `None` for a column that is made for whole row groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
    /// The column.
    pub column: String,
    /// The calls of each model, in the order of their first calls.
    pub models: Vec<ModelCallCounts>,
    /// The messages of the last call of a chat model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<CallMessage>,
    /// The text that the last call of another model sent: of an embedding, an image, a judge or a validation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// Whether the calls were for several rows, so that their tokens are unknown for one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_part: bool,
    /// The text of the last answer, or what it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The tools that the last answer calls, each with its arguments. They were not called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<String>,
    /// The error of the last call, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The input tokens of all calls that reported them.
    pub input_tokens: u64,
    /// The output tokens of all calls that reported them.
    pub output_tokens: u64,
}

impl CallLine {
    /// Adds the calls of a later attempt for the same cell.
    pub fn add(&mut self, later: Self) {
        let mut models = mem::take(&mut self.models);
        for counts in &later.models {
            match models.iter_mut().find(|known| known.model == counts.model) {
                Some(known) => {
                    known.calls += counts.calls;
                    known.retries += counts.retries + 1;
                }
                None => models.push(counts.clone()),
            }
        }
        let input_tokens = self.input_tokens + later.input_tokens;
        let output_tokens = self.output_tokens + later.output_tokens;
        *self = Self { models, input_tokens, output_tokens, ..later };
    }

    /// Counts a call of `model` in the same attempt. It is a retry if the model was called before and has
    /// called no tools, which are kept until the next call.
    pub fn count_call(&mut self, model: &str) {
        let is_answer_to_tools = self.error.is_none() && !self.tool_calls.is_empty();
        match self.models.iter_mut().find(|known| known.model == model) {
            Some(known) => {
                known.calls += 1;
                known.retries += u32::from(!is_answer_to_tools);
            }
            None => self.models.push(ModelCallCounts { model: model.to_string(), calls: 1, retries: 0 }),
        }
    }
}

impl OutputDirectory {
    /// Writes the calls of row group `index`. Those of an earlier run for other cells are kept.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or written.
    pub fn write_calls(&self, index: u32, lines: impl IntoIterator<Item = CallLine>) -> Result<(), OutputError> {
        let path = self.rows.join(calls_name(index));
        let before: Vec<CallLine> = read_lines(&path).map_err(unreadable(&path))?.unwrap_or_default();
        let cell = |line: CallLine| ((line.row, line.column.clone()), line);
        let lines: BTreeMap<_, _> = before.into_iter().chain(lines).map(cell).collect();
        write_atomically(&path, |file| write_lines(lines.values(), file)).map_err(io_error(&path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_has_its_calls_and_retries_and_an_answer_to_tools_is_no_retry() {
        let counts = |line: &CallLine| -> Vec<_> {
            line.models.iter().map(|counts| (counts.model.clone(), counts.calls, counts.retries)).collect()
        };
        let mut first = CallLine::default();
        first.count_call("p2/chat");
        first.error = Some("the server failed".to_string());
        first.count_call("acme/chat");
        (first.error, first.tool_calls) = (None, vec!["tides {}".to_string()]);
        first.count_call("acme/chat");
        first.tool_calls = Vec::new();
        first.count_call("acme/chat");
        let [p2, acme] = ["p2/chat", "acme/chat"].map(str::to_string);
        assert_eq!(counts(&first), [(p2.clone(), 1, 0), (acme.clone(), 3, 1)]);
        let mut second = CallLine { input_tokens: 7, ..CallLine::default() };
        second.count_call("acme/chat");
        first.add(second);
        assert_eq!((counts(&first), first.input_tokens), (vec![(p2, 1, 0), (acme, 4, 2)], 7));
    }

    #[test]
    fn calls_that_are_kept_are_bounded_in_number_and_length() {
        let call = ToolCall { id: String::new(), name: "x".repeat(1 << 20), arguments: "y".repeat(1 << 20) };
        let turn = ToolTurn { calls: vec![call; 100], ..ToolTurn::default() };
        let kept = shown_calls(Some(&turn));
        assert_eq!(kept.len(), MAX_CALLS);
        assert!(kept.iter().all(|call| call.len() < 66_000));
    }
}
