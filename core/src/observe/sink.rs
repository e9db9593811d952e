//! Who hears what happened: sinks for both streams of events, and what becomes of one that fails.
//!
//! A [`Sink`] says which kinds it wants; what no sink wants is not even made. [`Sinks`] hands every event to
//! those that want it, outside any lock and any borrow of a machine. A sink that fails never disturbs the
//! run: its failure is counted, and told once for each kind of event. With the feature `std` a panic is a
//! failure like any other.
//!
//! A run is given its sinks with [`Run::with_sinks`](crate::driver::Run::with_sinks); a gate on its own is
//! asked with [`Gate::feed`](crate::gate::Gate::feed).
//!
//! ```
//! use tidegate_core::observe::{Sink, SinkError, Sinks};
//! use tidegate_core::pipeline::event::{Interest, SchedulerEvent, SchedulerEventKind};
//! # use tidegate_core::pipeline::{Column, Pipeline, PipelineConfig, PlanBuilder, Strategy};
//! # use tidegate_core::time::Instant;
//!
//! /// Refuses to hear of anything but the first worker.
//! struct First(bool);
//!
//! impl Sink for First {
//!     fn wants_scheduler(&self) -> Interest {
//!         Interest::of(&[SchedulerEventKind::WorkerSpawned])
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
use crate::pipeline::event::{Interest, SchedulerEvent, SchedulerEventKind};
use crate::request::event::{Interest as RequestInterest, RequestEvent, RequestEventKind};

/// The version of what events look like in JSON. It rises when a name changes or goes, not when one is added.
pub const SCHEMA: u32 = 1;

/// Which stream an event is of.
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

/// An event as it is written down: `{"schema": 1, "stream": "scheduler", "event": {..}}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Envelope<E> {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Its stream.
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

/// Why a sink could not take an event.
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

/// Hears events. It should return soon: the run waits for it.
pub trait Sink: Send {
    /// The kinds of scheduler events it wants; asked once, when it is added. All, if it does not say.
    fn wants_scheduler(&self) -> Interest {
        Interest::ALL
    }

    /// The kinds of request events it wants; asked once, when it is added. All, if it does not say.
    fn wants_request(&self) -> RequestInterest {
        RequestInterest::ALL
    }

    /// The next scheduler event that it wants.
    fn on_scheduler(&mut self, _event: &SchedulerEvent) -> Result<(), SinkError> {
        Ok(())
    }

    /// The next request event that it wants.
    fn on_request(&mut self, _event: &RequestEvent) -> Result<(), SinkError> {
        Ok(())
    }

    /// Nothing more comes: what is buffered is to be written.
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

/// A sink that others look into while the run goes on.
impl<R: lock_api::RawMutex + Send + Sync, S: Sink> Sink for Arc<lock_api::Mutex<R, S>> {
    fn wants_scheduler(&self) -> Interest {
        self.lock().wants_scheduler()
    }

    fn wants_request(&self) -> RequestInterest {
        self.lock().wants_request()
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

/// What a sink was to do when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SinkStep {
    /// To take a scheduler event of this kind.
    Scheduler(SchedulerEventKind),
    /// To take a request event of this kind.
    Request(RequestEventKind),
    /// To finish.
    Finish,
}

/// Failures of one sink at one kind of event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkFailure {
    /// The sink's name.
    pub sink: String,
    /// What it was to do.
    pub step: SinkStep,
    /// What was wrong the first time.
    pub why: String,
    /// How often it failed so.
    pub count: u64,
}

impl fmt::Display for SinkFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the sink `{}` failed at {:?}: {}", self.sink, self.step, self.why)
    }
}

/// Is told of the first failure of each sink at each kind of event.
type Report = Box<dyn FnMut(&SinkFailure) + Send>;

struct Entry {
    name: String,
    sink: Box<dyn Sink>,
    scheduler: Interest,
    request: RequestInterest,
}

/// Hands events to sinks. See the [module documentation](self).
#[derive(Default)]
pub struct Sinks {
    entries: Vec<Entry>,
    failures: Vec<SinkFailure>,
    report: Option<Report>,
    requests: Vec<RequestEvent>,
    scheduler: Vec<SchedulerEvent>,
}

impl Sinks {
    /// Adds a sink under a name for messages.
    pub fn add(&mut self, name: &str, sink: impl Sink + 'static) {
        let (scheduler, request) = (sink.wants_scheduler(), sink.wants_request());
        self.entries.push(Entry { name: name.to_string(), sink: Box::new(sink), scheduler, request });
    }

    /// Has `report` told of failures, each kind once for each sink.
    pub fn report_to(&mut self, report: impl FnMut(&SinkFailure) + Send + 'static) {
        self.report = Some(Box::new(report));
    }

    /// What any sink wants of the scheduler's stream.
    #[must_use]
    pub fn scheduler_interest(&self) -> Interest {
        self.entries.iter().fold(Interest::NONE, |all, entry| all.union(entry.scheduler))
    }

    /// What any sink wants of the stream of requests.
    #[must_use]
    pub fn request_interest(&self) -> RequestInterest {
        self.entries.iter().fold(RequestInterest::NONE, |all, entry| all.union(entry.request))
    }

    /// Hands a scheduler event to those that want its kind.
    pub fn on_scheduler(&mut self, event: &SchedulerEvent) {
        let kind = event.payload.kind();
        self.each(SinkStep::Scheduler(kind), |entry| {
            if entry.scheduler.contains(kind) { entry.sink.on_scheduler(event) } else { Ok(()) }
        });
    }

    /// Hands a request event to those that want its kind.
    pub fn on_request(&mut self, event: &RequestEvent) {
        let kind = event.payload.kind();
        self.each(SinkStep::Request(kind), |entry| {
            if entry.request.contains(kind) { entry.sink.on_request(event) } else { Ok(()) }
        });
    }

    /// Tells every sink that nothing more comes.
    pub fn finish(&mut self) {
        self.each(SinkStep::Finish, |entry| entry.sink.finish());
    }

    /// What failed so far: one entry for each sink and kind.
    pub fn failures(&self) -> impl Iterator<Item = &SinkFailure> {
        self.failures.iter()
    }

    /// Hands on what `take` takes from the machines, of one instant after the other. `take` is called until
    /// it takes nothing, and may hold a lock meanwhile.
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

    fn each(&mut self, step: SinkStep, mut hand: impl FnMut(&mut Entry) -> Result<(), SinkError>) {
        let Self { entries, failures, report, .. } = self;
        for entry in entries {
            let answer = panics::catch("it panicked", || hand(entry));
            let Err(why) = answer.and_then(|taken| taken.map_err(|SinkError(why)| why)) else { continue };
            let known = failures.iter_mut().find(|known| known.step == step && known.sink == entry.name);
            if let Some(known) = known {
                known.count += 1;
                continue;
            }
            let failure = SinkFailure { sink: entry.name.clone(), step, why, count: 1 };
            if let Some(report) = report {
                // Who is told of failures may fail too.
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
