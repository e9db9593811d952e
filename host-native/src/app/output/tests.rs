//! Tests of writing, of the state that a killed run leaves, and of resuming from it.

use std::fs::File;

use serde_json::{Value, json};

use super::files::IMAGES;
use super::*;
use crate::app::data::column_type::ColumnType;
use crate::app::data::row_file::{ParquetCompression, RowFormat};
use crate::app::provider::cost::Money;

fn manifest() -> Manifest {
    Manifest {
        schema: MANIFEST_SCHEMA,
        program: "tidegate 0.0.0".to_string(),
        pipeline: "p.toml".to_string(),
        row_key: "row".to_string(),
        columns: vec!["a".to_string()],
        types: Vec::new(),
        rows_in: 2,
        wanted: None,
        row_group_size: 2,
        first_row: 0,
        partition: None,
        format: RowFormat::Jsonl,
        identity: Identity::default(),
        done: DoneRowGroups::default(),
        exports: std::collections::BTreeSet::new(),
        totals: JobTotals::default(),
        state: RunState::Running,
    }
}

/// Seven rows in four row groups.
pub(super) fn four_groups() -> Manifest {
    Manifest { rows_in: 7, ..manifest() }
}

pub(super) fn spec(manifest: Manifest) -> OutputSpec {
    let columns = vec![("row".to_string(), ColumnType::Integer), ("a".to_string(), ColumnType::Text)];
    let layout = Layout { format: manifest.format, compression: ParquetCompression::default(), columns };
    OutputSpec { manifest, layout, keeps_parts: true, retry_dropped: None, dataset: None }
}

pub(super) fn claimed(
    root: &Path,
    existing: ExistingOutput,
    spec: &OutputSpec,
) -> Result<OutputDirectory, OutputError> {
    OutputDirectory::prepare(DirectoryLock::acquire(root, existing)?, spec)
}

fn prepare(root: &Path, existing: ExistingOutput) -> Result<OutputDirectory, String> {
    claimed(root, existing, &spec(manifest())).map_err(|error| error.to_string())
}

/// Resumes the run of seven rows in `root`.
pub(super) fn resume(root: &Path) -> OutputDirectory {
    claimed(root, ExistingOutput::Resume, &spec(four_groups())).unwrap()
}

pub(super) fn row(number: u64) -> (u64, Value) {
    (number, json!({ "row": number, "a": format!("text {number}") }))
}

pub(super) fn dropped(row: u64, reason: &str) -> DroppedLine {
    DroppedLine { row, column: Some("a".to_string()), reason: reason.to_string(), detail: None }
}

pub(super) fn unmade(row: u64) -> DroppedLine {
    DroppedLine::unmade(row)
}

/// Returns the row numbers in the rows file of a row group, and the rows in its dropped list with their
/// reasons.
pub(super) fn stored(root: &Path, row_group: u32) -> (Vec<u64>, Vec<(u64, String)>) {
    let layout = spec(manifest()).layout;
    let rows = layout.read(&root.join(format!("rows/{row_group:06}.jsonl"))).unwrap();
    let list = root.join(format!("rows/{row_group:06}.dropped.jsonl"));
    let lines: Vec<DroppedLine> = read_lines(&list).unwrap().unwrap_or_default();
    (rows.into_iter().map(|(row, _)| row).collect(), lines.into_iter().map(|line| (line.row, line.reason)).collect())
}

#[test]
fn a_row_group_is_written_in_order_and_leaves_no_temporary_file() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("deep/out");
    let output = prepare(&root, ExistingOutput::Refuse).unwrap();
    output.write_row_group(7, [(14, json!({"row": 14})), (15, json!({"row": 15}))], &[dropped(13, "timeout")]).unwrap();
    assert_eq!(fs::read_to_string(root.join("rows/000007.jsonl")).unwrap(), "{\"row\":14}\n{\"row\":15}\n");
    let line = "{\"row\":13,\"column\":\"a\",\"reason\":\"timeout\"}\n";
    assert_eq!(fs::read_to_string(root.join("rows/000007.dropped.jsonl")).unwrap(), line);
    assert_eq!(file_names(&root.join(ROWS)).unwrap().len(), 2);
}

