//! Pipelines for real work, on the JavaScript event loop.
//!
//! [`start_pipeline`] checks a plan and its settings, and starts a [`PipelineRun`]. The core makes all
//! decisions: the run calls its [`Callbacks`] to start a task, a hook or a checkpoint, and JavaScript reports
//! how each ended. Cell values exist only in JavaScript. Callbacks run in a turn of their own, outside any
//! lock, and may call the run.
//!
//! Settings, reports and events cross the boundary as plain objects, tasks as numbers. Programs use it
//! through the TypeScript package beside this crate.

mod callback_bridge;
mod options;
mod outcome;
mod report;
mod run;

pub use callback_bridge::Callbacks;
pub use outcome::outcome_of_call;
pub use run::PipelineRun;

use tidegate_core::gate::Gate;
use tidegate_core::pipeline::{Column, Pipeline, PipelineError, PlanBuilder};
use tidegate_core::request::ResourceId;
use tidegate_core::task::{GroupKind, TaskGroup};
use wasm_bindgen::prelude::*;

use self::options::{CallTarget, PipelinePlan, PipelineSettings, renamed};
use crate::gate::{RequestGate, random_number};
use crate::host::JsHost;
use crate::json::from_js;

/// Checks the plan and starts a run in the next turn of the event loop. Throws for an invalid plan.
#[wasm_bindgen(js_name = startPipeline)]
pub fn start_pipeline(
    #[wasm_bindgen(unchecked_param_type = "PipelinePlan")] plan: &JsValue,
    #[wasm_bindgen(unchecked_param_type = "PipelineSettings")] settings: &JsValue,
    callbacks: Callbacks,
) -> Result<PipelineRun, JsError> {
    start(plan, settings, None, callbacks)
}

#[wasm_bindgen]
impl RequestGate {
    /// Starts a pipeline whose tasks call through this gate.
    #[wasm_bindgen(js_name = startPipeline)]
    pub fn start_pipeline(
        &self,
        #[wasm_bindgen(unchecked_param_type = "PipelinePlan")] plan: &JsValue,
        #[wasm_bindgen(unchecked_param_type = "PipelineSettings")] settings: &JsValue,
        callbacks: Callbacks,
    ) -> Result<PipelineRun, JsError> {
        start(plan, settings, Some(self.core()), callbacks)
    }
}

fn start(
    plan: &JsValue,
    settings: &JsValue,
    gate: Option<&Gate<JsHost>>,
    callbacks: Callbacks,
) -> Result<PipelineRun, JsError> {
    let plan: PipelinePlan = from_js("a plan", plan)?;
    let settings: PipelineSettings = from_js("settings", settings)?;
    let mut config = settings.config(random_number(), &plan);
    let mut calls = Vec::new();
    let mut builder = PlanBuilder::new();
    for spec in &plan.columns {
        let mut column = spec.column();
        if let (Some(target), Some(gate)) = (&spec.calls, gate) {
            let (name, most) = declare_calls(&mut column, target, gate)?;
            let resource = ResourceId::new(0, target.resource);
            if calls.iter().all(|(known, _)| *known != name) {
                config.resources.push((name.clone(), most));
                calls.push((name, resource));
            }
        }
        builder = builder.column(column);
    }
    let pipeline = Pipeline::new(builder.build()?, config).map_err(|error| match error {
        PipelineError::Config(error) => JsError::from(renamed(error)),
        PipelineError::Group { column, source } => PipelineError::Group { column, source: renamed(source) }.into(),
        error => error.into(),
    })?;
    Ok(PipelineRun::start(pipeline, gate, &calls, callbacks))
}

/// Declares that the tasks of a column call a resource of the gate, one call at a time. They hold at most
/// twice as many worker slots as the resource allows calls. Unless the column has a group, they queue in the
/// group of the resource. Returns the task resource that stands for the calls, and its limit.
fn declare_calls(column: &mut Column, target: &CallTarget, gate: &Gate<JsHost>) -> Result<(String, u32), JsError> {
    let CallTarget { resource, name } = target;
    let state = gate.snapshot(ResourceId::new(0, *resource));
    let state = state.ok_or_else(|| JsError::new(&format!("`{name}` is not registered at the gate")))?;
    let most = state.effective_max.saturating_mul(2);
    if column.group == TaskGroup::local(&column.name) {
        let identity = vec![name.clone(), column.name.clone()];
        column.group = TaskGroup { kind: GroupKind::Model, identity, weight: 1.0, admitted_limit: Some(most) };
    }
    let held = format!("request:{name}");
    column.demand.push((held.clone(), 1));
    Ok((held, most))
}
