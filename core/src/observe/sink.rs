//! Sinks receive the events of both streams.
//!
//! A [`Sink`] declares which kinds of events it needs. Kinds that no sink needs are not produced. [`Sinks`]
//! delivers each event to the sinks that need its kind, while no lock and no borrow of the scheduler is
//! held. A sink that fails does not disturb the run: each failure is counted, and the first one of each sink
//! and kind of event is reported. With the feature `std`, a panic of a sink is also such a failure.
//!
//! [`PipelineRun::with_sinks`](crate::driver::PipelineRun::with_sinks) gives sinks to a run.
//! [`Gate::feed`](crate::gate::Gate::feed) delivers the events of a stand-alone gate.
//!
//! ```
//! use tidegate_core::observe::{Sink, SinkError, Sinks};
//! use tidegate_core::pipeline::event::{SchedulerInterest, SchedulerEvent, SchedulerEventKind};
//! # use tidegate_core::pipeline::{Column, Pipeline, PipelineConfig, PlanBuilder, Strategy};
//! # use tidegate_core::time::Instant;
//!
//! /// Fails at every event except the first spawned worker.
//! struct First(bool);
//!
//! impl Sink for First {
//!     fn scheduler_interest(&self) -> SchedulerInterest {
//!         SchedulerInterest::of(&[SchedulerEventKind::WorkerSpawned])
//!     }
//!
//!     fn on_scheduler(&mut self, _event: &SchedulerEvent) -> Result<(), SinkError> {
//!         if core::mem::replace(&mut self.0, true) { Err("this is enough".into()) } else { Ok(()) }
//!     }
//! }
//!
//! let mut sinks = Sinks::default();
//! sinks.add("first", First(false));
//! # let plan = PlanBuilder::new().column(Column::new("answer", Strategy::Cell)).build()?;
//! # let mut pipeline = Pipeline::new(plan, PipelineConfig { rows: 3, ..PipelineConfig::default() })?;
//! pipeline.set_interest(sinks.scheduler_interest());
//! pipeline.start(Instant::ZERO);
//! while let Some(event) = pipeline.poll_event() {
//!     sinks.on_scheduler(&event);
//! }
//! let failure = sinks.failures().next().expect("it failed");
//! assert_eq!((failure.count, failure.why.as_str()), (2, "this is enough"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::RunAccount;
use crate::panics;
use crate::pipeline::event::{SchedulerEvent, SchedulerEventKind, SchedulerInterest};
use crate::request::event::{RequestEvent, RequestEventKind, RequestInterest};

/// The version of the JSON format of events. It rises when a name changes or is removed, not when one is
/// added.
pub const SCHEMA: u32 = 1;

/// The stream that an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Stream {
    /// [`SchedulerEvent`]s.
    Scheduler,
    /// [`RequestEvent`]s.
    Request,
}

/// An event in its serialised form: `{"schema": 1, "stream": "scheduler", "event": {..}}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Envelope<E> {
    /// The schema version: [`SCHEMA`].
    pub schema: u32,
    /// The stream of the event.
    pub stream: Stream,
    /// The event.
    pub event: E,
}

impl<'a> From<&'a SchedulerEvent> for Envelope<&'a SchedulerEvent> {
    fn from(event: &'a SchedulerEvent) -> Self {
        Self { schema: SCHEMA, stream: Stream::Scheduler, event }
    }
}

impl<'a> From<&'a RequestEvent> for Envelope<&'a RequestEvent> {
    fn from(event: &'a RequestEvent) -> Self {
        Self { schema: SCHEMA, stream: Stream::Request, event }
    }
}

/// The reason why a sink could not process an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(pub String);

impl From<&str> for SinkError {
    fn from(why: &str) -> Self {
        Self(why.to_string())
    }
}

impl From<String> for SinkError {
    fn from(why: String) -> Self {
        Self(why)
    }
}

/// Receives events. A call should return quickly, because the run waits for it.
pub trait Sink: Send {
    /// Returns the kinds of scheduler events that the sink needs. Called once, when the sink is added. The
    /// default is all kinds.
    fn scheduler_interest(&self) -> SchedulerInterest {
        SchedulerInterest::ALL
    }

    /// Returns the kinds of request events that the sink needs. Called once, when the sink is added. The
    /// default is all kinds.
    fn request_interest(&self) -> RequestInterest {
        RequestInterest::ALL
    }

    /// Processes the next scheduler event of a kind that the sink needs.
    fn on_scheduler(&mut self, _event: &SchedulerEvent) -> Result<(), SinkError> {
        Ok(())
    }

    /// Processes the next request event of a kind that the sink needs.
    fn on_request(&mut self, _event: &RequestEvent) -> Result<(), SinkError> {
        Ok(())
    }

    /// Writes what is buffered. No event follows.
    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

impl Sink for RunAccount {
    fn on_scheduler(&mut self, event: &SchedulerEvent) -> Result<(), SinkError> {
        Self::on_scheduler(self, event);
        Ok(())
    }

    fn on_request(&mut self, event: &RequestEvent) -> Result<(), SinkError> {
        Self::on_request(self, event);
        Ok(())
    }
}

/// A sink that can be read while the run continues.
impl<R: lock_api::RawMutex + Send + Sync, S: Sink> Sink for Arc<lock_api::Mutex<R, S>> {
    fn scheduler_interest(&self) -> SchedulerInterest {
        self.lock().scheduler_interest()
    }

    fn request_interest(&self) -> RequestInterest {
        self.lock().request_interest()
    }

