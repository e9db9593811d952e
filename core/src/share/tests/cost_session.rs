//! Tests of the steps of a process that leases parts of a cost limit, in virtual time.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::super::*;
use super::cost::run_at_store;
use crate::time::{Duration, Instant};

type Step = CostStep<u64, u64>;
type Reply = Result<CostReply<u64, u64>, CostError>;

/// A process at a store. Each step takes no time.
struct Process {
    id: u64,
    session: CostSession<u64, u64>,
    now: Instant,
    used: u64,
    needed: u64,
    /// The steps in their order.
    steps: Vec<Step>,
    /// The changes, each with its time in milliseconds.
    changes: Vec<(u64, CostChange)>,
}

impl Process {
    fn new(id: u64, limit: u64) -> Self {
        let (session, steps, changes) = (CostSession::new(limit), Vec::new(), Vec::new());
        Self { id, session, now: Instant::ZERO, used: 0, needed: 0, steps, changes }
    }

    /// Carries out all steps that are due until `millis`. Those for which `fault` returns a reply do not
    /// reach the store.
    fn run_with(&mut self, millis: u64, store: &mut CostStore, fault: impl Fn(u64, &Step) -> Option<Reply>) {
        let end = Instant::ZERO + Duration::from_millis(millis);
        loop {
            let at = self.now.as_nanos() / 1_000_000;
            let change = self.session.handle_timeout(self.now, self.used, self.needed);
            self.changes.extend(change.map(|change| (at, change)));
            if let Some(step) = self.session.poll_step() {
                assert_eq!(self.session.poll_step(), None, "one at a time");
                self.steps.push(step.clone());
                let reply = fault(at, &step).unwrap_or_else(|| {
                    Ok(match step {
                        CostStep::ReadFiles => CostReply::Files(vec![(EARLIER_RUNS, 0)]),
                        CostStep::WriteFile { .. } => CostReply::Written,
                        step => run_at_store(store, self.id, 100 * self.id + at, step),
                    })
                });
                let change = self.session.on_reply(self.now, reply);
                // No call starts any more.
                if change == Some(CostChange::LimitReached) {
                    self.needed = 0;
                }
                self.changes.extend(change.map(|change| (at, change)));
                continue;
            }
            match self.session.poll_timeout() {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => break,
            }
        }
        self.now = end;
    }

    fn run(&mut self, millis: u64, store: &mut CostStore) {
        self.run_with(millis, store, |_, _| None);
    }

    /// Returns the changes since the last call, without those of the lease.
    fn notable_changes(&mut self) -> Vec<(u64, CostChange)> {
        self.changes.drain(..).filter(|(_, change)| *change != CostChange::Leased).collect()
    }

    fn joins(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, CostStep::Join { .. })).count()
    }
}

fn unreachable(_: u64, step: &Step) -> Option<Reply> {
    let is_at_files = matches!(step, CostStep::ReadFiles | CostStep::WriteFile { .. });
    (!is_at_files).then(|| Err(CostError::Store("it is unreachable".to_string())))
}

fn unreadable(_: u64, step: &Step) -> Option<Reply> {
    matches!(step, CostStep::ReadFiles).then(|| Err(CostError::Files("it is empty".to_string())))
}

fn loses_data(_: u64, step: &Step) -> Option<Reply> {
    matches!(step, CostStep::Request { .. }).then_some(Ok(CostReply::Granted(None)))
}

fn failing(why: &str) -> CostChange {
    CostChange::Failing(why.to_string())
}

/// Returns a store, and a process that has leased 90 of 100.
fn with_other() -> (CostStore, Process) {
    let (mut store, mut other) = (CostStore::default(), Process::new(1, 100));
    (other.used, other.needed) = (90, 90);
    other.run(0, &mut store);
    assert!(other.session.amount() >= 90);
    (store, other)
}