#[test]
fn earlier_output_is_an_error_unless_it_is_to_be_replaced() {
    let scratch = tempfile::tempdir().unwrap();
    let first = prepare(scratch.path(), ExistingOutput::Refuse).unwrap();
    first.write_row_group(0, [row(0)], &[dropped(1, "timeout")]).unwrap();
    drop(first);
    let refused = prepare(scratch.path(), ExistingOutput::Refuse).unwrap_err();
    assert!(refused.contains("is not empty") && refused.contains("--overwrite"), "{refused}");
    assert!(scratch.path().join("rows/000000.jsonl").exists());
    prepare(scratch.path(), ExistingOutput::Replace).unwrap();
    assert_eq!(file_names(&scratch.path().join(ROWS)).unwrap().len(), 0);
}

#[test]
fn a_resumed_run_keeps_complete_row_groups_and_removes_incomplete_files() {
    let scratch = tempfile::tempdir().unwrap();
    let rows = scratch.path().join(ROWS);
    let first = resume(scratch.path());
    assert_eq!((first.done().len(), first.earlier()), (0, EarlierOutput::default()));
    first.write_row_group(0, [row(0), row(1)], &[]).unwrap();
    first.write_row_group(2, [row(4)], &[dropped(5, "request")]).unwrap();
    drop(first);
    // Killed between the dropped list and the rows of row group 3, and while writing a manifest.
    write_lines(&[dropped(6, "timeout")], &mut File::create(rows.join("000003.dropped.jsonl")).unwrap()).unwrap();
    fs::write(rows.join(".000003.jsonl.tmp"), "half a").unwrap();
    fs::write(scratch.path().join(".manifest.json.tmp"), "{").unwrap();
    let again = resume(scratch.path());
    assert_eq!(again.done().iter().collect::<Vec<_>>(), [0, 2]);
    assert_eq!(again.earlier(), EarlierOutput { rows_out: 3, rows_dropped: 1, rows_rejected: 0, row_groups: 2 });
    assert_eq!(again.dropped(), [(("a".to_string(), "request".to_string()), 1)].into());
    let mut left = file_names(&rows).unwrap();
    left.sort();
    assert_eq!(left, ["000000.jsonl", "000002.dropped.jsonl", "000002.jsonl"]);
    assert_eq!(file_names(scratch.path()).unwrap().len(), 2);
    let manifest: Manifest = serde_json::from_slice(&fs::read(scratch.path().join(MANIFEST)).unwrap()).unwrap();
    assert_eq!((manifest.done, manifest.state), (again.done().clone(), RunState::Running));
}

#[test]
fn later_rows_are_merged_in_order_and_the_dropped_list_shrinks_until_it_is_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let wide = || spec(Manifest { rows_in: 6, row_group_size: 6, ..manifest() });
    let resume = || claimed(scratch.path(), ExistingOutput::Resume, &wide()).unwrap();
    let lines = [unmade(0), dropped(2, "timeout"), unmade(4), unmade(5)];
    resume().write_row_group(0, [row(1), row(3)], &lines).unwrap();
    let again = resume();
    assert_eq!((again.missing(), again.done().len()), (&[0..1, 4..6][..], 0));
    assert_eq!(again.earlier(), EarlierOutput { rows_out: 2, rows_dropped: 1, rows_rejected: 0, row_groups: 0 });
    again.write_row_group(0, [row(0), row(4)], &[unmade(5)]).unwrap();
    let reasons = |lines: &[(u64, &str)]| lines.iter().map(|(row, why)| (*row, (*why).to_string())).collect::<Vec<_>>();
    assert_eq!(stored(scratch.path(), 0), (vec![0, 1, 3, 4], reasons(&[(2, "timeout"), (5, UNMADE)])));
    drop(again);
    let retrying = OutputSpec { retry_dropped: Some(Vec::new()), ..wide() };
    let last = claimed(scratch.path(), ExistingOutput::Resume, &retrying).unwrap();
    assert_eq!((last.missing(), last.earlier().rows_dropped), (&[2..3, 5..6][..], 0));
    last.write_row_group(0, [row(2), row(5)], &[]).unwrap();
    drop(last);
    assert_eq!(stored(scratch.path(), 0), ((0..6).collect(), Vec::new()));
    assert_eq!(file_names(&scratch.path().join(ROWS)).unwrap(), ["000000.jsonl"]);
    assert_eq!(resume().earlier(), EarlierOutput { rows_out: 6, rows_dropped: 0, rows_rejected: 0, row_groups: 1 });
}

