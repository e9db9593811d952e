//! The idle suite against its baseline: every figure is what it was, or somebody has read why not.

use tidegate_core::sim::suite::idle;
use tidegate_native::progress::Screen;
use tidegate_native::regress::{Baseline, run};

const BASELINE: &str = include_str!("../regress/idle.json");

#[test]
fn the_quick_set_meets_its_targets_and_has_the_figures_of_the_baseline() {
    let baseline = Baseline::parse(BASELINE).expect("the baseline is one");
    let outcome = run(idle::quick_cases(), Screen::Off).expect("every case runs");
    let missed: Vec<_> = outcome.checks.iter().filter(|check| !check.holds).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    let differences = baseline.compare(&outcome.figures, false);
    assert!(
        differences.is_empty(),
        "read these, and if they are meant: tidegate regress --update-baseline tests/regress/idle.json\n{differences:#?}"
    );
}
