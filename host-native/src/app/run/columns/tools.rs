//! The tools of a column of kind `llm`: commands that its model may call before it answers.
//!
//! ```text
//! conversation ──▶ model ──▶ an answer without calls is the answer of the column
//!      ▲             │
//!      │             ▼ calls
//!   answer and results ◀── commands, one after the other
//! ```
//!
//! A *turn* is an answer of the model. Each one waits for a slot of its own, and the commands run while the
//! slot is free. What the model does wrong becomes the result of the call, so that it can do better: an
//! unknown tool, arguments that do not fit, a command that fails. If a command cannot be started, the column
//! is retried. The column fails if the last of `max_turns` answers has calls, or if a bound below is
//! exceeded.

use std::collections::HashSet;
use std::sync::Arc;

use jsonschema::Validator;
use serde_json::Value;
use tidegate_core::pipeline::{FailureKind, TaskOutcome};

use super::ModelCalls;
use super::error::{FillError, fill_error};
use super::structure::{safe_name, violations};
use crate::app::config::json_schema::cut;
use crate::app::provider::CallError;
use crate::app::provider::command::Command;
use crate::app::provider::conversation::{Conversation, Message, OfferedTool, Role, ToolCall, ToolResult, ToolTurn};
use crate::app::provider::tool_calls::{MAX_ARGUMENT_BYTES, MAX_CALLS, NO_ARGUMENTS, own_id};
use crate::app::run::provider::CallFailure;
use crate::app::tokens;

/// The longest result of a tool in bytes. Most models read little more than ten times as much in all.
const MAX_RESULT_BYTES: usize = 64 << 10;

/// The most bytes of answers with calls, their reasoning and their results in one conversation. It is held in
/// memory, and no model reads as much.
const MAX_BYTES: usize = 4 << 20;

/// The tools of a column.
#[derive(Debug, Default)]
pub struct ToolSet {
    tools: Arc<[OfferedTool]>,
    /// For each tool, the schema of its arguments.
    validators: Vec<Validator>,
    /// The most answers of the model, with the one that calls no tool.
    max_turns: u32,
}

impl ToolSet {
    /// Creates the tools of a column from those of the file, each with the schema of its arguments.
    #[must_use]
    pub fn new(tools: Vec<(OfferedTool, Validator)>, max_turns: u32) -> Self {
        let (tools, validators): (Vec<_>, Vec<_>) = tools.into_iter().unzip();
        Self { tools: tools.into(), validators, max_turns }
    }

    /// Returns what requests offer.
    #[must_use]
    pub fn offered(&self) -> Arc<[OfferedTool]> {
        Arc::clone(&self.tools)
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Returns the most answers of the model to one conversation, at least 2.
    #[must_use]
    pub fn max_turns(&self) -> u32 {
        self.max_turns
    }

    /// Returns the likely number of tokens of the tools in a request.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        let of_tool = |OfferedTool { name, description, parameters }: &OfferedTool| {
            [name, description, &parameters.to_string()].map(|text| tokens::likely(text)).into_iter().sum::<u32>()
        };
        self.tools.iter().map(of_tool).fold(0, u32::saturating_add)
    }

    /// Begins a conversation of a task, which has the commands of the tools.
    pub(super) fn turns<'a>(&'a self, task: ModelCalls<'a>) -> Turns<'a> {
        Turns { tools: self, task, answers: 0, bytes: 0, calls: 0, ids: HashSet::new(), reasoning: Vec::new() }
    }

    fn names(&self) -> String {
        self.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// The turns of one conversation.
#[derive(Debug)]
pub(super) struct Turns<'a> {
    tools: &'a ToolSet,
    /// Has the commands, in the order of the tools.
    task: ModelCalls<'a>,
    /// Answers with calls so far.
    answers: u32,
    /// Bytes of these answers and their results.
    bytes: usize,
    /// Calls so far.
    calls: usize,
    /// The ids of these calls.
    ids: HashSet<String>,
    /// The reasoning of these answers, in their order.
    reasoning: Vec<String>,
}