#[test]
fn a_kill_at_any_step_of_a_merge_neither_loses_nor_duplicates_a_row() {
    let scratch = tempfile::tempdir().unwrap();
    let rows = scratch.path().join("rows/000000.jsonl");
    let list = scratch.path().join("rows/000000.dropped.jsonl");
    let begin = || {
        let _ = fs::remove_dir_all(scratch.path().join(ROWS));
        resume(scratch.path()).write_row_group(0, [row(0)], &[unmade(1)]).unwrap();
        (fs::read(&rows).unwrap(), fs::read(&list).unwrap())
    };
    let merge = || resume(scratch.path()).write_row_group(0, [row(1)], &[]).unwrap();
    // Killed before the rows file is renamed: nothing has changed.
    begin();
    fs::write(scratch.path().join("rows/.000000.jsonl.tmp"), "half").unwrap();
    let left = resume(scratch.path());
    assert_eq!((left.missing(), left.earlier().rows_out), (std::slice::from_ref(&(1..2)), 1));
    drop(left);
    // Killed between the rows file and the dropped list: the row is in both, and complete.
    let (_, old_list) = begin();
    merge();
    fs::write(&list, old_list).unwrap();
    let left = resume(scratch.path());
    assert_eq!((left.missing().len(), left.done().contains(0), left.earlier().rows_out), (0, true, 2));
    drop(left);
    // A row that is in neither file is unmade.
    begin();
    write_lines::<DroppedLine>(&[], &mut File::create(&list).unwrap()).unwrap();
    assert_eq!(resume(scratch.path()).missing(), std::slice::from_ref(&(1..2)));
}

#[test]
fn dropped_rows_are_retried_by_reason() {
    let scratch = tempfile::tempdir().unwrap();
    let first = resume(scratch.path());
    first.write_row_group(0, [row(0)], &[dropped(1, "timeout")]).unwrap();
    first.write_row_group(1, [] as [(u64, Value); 0], &[dropped(2, "request"), dropped(3, "timeout")]).unwrap();
    drop(first);
    let reason = DropReason::from_name("timeout").unwrap();
    let retrying = OutputSpec { retry_dropped: Some(vec![reason]), ..spec(four_groups()) };
    let again = claimed(scratch.path(), ExistingOutput::Resume, &retrying).unwrap();
    assert_eq!((again.missing(), again.earlier().rows_dropped), (&[1..2, 3..4][..], 1));
    assert!(again.done().is_empty());
}

/// Resumes the job of `manifest` in `root`, whose rows depend on each other, and retries dropped rows.
fn remake(root: &Path, manifest: Manifest) -> OutputDirectory {
    let spec = OutputSpec { keeps_parts: false, retry_dropped: Some(Vec::new()), ..spec(manifest) };
    claimed(root, ExistingOutput::Resume, &spec).unwrap()
}

