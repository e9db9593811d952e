//! Events as metrics, for whatever recorder the application installs.
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
//! Labels are bounded: their values come from the kinds of events, the outcomes and the registered models, never from a task,
//! a row, a waiter or a lease. Those are for [traces](super) only.

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

/// Counts events. See the [module documentation](self).
#[derive(Debug)]
pub struct Metrics {
    scheduler: Vec<Arc<str>>,
    requests: Vec<Arc<str>>,
    resources: HashMap<ResourceId, [Label; 3]>,
}

impl Metrics {
    /// Counts for the resources that `admission` has now; calls of later ones count without their names.
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
            scheduler: names::of_kinds::<SchedulerEventKind>(),
            requests: names::of_kinds::<RequestEventKind>(),
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

impl Sink for Metrics {
    fn on_scheduler(&mut self, event: &SchedulerEvent) -> Result<(), SinkError> {
        let kind = Arc::clone(&self.scheduler[event.payload.kind().index() as usize]);
        counter!("tidegate_scheduler_events_total", "kind" => kind).increment(1);
        match event.payload {
            SchedulerEventPayload::TaskCompleted { outcome, .. } => {
                counter!("tidegate_tasks_total", "outcome" => names::of_task_outcome(outcome)).increment(1);
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
        let labels = self.labels(event.place);
        let with = |name: &'static str, value: Arc<str>| {
            let mut labels = labels.clone();
            labels.push(Label::new(name, value));
            labels
        };
        let kind = Arc::clone(&self.requests[event.payload.kind().index() as usize]);
        counter!("tidegate_request_events_total", with("kind", kind)).increment(1);
        match event.payload {
            RequestEventPayload::LeaseReleased { outcome, held, in_flight, .. } => {
                let outcome: Arc<str> = names::of(&outcome).into();
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

    /// Keeps the name and the labels of every series.
    #[derive(Default)]
    struct Series(Mutex<BTreeSet<(String, Labels)>>);

    type Labels = Vec<(String, String)>;

    impl Series {
        fn keep(&self, key: &Key) {
            let labels = key.labels().map(|label| (label.key().to_owned(), label.value().to_owned()));
            self.0.lock().insert((key.name().to_owned(), labels.collect()));
        }
    }

    impl Recorder for Series {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            self.keep(key);
            Counter::noop()
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            self.keep(key);
            Gauge::noop()
        }

        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            self.keep(key);
            Histogram::noop()
        }
    }

    #[test]
    fn labels_name_kinds_outcomes_and_models_and_never_an_id() {
        let series = Series::default();
        for scenario in builtin() {
            let mut counts = None;
            let begin = |admission: &RequestAdmission| counts = Some(Metrics::new(Instant::ZERO, admission));
            let mut world = World::with_events(&scenario, 1, begin).unwrap();
            let mut counts = counts.unwrap();
            metrics::with_local_recorder(&series, || world.run_feeding(&mut counts).unwrap());
        }
        let series = series.0.into_inner();
        let models: BTreeSet<String> =
            builtin().into_iter().flat_map(|scenario| scenario.models).map(|model| model.name).collect();
        let kinds: BTreeSet<String> = names::of_kinds::<SchedulerEventKind>()
            .into_iter()
            .chain(names::of_kinds::<RequestEventKind>())
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
        assert!(series.len() > 30, "little was counted: {series:?}");
    }
}
