//! Tests of joining, and a process for the tests of what it does then.

use std::sync::Barrier;
use std::thread;

use super::super::tests::{dropped, four_groups, resume, row, spec, unmade};
use super::*;
use crate::app::output::files::dropped_name;
use crate::app::output::{DroppedLine, Manifest, WriteOutcome};

const JOB_NAME: &str = "00000000000000aa";

impl SharedDirectory {
    /// Joins the first process that fills `root`.
    pub(crate) fn join_first(root: &Path) -> (Self, OutputDirectory) {
        Self::join(root, spec(four_groups()), &format!("{:016x}", 1), JOB_NAME, "acme").unwrap()
    }
}

/// One of the processes that fill seven rows in four row groups.
pub(super) struct Process {
    pub(super) directory: SharedDirectory,
    pub(super) output: OutputDirectory,
}

impl Process {
    pub(super) fn join(root: &Path, number: u32) -> Self {
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
    pub(super) fn write(&self, row_group: u32, drops: bool) {
        let first = u64::from(row_group) * 2;
        let lost: Vec<DroppedLine> = drops.then(|| dropped(first + 1, "timeout")).into_iter().collect();
        let rows = (first..first + 2 - u64::from(drops)).map(row);
        assert_eq!(self.output.write_row_group(row_group, rows, &lost).unwrap(), WriteOutcome::Written);
    }

    pub(super) fn commit(&self, row_group: u32) -> bool {
        self.directory.commit(row_group).unwrap()
    }
}

/// Returns the error of a run that needs the directory for itself.
pub(super) fn claimed(root: &Path) -> String {
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
fn processes_that_join_at_the_same_time_all_join() {
    for _ in 0..50 {
        let scratch = tempfile::tempdir().unwrap();
        let (root, start) = (scratch.path().join("out"), Barrier::new(4));
        let join = |number| {
            start.wait();
            Process::try_join(&root, number, spec(four_groups())).map(|process| process.directory.job().to_string())
        };
        let joined: Vec<_> = thread::scope(|scope| {
            let threads = [1, 2, 3, 4].map(|number| scope.spawn(move || join(number)));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        assert_eq!(joined, vec![Ok(JOB_NAME.to_string()); 4]);
    }
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
