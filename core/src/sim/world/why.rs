//! Explains why something waits, from the state that the scheduler decides by.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::activity::Worker;
use super::describe::{self, At};
use super::{Provider, World};
use crate::request::ResourceStats;

/// The subject of a question, identified by its index in a [`Sample`](super::Sample).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WhySubject {
    /// A column.
    Column(usize),
    /// A fairness group.
    Group(usize),
    /// A provider.
    Provider(usize),
    /// A task resource.
    Slots(usize),
    /// The row groups.
    RowGroups,
    /// A worker, by its [number](crate::pipeline::WorkerId::to_bits).
    Worker(u64),
    /// A task, named as in [events](crate::pipeline::event::Correlation::task).
    Task(u64),
}

/// The reason why something waits, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Why {
    /// What waits or is free.
    pub what: String,
    /// The one thing that limits it.
    pub why: String,
    /// How many tasks, calls, slots or row groups wait or are free for this reason. 0 for a state of a
    /// provider.
    pub count: u32,
}

/// Explanations.
impl World {
    /// Returns why `about` waits, as one entry for each reason. Empty if nothing of it waits, or if `about`
    /// does not exist. Changes nothing. O(rows in progress), and O(waiting calls) for a provider.
    #[must_use]
    pub fn why(&self, about: &WhySubject) -> Vec<Why> {
        let mut lines = Vec::new();
        match *about {
            WhySubject::Column(column) => self.why_column(column, &mut lines),
            WhySubject::Group(group) => self.why_group(group, &mut lines),
            WhySubject::Provider(provider) => {
                if let Some(provider) = self.providers.get(provider) {
                    self.why_provider(provider, &mut lines);
                }
            }
            WhySubject::Slots(resource) => self.why_slots(resource, &mut lines),
            WhySubject::RowGroups => self.why_row_groups(&mut lines),
            WhySubject::Worker(worker) => lines.extend(self.why_worker(worker)),
            WhySubject::Task(task) => lines.extend(self.pipeline.why_waiting(task).map(|wait| Why {
                what: String::from("the task"),
                why: describe::task_wait(&wait),
                count: 1,
            })),
        }
        lines
    }

    fn why_column(&self, column: usize, lines: &mut Vec<Why>) {
        let Some((column, stats)) = self.pipeline.columns().enumerate().nth(column) else { return };
        let work = &self.column_work[column];
        let name = &self.pipeline.plan().columns()[column].name;
        let waiting = work.at_work.waiting;
        if let Some(provider) = work.provider.and_then(|model| self.providers.get(model)).filter(|_| waiting > 0) {
            let what = match stats.yielded {
                0 => format!("{} of `{name}`, waiting for a call", describe::count(waiting, "worker")),
                yielded => {
                    format!(
                        "{} of `{name}`, waiting for a call, {yielded} without a slot",
                        describe::count(waiting, "worker")
                    )
                }
            };
            lines.push(Why { what, why: self.why_call(provider), count: waiting });
        }
        for (wait, count) in self.pipeline.why_column(stats.column) {
            lines.push(Why {
                what: format!("{} of `{name}`", describe::count(count, "task")),
                why: describe::task_wait(&wait),
                count,
            });
        }
        if lines.is_empty() {
            self.why_row_groups(lines);
        }
    }

    fn why_group(&self, group: usize, lines: &mut Vec<Why>) {
        let Some(stats) = self.pipeline.groups().nth(group) else { return };
        let first = self.pipeline.why_group(stats.column);
        if let (Some(wait), Some(column)) = (first, self.pipeline.plan().column(stats.column)) {
            let (count, name) = (stats.queued, column.group.identity.join("/"));
            lines.push(Why {
                what: format!("{} of group `{name}`, queued", describe::count(count, "task")),
                why: describe::task_wait(&wait),
                count,
            });
        }
    }

