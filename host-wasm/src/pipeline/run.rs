//! A run under way, as JavaScript watches and steers it.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_core::driver::{self, FatalError, RunHandle};
use tidegate_core::event::EventKind;
use tidegate_core::gate::Gate;
use tidegate_core::pipeline::event::{SchedulerEventKind, SchedulerInterest};
use tidegate_core::pipeline::{FailureKind, Pipeline, RetryKind, RunReport, TaskOutcome};
use tidegate_core::request::{Completion, ResourceId};
use tidegate_core::runtime::Spawn;
use tidegate_core::time::Duration;
use wasm_bindgen::prelude::*;

use super::desk::{Callbacks, JsWorkload, Office};
use super::{event, figures};
use crate::gate::{news, outcome_of, tie};
use crate::host::JsHost;

/// A run of a pipeline. It goes on without this handle.
#[wasm_bindgen]
pub struct PipelineRun {
    office: Rc<Office>,
    handle: RunHandle<JsHost>,
    report: Rc<RefCell<Option<RunReport>>>,
}

/// The failures that may pass, and those for good, by the number of an answer.
const RETRIES: [RetryKind; 6] = [
    RetryKind::RateLimited,
    RetryKind::Timeout,
    RetryKind::ServerError,
    RetryKind::Connection,
    RetryKind::AdmissionTimeout,
    RetryKind::UnreadableAnswer,
];
const FAILURES: [FailureKind; 9] = [
    FailureKind::Request,
    FailureKind::Authentication,
    FailureKind::NotFound,
    FailureKind::MalformedAnswer,
    FailureKind::Template,
    FailureKind::Other,
    FailureKind::TruncatedAnswer,
    FailureKind::ContentFiltered,
    FailureKind::Refused,
];

impl PipelineRun {
    pub(super) fn start(
        pipeline: Pipeline,
        gate: Option<&Gate<JsHost>>,
        calls: &[(String, ResourceId)],
        callbacks: Callbacks,
    ) -> Self {
        let office = Rc::new(Office::new(callbacks));
        #[allow(clippy::arc_with_non_send_sync, reason = "the driver shares workloads on hosts with threads, too")]
        let workload = Arc::new(JsWorkload(Rc::clone(&office)));
        let run = match gate {
            Some(gate) => {
                let calls: Vec<_> = calls.iter().map(|(name, resource)| (name.as_str(), *resource)).collect();
                driver::run_through(pipeline, workload, gate, &calls)
            }
            None => driver::run(JsHost, pipeline, workload),
        };
        let started = Self { office, handle: run.handle(), report: Rc::default() };
        JsHost.spawn(drive(run, Rc::clone(&started.office), started.handle.clone(), Rc::clone(&started.report)));
        started
    }
}

/// Polls the run to its end, and hands on its events in the turns between.
async fn drive(
    run: driver::PipelineRun<JsHost, JsWorkload>,
    office: Rc<Office>,
    handle: RunHandle<JsHost>,
    report: Rc<RefCell<Option<RunReport>>>,
) {
    let mut run = pin!(run);
    let mut events = Vec::new();
    let ended = poll_fn(|context| {
        let polled = run.as_mut().poll(context);
        handle.take_events(&mut events);
        for event in events.drain(..) {
            office.call(|to| event::tell(to, &event));
        }
        polled
    })
    .await;
    *report.borrow_mut() = Some(ended);
    office.close();
}

/// What the end of a call means for the task that it was made for, as the number that [`PipelineRun::finish`] takes. `outcome` is that
/// of the call.
#[wasm_bindgen(js_name = outcomeOfCall)]
#[must_use]
pub fn outcome_of_call(outcome: u32) -> u32 {
    event::outcome_code(Some(TaskOutcome::from(Completion::new(outcome_of(outcome)))))
}

#[wasm_bindgen]
impl PipelineRun {
    /// How a task ended: 0 made, 1 skipped, 2 cancelled, from 16 a failure that may pass, from 32 one for good.
    /// `retry_after_ms` is NaN if the provider asked for no pause, `status` is 0 if there is no HTTP status. Nothing happens if nobody
    /// waits for it any more.
    pub fn finish(&self, slot: u32, generation: u32, outcome: u32, retry_after_ms: f64, status: u16) {
        let outcome = match outcome {
            0 => TaskOutcome::Success,
            1 => TaskOutcome::Skipped,
            2 => TaskOutcome::Cancelled,
            3 => TaskOutcome::Unavailable,
            16..=21 => {
                let pause = (!retry_after_ms.is_nan()).then(|| Duration::from_nanos((retry_after_ms * 1e6) as u64));
                let status = (status != 0).then_some(status);
                TaskOutcome::Retryable { kind: RETRIES[outcome as usize - 16], status, retry_after: pause }
            }
            _ => TaskOutcome::Failed(FAILURES.get(outcome as usize - 32).copied().unwrap_or(FailureKind::Other)),
        };
        self.office.finish(slot, generation, Ok(outcome));
    }

