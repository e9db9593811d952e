//! Columns of kind `expression`: a template's text, or the JSON value or number that it is.

use serde_json::Value;
use tidegate_core::pipeline::FailureKind;

use super::structure::read;
use super::{Scene, Unfilled};
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
    pub fn fill(&self, scene: Scene<'_>) -> Result<Value, Unfilled> {
        let text = scene.render(&self.template)?;
        read(self.output, text).map_err(|why| Unfilled::failed(FailureKind::Template, why))
    }
}
