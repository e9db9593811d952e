//! Files that are opened before a run starts, to find out early whether they can be written.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The path of a file that can be written. Its content is unchanged so far.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    is_new: bool,
}

impl OutputFile {
    /// Checks that the file at `path` can be written, and creates it if it does not exist.
    pub fn open(path: &Path) -> io::Result<Self> {
        let is_new = !path.exists();
        File::options().write(true).create(true).truncate(false).open(path)?;
        Ok(Self { path: path.to_owned(), is_new })
    }

    /// Returns the path, to write the file.
    #[must_use]
    pub fn into_path(self) -> PathBuf {
        self.path
    }

    /// Removes the file if [`open`](Self::open) created it.
    pub fn discard(self) {
        if self.is_new {
            // An empty file that cannot be removed does no harm.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
