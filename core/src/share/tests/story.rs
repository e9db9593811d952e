//! A partition and a dead leader, as the lesson of the playground shows them: three processes, one provider.
//!
//! The [`Oracle`] checks the laws in each of them.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use super::oracle::Oracle;
use crate::sim::rng::Rng;
use crate::sim::sharing::{
    SharingChange, SharingConfig, SharingEvent, SharingEventKind as Kind, SharingSample, SharingWorld,
};
use crate::time::{Duration, Instant};

/// How many calls the provider serves at once.
const CAPACITY: u32 = 12;

/// How long a lease lasts, and how long until the leader has reclaimed it at the latest: TTL x 1.01, and two
/// beats.
const TTL: Duration = Duration::from_secs(5);
const RECLAIMED: Duration = Duration::from_millis(5_250);

/// How long the slots of the calls that a lost process reported last are reserved from then on: a TTL, as its
/// calls are shorter.
const HELD: Duration = TTL;

/// How long until another process has taken the lead at the latest: the time without a decision, the random
/// time, and two beats.
const LED: Duration = Duration::from_millis(2_000);

/// The beats in which all adopt what the leader decided.
const ADOPTED: Duration = Duration::from_millis(500);

/// How long a process waits for the reply to a step that was lost.
const STEP: Duration = Duration::from_secs(1);

/// Longer than a call takes.
const CALL: Duration = Duration::from_millis(310);

/// The seed of the lesson: that of `web-demo/app/src/machines/machines.svelte.ts`.
const LESSON: usize = 1;

/// A world, and what was seen of it.
struct Story {
    world: SharingWorld<Oracle>,
    seen: Vec<SharingSample>,
    events: Vec<SharingEvent>,
}

impl Story {
    /// Three processes with a demand of 12 calls each, after two seconds.
    fn new(seed: u64) -> Self {
        let config = SharingConfig::known(CAPACITY);
        let oracle = Oracle::new(&config);
        let world = SharingWorld::new(config, Rng::new(seed), oracle).expect("valid");
        let mut story = Self { world, seen: Vec::new(), events: Vec::new() };
        for _ in 0..3 {
            story.world.start_process(CAPACITY);
        }
        story.run(Duration::from_secs(2));
        story
    }

    fn run(&mut self, span: Duration) {
        let end = self.world.now + span;
        while self.world.now < end {
            self.world.advance_to(self.world.now + Duration::from_millis(10));
            let sample = self.world.sample();
            assert!(sample.in_flight <= CAPACITY, "{} calls in flight at {}", sample.in_flight, sample.at);
            self.seen.push(sample);
        }
        self.events.extend(self.world.take_events());
    }

    /// Applies a change, and returns when.
    fn change(&mut self, change: SharingChange) -> Instant {
        self.world.change(change).expect("the process exists");
        self.seen.clear();
        self.events.clear();
        self.now().at
    }

    fn now(&self) -> SharingSample {
        self.world.sample()
    }

    fn leader(&self) -> usize {
        self.now().leader.expect("one process leads")
    }

    /// Returns a process that does not lead.
    fn follower(&self) -> usize {
        (self.leader() + 1) % 3
    }

    fn shares(&self) -> Vec<u32> {
        self.now().processes.iter().map(|process| process.share).collect()
    }

    /// Returns when this happened.
    fn when(&self, what: impl Fn(Kind) -> bool) -> Instant {
        let event = self.events.iter().find(|event| what(event.what));
        event.unwrap_or_else(|| panic!("it happened: {:?}", self.events)).at
    }
}

fn cut_off(process: usize) -> SharingChange {
    SharingChange::Connected { process, connected: false }
}

fn kill(process: usize) -> SharingChange {
    SharingChange::Alive { process, alive: false }
}

#[test]
fn three_processes_divide_the_limit_and_the_provider_refuses_nothing() {
    for seed in 0..8 {
        let story = Story::new(seed);
        assert_eq!((story.shares(), story.now().refused), ([4; 3].to_vec(), 0), "seed {seed}");
    }
}

