//! Events as spans and events of `tracing`, for the subscriber that the application installs.
//!
//! - A `task` span lasts from the start of a worker until its lease is released.
//! - A `call` span lasts from the permit of a call until its end. It is a child of the span of its task.
//! - All other events are `tracing` events in the span that they belong to: at level `DEBUG`, or `WARN` for
//!   failures of providers, of hooks and of the run.
//!
//! Both spans record their `outcome`. The target is always `tidegate`. Spans open and close when the events
//! are delivered, slightly after they happened; the field `at_ns` has the exact instant, in nanoseconds of
//! the host's clock.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_core::event::EventKind;
use tidegate_core::observe::{Sink, SinkError};
use tidegate_core::pipeline::event::{Correlation, SchedulerEvent, SchedulerEventKind, SchedulerEventPayload};
use tidegate_core::request::event::{EventScope, RequestEvent, RequestEventKind, RequestEventPayload};
use tidegate_core::request::{RequestAdmission, ResourceId};
use tidegate_core::time::Instant;
use tracing::field::Empty;
use tracing::{Span, debug, info_span, warn};

use super::names;

/// A sink that emits spans and events. See the [module documentation](self).
///
/// ```
/// use tidegate_core::observe::Sinks;
/// use tidegate_native::gate::{Limits, RequestGate, ResourceKey};
/// use tidegate_native::observe::tracing::TracingSink;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gate = RequestGate::new()?;
/// gate.register(&ResourceKey::chat("acme", "writer"), &Limits::at_most(8))?;
///
/// let mut sinks = Sinks::default();
/// sinks.add("tracing", gate.core().with(|control, now| TracingSink::new(now, control)));
/// // For a run, pass the sinks to `PipelineRun::with_sinks`. For a gate alone, call this from time to time:
/// gate.core().feed(&mut sinks);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TracingSink {
    /// The names of scheduler event kinds, by index.
    scheduler: Vec<Arc<str>>,
    /// The names of request event kinds, by index.
    requests: Vec<Arc<str>>,
    resources: HashMap<ResourceId, String>,
    /// By task id.
    tasks: HashMap<u64, Span>,
    /// By slot and generation of the lease.
    calls: HashMap<(u32, u32), Span>,
}

impl TracingSink {
    /// Creates a sink that knows the resources of `admission`. The field `resource` is empty for calls of
    /// resources that are registered later.
    #[must_use]
    pub fn new(now: Instant, admission: &RequestAdmission) -> Self {
        let baselines = admission.resources().filter_map(|resource| admission.baseline(now, resource));
        Self {
            scheduler: names::kind_names::<SchedulerEventKind>(),
            requests: names::kind_names::<RequestEventKind>(),
            resources: baselines.map(|baseline| (baseline.resource, baseline.name)).collect(),
            tasks: HashMap::new(),
            calls: HashMap::new(),
        }
    }
}

fn task_span(event: &SchedulerEvent) -> Span {
    let Correlation { run, row_group, column, row, attempt, task, .. } = event.correlation;
    let column = column.map(|column| column.index() as u64);
    let task = task.map(|task| format!("{task:016x}"));
    info_span!(
        target: "tidegate", parent: None, "task",
        run, row_group, column, row, attempt, task, at_ns = event.at.as_nanos(), outcome = Empty,
    )
}

impl Sink for TracingSink {
    fn on_scheduler(&mut self, event: &SchedulerEvent) -> Result<(), SinkError> {
        let kind = &*self.scheduler[event.payload.kind().index() as usize];
        let (at_ns, task, payload) = (event.at.as_nanos(), event.correlation.task.unwrap_or(u64::MAX), &event.payload);
        if let SchedulerEventPayload::WorkerSpawned { .. } = payload {
            self.tasks.insert(task, task_span(event));
        }
        let span = self.tasks.get(&task).cloned().unwrap_or_else(Span::none);
        match payload {
            SchedulerEventPayload::EarlyShutdown { .. }
            | SchedulerEventPayload::JobStopping { .. }
            | SchedulerEventPayload::RowGroupDiscarded { .. }
            | SchedulerEventPayload::ProviderDegraded { .. }
            | SchedulerEventPayload::HookFailed { .. }
            | SchedulerEventPayload::WorkerSpawnFailed { .. } => {
                warn!(target: "tidegate", parent: &span, kind, at_ns, payload = ?payload);
            }
            _ => debug!(target: "tidegate", parent: &span, kind, at_ns, payload = ?payload),
        }
        match payload {
            SchedulerEventPayload::TaskCompleted { outcome, .. } => {
                span.record("outcome", names::task_outcome_name(*outcome));
            }
            SchedulerEventPayload::TaskLeaseReleased { .. } => drop(self.tasks.remove(&task)),
            SchedulerEventPayload::JobCompleted { .. } => self.tasks.clear(),
            _ => {}
        }
        Ok(())
    }

