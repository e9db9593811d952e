//! Files that are found to be writable before a run begins, and written to once it does.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::OutputError;

/// Opens the files that are named by flags. Refuses one that another flag names, too, or that is one of the `inputs`; everything is as it
/// was then.
pub fn open_all<'p>(
    files: impl IntoIterator<Item = (&'static str, &'p PathBuf)>,
    inputs: &[(&'static str, &Path)],
) -> Result<Vec<FilePlace>, OutputError> {
    let mut places: Vec<(&'static str, FilePlace)> = Vec::new();
    let opened = files.into_iter().try_for_each(|(flag, path)| {
        let place = FilePlace::open(path).map_err(|source| OutputError::Io { path: path.clone(), source })?;
        let outputs = places.iter().map(|(flag, other)| (*flag, other.path.as_path()));
        let same = outputs.chain(inputs.iter().copied()).find(|(_, other)| place.is_at(other)).map(|(name, _)| name);
        places.push((flag, place));
        match same {
            Some(first) => Err(OutputError::OneFile { first, second: flag, path: path.clone() }),
            None => Ok(()),
        }
    });
    let places = places.into_iter().map(|(_, place)| place);
    match opened {
        Ok(()) => Ok(places.collect()),
        Err(error) => {
            places.for_each(FilePlace::give_up);
            Err(error)
        }
    }
}

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

    /// Whether it is the file at `path`: by that path, by a symbolic link, or by a hard link.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        // A device, such as /dev/null, takes what any number of writers send.
        self.path.is_file() && same_file::is_same_file(&self.path, path).unwrap_or(false)
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
