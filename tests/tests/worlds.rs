//! Random worlds keep every law, and are the same each time.

use std::collections::BTreeSet;

use tidegate_core::pipeline::event::SchedulerEventKind as Kind;
use tidegate_core::replay::{Header, Replay};
use tidegate_core::sim::world::World;
use tidegate_tests::worlds::{Ended, draw, pretty, replay, run};

fn ended(seed: u64) -> Ended {
    run(seed, |_| ()).unwrap_or_else(|wrong| panic!("world {seed}: {wrong}\nreplay with\n    {}", replay(seed)))
}

#[test]
fn three_hundred_random_worlds_keep_every_law_and_are_not_changed_by_being_watched() {
    let (mut endings, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for Ended { stop, seen: kinds, .. } in (0..300).map(ended) {
        endings.insert(stop);
        seen.extend(kinds.into_keys());
    }
    assert!(endings.len() >= 6, "the worlds are too much alike: {endings:?}");
    // The world starts every worker, answers for each once, and has no other caller between two steps.
    let never = [Kind::WorkerSpawnFailed, Kind::ReleaseDiagnostic, Kind::StaleSelection];
    let unseen: Vec<_> = Kind::ALL.iter().filter(|kind| !seen.contains(*kind) && !never.contains(kind)).collect();
    assert!(unseen.is_empty(), "no world comes across {unseen:?}");
}

#[test]
fn equal_seeds_give_equal_worlds_and_other_seeds_others() {
    for seed in 0..50 {
        assert_eq!(draw(seed), draw(seed));
        assert_eq!(ended(seed), ended(seed), "world {seed}");
        assert_ne!(pretty(&draw(seed)), pretty(&draw(seed + 1)));
    }
}

#[test]
fn the_log_of_a_random_world_crosses_a_file_and_is_replayed_to_the_same_digests() {
    for seed in 0..100 {
        let (header, mut world) = World::recorded(&draw(seed), seed).unwrap();
        while world.step() {}
        let text: Vec<String> =
            world.take_commands().iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
        let header: Header = serde_json::from_str(&serde_json::to_string(&header).unwrap()).unwrap();
        let mut replay = Replay::new(&header).unwrap();
        for line in text {
            replay.apply(&serde_json::from_str(&line).unwrap()).unwrap();
        }
        assert_eq!(replay.digest(), world.decision_digests(), "world {seed}");
    }
}

#[test]
fn every_built_in_scenario_keeps_every_law() {
    use tidegate_core::sim::scenario::builtin;
    for scenario in builtin() {
        let mut world = World::watched(&scenario, 1).unwrap();
        while world.step() {}
        assert_eq!(world.violation(), None, "{}", scenario.name);
        assert!(world.finished().is_some());
    }
}