    fn on_request(&mut self, event: &RequestEvent) -> Result<(), SinkError> {
        let kind = &*self.requests[event.payload.kind().index() as usize];
        let (at_ns, payload) = (event.at.as_nanos(), &event.payload);
        let resource = match event.scope {
            EventScope::Resource(resource) => self.resources.get(&resource).map_or("", String::as_str),
            _ => "",
        };
        let task = event.correlation.and_then(|about| about.task).and_then(|task| self.tasks.get(&task));
        let parent = task.and_then(Span::id);
        match payload {
            RequestEventPayload::LeaseAcquired { lease, limit, in_flight } => {
                let span = info_span!(
                    target: "tidegate", parent: parent, "call", resource, at_ns, limit, in_flight, outcome = Empty
                );
                self.calls.insert((lease.key.slot, lease.key.generation), span);
            }
            RequestEventPayload::LeaseReleased { lease, outcome, .. } => {
                if let Some(span) = self.calls.remove(&(lease.key.slot, lease.key.generation)) {
                    span.record("outcome", names::variant_name(outcome).as_str());
                }
            }
            RequestEventPayload::RateLimited { .. } => {
                warn!(target: "tidegate", parent: parent, kind, resource, at_ns, payload = ?payload);
            }
            _ => debug!(target: "tidegate", parent: parent, kind, resource, at_ns, payload = ?payload),
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.tasks.clear();
        self.calls.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use parking_lot::Mutex;
    use tidegate_core::sim::scenario::builtin;
    use tidegate_core::sim::world::World;
    use tracing::span::{Attributes, Id};
    use tracing_subscriber::layer::{Context, SubscriberExt as _};
    use tracing_subscriber::{Layer, Registry};

    use super::*;

    /// A layer that counts the spans that were opened and closed, by name.
    #[derive(Clone, Default)]
    struct Counts(Arc<Mutex<BTreeMap<&'static str, (u64, u64)>>>);

    impl<S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>> Layer<S> for Counts {
        fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, context: Context<'_, S>) {
            let parent = attributes.parent().and_then(|id| context.span(id)).map(|span| span.name());
            let mut counts = self.0.lock();
            counts.entry(attributes.metadata().name()).or_default().0 += 1;
            if parent == Some("task") {
                counts.entry("inside a task").or_default().0 += 1;
            }
        }

        fn on_close(&self, id: Id, context: Context<'_, S>) {
            let name = context.span(&id).map_or("", |span| span.name());
            self.0.lock().entry(name).or_default().1 += 1;
        }
    }

    /// The sink under test, with counts of the events that open spans.
    struct Counted {
        sink: TracingSink,
        spawned: u64,
        granted: u64,
    }

    impl Sink for Counted {
        fn on_scheduler(&mut self, event: &SchedulerEvent) -> Result<(), SinkError> {
            self.spawned += u64::from(event.payload.kind() == SchedulerEventKind::WorkerSpawned);
            self.sink.on_scheduler(event)
        }

        fn on_request(&mut self, event: &RequestEvent) -> Result<(), SinkError> {
            self.granted += u64::from(event.payload.kind() == RequestEventKind::LeaseAcquired);
            self.sink.on_request(event)
        }
    }

    #[test]
    fn every_task_attempt_and_every_call_is_a_span_that_closes() {
        let scenario = builtin().remove(0);
        let mut sink = None;
        let begin = |admission: &RequestAdmission| sink = Some(TracingSink::new(Instant::ZERO, admission));
        let mut world = World::with_events(&scenario, 1, begin).unwrap();
        let mut counted = Counted { sink: sink.unwrap(), spawned: 0, granted: 0 };
        let counts = Counts::default();
        tracing::subscriber::with_default(Registry::default().with(counts.clone()), || {
            world.run_feeding(&mut counted).unwrap();
            counted.sink.finish().unwrap();
        });
        let Counted { spawned, granted, .. } = counted;
        let counts = counts.0.lock();
        assert_eq!(counts["task"], (spawned, spawned));
        assert_eq!(counts["call"], (granted, granted));
        // A call that starts at the same instant as its worker is not inside: the event of the worker comes
        // later.
        let inside = counts["inside a task"].0;
        assert!((granted * 9 / 10..granted).contains(&inside), "{inside} of {granted} calls are inside their tasks");
        assert!(spawned > 100 && granted > 100);
    }
}
