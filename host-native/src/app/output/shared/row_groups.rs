//! The row groups of a directory that several processes fill: a process claims the parts that others have
//! left of one, and commits its own files as those of the job.

use std::fs;
use std::io::{self, Write as _};
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use super::SharedDirectory;
use crate::app::output::error::{OutputError, io_error, missing_as_none};
use crate::app::output::files::{
    MANIFEST, ROWS, calls_name, commit, dropped_name, link, remove_if_exists, rows_name, sync_directory, winner_name,
    write_atomically, write_json, write_temporary,
};
use crate::app::output::parts::{Part, best_part};
use crate::app::output::processes::{JOB, process_rows, read_name};
use crate::app::output::scan::{FoundNames, ReplaceableCounts, ScanResult};
use crate::app::output::stored_output::read_manifest;
use crate::app::output::{DroppedCounts, EarlierOutput, Manifest, OutputDirectory, RunState};

impl SharedDirectory {
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
        let written = write_temporary(&self.own.join(JOB), |file| write_json(&manifest, file));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::output::directory_lock::file_names;
    use crate::app::output::files::PROCESSES;
    use crate::app::output::shared::tests::{Process, claimed};
    use crate::app::output::tests::{resume, row, stored};
    use crate::app::output::{JobTotals, ModelTotals};
    use crate::app::provider::cost::Money;

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
}
