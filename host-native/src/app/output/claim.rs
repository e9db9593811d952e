//! An output directory is locked before it is looked at: what is found there is not being changed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::Existing;
use super::error::{OutputError, io_error};
use super::files::{LOCK, visit_names};

/// An output directory that no other run can claim. Nothing in it has changed yet.
#[derive(Debug)]
pub struct Claim {
    pub(super) root: PathBuf,
    pub(super) existing: Existing,
    pub(super) is_new: bool,
    /// The system lets go of it when the process ends, however it ends.
    pub(super) lock: File,
}

impl Claim {
    /// Claims `root`, which is created if need be. Refuses if another run has it, or if `existing` does not allow what is there.
    pub fn new(root: &Path, existing: Existing) -> Result<Self, OutputError> {
        let path = root.join(LOCK);
        let is_refused = || Ok(existing == Existing::Refuse && !names(root).map_err(io_error(root))?.is_empty());
        // A run locks before it writes anything else: what has no lock is of no run that goes on, and not even a lock is left there.
        if is_refused()? && !path.exists() {
            return Err(OutputError::NotEmpty(root.to_path_buf()));
        }
        let mut is_new = false;
        let lock = loop {
            is_new |= !root.exists();
            fs::create_dir_all(root).map_err(io_error(root))?;
            let lock = lock(root, &path)?;
            if is_at(&lock, &path) {
                break lock;
            }
            // A run that gave up removed it while it was being locked.
        };
        if is_refused()? {
            return Err(OutputError::NotEmpty(root.to_path_buf()));
        }
        Ok(Self { root: root.to_path_buf(), existing, is_new, lock })
    }

    /// Leaves everything as it was.
    pub fn give_up(self) {
        if self.is_new {
            // An empty directory that cannot be removed harms nobody.
            let _ = fs::remove_file(self.root.join(LOCK)).and_then(|()| fs::remove_dir(&self.root));
        }
    }
}

fn lock(root: &Path, path: &Path) -> Result<File, OutputError> {
    let file = File::options().create(true).truncate(false).write(true).open(path).map_err(io_error(path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(OutputError::InUse(root.to_path_buf())),
        Err(fs::TryLockError::Error(source)) => Err(OutputError::Io { path: path.to_path_buf(), source }),
    }
}

/// Whether `file` is still the one at `path`.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let number = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    matches!((file.metadata().map(number), fs::metadata(path).map(number)), (Ok(file), Ok(path)) if file == path)
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

/// Names in `directory`, apart from the lock.
pub(super) fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    visit_names(directory, |name| {
        names.push(name.to_string());
        Ok(())
    })?;
    Ok(names)
}