#[test]
fn a_row_group_with_dependent_rows_is_replaced_as_a_whole_if_the_new_one_has_more_rows() {
    let scratch = tempfile::tempdir().unwrap();
    let wide = || Manifest { rows_in: 6, row_group_size: 3, ..manifest() };
    let first = remake(scratch.path(), wide());
    assert_eq!(
        first.write_row_group(0, [row(0)], &[dropped(1, "timeout"), dropped(2, "timeout")]).unwrap(),
        WriteOutcome::Written
    );
    drop(first);
    let again = remake(scratch.path(), wide());
    assert!(again.missing().is_empty() && again.done().is_empty() && again.earlier() == EarlierOutput::default());
    assert_eq!(stored(scratch.path(), 0).0, [0], "the file is kept until then");
    let remaining = EarlierOutput { rows_out: 1, rows_dropped: 2, rows_rejected: 0, row_groups: 1 };
    assert_eq!((again.remaining(), again.dropped()[&("a".to_string(), "timeout".to_string())]), (remaining, 2));
    let worse = again.write_row_group(0, [row(1)], &[dropped(0, "request"), dropped(2, "request")]).unwrap();
    assert_eq!((worse, again.remaining()), (WriteOutcome::KeptEarlier { rows: 1, before: 1 }, remaining));
    assert_eq!(stored(scratch.path(), 0), (vec![0], vec![(1, "timeout".to_string()), (2, "timeout".to_string())]));
    assert_eq!(again.write_row_group(0, [row(1), row(2)], &[dropped(0, "request")]).unwrap(), WriteOutcome::Written);
    assert_eq!(stored(scratch.path(), 0), (vec![1, 2], vec![(0, "request".to_string())]));
    assert_eq!((again.remaining(), again.dropped()), (EarlierOutput::default(), DroppedCounts::new()));
}

#[test]
fn a_last_row_group_that_was_extended_is_replaced_only_by_one_with_more_rows_and_retried_otherwise() {
    let scratch = tempfile::tempdir().unwrap();
    let rows_in = |rows_in| Manifest { rows_in, row_group_size: 4, ..manifest() };
    let first = remake(scratch.path(), rows_in(6));
    first.write_row_group(0, (0..4).map(row), &[]).unwrap();
    first.write_row_group(1, [row(4), row(5)], &[]).unwrap();
    drop(first);
    let remaining = EarlierOutput { rows_out: 6, rows_dropped: 0, rows_rejected: 0, row_groups: 1 };
    for rows in [&[row(6), row(7)][..], &[]] {
        let longer = remake(scratch.path(), rows_in(8));
        assert_eq!(longer.done().iter().collect::<Vec<_>>(), [0]);
        let dropped = [dropped(4, "request"), dropped(5, "request")];
        let kept = longer.write_row_group(1, rows.to_vec(), &dropped).unwrap();
        assert_eq!(kept, WriteOutcome::KeptEarlier { rows: rows.len() as u64, before: 2 });
        assert_eq!(longer.remaining(), remaining);
        let unmade = [6, 7].map(|row| (row, UNMADE.to_string()));
        assert_eq!(stored(scratch.path(), 1), (vec![4, 5], unmade.to_vec()));
    }
    let last = remake(scratch.path(), rows_in(8));
    let replaced = last.write_row_group(1, (5..8).map(row), &[dropped(4, "request")]).unwrap();
    assert_eq!((replaced, stored(scratch.path(), 1).0), (WriteOutcome::Written, vec![5, 6, 7]));
}

#[test]
fn rows_to_be_retried_still_count_if_the_run_stops_before_it_reaches_them() {
    for keeps_parts in [true, false] {
        let scratch = tempfile::tempdir().unwrap();
        let again = |retry_dropped| OutputSpec { keeps_parts, retry_dropped, ..spec(four_groups()) };
        let first = claimed(scratch.path(), ExistingOutput::Resume, &again(None)).unwrap();
        first.write_row_group(0, [row(0)], &[dropped(1, "timeout")]).unwrap();
        first.write_row_group(1, [row(2)], &[dropped(3, "request")]).unwrap();
        drop(first);
        let reason = DropReason::from_name("timeout").unwrap();
        let second = claimed(scratch.path(), ExistingOutput::Resume, &again(Some(vec![reason]))).unwrap();
        assert_eq!(second.done().iter().collect::<Vec<_>>(), [1]);
        assert_eq!(second.remaining(), EarlierOutput { rows_out: 2, rows_dropped: 2, rows_rejected: 0, row_groups: 2 });
        assert_eq!(second.dropped().values().sum::<u64>(), 2);
        second.close(RunState::Running, &JobTotals::default()).unwrap();
        let manifest: Manifest = serde_json::from_slice(&fs::read(scratch.path().join(MANIFEST)).unwrap()).unwrap();
        assert_eq!(manifest.done.iter().collect::<Vec<_>>(), [0, 1]);
        second.write_row_group(0, [row(0), row(1)], &[]).unwrap();
        let left = if keeps_parts { (2, 1) } else { (1, 1) };
        let EarlierOutput { rows_out, rows_dropped, .. } = second.remaining();
        assert_eq!((rows_out, rows_dropped), left, "the rows of this run are not earlier output");
    }
}