    fn on_scheduler(&mut self, event: &SchedulerEvent) -> Result<(), SinkError> {
        self.lock().on_scheduler(event)
    }

    fn on_request(&mut self, event: &RequestEvent) -> Result<(), SinkError> {
        self.lock().on_request(event)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.lock().finish()
    }
}

/// The step at which a sink failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SinkStep {
    /// Processing a scheduler event of this kind.
    Scheduler(SchedulerEventKind),
    /// Processing a request event of this kind.
    Request(RequestEventKind),
    /// Finishing.
    Finish,
}

/// The failures of one sink at one kind of event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkFailure {
    /// The name of the sink.
    pub sink: String,
    /// The step that failed.
    pub step: SinkStep,
    /// The error of the first failure.
    pub why: String,
    /// The number of failures at this step.
    pub count: u64,
}

impl fmt::Display for SinkFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the sink `{}` failed at {:?}: {}", self.sink, self.step, self.why)
    }
}

/// Receives the first failure of each sink at each kind of event.
type Report = Box<dyn FnMut(&SinkFailure) + Send>;

struct Entry {
    name: String,
    sink: Box<dyn Sink>,
    scheduler: SchedulerInterest,
    request: RequestInterest,
}

/// Delivers events to sinks. See the [module documentation](self).
#[derive(Default)]
pub struct Sinks {
    entries: Vec<Entry>,
    failures: Vec<SinkFailure>,
    report: Option<Report>,
    requests: Vec<RequestEvent>,
    scheduler: Vec<SchedulerEvent>,
}

impl Sinks {
    /// Adds a sink. `name` identifies it in messages.
    pub fn add(&mut self, name: &str, sink: impl Sink + 'static) {
        let (scheduler, request) = (sink.scheduler_interest(), sink.request_interest());
        self.entries.push(Entry { name: name.to_string(), sink: Box::new(sink), scheduler, request });
    }

    /// Calls `report` for failures, once per sink and kind of event.
    pub fn report_to(&mut self, report: impl FnMut(&SinkFailure) + Send + 'static) {
        self.report = Some(Box::new(report));
    }

    /// Returns the kinds of scheduler events that at least one sink needs.
    #[must_use]
    pub fn scheduler_interest(&self) -> SchedulerInterest {
        self.entries.iter().fold(SchedulerInterest::NONE, |all, entry| all.union(entry.scheduler))
    }

    /// Returns the kinds of request events that at least one sink needs.
    #[must_use]
    pub fn request_interest(&self) -> RequestInterest {
        self.entries.iter().fold(RequestInterest::NONE, |all, entry| all.union(entry.request))
    }

    /// Delivers a scheduler event to the sinks that need its kind.
    pub fn on_scheduler(&mut self, event: &SchedulerEvent) {
        let kind = event.payload.kind();
        self.deliver(SinkStep::Scheduler(kind), |entry| {
            if entry.scheduler.contains(kind) { entry.sink.on_scheduler(event) } else { Ok(()) }
        });
    }

    /// Delivers a request event to the sinks that need its kind.
    pub fn on_request(&mut self, event: &RequestEvent) {
        let kind = event.payload.kind();
        self.deliver(SinkStep::Request(kind), |entry| {
            if entry.request.contains(kind) { entry.sink.on_request(event) } else { Ok(()) }
        });
    }

    /// Finishes every sink: no event follows.
    pub fn finish(&mut self) {
        self.deliver(SinkStep::Finish, |entry| entry.sink.finish());
    }

    /// Returns the failures so far: one entry for each sink and kind of event.
    pub fn failures(&self) -> impl Iterator<Item = &SinkFailure> {
        self.failures.iter()
    }

    /// Delivers the events that `take` collects, merged by time. At equal times request events come first.
    ///
    /// `take` is called until it collects nothing. It may hold a lock during the call; no sink runs
    /// meanwhile.
    pub(crate) fn feed(&mut self, mut take: impl FnMut(&mut Vec<RequestEvent>, &mut Vec<SchedulerEvent>)) {
        let (mut requests, mut scheduler) = (core::mem::take(&mut self.requests), core::mem::take(&mut self.scheduler));
        loop {
            take(&mut requests, &mut scheduler);
            if requests.is_empty() && scheduler.is_empty() {
                break;
            }
            let mut later = scheduler.drain(..).peekable();
            for request in requests.drain(..) {
                while let Some(event) = later.next_if(|event| event.at < request.at) {
                    self.on_scheduler(&event);
                }
                self.on_request(&request);
            }
            later.for_each(|event| self.on_scheduler(&event));
        }
        (self.requests, self.scheduler) = (requests, scheduler);
    }

    fn deliver(&mut self, step: SinkStep, mut process: impl FnMut(&mut Entry) -> Result<(), SinkError>) {
        let Self { entries, failures, report, .. } = self;
        for entry in entries {
            let result = panics::catch("it panicked", || process(entry));
            let Err(why) = result.and_then(|result| result.map_err(|SinkError(why)| why)) else { continue };
            let known = failures.iter_mut().find(|known| known.step == step && known.sink == entry.name);
            if let Some(known) = known {
                known.count += 1;
                continue;
            }
            let failure = SinkFailure { sink: entry.name.clone(), step, why, count: 1 };
            if let Some(report) = report {
                // The report callback may panic too.
                let _ = panics::catch("", || report(&failure));
            }
            failures.push(failure);
        }
    }
}

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.entries.iter().map(|entry| entry.name.as_str());
        f.debug_struct("Sinks")
            .field("sinks", &names.collect::<Vec<_>>())
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}