impl Turns<'_> {
    /// Runs the calls of an answer, and adds it and the results to the conversation.
    ///
    /// # Errors
    /// Why the column fails, or is tried again.
    pub(super) async fn add(
        &mut self,
        conversation: &mut Conversation,
        text: String,
        reasoning: Option<String>,
        mut turn: ToolTurn,
    ) -> Result<(), FillError> {
        self.check(&text, &turn).map_err(malformed)?;
        self.count(reasoning.as_ref().map_or(0, String::len)).map_err(malformed)?;
        self.reasoning.extend(reasoning);
        let mut results = Vec::with_capacity(turn.calls.len());
        for call in &mut turn.calls {
            if self.task.is_stopping() {
                // As for a call that the cost limit prevents: the row is not dropped.
                return Err(FillError::Outcome(TaskOutcome::Unavailable, "the run makes no further calls".to_string()));
            }
            self.give_id(call);
            let (content, is_error) = match self.run(call).await? {
                Ok(result) => (result, false),
                Err(why) => (format!("error: {why}"), true),
            };
            self.count(content.len()).map_err(malformed)?;
            let result = ToolResult { call_id: call.id.clone(), tool: call.name.clone(), is_error };
            results.push(Message { result: Some(result), ..Message::text(Role::User, content) });
        }
        conversation.messages.push(Message { turn: Some(turn), ..Message::text(Role::Assistant, text) });
        conversation.messages.append(&mut results);
        // A tool that the file requires would be called for ever.
        conversation.extra.remove("tool_choice");
        Ok(())
    }

    /// Returns the reasoning of all answers, where the last one has this.
    pub(super) fn all_reasoning(self, last: Option<String>) -> Option<String> {
        let all: Vec<String> = self.reasoning.into_iter().chain(last).collect();
        (!all.is_empty()).then(|| all.join("\n\n"))
    }

    /// Checks the bounds of an answer with calls, before any of them runs.
    fn check(&mut self, text: &str, turn: &ToolTurn) -> Result<(), String> {
        self.answers += 1;
        if self.answers >= self.tools.max_turns {
            let first = turn.calls.first().map_or("", |call| call.name.as_str());
            let last = self.tools.max_turns;
            return Err(format!("the model calls `{}` in the last of {last} answers (`max_turns`)", cut(first)));
        }
        if turn.calls.len() > MAX_CALLS {
            return Err(format!("the answer has {} calls of tools; expected at most {MAX_CALLS}", turn.calls.len()));
        }
        self.count(text.len().saturating_add(turn.size()))
    }

    /// Replaces the id of a call if results cannot refer to it.
    fn give_id(&mut self, call: &mut ToolCall) {
        self.calls += 1;
        let is_usable = !call.id.is_empty() && call.id.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_usable || !self.ids.insert(call.id.clone()) {
            call.id = self.new_id();
            self.ids.insert(call.id.clone());
        }
    }

    /// Returns an id that no call has.
    fn new_id(&self) -> String {
        let numbers = self.calls..=self.calls + self.ids.len();
        numbers.map(own_id).find(|id| !self.ids.contains(id)).unwrap_or_default()
    }

    fn count(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes <= MAX_BYTES {
            return Ok(());
        }
        Err(format!("the answers with calls of tools, and their results, are longer than {MAX_BYTES} bytes"))
    }

    /// Runs the command of a call. The inner error is for the model.
    async fn run(&self, call: &mut ToolCall) -> Result<Result<String, String>, FillError> {
        let (command, arguments) = match self.command(call) {
            Ok(command) => command,
            Err(why) => return Ok(Err(why)),
        };
        match command.run_up_to(MAX_RESULT_BYTES, format!("{arguments}\n").as_bytes()).await {
            Ok(output) => {
                let text = output.value;
                Ok(Ok(text.strip_suffix('\n').map_or_else(|| text.clone(), str::to_string)))
            }
            // The model cannot do better.
            Err(error @ CallError::CommandNotStarted { .. }) => Err(fill_error(CallFailure::Failed(error))),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    /// Returns the command of a call, and its arguments. An error is for the model. What APIs do not accept
    /// in a request is replaced in `call`.
    fn command(&self, call: &mut ToolCall) -> Result<(&Command, Value), String> {
        let at = self.tools.tools.iter().position(|tool| tool.name == call.name);
        // Some models send no text for a tool without parameters.
        if call.arguments.trim().is_empty() {
            call.arguments = NO_ARGUMENTS.to_string();
        }
        let arguments = parse_arguments(&call.arguments);
        if arguments.is_err() {
            call.arguments = NO_ARGUMENTS.to_string();
        }
        let Some(at) = at else {
            let why = format!("there is no tool `{}`; expected one of: {}", cut(&call.name), self.tools.names());
            call.name = safe_name(&call.name);
            return Err(why);
        };
        let arguments = arguments?;
        let violations = self.tools.validators.get(at).map(|schema| violations(schema, &arguments)).unwrap_or_default();
        if !violations.is_empty() {
            return Err(format!("the arguments do not fit: {}", violations.join("; ")));
        }
        let command = self.task.tools().get(at).ok_or("the tool has no command")?;
        Ok((command, arguments))
    }
}

fn malformed(why: String) -> FillError {
    FillError::failed(FailureKind::MalformedAnswer, why)
}

/// Parses the arguments of a call.
fn parse_arguments(text: &str) -> Result<Value, String> {
    if text.len() > MAX_ARGUMENT_BYTES {
        return Err(format!("the arguments have {} bytes; expected at most {MAX_ARGUMENT_BYTES}", text.len()));
    }
    match serde_json::from_str(text) {
        Ok(arguments @ Value::Object(_)) => Ok(arguments),
        Ok(other) => Err(format!("the arguments are {}; expected a JSON object", cut(&other.to_string()))),
        Err(error) => Err(format!("the arguments are not JSON: {error}")),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::AtomicBool;

    use serde_json::json;
    use tidegate_core::request::{RequestAdmission, RequestConfig};
    use tidegate_core::time::Duration;

    use super::*;
    use crate::app::run::columns::Caller;

    /// Adds an answer with `count` calls of `argv` to a conversation, whose run makes no further calls if
    /// `is_stopping`. Returns the results.
    async fn add(argv: &[&str], count: usize, text: &str, is_stopping: bool) -> Result<Vec<String>, FillError> {
        let parameters = json!({ "type": "object" });
        let validator = jsonschema::validator_for(&parameters).unwrap();
        let offered = OfferedTool { name: "tide".to_string(), description: String::new(), parameters };
        let tools = ToolSet::new(vec![(offered, validator)], 8);
        let command = Command {
            program: PathBuf::from(argv[0]),
            arguments: argv[1..].iter().map(ToString::to_string).collect(),
            directory: PathBuf::new(),
            hidden: Vec::new(),
            timeout: Duration::from_secs(60),
        };
        let group = RequestAdmission::new(RequestConfig::default()).unwrap().group("g", 1.0).unwrap();
        let caller = Caller { models: Vec::new(), group, batches: None, tools: vec![command] };
        let is_stopping = AtomicBool::new(is_stopping);
        let task = ModelCalls {
            caller: Some(&caller),
            token: None,
            is_repeated: false,
            kept: None,
            batch: None,
            output: None,
            is_stopping: Some(&is_stopping),
        };
        let call = ToolCall { id: String::new(), name: "tide".to_string(), arguments: "{}".to_string() };
        let turn = ToolTurn { calls: vec![call; count], ..ToolTurn::default() };
        let mut conversation = Conversation::default();
        tools.turns(task).add(&mut conversation, text.to_string(), None, turn).await?;
        Ok(conversation.messages.into_iter().skip(1).map(|message| message.content).collect())
    }

    #[tokio::test]
    async fn a_command_that_cannot_be_started_is_tried_again_and_is_no_result() {
        let error = add(&["/nowhere/tide"], 1, "", false).await.unwrap_err();
        assert!(matches!(error, FillError::Outcome(TaskOutcome::Retryable { .. }, _)), "{error:?}");
        assert!(error.to_string().starts_with("the command cannot be started: "), "{error}");
        let failed = add(&["sh", "-c", "echo no tide >&2; exit 3"], 1, "", false).await.unwrap();
        assert_eq!(failed, ["error: the command failed (exit status: 3: no tide)"]);
    }

    #[tokio::test]
    async fn no_command_runs_for_an_answer_beyond_the_bounds_or_once_the_run_stops() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("called");
        let argv = ["touch", file.to_str().unwrap()];
        let long = "x".repeat(MAX_BYTES + 1);
        for (count, text) in [(MAX_CALLS + 1, ""), (1, long.as_str())] {
            let error = add(&argv, count, text, false).await.unwrap_err();
            assert!(matches!(error, FillError::Outcome(TaskOutcome::Failed(FailureKind::MalformedAnswer), _)));
        }
        let error = add(&argv, 1, "", true).await.unwrap_err();
        assert!(matches!(error, FillError::Outcome(TaskOutcome::Unavailable, _)), "{error:?}");
        assert!(!file.exists());
        assert_eq!(add(&argv, MAX_CALLS, "", false).await.unwrap().len(), MAX_CALLS);
        assert!(file.exists());
    }
}