#[test]
fn an_extended_job_has_unmade_rows_in_its_former_last_row_group() {
    let scratch = tempfile::tempdir().unwrap();
    let rows_in = |rows_in| spec(Manifest { rows_in, row_group_size: 4, ..manifest() });
    let first = claimed(scratch.path(), ExistingOutput::Resume, &rows_in(6)).unwrap();
    first.write_row_group(0, (0..4).map(row), &[]).unwrap();
    first.write_row_group(1, [row(4)], &[dropped(5, "request")]).unwrap();
    drop(first);
    // Killed before the manifest was written: nothing has changed for the job with its former length.
    earlier_output::extend_last_row_group(&scratch.path().join(ROWS), &rows_in(9), &rows_in(6).manifest).unwrap();
    let same = claimed(scratch.path(), ExistingOutput::Resume, &rows_in(6)).unwrap();
    assert_eq!((same.done().len(), same.earlier().rows_dropped), (2, 1));
    drop(same);
    for _ in 0..2 {
        let longer = claimed(scratch.path(), ExistingOutput::Resume, &rows_in(9)).unwrap();
        assert_eq!(
            (longer.missing(), longer.done().iter().collect::<Vec<_>>()),
            (std::slice::from_ref(&(6..8)), vec![0])
        );
        assert_eq!(longer.earlier(), EarlierOutput { rows_out: 5, rows_dropped: 1, rows_rejected: 0, row_groups: 1 });
    }
    let refused = claimed(scratch.path(), ExistingOutput::Resume, &rows_in(6)).unwrap_err().to_string();
    assert!(refused.contains("a job can be extended, not shortened"), "{refused}");
}

#[test]
fn the_usage_of_all_runs_adds_up() {
    let scratch = tempfile::tempdir().unwrap();
    let used = |calls| {
        let model = ModelTotals { calls, ..ModelTotals::default() };
        JobTotals { runs: 1, models: [("a/b".to_string(), model)].into(), ..JobTotals::default() }
    };
    for (calls, before) in [(3, 0), (4, 3), (5, 7)] {
        let output = resume(scratch.path());
        let earlier: u64 = output.used().models.values().map(|model| model.calls).sum();
        assert_eq!(earlier, before);
        output.close(RunState::Running, &used(calls)).unwrap();
    }
    assert_eq!(resume(scratch.path()).used().runs, 3);
}

#[test]
fn a_row_group_without_a_dropped_list_is_not_read() {
    let scratch = tempfile::tempdir().unwrap();
    drop(resume(scratch.path()));
    // Corrupted, but not read.
    fs::write(scratch.path().join("rows/000001.jsonl"), "{").unwrap();
    assert_eq!(resume(scratch.path()).earlier().rows_out, 2);
    write_lines(&[dropped(2, "request")], &mut File::create(scratch.path().join("rows/000001.dropped.jsonl")).unwrap())
        .unwrap();
    let refused = claimed(scratch.path(), ExistingOutput::Resume, &spec(four_groups())).unwrap_err();
    assert!(
        refused.to_string().starts_with("cannot read ") && refused.to_string().contains("000001.jsonl: line 1"),
        "{refused}"
    );
}

