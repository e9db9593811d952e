//! Tests of one cost limit of several processes, and its law: whatever is lost, late or repeated, and
//! whichever process is killed, all together spend at most the limit, but for calls that cost more than
//! estimated.

use alloc::vec::Vec;

use super::super::*;
use crate::sim::rng::Rng;
use crate::time::{Duration, Instant};

fn request(held: u64, need: u64, wanted: u64) -> CostRequest {
    CostRequest { seq: 1, limit: 1_000, held, need, wanted }
}

#[test]
fn a_process_gets_what_it_needs_or_a_sixteenth_of_what_is_free() {
    let granted = |held, need, wanted, others| {
        let grant = grant_cost(&request(held, need, wanted), others);
        (grant.lease, grant.step, grant.is_refused)
    };
    assert_eq!(granted(0, 10, 100, 0), (62, 58, false), "1000 are free, and 938 then");
    assert_eq!(granted(0, 100, 100, 0), (100, 56, false), "the need is more than a sixteenth");
    assert_eq!(granted(0, 10, 20, 0), (20, 61, false), "no more than it accepts");
    assert_eq!(granted(200, 0, 0, 300), (200, 31, false), "it gives the rest back");
    assert_eq!(granted(200, 50, 50, 750), (250, 0, false), "the limit itself is allowed");
    assert_eq!(granted(200, 51, 60, 750), (200, 3, true));
    assert_eq!(granted(200, 0, 0, 900), (200, 0, false), "a call has cost more than its estimate");
    assert_eq!(granted(0, 1, 1, u64::MAX), (0, 0, true));
}

#[test]
fn a_lease_grows_before_it_is_used_up_and_shrinks_to_one_step_beyond_what_is_used() {
    let mut lease = CostLease::new(1_000);
    let first = lease.request(0, 5);
    assert_eq!((first.most(), lease.amount()), (5, 0));
    lease.apply(&grant_cost(&first, 0));
    assert_eq!((lease.amount(), lease.refill_at()), (5, 0), "the step of 62 is known now");
    let second = lease.request(1, 0);
    assert_eq!((second.held, second.most()), (5, 67));
    lease.apply(&grant_cost(&second, 0));
    assert_eq!((lease.amount(), lease.refill_at()), (67, 53));
    assert_eq!(lease.request(53, 0).most(), 67, "it suffices");
    assert_eq!(lease.request(54, 0).most(), 125);
    // Others have leased most of the limit.
    let kept = lease.request(10, 0);
    assert_eq!((kept.held, lease.amount()), (67, 67));
    lease.apply(&grant_cost(&kept, 900));
    let back = lease.request(10, 0);
    assert_eq!((back.held, back.most(), lease.amount()), (12, 12, 12), "the step is 2");
    assert_eq!(lease.give_back(10).most(), 10);
}

#[test]
fn a_lease_does_not_grow_by_what_calls_cost_beyond_their_estimates() {
    let mut lease = CostLease::new(100);
    let first = lease.request(0, 10);
    lease.apply(&grant_cost(&first, 90));
    assert_eq!(lease.amount(), 10);
    // Ten calls are in flight. One of them has cost 3 instead of 1, and an eleventh call waits.
    let over = lease.request(12, 13);
    assert_eq!((over.held, over.need, lease.amount()), (12, 1, 10), "the store counts it once");
    let grant = grant_cost(&over, 90);
    assert_eq!((grant.lease, grant.is_refused), (12, true));
    lease.apply(&grant);
    assert_eq!(lease.amount(), 10);
    // The answers may be lost.
    (0..3).for_each(|_| assert_eq!((lease.request(12, 0).held, lease.amount()), (12, 10)));
    // The other nine were rejected, and are free.
    assert_eq!((lease.request(3, 0).held, lease.amount()), (3, 3));
    // Another process uses more than the rest.
    let kept = lease.request(3, 0);
    lease.apply(&grant_cost(&kept, 98));
    assert_eq!(lease.amount(), 2);
    // What is free pays for the excess.
    let more = lease.request(12, 15);
    lease.apply(&grant_cost(&more, 50));
    assert_eq!((more.held, more.need, lease.amount()), (12, 3, 15));
}

