//! Columns of kind `image`: a file that an image model makes. The value is its path in the output directory.

use std::sync::Arc;

use serde_json::{Map, Value};
use tidegate_core::budget::Usage;
use tidegate_core::pipeline::{FatalError, TaskOutcome};

use super::error::FillError;
use super::{CalledModel, FillContext, ModelCalls, render_extra};
use crate::app::provider::Client;
use crate::app::provider::image::{GeneratedImage, ImageRequest};
use crate::app::template::TemplateId;
use crate::app::tokens;

/// A compiled image column.
#[derive(Debug)]
pub struct ImageFill {
    /// The index of the model in the pipeline file.
    pub model: usize,
    /// What the image shows.
    pub prompt: TemplateId,
    /// The size; `None` for the default of the model.
    pub size: Option<TemplateId>,
    /// The estimated tokens of an answer, if the file sets it.
    pub answer_tokens: Option<u32>,
    /// Additional fields of the request body.
    pub extra: Map<String, Value>,
    /// The strings in `extra` that are templates, by JSON pointer.
    pub extra_templates: Vec<(String, TemplateId)>,
}

impl ImageFill {
    /// Returns the request for `context`.
    pub fn request(&self, context: FillContext<'_>) -> Result<ImageRequest, FillError> {
        Ok(ImageRequest {
            prompt: context.render(&self.prompt)?,
            size: self.size.as_ref().map(|size| context.render(size)).transpose()?,
            extra: render_extra(context, &self.extra, &self.extra_templates)?,
        })
    }

    /// Returns the estimated tokens of a call: the likely number for the prompt, and `answer_tokens` for the
    /// image.
    #[must_use]
    pub fn estimate(&self, request: &ImageRequest) -> Usage {
        Usage::tokens(tokens::likely(&request.prompt), self.answer_tokens.unwrap_or(0))
    }

    pub(super) async fn fill(&self, context: FillContext<'_>, calls: ModelCalls<'_>) -> Result<Value, FillError> {
        let (Some(CalledModel { client: Client::Image(client), provider, .. }), Some(output)) =
            (calls.model(), calls.output)
        else {
            return Err(FillError::no_client(context.column));
        };
        let request = self.request(context)?;
        let generate = || client.generate(request.clone());
        let shown = |image: &GeneratedImage| format!("an image of {} bytes, .{}", image.bytes.len(), image.extension);
        let estimate = self.estimate(&request);
        let image = calls.call_with(context.column, estimate, &request.prompt, shown, generate).await?;
        let (output, column, row) = (Arc::clone(output), context.column.to_string(), context.row);
        let written = tokio::task::spawn_blocking(move || output.write_image(&column, row, &image)).await;
        let written = written.map_err(|error| FillError::Fatal(FatalError(error.to_string())))?;
        written.map(Value::from).map_err(|error| {
            // As for a row group that cannot be written: the row is not dropped, and no other image is paid
            // for.
            let why = error.to_string();
            provider.stop_unwritable(why.clone());
            FillError::Outcome(TaskOutcome::Unavailable, why)
        })
    }
}
