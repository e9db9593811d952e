//! The parts of a checked pipeline file.

mod columns;
mod models;
mod sampler;
mod settings;
mod tools;

pub use columns::{
    ColumnKind, ColumnSpec, EmbeddingCall, Expression, ImageCall, JudgeCall, LlmCall, MessageSpec, Structure,
    Validation, ValidationCheck,
};
pub(super) use models::COMMAND_PROVIDER;
pub use models::{Endpoint, ExtraValue, MockSpec, ModelSpec, RequestExtras};
pub use sampler::{LawSpec, SamplerSpec};
pub use settings::{
    DatasetLocation, OutputColumnSpec, OutputSettings, RemoteFile, RowSource, RunSettings, SeedSpec, UniqueSpec,
};
pub use tools::ToolSpec;