#[test]
fn another_job_is_not_resumed_and_not_changed() {
    let scratch = tempfile::tempdir().unwrap();
    drop(prepare(scratch.path(), ExistingOutput::Resume).unwrap());
    let other = spec(Manifest { row_key: "id".to_string(), ..manifest() });
    let refused = claimed(scratch.path(), ExistingOutput::Resume, &other).unwrap_err().to_string();
    assert!(
        refused.contains("holds rows of another job: `row_key` in [output] was row and is now id; put it back"),
        "{refused}"
    );
    fs::write(scratch.path().join(MANIFEST), r#"{"schema":1}"#).unwrap();
    let refused = prepare(scratch.path(), ExistingOutput::Resume).unwrap_err();
    assert!(
        refused.ends_with("holds nothing to resume: manifest.json was written by another version of this program"),
        "{refused}"
    );
    fs::write(scratch.path().join(MANIFEST), "{").unwrap();
    assert!(prepare(scratch.path(), ExistingOutput::Resume).unwrap_err().contains("holds nothing to resume"));
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("thesis.txt"), "years of work").unwrap();
    assert!(prepare(other.path(), ExistingOutput::Resume).unwrap_err().contains("manifest.json cannot be read"));
}

#[test]
fn a_run_that_was_killed_before_it_wrote_its_manifest_is_ignored() {
    for existing in [ExistingOutput::Resume, ExistingOutput::Replace] {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join(".manifest.json.tmp"), "{").unwrap();
        drop(prepare(scratch.path(), existing).unwrap());
        assert_eq!(file_names(scratch.path()).unwrap().len(), 2, "the manifest and the directory of rows");
    }
}

#[test]
fn files_that_this_program_did_not_write_are_never_removed() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("thesis.txt"), "years of work").unwrap();
    let refused = prepare(scratch.path(), ExistingOutput::Replace).unwrap_err();
    assert!(refused.contains("thesis.txt"), "{refused}");
    assert!(scratch.path().join("thesis.txt").exists());
    let other = tempfile::tempdir().unwrap();
    drop(prepare(other.path(), ExistingOutput::Refuse).unwrap());
    fs::write(other.path().join("rows/notes.md"), "mine").unwrap();
    assert!(prepare(other.path(), ExistingOutput::Replace).unwrap_err().contains("rows/notes.md"));
}

#[test]
fn a_second_run_on_the_same_directory_fails() {
    let scratch = tempfile::tempdir().unwrap();
    let first = prepare(scratch.path(), ExistingOutput::Refuse).unwrap();
    for existing in [ExistingOutput::Refuse, ExistingOutput::Replace, ExistingOutput::Resume] {
        assert!(prepare(scratch.path(), existing).unwrap_err().contains("another run"), "{existing:?}");
    }
    drop(first);
    assert!(prepare(scratch.path(), ExistingOutput::Refuse).unwrap_err().contains("is not empty"));
}

#[test]
fn a_run_that_does_not_start_leaves_the_directory_unchanged() {
    let scratch = tempfile::tempdir().unwrap();
    let (new, old) = (scratch.path().join("new"), scratch.path().join("old"));
    DirectoryLock::acquire(&new, ExistingOutput::Refuse).unwrap().release();
    assert!(!new.exists());
    fs::create_dir(&old).unwrap();
    fs::write(old.join("thesis.txt"), "years of work").unwrap();
    assert!(prepare(&old, ExistingOutput::Refuse).unwrap_err().contains("is not empty"));
    assert_eq!(fs::read_dir(&old).unwrap().count(), 1, "no lock file is left");
}

#[test]
fn a_path_below_a_file_is_a_write_error() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(prepare(&file.join("out"), ExistingOutput::Refuse).unwrap_err().starts_with("cannot write to "));
}

#[test]
fn a_manifest_that_could_not_be_written_is_written_later_although_it_has_not_changed_since() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("out");
    let output = prepare(&root, ExistingOutput::Refuse).unwrap();
    let path = root.join(MANIFEST);
    let earlier = || {
        let mut cached = output.manifest.lock();
        cached.written_at = cached.written_at.checked_sub(MANIFEST_INTERVAL).unwrap();
    };
    let used = JobTotals { runs: 0, spent: Money::new(1.0).unwrap(), ..JobTotals::default() };
    // No file can be renamed to the name of a directory.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    earlier();
    output.record_usage(&used).unwrap_err();
    fs::remove_dir(&path).unwrap();
    earlier();
    output.record_usage(&used).unwrap();
    let stored: Manifest = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(stored.totals.spent, used.spent);
}