    fn why_provider(&self, provider: &Provider, lines: &mut Vec<Why>) {
        let (now, name) = (self.now, &provider.name);
        let Some(state) = self.admission.stats(now, provider.resource) else { return };
        let ResourceStats { effective_max, limit, in_flight, waiters, .. } = state;
        if waiters > 0 {
            let what = format!("{} to `{name}`, waiting", describe::count(waiters, "call"));
            lines.push(Why { what, why: self.why_call(provider), count: waiters });
        } else if in_flight < effective_max {
            let count = effective_max - in_flight;
            let what = format!("{count} of {effective_max} calls to `{name}`, unused");
            lines.push(Why { what, why: String::from("no worker requests a call"), count });
        }
        if limit < effective_max {
            let why = match (state.ramp, state.rate_limit_ceiling) {
                (Some(ramp), _) => match ramp.ends {
                    Some(ends) => format!("a ramp climbs to {} until {}", ramp.target, At(ends)),
                    None => String::from("a ramp begins with the first call"),
                },
                (None, 0) => format!("`{}` set it", provider.algorithm_name()),
                (None, refused) => {
                    format!("calls were refused, first at a limit of {refused}; successes raise it again")
                }
            };
            let what = format!("the limit of `{name}` is {limit} of {effective_max}");
            lines.push(Why { what, why, count: effective_max - limit });
        }
        if let Some(until) = provider.mock.refusing_until(now) {
            let why = format!("a burst of refusals, until {}", At(until));
            lines.push(Why { what: format!("`{name}` refuses every call"), why, count: 0 });
        }
        if let Some((until, factor)) = provider.mock.slowed_until(now) {
            let what = format!("calls to `{name}` take {factor} times as long");
            lines.push(Why { what, why: format!("a slow patch, until {}", At(until)), count: 0 });
        }
    }

    /// Describes why the call that waits longest for a provider does not start.
    fn why_call(&self, provider: &Provider) -> String {
        if let Some(wait) = self.admission.why_idle_now(self.now, provider.resource) {
            return describe::call_wait(&wait);
        }
        let most = self.admission.stats(self.now, provider.resource).map_or(0, |state| state.effective_max);
        format!("the limit of {} is reached", describe::count(most, "concurrent call"))
    }

    fn why_slots(&self, resource: usize, lines: &mut Vec<Why>) {
        let Some((name, used, limit)) = self.pipeline.usage().nth(resource) else { return };
        let (name, free) = (describe::slots(name), limit.saturating_sub(used));
        if let Some(wait) = self.pipeline.why_idle_now(resource) {
            let what = format!("{free} of {limit} {name}, free");
            return lines.push(Why { what, why: describe::slot_wait(&wait), count: free });
        }
        let demand = self.pipeline.demand().nth(resource).unwrap_or(0);
        if demand > 0 {
            let count = u32::try_from(demand).unwrap_or(u32::MAX);
            let what = format!("{demand} {name}, needed by queued tasks");
            lines.push(Why { what, why: format!("all {limit} are in use"), count });
        }
    }

    fn why_row_groups(&self, lines: &mut Vec<Why>) {
        let (block, count, in_host) = self.pipeline.why_row_groups();
        if in_host > 0 {
            let what = format!("{}, waiting", describe::count(in_host, "row group"));
            let why = String::from("their hook or checkpoint has not ended");
            lines.push(Why { what, why, count: in_host });
        }
        if count > 0 {
            let what = format!("{}, not started", describe::count(count, "row group"));
            lines.push(Why { what, why: String::from(describe::row_group_block(block)), count });
        }
    }

    fn why_worker(&self, worker: u64) -> Option<Why> {
        let (column, why) = match self.workers.get(&worker)? {
            Worker::Waiting(waiter) => {
                let column = self.waiting.get(&waiter.to_bits())?.task.column;
                let why = self.admission.why_waiting(self.now, *waiter).map(|wait| describe::call_wait(&wait))?;
                (column, format!("it waits for a call: {why}"))
            }
            Worker::Busy(key) => self.describe_busy(*key)?,
        };
        let name = &self.pipeline.plan().column(column)?.name;
        Some(Why { what: format!("a worker of `{name}`"), why, count: 1 })
    }
}
