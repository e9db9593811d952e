//! The directory of the processes that fill an output directory together: their names, and what they have
//! used.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{OutputError, io_error, unreadable};
use super::files::{MANIFEST, PROCESSES, ROWS, SPENT, visit_names};
use super::stored_output::read_manifest;
use super::{JobTotals, Manifest};
use crate::app::provider::cost::{AmountFile, Money};

/// The file with the name of the job and the name in `[share]`.
pub(super) const JOB: &str = "job";

/// The number of characters in the name of a process or a job.
const NAME_CHARS: usize = 16;

pub(super) fn is_name(name: &str) -> bool {
    name.len() == NAME_CHARS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Reads the name of a process from the file `path`.
pub(super) fn read_name(path: &Path) -> Result<String, OutputError> {
    let name = fs::read_to_string(path).map_err(unreadable(path))?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "expected 16 hexadecimal digits");
    if is_name(&name) { Ok(name) } else { Err(unreadable(path)(wrong())) }
}

/// Returns the names of all processes that have filled `root` together since its manifest was last written.
pub(super) fn process_names(root: &Path) -> Result<Vec<String>, OutputError> {
    let processes = root.join(PROCESSES);
    let mut names = Vec::new();
    let visited = visit_names(&processes, |name| {
        names.extend(is_name(name).then(|| name.to_string()));
        Ok(())
    });
    visited.map_err(io_error(&processes))?;
    Ok(names)
}

/// Returns the directories of rows of the processes that have filled `root` together, in the order of their
/// names.
pub(super) fn process_rows(root: &Path) -> Result<Vec<PathBuf>, OutputError> {
    let mut names = process_names(root)?;
    names.sort_unstable();
    Ok(names.into_iter().map(|name| root.join(PROCESSES).join(name).join(ROWS)).collect())
}

/// Returns the usage of the processes that have filled `root` together since its manifest was last written,
/// without that of the process `except`.
pub(super) fn process_totals(root: &Path, except: Option<&str>) -> Result<JobTotals, OutputError> {
    let mut totals = JobTotals::default();
    for name in process_names(root)?.into_iter().filter(|name| Some(name.as_str()) != except) {
        totals = totals.plus(&process_used(&root.join(PROCESSES).join(name))?.unwrap_or_default());
    }
    Ok(totals)
}

/// Returns the usage of the process with the directory `own`. Returns `None` if it was killed before it wrote
/// its manifest, or has left before it made a call.
pub(super) fn process_used(own: &Path) -> Result<Option<JobTotals>, OutputError> {
    let used = used_at(own);
    if used.is_err() && !own.join(MANIFEST).exists() { Ok(None) } else { used.map(Some) }
}

/// Returns the usage in the directory `root` of a run, by its manifest and its file of the spent amount.
pub(super) fn used_at(root: &Path) -> Result<JobTotals, OutputError> {
    let nothing = |why| OutputError::NothingToResume { path: root.to_path_buf(), why };
    let Manifest { totals, .. } = read_manifest(root).map_err(nothing)?;
    // A run that was killed may have spent more than its manifest says.
    Ok(JobTotals { spent: totals.spent.max(read_amount(&root.join(SPENT))?), ..totals })
}

/// Reads an amount from the file `path`; 0 if there is none.
pub(super) fn read_amount(path: &Path) -> Result<Money, OutputError> {
    Ok(AmountFile::read(path).map_err(unreadable(path))?.unwrap_or_default())
}

/// Returns the path, relative to `root`, of a file in the directory of processes that no run has written.
pub(super) fn foreign_process(root: &Path) -> io::Result<Option<String>> {
    let mut found = None;
    visit_names(&root.join(PROCESSES), |name| {
        if name != JOB && !is_name(name) {
            found = Some(format!("{PROCESSES}/{name}"));
        }
        Ok(())
    })?;
    Ok(found)
}

/// Removes the directory of processes, if there is one.
pub(super) fn remove_processes(root: &Path) -> io::Result<()> {
    match fs::remove_dir_all(root.join(PROCESSES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