    /// A task met a bug, which ends the run.
    pub fn broke(&self, slot: u32, generation: u32, message: &str) {
        self.office.finish(slot, generation, Err(FatalError(message.into())));
    }

    /// A step of a row group ended: `failure` says what was wrong, if anything; `left_out` are the rows that a pre-batch hook
    /// does not want.
    #[wasm_bindgen(js_name = stepEnded)]
    pub fn step_ended(&self, step: u32, row_group: u32, left_out: Vec<u32>, failure: Option<String>) {
        self.office.step_ended(step, row_group, failure.map_or(Ok(left_out), Err));
    }

    /// The gate's next `acquire` is this task's.
    pub fn lend(&self, slot: u32, generation: u32) {
        tie::lend(self.office.tie(slot, generation));
    }

    /// Stops the run: tasks under way are told to stop, and it is over once every lease is back.
    pub fn cancel(&self) {
        self.handle.cancel();
        news::announce();
    }

    /// Drains the run: calls that are out end, and none begins.
    pub fn drain(&self) {
        self.handle.drain();
        news::announce();
    }

    /// Winds the run down: row groups in work are finished and saved.
    #[wasm_bindgen(js_name = windDown)]
    pub fn wind_down(&self) {
        self.handle.wind_down();
        news::announce();
    }

    /// Asks for the events of these kinds from now on, one bit for each: the lower 32 kinds, and the others.
    pub fn listen(&self, low: u32, high: u32) {
        let bits = u64::from(high) << 32 | u64::from(low);
        let wanted = SchedulerEventKind::ALL.iter().filter(|kind| bits & 1 << kind.index() != 0);
        let kinds: Vec<_> = wanted.copied().collect();
        self.handle.listen(SchedulerInterest::of(&kinds));
    }

    /// Where the run stands: see `figures`.
    #[must_use]
    pub fn progress(&self) -> Vec<f64> {
        figures::progress(&self.handle.progress())
    }

    /// What the run did: see `figures`. Empty before its end.
    #[must_use]
    pub fn report(&self) -> Vec<f64> {
        self.report.borrow().as_ref().map(figures::report).unwrap_or_default()
    }

    /// The words that belong to the reason why the run ended, if any.
    #[must_use]
    #[wasm_bindgen(js_name = stopWords)]
    pub fn stop_words(&self) -> Option<String> {
        self.report.borrow().as_ref().and_then(|report| figures::stop_words(&report.stop))
    }

    /// The rows of a row group that are not dropped.
    #[must_use]
    #[wasm_bindgen(js_name = liveRows)]
    pub fn live_rows(&self, row_group: u32) -> Vec<u32> {
        self.handle.inspect(|pipeline| pipeline.live_rows(row_group).collect())
    }

    /// What keeps a task; `row` is below 0 for a whole row group. Nothing for one that runs, or is made or dropped.
    #[must_use]
    #[wasm_bindgen(js_name = whyWaiting)]
    pub fn why_waiting(&self, column: &str, row_group: u32, row: i32) -> Option<String> {
        self.handle.inspect(|pipeline| {
            let column = pipeline.plan().column_id(column)?;
            let task = Pipeline::task_number(column, row_group, u32::try_from(row).ok())?;
            pipeline.why_waiting(task).map(|why| why.to_string())
        })
    }

    /// The figures of each resource of the task stage: used and limit, one after the other.
    #[must_use]
    pub fn slots(&self) -> Vec<u32> {
        self.handle.inspect(|pipeline| pipeline.usage().flat_map(|(_, used, limit)| [used, limit]).collect())
    }

    /// The name of a resource of the task stage.
    #[must_use]
    #[wasm_bindgen(js_name = slotsName)]
    pub fn slots_name(&self, resource: u32) -> Option<String> {
        self.handle.inspect(|pipeline| pipeline.usage().nth(resource as usize).map(|(name, _, _)| name.into()))
    }

    /// Why slots of a resource are empty. Nothing if none is.
    #[must_use]
    #[wasm_bindgen(js_name = whyIdle)]
    pub fn why_idle(&self, resource: u32) -> Option<String> {
        self.handle.inspect(|pipeline| pipeline.why_idle_now(resource as usize).map(|why| why.to_string()))
    }
}
