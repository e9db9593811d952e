//! `NNNNNN.calls.jsonl`: what the columns of a row group have asked their models, if the job keeps it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::OutputDirectory;
use super::error::{OutputError, io_error, unreadable};
use super::files::{calls_name, read_lines, write_atomically, write_lines};
use crate::app::provider::chat::{Message, Role};
use crate::app::provider::tool_calls::{MAX_CALLS, ToolCall, ToolTurn};

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

/// A line of the file: the calls for one cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallLine {
    /// The row number in the dataset. `None` for a column that is made for whole row groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
    /// The column.
    pub column: String,
    /// The model that was called last, as `provider/model`.
    pub model: String,
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
    /// The number of calls, including those that were repeated.
    pub calls: u32,
    /// The input tokens of all calls that reported them.
    pub input_tokens: u64,
    /// The output tokens of all calls that reported them.
    pub output_tokens: u64,
}

impl CallLine {
    /// Adds the calls of a later attempt for the same cell.
    pub fn add(&mut self, later: Self) {
        let calls = self.calls + later.calls;
        let input_tokens = self.input_tokens + later.input_tokens;
        let output_tokens = self.output_tokens + later.output_tokens;
        *self = Self { calls, input_tokens, output_tokens, ..later };
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
    fn calls_that_are_kept_are_bounded_in_number_and_length() {
        let call = ToolCall { id: String::new(), name: "x".repeat(1 << 20), arguments: "y".repeat(1 << 20) };
        let turn = ToolTurn { calls: vec![call; 100], ..ToolTurn::default() };
        let kept = shown_calls(Some(&turn));
        assert_eq!(kept.len(), MAX_CALLS);
        assert!(kept.iter().all(|call| call.len() < 66_000));
    }
}
