//! A run as a trace that the Perfetto UI and `chrome://tracing` open.
//!
//! [`Trace`] turns both streams of events into [`TraceEvent`]s of the [Trace Event Format][format]: an array
//! of them is a trace file, in whatever order they come.
//!
//! | process | its tracks |
//! | --- | --- |
//! | workers | one for each worker slot: its tasks as slices, waits without resources inside them; how many run and are queued |
//! | one for each provider resource | a track for each call that can be out at once, one for cooldowns, the waits; limit, calls out, calls waiting |
//! | row groups | one for each row group in work at once, from its admission to its checkpoint |
//! | outages, if there are any | one for each provider and model: when it is down, probed, recovering and unavailable |
//!
//! Memory is bounded by what is open at once; [`Trace::take`] hands over what is complete. [`Trace::finish`]
//! closes what the run left open. It needs the events of [`scheduler_interest`] and [`request_interest`].
//!
//! [format]: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

mod lanes;
mod outages;
mod requests;
mod tasks;
#[cfg(all(test, feature = "sim"))]
mod tests;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use self::outages::Outages;
use self::requests::Calls;
use self::tasks::Tasks;
use crate::observe::{Sink, SinkError};
use crate::pipeline::Plan;
use crate::pipeline::event::{Interest, SchedulerEvent, SchedulerEventKind};
use crate::request::event::{Interest as RequestInterest, RequestEvent, RequestEventKind};
use crate::request::{ProviderModelId, ResourceId};
use crate::time::Instant;

/// The events of the pipeline that a trace shows.
#[must_use]
pub fn scheduler_interest() -> Interest {
    Interest::of(&[
        SchedulerEventKind::ReadyEnqueued,
        SchedulerEventKind::Selected,
        SchedulerEventKind::WorkerSpawned,
        SchedulerEventKind::WorkerSpawnFailed,
        SchedulerEventKind::TaskYielded,
        SchedulerEventKind::TaskResumed,
        SchedulerEventKind::TaskCompleted,
        SchedulerEventKind::RowGroupAdmitted,
        SchedulerEventKind::RowGroupCheckpointed,
        SchedulerEventKind::RowGroupDiscarded,
        SchedulerEventKind::QueueDrained,
    ])
}

/// The events of request admission that a trace shows.
#[must_use]
pub fn request_interest() -> RequestInterest {
    RequestInterest::of(&[
        RequestEventKind::WaitStarted,
        RequestEventKind::WaitCompleted,
        RequestEventKind::WaitTimeout,
        RequestEventKind::WaitCancelled,
        RequestEventKind::LeaseAcquired,
        RequestEventKind::LeaseReleased,
        RequestEventKind::RateLimited,
        RequestEventKind::LimitDecreased,
        RequestEventKind::LimitIncreased,
        RequestEventKind::RampStep,
        RequestEventKind::ProviderDown,
        RequestEventKind::ProviderProbed,
        RequestEventKind::ProviderRecovered,
        RequestEventKind::ProviderUnavailable,
    ])
}

/// The process of the worker slots.
const WORKERS: u32 = 1;
/// The process of the row groups.
const ROW_GROUPS: u32 = 2;
/// The process of the outages.
const OUTAGES: u32 = 3;
/// The processes of the resources, from this one on.
const RESOURCES: u32 = 4;

/// A request resource that calls of the run go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedResource<'a> {
    /// The resource.
    pub resource: ResourceId,
    /// Its provider and model, which other resources may share.
    pub model: ProviderModelId,
    /// Its name in the trace.
    pub name: &'a str,
}

/// One event of the Trace Event Format.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TraceEvent {
    /// What it shows.
    pub name: String,
    /// The phase: `X` a slice, `b` and `e` the ends of a wait, `C` a counter, `M` a name, `i` an instant.
    pub ph: char,
    /// Microseconds since the origin of the run's clock, to the nanosecond.
    pub ts: f64,
    /// How long a slice takes, in microseconds.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub dur: Option<f64>,
    /// The process.
    pub pid: u32,
    /// The track within it.
    pub tid: u32,
    /// The category.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "str::is_empty"))]
    pub cat: &'static str,
    /// Joins the two ends of a wait.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub id: Option<String>,
    /// What it says besides.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Args::is_empty"))]
    pub args: Args,
}

