//! Shared parts of the `host_on_*` examples: settings of a gate and of a pipeline, a call, and a workload
//! made of closures. Nothing here depends on a runtime.

use std::error::Error;
use std::future::{Future, Ready, ready};

use tidegate_core::driver::{FatalError, SaveError, Workload};
use tidegate_core::error::ConfigError;
use tidegate_core::pipeline::{
    Column, FailureKind, FinishedRowGroup, Pipeline, PipelineConfig, PlanBuilder, Strategy, Task, TaskOutcome,
};
use tidegate_core::request::{Domain, Outcome, RequestAdmission, RequestConfig, ResourceId};
use tidegate_core::runtime::Host;
use tidegate_core::task::TaskGroup;
use tidegate_core::time::{Duration, Instant};

/// The task resource that stands for the model of [`admission`]. A worker that calls the model holds one
/// unit.
pub(crate) const MODEL: &str = "request:model";

/// Creates the admission for one model with a capacity of two calls.
pub(crate) fn admission() -> Result<(RequestAdmission, ResourceId), ConfigError> {
    let mut machine = RequestAdmission::new(RequestConfig::default())?;
    let model = machine.register(Instant::ZERO, "provider", "model", "default", 2)?;
    let chat = machine.resource(model, Domain::Chat)?;
    Ok((machine, chat))
}

/// Creates a pipeline that fills one column of 20 rows.
pub(crate) fn pipeline() -> Result<Pipeline, Box<dyn Error>> {
    let group = TaskGroup::model("provider", "model", 1.0);
    let column = Column::new("answer", Strategy::Cell).with_group(group).with_demand(MODEL, 1);
    let plan = PlanBuilder::new().column(column).build()?;
    let resources = vec![(MODEL.to_string(), 2)];
    Ok(Pipeline::new(plan, PipelineConfig { rows: 20, resources, ..PipelineConfig::default() })?)
}

/// Simulates a call to a provider: it takes one millisecond and returns twice the question.
pub(crate) async fn call_provider<H: Host>(host: H, question: u32) -> Result<u32, Outcome> {
    host.sleep_until(host.now() + Duration::from_millis(1)).await;
    Ok(question * 2)
}

/// Returns the task outcome for the result of a call through a gate.
pub(crate) fn outcome<T, D>(call: Result<Result<T, Outcome>, D>) -> TaskOutcome {
    match call {
        Ok(Ok(_answer)) => TaskOutcome::Success,
        Ok(Err(_)) => TaskOutcome::Failed(FailureKind::Other),
        Err(_denied) => TaskOutcome::Cancelled,
    }
}

/// A workload whose tasks are the futures that a closure returns. Its row groups are not saved.
pub(crate) struct Tasks<F>(pub(crate) F);

impl<F, Work> Workload for Tasks<F>
where
    F: Fn(Task) -> Work + 'static,
    Work: Future<Output = Result<TaskOutcome, FatalError>> + 'static,
{
    type Work = Work;
    type Save = Ready<Result<(), SaveError>>;

    fn work(&self, task: Task) -> Work {
        self.0(task)
    }

    fn checkpoint(&self, _group: FinishedRowGroup) -> Self::Save {
        ready(Ok(()))
    }
}
