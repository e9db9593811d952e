//! The lock of an output directory. It is taken before the directory is read, so no other run changes what is
//! found.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::ExistingOutput;
use super::error::{OutputError, io_error, unreadable};
use super::files::{LOCK, visit_names};

/// A locked output directory. Its content is unchanged so far.
#[derive(Debug)]
pub struct DirectoryLock {
    pub(super) root: PathBuf,
    pub(super) existing: ExistingOutput,
    pub(super) is_new: bool,
    pub(super) lock: LockFile,
}

/// A locked file. It is unlocked when it is dropped, and by the operating system when the process ends, also
/// after a crash.
#[derive(Debug)]
pub(super) struct LockFile(File);

impl Drop for LockFile {
    fn drop(&mut self) {
        // Closing the file is not enough: until a command that another thread starts has replaced its memory,
        // it has a copy of the open file, which keeps the lock.
        let _ = self.0.unlock();
    }
}

impl LockFile {
    /// Locks `root`, for this run alone or together with other processes. Creates the directory if it does
    /// not exist. Returns the lock, and whether the directory is new.
    pub(super) fn acquire(
        root: &Path,
        lock: impl Fn(&File) -> Result<(), TryLockError>,
    ) -> Result<(Self, bool), OutputError> {
        let path = root.join(LOCK);
        let mut is_new = false;
        loop {
            is_new |= !root.exists();
            fs::create_dir_all(root).map_err(io_error(root))?;
            let mut options = File::options();
            // A shared lock needs a file that can be read, and an exclusive one a file that can be written.
            let file = options.create(true).truncate(false).read(true).write(true).open(&path);
            let file = Self(file.map_err(io_error(&path))?);
            match lock(&file.0) {
                Err(TryLockError::WouldBlock) => return Err(OutputError::InUse(root.to_path_buf())),
                Err(TryLockError::Error(source)) => return Err(OutputError::Io { path, source }),
                Ok(()) if is_at(&file.0, &path) => return Ok((file, is_new)),
                // Another run removed the file between opening and locking it.
                Ok(()) => {}
            }
        }
    }
}

/// Returns whether a run holds the lock of the directory `root` alone. A missing directory is not locked.
pub(super) fn is_locked(root: &Path) -> Result<bool, OutputError> {
    let path = root.join(LOCK);
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => LockFile(file.map_err(unreadable(&path))?),
    };
    match file.0.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(source)) => Err(unreadable(&path)(source)),
        Ok(()) => Ok(false),
    }
}

impl DirectoryLock {
    /// Locks `root`, and creates the directory if it does not exist.
    ///
    /// # Errors
    ///
    /// If another run holds the lock, or if the directory is not empty and `existing` is
    /// [`ExistingOutput::Refuse`].
    pub fn acquire(root: &Path, existing: ExistingOutput) -> Result<Self, OutputError> {
        let path = root.join(LOCK);
        let is_refused =
            || Ok(existing == ExistingOutput::Refuse && !file_names(root).map_err(io_error(root))?.is_empty());
        // Without a lock file no run is active here, so the check needs no lock. It leaves no lock file
        // behind.
        if is_refused()? && !path.exists() {
            return Err(OutputError::NotEmpty(root.to_path_buf()));
        }
        let (lock, is_new) = LockFile::acquire(root, File::try_lock)?;
        if is_refused()? {
            return Err(OutputError::NotEmpty(root.to_path_buf()));
        }
        Ok(Self { root: root.to_path_buf(), existing, is_new, lock })
    }

    /// Unlocks the directory, and removes it if [`acquire`](Self::acquire) created it.
    pub fn release(self) {
        if self.is_new {
            remove_lock(&self.root, true);
        }
    }
}

/// Removes the file of a lock that is held, and the directory if it `is_new`. What cannot be removed does no
/// harm.
pub(super) fn remove_lock(root: &Path, is_new: bool) {
    let removed = fs::remove_file(root.join(LOCK));
    if is_new && removed.is_ok() {
        let _ = fs::remove_dir(root);
    }
}

/// Returns whether `file` is still the file at `path`.
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

/// Returns the names of the files in `directory` except the lock.
pub(super) fn file_names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    visit_names(directory, |name| {
        names.push(name.to_string());
        Ok(())
    })?;
    Ok(names)
}
