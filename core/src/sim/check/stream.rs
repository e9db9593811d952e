//! No event is missing, time never runs backwards, nothing comes after the end.

use alloc::format;

use super::books::{Books, Rules};
use super::{Check, Law, Verdict, hold};
use crate::pipeline::RunReport;
use crate::pipeline::event::{SchedulerEvent, SchedulerFact};
use crate::request::event::RequestEvent;
use crate::time::Instant;

/// How far each stream is.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    scheduler: Head,
    request: Head,
    started: bool,
    completed: bool,
}

/// The next number of a stream, and its latest instant.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    next: u64,
    latest: Instant,
}

impl Head {
    fn advance(&mut self, sequence: u64, at: Instant) -> Verdict {
        let Self { next, latest } = *self;
        hold(sequence == next, || format!("event {sequence} came where {next} was due"))?;
        hold(at >= latest, || format!("event {sequence} is older than the one before it, of {latest}"))?;
        *self = Self { next: next + 1, latest: at };
        Ok(())
    }
}

impl Check for Stream {
    const LAW: Law = Law::Stream;

    fn on_event(&mut self, _: &Rules, _: &Books, event: &SchedulerEvent) -> Verdict {
        self.scheduler.advance(event.sequence, event.at)?;
        hold(!self.completed, || format!("{:?} came after the job was completed", event.fact.kind()))?;
        match event.fact {
            SchedulerFact::JobStarted { .. } => {
                hold(!self.started, || "the job started twice".into())?;
                self.started = true;
            }
            SchedulerFact::JobCompleted { .. } => self.completed = true,
            _ => {}
        }
        Ok(())
    }

    fn on_request(&mut self, event: &RequestEvent) -> Verdict {
        self.request.advance(event.sequence, event.at)
    }

    fn on_end(&mut self, _: &Rules, _: &RunReport) -> Verdict {
        hold(self.completed, || "the run is over, and no event said so".into())
    }
}
