//! Columns of kind `embedding`: the embedding vector of a text, as a list of numbers.
//!
//! One call embeds the texts of a [batch](super::batch) of rows. If the provider rejects the call, it is made
//! again for each half of them. If it rejects two texts in a row that are alone in their calls, the reason
//! may be the same for all: then parts are halved without a call until a text is not rejected. So a batch of
//! N texts that are all rejected takes about N calls instead of 2 N, and no text counts as rejected that was
//! not alone in a call. After any other failure, the core [retries](tidegate_core::pipeline) the rows in
//! smaller batches, and alone in the last retry. So a row is dropped only for what a call with its text alone
//! has answered, unless the run has no retries.

use serde_json::Value;
use tidegate_core::budget::Usage;
use tidegate_core::pipeline::{FailureKind, TaskOutcome};

use super::batch::{BatchInput, BatchReply, Lead, ReplySender, Submission};
use super::error::{FillError, fill_error};
use super::{FillContext, ModelCalls};
use crate::app::provider::embedding::EmbeddingClient;
use crate::app::provider::{CallError, Client};
use crate::app::run::provider::CallFailure;
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
    /// The largest number of rows in one call.
    pub batch_size: u32,
}

/// The texts in a row that are rejected alone, after which the others are likely to be rejected, too.
const COMMON_REASON: u32 = 2;

/// Where the result of a text is sent. `None` after it was sent.
type Reply = Option<ReplySender>;

impl EmbeddingFill {
    /// Returns the estimated tokens of a call with this text.
    #[must_use]
    pub fn estimate(input: &str) -> Usage {
        Usage::tokens(tokens::likely(input), 0)
    }

    pub(super) async fn fill(&self, context: FillContext<'_>, calls: ModelCalls<'_>) -> Result<Value, FillError> {
        let client = client(calls, context.column)?;
        let input = context.render(&self.input)?;
        match calls.batch {
            Some(member) => {
                let vector = match member.submit(BatchInput::Text(input.clone())).await {
                    Ok(BatchReply::Vector(vector)) => Ok(vector),
                    Ok(BatchReply::Chat(_)) => Err(FillError::no_client(context.column)),
                    Err(error) => Err(error),
                };
                calls.keep_part(&input, &vector.as_ref().map(shown).map_err(Clone::clone));
                vector
            }
            None => self.embed(client, context.column, calls, &input).await,
        }
    }

    /// Makes the calls for a batch, and replies to its members.
    pub async fn fill_batch(&self, column: &str, lead: &Lead, calls: ModelCalls<'_>) {
        let submissions = lead.submissions().await;
        let submissions = submissions.into_iter().filter_map(|Submission { input, reply, .. }| match input {
            BatchInput::Text(text) => Some((text, Some(reply))),
            BatchInput::Request(_) => None,
        });
        let (inputs, mut replies): (Vec<String>, Vec<Reply>) = submissions.unzip();
        // Every member has checked it before it submitted.
        let Ok(client) = client(calls, column) else { return };
        let mut parts: Vec<Vec<usize>> = vec![(0..inputs.len()).collect()];
        // The texts in a row that were rejected alone.
        let mut rejected = 0_u32;
        while let Some(part) = parts.pop() {
            let mut send = |at: usize, result: Result<Value, FillError>| {
                if let Some(reply) = replies[at].take() {
                    // A member that has gone needs no reply.
                    let _ = reply.send(result.map(BatchReply::Vector));
                }
            };
            match part[..] {
                [] => {}
                [at] => {
                    let result = self.embed(client, column, calls, &inputs[at]).await;
                    let is_rejected = result.as_ref().is_err_and(may_concern_one_text);
                    rejected = if is_rejected { rejected.saturating_add(1) } else { 0 };
                    send(at, result);
                }
                _ if rejected >= COMMON_REASON => parts.extend(halves(&part)),
                _ => match self.embed_part(client, column, calls, &inputs, &part).await {
                    Ok(vectors) => {
                        for (at, vector) in part.into_iter().zip(vectors) {
                            send(at, vector.map_err(|error| fill_error(CallFailure::Failed(error))));
                        }
                    }
                    Err(error) if may_concern_one_text(&error) => {
                        parts.extend(halves(&part));
                    }
                    Err(error) => part.into_iter().for_each(|at| send(at, Err(error.clone()))),
                },
            }
        }
    }

    /// Makes a call with one text.
    async fn embed(
        &self,
        client: &EmbeddingClient,
        column: &str,
        calls: ModelCalls<'_>,
        input: &str,
    ) -> Result<Value, FillError> {
        calls.call_with(column, Self::estimate(input), input, shown, || client.embed(input, self.dimensions)).await
    }

    /// Makes a call with the texts in `inputs` at the places in `part`.
    async fn embed_part(
        &self,
        client: &EmbeddingClient,
        column: &str,
        calls: ModelCalls<'_>,
        inputs: &[String],
        part: &[usize],
    ) -> Result<Vec<Result<Value, CallError>>, FillError> {
        let texts: Vec<String> = part.iter().map(|at| inputs[*at].clone()).collect();
        let tokens = texts.iter().map(|text| tokens::likely(text)).fold(0, u32::saturating_add);
        calls.call(column, Usage::tokens(tokens, 0), || client.embed_all(&texts, self.dimensions)).await
    }
}

fn client<'a>(calls: ModelCalls<'a>, column: &str) -> Result<&'a EmbeddingClient, FillError> {
    match calls.client() {
        Some(Client::Embedding(client)) => Ok(client),
        _ => Err(FillError::no_client(column)),
    }
}

/// Returns what is shown of a vector.
fn shown(vector: &Value) -> String {
    format!("a vector of {} numbers", vector.as_array().map_or(0, Vec::len))
}

/// Returns the halves of a part, the first one last, so that it is the next one.
fn halves(part: &[usize]) -> [Vec<usize>; 2] {
    let (first, second) = part.split_at(part.len() / 2);
    [second.to_vec(), first.to_vec()]
}

/// Returns whether a permanent failure of a call with several texts may be due to one of them.
fn may_concern_one_text(error: &FillError) -> bool {
    let FillError::Outcome(TaskOutcome::Failed(kind), _) = error else { return false };
    matches!(kind, FailureKind::Request | FailureKind::ContentFiltered | FailureKind::Declined)
}
