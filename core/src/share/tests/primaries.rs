//! Two primaries after a failover: at most twice the limit, and once the limit afterwards.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::super::*;
use crate::limit::LimitChoice;
use crate::sim::rng::Rng;
use crate::sim::sharing::{DriftingClock, SharingConfig, SharingObserver, SharingWorld};
use crate::time::{Duration, Instant};

/// Counts the calls of the members that reach each primary.
#[derive(Debug, Default)]
struct Sides {
    limit: u32,
    /// Whether a member reaches the new primary, and its calls at the provider.
    members: BTreeMap<MemberId, (bool, u32)>,
    /// The latest start on each side.
    last_start: BTreeMap<bool, Instant>,
    /// The most calls at once since it was last set to zero.
    most: u32,
}

impl Sides {
    fn in_flight(&self, of_side: impl Fn(bool) -> bool) -> u32 {
        self.members.values().filter(|(side, _)| of_side(*side)).map(|(_, calls)| calls).sum()
    }
}

impl SharingObserver for Sides {
    fn on_member(&mut self, id: MemberId, _: Instant, _: DriftingClock) {
        self.members.insert(id, (false, 0));
    }

    fn on_call(&mut self, id: MemberId, now: Instant, _: u64, _: u32) {
        let member = self.members.get_mut(&id).expect("the member is known");
        member.1 += 1;
        let side = member.0;
        self.last_start.insert(side, now);
        let (here, all) = (self.in_flight(|of| of == side), self.in_flight(|_| true));
        assert!(here <= self.limit, "{here} calls of the members at one primary, limit {}", self.limit);
        self.most = self.most.max(all);
    }

    fn on_call_ended(&mut self, id: MemberId, _: u64) {
        self.members.get_mut(&id).expect("the member is known").1 -= 1;
    }
}

/// Runs a world with two primaries for a time, and returns whether more calls than the limit were in flight.
fn run(seed: u64) -> bool {
    let mut rng = Rng::new(seed);
    let limit = 2 + rng.below(12) as u32;
    let share = ShareConfig {
        ttl: Duration::from_secs(2),
        takeover_after: Duration::from_millis(700),
        takeover_jitter: Duration::from_millis(300),
        call_timeout: Duration::from_secs(2),
        on_loss: OnLoss::Stop,
        ..ShareConfig::default()
    };
    let longest_call = Duration::from_millis([50, 300, 1_500][rng.below(3) as usize]);
    let config = SharingConfig {
        share,
        choice: LimitChoice::Fixed { limit },
        cap: limit,
        capacity: 2 * limit,
        longest_call,
        lost: [0, 20][rng.below(2) as usize],
        repeated: [0, 100][rng.below(2) as usize],
        delay: Duration::from_millis([2, 20, 200][rng.below(3) as usize]),
        step_timeout: Duration::from_millis(400),
        clocks_drift: rng.below(2) == 0,
        weights: alloc::vec![1, 1 + rng.below(4) as u32],
        ..SharingConfig::default()
    };
    let sides = Sides { limit, ..Sides::default() };
    let mut world = SharingWorld::new(config, rng.fork(1), sides).expect("valid");
    let processes: Vec<usize> = (0..2 + rng.below(4)).map(|_| world.start_process(limit)).collect();
    world.advance_to(world.now + Duration::from_millis(1_000 + rng.below(4_000)));
    assert!(world.observer.most <= limit, "one primary: {} calls", world.observer.most);

    let moved: Vec<usize> = processes.iter().copied().filter(|p| *p > 0 && (*p == 1 || rng.below(2) == 0)).collect();
    for p in &moved {
        world.observer.members.get_mut(&world.id(*p)).expect("it is one").0 = true;
    }
    world.split(&moved, Duration::from_millis(rng.below(500)));
    let began = world.now;
    world.observer.most = 0;
    world.advance_to(began + Duration::from_millis(500 + rng.below(20_000)));
    // Each side was within the limit.
    let most = world.observer.most;
    if world.now - began > Duration::from_secs(15) {
        let late = began + Duration::from_secs(4);
        let started = [false, true].map(|side| world.observer.last_start.get(&side).copied());
        assert!(started.iter().all(|start| start.is_some_and(|start| start > late)), "both go on: {started:?}");
    }

    world.end_split();
    world.observer.members.values_mut().for_each(|(side, _)| *side = false);
    // Each side still has its leases: the law for one primary holds again once they have lapsed.
    world.observer.limit = 2 * limit;
    world.config.lost = 0;
    world.config.delay = Duration::from_millis(2);
    world.advance_to(world.now + share.ttl + share.reclaim_after() + longest_call);
    (world.observer.limit, world.observer.most) = (limit, 0);
    let began = world.now;
    world.advance_to(began + Duration::from_secs(3 + processes.len() as u64));
    assert!(world.observer.most <= limit && world.observer.most > 0, "one primary: {} calls", world.observer.most);
    most > limit
}

#[test]
fn two_primaries_have_at_most_twice_the_limit_in_flight_and_one_has_the_limit_again() {
    let mut beyond = 0;
    for seed in 0..400 {
        let exceeds = std::panic::catch_unwind(|| run(seed));
        assert!(exceeds.is_ok(), "the world of seed {seed} breaks a law");
        beyond += u32::from(exceeds.is_ok_and(|exceeds| exceeds));
    }
    assert!(beyond > 0, "in no world are both sides busy");
}