#[test]
fn a_store_without_data_grants_only_after_a_process_has_read_the_files() {
    let mut store = CostStore::default();
    assert_eq!(store.join(1, 5, 7, &[]), None, "no mark");
    store.mark(1, 5);
    store.mark(2, 5);
    store.mark(2, 6);
    assert_eq!(store.join(2, 5, 7, &[]), None, "files that were read after an earlier mark");
    assert_eq!(store.join(1, 5, 7, &[(EARLIER_RUNS, 300), (3, 600)]), Some(7));
    assert_eq!(store.join(2, 6, 8, &[(3, 500), (4, 10)]), Some(7), "what the store has is newer than a file");
    assert_eq!(store.request(1, 8, &request(0, 1, 1)), None, "another term");
    let grant = store.request(1, 7, &request(0, 90, 90)).unwrap();
    assert_eq!((grant.lease, grant.others), (90, 910));
    assert_eq!(store.request(1, 7, &request(0, 0, 0)), None, "the request is not newer");
    assert!(store.request(2, 7, &request(0, 1, 1)).unwrap().is_refused);
}

type Session = CostSession<u64, u64>;

/// A process, with what it has put into its file.
struct Process {
    session: Session,
    file: u64,
    spent: u64,
    /// The estimates of the calls in flight.
    calls: Vec<u64>,
    /// The step under way.
    step: Option<CostStep<u64, u64>>,
    /// How many files there were when it began to read them, and those that it has read.
    reading: Option<(usize, Vec<(u64, u64)>)>,
    is_alive: bool,
    /// Whether it makes no more calls and gives back what is left.
    ends: bool,
}

impl Process {
    fn new(limit: u64) -> Self {
        Self {
            session: CostSession::new(limit),
            file: 0,
            spent: 0,
            calls: Vec::new(),
            step: None,
            reading: None,
            is_alive: true,
            ends: false,
        }
    }

    fn used(&self) -> u64 {
        self.spent + self.calls.iter().sum::<u64>()
    }
}

/// Carries out a step of the process `of` at the store. If it joins as the first one, it draws `term`.
pub(super) fn run_at_store(store: &mut CostStore, of: u64, term: u64, step: CostStep<u64, u64>) -> CostReply<u64, u64> {
    match step {
        CostStep::Mark(mark) => {
            store.mark(of, mark);
            CostReply::Marked
        }
        CostStep::Join { mark, files } => CostReply::Joined(store.join(of, mark, term, &files)),
        CostStep::Request { term, request } => CostReply::Granted(store.request(of, term, &request)),
        CostStep::ReadFiles | CostStep::WriteFile { .. } => unreachable!("it is at the files"),
    }
}

fn is_at_store(step: &CostStep<u64, u64>) -> bool {
    !matches!(step, CostStep::ReadFiles | CostStep::WriteFile { .. })
}

