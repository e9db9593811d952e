//! Every fate of some messages in a row, of two members with a limit of two.

use alloc::vec::Vec;

use super::super::*;
use super::oracle::Oracle;
use super::short_config;
use crate::budget::{BudgetConfig, Dimension};
use crate::sim::rng::Rng;
use crate::sim::sharing::{Fate, SharingConfig, SharingWorld};
use crate::time::Duration;

/// The number of messages whose fates are explored together. A beat of both members has about ten.
const MESSAGES: u32 = 4;
const FATES: [Fate; 4] = [Fate::Arrives, Fate::IsLate, Fate::IsRepeated, Fate::IsLost];

/// What happens just before these messages.
#[derive(Clone, Copy, Debug)]
enum Change {
    Nothing,
    DemandMoves,
    ThirdStarts,
    LeaderIsKilled,
    LeaderLeaves,
    OtherLeaves,
    StoreLosesWrites,
}

const CHANGES: [Change; 7] = [
    Change::Nothing,
    Change::DemandMoves,
    Change::ThirdStarts,
    Change::LeaderIsKilled,
    Change::LeaderLeaves,
    Change::OtherLeaves,
    Change::StoreLosesWrites,
];

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Runs a world in which the messages after `arriving` others have the given fates, and in which every later
/// one arrives.
fn run(change: Change, arriving: usize, fates: &[Fate]) {
    let config = SharingConfig {
        longest_call: millis(90),
        weights: alloc::vec![1, 2],
        budgets: alloc::vec![BudgetConfig::per(Duration::from_secs(1), Dimension::Requests, 40).with_burst(2)],
        ..short_config(OnLoss::Stop, millis(300))
    };
    let oracle = Oracle::new(&config);
    let mut world = SharingWorld::new(config, Rng::new(arriving as u64), oracle).expect("valid");
    world.start_process(2);
    world.start_process(2);
    world.advance_to(world.now + millis(330));
    let leader = (0..2).find(|p| world.is_leader(*p)).expect("one leads by now");
    match change {
        Change::Nothing => {}
        Change::DemandMoves => world.set_demand(1 - leader, 0),
        Change::ThirdStarts => {
            world.start_process(2);
        }
        Change::LeaderIsKilled => world.kill(leader),
        Change::LeaderLeaves => world.leave(leader),
        Change::OtherLeaves => world.leave(1 - leader),
        Change::StoreLosesWrites => world.roll_back(Some(millis(100))),
    }
    let staying: Vec<usize> = (0..world.started()).filter(|p| world.is_alive(*p) && !world.leaves(*p)).collect();
    world.fates = core::iter::repeat_n(Fate::Arrives, arriving).chain(fates.iter().copied()).collect();
    world.advance_to(world.now + millis(500));
    for p in &staying {
        world.set_demand(*p, 2);
    }
    // A takeover, the leases of the members before it, and the reservation of their calls.
    world.advance_to(world.now + millis(160 + 300 + 300));
    let began = world.now;
    // If there is one slot, it goes round each second.
    let turns = 10 * 2 * staying.len();
    let has_started = |world: &SharingWorld<Oracle>, p: usize| world.observer.last_start(world.id(p)) > began;
    for _ in 0..turns {
        world.advance_to(world.now + millis(100));
        if staying.iter().all(|p| has_started(&world, *p)) {
            return;
        }
    }
    panic!("not all make progress: {}", world.state());
}

#[test]
fn the_laws_hold_whatever_happens_to_messages_in_a_row() {
    let histories = FATES.len().pow(MESSAGES);
    for (change, arriving) in
        CHANGES.into_iter().flat_map(|change| [0, 2, 4, 6, 8, 10].map(|arriving| (change, arriving)))
    {
        for history in 0..histories {
            let fates: Vec<Fate> = (0..MESSAGES).map(|at| FATES[history / FATES.len().pow(at) % FATES.len()]).collect();
            let run = std::panic::catch_unwind(|| run(change, arriving, &fates));
            assert!(run.is_ok(), "after {change:?} and {arriving} messages, a law is broken by {fates:?}");
        }
    }
}
