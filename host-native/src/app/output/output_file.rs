//! Files that are opened before a run starts, to find out early whether they can be written.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::OutputError;

/// Opens the files that flags name. Rejects a file that two flags name, that is one of the `inputs`, or that
/// is inside of the output directory `root`; then no file is created.
pub fn open_all<'p>(
    files: impl IntoIterator<Item = (&'static str, &'p PathBuf)>,
    inputs: &[(&'static str, &Path)],
    root: Option<&Path>,
) -> Result<Vec<OutputFile>, OutputError> {
    // A directory that does not exist yet contains no file that can be opened.
    let inside = root.and_then(|root| Some((root, fs::canonicalize(root).ok()?)));
    let mut opened: Vec<(&'static str, OutputFile)> = Vec::new();
    let result = files.into_iter().try_for_each(|(flag, path)| {
        let file = OutputFile::open(path).map_err(|source| OutputError::Io { path: path.clone(), source })?;
        let outputs = opened.iter().map(|(flag, other)| (*flag, other.path.as_path()));
        let root = inside.as_ref().filter(|(_, inside)| file.is_inside(inside)).map(|(root, _)| *root);
        let same = outputs.chain(inputs.iter().copied()).find(|(_, other)| file.is_at(other)).map(|(name, _)| name);
        opened.push((flag, file));
        match (same, root) {
            (Some(first), _) => Err(OutputError::OneFile { first, second: flag, path: path.clone() }),
            (None, Some(root)) => Err(OutputError::Inside { flag, path: path.clone(), root: root.to_path_buf() }),
            (None, None) => Ok(()),
        }
    });
    let opened = opened.into_iter().map(|(_, file)| file);
    match result {
        Ok(()) => Ok(opened.collect()),
        Err(error) => {
            opened.for_each(OutputFile::discard);
            Err(error)
        }
    }
}

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

    /// Returns whether it is the file at `path`: by that path, a symbolic link or a hard link.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        // A device, such as /dev/null, takes what any number of writers send.
        self.path.is_file() && same_file::is_same_file(&self.path, path).unwrap_or(false)
    }

    /// Returns whether it is below the directory `root`, a canonical path.
    fn is_inside(&self, root: &Path) -> bool {
        fs::canonicalize(&self.path).is_ok_and(|path| path.starts_with(root))
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
            let _ = fs::remove_file(&self.path);
        }
    }
}
