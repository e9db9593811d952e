//! What processes that fill a directory together have made of row groups and not written to `OUT/rows`: they
//! stopped before the row group was complete, or were killed before they wrote it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::error::{OutputError, io_error, unreadable};
use super::files::{ROWS, calls_name, dropped_name, rows_name, write_atomically};
use super::processes::process_rows;
use super::scan::{FoundNames, ScanResult};
use super::{EarlierOutput, OutputSpec};

/// What a process has made of a row group.
pub(super) struct Part {
    row_group: u32,
    /// The directory of its rows.
    directory: PathBuf,
    counts: EarlierOutput,
    /// Whether rows are missing.
    is_incomplete: bool,
}

impl Part {
    /// Reads what is in `directory` of row group `row_group`. Returns `None` if it has no row of it.
    pub(super) fn read(directory: &Path, spec: &OutputSpec, row_group: u32) -> Result<Option<Self>, OutputError> {
        let found = ScanResult::read_one(directory, spec, row_group)?;
        let is_incomplete = !found.done.contains(row_group);
        let part = Self { row_group, directory: directory.to_path_buf(), counts: found.earlier, is_incomplete };
        Ok(Some(part).filter(|part| part.rank().0 > 0))
    }

    /// Rows that were paid for count more than dropped ones, which may have failed for a reason of the
    /// process.
    fn rank(&self) -> (u64, u64) {
        (self.counts.rows_out + self.counts.rows_rejected, self.counts.rows_dropped)
    }

    /// Copies the files to the directory of rows `to`. Returns false if the rows are not there any more.
    pub(super) fn copy_to(&self, to: &Path, spec: &OutputSpec) -> Result<bool, OutputError> {
        let rows = rows_name(self.row_group, spec.manifest.format.extension());
        // The list is there before the rows: without it, the row group would be taken for complete.
        for name in [&calls_name(self.row_group), &dropped_name(self.row_group), &rows] {
            let (source, target) = (self.directory.join(name), to.join(name));
            if source == target {
                continue;
            }
            match fs::read(&source) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                read => {
                    let content = read.map_err(unreadable(&source))?;
                    write_atomically(&target, |file| file.write_all(&content)).map_err(io_error(&target))?;
                }
            }
        }
        Ok(to.join(rows).exists())
    }
}

/// Returns the part with most rows; of several, the first.
pub(super) fn best_part(parts: impl IntoIterator<Item = Part>) -> Option<Part> {
    parts.into_iter().reduce(|best, next| if next.rank() > best.rank() { next } else { best })
}

/// Returns the best part of each row group that is not in `OUT/rows`.
fn parts(root: &Path, spec: &OutputSpec) -> Result<Vec<Part>, OutputError> {
    let rows = root.join(ROWS);
    let FoundNames { written, listed, .. } = FoundNames::of(&rows, &spec.manifest)?;
    let mut parts: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
    for directory in process_rows(root)? {
        let names = FoundNames::of(&directory, &spec.manifest)?;
        for row_group in names.written.iter().filter(|row_group| !written.contains(*row_group)) {
            // The list may have been moved to `OUT/rows` already. Without one, it is not known which rows
            // were dropped.
            let has_list = names.listed.contains(row_group) || listed.contains(row_group);
            let part = Part::read(&directory, spec, row_group)?.filter(|part| has_list || !part.is_incomplete);
            parts.entry(row_group).or_default().extend(part);
        }
    }
    Ok(parts.into_values().filter_map(best_part).collect())
}

/// Copies to `OUT/rows` what processes have made of the row groups that are not there. No process fills
/// `root` now.
pub(super) fn adopt_parts(root: &Path, spec: &OutputSpec) -> Result<(), OutputError> {
    let rows = root.join(ROWS);
    parts(root, spec)?.iter().try_for_each(|part| part.copy_to(&rows, spec).map(drop))
}

/// Returns the counts of the rows that [`adopt_parts`] would copy.
pub(super) fn count_parts(root: &Path, spec: &OutputSpec) -> Result<EarlierOutput, OutputError> {
    Ok(parts(root, spec)?.iter().fold(EarlierOutput::default(), |sum, part| sum.plus(part.counts)))
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::super::tests::{claimed, dropped, four_groups, row, spec, stored, unmade};
    use super::*;
    use crate::app::output::{DroppedLine, ExistingOutput, Manifest, OutputDirectory, SharedDirectory, remaining_work};

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
        assert_eq!(directory.adopt(1).unwrap(), None, "no process has made any of its rows");
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
    fn a_process_that_claims_its_own_part_again_keeps_it() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let [first, second] = [1, 2].map(|number| join(root, number));
        write(&first.1, 0, &[0], &[unmade(1), unmade(2), unmade(3)]);
        write(&second.1, 0, &[0, 1, 2], &[unmade(3)]);
        assert_eq!(second.0.adopt(0).unwrap(), Some(iter::once(3..4).collect()));
        assert_eq!(first.0.adopt(0).unwrap(), Some(iter::once(3..4).collect()), "the other part is larger");
    }

    #[test]
    fn rows_that_were_paid_for_count_more_than_dropped_ones() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let [failing, well, last] = [1, 2, 3].map(|number| join(root, number));
        write(&failing.1, 0, &[], &[dropped(0, "timeout"), dropped(1, "timeout"), dropped(2, "timeout"), unmade(3)]);
        assert_eq!(last.0.adopt(0).unwrap(), None);
        write(&well.1, 0, &[1], &[unmade(0), unmade(2), unmade(3)]);
        assert_eq!(last.0.adopt(0).unwrap(), Some([0..1, 2..4].into()));
    }

    #[test]
    fn rows_without_a_list_are_not_taken_for_all_rows() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let [first, second] = [1, 2].map(|number| join(root, number));
        write(&first.1, 0, &[0, 1], &[unmade(2), unmade(3)]);
        write(&first.1, 1, &[4, 5, 6], &[]);
        // A run that replaces the output was killed here.
        fs::remove_file(root.join("processes/0000000000000001/rows/000000.dropped.jsonl")).unwrap();
        assert_eq!(second.0.adopt(0).unwrap(), Some(iter::once(2..4).collect()));
        fs::remove_dir_all(root.join("processes/0000000000000002")).unwrap();
        drop((first, second));
        let resumed = claimed(root, ExistingOutput::Resume, &two_groups()).unwrap();
        assert_eq!((resumed.done().len(), resumed.earlier().rows_out), (1, 3), "only the complete row group");
    }

    #[test]
    fn a_part_that_cannot_be_read_is_left_where_it_is_and_named() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let [first, second] = [1, 2].map(|number| join(root, number));
        write(&first.1, 0, &[0, 1], &[unmade(2), unmade(3)]);
        let file = root.join("processes/0000000000000001/rows/000000.jsonl");
        fs::write(&file, "{").unwrap();
        assert_eq!(second.0.adopt(0).unwrap(), None, "another process may be removing it");
        drop((first, second));
        let error = claimed(root, ExistingOutput::Resume, &two_groups()).unwrap_err().to_string();
        assert!(error.contains("000000.jsonl") && file.exists(), "{error}");
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
        let resumed = claimed(root, ExistingOutput::Resume, &two_groups()).unwrap();
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
        write(&first.1, 1, &[4, 5, 6], &[]);
        assert_eq!(second.0.adopt(0).unwrap(), None);
        assert_eq!(second.0.adopt(1).unwrap(), Some(Vec::new()), "it is complete");
    }
}
