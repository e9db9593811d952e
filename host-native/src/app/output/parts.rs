//! What processes that fill a directory together have made of row groups and not written to `OUT/rows`: they
//! stopped before the row group was complete, or were killed before they wrote it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{OutputError, io_error, unreadable};
use super::files::{ROWS, calls_name, dropped_name, rows_name, write_atomically};
use super::scan::{FoundNames, ScanResult};
use super::shared::process_rows;
use super::{EarlierOutput, OutputSpec};

/// What a process has made of a row group.
pub(super) struct Part<'a> {
    row_group: u32,
    /// The directory of its rows.
    pub(super) directory: &'a Path,
    counts: EarlierOutput,
}

impl Part<'_> {
    fn rows(&self) -> u64 {
        let EarlierOutput { rows_out, rows_dropped, rows_rejected, .. } = self.counts;
        rows_out + rows_dropped + rows_rejected
    }
}

/// Returns what the one of `directories` has that has most rows of row group `row_group`, if one has any.
pub(super) fn best_part<'a>(directories: &'a [PathBuf], spec: &OutputSpec, row_group: u32) -> Option<Part<'a>> {
    let part = |directory: &'a PathBuf| {
        // Files that cannot be read, for example because another process removes them now, are none.
        let found = ScanResult::read_one(directory, spec, row_group).ok()?;
        Some(Part { row_group, directory, counts: found.earlier }).filter(|part| part.rows() > 0)
    };
    let parts = directories.iter().filter(|_| spec.keeps_parts).filter_map(part);
    // Of equal ones, the first.
    parts.reduce(|best, next| if next.rows() > best.rows() { next } else { best })
}

/// Copies the files of row group `row_group` from one directory of rows to another one, which has none.
/// Returns false if its rows are not there any more.
pub(super) fn copy_part(from: &Path, to: &Path, spec: &OutputSpec, row_group: u32) -> Result<bool, OutputError> {
    let rows = rows_name(row_group, spec.manifest.format.extension());
    // The list is there before the rows: without it, the row group would be taken for complete.
    for name in [&calls_name(row_group), &dropped_name(row_group), &rows] {
        let (source, target) = (from.join(name), to.join(name));
        match File::open(&source) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => {
                let mut part = opened.map_err(unreadable(&source))?;
                let copy = |file: &mut io::BufWriter<File>| io::copy(&mut part, file).map(drop);
                write_atomically(&target, copy).map_err(io_error(&target))?;
            }
        }
    }
    Ok(to.join(rows).exists())
}

