//! Columns of kind `embedding`: the embedding vector of a text, as a list of numbers.

use serde_json::Value;
use tidegate_core::budget::Usage;

use super::{FillContext, FillError, ModelCalls};
use crate::app::provider::Client;
use crate::app::template::TemplateId;
use crate::app::tokens;

/// A compiled embedding column.
#[derive(Debug)]
pub struct EmbeddingFill {
    /// The index of the model in the pipeline file.
    pub model: usize,
    /// The text to embed.
    pub input: TemplateId,
    /// The dimensions of the vector; `None` for the model's default.
    pub dimensions: Option<u32>,
}

impl EmbeddingFill {
    /// Returns the estimated tokens of a call with this text.
    #[must_use]
    pub fn estimate(input: &str) -> Usage {
        Usage::tokens(tokens::likely(input), 0)
    }

    pub(super) async fn fill(&self, context: FillContext<'_>, calls: ModelCalls<'_>) -> Result<Value, FillError> {
        let Some(Client::Embedding(client)) = calls.client() else { return Err(FillError::no_client(context.column)) };
        let input = context.render(&self.input)?;
        calls.call(context.column, Self::estimate(&input), || client.embed(&input, self.dimensions)).await
    }
}
