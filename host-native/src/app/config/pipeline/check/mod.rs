//! Checks the raw tables of a pipeline file, and converts them to the types of [`spec`](super::spec).

mod batches;
pub(super) mod columns;
mod criteria;
mod kinds;
pub(super) mod models;
mod sampler;
pub(super) mod settings;
mod structure;
pub(super) mod tools;

use std::path::{Path, PathBuf};

/// Resolves `path` relative to `directory`.
fn relative_to(directory: &Path, path: &str) -> PathBuf {
    directory.join(path)
}
