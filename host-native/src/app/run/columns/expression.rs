//! Columns of kind `expression`: the rendered text of a template, or the JSON value or number in it.

use serde_json::Value;
use tidegate_core::pipeline::FailureKind;

use super::FillContext;
use super::error::FillError;
use super::structure::parse_answer;
use crate::app::config::pipeline::OutputForm;
use crate::app::template::TemplateId;

/// A compiled expression column.
#[derive(Debug)]
pub struct ExpressionFill {
    /// The template.
    pub template: TemplateId,
    /// How its text becomes a value.
    pub output: OutputForm,
}

impl ExpressionFill {
    /// Returns the value for `context`.
    pub fn fill(&self, context: FillContext<'_>) -> Result<Value, FillError> {
        let text = context.render(&self.template)?;
        parse_answer(self.output, text).map_err(|why| FillError::failed(FailureKind::Template, why))
    }
}
