//! The idle suite against its baseline: every figure is what it was, or somebody has read why not.

use tidegate_core::sim::scenario::{CallbackSpec, Scenario};
use tidegate_core::sim::suite::idle::{self, LowerBound};
use tidegate_core::sim::world::World;
use tidegate_native::app::report::progress::Screen;
use tidegate_native::app::simulate::regress::idle::{Baseline, run};
use tidegate_tests::worlds::draw;

const BASELINE: &str = include_str!("../../regress/idle.json");

/// Takes seconds by itself, and is run by `tidegate regress` only.
const SLOW: &str = "very-many/row-groups";

#[test]
fn the_suite_meets_its_targets_and_has_the_figures_of_the_baseline() {
    let baseline = Baseline::parse(BASELINE).expect("the baseline is one");
    let cases = idle::cases().into_iter().filter(|case| case.name() != SLOW).collect();
    let outcome = run(cases, Screen::Off).expect("every case runs");
    let missed: Vec<_> = outcome.checks.iter().filter(|check| !check.holds).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    let differences = baseline.compare(&outcome.figures, false);
    assert!(
        differences.is_empty(),
        "read these, and if they are meant: tidegate regress --update-baseline tests/regress/idle.json\n{differences:#?}"
    );
}

/// A random scenario in which every task has to be made: nothing skips, fails for good, leaves out or cancels.
fn whole_world(seed: u64) -> Scenario {
    let mut scenario = draw(seed);
    for column in &mut scenario.columns {
        (column.skip_share, column.fail_share, column.lose_share, column.fatal_at) = (0.0, 0.0, 0.0, None);
    }
    Scenario {
        shutdown_rate: None,
        rate_limit_patience: None,
        done_row_groups: Vec::new(),
        pre_batch: None,
        post_batch: None,
        checkpoint: CallbackSpec::default(),
        drain_at: None,
        cancel_at: None,
        ..scenario
    }
}

#[test]
fn no_random_run_that_makes_everything_is_faster_than_its_lower_bound() {
    let (mut whole, mut tight) = (0, 0);
    for seed in 0..400 {
        let scenario = whole_world(seed);
        let bound = LowerBound::of(&scenario).expect("it is a scenario").at_least;
        let mut world = World::accounted(&scenario, seed).expect("it runs");
        while world.step() {}
        let report = world.finished().expect("it ends");
        if report.rows_out < scenario.rows {
            continue;
        }
        whole += 1;
        let wall = report.elapsed();
        assert!(wall >= bound, "seed {seed}: {wall} is below the bound {bound}");
        tight += u32::from(wall.as_nanos() <= bound.as_nanos() * 11 / 10);
    }
    assert!(whole > 200 && tight > 40, "{whole} made everything, {tight} of them within a tenth of the bound");
}