#[test]
fn rows_after_the_wanted_ones_are_removed_and_made_again_if_more_are_wanted() {
    let scratch = tempfile::tempdir().unwrap();
    let wanting = |wanted| spec(Manifest { wanted: Some(wanted), ..four_groups() });
    let open = |wanted| claimed(scratch.path(), ExistingOutput::Resume, &wanting(wanted)).unwrap();
    let first = open(2);
    first.write_row_group(2, [row(4), row(5)], &[]).unwrap();
    first.write_row_group(1, [row(2), row(3)], &[]).unwrap();
    assert!(!first.has_enough() && first.remove_surplus(&wanting(2)).unwrap().is_none());
    first.write_row_group(0, [row(0)], &[DroppedLine::rejected(1, "a")]).unwrap();
    assert!(first.has_enough());
    let left = first.remove_surplus(&wanting(2)).unwrap().unwrap().counts;
    assert_eq!((left.rows_out, left.rows_dropped, left.rows_rejected), (2, 0, 2), "row 1, and row 3 is one too many");
    assert_eq!(rows_files(&first).len(), 4, "two row groups, each with a list");
    drop(first);

    // Rows that were rejected are not made again, and those that were too many are, once they are wanted.
    assert!(open(2).has_enough());
    let more = open(3);
    assert_eq!((more.has_enough(), more.missing().first(), more.missing().len()), (false, Some(&(3..4)), 1));
    more.write_row_group(1, [row(3)], &[]).unwrap();
    assert!(more.has_enough());
}

#[test]
fn rows_that_a_killed_run_has_not_removed_are_removed_and_not_counted() {
    let scratch = tempfile::tempdir().unwrap();
    let wanting = |wanted| spec(Manifest { wanted: Some(wanted), ..four_groups() });
    let open = |wanted| claimed(scratch.path(), ExistingOutput::Resume, &wanting(wanted)).unwrap();
    let killed = open(3);
    killed.write_row_group(2, [row(4)], &[DroppedLine::rejected(5, "a")]).unwrap();
    killed.write_row_group(0, [row(0)], &[DroppedLine::rejected(1, "a")]).unwrap();
    killed.write_row_group(3, [row(6)], &[]).unwrap();
    drop(killed);

    let rejected = |output: &OutputDirectory| output.dropped().get(&("a".to_string(), REJECTED.to_string())).copied();
    let resumed = open(3);
    assert_eq!((resumed.earlier().rows_out, rejected(&resumed)), (3, Some(2)), "row group 1 is missing");
    resumed.write_row_group(1, [row(2), row(3)], &[]).unwrap();
    drop(resumed);

    let resumed = open(3);
    assert_eq!((resumed.earlier().rows_out, rejected(&resumed)), (3, Some(1)));
    assert_eq!((resumed.remaining().rows_out, resumed.remaining().row_groups), (3, 2));
    assert_eq!(rows_files(&resumed).len(), 3, "two row groups, and a list");
}

fn rows_files(output: &OutputDirectory) -> Vec<String> {
    file_names(&output.root().join(ROWS)).unwrap()
}

const AN_IMAGE: &str = "000000-0123456789abcdef.png";

