//! An output directory that several processes fill together.
//!
//! ```text
//! OUT/manifest.json             as for one process: written by the first one, and again at the end
//! OUT/rows/000000.jsonl, ...    as for one process
//! OUT/rows/.000000.done.tmp     the process whose files of row group 0 count, until they are there
//! OUT/processes/job             the names of the job and of `[share]`, by which processes find each other
//! OUT/processes/ID/...          what one process writes: an output directory of its own, with its usage
//! OUT/processes/ID/leased.txt   with a cost limit: the most that the process may spend before it asks again
//! ```
//!
//! A process writes and syncs the files of a row group in its own directory. The row group then gets the name
//! of the process by a hard link, which only one process can make: the first one wins, and the others remove
//! their files. The files of the winner are moved to `OUT/rows`, first the dropped list and then the rows. If
//! the winner dies in between, any other process moves them, so all files of a row group come from one
//! process:
//!
//! ```text
//! write own files -> link .000000.done.tmp -> move the winner's files -> sync OUT/rows -> remove the link
//!                    fails: another one won
//! ```
//!
//! A process that was suspended may go on at any of these steps. If it links the name after the rows are
//! there and the name was removed, it sees the rows, and has lost.
//!
//! A process that stops leaves its files of the row groups that are complete in part in its own directory.
//! One that claims such a row group copies the files with the most rows to its own directory, makes the rest,
//! and writes the row group as any other. A process that was killed before it has linked the name leaves such
//! files, too.
//!
//! Only complete row groups are in `OUT/rows`, and a later `--resume` copies the parts of the others there.
//! So it finds what a single process leaves. It removes the directory of processes and adds their usage to
//! the manifest.

mod row_groups;
#[cfg(test)]
mod tests;
mod usage;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::directory_lock::{DirectoryLock, LockFile, file_names, is_locked, remove_lock};
use super::error::{OutputError, io_error, missing_as_none, unreadable};
use super::files::{
    LOCK, MANIFEST, PROCESSES, ROWS, is_temporary_name, link, sync_directory, write_json, write_temporary,
};
use super::processes::{JOB, is_name, process_names};
use super::scan::{FoundNames, ScanResult};
use super::stored_output::read_manifest;
use super::{ExistingOutput, OutputDirectory, OutputSpec};

/// An output directory that this process fills together with others.
#[derive(Debug)]
pub struct SharedDirectory {
    root: PathBuf,
    rows: PathBuf,
    /// The directory of this process.
    own: PathBuf,
    process: String,
    job: String,
    spec: OutputSpec,
    /// Makes a run that needs the directory for itself fail for as long as it is held.
    _lock: LockFile,
}

impl SharedDirectory {
    /// Joins the processes that fill the directory `root`, or is the first of them. Returns also the
    /// directory of this process, to which it writes. `process` and `job` are 16 hexadecimal digits that no
    /// other process uses; `job` is used if this process is the first one. `share` is the name in `[share]`,
    /// without spaces.
    ///
    /// # Errors
    ///
    /// If a run has the directory for itself, the directory holds other files, another job, or row groups
    /// that are complete in part, the other processes have another name in `[share]`, its file system has no
    /// hard links, or a file cannot be read or written. Nothing is changed then, except if writing fails.
    pub fn join(
        root: &Path,
        spec: OutputSpec,
        process: &str,
        job: &str,
        share: &str,
    ) -> Result<(Self, OutputDirectory), OutputError> {
        // Before the file for the lock is made.
        if root.exists() {
            check_job(root, &spec)?;
        }
        let had_lock = root.join(LOCK).exists();
        let (lock, is_new) = LockFile::acquire(root, File::try_lock_shared)?;
        if let Err(error) = probe_hard_links(root, process) {
            // No other process can fill the directory either, and one that waits for the lock makes its file
            // anew.
            if !had_lock {
                remove_lock(root, is_new);
            }
            return Err(error);
        }
        check_job(root, &spec)?;
        let (rows, processes) = (root.join(ROWS), root.join(PROCESSES));
        let job_path = processes.join(JOB);
        let is_first = || Ok::<_, OutputError>(missing_as_none(read_job(&job_path, root, share))?.is_none());
        // Asked again once a list is found: another process, whose job was there before, may be writing it.
        let is_left = is_first()? && has_unused_list(&rows, &spec)? && is_first()?;
        let found = ScanResult::read_shared(&rows, &spec)?;
        if is_left || !found.missing.is_empty() || !found.replaceable.is_empty() {
            return Err(OutputError::Incomplete(root.to_path_buf()));
        }
        for directory in [&rows, &processes] {
            fs::create_dir_all(directory).map_err(io_error(directory))?;
        }
        sync_directory(root).map_err(io_error(root))?;
        let own = processes.join(process);
        let mut output = OutputDirectory::prepare(DirectoryLock::acquire(&own, ExistingOutput::Refuse)?, &spec)?;
        output.found = found;
        let manifest = link_new(&own, &root.join(MANIFEST), |file| write_json(&spec.manifest, file))?;
        if !manifest {
            check_job(root, &spec)?;
        }
        link_new(&own, &job_path, |file| write!(file, "{job} {share}"))?;
        let job = read_job(&job_path, root, share)?;
        let (root, process) = (root.to_path_buf(), process.to_string());
        Ok((Self { root, rows, own, process, job, spec, _lock: lock }, output))
    }

