//! Tests of reading complete and truncated logs.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;
use crate::sim::scenario::builtin;
use crate::sim::world::World;

/// Runs the first built-in scenario. Returns the lines of its log and its digests.
fn lines() -> (Vec<LogLine>, (u64, u64)) {
    let (header, mut world) = World::recorded(&builtin()[0], 1).unwrap();
    while world.step() {}
    let commands = world.take_commands();
    let digests = world.decision_digests();
    let end = LogLine::end(commands.len() as u64, digests);
    let lines = [LogLine::header(header)].into_iter().chain(commands.into_iter().map(LogLine::command)).chain([end]);
    (lines.collect(), digests)
}

fn read(lines: impl IntoIterator<Item = LogLine>) -> Result<Replayed, LogError> {
    read_all(lines.into_iter().map(Ok))
}

fn read_all(lines: impl IntoIterator<Item = Result<LogLine, UnreadableLine>>) -> Result<Replayed, LogError> {
    let mut reader = LogReader::default();
    lines.into_iter().try_for_each(|line| reader.feed(line))?;
    Ok(reader.finish()?.replay()?)
}

fn incomplete_line() -> Result<LogLine, UnreadableLine> {
    Err(UnreadableLine::NotJson("incomplete_line".into()))
}

fn line_error(lines: impl IntoIterator<Item = LogLine>) -> (usize, LineError) {
    match read(lines) {
        Err(LogError::Line { line, why }) => (line, why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_complete_log_is_replayed_and_compared() {
    let (lines, digests) = lines();
    let replayed = read(lines.clone()).unwrap();
    assert_eq!((replayed.entries, replayed.left_out), (lines.len() as u64 - 2, 0));
    assert_eq!((replayed.digests, replayed.is_equal()), (digests, Some(true)));
    assert!(replayed.report.is_some());
}

#[test]
fn a_log_with_the_end_of_another_run_differs() {
    let (mut lines, (run, requests)) = lines();
    let commands = lines.len() as u64 - 2;
    *lines.last_mut().unwrap() = LogLine::end(commands, (run, requests + 1));
    assert_eq!(read(lines).unwrap().is_equal(), Some(false));
}

#[test]
fn a_shuffled_log_is_replayed_in_the_order_of_its_numbers() {
    let (mut lines, digests) = lines();
    let last = lines.len() - 1;
    lines[1..last].reverse();
    assert_eq!(read(lines).unwrap().digests, digests);
}

#[test]
fn a_truncated_log_is_replayed_up_to_its_first_gap_and_not_compared() {
    let (mut lines, _) = lines();
    lines.truncate(101);
    let replayed = read(lines.clone()).unwrap();
    assert_eq!((replayed.entries, replayed.left_out, replayed.is_equal()), (100, 0, None));
    lines.remove(81);
    let replayed = read(lines).unwrap();
    assert_eq!((replayed.entries, replayed.left_out, replayed.is_equal()), (80, 19, None));
}

#[test]
fn an_incomplete_line_is_accepted_only_as_the_last_line_of_a_truncated_log() {
    let (lines, _) = lines();
    let cut = |at: usize| lines[..at].iter().cloned().map(Ok);
    assert_eq!(read_all(cut(101).chain([incomplete_line()])).unwrap().entries, 100);
    let wrong = |line| LogError::Line { line, why: LineError::Unreadable("incomplete_line".into()) };
    assert_eq!(read_all(cut(101).chain([incomplete_line()]).chain([Ok(lines[101].clone())])), Err(wrong(102)));
    assert_eq!(read_all([incomplete_line()]), Err(wrong(1)), "a log must have a header");
    let other = Err(UnreadableLine::OtherShape("incomplete_line".into()));
    assert_eq!(read_all(cut(101).chain([other])), Err(wrong(102)), "other JSON is not an incomplete line");
    let after = LogError::Line { line: lines.len() + 1, why: LineError::AfterEnd };
    assert_eq!(read_all(cut(lines.len()).chain([incomplete_line()])), Err(after));
}

#[test]
fn the_replay_of_a_complete_log_with_a_gap_fails_at_the_gap() {
    let (mut lines, _) = lines();
    lines[81] = lines[82].clone();
    assert_eq!(read(lines), Err(LogError::Replay(ReplayError::Gap { expected: 80, found: 81 })));
}

#[test]
fn an_invalid_log_is_rejected_with_its_line() {
    let (lines, digests) = lines();
    let (count, header, end) = (lines.len(), lines[0].clone(), lines[lines.len() - 1].clone());
    assert_eq!(line_error([]), (1, LineError::Empty));
    assert_eq!(line_error(lines[1..].to_vec()), (1, LineError::NotAHeader));
    assert_eq!(line_error([LogLine::default()]), (1, LineError::NotAHeader));
    assert_eq!(line_error([header.clone(), header.clone()]), (2, LineError::SecondHeader));
    assert_eq!(line_error([header.clone(), LogLine::default()]), (2, LineError::NoKind));
    assert_eq!(line_error(lines.iter().cloned().chain([end])), (count + 1, LineError::AfterEnd), "a second end line");
    let missing = line_error([header, LogLine::end(1, digests)]);
    assert_eq!(missing, (2, LineError::CountMismatch { stated: 1, found: 0 }));
    let message = LogError::Line { line: missing.0, why: missing.1 }.to_string();
    assert_eq!(message, "line 2: this is no line of a decision log: the end line counts 1 commands, and there are 0");
}
