//! The tasks, hooks and checkpoints that run in JavaScript, with their results and the wakers that wait for
//! them.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tidegate_core::driver::{FatalError, SaveError, Workload};
use tidegate_core::pipeline as core;
use tidegate_core::pipeline::{HookError, ProviderDegraded, SeededRowGroup, Task, TaskOutcome};
use tidegate_core::yielding::TaskToken;
use wasm_bindgen::prelude::*;

use super::report::FinishedRowGroup;
use crate::json::to_js;

/// The callbacks of a run, for TypeScript.
#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
/** The callbacks of a run. None of them may throw. */
export interface PipelineCallbacks {
  begin(slot: number, generation: number, column: number, rowGroup: number, firstRow: number, rows: number, row: number, attempt: number): void;
  stop(slot: number, generation: number): void;
  step(step: number, group: FinishedRowGroup): void;
  warn(group: string, retryable: number, window: number): void;
  /** An event in the JSON of the core: `readEvent` has its shape. */
  event(event: unknown): void;
  over(): void;
}
"#;

#[wasm_bindgen]
extern "C" {
    /// The callbacks of a run. None of them may throw.
    #[wasm_bindgen(typescript_type = "PipelineCallbacks")]
    pub type Callbacks;

    /// Starts a task; `row` is below 0 for a whole row group.
    #[wasm_bindgen(method)]
    fn begin(
        this: &Callbacks,
        slot: u32,
        generation: u32,
        column: u32,
        row_group: u32,
        first_row: f64,
        rows: u32,
        row: i32,
        attempt: u32,
    );

    /// Stops a task. Its result is ignored.
    #[wasm_bindgen(method)]
    fn stop(this: &Callbacks, slot: u32, generation: u32);

    /// Starts a step of a row group: 0 its pre-batch hook, 1 its post-batch hook, 2 its checkpoint.
    #[wasm_bindgen(method)]
    fn step(this: &Callbacks, step: u32, group: &JsValue);

    /// Called when most calls to a provider fail.
    #[wasm_bindgen(method)]
    fn warn(this: &Callbacks, group: &str, retryable: u32, window: u32);

    /// Called with each event, as the core serializes it.
    #[wasm_bindgen(method)]
    pub(super) fn event(this: &Callbacks, event: &JsValue);

    /// Called when the run is over.
    #[wasm_bindgen(method)]
    fn over(this: &Callbacks);
}

/// The result of a step of a row group: rows to leave out, or the failure.
type StepAnswer = Result<Vec<u32>, String>;

/// One running task.
struct TaskSlot {
    generation: u32,
    token: Option<TaskToken>,
    answer: Option<Result<TaskOutcome, FatalError>>,
    waker: Option<Waker>,
}

/// One running step of a row group.
struct Step {
    /// Which step, of which row group.
    place: (u32, u32),
    answer: Option<StepAnswer>,
    waker: Option<Waker>,
}

/// The running tasks and steps of one run.
pub(super) struct CallbackBridge {
    /// `None` once the run is over: the callbacks reference the holder of the run, which could otherwise
    /// never be collected.
    callbacks: RefCell<Option<Callbacks>>,
    /// Of the columns.
    pub(super) names: Vec<String>,
    state: RefCell<BridgeState>,
}

#[derive(Default)]
struct BridgeState {
    /// By worker slot.
    task_slots: Vec<Option<TaskSlot>>,
    /// At most as many as active row groups.
    steps: Vec<Step>,
}

impl CallbackBridge {
    pub(super) fn new(callbacks: Callbacks, names: Vec<String>) -> Self {
        Self { callbacks: RefCell::new(Some(callbacks)), names, state: RefCell::default() }
    }

    /// Calls one of the callbacks, unless the run is over.
    pub(super) fn call(&self, call: impl FnOnce(&Callbacks)) {
        if let Some(callbacks) = &*self.callbacks.borrow() {
            call(callbacks);
        }
    }

    /// Calls `over`, and drops the callbacks.
    pub(super) fn close(&self) {
        self.call(Callbacks::over);
        drop(self.callbacks.take());
    }

    /// Returns the yield token of a task.
    pub(super) fn token(&self, slot: u32, generation: u32) -> Option<TaskToken> {
        self.state.borrow_mut().task_slot(slot, generation)?.token
    }

