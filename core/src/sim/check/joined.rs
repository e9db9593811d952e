//! A call names the execution of the task that makes it, and a worker has that task.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use super::open_row_groups::{OpenRowGroups, Rules};
use super::{Check, CheckResult, Law, hold};
use crate::event::Correlation;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};
use crate::request::event::{RequestEvent, RequestEventPayload};
use crate::time::Instant;

/// The executions that workers have, and the calls that name one.
#[derive(Clone, Debug, Default)]
pub(super) struct Joined {
    /// Whether only tasks make calls.
    calls_alone: bool,
    running: BTreeSet<Execution>,
    /// Of one instant: whoever listens may be given the calls of an instant before its workers.
    named: Vec<(Instant, Execution)>,
}

/// Run, task and try.
pub(super) type Execution = (u32, Option<u64>, Option<u32>);

pub(super) fn execution(about: &Correlation) -> Execution {
    (about.run, about.task, about.attempt)
}

impl Joined {
    /// Only tasks make calls.
    pub(super) fn call_alone(&mut self) {
        self.calls_alone = true;
    }

    /// Checks what was named before `now`.
    fn settle(&mut self, now: Instant) -> CheckResult {
        for (at, named) in self.named.extract_if(.., |(at, _)| *at < now) {
            hold(self.running.contains(&named), || format!("a call at {at} names {named:?}, which no worker has"))?;
        }
        Ok(())
    }
}

impl Check for Joined {
    const LAW: Law = Law::Joined;

    fn on_event(&mut self, _: &Rules, _: &OpenRowGroups, event: &SchedulerEvent) -> CheckResult {
        self.settle(event.at)?;
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
        self.settle(event.at)?;
        if !matches!(event.payload, RequestEventPayload::WaitStarted { .. } | RequestEventPayload::LeaseAcquired { .. })
        {
            return Ok(());
        }
        hold(!self.calls_alone || event.correlation.is_some(), || "a call of a task names none".into())?;
        self.named.extend(event.correlation.map(|about| (event.at, execution(&about))));
        Ok(())
    }
}
