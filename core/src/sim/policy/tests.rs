use alloc::boxed::Box;
use alloc::vec::Vec;

use super::*;
use crate::task::{
    Allowed, BoundedBorrow, BoundedBorrowConfig, DenialReason, PolicyView, Refusal, StrictFair, TaskPolicy,
};

/// No group ever holds more than its share, whether or not another one wants the rest.
struct NeverBorrows;

impl TaskPolicy for NeverBorrows {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<Allowed, Refusal> {
        let is_within = |(resource, amount)| {
            // Alone, a group is measured against one of equal weight: half.
            view.held(resource) + amount <= view.limit(resource).div_ceil(2)
        };
        if view.demands().all(is_within) { Ok(Allowed::unlimited()) } else { Err(DenialReason::Policy.into()) }
    }
}

/// Serves the group that came first, as long as it has anything to do.
struct OneGroupOnly;

impl TaskPolicy for OneGroupOnly {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<Allowed, Refusal> {
        let (gpu, _) = view.demands().last().expect("a task asks for something");
        let others_hold = view.leased(gpu) > view.held(gpu) && view.resource_name(gpu) == "gpu";
        if others_hold { Err(DenialReason::Policy.into()) } else { Ok(Allowed::unlimited()) }
    }
}

fn report(policy: impl TaskPolicy + Send + 'static) -> PolicyReport {
    PolicyReport::run(&two_groups(), 1, Box::new(policy)).expect("the scenario runs")
}

fn bad(report: &PolicyReport) -> Vec<Criterion> {
    let bad = report.results.iter().filter(|result| result.judgement.is_bad());
    bad.map(|result| result.criterion).collect()
}

#[test]
fn strict_fairness_is_judged_good_by_every_criterion() {
    let report = report(StrictFair);
    assert!(report.results.iter().all(|result| result.judgement == Judgement::Good), "{report}");
}

#[test]
fn bounded_borrowing_is_judged_good_by_every_criterion() {
    let report = report(BoundedBorrow::new(BoundedBorrowConfig::default()).expect("valid settings"));
    assert!(report.results.iter().all(|result| result.judgement == Judgement::Good), "{report}");
}

#[test]
fn a_policy_that_never_lends_completes_and_is_judged_bad() {
    let report = report(NeverBorrows);
    assert_eq!((report.stop, &report.violation), (StopKind::Completed, &None));
    assert_eq!(bad(&report), [Criterion::Borrowing, Criterion::WallTime]);
    assert_eq!(report.groups.iter().map(|group| group.borrowed_slot_ns).sum::<u128>(), 0);
}

#[test]
fn a_policy_that_serves_one_group_completes_and_is_judged_bad() {
    let report = report(OneGroupOnly);
    assert_eq!((report.stop, &report.violation), (StopKind::Completed, &None));
    assert_eq!(bad(&report), [Criterion::Service, Criterion::Starvation, Criterion::Repayment]);
}

#[test]
fn a_world_without_an_account_of_its_groups_and_one_that_goes_on_are_refused() {
    let of = |world: &World| PolicyReport::of(&two_groups(), world, Thresholds::default()).err();
    let accounted = World::accounted(&two_groups(), 1).expect("it runs");
    assert_eq!(of(&accounted), Some(PolicyReportError::NoAccount));
    let mut judged = World::judged(&two_groups(), 1).expect("it runs");
    assert_eq!(of(&judged), Some(PolicyReportError::Running));
    while judged.step() {}
    assert_eq!(of(&judged), None);
}

#[test]
fn a_weight_counts_from_the_start_and_from_when_it_is_changed() {
    use crate::sim::scenario::{Change, Intervention};
    let service = |scenario: &Scenario| {
        let mut world = World::judged(scenario, 1).expect("it runs");
        while world.step() {}
        world.service().expect("it is accounted for").groups.swap_remove(0)
    };
    let mut heavy = two_groups();
    heavy.columns[0].weight = 3.0;
    let what = Intervention::Weight { column: "long".to_string(), weight: 3.0 };
    let changed = Scenario { changes: [Change { at: Duration::ZERO, what }].into(), ..two_groups() };
    let [light, heavy, changed] = [&two_groups(), &heavy, &changed].map(service);
    // Half of eight slots, against three quarters of them.
    let slots = |group: &GroupService| group.entitled_slot_ns / u128::from(group.contended_ns);
    assert_eq!((slots(&light), slots(&heavy), slots(&changed)), (4, 6, 6));
}

#[test]
fn a_report_prints_its_groups_and_its_criteria_as_tables() {
    let text = report(OneGroupOnly).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "policy in `two-groups`: BAD");
    assert!(lines[3].starts_with("  long   1       gpu         60.000ms   420.000ms  200.0 %  0ns "), "{text}");
    let result = "  starvation  BAD      short  480.000ms                       at most 180.000ms";
    assert!(lines.contains(&result), "{text}");
    assert!(lines.iter().all(|line| line.len() <= 110 && line.trim_end() == *line), "{text}");
}

#[test]
fn the_guide_shows_a_report_as_it_is() {
    let guide = include_str!("../../../docs/testing-policies.md");
    assert!(guide.contains(&report(NeverBorrows).to_string()), "{}", report(NeverBorrows));
}