#[test]
fn in_the_lesson_the_first_machine_leads_at_the_start() {
    let leaders: Vec<usize> = (0..8).map(|seed| Story::new(seed).leader()).collect();
    assert_eq!(leaders[LESSON], 0, "by seed: {leaders:?}");
}

#[test]
fn slots_that_a_process_does_not_need_go_to_the_others() {
    for seed in 0..8 {
        let mut story = Story::new(seed);
        story.change(SharingChange::Demand { process: 1, calls: 1 });
        story.run(Duration::from_secs(1));
        let shares = story.shares();
        assert_eq!(shares.iter().sum::<u32>(), CAPACITY, "seed {seed}: {shares:?}");
        assert!(shares[0] >= 5 && shares[2] >= 5, "seed {seed}: {shares:?}");
    }
}

#[test]
fn a_process_that_is_cut_off_stops_when_its_lease_ends_and_only_later_the_others_get_its_slots() {
    for seed in 0..8 {
        let mut story = Story::new(seed);
        let off = story.follower();
        let cut_at = story.change(cut_off(off));
        story.run(RECLAIMED + HELD + ADOPTED);
        let lapsed = story.when(|what| what == Kind::Lapsed { process: off });
        let reclaimed = story.when(|what| what == Kind::Reclaimed { process: off, slots: 4 });
        assert!(lapsed <= cut_at + TTL && lapsed < reclaimed && reclaimed <= cut_at + RECLAIMED, "seed {seed}");
        for sample in &story.seen {
            let process = sample.processes[off];
            assert_eq!(process.share, if sample.at < lapsed { 4 } else { 0 }, "seed {seed}");
            assert!(process.in_flight == 0 || sample.at < lapsed + CALL, "seed {seed}: it starts no call");
            let others: u32 = sample.processes.iter().map(|of| of.share).sum::<u32>() - process.share;
            assert!(others <= 8 || sample.at >= reclaimed + HELD, "seed {seed}: its calls may be in flight until then");
        }
        let mut shares = [6; 3];
        shares[off] = 0;
        assert_eq!(story.shares(), shares, "seed {seed}");
    }
}

#[test]
fn another_process_takes_the_lead_of_one_that_is_killed_or_cut_off_and_shares_stay_valid_meanwhile() {
    for (seed, change) in (0..8).flat_map(|seed| [kill, cut_off].map(|change| (seed, change))) {
        let mut story = Story::new(seed);
        let first = story.leader();
        let lost_at = story.change(change(first));
        story.run(LED);
        let next = story.leader();
        assert_ne!(next, first, "seed {seed}");
        let led = story.when(|what| what == Kind::Leads { process: next, epoch: 2 });
        assert!(led <= lost_at + LED, "seed {seed}");
        let others =
            |sample: &SharingSample| (0..3).filter(|it| *it != first).all(|it| sample.processes[it].share == 4);
        assert!(story.seen.iter().all(others), "seed {seed}: the limit and the shares stay");
        // The new leader takes the old one for a member from which it has just heard.
        story.run(RECLAIMED + HELD + ADOPTED);
        let mut shares = [6; 3];
        shares[first] = 0;
        assert_eq!((story.shares(), story.now().limit), (shares.to_vec(), CAPACITY), "seed {seed}");
    }
}

#[test]
fn when_the_leader_leaves_another_process_leads_within_half_a_second_of_its_last_call() {
    for seed in 0..8 {
        let mut story = Story::new(seed);
        let first = story.leader();
        story.world.leave(first);
        story.seen.clear();
        story.run(CALL + Duration::from_millis(500));
        let next = story.now().leader.filter(|next| *next != first);
        assert_eq!((next.is_some(), story.now().epoch), (true, 2), "seed {seed}");
        story.run(ADOPTED);
        let mut shares = [6; 3];
        shares[first] = 0;
        assert_eq!((story.shares(), story.now().refused), (shares.to_vec(), 0), "seed {seed}");
        assert_eq!(story.now().processes[first].in_flight, 0, "seed {seed}");
    }
}

