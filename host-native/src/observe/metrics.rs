//! Events as metrics, for the recorder that the application installs.
//!
//! | metric | kind | labels |
//! | --- | --- | --- |
//! | `tidegate_scheduler_events_total` | counter | `kind` |
//! | `tidegate_request_events_total` | counter | `kind`, `provider`, `model`, `domain` |
//! | `tidegate_tasks_total` | counter | `outcome` |
//! | `tidegate_calls_total` | counter | `outcome`, `provider`, `model`, `domain` |
//! | `tidegate_call_held_seconds` | histogram | `outcome`, `provider`, `model`, `domain` |
//! | `tidegate_call_wait_seconds` | histogram | `provider`, `model`, `domain` |
//! | `tidegate_calls_in_flight`, `tidegate_call_limit` | gauge | `provider`, `model`, `domain` |
//! | `tidegate_workers`, `tidegate_tasks_queued`, `tidegate_row_groups` | gauge | none |
//!
//! The number of label values is bounded. They are event kinds, outcomes, and the names of registered models;
//! ids of tasks, rows, waiters and leases appear only in [traces](super::perfetto).
//!
//! Durations are in seconds. `tidegate_call_wait_seconds` is the time that a call waits for its permit, and
//! `tidegate_call_held_seconds` the time that it holds it.

use std::collections::HashMap;
use std::sync::Arc;

use metrics::{Label, counter, gauge, histogram};
use tidegate_core::event::EventKind;
use tidegate_core::observe::{Sink, SinkError};
use tidegate_core::pipeline::event::{SchedulerEvent, SchedulerEventKind, SchedulerEventPayload};
use tidegate_core::request::event::{EventScope, RequestEvent, RequestEventKind, RequestEventPayload};
use tidegate_core::request::{RequestAdmission, ResourceId};
use tidegate_core::time::Instant;

use super::names;

/// A sink that records events as metrics. See the [module documentation](self).
///
/// ```
/// use tidegate_core::observe::Sinks;
/// use tidegate_native::gate::{Limits, RequestGate, ResourceKey};
/// use tidegate_native::observe::metrics::MetricsSink;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gate = RequestGate::new()?;
/// gate.register(&ResourceKey::chat("acme", "writer"), &Limits::at_most(8))?;
///
/// let mut sinks = Sinks::default();
/// sinks.add("metrics", gate.core().with(|control, now| MetricsSink::new(now, control)));
/// // For a run, pass the sinks to `PipelineRun::with_sinks`. For a gate alone, call this from time to time:
/// gate.core().feed(&mut sinks);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MetricsSink {
    /// The names of scheduler event kinds, by index.
    scheduler: Vec<Arc<str>>,
    /// The names of request event kinds, by index.
    requests: Vec<Arc<str>>,
    resources: HashMap<ResourceId, [Label; 3]>,
}

impl MetricsSink {
    /// Creates a sink that knows the resources of `admission`. Calls of resources that are registered later
    /// are recorded without the labels `provider`, `model` and `domain`.
    #[must_use]
    pub fn new(now: Instant, admission: &RequestAdmission) -> Self {
        let labels = |resource| {
            let state = admission.snapshot(now, resource)?;
            let labels = [
                Label::new("provider", state.provider),
                Label::new("model", state.model),
                Label::new("domain", state.domain.to_string()),
            ];
            Some((resource, labels))
        };
        Self {
            scheduler: names::kind_names::<SchedulerEventKind>(),
            requests: names::kind_names::<RequestEventKind>(),
            resources: admission.resources().filter_map(labels).collect(),
        }
    }

    fn labels(&self, place: EventScope) -> Vec<Label> {
        match place {
            EventScope::Resource(resource) => {
                self.resources.get(&resource).map_or_else(Vec::new, |known| known.to_vec())
            }
            _ => Vec::new(),
        }
    }
}

