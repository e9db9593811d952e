use alloc::boxed::Box;
use alloc::vec::Vec;

use super::*;
use crate::task::{
    BoundedBorrow, BoundedBorrowConfig, PolicyDenial, PolicyGrant, PolicyView, StrictFair, TaskDenialReason, TaskPolicy,
};

/// A policy under which no group ever holds more than its share, whether or not another group needs the
/// rest.
struct NeverBorrows;

impl TaskPolicy for NeverBorrows {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
        let is_within = |(resource, amount)| {
            // Without competitors, the share is computed against one group of equal weight: half.
            view.held(resource) + amount <= view.limit(resource).div_ceil(2)
        };
        if view.demands().all(is_within) { Ok(PolicyGrant::unlimited()) } else { Err(TaskDenialReason::Policy.into()) }
    }
}

/// A policy that serves only the group that holds `gpu` first, as long as that group has work.
struct OneGroupOnly;

impl TaskPolicy for OneGroupOnly {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
        let (gpu, _) = view.demands().last().expect("a task needs at least one resource");
        let others_hold = view.leased(gpu) > view.held(gpu) && view.resource_name(gpu) == "gpu";
        if others_hold { Err(TaskDenialReason::Policy.into()) } else { Ok(PolicyGrant::unlimited()) }
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
fn a_policy_that_never_lets_groups_borrow_completes_and_is_judged_bad() {
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
fn a_world_without_an_account_of_its_groups_and_a_running_world_are_rejected() {
    let of = |world: &World| PolicyReport::of(&two_groups(), world, Thresholds::default()).err();
    let accounted = World::accounted(&two_groups(), 1).expect("a valid scenario");
    assert_eq!(of(&accounted), Some(PolicyReportError::NoAccount));
    let mut judged = World::judged(&two_groups(), 1).expect("a valid scenario");
    assert_eq!(of(&judged), Some(PolicyReportError::Running));
    while judged.step() {}
    assert_eq!(of(&judged), None);
}

#[test]
fn a_weight_applies_from_the_start_and_from_the_instant_of_its_change() {
    use crate::sim::scenario::{Change, Intervention};
    let service = |scenario: &Scenario| {
        let mut world = World::judged(scenario, 1).expect("a valid scenario");
        while world.step() {}
        world.service().expect("the world has an account").groups.swap_remove(0)
    };
    let mut heavy = two_groups();
    heavy.columns[0].weight = 3.0;
    let what = Intervention::Weight { column: "long".to_string(), weight: 3.0 };
    let changed = Scenario { changes: [Change { at: Duration::ZERO, what }].into(), ..two_groups() };
    let [light, heavy, changed] = [&two_groups(), &heavy, &changed].map(service);
    // Half of the eight slots, compared to three quarters of them.
    let slots = |group: &GroupService| group.entitled_slot_ns / u128::from(group.contended_ns);
    assert_eq!((slots(&light), slots(&heavy), slots(&changed)), (4, 6, 6));
}

#[test]
fn a_report_prints_its_groups_and_its_criteria_as_tables() {
    let text = report(OneGroupOnly).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "policy in `two-groups`: BAD");
    assert!(lines[3].starts_with("  long   1       gpu         60.000ms   420.000ms  200.0 %  "), "{text}");
    let result = "  starvation  BAD        short  480.000ms                       at most 180.000ms";
    assert!(lines.contains(&result), "{text}");
    assert!(lines.iter().all(|line| line.len() <= 110 && line.trim_end() == *line), "{text}");
}

#[test]
fn the_guide_shows_an_actual_report() {
    let guide = include_str!("../../../docs/testing-policies.md");
    assert!(guide.contains(&report(NeverBorrows).to_string()), "{}", report(NeverBorrows));
}
