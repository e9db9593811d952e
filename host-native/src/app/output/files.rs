//! The names of files in an output directory, and atomic writes.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const SPENT: &str = "spent.txt";
pub(super) const LEASED: &str = "leased.txt";
pub(super) const BATCHES: &str = "batches.jsonl";
pub(super) const CAPACITY: &str = "capacity.json";
pub(super) const ROWS: &str = "rows";
pub(super) const IMAGES: &str = "images";
pub(super) const PROCESSES: &str = "processes";
pub(super) const LOCK: &str = ".lock";
const DROPPED_SUFFIX: &str = ".dropped.jsonl";
const CALLS_SUFFIX: &str = ".calls.jsonl";
const ROW_EXTENSIONS: [&str; 3] = ["jsonl", "csv", "parquet"];
const IMAGE_EXTENSIONS: [&str; 4] = ["png", "jpg", "gif", "webp"];
const TEMPORARY_SUFFIX: &str = ".tmp";
/// The least length of the number of a row in the name of an image.
const ROW_DIGITS: usize = 6;
/// The length of a digest in a name.
pub(super) const DIGEST_CHARS: usize = 16;

/// A file in the directory of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowFile {
    /// The complete rows of a row group.
    Rows(u32),
    /// The rows of a row group that are dropped or unmade.
    Dropped(u32),
}

impl RowFile {
    /// Parses a file name. `extension` is the extension of rows files, without a dot.
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

pub(super) fn calls_name(row_group: u32) -> String {
    format!("{row_group:06}{CALLS_SUFFIX}")
}

/// Reads the file at `path`, with one JSON value per line. Returns `None` if it does not exist.
pub(super) fn read_lines<T: DeserializeOwned>(path: &Path) -> io::Result<Option<Vec<T>>> {
    let file = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    file.lines().map(|line| Ok(serde_json::from_str(&line?)?)).collect::<io::Result<_>>().map(Some)
}

/// Writes one JSON value per line.
pub(super) fn write_lines<'a, T: Serialize + 'a>(
    lines: impl IntoIterator<Item = &'a T>,
    file: &mut impl io::Write,
) -> io::Result<()> {
    for line in lines {
        serde_json::to_writer(&mut *file, line)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}

/// Writes one JSON value for people to read.
pub(super) fn write_json(value: &impl Serialize, file: &mut impl io::Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *file, value)?;
    file.write_all(b"\n")
}

/// Returns whether runs of this program write a file of this name next to the manifest.
pub(super) fn is_own_name(name: &str) -> bool {
    [MANIFEST, SPENT, BATCHES, ROWS, IMAGES, PROCESSES].contains(&name)
        || is_capacity_name(name)
        || is_temporary_name(name)
}

/// Returns whether this is the name of the capacity plan of this or an earlier run.
pub(super) fn is_capacity_name(name: &str) -> bool {
    let number = name.strip_prefix("capacity.").and_then(|rest| rest.strip_suffix(".json"));
    name == CAPACITY || number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Returns whether runs of this program write a file of this name into a directory of images: an image, or
/// one that is not complete.
pub(super) fn is_image_name(name: &str) -> bool {
    let complete = name.strip_prefix('.').and_then(|name| name.strip_suffix(TEMPORARY_SUFFIX)).unwrap_or(name);
    let parts = complete.split_once('.').and_then(|(stem, extension)| Some((stem.split_once('-')?, extension)));
    parts.is_some_and(|((row, digest), extension)| {
        row.len() >= ROW_DIGITS
            && row.bytes().all(|byte| byte.is_ascii_digit())
            && digest.len() == DIGEST_CHARS
            && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
            && IMAGE_EXTENSIONS.contains(&extension)
    })
}

/// Returns the name of an image for `row`, whose content has this digest.
pub(super) fn image_name(row: u64, digest: &str, extension: &str) -> String {
    format!("{row:0ROW_DIGITS$}-{digest}.{extension}")
}

/// Returns the name of the file that names the process whose files of a row group count. It is a temporary
/// one.
pub(super) fn winner_name(row_group: u32) -> String {
    format!(".{row_group:06}.done{TEMPORARY_SUFFIX}")
}

/// Returns whether this is the name of a file in the directory of rows, in any format.
pub(super) fn is_row_file_name(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    is_temporary_name(name)
        || name.starts_with(|first: char| first.is_ascii_digit())
            && extension.is_some_and(|extension| ROW_EXTENSIONS.contains(&extension))
}

pub(super) fn is_temporary_name(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(TEMPORARY_SUFFIX)
}

/// Calls `visit` with the name of every file in `directory` except the lock. A missing directory has no
/// files.
pub(super) fn visit_names(directory: &Path, mut visit: impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
    visit_all_names(directory, |name| if name == LOCK { Ok(()) } else { visit(name) })
}

/// Calls `visit` with the name of every file in `directory`. A missing directory has no files.
pub(super) fn visit_all_names(directory: &Path, mut visit: impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let name = entry?.file_name();
        visit(&name.to_string_lossy())?;
    }
    Ok(())
}

pub(super) fn remove_temporary(directory: &Path) -> io::Result<()> {
    visit_names(directory, |name| if is_temporary_name(name) { fs::remove_file(directory.join(name)) } else { Ok(()) })
}

/// Renames the file at `path` to the first free name of `NAME.1.EXT`, `NAME.2.EXT` and so on. Lower numbers
/// are older. Does nothing if the file is empty or missing.
pub fn rotate_file(path: &Path) -> io::Result<()> {
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

/// Writes a file atomically: after a crash, `path` holds either its former content or all of the new content.
pub(super) fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = write_temporary(path, write)?;
    let committed = commit(&temporary, path);
    if committed.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    committed
}

/// Writes the content of `path` to a synced temporary file beside it, and returns the path of that.
pub(super) fn write_temporary(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}{TEMPORARY_SUFFIX}"));
    let written = File::create(&temporary).and_then(|file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        file.flush()?;
        file.get_ref().sync_all()
    });
    if written.is_err() {
        // Frees the space if the disk is full.
        let _ = fs::remove_file(&temporary);
    }
    written.map(|()| temporary)
}

