//! Columns of kind `expression`: a template's text, or the JSON value or number that it is.

use serde_json::Value;
use tidegate_core::pipeline::FailureKind;

use super::structure::parse_answer;
use super::{FillContext, FillError};
use crate::app::config::pipeline::OutputForm;
use crate::app::template::TemplateId;

/// A template that is the value.
#[derive(Debug)]
pub struct ExpressionFill {
    /// The template.
    pub template: TemplateId,
    /// What its text becomes.
    pub output: OutputForm,
}

impl ExpressionFill {
    /// The value for `scene`.
    pub fn fill(&self, context: FillContext<'_>) -> Result<Value, FillError> {
        let text = context.render(&self.template)?;
        parse_answer(self.output, text).map_err(|why| FillError::failed(FailureKind::Template, why))
    }
}
