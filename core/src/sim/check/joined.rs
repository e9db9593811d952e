//! Checks that the two event streams can be joined: a call names the execution of the task that makes it, and
//! a worker runs that execution at the time.
//!
//! An execution is one attempt of one task.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use super::open_row_groups::{OpenRowGroups, Rules};
use super::{Check, CheckResult, Law, ensure};
use crate::event::Correlation;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};
use crate::request::event::{RequestEvent, RequestEventPayload};
use crate::time::Instant;

/// The executions that workers run, and those that calls name.
#[derive(Clone, Debug, Default)]
pub(super) struct Joined {
    /// Whether every call must name a task.
    has_no_other_callers: bool,
    running: BTreeSet<Execution>,
    /// The executions that the calls of the latest instant name. They are checked once time has advanced,
    /// because the events of the calls of an instant may be delivered before those of its workers.
    named: Vec<(Instant, Execution)>,
}

/// An attempt of a task: the run, the task and the attempt.
pub(super) type Execution = (u32, Option<u64>, Option<u32>);

pub(super) fn execution(correlation: &Correlation) -> Execution {
    (correlation.run, correlation.task, correlation.attempt)
}

impl Joined {
    /// States that only tasks make calls.
    pub(super) fn expect_no_other_callers(&mut self) {
        self.has_no_other_callers = true;
    }

    /// Checks the executions that calls before `now` named.
    fn check_named_before(&mut self, now: Instant) -> CheckResult {
        for (at, named) in self.named.extract_if(.., |(at, _)| *at < now) {
            ensure(self.running.contains(&named), || format!("a call at {at} names {named:?}, which no worker runs"))?;
        }
        Ok(())
    }
}

impl Check for Joined {
    const LAW: Law = Law::Joined;

    fn on_event(&mut self, _: &Rules, _: &OpenRowGroups, event: &SchedulerEvent) -> CheckResult {
        self.check_named_before(event.at)?;
        match event.payload {
            SchedulerEventPayload::WorkerSpawned { .. } => {
                self.running.insert(execution(&event.correlation));
            }
            SchedulerEventPayload::TaskCompleted { .. } | SchedulerEventPayload::WorkerSpawnFailed { .. } => {
                let ended = execution(&event.correlation);
                if self.running.remove(&ended) {
                    self.named.retain(|(_, named)| *named != ended);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn on_request(&mut self, event: &RequestEvent) -> CheckResult {
        self.check_named_before(event.at)?;
        if !matches!(event.payload, RequestEventPayload::WaitStarted { .. } | RequestEventPayload::LeaseAcquired { .. })
        {
            return Ok(());
        }
        ensure(!self.has_no_other_callers || event.correlation.is_some(), || "a call names no task".into())?;
        self.named.extend(event.correlation.map(|correlation| (event.at, execution(&correlation))));
        Ok(())
    }
}
