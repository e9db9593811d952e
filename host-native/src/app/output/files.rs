//! Names of files in an output directory, and how a file is written whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const SPENT: &str = "spent.txt";
pub(super) const CAPACITY: &str = "capacity.json";
pub(super) const ROWS: &str = "rows";
pub(super) const LOCK: &str = ".lock";
const DROPPED_SUFFIX: &str = ".dropped.jsonl";
const ROW_EXTENSIONS: [&str; 3] = ["jsonl", "csv", "parquet"];
const TEMPORARY_SUFFIX: &str = ".tmp";

/// A file of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowFile {
    /// The complete rows of a row group.
    Rows(u32),
    /// Those that are not in it.
    Dropped(u32),
}

impl RowFile {
    /// What the file of this name is in a run whose rows have this extension.
    pub(super) fn of(name: &str, extension: &str) -> Option<Self> {
        if let Some(number) = name.strip_suffix(DROPPED_SUFFIX) {
            return number.parse().ok().map(Self::Dropped);
        }
        name.strip_suffix(extension)?.strip_suffix('.')?.parse().ok().map(Self::Rows)
    }
}

pub(super) fn rows_name(row_group: u32, extension: &str) -> String {
    format!("{row_group:06}.{extension}")
}

pub(super) fn dropped_name(row_group: u32) -> String {
    format!("{row_group:06}{DROPPED_SUFFIX}")
}

/// Whether a run of this program, in whatever format, has files of this name beside its manifest.
pub(super) fn is_own_name(name: &str) -> bool {
    [MANIFEST, SPENT, ROWS].contains(&name) || is_capacity(name) || is_temporary(name)
}

/// Whether it is the file of capacities of this run or an earlier one.
pub(super) fn is_capacity(name: &str) -> bool {
    let number = name.strip_prefix("capacity.").and_then(|rest| rest.strip_suffix(".json"));
    name == CAPACITY || number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Whether it is the name of a file in the folder of rows, in whatever format.
pub(super) fn is_row_file_name(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    is_temporary(name)
        || name.starts_with(|first: char| first.is_ascii_digit())
            && extension.is_some_and(|extension| ROW_EXTENSIONS.contains(&extension))
}

pub(super) fn is_temporary(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(TEMPORARY_SUFFIX)
}

/// Gives `visit` every name in `directory` apart from the lock; none if there is no such directory.
pub(super) fn visit_names(directory: &Path, mut visit: impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name != LOCK {
            visit(&name)?;
        }
    }
    Ok(())
}

pub(super) fn remove_temporary(directory: &Path) -> io::Result<()> {
    visit_names(directory, |name| if is_temporary(name) { fs::remove_file(directory.join(name)) } else { Ok(()) })
}

/// Makes room at `path`: what is there gets the first free name of `NAME.1.EXT`, `NAME.2.EXT` and so on, in
/// the order of the runs that wrote them.
pub fn keep_earlier(path: &Path) -> io::Result<()> {
    let has_content = fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0);
    if !has_content {
        return Ok(());
    }
    let numbered = |number: u32| -> PathBuf {
        let extension = path.extension().map_or(String::new(), |extension| format!(".{}", extension.to_string_lossy()));
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!("{stem}.{number}{extension}"))
    };
    match (1..u32::MAX).map(numbered).find(|free| !free.exists()) {
        Some(free) => fs::rename(path, free),
        None => Ok(()),
    }
}

/// Writes a file so that `path` holds either what it held before or all of the new content.
pub(super) fn write_whole(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}{TEMPORARY_SUFFIX}"));
    let written = File::create(&temporary).and_then(|file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        file.flush()?;
        file.get_ref().sync_all()
    });
    let renamed = written.and_then(|()| fs::rename(&temporary, path));
    if renamed.is_err() {
        // A full disk should not also keep the half of a file that nobody can use.
        let _ = fs::remove_file(&temporary);
    }
    renamed?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Removes a file that may not be there.
pub(super) fn remove_whole(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => path.parent().map_or(Ok(()), sync_directory),
    }
}

#[cfg(unix)]
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Elsewhere a directory cannot be opened as a file; a rename there is as durable as the system makes it.
#[cfg(not(unix))]
pub(super) fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_earlier_runs_wrote_is_kept_in_order_and_an_empty_file_is_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("report.html");
        for text in ["first", "second", ""] {
            keep_earlier(&path).unwrap();
            fs::write(&path, text).unwrap();
        }
        keep_earlier(&path).unwrap();
        let read = |name: &str| fs::read_to_string(scratch.path().join(name)).unwrap();
        assert_eq!([read("report.1.html"), read("report.2.html"), read("report.html")], ["first", "second", ""]);
        assert!(is_capacity("capacity.json") && is_capacity("capacity.12.json") && !is_capacity("capacity.x.json"));
    }
}
