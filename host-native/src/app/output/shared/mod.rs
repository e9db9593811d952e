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

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use super::directory_lock::{DirectoryLock, LockFile, file_names, is_locked, remove_lock};
use super::error::{OutputError, io_error, unreadable};
use super::files::{
    LEASED, LOCK, MANIFEST, PROCESSES, ROWS, SPENT, calls_name, commit, dropped_name, is_temporary_name,
    remove_if_exists, rows_name, sync_directory, visit_names, winner_name, write_atomically, write_temporary,
};
use super::parts::{Part, best_part};
use super::scan::{FoundNames, ReplaceableCounts, ScanResult};
use super::stored_output::read_manifest;
use super::{DroppedCounts, EarlierOutput, ExistingOutput, JobTotals, Manifest, OutputDirectory, OutputSpec, RunState};
use crate::app::provider::cost::{AmountFile, Money};

/// The file with the name of the job and the name in `[share]`.
const JOB: &str = "job";

/// The number of characters in the name of a process or a job.
const NAME_CHARS: usize = 16;

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
        let is_first = missing_as_none(read_job(&job_path, root, share))?.is_none();
        let found = ScanResult::read_shared(&rows, &spec)?;
        let is_partial = !found.missing.is_empty() || !found.replaceable.is_empty();
        if is_partial || is_first && has_unused_list(&rows, &spec)? {
            return Err(OutputError::Incomplete(root.to_path_buf()));
        }
        for directory in [&rows, &processes] {
            fs::create_dir_all(directory).map_err(io_error(directory))?;
        }
        sync_directory(root).map_err(io_error(root))?;
        let own = processes.join(process);
        let mut output = OutputDirectory::prepare(DirectoryLock::acquire(&own, ExistingOutput::Refuse)?, &spec)?;
        output.found = found;
        let manifest = link_new(&own, &root.join(MANIFEST), |file| write_manifest(&spec.manifest, file))?;
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

    /// Returns the row groups that are not written yet, in ascending order. O(row groups).
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn missing(&self) -> Result<Vec<RangeInclusive<u32>>, OutputError> {
        let FoundNames { written, .. } = FoundNames::of(&self.rows, &self.spec.manifest)?;
        // A run has at most 2^28 row groups.
        let count = u32::try_from(self.spec.manifest.row_group_count()).unwrap_or(u32::MAX);
        let (mut missing, mut next) = (Vec::new(), 0);
        for row_group in written.iter().chain([count]) {
            if next < row_group {
                missing.push(next..=row_group - 1);
            }
            next = row_group.saturating_add(1);
        }
        Ok(missing)
    }

    /// Makes the files of row group `row_group` in the directory of this process those of the job, unless
    /// those of another process are. Returns whether they are.
    ///
    /// # Errors
    ///
    /// If a file cannot be written. The row group is then not written, or written by this process or another.
    pub fn commit(&self, row_group: u32) -> Result<bool, OutputError> {
        let own = self.own_path(&winner_name(row_group));
        let winner = self.rows.join(winner_name(row_group));
        write_atomically(&own, |file| file.write_all(self.process.as_bytes())).map_err(io_error(&own))?;
        let is_first = link(&own, &winner).map_err(io_error(&winner))?;
        // Another process may have moved the files of this one already.
        let is_moved = !self.own_path(&self.rows_name(row_group)).exists();
        let has_won = is_first && (is_moved || !self.is_written(row_group));
        if is_first && !has_won {
            remove_if_exists(&winner).map_err(io_error(&winner))?;
        }
        self.complete(row_group)?;
        for name in [winner_name(row_group), calls_name(row_group), dropped_name(row_group), self.rows_name(row_group)]
        {
            let path = self.own_path(&name);
            remove_if_exists(&path).map_err(io_error(&path))?;
        }
        Ok(has_won)
    }

    /// Returns whether row group `row_group` is written. If a process has won it and has not moved its files,
    /// for example because it was killed, moves them.
    ///
    /// # Errors
    ///
    /// If the files of the winner are missing, or a file cannot be moved.
    pub fn complete(&self, row_group: u32) -> Result<bool, OutputError> {
        let winner = self.rows.join(winner_name(row_group));
        // The name is read before the rows are looked for. One that is added after the winner has removed its
        // own is that of a loser, and the rows are there then.
        let process = missing_as_none(read_name(&winner))?;
        if !self.is_written(row_group) {
            let Some(process) = process else { return Ok(self.is_written(row_group)) };
            let files = self.process_path(&process).join(ROWS);
            // The list is there before the rows: without it, the row group would be taken for complete.
            for name in [calls_name(row_group), dropped_name(row_group), self.rows_name(row_group)] {
                let path = self.rows.join(&name);
                match fs::rename(files.join(&name), &path) {
                    // It does not exist, or another process has moved it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    moved => moved.map_err(io_error(&path))?,
                }
            }
            if !self.is_written(row_group) {
                let path = files.join(self.rows_name(row_group));
                return Err(OutputError::Unreadable { path, source: io::ErrorKind::NotFound.into() });
            }
        }
        sync_directory(&self.rows).map_err(io_error(&self.rows))?;
        remove_if_exists(&winner).map_err(io_error(&winner))?;
        Ok(true)
    }

    /// Copies the most that a process has made of row group `row_group` and not written to `OUT/rows` to the
    /// directory of this process. Returns the missing rows, counted from 0 within the row group, or `None` if
    /// no process has made any.
    ///
    /// The files may be those of a process that writes them now. They are copied in an order in which at
    /// worst a dropped row counts as missing. Files that cannot be read count as none: a process may be
    /// removing them.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read, or a file cannot be written.
    pub fn adopt(&self, row_group: u32) -> Result<Option<Vec<Range<u32>>>, OutputError> {
        let own = self.own.join(ROWS);
        let directories = process_rows(&self.root)?;
        let part = |directory: &PathBuf| Part::read(directory, &self.spec, row_group).ok().flatten();
        let Some(part) = best_part(directories.iter().filter_map(part)) else { return Ok(None) };
        if !part.copy_to(&own, &self.spec)? {
            return Ok(None);
        }
        let found = ScanResult::read_one(&own, &self.spec, row_group)?;
        let first = u64::from(row_group) * u64::from(self.spec.manifest.row_group_size);
        // Both are at most the number of rows in a row group.
        let in_group = |row: u64| u32::try_from(row - first).unwrap_or(u32::MAX);
        Ok(Some(found.missing.iter().map(|rows| in_group(rows.start)..in_group(rows.end)).collect()))
    }

    /// Counts in `output`, the directory of this process, what the other processes have written by now.
    /// `written` and `dropped` are what this process has written.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub fn count_others(
        &self,
        output: &OutputDirectory,
        written: EarlierOutput,
        dropped: &DroppedCounts,
    ) -> Result<(), OutputError> {
        let total = ScanResult::read_shared(&self.rows, &self.spec)?;
        let known = output.found.earlier.plus(written);
        let earlier = EarlierOutput {
            rows_out: total.earlier.rows_out.saturating_sub(known.rows_out),
            rows_dropped: total.earlier.rows_dropped.saturating_sub(known.rows_dropped),
            rows_rejected: total.earlier.rows_rejected.saturating_sub(known.rows_rejected),
            row_groups: total.earlier.row_groups.saturating_sub(known.row_groups),
        };
        let count = |counts: &DroppedCounts, key: &(String, String)| counts.get(key).copied().unwrap_or_default();
        let left = |(key, rows): (&(String, String), &u64)| {
            let others = rows.saturating_sub(count(&output.found.dropped, key) + count(dropped, key));
            (others > 0).then(|| (key.clone(), others))
        };
        let dropped = total.dropped.iter().filter_map(left).collect();
        *output.others.lock() = ReplaceableCounts { earlier, dropped };
        Ok(())
    }

    /// Returns the usage of the job: of its earlier runs, of the other processes so far, and `own`, that of
    /// this one.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub fn job_totals(&self, own: &JobTotals) -> Result<JobTotals, OutputError> {
        let others = process_totals(&self.root, Some(&self.process))?;
        Ok(used_at(&self.root)?.plus(&others).plus(own))
    }

    /// Returns what earlier runs of the job have spent, and for each process by its name, also for this one,
    /// the most that it may have spent or may still spend before it asks for more.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    pub fn cost_bounds(&self) -> Result<(Money, Vec<(String, Money)>), OutputError> {
        let bound = |name: String| {
            let own = self.process_path(&name);
            let leased = read_amount(&own.join(LEASED))?;
            let used = process_used(&own)?.unwrap_or_default().spent;
            Ok((name, leased.max(used)))
        };
        let processes = process_names(&self.root)?.into_iter().map(bound).collect::<Result<_, _>>()?;
        Ok((used_at(&self.root)?.spent, processes))
    }

    /// Creates the file of [`write_leased`](Self::write_leased) with the amount 0. It is never seen without
    /// an amount.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn create_leased(&self) -> Result<(), OutputError> {
        let path = self.own.join(LEASED);
        write_atomically(&path, |file| AmountFile::write(Money::default(), file)).map_err(io_error(&path))
    }

    /// Writes the most that this process may spend before it asks for more to its file, which exists.
    ///
    /// The file is closed, so that a process on another machine that opens it then reads the amount. If the
    /// amount `rises`, the file is synced first: a server of files may report only then that its disk is
    /// full.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write_leased(&self, amount: Money, rises: bool) -> Result<(), OutputError> {
        let path = self.own.join(LEASED);
        let write = || {
            let mut file = File::options().write(true).open(&path)?;
            AmountFile::write(amount, &mut file)?;
            if rises { file.sync_data() } else { Ok(()) }
        };
        write().map_err(io_error(&path))
    }

    /// Writes the end of the job to its manifest, if all row groups are written. Every process that sees the
    /// end may write it.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read, or the manifest cannot be written.
    pub fn end(&self) -> Result<(), OutputError> {
        let FoundNames { written: done, .. } = FoundNames::of(&self.rows, &self.spec.manifest)?;
        if done.len() < self.spec.manifest.row_group_count() {
            return Ok(());
        }
        let EarlierOutput { rows_out, rows_dropped, row_groups, .. } =
            ScanResult::read_shared(&self.rows, &self.spec)?.earlier;
        let state = RunState::Ended { reason: "completed".to_string(), rows_out, rows_dropped, row_groups };
        let path = self.root.join(MANIFEST);
        // The usage of earlier runs is kept, and that of each process is in its own directory.
        let no_output = |why: String| OutputError::NoOutput { path: self.root.clone(), why };
        let manifest = Manifest { done, state, ..read_manifest(&self.root).map_err(no_output)? };
        // The temporary file is in the directory of this process, so that no other one writes to it.
        let written = write_temporary(&self.own.join(JOB), |file| write_manifest(&manifest, file));
        written.and_then(|temporary| commit(&temporary, &path)).map_err(io_error(&path))
    }

    fn is_written(&self, row_group: u32) -> bool {
        self.rows.join(self.rows_name(row_group)).exists()
    }

    fn rows_name(&self, row_group: u32) -> String {
        rows_name(row_group, self.spec.layout.format.extension())
    }

    fn own_path(&self, name: &str) -> PathBuf {
        self.own.join(ROWS).join(name)
    }
}

