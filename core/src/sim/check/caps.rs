//! Checks the limits of resources, of workers and of row groups.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use super::open_row_groups::{OpenRowGroups, Rules, task_of};
use super::{Check, CheckResult, Law, TaskName, ensure};
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};

/// The leased amount of each resource, and the number of row groups in progress.
#[derive(Clone, Debug)]
pub(super) struct Caps {
    /// By resource. Index 0 is `submission`.
    limits: Vec<u32>,
    /// By resource: the leased amount.
    held: Vec<u32>,
    /// The tasks that hold their resources. A yielded task holds none.
    holders: BTreeSet<TaskName>,
    /// The number of row groups in progress.
    row_groups: u32,
    /// How many row groups may be in progress: the number that the control loop emitted last, or the setting
    /// if there is no control loop.
    target: u32,
}

impl Caps {
    pub(super) fn of(rules: &Rules) -> Self {
        let config = &rules.config;
        let named = config.resources.iter().map(|(_, limit)| *limit);
        let limits: Vec<u32> = core::iter::once(config.submission_limit).chain(named).collect();
        Self {
            held: alloc::vec![0; limits.len()],
            limits,
            holders: BTreeSet::new(),
            row_groups: 0,
            target: config.adaptive.map_or(config.row_groups, |adaptive| adaptive.initial),
        }
    }

    fn take(&mut self, rules: &Rules, task: TaskName) -> CheckResult {
        if !self.holders.insert(task) {
            return Ok(());
        }
        for (resource, amount) in &rules.demands[task.column.index()] {
            self.held[*resource] += amount;
            let (held, limit) = (self.held[*resource], self.limits[*resource]);
            ensure(held <= limit, || format!("{held} of resource {resource} are held; its limit is {limit}"))?;
        }
        Ok(())
    }

    fn give_back(&mut self, rules: &Rules, task: TaskName) {
        if self.holders.remove(&task) {
            for (resource, amount) in &rules.demands[task.column.index()] {
                self.held[*resource] -= amount;
            }
        }
    }
}

impl Check for Caps {
    const LAW: Law = Law::Caps;

    fn on_event(&mut self, rules: &Rules, _: &OpenRowGroups, event: &SchedulerEvent) -> CheckResult {
        match (event.payload, task_of(event)) {
            (
                SchedulerEventPayload::TaskLeaseAcquired { .. } | SchedulerEventPayload::TaskResumed { .. },
                Some(task),
            ) => {
                self.take(rules, task)?;
            }
            (
                SchedulerEventPayload::TaskLeaseReleased { .. } | SchedulerEventPayload::TaskYielded { .. },
                Some(task),
            ) => {
                self.give_back(rules, task);
            }
            (SchedulerEventPayload::RowGroupTargetChanged { to, .. }, _) => {
                let cap = rules.config.row_groups;
                ensure((1..=cap).contains(&to), || format!("the target is {to} row groups; the cap is {cap}"))?;
                self.target = to;
            }
            (SchedulerEventPayload::RowGroupAdmitted { active, .. }, _) => {
                self.row_groups += 1;
                let (in_progress, target) = (self.row_groups, self.target);
                ensure(active == in_progress, || {
                    format!("the event counts {active} active row groups instead of {in_progress}")
                })?;
                ensure(in_progress <= target, || {
                    format!("{in_progress} row groups are in progress; the target is {target}")
                })?;
            }
            (
                SchedulerEventPayload::RowGroupCheckpointed { .. } | SchedulerEventPayload::RowGroupDiscarded { .. },
                _,
            ) => {
                self.row_groups = self.row_groups.saturating_sub(1);
            }
            _ => {}
        }
        Ok(())
    }
}
