//! Random worlds keep every law, and are the same each time.

use std::collections::BTreeSet;

use tidegate_core::pipeline::event::SchedulerEventKind as Kind;
use tidegate_core::replay::{Header, Replay};
use tidegate_core::sim::rng::Rng;
use tidegate_core::sim::scenario::{Intervention, Scenario};
use tidegate_core::sim::world::World;
use tidegate_tests::worlds::{Ended, draw, draw_change, pretty, replay, run};

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
fn a_world_that_is_changed_while_it_runs_is_the_world_of_a_scenario_with_the_changes_written_in() {
    let mut kinds = BTreeSet::new();
    for seed in 0..150 {
        let mut scenario = draw(seed);
        let mut live = World::watched(&scenario, seed).unwrap();
        let mut chance = Rng::new(seed);
        while live.step() {
            if chance.below(20) == 0 && live.changes().len() < 12 {
                let what = draw_change(chance.next_u64(), &scenario);
                kinds.insert(pretty_name(&what));
                live.change(what).unwrap();
            }
        }
        assert_eq!(live.violation(), None, "world {seed}");
        scenario.changes = live.changes().to_vec();
        let scenario: Scenario = serde_json::from_str(&serde_json::to_string(&scenario).unwrap()).unwrap();
        let mut again = World::new(&scenario, seed).unwrap();
        while again.step() {}
        assert_eq!((again.digest(), again.steps()), (live.digest(), live.steps()), "world {seed}");
        assert_eq!(again.finished(), live.finished(), "world {seed}");
    }
    assert_eq!(kinds.len(), 8, "every kind of change is tried: {kinds:?}");
}

/// The word that names a change in a file.
fn pretty_name(what: &Intervention) -> String {
    serde_json::to_value(what).unwrap()["set"].as_str().unwrap().to_owned()
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