struct World {
    rng: Rng,
    now: Instant,
    limit: u64,
    earlier: u64,
    /// Lost data and deaths are so many times rarer than in the other worlds.
    rarity: u64,
    store: CostStore,
    terms: u64,
    /// The process that makes most steps for now.
    fast: usize,
    processes: Vec<Process>,
    /// The sum of what calls have cost beyond their estimates and beyond the leases.
    excess: u64,
    /// Steps at the store whose processes wait for them no longer.
    late: Vec<(u64, CostStep<u64, u64>)>,
    refused: u32,
    /// The number of times that a process had to join again.
    rejoined: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let limit = [50, 1_000, 100_000][rng.below(3) as usize];
        let earlier = rng.below(2) * rng.below(limit);
        let processes = (0..=rng.below(4)).map(|_| Process::new(limit)).collect();
        let (store, late, now) = (CostStore::default(), Vec::new(), Instant::ZERO);
        let rarity = [1, 1, 4, 16][rng.below(4) as usize];
        Self {
            rng,
            now,
            limit,
            earlier,
            rarity,
            store,
            terms: 0,
            fast: 0,
            processes,
            excess: 0,
            late,
            refused: 0,
            rejoined: 0,
        }
    }

    /// Does one random thing. Faults happen if `has_faults`.
    fn step(&mut self, has_faults: bool) {
        let alive: Vec<usize> = (0..self.processes.len()).filter(|p| self.processes[*p].is_alive).collect();
        let any = alive[self.rng.below(alive.len() as u64) as usize];
        if self.rng.below(40) == 0 || !self.processes[self.fast].is_alive {
            self.fast = any;
        }
        let p = if self.rng.below(5) == 0 { any } else { self.fast };
        match self.rng.below(100) {
            0 if has_faults && self.rng.below(self.rarity) == 0 => self.store = CostStore::default(),
            1 if has_faults && self.rng.below(self.rarity) == 0 => {
                let process = &mut self.processes[p];
                process.is_alive = false;
                // What it has sent may arrive later.
                let sent = process.step.take().filter(is_at_store).map(|step| (p as u64 + 1, step));
                self.late.extend(sent);
                self.processes.push(Process::new(self.limit));
            }
            2..10 if !self.late.is_empty() => {
                let at = self.rng.below(self.late.len() as u64) as usize;
                let (of, step) = self.late.swap_remove(at);
                self.run(of, step);
            }
            10..25 => self.start_call(p),
            25..40 => self.end_call(p),
            _ => self.exchange(p, has_faults),
        }
    }

    fn estimate(&mut self) -> u64 {
        1 + self.rng.below(1 + self.limit / 8)
    }

    fn start_call(&mut self, p: usize) {
        let estimate = self.estimate();
        let process = &mut self.processes[p];
        if !process.ends && process.used() + estimate <= process.session.amount() {
            process.calls.push(estimate);
        }
    }

    fn end_call(&mut self, p: usize) {
        let process = &mut self.processes[p];
        let beyond_lease = |process: &Process| process.used().saturating_sub(process.session.amount());
        let before = beyond_lease(process);
        if let Some(estimate) = process.calls.pop() {
            let most = estimate * [1, 1, 1, 3][self.rng.below(4) as usize];
            process.spent += self.rng.below(most + 1);
            self.excess += beyond_lease(process).saturating_sub(before);
        }
    }

    /// Carries out a step of the process `of` at the store.
    fn run(&mut self, of: u64, step: CostStep<u64, u64>) -> CostReply<u64, u64> {
        self.terms += 1;
        run_at_store(&mut self.store, of, self.terms, step)
    }

    /// Carries out a part of a step at the files, or all of it. The files are read one by one.
    fn run_at_files(&mut self, p: usize, step: CostStep<u64, u64>) -> Option<CostReply<u64, u64>> {
        if let CostStep::WriteFile { amount, rises } = step {
            assert!(rises || amount <= self.processes[p].file, "it would not be synced");
            self.processes[p].file = amount;
            return Some(CostReply::Written);
        }
        let count = self.processes.len();
        let (count, mut files) = self.processes[p].reading.take().unwrap_or((count, Vec::new()));
        files.push(match files.len().checked_sub(1) {
            None => (EARLIER_RUNS, self.earlier),
            Some(at) => (at as u64 + 1, self.processes[at].file.max(self.processes[at].used())),
        });
        if files.len() > count {
            return Some(CostReply::Files(files));
        }
        self.processes[p].reading = Some((count, files));
        self.processes[p].step = Some(step);
        None
    }

    /// Makes or carries out the next step of a process.
    fn exchange(&mut self, p: usize, has_faults: bool) {
        self.now += Duration::from_millis(self.rng.below(300));
        let needed = self.rng.below(2) * (self.processes[p].used() + self.estimate());
        let fault = if has_faults { self.rng.below(15) } else { 15 };
        let (now, of) = (self.now, p as u64 + 1);
        let process = &mut self.processes[p];
        let Some(step) = process.step.take() else {
            if process.ends {
                process.session.leave();
            }
            process.session.handle_timeout(now, process.used(), needed);
            process.step = process.session.poll_step();
            return;
        };
        let had_joined = process.session.has_joined();
        let is_at_store = is_at_store(&step);
        let lost = || Err(CostError::Store("it did not answer in time".into()));
        let reply = match fault {
            0 | 1 if is_at_store => {
                self.late.push((of, step));
                lost()
            }
            2 | 3 if is_at_store => {
                self.run(of, step);
                lost()
            }
            4 if matches!(step, CostStep::ReadFiles) => {
                process.reading = None;
                Err(CostError::Files("it is gone".into()))
            }
            _ if is_at_store => Ok(self.run(of, step)),
            _ => match self.run_at_files(p, step) {
                Some(reply) => Ok(reply),
                None => return,
            },
        };
        let process = &mut self.processes[p];
        let change = process.session.on_reply(now, reply);
        self.refused += u32::from(matches!(change, Some(CostChange::Lacking | CostChange::LimitReached)));
        self.rejoined += u32::from(had_joined && !process.session.has_joined());
    }

    /// The leases of all processes. That of one that died is what it has used of it.
    fn leased(&self) -> u64 {
        let of = |process: &Process| {
            if process.is_alive { process.session.amount() } else { process.session.amount().min(process.used()) }
        };
        self.earlier + self.processes.iter().map(of).sum::<u64>()
    }

    /// What all processes have spent, with the estimates of their calls in flight.
    fn used(&self) -> u64 {
        self.earlier + self.processes.iter().map(Process::used).sum::<u64>()
    }
}