#[test]
fn the_steps_of_a_process_are_in_the_order_that_keeps_the_limit() {
    let (mut store, mut process) = (CostStore::default(), Process::new(1, 1_000));
    process.needed = 10;
    process.run(0, &mut store);
    let request = CostRequest { seq: 1, limit: 1_000, held: 0, need: 10, wanted: 10 };
    let expected = [
        CostStep::Mark(1),
        CostStep::ReadFiles,
        CostStep::Join { mark: 1, files: vec![(EARLIER_RUNS, 0)] },
        CostStep::WriteFile { amount: 10, rises: true },
        CostStep::Request { term: 100, request },
    ];
    assert_eq!(process.steps, expected);
    assert_eq!((process.session.amount(), process.session.has_joined()), (10, true));
    // It uses little and gives back what is beyond one step, then asks for more.
    (process.used, process.needed) = (1, 0);
    process.steps.clear();
    process.run(500, &mut store);
    assert!(matches!(process.steps[0], CostStep::WriteFile { amount: 71, rises: true }), "{:?}", process.steps);
    process.steps.clear();
    process.run(999, &mut store);
    assert_eq!(process.steps, [], "the next beat");
    process.needed = 300;
    process.run(999, &mut store);
    assert_eq!(process.session.amount(), 300, "a call that lacks a lease is a reason for an earlier request");
}

#[test]
fn a_process_that_is_refused_gets_what_others_give_back_within_the_last_wait() {
    let (mut store, mut other) = with_other();
    let mut process = Process::new(2, 100);
    process.needed = 30;
    process.run(1_499, &mut store);
    assert_eq!(process.notable_changes(), [(0, CostChange::Lacking)]);
    // The calls of the other one cost less than their estimates.
    (other.used, other.needed) = (20, 0);
    other.run(1_499, &mut store);
    process.run(1_500, &mut store);
    assert_eq!((process.notable_changes(), process.session.amount()), (Vec::new(), 30));
    // A later refusal is the first one again.
    process.needed = 90;
    process.run(2_900, &mut store);
    assert_eq!(process.notable_changes(), [(1_500, CostChange::Lacking)]);
}

#[test]
fn a_process_that_is_refused_again_after_the_last_wait_has_reached_the_limit() {
    let (mut store, _other) = with_other();
    let mut process = Process::new(2, 100);
    process.needed = 30;
    // The needs of further calls are no reason to request earlier, and an error is none to wait longer.
    process.run(1_400, &mut store);
    process.needed = 40;
    process.run_with(1_500, &mut store, unreachable);
    process.run(2_000, &mut store);
    let expected = [(0, CostChange::Lacking), (1_500, failing("it is unreachable")), (2_000, CostChange::LimitReached)];
    assert_eq!(process.notable_changes(), expected);
}

#[test]
fn a_store_that_fails_is_announced_once_and_the_process_spends_what_it_has_leased() {
    let (mut store, mut process) = with_other();
    let amount = process.session.amount();
    process.run_with(5_000, &mut store, unreachable);
    assert_eq!(process.notable_changes(), [(500, failing("it is unreachable"))]);
    assert_eq!(process.session.amount(), amount);
    process.run(5_500, &mut store);
    process.run_with(6_000, &mut store, unreachable);
    assert_eq!(process.notable_changes(), [(6_000, failing("it is unreachable"))]);
}

#[test]
fn files_that_stay_unreadable_for_five_seconds_stop_a_process_and_those_that_recover_do_not() {
    let (_, mut process) = with_other();
    let mut store = CostStore::default();
    process.run_with(5_400, &mut store, unreadable);
    process.run(6_000, &mut store);
    assert_eq!((process.notable_changes(), process.joins()), (vec![(500, failing("it is empty"))], 2));
    store = CostStore::default();
    process.run_with(60_000, &mut store, unreadable);
    let expected = [(6_500, failing("it is empty")), (11_500, CostChange::Stopped("it is empty".to_string()))];
    assert_eq!(process.notable_changes(), expected);
    assert_eq!((process.session.poll_timeout(), process.session.has_ended()), (None, false));
    process.session.leave();
    process.run(60_000, &mut store);
    assert!(process.session.has_ended());
}

