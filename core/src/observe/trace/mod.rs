//! Converts a run to a trace that the Perfetto UI and `chrome://tracing` can open.
//!
//! [`Trace`] converts both streams of events to [`TraceEvent`]s of the [Trace Event Format][format]. An
//! array of these events, in any order, is a trace file. It has these processes and tracks:
//!
//! - Process *workers*: a track for each worker slot, with tasks as slices and waits without resources
//!   inside them. Counters of workers and queued tasks.
//! - One process for each provider resource: a track for each concurrent call, a track of cooldowns, and the
//!   waits. Counters of the limit, calls in flight and calls waiting.
//! - Process *row groups*: a track for each row group that is in progress at the same time, from its
//!   admission to its checkpoint.
//! - Process *outages*, if there are any: a track for each provider and model, with the times when it is
//!   down, probed, recovering and unavailable.
//!
//! Memory is bounded by what is open at the same time. [`Trace::take`] returns what is complete, and
//! [`Trace::finish`] closes what the run left open. A trace needs the events of [`scheduler_interest`] and
//! [`request_interest`].
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
use crate::pipeline::event::{SchedulerEvent, SchedulerEventKind, SchedulerInterest};
use crate::request::event::{RequestEvent, RequestEventKind, RequestInterest};
use crate::request::{ProviderModelId, ResourceId};
use crate::time::Instant;

/// Returns the scheduler events that a trace shows.
#[must_use]
pub fn scheduler_interest() -> SchedulerInterest {
    SchedulerInterest::of(&[
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

/// Returns the request events that a trace shows.
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

/// The process id of the worker slots.
const WORKERS: u32 = 1;
/// The process id of the row groups.
const ROW_GROUPS: u32 = 2;
/// The process id of the outages.
const OUTAGES: u32 = 3;
/// The process id of the first resource. The other resources follow.
const RESOURCES: u32 = 4;

/// A request resource that is used by calls of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedResource<'a> {
    /// The resource.
    pub resource: ResourceId,
    /// The provider and model of the resource. Other resources may share it.
    pub model: ProviderModelId,
    /// The name of the resource in the trace.
    pub name: &'a str,
}

/// One event of the Trace Event Format.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TraceEvent {
    /// What the event shows.
    pub name: String,
    /// The phase: `X` is a slice, `b` and `e` are the start and end of a wait, `C` is a counter, `M` is a
    /// name.
    pub ph: char,
    /// Microseconds since the origin of the run's clock, with a resolution of a nanosecond.
    pub ts: f64,
    /// The duration of a slice in microseconds.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub dur: Option<f64>,
    /// The process id.
    pub pid: u32,
    /// The id of the track within the process.
    pub tid: u32,
    /// The category.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "str::is_empty"))]
    pub cat: &'static str,
    /// The id that the start and the end of a wait share.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub id: Option<String>,
    /// Further arguments.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Args::is_empty"))]
    pub args: Args,
}

/// The arguments of an event.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Args {
    /// The name of a process or track.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub name: Option<String>,
    /// The value of a counter.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub value: Option<u64>,
    /// The outcome of a task or call.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub outcome: Option<String>,
    /// The row group.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub row_group: Option<u32>,
    /// The row within the row group.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub row: Option<u32>,
    /// The number of the attempt.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub attempt: Option<u32>,
}

impl Args {
    #[cfg_attr(not(feature = "serde"), allow(dead_code))]
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Converts the events of a run to the events of a trace.
#[derive(Clone, Debug)]
pub struct Trace {
    out: EventBuffer,
    tasks: Tasks,
    calls: Calls,
    outages: Outages,
}

impl Trace {
    /// Creates a trace of a run of `plan` whose calls use `resources`.
    #[must_use]
    pub fn new(plan: &Plan, resources: &[TracedResource<'_>]) -> Self {
        let mut out = EventBuffer::default();
        out.process(WORKERS, "workers");
        out.process(ROW_GROUPS, "row groups");
        let columns = plan.columns().iter().map(|column| column.name.clone()).collect();
        let calls = Calls::new(resources, &mut out);
        Self { out, tasks: Tasks::new(columns), calls, outages: Outages::new(resources) }
    }

    /// Adds an event of the scheduler.
    pub fn on_scheduler(&mut self, event: &SchedulerEvent) {
        self.tasks.on_event(event, &mut self.out);
    }

    /// Adds an event of request admission.
    pub fn on_request(&mut self, event: &RequestEvent) {
        self.calls.on_event(event, &mut self.out);
        self.outages.on_event(event, &mut self.out);
    }

    /// Closes everything that is open at the end of the run.
    pub fn finish(&mut self, at: Instant) {
        self.tasks.finish(at, &mut self.out);
        self.calls.finish(at, &mut self.out);
        self.outages.finish(at, &mut self.out);
    }

    /// Returns the events that were completed since the last call.
    pub fn take(&mut self) -> Vec<TraceEvent> {
        core::mem::take(&mut self.out.events)
    }
}

impl Sink for Trace {
    fn scheduler_interest(&self) -> SchedulerInterest {
        scheduler_interest()
    }

    fn request_interest(&self) -> RequestInterest {
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

/// The events that the next [`Trace::take`] returns.
#[derive(Clone, Debug, Default)]
struct EventBuffer {
    events: Vec<TraceEvent>,
}

/// A track: the ids of the process and of the thread.
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

/// Converts nanoseconds to microseconds. Exact to the nanosecond for runs of some months: a double
/// has 53 significant bits.
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}