/// Checks that `root` is a directory for the job, or an empty one.
fn check_job(root: &Path, spec: &OutputSpec) -> Result<(), OutputError> {
    if !root.join(MANIFEST).exists() {
        let names = file_names(root).map_err(io_error(root))?;
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

fn write_manifest(manifest: &Manifest, file: &mut impl io::Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *file, manifest)?;
    file.write_all(b"\n")
}

/// Gives the file `from` the second name `to`. Returns false if `to` is another file, which is left as it is.
fn link(from: &Path, to: &Path) -> io::Result<bool> {
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

/// Reads the name of a process.
fn read_name(path: &Path) -> Result<String, OutputError> {
    let name = fs::read_to_string(path).map_err(unreadable(path))?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "expected 16 hexadecimal digits");
    if is_name(&name) { Ok(name) } else { Err(unreadable(path)(wrong())) }
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

fn missing_as_none<T>(read: Result<T, OutputError>) -> Result<Option<T>, OutputError> {
    match read {
        Err(OutputError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

fn is_name(name: &str) -> bool {
    name.len() == NAME_CHARS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the names of all processes that have filled `root` together since its manifest was last written.
fn process_names(root: &Path) -> Result<Vec<String>, OutputError> {
    let processes = root.join(PROCESSES);
    let mut names = Vec::new();
    let visited = visit_names(&processes, |name| {
        names.extend(is_name(name).then(|| name.to_string()));
        Ok(())
    });
    visited.map_err(io_error(&processes))?;
    Ok(names)
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
fn process_used(own: &Path) -> Result<Option<JobTotals>, OutputError> {
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
fn read_amount(path: &Path) -> Result<Money, OutputError> {
    Ok(AmountFile::read(path).map_err(unreadable(path))?.unwrap_or_default())
}

/// Returns the directories of rows of the processes that have filled `root` together, in the order of their
/// names.
pub(super) fn process_rows(root: &Path) -> Result<Vec<PathBuf>, OutputError> {
    let mut names = process_names(root)?;
    names.sort_unstable();
    Ok(names.into_iter().map(|name| root.join(PROCESSES).join(name).join(ROWS)).collect())
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::tests::{dropped, four_groups, resume, row, spec, stored, unmade};
    use super::*;
    use crate::app::output::{DroppedLine, ModelTotals, WriteOutcome};

    const JOB_NAME: &str = "00000000000000aa";

    impl SharedDirectory {
        /// Joins the first process that fills `root`.
        pub(crate) fn join_first(root: &Path) -> (Self, OutputDirectory) {
            Self::join(root, spec(four_groups()), &format!("{:016x}", 1), JOB_NAME, "acme").unwrap()
        }
    }

    /// One of the processes that fill seven rows in four row groups.
    struct Process {
        directory: SharedDirectory,
        output: OutputDirectory,
    }

    impl Process {
        fn join(root: &Path, number: u32) -> Self {
            Self::try_join(root, number, spec(four_groups())).unwrap()
        }

        fn try_join(root: &Path, number: u32, spec: OutputSpec) -> Result<Self, String> {
            Self::try_join_as("acme", root, number, spec)
        }

        fn try_join_as(share: &str, root: &Path, number: u32, spec: OutputSpec) -> Result<Self, String> {
            let joined = SharedDirectory::join(root, spec, &format!("{number:016x}"), JOB_NAME, share);
            joined.map(|(directory, output)| Self { directory, output }).map_err(|error| error.to_string())
        }

        /// Writes both rows of a row group to the directory of this process, or drops the second one.
        fn write(&self, row_group: u32, drops: bool) {
            let first = u64::from(row_group) * 2;
            let lost: Vec<DroppedLine> = drops.then(|| dropped(first + 1, "timeout")).into_iter().collect();
            let rows = (first..first + 2 - u64::from(drops)).map(row);
            assert_eq!(self.output.write_row_group(row_group, rows, &lost).unwrap(), WriteOutcome::Written);
        }

        fn commit(&self, row_group: u32) -> bool {
            self.directory.commit(row_group).unwrap()
        }
    }

    fn missing(process: &Process) -> Vec<RangeInclusive<u32>> {
        process.directory.missing().unwrap()
    }

    #[test]
    fn of_several_processes_that_write_a_row_group_the_first_wins_with_all_its_files() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let [first, second] = [1, 2].map(|number| Process::join(root, number));
        assert_eq!(missing(&first), [0..=3]);
        first.write(1, true);
        second.write(1, false);
        assert_eq!((first.commit(1), second.commit(1)), (true, false));
        assert_eq!(stored(root, 1), (vec![2], vec![(3, "timeout".to_string())]));
        second.write(0, false);
        first.write(0, true);
        assert_eq!((second.commit(0), first.commit(0)), (true, false));
        assert_eq!(stored(root, 0), (vec![0, 1], Vec::new()), "the list of the other one is not left");
        assert_eq!(missing(&second), [2..=3]);
        assert_eq!(file_names(&root.join(ROWS)).unwrap().len(), 3);
        for own in [&first.directory.own, &second.directory.own] {
            assert_eq!(file_names(&own.join(ROWS)).unwrap().len(), 0);
        }
    }

    #[test]
    fn the_files_of_a_winner_that_died_are_moved_by_another_process() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let [dead, other] = [1, 2].map(|number| Process::join(root, number));
        for (row_group, moved) in [(0, false), (1, true)] {
            dead.write(row_group, true);
            other.write(row_group, false);
            let winner = root.join(ROWS).join(winner_name(row_group));
            fs::write(&winner, &dead.directory.process).unwrap();
            if moved {
                let name = dropped_name(row_group);
                fs::rename(dead.directory.own_path(&name), root.join(ROWS).join(&name)).unwrap();
            }
            if row_group == 0 {
                assert!(other.directory.complete(row_group).unwrap());
            }
            assert!(!other.commit(row_group), "the winner is known");
            let first = u64::from(row_group) * 2;
            assert_eq!(stored(root, row_group), (vec![first], vec![(first + 1, "timeout".to_string())]));
            assert!(!winner.exists());
        }
        assert!(!other.directory.complete(2).unwrap());
    }

    #[test]
    fn a_winner_whose_files_were_moved_by_another_process_has_won() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let [slow, other] = [1, 2].map(|number| Process::join(root, number));
        slow.write(0, false);
        fs::write(root.join(ROWS).join(winner_name(0)), &slow.directory.process).unwrap();
        assert!(other.directory.complete(0).unwrap());
        assert!(slow.commit(0), "it went on after the link");
    }

    #[test]
    fn the_rows_of_all_processes_are_counted_and_a_later_run_adds_up_their_usage() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let [first, second] = [1, 2].map(|number| Process::join(root, number));
        for (process, row_group, drops) in [(&first, 0, false), (&second, 1, true), (&second, 2, false)] {
            process.write(row_group, drops);
            assert!(process.commit(row_group));
        }
        let own = EarlierOutput { rows_out: 2, row_groups: 1, ..EarlierOutput::default() };
        first.directory.count_others(&first.output, own, &DroppedCounts::new()).unwrap();
        let others = EarlierOutput { rows_out: 3, rows_dropped: 1, row_groups: 2, ..EarlierOutput::default() };
        assert_eq!(first.output.remaining(), others);
        assert_eq!(first.output.dropped(), [(("a".to_string(), "timeout".to_string()), 1)].into());

        let state = RunState::Ended { reason: "completed".to_string(), rows_out: 6, rows_dropped: 1, row_groups: 4 };
        first.directory.end().unwrap();
        assert_eq!(read_manifest(root).unwrap().state, RunState::Running, "a row group is missing");
        assert!(first.output.write_row_group(3, [row(6)], &[]).is_ok() && first.commit(3));
        let late = Process::join(root, 3);
        assert_eq!((late.output.earlier().rows_out, late.output.done().len()), (6, 4));
        first.directory.end().unwrap();
        let manifest = read_manifest(root).unwrap();
        assert_eq!((manifest.state, manifest.done.len()), (state, 4));

        let model = ModelTotals { calls: 3, ..ModelTotals::default() };
        let spent = |amount| Money::new(amount).unwrap();
        let used = JobTotals { runs: 1, spent: spent(0.5), models: [("p/m".to_string(), model)].into() };
        first.output.record_usage(&used).unwrap();
        first.output.close(RunState::Running, &used).unwrap();
        second.output.create_amount_file().unwrap().store(spent(2.0)).unwrap();
        assert!(claimed(root).contains("another run is writing"));
        drop((first, second, late));
        let resumed = resume(root);
        let used = resumed.used();
        assert_eq!((used.runs, used.spent, used.models["p/m"].calls), (3, spent(2.5), 3));
        assert!(!root.join(PROCESSES).exists());
        drop(resumed);
        assert_eq!(resume(root).used().spent, spent(2.5), "each usage counts once");
    }

    #[test]
    fn a_process_may_spend_what_it_has_leased_and_has_spent_what_its_files_say() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let [first, second] = [1, 2].map(|number| Process::join(root, number));
        let money = |amount| Money::new(amount).unwrap();
        let bounds = || {
            let (earlier, processes) = first.directory.cost_bounds().unwrap();
            (earlier, processes.into_iter().collect::<BTreeMap<_, _>>().into_values().collect::<Vec<_>>())
        };
        assert_eq!(bounds(), (money(0.0), vec![money(0.0); 2]));
        assert!(first.directory.write_leased(money(3.0), true).is_err(), "it would be empty at first");
        first.directory.create_leased().unwrap();
        first.directory.write_leased(money(3.0), true).unwrap();
        first.output.create_amount_file().unwrap().store(money(2.0)).unwrap();
        let model = ModelTotals { calls: 3, ..ModelTotals::default() };
        let used = JobTotals { runs: 1, spent: money(0.5), models: [("p/m".to_string(), model)].into() };
        second.output.close(RunState::Running, &used).unwrap();
        fs::write(root.join(SPENT), "0.250000000000").unwrap();
        assert_eq!(bounds(), (money(0.25), vec![money(3.0), money(0.5)]));
        first.directory.write_leased(money(1.0), false).unwrap();
        assert_eq!(bounds().1, [money(2.0), money(0.5)], "a call has cost more than was leased");
        let job = first.directory.job_totals(&used).unwrap();
        assert_eq!((job.runs, job.spent, job.models["p/m"].calls), (2, money(1.25), 6), "its own files do not count");
        drop(first);
        drop(second);
        assert_eq!(resume(root).used().spent, money(2.75), "no lease counts once a run has the directory for itself");
    }

    /// Returns the error of a run that needs the directory for itself.
    fn claimed(root: &Path) -> String {
        DirectoryLock::acquire(root, ExistingOutput::Resume).unwrap_err().to_string()
    }

    #[test]
    fn a_process_finds_the_others_that_live_and_refuses_one_with_another_name() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let first = Process::join(root, 1);
        assert_eq!(first.directory.others().unwrap(), [""; 0]);
        let [second, third] = [2, 3].map(|number| Process::join(root, number));
        let mut others = second.directory.others().unwrap();
        others.sort();
        assert_eq!(others, [1, 3].map(|number| format!("{number:016x}")));
        drop(first);
        third.directory.discard(third.output);
        assert_eq!(second.directory.others().unwrap(), [""; 0]);
        let names = file_names(&root.join(PROCESSES)).unwrap();
        assert!(!names.contains(&format!("{:016x}", 3)), "what has filled nothing is not left: {names:?}");

        let refused = Process::try_join_as("other", root, 4, spec(four_groups())).err().unwrap();
        assert!(refused.contains("under the name `acme` in [share], and the name is now `other`"), "{refused}");
        assert_eq!(file_names(&root.join(PROCESSES)).unwrap().len(), names.len());
    }

    #[test]
    fn a_directory_without_hard_links_is_left_as_it_was() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("out");
        let probe = root.join(format!(".{:016x}.tmp", 1));
        let refused = |process: &str| {
            SharedDirectory::join(&root, spec(four_groups()), process, JOB_NAME, "acme").unwrap_err().to_string()
        };
        // The probe is in a directory that does not exist.
        assert!(refused("no/process").contains("is on a file system without hard links"));
        assert!(!root.exists());
        fs::create_dir(&root).unwrap();
        assert!(refused("no/process").contains("is on a file system without hard links"));
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        drop(resume(&root));
        fs::write(&probe, "").unwrap();
        assert!(refused(&format!("{:016x}", 1)).contains("is on a file system without hard links"));
        assert!(root.join(LOCK).exists(), "it was there before");
    }

    #[test]
    fn a_dropped_list_that_a_single_run_has_left_without_rows_is_not_adopted() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        drop(resume(root));
        let list = root.join(ROWS).join(dropped_name(0));
        fs::write(&list, "{}\n").unwrap();
        let why = Process::try_join(root, 1, spec(four_groups())).err().unwrap();
        assert!(why.contains("row groups with missing rows"), "{why}");
        assert!(list.exists());
    }

    #[test]
    fn a_directory_of_a_single_run_another_job_or_partial_row_groups_is_not_joined_and_not_changed() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let single = resume(root);
        let refused = |spec| Process::try_join(root, 1, spec).err().unwrap();
        assert!(refused(spec(four_groups())).contains("another run is writing"));
        single.write_row_group(0, [row(0)], &[unmade(1)]).unwrap();
        drop(single);
        assert!(refused(spec(four_groups())).contains("row groups with missing rows"));
        let more = Manifest { rows_in: 9, ..four_groups() };
        assert!(refused(spec(more)).contains("the job had 7 rows and now has 9"));
        let other = Manifest { row_group_size: 3, ..four_groups() };
        assert!(refused(spec(other)).contains("`row_group_size` in [run] was 2 and is now 3"));
        assert!(!root.join(PROCESSES).exists());
        fs::remove_file(root.join(MANIFEST)).unwrap();
        fs::write(root.join("notes.txt"), "mine").unwrap();
        let why = refused(spec(four_groups()));
        // The command line has no other flag for the output with --together.
        assert!(why.contains("is not empty") && why.ends_with("choose another directory with --out"), "{why}");
        assert!(!root.join(PROCESSES).exists());
    }
}