#[test]
fn a_process_whose_own_file_cannot_be_written_stops_at_once() {
    let (mut store, mut process) = with_other();
    process.needed = 95;
    let full = |_, step: &Step| {
        matches!(step, CostStep::WriteFile { .. }).then(|| Err(CostError::OwnFile("it is full".to_string())))
    };
    process.run_with(60_000, &mut store, full);
    assert_eq!(process.notable_changes(), [(0, CostChange::Stopped("it is full".to_string()))]);
    assert!(!matches!(process.steps.last(), Some(CostStep::Request { .. })), "nothing is requested");
    process.session.leave();
    process.run_with(60_000, &mut store, full);
    assert!(process.session.has_ended() && process.notable_changes().is_empty());
}

#[test]
fn a_process_joins_again_at_once_when_the_store_has_lost_its_data() {
    let (_, mut process) = with_other();
    let mut store = CostStore::default();
    process.run(500, &mut store);
    assert_eq!((process.notable_changes(), process.joins()), (Vec::new(), 2));
    assert!(process.session.has_joined());
    // A store that loses its data again and again is no reason to join without a pause.
    process.run_with(3_000, &mut store, loses_data);
    assert_eq!((process.notable_changes(), process.joins()), (vec![(1_000, failing("it has lost its data"))], 7));
}

#[test]
fn a_process_that_leaves_gives_back_what_it_has_not_used_if_the_store_is_there() {
    for (is_there, is_left) in [(true, 20), (false, 90)] {
        let (mut store, mut process) = with_other();
        process.used = 20;
        process.session.leave();
        process.run_with(0, &mut store, |at, step| if is_there { None } else { unreachable(at, step) });
        assert!(process.session.has_ended() && process.notable_changes().is_empty());
        assert_eq!(process.session.amount(), 20, "nothing else is spent");
        assert!(process.steps.contains(&CostStep::WriteFile { amount: 20, rises: false }));
        let mut last = Process::new(2, 100);
        last.needed = 100 - is_left;
        last.run(0, &mut store);
        assert_eq!(last.session.amount(), 100 - is_left);
        last.needed += 1;
        last.run(500, &mut store);
        assert_eq!(last.notable_changes(), [(0, CostChange::Lacking)]);
    }
}

#[test]
fn a_process_that_leaves_while_it_joins_reads_no_files() {
    let mut process = Process::new(1, 100);
    let session = &mut process.session;
    session.handle_timeout(Instant::ZERO, 0, 0);
    assert_eq!(session.poll_step(), Some(CostStep::Mark(1)));
    session.leave();
    assert_eq!(session.poll_timeout(), None, "the reply is awaited");
    assert_eq!(session.on_reply(Instant::ZERO, Ok(CostReply::Marked)), None);
    session.handle_timeout(Instant::ZERO, 0, 0);
    assert_eq!((session.poll_step(), session.has_ended()), (None, true));
}

#[test]
fn files_that_were_read_after_an_earlier_mark_have_no_effect_when_they_arrive_later() {
    let (mut store, mut process) = (CostStore::default(), Process::new(2, 100));
    let joins_late = |amount| {
        move |_, step: &Step| match step {
            CostStep::ReadFiles => Some(Ok(CostReply::Files(vec![(1, amount)]))),
            CostStep::Join { .. } => Some(Err(CostError::Store("it did not answer in time".to_string()))),
            _ => None,
        }
    };
    process.run_with(0, &mut store, joins_late(10));
    let first = process.steps.last().unwrap().clone();
    // The other process has leased more, and the store has lost its data.
    store = CostStore::default();
    process.run_with(500, &mut store, joins_late(60));
    let second = process.steps.last().unwrap().clone();
    assert_eq!(run_at_store(&mut store, 2, 9, first), CostReply::Joined(None));
    assert_eq!(run_at_store(&mut store, 2, 9, second), CostReply::Joined(Some(9)));
    process.needed = 41;
    process.run(1_000, &mut store);
    assert_eq!(process.notable_changes().last(), Some(&(1_000, CostChange::Lacking)));
}
