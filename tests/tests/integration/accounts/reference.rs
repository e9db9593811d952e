//! The figures of 7.1 by definition: at every instant the state is counted anew from all events before it.

use tidegate_core::pipeline::event::{SchedulerEvent, SchedulerEventPayload as Fact};
use tidegate_core::pipeline::{PipelineConfig, Plan, Strategy, TaskOutcome};
use tidegate_core::request::event::{EventScope, RequestEvent, RequestEventPayload};
use tidegate_core::time::Instant;

/// The integrals of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Integrals {
    pub(crate) busy: u128,
    pub(crate) idle: u128,
    pub(crate) overhang: u128,
    pub(crate) starved: u128,
    pub(crate) busy_squared: u128,
}

impl Integrals {
    fn add(&mut self, span: u64, limit: i64, leased: i64, demand: i64) {
        let slots = |slots: i64| slots.max(0) as u128 * u128::from(span);
        self.busy += slots(leased);
        self.idle += slots(limit - leased);
        self.overhang += slots(leased - limit);
        self.starved += if demand > 0 { slots(limit - leased) } else { 0 };
        self.busy_squared += slots(leased * leased);
    }
}

/// What happened in a run, all of it.
pub(crate) struct Record {
    pub(crate) scheduler: Vec<SchedulerEvent>,
    pub(crate) requests: Vec<RequestEvent>,
}

impl Record {
    /// The instants at which anything happened while the run went on.
    fn instants(&self) -> Vec<Instant> {
        let (Some(start), Some(end)) = (self.scheduler.first(), self.scheduler.last()) else { return Vec::new() };
        let mut all: Vec<Instant> = self.scheduler.iter().map(|event| event.at).collect();
        all.extend(self.requests.iter().map(|event| event.at).filter(|at| (start.at..=end.at).contains(at)));
        all.sort_unstable();
        all.dedup();
        all
    }

    fn spans(&self) -> Vec<(Instant, u64)> {
        self.instants().windows(2).map(|pair| (pair[0], (pair[1] - pair[0]).as_nanos())).collect()
    }

    fn scheduler_until(&self, at: Instant) -> impl Iterator<Item = &SchedulerEvent> {
        self.scheduler.iter().filter(move |event| event.at <= at)
    }

    /// One resource of the task stage.
    pub(crate) fn task_resource(&self, plan: &Plan, name: &str, limit: u32) -> Integrals {
        let amount = |event: &SchedulerEvent| {
            let column = &plan.columns()[event.correlation.column.unwrap().index()];
            let asked = column.demand.iter().filter(|(asked, _)| asked == name).map(|(_, amount)| i64::from(*amount));
            asked.sum::<i64>().max(i64::from(name == "submission"))
        };
        let mut integrals = Integrals::default();
        for (at, span) in self.spans() {
            let (mut leased, mut demand) = (0, 0);
            for event in self.scheduler_until(at) {
                match event.payload {
                    Fact::TaskLeaseAcquired { .. } | Fact::TaskResumed { .. } => leased += amount(event),
                    Fact::TaskYielded { .. } => leased -= amount(event),
                    Fact::TaskLeaseReleased { .. } if !self.had_yielded(event) => leased -= amount(event),
                    Fact::ReadyEnqueued { .. } => demand += i64::from(amount(event) > 0),
                    Fact::Selected { .. } | Fact::Cancelled { queued: true } => demand -= i64::from(amount(event) > 0),
                    Fact::QueueDrained { discarded: 1.. } => demand = 0,
                    _ => {}
                }
            }
            integrals.add(span, i64::from(limit), leased, demand);
        }
        integrals
    }

    /// Whether a worker ended that held nothing.
    fn had_yielded(&self, end: &SchedulerEvent) -> bool {
        let of_task =
            |event: &&SchedulerEvent| event.sequence < end.sequence && event.correlation.task == end.correlation.task;
        let last = self.scheduler.iter().filter(of_task).rev().find(|event| {
            matches!(
                event.payload,
                Fact::TaskYielded { .. } | Fact::TaskResumed { .. } | Fact::TaskLeaseAcquired { .. }
            )
        });
        last.is_some_and(|event| matches!(event.payload, Fact::TaskYielded { .. }))
    }

