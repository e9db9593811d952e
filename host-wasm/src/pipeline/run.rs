//! A run of a pipeline, as JavaScript observes and controls it.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_core::driver::{self, FatalError, RunHandle};
use tidegate_core::gate::Gate;
use tidegate_core::pipeline::event::{SchedulerEventKind, SchedulerInterest};
use tidegate_core::pipeline::{Pipeline, RunReport};
use tidegate_core::request::ResourceId;
use tidegate_core::runtime::Spawn;
use wasm_bindgen::prelude::*;

use super::callback_bridge::{CallbackBridge, Callbacks, JsWorkload};
use super::outcome::task_outcome;
use super::report::{self, SlotsWhy};
use crate::gate::{call_context, completions};
use crate::host::JsHost;
use crate::json::{from_js, to_js};

/// A run of a pipeline. It continues if this handle is dropped.
#[wasm_bindgen]
pub struct PipelineRun {
    bridge: Rc<CallbackBridge>,
    handle: RunHandle<JsHost>,
    report: Rc<RefCell<Option<RunReport>>>,
}

impl PipelineRun {
    pub(super) fn start(
        pipeline: Pipeline,
        gate: Option<&Gate<JsHost>>,
        calls: &[(String, ResourceId)],
        callbacks: Callbacks,
    ) -> Self {
        let names = pipeline.plan().columns().iter().map(|column| column.name.clone()).collect();
        let bridge = Rc::new(CallbackBridge::new(callbacks, names));
        #[allow(clippy::arc_with_non_send_sync, reason = "the driver shares workloads on hosts with threads, too")]
        let workload = Arc::new(JsWorkload(Rc::clone(&bridge)));
        let run = match gate {
            Some(gate) => {
                let calls: Vec<_> = calls.iter().map(|(name, resource)| (name.as_str(), *resource)).collect();
                driver::run_through(pipeline, workload, gate, &calls)
            }
            None => driver::run(JsHost, pipeline, workload),
        };
        let started = Self { bridge, handle: run.handle(), report: Rc::default() };
        JsHost.spawn(drive(run, Rc::clone(&started.bridge), started.handle.clone(), Rc::clone(&started.report)));
        started
    }
}

/// Polls the run to its end, and passes on its events between polls.
async fn drive(
    run: driver::PipelineRun<JsHost, JsWorkload>,
    bridge: Rc<CallbackBridge>,
    handle: RunHandle<JsHost>,
    report: Rc<RefCell<Option<RunReport>>>,
) {
    let mut run = pin!(run);
    let mut events = Vec::new();
    let ended = poll_fn(|context| {
        let polled = run.as_mut().poll(context);
        handle.take_events(&mut events);
        for event in events.drain(..) {
            // It consists of numbers and strings, so serialization cannot fail.
            let event = to_js(&event).unwrap_or_default();
            bridge.call(|to| to.event(&event));
        }
        polled
    })
    .await;
    *report.borrow_mut() = Some(ended);
    bridge.close();
}

#[wasm_bindgen]
impl PipelineRun {
    /// Reports how a task ended: 0 success, 1 skipped, 2 cancelled, from 16 a retryable failure, from 32 a
    /// final one. `retry_after_ms` is NaN if the provider asked for no pause, `status` is 0 if there is no
    /// HTTP status. Has no effect if the task has ended or was stopped before.
    pub fn finish(&self, slot: u32, generation: u32, outcome: u32, retry_after_ms: f64, status: u16) {
        let outcome = task_outcome(outcome, retry_after_ms, status);
        self.bridge.finish(slot, generation, Ok(outcome));
    }

    /// Reports a bug in a task, which ends the run.
    pub fn panicked(&self, slot: u32, generation: u32, message: &str) {
        self.bridge.finish(slot, generation, Err(FatalError(message.into())));
    }

    /// Reports the end of a step of a row group: `failure` is its error message, if it failed; `left_out` are
    /// the rows that a pre-batch hook leaves out.
    #[wasm_bindgen(js_name = stepEnded)]
    pub fn step_ended(&self, step: u32, row_group: u32, left_out: Vec<u32>, failure: Option<String>) {
        self.bridge.step_ended(step, row_group, failure.map_or(Ok(left_out), Err));
    }

    /// Assigns the gate's next `acquire` to this task.
    #[wasm_bindgen(js_name = passYieldToken)]
    pub fn pass_yield_token(&self, slot: u32, generation: u32) {
        call_context::pass_yield_token(self.bridge.token(slot, generation));
    }

    /// Cancels the run: stops running tasks, and ends once every lease is released.
    pub fn cancel(&self) {
        self.handle.cancel();
        completions::announce();
    }

    /// Drains the run: calls in flight finish, and none starts.
    pub fn drain(&self) {
        self.handle.drain();
        completions::announce();
    }

    /// Winds the run down: active row groups are finished and saved.
    #[wasm_bindgen(js_name = windDown)]
    pub fn wind_down(&self) {
        self.handle.wind_down();
        completions::announce();
    }

    /// Records events of these kinds from now on. Throws for an unknown kind.
    pub fn listen(&self, #[wasm_bindgen(unchecked_param_type = "string[]")] kinds: &JsValue) -> Result<(), JsError> {
        let kinds: Vec<SchedulerEventKind> = from_js("kinds", kinds)?;
        self.handle.listen(SchedulerInterest::of(&kinds));
        Ok(())
    }

    /// Returns the progress of the run.
    #[wasm_bindgen(unchecked_return_type = "Progress")]
    pub fn progress(&self) -> Result<JsValue, JsError> {
        to_js(&report::Progress::of(&self.handle.progress(), &self.bridge.names))
    }

    /// Returns the results of the run; undefined before its end.
    #[wasm_bindgen(unchecked_return_type = "RunReport | undefined")]
    pub fn report(&self) -> Result<JsValue, JsError> {
        self.report.borrow().as_ref().map_or(Ok(JsValue::UNDEFINED), |ended| to_js(&report::RunReport::of(ended)))
    }

    /// Returns the rows of a row group that are not dropped.
    #[must_use]
    #[wasm_bindgen(js_name = liveRows)]
    pub fn live_rows(&self, row_group: u32) -> Vec<u32> {
        self.handle.inspect(|pipeline| pipeline.live_rows(row_group).collect())
    }

    /// Returns why a task does not run; `row` is below 0 for a whole row group. Nothing if it runs, is
    /// complete or was dropped.
    #[must_use]
    #[wasm_bindgen(js_name = whyWaiting)]
    pub fn why_waiting(&self, column: &str, row_group: u32, row: i32) -> Option<String> {
        self.handle.inspect(|pipeline| {
            let column = pipeline.plan().column_id(column)?;
            let task = Pipeline::task_number(column, row_group, u32::try_from(row).ok())?;
            pipeline.why_waiting(task).map(|why| why.to_string())
        })
    }

    /// Returns why slots of each task resource are idle.
    #[wasm_bindgen(js_name = whySlots, unchecked_return_type = "SlotsWhy[]")]
    pub fn why_slots(&self) -> Result<JsValue, JsError> {
        let slots: Vec<_> = self.handle.inspect(|pipeline| {
            let why = |resource| pipeline.why_idle_now(resource).map(|why| why.to_string());
            let usage = pipeline.usage().enumerate();
            usage.map(|(at, (name, used, limit))| SlotsWhy { name: name.into(), used, limit, why: why(at) }).collect()
        });
        to_js(&slots)
    }
}