/// What an event says besides its name.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Args {
    /// The name that a process or track is given.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub name: Option<String>,
    /// The value of a counter.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub value: Option<u64>,
    /// How it ended.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub outcome: Option<String>,
    /// The row group.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub row_group: Option<u32>,
    /// The row within it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub row: Option<u32>,
    /// The try.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub attempt: Option<u32>,
}

impl Args {
    #[cfg_attr(not(feature = "serde"), allow(dead_code))]
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Turns the events of a run into those of a trace.
#[derive(Clone, Debug)]
pub struct Trace {
    out: EventBuffer,
    tasks: Tasks,
    calls: Calls,
    outages: Outages,
}

impl Trace {
    /// A trace of a run of `plan`, whose calls go to `resources`.
    #[must_use]
    pub fn new(plan: &Plan, resources: &[TracedResource<'_>]) -> Self {
        let mut out = EventBuffer::default();
        out.process(WORKERS, "workers");
        out.process(ROW_GROUPS, "row groups");
        let columns = plan.columns().iter().map(|column| column.name.clone()).collect();
        let calls = Calls::new(resources, &mut out);
        Self { out, tasks: Tasks::new(columns), calls, outages: Outages::new(resources) }
    }

    /// Shows an event of the pipeline.
    pub fn on_scheduler(&mut self, event: &SchedulerEvent) {
        self.tasks.on_event(event, &mut self.out);
    }

    /// Shows an event of request admission.
    pub fn on_request(&mut self, event: &RequestEvent) {
        self.calls.on_event(event, &mut self.out);
        self.outages.on_event(event, &mut self.out);
    }

    /// Closes what is open at the end of the run.
    pub fn finish(&mut self, at: Instant) {
        self.tasks.finish(at, &mut self.out);
        self.calls.finish(at, &mut self.out);
        self.outages.finish(at, &mut self.out);
    }

    /// What is complete since the last call.
    pub fn take(&mut self) -> Vec<TraceEvent> {
        core::mem::take(&mut self.out.events)
    }
}

impl Sink for Trace {
    fn wants_scheduler(&self) -> Interest {
        scheduler_interest()
    }

    fn wants_request(&self) -> RequestInterest {
        request_interest()
    }

    fn on_scheduler(&mut self, event: &SchedulerEvent) -> Result<(), SinkError> {
        Self::on_scheduler(self, event);
        Ok(())
    }

    fn on_request(&mut self, event: &RequestEvent) -> Result<(), SinkError> {
        Self::on_request(self, event);
        Ok(())
    }
}

/// What is to be taken.
#[derive(Clone, Debug, Default)]
struct EventBuffer {
    events: Vec<TraceEvent>,
}

/// A track: process and thread.
type Track = (u32, u32);

impl EventBuffer {
    fn push(&mut self, (pid, tid): Track, at: Instant, ph: char, name: String) -> &mut TraceEvent {
        let ts = micros(at.as_nanos());
        self.events.push(TraceEvent { name, ph, ts, dur: None, pid, tid, cat: "", id: None, args: Args::default() });
        let last = self.events.len() - 1;
        &mut self.events[last]
    }

    fn process(&mut self, pid: u32, name: &str) {
        self.push((pid, 0), Instant::ZERO, 'M', "process_name".to_string()).args.name = Some(name.to_string());
    }

    fn track(&mut self, track: Track, name: String) {
        self.push(track, Instant::ZERO, 'M', "thread_name".to_string()).args.name = Some(name);
    }

    fn slice(&mut self, track: Track, cat: &'static str, name: String, [from, to]: [Instant; 2]) -> &mut TraceEvent {
        let event = self.push(track, from, 'X', name);
        event.cat = cat;
        event.dur = Some(micros((to - from).as_nanos()));
        event
    }

    fn counter(&mut self, pid: u32, at: Instant, name: &str, value: u64) {
        self.push((pid, 0), at, 'C', name.to_string()).args.value = Some(value);
    }
}

/// Exact for runs of some months: a double holds 2^53 nanoseconds as thousandths of a microsecond well
/// enough.
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}
