//! The result of each criterion: its figure, compared with its threshold.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Criterion, CriterionResult, Judgement, PolicyReport};
use crate::observe::GroupService;
use crate::pipeline::event::StopKind;
use crate::time::Duration;

/// The input of the criteria.
pub(super) struct CriteriaInput<'a> {
    /// A report without its results.
    pub(super) report: &'a PolicyReport,
    /// The most workers that ran at the same time.
    pub(super) most_workers: u32,
}

impl CriteriaInput<'_> {
    pub(super) fn results(&self) -> Vec<CriterionResult> {
        [
            self.run(),
            self.progress(),
            self.service(),
            self.starvation(),
            self.borrowing(),
            self.repayment(),
            self.wall_time(),
        ]
        .into()
    }

    fn run(&self) -> CriterionResult {
        let completes = self.report.stop == StopKind::Completed;
        let found = match &self.report.violation {
            Some(violation) => violation.clone(),
            None if completes => "completed, no law broken".to_string(),
            None => format!("ended as {:?}", self.report.stop),
        };
        let judgement = Judgement::good_if(completes && self.report.violation.is_none());
        result(Criterion::Run, judgement, None, found, "completed, no law broken".to_string())
    }

    fn progress(&self) -> CriterionResult {
        let overrides = self.report.liveness_overrides;
        let found = format!("{overrides} started against the policy");
        result(Criterion::Progress, Judgement::good_if(overrides == 0), None, found, "0".to_string())
    }

    fn service(&self) -> CriterionResult {
        let least = self.report.thresholds.service_percent;
        let tasks = self.report.thresholds.service_after_tasks;
        let shown = self.report.groups.iter().filter(|group| group.contended_ns > tasks_of(group, tasks));
        let worst =
            shown.filter_map(|group| Some((service_permille(group)?, group))).min_by_key(|(service, _)| *service);
        let threshold = format!("at least {least} % of the fair share");
        match worst {
            Some((service, group)) => {
                let judgement = Judgement::good_if(service >= u64::from(least) * 10);
                result(Criterion::Service, judgement, Some(group), percent(service), threshold)
            }
            None => {
                result(Criterion::Service, Judgement::NotShown, None, "no group competed for long".into(), threshold)
            }
        }
    }

    /// Reports the group whose longest starvation is the largest fraction of its threshold.
    fn starvation(&self) -> CriterionResult {
        let worst = self.worst(|group| (group.longest_starved_ns, self.longest_starvation(group)));
        let most = worst.map_or(0, |group| self.longest_starvation(group));
        let found = worst.map_or(0, |group| group.longest_starved_ns);
        let threshold = format!("at most {}", nanos(most));
        result(Criterion::Starvation, Judgement::good_if(found <= most), worst, nanos(found), threshold)
    }

    /// Returns the threshold of a group's starvation, in nanoseconds:
    ///
    /// ```text
    /// task length x (starvation_tasks + ceil(weights of the other groups / (own weight x most workers)))
    /// ```
    ///
    /// The second term is one round. Per task of the group, the other groups start tasks in proportion to
    /// their weights, and as many tasks run at the same time as there were workers.
    fn longest_starvation(&self, group: &GroupService) -> u64 {
        let all: u64 = self.report.groups.iter().map(|group| group.weight_permille).sum();
        let others = all.saturating_sub(group.weight_permille);
        let at_once = group.weight_permille.saturating_mul(u64::from(self.most_workers)).max(1);
        let tasks = u64::from(self.report.thresholds.starvation_tasks) + others.div_ceil(at_once);
        group.longest_hold_ns.saturating_mul(tasks)
    }

    fn borrowing(&self) -> CriterionResult {
        let least = self.report.thresholds.borrowing_percent;
        let sum = |of: fn(&GroupService) -> u128| self.report.groups.iter().map(of).sum::<u128>();
        let [borrowable, borrowed] = [sum(|group| group.borrowable_slot_ns), sum(|group| group.borrowed_slot_ns)];
        let threshold = format!("at least {least} % of what could be borrowed");
        if borrowable == 0 {
            let found = "nothing could be borrowed".to_string();
            return result(Criterion::Borrowing, Judgement::NotShown, None, found, threshold);
        }
        let used = (borrowed * 1_000 / borrowable) as u64;
        let found = format!("{} of {} of slot time", percent(used), slot_time(borrowable));
        result(Criterion::Borrowing, Judgement::good_if(used >= u64::from(least) * 10), None, found, threshold)
    }

    /// Reports the group whose longest time above its fair share is the largest fraction of its threshold.
    fn repayment(&self) -> CriterionResult {
        let most = |group: &GroupService| tasks_of(group, self.report.thresholds.repayment_tasks);
        let worst = self.worst(|group| (group.longest_overdrawn_ns, most(group)));
        let found = worst.map_or(0, |group| group.longest_overdrawn_ns);
        let most = worst.map_or(0, most);
        let threshold = format!("at most {}", nanos(most));
        result(Criterion::Repayment, Judgement::good_if(found <= most), worst, nanos(found), threshold)
    }

    fn wall_time(&self) -> CriterionResult {
        let PolicyReport { wall_ns, lower_bound_ns, path_ns, thresholds, .. } = *self.report;
        let most = u128::from(lower_bound_ns) * u128::from(thresholds.wall_percent) / 100 + u128::from(path_ns);
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let found = format!("{}, bound {}", nanos(wall_ns), nanos(lower_bound_ns));
        result(
            Criterion::WallTime,
            Judgement::good_if(wall_ns <= most),
            None,
            found,
            format!("at most {}", nanos(most)),
        )
    }

    /// Returns the group whose figure is the largest fraction of its threshold.
    fn worst(&self, figure: impl Fn(&GroupService) -> (u64, u64)) -> Option<&GroupService> {
        let part = |group: &&GroupService| {
            let (found, most) = figure(group);
            u128::from(found) * 1_000_000 / u128::from(most.max(1))
        };
        self.report.groups.iter().max_by_key(part)
    }
}

/// Returns the time of `count` tasks of a group, in nanoseconds.
fn tasks_of(group: &GroupService, count: u32) -> u64 {
    group.longest_hold_ns.saturating_mul(u64::from(count))
}

fn result(
    criterion: Criterion,
    judgement: Judgement,
    group: Option<&GroupService>,
    found: String,
    threshold: String,
) -> CriterionResult {
    CriterionResult { criterion, judgement, group: group.map(|group| group.group.clone()), found, threshold }
}

/// Returns what a group received, in thousandths of its fair share. `None` if it was entitled to nothing.
pub(super) fn service_permille(group: &GroupService) -> Option<u64> {
    let service = (group.received_slot_ns * 1_000).checked_div(group.entitled_slot_ns)?;
    Some(u64::try_from(service).unwrap_or(u64::MAX))
}

pub(super) fn percent(permille: u64) -> String {
    format!("{}.{} %", permille / 10, permille % 10)
}

pub(super) fn nanos(nanos: u64) -> String {
    Duration::from_nanos(nanos).to_string()
}

/// Formats slot-nanoseconds as the time in which one slot would give them.
pub(super) fn slot_time(slot_ns: u128) -> String {
    nanos(u64::try_from(slot_ns).unwrap_or(u64::MAX))
}