#[test]
fn processes_that_return_get_their_shares_back() {
    for seed in 0..8 {
        let mut story = Story::new(seed);
        let (off, first) = (story.follower(), story.leader());
        story.change(cut_off(off));
        story.run(RECLAIMED);
        story.change(kill(first));
        story.run(LED + RECLAIMED + HELD + ADOPTED);
        assert_eq!(story.shares().iter().max(), Some(&CAPACITY), "seed {seed}: one process is left");
        story.change(SharingChange::Connected { process: off, connected: true });
        story.world.change(SharingChange::Alive { process: first, alive: true }).expect("it exists");
        story.run(STEP + ADOPTED);
        assert_eq!(story.shares(), [4; 3], "seed {seed}");
        assert_eq!(story.now().refused, 0, "seed {seed}: there was no moment with more calls than the limit");
    }
}

#[test]
fn a_process_in_the_place_of_one_that_was_cut_off_is_cut_off_until_its_place_is_connected() {
    let mut story = Story::new(1);
    let off = story.follower();
    story.change(cut_off(off));
    story.change(kill(off));
    let dead = story.now().processes[off];
    assert!(!dead.is_alive && !dead.is_connected);
    story.run(RECLAIMED + HELD);
    story.change(SharingChange::Alive { process: off, alive: true });
    story.run(RECLAIMED);
    assert_eq!((story.now().processes[off].is_connected, story.shares()[off]), (false, 0));
    story.change(kill(off));
    story.change(SharingChange::Connected { process: off, connected: true });
    assert!(story.now().processes[off].is_connected, "a change also applies to a killed process");
    story.change(SharingChange::Alive { process: off, alive: true });
    story.run(Duration::from_secs(1));
    assert_eq!(story.shares(), [4; 3]);
}

#[test]
fn the_calls_of_a_killed_process_count_for_its_number_until_they_end() {
    let mut story = Story::new(1);
    let killed = story.follower();
    story.change(kill(killed));
    story.change(SharingChange::Alive { process: killed, alive: true });
    assert!(story.now().processes[killed].in_flight > 0);
    story.run(Duration::from_secs(2));
    for sample in &story.seen {
        assert_eq!(sample.processes.iter().map(|process| process.in_flight).sum::<u32>(), sample.in_flight);
    }
}

#[test]
fn an_end_in_the_past_has_no_effect() {
    let mut story = Story::new(1);
    let (before, now) = (story.now(), story.world.now);
    story.world.advance_to(Instant::ZERO);
    assert_eq!((story.now(), story.world.now), (before, now));
}

#[test]
fn a_sample_states_the_highest_limit_and_how_long_a_lease_lasts() {
    let sample = Story::new(1).now();
    assert_eq!((sample.cap, sample.ttl_ns), (CAPACITY, TTL.as_nanos()));
}

#[test]
fn a_lowered_capacity_cuts_the_limit_of_all() {
    let mut story = Story::new(1);
    story.change(SharingChange::Capacity { slots: 4 });
    story.run(Duration::from_secs(2));
    assert!(story.now().limit <= 6, "{}", story.now().limit);
    story.when(|what| matches!(what, Kind::Cut { from: CAPACITY, .. }));
}

#[test]
fn equal_seeds_and_changes_give_equal_runs() {
    let tale = |seed| -> String {
        let mut story = Story::new(seed);
        story.change(cut_off(2));
        story.run(Duration::from_secs(3));
        story.change(kill(0));
        story.run(Duration::from_secs(8));
        format!("{:?}{:?}", story.seen, story.events)
    };
    assert_eq!(tale(1), tale(1));
    assert_ne!(tale(1), tale(2));
}

#[test]
fn a_change_of_a_process_that_does_not_exist_is_an_error_and_changes_nothing() {
    let mut story = Story::new(1);
    let before = story.now();
    let error = story.world.change(kill(3)).expect_err("there are three");
    assert_eq!(error.to_string(), "there is no process 3: expected a number below 3");
    assert_eq!(story.now(), before);
}
