//! Steps at the files of a directory that several processes fill, on threads that may block.

use std::io;
use std::sync::Arc;

use crate::app::output::{OutputError, SharedDirectory};

/// Reads or writes the directory of all processes, on a thread for that.
pub(super) async fn with_directory<T: Send + 'static>(
    directory: &Arc<SharedDirectory>,
    step: impl FnOnce(&SharedDirectory) -> Result<T, OutputError> + Send + 'static,
) -> Result<T, OutputError> {
    let root = directory.root().to_path_buf();
    let directory = Arc::clone(directory);
    let lost = |error| OutputError::Io { path: root, source: io::Error::other(error) };
    tokio::task::spawn_blocking(move || step(&directory)).await.unwrap_or_else(|error| Err(lost(error)))
}