/// Renames a complete temporary file to `path`, and syncs the directory.
pub(super) fn commit(temporary: &Path, path: &Path) -> io::Result<()> {
    fs::rename(temporary, path)?;
    let parent = path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    parent.map_or(Ok(()), sync_directory)
}

/// Gives the file `from` the second name `to`. Returns false if `to` is another file, which is left as it is.
pub(super) fn link(from: &Path, to: &Path) -> io::Result<bool> {
    match fs::hard_link(from, to) {
        // A server of files that lost its answer made the link when it was asked first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match same_file::is_same_file(from, to) {
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            is_same => is_same,
        },
        linked => linked.map(|()| true),
    }
}

/// Removes a file and syncs its directory. A missing file is not an error.
pub(super) fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => path.parent().map_or(Ok(()), sync_directory),
    }
}

#[cfg(unix)]
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Does nothing: other systems cannot open a directory as a file.
#[cfg(not(unix))]
pub(super) fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotated_files_are_numbered_oldest_first_and_empty_files_are_not_rotated() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("report.html");
        for text in ["first", "second", ""] {
            rotate_file(&path).unwrap();
            fs::write(&path, text).unwrap();
        }
        rotate_file(&path).unwrap();
        let read = |name: &str| fs::read_to_string(scratch.path().join(name)).unwrap();
        assert_eq!([read("report.1.html"), read("report.2.html"), read("report.html")], ["first", "second", ""]);
        assert!(
            is_capacity_name("capacity.json")
                && is_capacity_name("capacity.12.json")
                && !is_capacity_name("capacity.x.json")
        );
    }
}