impl Sink for MetricsSink {
    fn on_scheduler(&mut self, event: &SchedulerEvent) -> Result<(), SinkError> {
        let kind = Arc::clone(&self.scheduler[event.payload.kind().index() as usize]);
        counter!("tidegate_scheduler_events_total", "kind" => kind).increment(1);
        match event.payload {
            SchedulerEventPayload::TaskCompleted { outcome, .. } => {
                counter!("tidegate_tasks_total", "outcome" => names::task_outcome_name(outcome)).increment(1);
            }
            SchedulerEventPayload::TaskLeaseAcquired { active, .. }
            | SchedulerEventPayload::TaskLeaseReleased { active, .. } => {
                gauge!("tidegate_workers").set(active);
            }
            SchedulerEventPayload::ReadyEnqueued { queued } | SchedulerEventPayload::Selected { queued } => {
                gauge!("tidegate_tasks_queued").set(queued);
            }
            SchedulerEventPayload::QueueDrained { .. } => gauge!("tidegate_tasks_queued").set(0),
            SchedulerEventPayload::RowGroupAdmitted { active, .. } => gauge!("tidegate_row_groups").set(active),
            SchedulerEventPayload::HealthSnapshot { row_groups_active, .. } => {
                gauge!("tidegate_row_groups").set(row_groups_active);
            }
            _ => {}
        }
        Ok(())
    }

    fn on_request(&mut self, event: &RequestEvent) -> Result<(), SinkError> {
        let labels = self.labels(event.scope);
        let with = |name: &'static str, value: Arc<str>| {
            let mut labels = labels.clone();
            labels.push(Label::new(name, value));
            labels
        };
        let kind = Arc::clone(&self.requests[event.payload.kind().index() as usize]);
        counter!("tidegate_request_events_total", with("kind", kind)).increment(1);
        match event.payload {
            RequestEventPayload::LeaseReleased { outcome, held, in_flight, .. } => {
                let outcome: Arc<str> = names::variant_name(&outcome).into();
                counter!("tidegate_calls_total", with("outcome", Arc::clone(&outcome))).increment(1);
                histogram!("tidegate_call_held_seconds", with("outcome", outcome)).record(held.as_secs_f64());
                gauge!("tidegate_calls_in_flight", labels).set(in_flight);
            }
            RequestEventPayload::LeaseAcquired { limit, in_flight, .. } => {
                gauge!("tidegate_call_limit", labels.clone()).set(limit);
                gauge!("tidegate_calls_in_flight", labels).set(in_flight);
            }
            RequestEventPayload::WaitCompleted { waited, .. } => {
                histogram!("tidegate_call_wait_seconds", labels).record(waited.as_secs_f64());
            }
            RequestEventPayload::LimitDecreased { to, .. }
            | RequestEventPayload::LimitIncreased { to, .. }
            | RequestEventPayload::RampStep { to, .. } => gauge!("tidegate_call_limit", labels).set(to),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
    use parking_lot::Mutex;
    use tidegate_core::sim::scenario::builtin;
    use tidegate_core::sim::world::World;

    use super::*;

    /// A recorder that stores the name and the labels of every series.
    #[derive(Default)]
    struct Series(Mutex<BTreeSet<(String, Labels)>>);

    type Labels = Vec<(String, String)>;

    impl Series {
        fn insert(&self, key: &Key) {
            let labels = key.labels().map(|label| (label.key().to_owned(), label.value().to_owned()));
            self.0.lock().insert((key.name().to_owned(), labels.collect()));
        }
    }

    impl Recorder for Series {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            self.insert(key);
            Counter::noop()
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            self.insert(key);
            Gauge::noop()
        }

        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            self.insert(key);
            Histogram::noop()
        }
    }

    #[test]
    fn label_values_are_kinds_outcomes_and_models() {
        let series = Series::default();
        for scenario in builtin() {
            let mut sink = None;
            let begin = |admission: &RequestAdmission| sink = Some(MetricsSink::new(Instant::ZERO, admission));
            let mut world = World::with_events(&scenario, 1, begin).unwrap();
            let mut sink = sink.unwrap();
            metrics::with_local_recorder(&series, || world.run_feeding(&mut sink).unwrap());
        }
        let series = series.0.into_inner();
        let models: BTreeSet<String> =
            builtin().into_iter().flat_map(|scenario| scenario.models).map(|model| model.name).collect();
        let kinds: BTreeSet<String> = names::kind_names::<SchedulerEventKind>()
            .into_iter()
            .chain(names::kind_names::<RequestEventKind>())
            .map(|name| name.to_string())
            .collect();
        for (name, labels) in &series {
            for (key, value) in labels {
                let is_bounded = match key.as_str() {
                    "kind" => kinds.contains(value),
                    "provider" | "model" => models.contains(value),
                    "domain" => value == "chat",
                    "outcome" => value.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_'),
                    _ => false,
                };
                assert!(is_bounded, "{name}: {key} = {value}");
            }
        }
        assert!(series.len() > 30, "too few series: {series:?}");
    }
}
