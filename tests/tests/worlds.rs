//! Random worlds keep every law, and are the same each time.

use tidegate_tests::worlds::{Ended, draw, pretty, replay, run};

fn ended(seed: u64) -> Ended {
    run(seed, |_| ()).unwrap_or_else(|wrong| panic!("world {seed}: {wrong}\nreplay with\n    {}", replay(seed)))
}

#[test]
fn three_hundred_random_worlds_keep_every_law_and_are_not_changed_by_being_watched() {
    let endings: std::collections::BTreeSet<_> = (0..300).map(|seed| ended(seed).stop).collect();
    assert!(endings.len() >= 6, "the worlds are too much alike: {endings:?}");
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
fn every_built_in_scenario_keeps_every_law() {
    use tidegate_core::sim::{scenario::builtin, world::World};
    for scenario in builtin() {
        let mut world = World::watched(&scenario, 1).unwrap();
        while world.step() {}
        assert_eq!(world.violation(), None, "{}", scenario.name);
        assert!(world.finished().is_some());
    }
}