/// Calls `visit` with what processes have made of each row group that is not in `OUT/rows`.
fn visit_parts(
    root: &Path,
    spec: &OutputSpec,
    mut visit: impl FnMut(Part<'_>) -> Result<(), OutputError>,
) -> Result<(), OutputError> {
    let written = FoundNames::of(&root.join(ROWS), &spec.manifest)?.written;
    let directories = process_rows(root, None)?;
    let mut made = BTreeSet::new();
    for directory in &directories {
        made.extend(FoundNames::of(directory, &spec.manifest)?.written.iter());
    }
    let left = made.into_iter().filter(|row_group| !written.contains(*row_group));
    left.filter_map(|row_group| best_part(&directories, spec, row_group)).try_for_each(&mut visit)
}

/// Copies to `OUT/rows` what processes have made of the row groups that are not there. No process fills
/// `root` now.
pub(super) fn adopt_parts(root: &Path, spec: &OutputSpec) -> Result<(), OutputError> {
    visit_parts(root, spec, |part| copy_part(part.directory, &root.join(ROWS), spec, part.row_group).map(drop))
}

/// Returns the counts of the rows that [`adopt_parts`] would copy.
pub(super) fn count_parts(root: &Path, spec: &OutputSpec) -> Result<EarlierOutput, OutputError> {
    let mut counts = EarlierOutput::default();
    visit_parts(root, spec, |part| {
        counts = counts.plus(part.counts);
        Ok(())
    })?;
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::iter;

    use super::super::tests::{dropped, four_groups, row, spec, stored, unmade};
    use super::*;
    use crate::app::output::{
        DirectoryLock, DroppedLine, ExistingOutput, Manifest, OutputDirectory, SharedDirectory, remaining_work,
    };

    /// Seven rows in row groups of four and three.
    fn two_groups() -> OutputSpec {
        spec(Manifest { row_group_size: 4, ..four_groups() })
    }

    fn join(root: &Path, number: u32) -> (SharedDirectory, OutputDirectory) {
        join_with(root, number, two_groups())
    }

    fn join_with(root: &Path, number: u32, spec: OutputSpec) -> (SharedDirectory, OutputDirectory) {
        SharedDirectory::join(root, spec, &format!("{number:016x}"), "00000000000000aa", "acme").unwrap()
    }

    /// Writes rows of a row group to the directory of a process.
    fn write(output: &OutputDirectory, row_group: u32, rows: &[u64], lines: &[DroppedLine]) {
        output.write_row_group(row_group, rows.iter().map(|number| row(*number)), lines).unwrap();
    }

    #[test]
    fn the_part_with_most_rows_is_copied_and_completed() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let processes = [1, 2, 3, 4].map(|number| join(root, number));
        write(&processes[0].1, 0, &[0], &[unmade(1), unmade(2), unmade(3)]);
        write(&processes[1].1, 0, &[0, 3], &[dropped(1, "timeout"), unmade(2)]);
        write(&processes[2].1, 0, &[0, 1], &[unmade(2), unmade(3)]);
        let (directory, output) = &processes[3];
        assert_eq!(directory.adopt(0).unwrap(), Some(iter::once(2..3).collect()));
        write(output, 0, &[2], &[]);
        assert!(directory.commit(0).unwrap());
        assert_eq!(stored(root, 0), (vec![0, 2, 3], vec![(1, "timeout".to_string())]));
        assert_eq!(directory.adopt(1).unwrap(), None, "nobody has made any of it");
    }

    #[test]
    fn a_row_group_whose_process_was_killed_before_it_was_written_needs_no_more_rows() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let [killed, other] = [1, 2].map(|number| join(root, number));
        write(&killed.1, 1, &[4, 6], &[dropped(5, "timeout")]);
        assert_eq!(other.0.adopt(1).unwrap(), Some(Vec::new()));
        assert!(other.0.commit(1).unwrap());
        assert_eq!(stored(root, 1), (vec![4, 6], vec![(5, "timeout".to_string())]));
        // A killed process has left a list without rows.
        fs::write(root.join("processes/0000000000000001/rows/000000.dropped.jsonl"), "{}").unwrap();
        assert_eq!(other.0.adopt(0).unwrap(), None);
    }

    #[test]
    fn a_run_that_goes_on_alone_keeps_the_parts_of_all_processes() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let [first, second] = [1, 2].map(|number| join(root, number));
        write(&first.1, 0, &[0], &[unmade(1), unmade(2), unmade(3)]);
        write(&first.1, 1, &[4], &[unmade(5), unmade(6)]);
        write(&second.1, 1, &[4, 5], &[unmade(6)]);
        drop((first, second));
        let planned = remaining_work(root, &two_groups()).unwrap().unwrap();
        assert_eq!((planned.kept.rows_out, planned.rows, planned.row_groups), (3, 4, 2));
        let lock = DirectoryLock::acquire(root, ExistingOutput::Resume).unwrap();
        let resumed = OutputDirectory::prepare(lock, &two_groups()).unwrap();
        assert_eq!((resumed.missing(), resumed.earlier().rows_out), (&[1..4, 6..7][..], 3));
        write(&resumed, 1, &[6], &[]);
        assert_eq!(stored(root, 1), (vec![4, 5, 6], Vec::new()));
    }

    #[test]
    fn rows_that_depend_on_each_other_are_not_completed_by_another_process() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let dependent = || OutputSpec { keeps_parts: false, ..two_groups() };
        let [first, second] = [1, 2].map(|number| join_with(root, number, dependent()));
        write(&first.1, 0, &[0, 1, 2], &[unmade(3)]);
        assert_eq!(second.0.adopt(0).unwrap(), None);
    }
}