/// Writes `files` below the directory of images of a job.
fn with_images(root: &Path, files: &[&str]) {
    drop(prepare(root, ExistingOutput::Refuse).unwrap());
    for file in files {
        let path = root.join(IMAGES).join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
}

#[test]
fn images_of_earlier_runs_are_replaced_and_nothing_else_below_their_directory_is_removed() {
    let own = [&format!("a/{AN_IMAGE}"), "a/1000000-0123456789abcdef.webp", "b/.000007-0123456789abcdef.jpg.tmp"];
    let scratch = tempfile::tempdir().unwrap();
    with_images(scratch.path(), &own);
    drop(prepare(scratch.path(), ExistingOutput::Replace).unwrap());
    assert!(!scratch.path().join(IMAGES).exists());
    for foreign in [
        "holiday.png",
        "a/holiday.png",
        "a/00001-0123456789abcdef.png",
        "a/000001-0123456789abcdeg.png",
        "a/000001-0123456789abcdef.txt",
        "a/000001-0123456789abcdef.png.png",
        "a/.notes.tmp",
        "a/.lock",
        "a/deep/000001-0123456789abcdef.png",
        "a/000001-0123456789abcdef.png/x",
    ] {
        let scratch = tempfile::tempdir().unwrap();
        with_images(scratch.path(), &[own.as_slice(), &[foreign]].concat());
        let error = prepare(scratch.path(), ExistingOutput::Replace).unwrap_err();
        assert!(error.contains("holds files that no run of tidegate wrote (images/"), "{foreign}: {error}");
        assert!(own.iter().all(|file| scratch.path().join(IMAGES).join(file).exists()), "{foreign}");
    }
    let scratch = tempfile::tempdir().unwrap();
    with_images(scratch.path(), &[]);
    fs::write(scratch.path().join(IMAGES), "x").unwrap();
    let error = prepare(scratch.path(), ExistingOutput::Replace).unwrap_err();
    assert!(error.contains("images is a link or a file"), "{error}");
}

#[cfg(unix)]
#[test]
fn nothing_is_removed_through_a_link_in_the_place_of_the_rows_or_the_images() {
    for name in [ROWS, IMAGES] {
        let (scratch, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        drop(prepare(scratch.path(), ExistingOutput::Refuse).unwrap());
        fs::write(scratch.path().join(SPENT), "1").unwrap();
        // It has the name of a file that this program writes.
        fs::write(elsewhere.path().join(rows_name(0, "jsonl")), "theirs").unwrap();
        let link = scratch.path().join(name);
        let link_to = |target: &Path| {
            let _ = fs::remove_dir(&link).or_else(|_| fs::remove_file(&link));
            std::os::unix::fs::symlink(target, &link).unwrap();
            let error = prepare(scratch.path(), ExistingOutput::Replace).unwrap_err();
            assert!(error.contains(&format!("{name} is a link or a file")) && error.contains("remove it"), "{error}");
        };
        link_to(elsewhere.path());
        assert_eq!(fs::read_to_string(elsewhere.path().join(rows_name(0, "jsonl"))).unwrap(), "theirs");
        link_to(&elsewhere.path().join("nothing"));
        assert!(scratch.path().join(SPENT).exists(), "{name}");
        fs::remove_file(&link).unwrap();
        drop(prepare(scratch.path(), ExistingOutput::Replace).unwrap());
        assert!(!scratch.path().join(SPENT).exists(), "{name}");
    }
}

#[cfg(unix)]
#[test]
fn a_link_in_the_place_of_a_directory_of_images_is_not_followed() {
    let (scratch, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for name in [AN_IMAGE, ".000007-0123456789abcdef.jpg.tmp"] {
        fs::write(elsewhere.path().join(name), "x").unwrap();
    }
    with_images(scratch.path(), &[&format!("a/{AN_IMAGE}")]);
    std::os::unix::fs::symlink(elsewhere.path(), scratch.path().join(IMAGES).join("b")).unwrap();
    let error = prepare(scratch.path(), ExistingOutput::Replace).unwrap_err();
    assert!(error.contains("(images/b)"), "{error}");
    drop(claimed(scratch.path(), ExistingOutput::Resume, &spec(manifest())).unwrap());
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 2);
}

#[test]
fn a_resumed_job_has_no_incomplete_images() {
    let scratch = tempfile::tempdir().unwrap();
    with_images(scratch.path(), &[&format!("a/{AN_IMAGE}"), &format!("a/.{AN_IMAGE}.tmp")]);
    drop(claimed(scratch.path(), ExistingOutput::Resume, &spec(manifest())).unwrap());
    assert_eq!(file_names(&scratch.path().join(IMAGES).join("a")).unwrap(), [AN_IMAGE]);
}
