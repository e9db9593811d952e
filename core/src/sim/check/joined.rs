//! A call names the execution of the task that makes it, and a worker has that task.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use super::books::{Books, Rules};
use super::{Check, Law, Verdict, hold};
use crate::event::Correlation;
use crate::pipeline::event::{SchedulerEvent, SchedulerFact};
use crate::request::event::{RequestEvent, RequestFact};
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
    fn settle(&mut self, now: Instant) -> Verdict {
        for (at, named) in self.named.extract_if(.., |(at, _)| *at < now) {
            hold(self.running.contains(&named), || format!("a call at {at} names {named:?}, which no worker has"))?;
        }
        Ok(())
    }
}

impl Check for Joined {
    const LAW: Law = Law::Joined;

    fn on_event(&mut self, _: &Rules, _: &Books, event: &SchedulerEvent) -> Verdict {
        self.settle(event.at)?;
        match event.fact {
            SchedulerFact::WorkerSpawned { .. } => {
                self.running.insert(execution(&event.correlation));
            }
            SchedulerFact::TaskCompleted { .. } | SchedulerFact::WorkerSpawnFailed { .. } => {
                let ended = execution(&event.correlation);
                if self.running.remove(&ended) {
                    self.named.retain(|(_, named)| *named != ended);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn on_request(&mut self, event: &RequestEvent) -> Verdict {
        self.settle(event.at)?;
        if !matches!(event.fact, RequestFact::WaitStarted { .. } | RequestFact::LeaseAcquired { .. }) {
            return Ok(());
        }
        hold(!self.calls_alone || event.correlation.is_some(), || "a call of a task names none".into())?;
        self.named.extend(event.correlation.map(|about| (event.at, execution(&about))));
        Ok(())
    }
}