    /// Returns the directory that all processes fill.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the name of the job, which is the same in all processes.
    #[must_use]
    pub fn job(&self) -> &str {
        &self.job
    }

    /// Returns the names of the other processes that fill the directory now, which hold the locks of their
    /// own directories. One on another machine is among them if the file system has locks for all machines.
    ///
    /// Of two processes that join at the same time, at least one finds the other.
    ///
    /// # Errors
    ///
    /// If a directory or a lock cannot be read.
    pub fn others(&self) -> Result<Vec<String>, OutputError> {
        let mut others = Vec::new();
        for name in process_names(&self.root)?.into_iter().filter(|name| *name != self.process) {
            let own = self.process_path(&name);
            // A process writes its manifest after it has locked its directory. A lock here would be in the
            // way of one that has not locked it yet.
            if own.join(MANIFEST).exists() && is_locked(&own)? {
                others.push(name);
            }
        }
        Ok(others)
    }

    /// Returns the path of the directory of a process.
    #[must_use]
    pub fn process_path(&self, name: &str) -> PathBuf {
        self.root.join(PROCESSES).join(name)
    }

    /// Leaves the directory before anything was made. `output` is the directory of this process, which is
    /// removed.
    pub fn discard(&self, output: OutputDirectory) {
        drop(output);
        // What is left of it has no usage.
        let _ = fs::remove_dir_all(&self.own);
    }
}

/// Checks that `root` is a directory for the job, or an empty one.
fn check_job(root: &Path, spec: &OutputSpec) -> Result<(), OutputError> {
    // Read once, because another process that joins may write the manifest at any time.
    let names = file_names(root).map_err(io_error(root))?;
    if !names.iter().any(|name| name == MANIFEST) {
        let is_own = |name: &String| is_temporary_name(name) || [ROWS, PROCESSES].contains(&name.as_str());
        return if names.iter().all(is_own) { Ok(()) } else { Err(OutputError::NoJob(root.to_path_buf())) };
    }
    let path = root.to_path_buf();
    let before = read_manifest(root).map_err(|why| OutputError::NoOutput { path: path.clone(), why })?;
    // The dataset must be the same in all processes, so it must not have grown.
    let difference = spec.manifest.first_difference(&before, None).map_err(io_error(root))?;
    let (was, is) = (before.rows_in, spec.manifest.rows_in);
    let grown = || format!("the job had {was} rows and now has {is}, and only --resume without --together extends it");
    match difference.or_else(|| (was != is).then(grown)) {
        Some(what) => Err(OutputError::DifferentJob { path, what }),
        None => Ok(()),
    }
}

/// Returns whether there is a dropped list without rows, which a run that was killed has left.
fn has_unused_list(rows: &Path, spec: &OutputSpec) -> Result<bool, OutputError> {
    let FoundNames { written, listed, .. } = FoundNames::of(rows, &spec.manifest)?;
    Ok(listed.iter().any(|row_group| !written.contains(row_group)))
}

fn probe_hard_links(root: &Path, process: &str) -> Result<(), OutputError> {
    let probe = root.join(format!(".{process}.tmp"));
    let linked = fs::hard_link(root.join(LOCK), &probe);
    linked.map_err(|source| OutputError::NoHardLinks { path: root.to_path_buf(), source })?;
    fs::remove_file(&probe).map_err(io_error(&probe))
}

/// Writes the file `path` unless it exists, from a file in the directory `own`. Returns whether it did.
fn link_new(
    own: &Path,
    path: &Path,
    write: impl FnOnce(&mut io::BufWriter<File>) -> io::Result<()>,
) -> Result<bool, OutputError> {
    if path.exists() {
        return Ok(false);
    }
    let written = write_temporary(&own.join(JOB), write).and_then(|temporary| {
        let linked = link(&temporary, path)?;
        fs::remove_file(&temporary)?;
        path.parent().map_or(Ok(()), sync_directory)?;
        Ok(linked)
    });
    written.map_err(io_error(path))
}

/// Reads the name of the job from the file `path`, and checks that the processes that fill `root` have the
/// name `share`.
fn read_job(path: &Path, root: &Path, share: &str) -> Result<String, OutputError> {
    let text = fs::read_to_string(path).map_err(unreadable(path))?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "expected 16 hexadecimal digits, a space and a name");
    match text.split_once(' ').filter(|(job, _)| is_name(job)) {
        Some((job, was)) if was == share => Ok(job.to_string()),
        Some((_, was)) => {
            Err(OutputError::OtherShare { path: root.to_path_buf(), was: was.to_string(), is: share.to_string() })
        }
        None => Err(unreadable(path)(wrong())),
    }
}
