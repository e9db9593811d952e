//! Columns of kind `judge`: a command, or a server of one's own, is told about the row and answers with the value.
//!
//! The question is one JSON object:
//!
//! ```json
//! {"column": "grade", "row": 7, "input": "the template's text", "values": {"note": "a column of `inputs`"}}
//! ```
//!
//! `input` and `values` are there when the column has the key. A column for whole row groups sends `row_group` and
//! `rows`, a list with one object per row, instead of `row` and `values`. A command reads the object on its standard
//! input and answers on its standard output; a server gets it as the body of a POST and answers with the body.

use serde_json::{Map, Value};
use tidegate_core::budget::Usage;
use tidegate_core::pipeline::FailureKind;

use super::structure::read;
use super::{Calls, Scene, Unfilled};
use crate::app::config::pipeline::OutputForm;
use crate::app::provider::{Answer, CallError, Client};
use crate::app::template::TemplateId;

/// What is sent, and what the answer becomes.
#[derive(Debug)]
pub struct JudgeFill {
    /// The model, by its place in the pipeline file.
    pub model: usize,
    /// A text that goes along.
    pub input: Option<TemplateId>,
    /// Columns whose values go along.
    pub inputs: Vec<String>,
    /// What the answer becomes.
    pub output: OutputForm,
}

impl JudgeFill {
    /// The question about `scene`.
    pub fn question(&self, scene: Scene<'_>) -> Result<Value, Unfilled> {
        let mut question = Map::new();
        question.insert("column".to_string(), scene.column.into());
        if let Some(input) = &self.input {
            question.insert("input".to_string(), scene.render(input)?.into());
        }
        if scene.is_whole_group {
            question.insert("row_group".to_string(), scene.value("row_group"));
            question.insert("rows".to_string(), scene.value("rows"));
        } else {
            question.insert("row".to_string(), scene.row.into());
            if !self.inputs.is_empty() {
                let values = self.inputs.iter().map(|name| (name.clone(), scene.value(name)));
                question.insert("values".to_string(), Value::Object(values.collect()));
            }
        }
        Ok(Value::Object(question))
    }

    pub(super) async fn fill(&self, scene: Scene<'_>, calls: Calls<'_>) -> Result<Value, Unfilled> {
        let question = self.question(scene)?;
        let text = match calls.client() {
            Some(Client::Command(command)) => {
                let line = format!("{question}\n");
                calls.call(scene.column, Usage::default(), || command.ask(line.as_bytes())).await?
            }
            Some(Client::Http(client)) => {
                calls.call(scene.column, Usage::default(), || client.post(&question, read_text)).await?
            }
            _ => return Err(Unfilled::wrong_client(scene.column)),
        };
        let text = text.strip_suffix('\n').map_or_else(|| text.clone(), str::to_string);
        read(self.output, text).map_err(|why| Unfilled::failed(FailureKind::MalformedAnswer, why))
    }
}

fn read_text(body: &[u8]) -> Result<Answer<String>, CallError> {
    match std::str::from_utf8(body) {
        Ok(text) => Ok(Answer { value: text.to_string(), usage: None }),
        Err(_) => {
            Err(CallError::Malformed { what: "usable", detail: "it is not valid UTF-8".to_string(), usage: None })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::template::{Serde, TemplateValue, Templates};
    use serde_json::json;

    fn question(is_whole_group: bool, values: &Value) -> Value {
        let mut templates = Templates::new();
        let input = templates.add("i".to_string(), "{{ row_group }}").unwrap();
        let values = TemplateValue::from(Serde(values));
        let scene = Scene { column: "c", templates: &templates, values: &values, row: 7, is_whole_group };
        let inputs = if is_whole_group { Vec::new() } else { vec!["note".to_string()] };
        let fill = JudgeFill { model: 0, input: is_whole_group.then_some(input), inputs, output: OutputForm::Json };
        fill.question(scene).expect("it can be rendered")
    }

    #[test]
    fn a_question_is_about_a_row_or_about_all_rows_of_a_group() {
        let about_row = question(false, &json!({"note": {"a": [1]}, "other": 2}));
        assert_eq!(about_row, json!({"column": "c", "row": 7, "values": {"note": {"a": [1]}}}));
        let rows = json!([{"row": 7}, {"row": 8}]);
        let about_group = question(true, &json!({"rows": rows, "row_group": 3}));
        assert_eq!(about_group, json!({"column": "c", "row_group": 3, "rows": rows, "input": "3"}));
    }
}
