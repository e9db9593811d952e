//! Columns of kind `judge`: a command or a server of the user gets a JSON object about the row, and answers
//! with the value.
//!
//! ```json
//! {"column": "grade", "row": 7, "input": "the rendered text", "values": {"note": "a column of `inputs`"}}
//! ```
//!
//! `input` and `values` are present if the column has the settings `input` and `inputs`. A column for whole
//! row groups sends `row_group` and `rows`, a list with one object per row, instead of `row` and `values`. A
//! command gets the object on its standard input and answers on its standard output. A server gets it as the
//! body of a POST request and answers in the body of the response.

use serde_json::{Map, Value};
use tidegate_core::budget::Usage;
use tidegate_core::pipeline::FailureKind;

use super::error::FillError;
use super::structure::parse_answer;
use super::{FillContext, ModelCalls};
use crate::app::config::pipeline::OutputForm;
use crate::app::provider::{CallError, CallOutput, Client};
use crate::app::template::TemplateId;

/// A compiled judge column.
#[derive(Debug)]
pub struct JudgeFill {
    /// The index of the model in the pipeline file.
    pub model: usize,
    /// The template of the text in `input`.
    pub input: Option<TemplateId>,
    /// The columns whose values are sent.
    pub inputs: Vec<String>,
    /// How the answer becomes a value.
    pub output: OutputForm,
}

impl JudgeFill {
    /// Returns the JSON object that is sent for `context`.
    pub fn request(&self, context: FillContext<'_>) -> Result<Value, FillError> {
        let mut request = Map::new();
        request.insert("column".to_string(), context.column.into());
        if let Some(input) = &self.input {
            request.insert("input".to_string(), context.render(input)?.into());
        }
        if context.is_whole_group {
            request.insert("row_group".to_string(), context.value("row_group"));
            request.insert("rows".to_string(), context.value("rows"));
        } else {
            request.insert("row".to_string(), context.row.into());
            if !self.inputs.is_empty() {
                let values = self.inputs.iter().map(|name| (name.clone(), context.value(name)));
                request.insert("values".to_string(), Value::Object(values.collect()));
            }
        }
        Ok(Value::Object(request))
    }

    pub(super) async fn fill(&self, context: FillContext<'_>, calls: ModelCalls<'_>) -> Result<Value, FillError> {
        let request = self.request(context)?;
        let (asked, free) = (request.to_string(), Usage::default());
        let shown = |text: &String| text.trim_end().to_string();
        let text = match calls.client() {
            Some(Client::Command(command)) => {
                let line = format!("{asked}\n");
                calls.call_with(context.column, free, &asked, shown, || command.run(line.as_bytes())).await?
            }
            Some(Client::Http(client)) => {
                calls.call_with(context.column, free, &asked, shown, || client.post(&request, parse_body)).await?
            }
            _ => return Err(FillError::no_client(context.column)),
        };
        let text = text.strip_suffix('\n').map_or_else(|| text.clone(), str::to_string);
        parse_answer(self.output, text).map_err(|why| FillError::failed(FailureKind::MalformedAnswer, why))
    }
}

fn parse_body(body: &[u8]) -> Result<CallOutput<String>, CallError> {
    match std::str::from_utf8(body) {
        Ok(text) => Ok(CallOutput { value: text.to_string(), usage: None }),
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

    fn request(is_whole_group: bool, values: &Value) -> Value {
        let mut templates = Templates::new();
        let input = templates.add("i".to_string(), "{{ row_group }}").unwrap();
        let values = TemplateValue::from(Serde(values));
        let context = FillContext { column: "c", templates: &templates, values: &values, row: 7, is_whole_group };
        let inputs = if is_whole_group { Vec::new() } else { vec!["note".to_string()] };
        let fill = JudgeFill { model: 0, input: is_whole_group.then_some(input), inputs, output: OutputForm::Json };
        fill.request(context).expect("it can be rendered")
    }

    #[test]
    fn a_request_is_about_a_row_or_about_all_rows_of_a_group() {
        let about_row = request(false, &json!({"note": {"a": [1]}, "other": 2}));
        assert_eq!(about_row, json!({"column": "c", "row": 7, "values": {"note": {"a": [1]}}}));
        let rows = json!([{"row": 7}, {"row": 8}]);
        let about_group = request(true, &json!({"rows": rows, "row_group": 3}));
        assert_eq!(about_group, json!({"column": "c", "row_group": 3, "rows": rows, "input": "3"}));
    }
}
