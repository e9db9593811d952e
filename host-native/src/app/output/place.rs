//! Files that are found to be writable before a run begins, and written to once it does.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A file that can be written to. What is in it is still there.
#[derive(Debug)]
pub struct FilePlace {
    path: PathBuf,
    is_new: bool,
}

impl FilePlace {
    /// Opens `path`, or makes the file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let is_new = !path.exists();
        File::options().write(true).create(true).truncate(false).open(path)?;
        Ok(Self { path: path.to_owned(), is_new })
    }

    /// Where it is, to be written to.
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.path
    }

    /// Leaves everything as it was.
    pub fn give_up(self) {
        if self.is_new {
            // It is empty; that it cannot be removed harms nobody.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
