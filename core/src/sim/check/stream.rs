//! Checks that no event is missing, that time never runs backwards, and that no event follows the end.

use alloc::format;

use super::open_row_groups::{OpenRowGroups, Rules};
use super::{Check, CheckResult, Law, ensure};
use crate::pipeline::RunReport;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventPayload};
use crate::request::event::RequestEvent;
use crate::time::Instant;

/// The positions of both streams.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    scheduler: StreamPosition,
    request: StreamPosition,
    started: bool,
    completed: bool,
}

/// The next sequence number of a stream, and its latest instant.
#[derive(Clone, Copy, Debug, Default)]
struct StreamPosition {
    next: u64,
    latest: Instant,
}

impl StreamPosition {
    fn advance(&mut self, sequence: u64, at: Instant) -> CheckResult {
        let Self { next, latest } = *self;
        ensure(sequence == next, || format!("event {sequence} came instead of event {next}"))?;
        ensure(at >= latest, || format!("event {sequence} is older than the event before it, at {latest}"))?;
        *self = Self { next: next + 1, latest: at };
        Ok(())
    }
}

impl Check for Stream {
    const LAW: Law = Law::Stream;

    fn on_event(&mut self, _: &Rules, _: &OpenRowGroups, event: &SchedulerEvent) -> CheckResult {
        self.scheduler.advance(event.sequence, event.at)?;
        ensure(!self.completed, || format!("{:?} came after the job was completed", event.payload.kind()))?;
        match event.payload {
            SchedulerEventPayload::JobStarted { .. } => {
                ensure(!self.started, || "the job started twice".into())?;
                self.started = true;
            }
            SchedulerEventPayload::JobCompleted { .. } => self.completed = true,
            _ => {}
        }
        Ok(())
    }

    fn on_request(&mut self, event: &RequestEvent) -> CheckResult {
        self.request.advance(event.sequence, event.at)
    }

    fn on_end(&mut self, _: &Rules, _: &RunReport) -> CheckResult {
        ensure(self.completed, || "the run ended without a completion event".into())
    }
}
