use super::tests::millis;
use super::*;
use crate::limit::{LimitChoice, TideConfig};
use crate::sim::scenario::builtin;

fn named(name: &str) -> Scenario {
    builtin().into_iter().find(|scenario| scenario.name == name).expect("a built-in scenario")
}

fn finish(scenario: &Scenario) -> Sample {
    let mut world = World::watched(scenario, 1).unwrap();
    while world.step() {}
    assert_eq!(world.violation(), None);
    world.sample()
}

#[test]
fn in_a_storm_most_calls_are_refused_without_a_limit_and_few_with_one() {
    let storm = named("storm");
    let mut world = World::new(&storm, 1).unwrap();
    world.advance_to(Instant::ZERO + millis(4));
    let first = world.sample().providers.remove(0);
    assert_eq!((first.limit, first.in_flight, first.accepted, first.refused), (40, 40, 8, 32));
    let end = finish(&storm);
    let stormy = &end.providers[0];
    assert_eq!((stormy.limit, stormy.accepted, end.rows_done), (40, 600, 300), "it completes all the same");
    assert!(stormy.refused > 3 * stormy.accepted, "{} refused", stormy.refused);
    let mut calm = storm;
    calm.models[0].algorithm = LimitChoice::Aimd;
    let adapted = finish(&calm);
    assert!(adapted.providers[0].refused * 10 < stormy.refused, "{} refused", adapted.providers[0].refused);
    assert!(adapted.at.as_nanos() * 10 < end.at.as_nanos() * 9, "{} against {}", adapted.at, end.at);
}

#[test]
fn a_rate_is_met_by_a_pace_with_a_handful_of_refusals_and_by_a_fixed_limit_with_thousands() {
    let finish_with = |algorithm| {
        let mut scenario = named("rate-limit");
        scenario.models[0].algorithm = algorithm;
        finish(&scenario)
    };
    let (tide, fixed) =
        (finish_with(LimitChoice::Tide(TideConfig::default())), finish_with(LimitChoice::Fixed { limit: 32 }));
    assert!(tide.providers[0].refused < 20, "{} refused", tide.providers[0].refused);
    assert!(fixed.providers[0].refused > 1_000, "{} refused", fixed.providers[0].refused);
    assert!(tide.at <= fixed.at, "{} against {}", tide.at, fixed.at);
}

#[test]
fn the_first_group_borrows_six_slots_and_repays_when_the_second_comes_and_then_vice_versa() {
    let mut world = World::watched(&named("borrow-and-repay"), 1).unwrap();
    let mut at = |instant| {
        world.advance_to(Instant::ZERO + millis(instant));
        let groups = world.sample().groups;
        let of = |name: &str| groups.iter().find(|group| group.name == name).expect("a group of the scenario");
        [of("ample/first"), of("ample/second")].map(|group| (group.running, group.debt))
    };
    assert_eq!(at(3_900), [(14, 6), (0, 0)], "its share of eight, and six borrowed");
    let [first, second] = at(4_010);
    assert!(first.0 < 14 || second.0 >= 2, "the second starts at once with its reserved slots: {first:?} {second:?}");
    let [first, second] = at(4_200);
    assert!(first.1 < 6 && second.0 > 2, "released slots repay the debt first: {first:?} {second:?}");
    for (running, debt) in at(6_000) {
        assert!(
            (7..=9).contains(&running) && debt <= 1,
            "then each has its share, give or take one: {running} running, debt {debt}"
        );
    }
    assert_eq!(at(15_000), [(0, 0), (14, 6)], "and the second borrows when the first has no work left");
    while world.step() {}
    assert_eq!(world.violation(), None);
}

#[test]
fn ten_thousand_calls_are_in_flight_at_once_for_ten_seconds() {
    let mut world = World::new(&named("crowd"), 1).unwrap();
    for seconds in 1..=10 {
        world.advance_to(Instant::ZERO + Duration::from_secs(seconds));
        let sample = world.sample();
        let crowded = &sample.providers[0];
        assert!(crowded.in_flight >= 9_900 && crowded.refused == 0, "{} after {seconds} s", crowded.in_flight);
    }
}

#[test]
fn an_outage_of_four_seconds_costs_no_row_and_few_calls() {
    let end = finish(&named("outage"));
    assert_eq!((end.rows_done, end.rows_dropped), (1_200, 0));
    let shaky = &end.providers[0];
    assert_eq!(shaky.accepted, 2_400, "two columns, and no call twice");
}