#[test]
fn all_processes_together_never_spend_more_than_the_limit() {
    let (mut refused, mut exceeded, mut rejoined) = (0, 0, 0);
    for seed in 0..2_000 {
        let (mut world, mut has_exceeded) = (World::new(seed), false);
        for step in 0..1_500 {
            world.step(true);
            let (leased, used, excess, limit) = (world.leased(), world.used(), world.excess, world.limit);
            assert!(leased <= limit, "seed {seed}, step {step}: {leased} of {limit} are leased");
            assert!(used <= limit + excess, "seed {seed}, step {step}: {used} of {limit} are used");
            has_exceeded |= used > limit;
        }
        refused += world.refused;
        rejoined += world.rejoined;
        exceeded += u32::from(has_exceeded);
    }
    assert!(refused > 5_000, "the limit is reached: {refused}");
    assert!(exceeded > 50, "calls that cost more than estimated pass the limit: {exceeded}");
    assert!(rejoined > 5_000, "the store loses its data while processes lease: {rejoined}");
}

#[test]
fn what_processes_give_back_at_their_end_is_there_for_the_last_one() {
    for seed in 0..200 {
        let mut world = World::new(seed);
        (0..600).for_each(|_| world.step(false));
        world.processes.iter_mut().for_each(|process| process.ends = true);
        for p in 0..world.processes.len() {
            while !world.processes[p].calls.is_empty() {
                world.end_call(p);
            }
            (0..30).for_each(|_| world.exchange(p, false));
            assert!(world.processes[p].session.has_ended(), "seed {seed}");
        }
        let left = world.limit.saturating_sub(world.used());
        let last = world.processes.len() as u64 + 1;
        world.store.mark(last, 1);
        let term = world.store.join(last, 1, 0, &[(EARLIER_RUNS, world.earlier)]).unwrap();
        let mut lease = CostLease::new(world.limit);
        let mut ask = |needed| world.store.request(last, term, &lease.request(0, needed)).unwrap();
        assert!(ask(left + 1).is_refused, "seed {seed}");
        assert_eq!(ask(left).lease, left, "seed {seed}");
    }
}
