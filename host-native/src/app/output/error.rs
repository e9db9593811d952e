//! Why an output directory cannot be used.

use crate::app::error::{Error, Exit};
use std::io;
use std::path::{Path, PathBuf};

/// Output that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// Something is there already.
    #[error(
        "{} is not empty: choose another directory with --out, go on where an earlier run stopped with --resume, or replace \
         what it wrote with --overwrite",
        .0.display()
    )]
    NotEmpty(PathBuf),
    /// What is there was not written by this program, so it is not removed.
    #[error("{} holds files that no run of tidegate wrote ({found}), so --overwrite does not remove them", .path.display())]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// One of the files.
        found: String,
    },
    /// What is there is not a run that can be gone on with.
    #[error("{} holds nothing to resume: {why}", .path.display())]
    NoRun {
        /// The directory.
        path: PathBuf,
        /// What is the matter.
        why: String,
    },
    /// What is there is another run, or this one of another input.
    #[error(
        "{} holds rows of another run: {what}; put it back to resume, or choose another directory with --out",
        .path.display()
    )]
    AnotherRun {
        /// The directory.
        path: PathBuf,
        /// What is not as it was, and how.
        what: String,
    },
    /// Another run writes there.
    #[error("another run is writing to {}", .0.display())]
    InUse(PathBuf),
    /// A file of an earlier run that cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is the matter.
        source: io::Error,
    },
    /// It cannot be written.
    #[error("cannot write to {}: {source}", .path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

pub(super) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> OutputError + use<> {
    let path = path.to_path_buf();
    |source| OutputError::Io { path, source }
}

pub(super) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> OutputError + use<> {
    let path = path.to_path_buf();
    |source| OutputError::Unreadable { path, source }
}

impl From<OutputError> for Error {
    fn from(error: OutputError) -> Self {
        Self::new(Exit::Output, error)
    }
}