    /// One request resource.
    pub(crate) fn request_resource(&self, resource: usize, limit: u32) -> Integrals {
        let mut integrals = Integrals::default();
        for (at, span) in self.spans() {
            let (in_flight, waiters) = self.calls_at(at, |place| is(place, resource));
            integrals.add(span, i64::from(limit), in_flight, waiters);
        }
        integrals
    }

    fn calls_at(&self, at: Instant, is_it: impl Fn(EventScope) -> bool) -> (i64, i64) {
        let (mut in_flight, mut waiters) = (0, 0);
        for event in self.requests.iter().filter(|event| event.at <= at && is_it(event.scope)) {
            match event.payload {
                RequestEventPayload::LeaseAcquired { .. } => in_flight += 1,
                RequestEventPayload::LeaseReleased { .. } => in_flight -= 1,
                RequestEventPayload::WaitStarted { waiter: Some(_) } => waiters += 1,
                RequestEventPayload::WaitCompleted { waiter: Some(_), .. }
                | RequestEventPayload::WaitTimeout { waiter: Some(_), .. }
                | RequestEventPayload::WaitCancelled { .. } => waiters -= 1,
                _ => {}
            }
        }
        (in_flight, waiters)
    }

    /// Waiting for calls by whoever held a lease of the task stage.
    pub(crate) fn wait_while_leased(&self) -> u128 {
        let while_leased = |(at, span): (Instant, u64)| {
            let (_, waiters) = self.calls_at(at, |_| true);
            let yielded = self.yielded_at(at);
            (waiters - yielded).max(0) as u128 * u128::from(span)
        };
        self.spans().into_iter().map(while_leased).sum()
    }

    fn yielded_at(&self, at: Instant) -> i64 {
        let step = |event: &SchedulerEvent| match event.payload {
            Fact::TaskYielded { .. } => 1,
            Fact::TaskResumed { .. } => -1,
            Fact::TaskLeaseReleased { .. } if self.had_yielded(event) => -1,
            _ => 0,
        };
        self.scheduler_until(at).map(step).sum()
    }

    /// From each enqueueing to its lease, in nanoseconds, sorted.
    pub(crate) fn queue_ages(&self) -> Vec<u64> {
        let mut ages: Vec<u64> = Vec::new();
        for (place, event) in self.scheduler.iter().enumerate() {
            if let Fact::TaskLeaseAcquired { .. } = event.payload {
                let before = self.scheduler[..place].iter().rev();
                let mut enqueued = before.filter(|before| matches!(before.payload, Fact::ReadyEnqueued { .. }));
                let enqueued = enqueued.find(|before| before.correlation.task == event.correlation.task);
                ages.push((event.at - enqueued.expect("it was queued").at).as_nanos());
            }
        }
        ages.sort_unstable();
        ages
    }

    /// From the end of the last upstream to a task's first lease, in nanoseconds, sorted.
    pub(crate) fn gaps(&self, plan: &Plan) -> Vec<u64> {
        let mut gaps: Vec<u64> = Vec::new();
        for (place, event) in self.scheduler.iter().enumerate() {
            let about = event.correlation;
            if !matches!(event.payload, Fact::TaskLeaseAcquired { .. }) || about.attempt != Some(1) {
                continue;
            }
            let is_upstream = |before: &&SchedulerEvent| {
                let is_made = matches!(
                    before.payload,
                    Fact::TaskCompleted { outcome: Some(TaskOutcome::Success | TaskOutcome::Skipped), .. }
                );
                let Some(column) = before.correlation.column.filter(|_| is_made) else { return false };
                let is_cell = plan.columns()[column.index()].strategy == Strategy::Cell;
                plan.upstreams(about.column.unwrap()).contains(&column)
                    && before.correlation.row_group == about.row_group
                    && (!is_cell || about.row.is_none() || before.correlation.row == about.row)
            };
            if let Some(last) = self.scheduler[..place].iter().filter(is_upstream).map(|before| before.at).max() {
                gaps.push((event.at - last).as_nanos());
            }
        }
        gaps.sort_unstable();
        gaps
    }
}

/// The resources of a run's task stage.
pub(crate) fn task_resources(config: &PipelineConfig) -> Vec<(String, u32)> {
    let submission = ("submission".to_string(), config.submission_limit);
    std::iter::once(submission).chain(config.resources.iter().cloned()).collect()
}

fn is(place: EventScope, resource: usize) -> bool {
    matches!(place, EventScope::Resource(id) if id.index() == resource)
}
