//! Checks the keys of columns about batches: rows that one call, or one batch of requests, fills.

use std::ops::Range;

use tidegate_core::pipeline::Strategy;

use crate::app::config::document::Document;
use crate::app::config::pipeline::names::CallMode;
use crate::app::config::pipeline::raw::RawColumn;
use crate::app::config::pipeline::spec::ModelSpec;
use crate::app::config::source::FileError;
use crate::app::provider::batch::MAX_REQUESTS;

/// The most rows in one embedding call: as many texts as the API of OpenAI accepts.
const MAX_EMBEDDING_SIZE: u32 = 2048;

/// The rows in one embedding call if the file does not set `batch_size`. The fewest that a common server
/// accepts by default (Text Embeddings Inference).
const DEFAULT_EMBEDDING_SIZE: u32 = 32;

/// The rows in one batch of chat requests if the file does not set `batch_size`. With prompts and answers of
/// some hundred tokens they are well within what providers let a new account have in its queue.
const DEFAULT_CHAT_SIZE: u32 = 1_000;

/// Returns the largest number of rows in one batch of the column `raw`, whose models are `called`, the
/// preferred one first: 1 if the requests do not go in batches. `several` is the span of a list of several
/// models.
pub(super) fn chat_size(
    file: &Document<'_>,
    raw: &RawColumn,
    called: &[&ModelSpec],
    several: Option<Range<usize>>,
) -> Result<u32, FileError> {
    let given = raw.batch_size.as_ref();
    let Some(model) = called.iter().find(|model| model.mode == CallMode::Batch) else {
        let (Some(size), Some(model)) = (given, called.first()) else { return Ok(1) };
        let message = format!(
            "`batch_size` in [[columns]] has no effect: the requests of the model `{}` go one by one",
            model.name
        );
        return Err(file.error(size.span(), message).expected("a model with `mode = \"batch\"`"));
    };
    let name = &model.name;
    if let Some(span) = several {
        let message = format!("`models` in [[columns]] has `{name}`, whose requests go in batches");
        return Err(file.error(span, message).expected("`model = ` this model alone, or others"));
    }
    if let Some(tools) = &raw.tools {
        let message = format!("`tools` in [[columns]] is given, but the requests of the model `{name}` go in batches");
        return Err(file.error(tools.span(), message).expected("no `tools`, or a model with `mode = \"call\"`"));
    }
    if let Some(strategy) = raw.strategy.as_ref().filter(|given| Strategy::from(*given.get()) != Strategy::Cell) {
        let message = format!("the requests of the model `{name}` go in batches of rows");
        return Err(file.error(strategy.span(), message).expected("`strategy = \"cell\"`, or another model"));
    }
    match given {
        Some(size) if !(1..=MAX_REQUESTS).contains(size.get()) => {
            Err(file.wrong(size.span(), format!("a whole number from 1 to {MAX_REQUESTS}")))
        }
        size => Ok(size.map_or(DEFAULT_CHAT_SIZE, |size| *size.get())),
    }
}

/// Returns the largest number of rows in one embedding call: 1 for a column of whole row groups.
pub(super) fn embedding_size(file: &Document<'_>, raw: &RawColumn) -> Result<u32, FileError> {
    let given = raw.batch_size.as_ref();
    if let Some(size) = given.filter(|size| !(1..=MAX_EMBEDDING_SIZE).contains(size.get())) {
        return Err(file.wrong(size.span(), "a whole number from 1 to 2048"));
    }
    let is_cell = raw.strategy.as_ref().is_none_or(|strategy| Strategy::from(*strategy.get()) == Strategy::Cell);
    if let Some(size) = given.filter(|size| !is_cell && *size.get() > 1) {
        let message = "`batch_size` in [[columns]] is for columns with a vector for each row";
        return Err(file.error(size.span(), message).expected("`strategy = \"cell\"`, or no `batch_size`"));
    }
    Ok(if is_cell { given.map_or(DEFAULT_EMBEDDING_SIZE, |size| *size.get()) } else { 1 })
}