    /// Records how a task ended. Has no effect if it has ended or was stopped before.
    pub(super) fn finish(&self, slot: u32, generation: u32, answer: Result<TaskOutcome, FatalError>) {
        let mut state = self.state.borrow_mut();
        let Some(task_slot) = state.task_slot(slot, generation).filter(|task_slot| task_slot.answer.is_none()) else {
            return;
        };
        task_slot.answer = Some(answer);
        let waker = task_slot.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Records how a step of a row group ended.
    pub(super) fn step_ended(&self, step: u32, row_group: u32, answer: StepAnswer) {
        let mut state = self.state.borrow_mut();
        let Some(found) = state.steps.iter_mut().find(|known| known.place == (step, row_group)) else {
            return;
        };
        found.answer.get_or_insert(answer);
        let waker = found.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    fn poll_step(&self, step: u32, group: &core::FinishedRowGroup, context: &Context<'_>) -> Poll<StepAnswer> {
        let place = (step, group.row_group);
        if self.state.borrow().steps.iter().all(|known| known.place != place) {
            self.state.borrow_mut().steps.push(Step { place, answer: None, waker: None });
            self.begin_step(step, group);
        }
        let mut state = self.state.borrow_mut();
        // Looked up again: the callback may have reported its end, and others too.
        let found = state.steps.iter().position(|known| known.place == place);
        let Some(at) = found else { return Poll::Pending };
        if let Some(answer) = state.steps[at].answer.take() {
            state.steps.swap_remove(at);
            return Poll::Ready(answer);
        }
        state.steps[at].waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn begin_step(&self, step: u32, group: &core::FinishedRowGroup) {
        // It consists of numbers and strings, so serialization cannot fail.
        let finished = to_js(&FinishedRowGroup::of(group, &self.names)).unwrap_or_default();
        self.call(|to| to.step(step, &finished));
    }
}

impl BridgeState {
    fn task_slot(&mut self, slot: u32, generation: u32) -> Option<&mut TaskSlot> {
        self.task_slots.get_mut(slot as usize)?.as_mut().filter(|task_slot| task_slot.generation == generation)
    }
}

/// Runs the tasks of a pipeline in JavaScript.
pub(super) struct JsWorkload(pub(super) Rc<CallbackBridge>);

/// One running task. Dropping it before its end stops the task.
pub(super) struct Work {
    bridge: Rc<CallbackBridge>,
    slot: u32,
    generation: u32,
    is_answered: bool,
}

impl Future for Work {
    type Output = Result<TaskOutcome, FatalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.bridge.state.borrow_mut();
        let Some(task_slot) = state.task_slot(self.slot, self.generation) else { return Poll::Pending };
        let Some(answer) = task_slot.answer.take() else {
            task_slot.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        drop(state);
        self.is_answered = true;
        Poll::Ready(answer)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let left = self.bridge.state.borrow_mut().task_slots.get_mut(self.slot as usize).and_then(Option::take);
        drop(left);
        if !self.is_answered {
            self.bridge.call(|to| to.stop(self.slot, self.generation));
        }
    }
}

/// One row group being saved.
pub(super) struct Save {
    bridge: Rc<CallbackBridge>,
    group: core::FinishedRowGroup,
}

impl Future for Save {
    type Output = Result<(), SaveError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.bridge.poll_step(2, &self.group, context).map(|answer| answer.map(drop).map_err(SaveError))
    }
}

impl Workload for JsWorkload {
    type Work = Work;
    type Save = Save;

    fn work(&self, task: Task) -> Work {
        let key = task.worker.key();
        let (slot, generation) = (key.slot, key.generation);
        {
            let task_slots = &mut self.0.state.borrow_mut().task_slots;
            let place = slot as usize;
            if task_slots.len() <= place {
                task_slots.resize_with(place + 1, || None);
            }
            task_slots[place] = Some(TaskSlot { generation, token: task.token, answer: None, waker: None });
        }
        let work = Work { bridge: Rc::clone(&self.0), slot, generation, is_answered: false };
        let (column, first_row) = (task.column.index() as u32, task.first_row as f64);
        // A row group has fewer than 2^24 rows.
        let row = task.row.map_or(-1, u32::cast_signed);
        let Task { row_group, rows, attempt, .. } = task;
        self.0.call(|to| to.begin(slot, generation, column, row_group, first_row, rows, row, attempt));
        work
    }

    fn checkpoint(&self, group: core::FinishedRowGroup) -> Save {
        Save { bridge: Rc::clone(&self.0), group }
    }

    fn poll_pre_batch(&self, seeded: SeededRowGroup, context: &mut Context<'_>) -> Poll<Result<Vec<u32>, HookError>> {
        let SeededRowGroup { row_group, first_row, rows, .. } = seeded;
        let (live, dropped, unmade) = (Vec::new(), Vec::new(), Vec::new());
        let group = core::FinishedRowGroup { row_group, first_row, rows, live, dropped, unmade };
        self.0.poll_step(0, &group, context).map_err(HookError)
    }

    fn poll_post_batch(
        &self,
        group: &core::FinishedRowGroup,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), HookError>> {
        self.0.poll_step(1, group, context).map(|answer| answer.map(drop).map_err(HookError))
    }

    fn warn(&self, warning: &ProviderDegraded) {
        self.0.call(|to| to.warn(&warning.group.join("/"), warning.retryable, warning.window));
    }
}
