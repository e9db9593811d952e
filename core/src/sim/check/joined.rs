//! Checks that a call names the execution of the task that makes it, and that a worker runs that task.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use super::open_row_groups::{OpenRowGroups, Rules};
use super::{Check, CheckResult, Law, hold};
use crate::event::Correlation;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};
use crate::request::event::{RequestEvent, RequestEventPayload};
use crate::time::Instant;

/// The executions that workers run, and those that calls name.
#[derive(Clone, Debug, Default)]
pub(super) struct Joined {
    /// Whether only tasks make calls.
    calls_alone: bool,
    running: BTreeSet<Execution>,
    /// The executions that calls of one instant name. They are checked later, because the calls of an
    /// instant may be delivered before its workers.
    named: Vec<(Instant, Execution)>,
}

/// The run, the task and the attempt.
pub(super) type Execution = (u32, Option<u64>, Option<u32>);

pub(super) fn execution(correlation: &Correlation) -> Execution {
    (correlation.run, correlation.task, correlation.attempt)
}

impl Joined {
    /// Sets that only tasks make calls.
    pub(super) fn call_alone(&mut self) {
        self.calls_alone = true;
    }

    /// Checks the executions that calls before `now` named.
    fn check_named_before(&mut self, now: Instant) -> CheckResult {
        for (at, named) in self.named.extract_if(.., |(at, _)| *at < now) {
            hold(self.running.contains(&named), || format!("a call at {at} names {named:?}, which no worker runs"))?;
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
        hold(!self.calls_alone || event.correlation.is_some(), || "a call names no task".into())?;
        self.named.extend(event.correlation.map(|correlation| (event.at, execution(&correlation))));
        Ok(())
    }
}
