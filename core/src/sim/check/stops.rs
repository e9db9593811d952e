//! After a stop nothing starts: no row group, no task and no call; once a run is wound down, no row group.
//! Whatever is under way ends, hooks that were asked for included. A stop is told before the end, and for the
//! same reason.

use alloc::format;

use super::books::{Books, Rules};
use super::{Check, Handover, Law, Verdict, hold};
use crate::pipeline::event::{SchedulerEvent, SchedulerFact, StopKind};
use crate::request::event::{RequestEvent, RequestFact};
use crate::time::Instant;

/// Whether the run is stopping.
#[derive(Clone, Debug, Default)]
pub(super) struct Stops {
    because: Option<&'static str>,
    /// The first instant at which it was to stop.
    since: Option<Instant>,
    /// Whether all calls are the run's.
    calls_alone: bool,
    told: Option<StopKind>,
    winds_down: bool,
}

impl Stops {
    pub(super) fn call_alone(&mut self) {
        self.calls_alone = true;
    }

    fn stop(&mut self, because: &'static str) {
        self.because.get_or_insert(because);
    }

    fn refuse(&self, what: &dyn core::fmt::Debug) -> Verdict {
        self.because.map_or(Ok(()), |because| Err(format!("{what:?} after {because}")))
    }
}

impl Check for Stops {
    const LAW: Law = Law::Stops;

    fn on_event(&mut self, _: &Rules, _: &Books, event: &SchedulerEvent) -> Verdict {
        match event.fact {
            SchedulerFact::JobStopping { stop, .. } => {
                // A run that is wound down goes on with what it has admitted.
                self.winds_down = stop == StopKind::WoundDown;
                if !self.winds_down {
                    self.stop("a stop was told");
                }
                if self.because.is_some() {
                    self.since.get_or_insert(event.at);
                }
                self.told = Some(stop);
            }
            SchedulerFact::JobCompleted { stop, .. } => {
                let told = self.told.unwrap_or(StopKind::Completed);
                hold(stop == told, || format!("it ended as {stop:?}, and was told to stop as {told:?}"))?;
            }
            SchedulerFact::EarlyShutdown { .. } => self.stop("an early shutdown"),
            SchedulerFact::HookFailed { .. } => self.stop("a hook failed"),
            SchedulerFact::TaskCompleted { outcome: None, .. } => self.stop("a bug was met"),
            SchedulerFact::QueueDrained { discarded: 1.. } => self.stop("a stop emptied the queue"),
            SchedulerFact::RowGroupAdmitted { .. } if self.winds_down => {
                return Err(format!("{:?} though the run is wound down", event.fact.kind()));
            }
            SchedulerFact::RowGroupAdmitted { .. }
            | SchedulerFact::ReadyEnqueued { .. }
            | SchedulerFact::Selected { .. }
            | SchedulerFact::WorkerSpawned { .. } => self.refuse(&event.fact.kind())?,
            _ => {}
        }
        Ok(())
    }

    fn on_request(&mut self, event: &RequestEvent) -> Verdict {
        let is_late = self.calls_alone && self.since.is_some_and(|since| since < event.at);
        match event.fact {
            RequestFact::LeaseAcquired { .. } if is_late => self.refuse(&event.fact.kind()),
            _ => Ok(()),
        }
    }

    fn on_handover(&mut self, _: &Rules, _: &Books, what: &Handover<'_>) -> Verdict {
        match what {
            Handover::Cancel => self.stop("it was cancelled"),
            Handover::PreBatchAnswered { left_out: None, .. } | Handover::PostBatchAnswered { works: false, .. } => {
                self.stop("a hook failed");
            }
            Handover::CheckpointAnswered { works: false, .. } => self.stop("a checkpoint failed"),
            _ => {}
        }
        Ok(())
    }
}
