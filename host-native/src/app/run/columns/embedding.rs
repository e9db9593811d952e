//! Columns of kind `embedding`: the vector of a text, a list of numbers.

use serde_json::Value;
use tidegate_core::budget::Usage;

use super::{Calls, Scene, Unfilled, estimate_tokens};
use crate::app::provider::Client;
use crate::app::template::TemplateId;

/// The text to embed.
#[derive(Debug)]
pub struct EmbeddingFill {
    /// The model, by its place in the pipeline file.
    pub model: usize,
    /// The text.
    pub input: TemplateId,
    /// Dimensions of the vector; none: as many as the model gives.
    pub dimensions: Option<u32>,
}

impl EmbeddingFill {
    /// The tokens that a call with this text is estimated at.
    #[must_use]
    pub fn estimate(input: &str) -> Usage {
        Usage::tokens(estimate_tokens(input), 0)
    }

    pub(super) async fn fill(&self, scene: Scene<'_>, calls: Calls<'_>) -> Result<Value, Unfilled> {
        let Some(Client::Embedding(client)) = calls.client() else { return Err(Unfilled::wrong_client(scene.column)) };
        let input = scene.render(&self.input)?;
        calls.call(scene.column, Self::estimate(&input), || client.embed(&input, self.dimensions)).await
    }
}
