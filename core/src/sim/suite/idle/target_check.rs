//! The checks of a case: the requirements common to all cases, and its targets.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Serialize;

use super::figures::CaseFigures;
use super::{IdleCase, Target};
use crate::time::Duration;

/// The check of one requirement on a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TargetCheck {
    /// The name of the case.
    pub case: String,
    /// The requirement, in words.
    pub what: String,
    /// The measured value, in words.
    pub found: String,
    /// Whether the requirement is met.
    pub holds: bool,
}

/// Checks the figures of a set of cases against the requirements, in the order of the cases.
///
/// `figures` are those of `cases`, in the same order. The check of a target that refers to a case outside the
/// set fails.
#[must_use]
pub fn judge(cases: &[IdleCase], figures: &[CaseFigures]) -> Vec<TargetCheck> {
    let mut checks = Vec::new();
    for (case, own) in cases.iter().zip(figures) {
        let mut check = |what: String, found: String, holds: bool| {
            checks.push(TargetCheck { case: own.name.clone(), what, found, holds });
        };
        for (what, found, holds) in common_checks(case, own) {
            check(what.to_string(), found, holds);
        }
        for target in &case.targets {
            let (what, found, holds) = check_target(*target, own, figures);
            check(what, found, holds);
        }
    }
    checks
}

/// Checks the requirements common to all cases.
fn common_checks(case: &IdleCase, own: &CaseFigures) -> [(&'static str, String, bool); 7] {
    let none = || "none".to_string();
    let above =
        own.resources.iter().find(|resource| resource.overhang_slot_ns > 0 || resource.max_leased > resource.limit);
    [
        ("the measured resource exists", case.about.clone(), own.about.is_some()),
        ("no law is broken", own.violation.clone().unwrap_or_else(none), own.violation.is_none()),
        (
            "all rows are made",
            format!("{} out, {} dropped", own.rows_out, own.rows_dropped),
            own.rows_out == case.scenario.rows && own.rows_dropped == 0,
        ),
        ("all idle time is starved or frontier idle time", own.is_partitioned.to_string(), own.is_partitioned),
        ("no limit is exceeded", above.map_or_else(none, |resource| resource.name.clone()), above.is_none()),
        (
            "no lease or waiter is left over, and no worker waited without a lease",
            format!("{} leases and waiters, {} hidden waiters", own.left_over, own.hidden_waiters),
            own.left_over == 0 && own.hidden_waiters == 0,
        ),
        (
            "the wall time is not below the lower bound",
            format!("{} against {}", nanos(own.wall_ns), nanos(own.bound_ns)),
            own.wall_ns >= own.bound_ns,
        ),
    ]
}

/// Checks one target. Returns the requirement, the measured value, and whether it is met.
fn check_target(target: Target, own: &CaseFigures, all: &[CaseFigures]) -> (String, String, bool) {
    let other = |name: &str| all.iter().find(|figures| figures.name == name);
    let missing = || "it was not run".to_string();
    match target {
        Target::Utilisation { at_least_ppm } => {
            let main = own.main();
            let what = format!("`{}` is used at least {}", main.name, percent(at_least_ppm));
            (what, percent(main.utilisation_ppm()), main.utilisation_ppm() >= at_least_ppm)
        }
        Target::AsBusyAs { case, within_ppm } => {
            let (main, theirs) =
                (own.main().utilisation_ppm(), other(case).map(|other| other.main().utilisation_ppm()));
            let what = format!("it is as busy as {case}, within {}", percent(within_ppm));
            let found = theirs.map_or_else(missing, |theirs| format!("{} against {}", percent(main), percent(theirs)));
            (what, found, theirs.is_some_and(|theirs| main.saturating_add(within_ppm) >= theirs))
        }
        Target::FasterThan { case } => {
            let theirs = other(case).map(|other| other.wall_ns);
            let found =
                theirs.map_or_else(missing, |theirs| format!("{} against {}", nanos(own.wall_ns), nanos(theirs)));
            (format!("it is faster than {case}"), found, theirs.is_some_and(|theirs| own.wall_ns < theirs))
        }
        Target::NoSlowerThan { case } => {
            let theirs = other(case).map(|other| other.wall_ns);
            let found =
                theirs.map_or_else(missing, |theirs| format!("{} against {}", nanos(own.wall_ns), nanos(theirs)));
            (format!("it is no slower than {case}"), found, theirs.is_some_and(|theirs| own.wall_ns <= theirs))
        }
        Target::NearBound { within_ppm } => {
            let found = format!("{} against {}", nanos(own.wall_ns), nanos(own.bound_ns));
            let holds = own.ratio_ppm() <= 1_000_000 + u64::from(within_ppm);
            (format!("its wall time is within {} of the lower bound", percent(within_ppm)), found, holds)
        }
        Target::Greedy => {
            let most = own.bound_ns.saturating_add(own.path_ns);
            let found = format!("{} against {}", nanos(own.wall_ns), nanos(most));
            ("its wall time is at most the lower bound plus one longest path".to_string(), found, own.wall_ns <= most)
        }
        Target::ShorterGap { case } => {
            let theirs = other(case).map(|other| other.gap_p95_ns);
            let found =
                theirs.map_or_else(missing, |theirs| format!("{} against {}", nanos(own.gap_p95_ns), nanos(theirs)));
            let holds = theirs.is_some_and(|theirs| own.gap_p95_ns < theirs);
            (format!("tasks that are ready start sooner than in {case}"), found, holds)
        }
    }
}

fn percent(ppm: u32) -> String {
    format!("{}.{:02} %", ppm / 10_000, ppm / 100 % 100)
}

fn nanos(nanos: u64) -> String {
    Duration::from_nanos(nanos).to_string()
}
