//! A whole pipeline on the virtual-time executor, whose calls go through a gate. Any other runtime works in
//! the same way.
//!
//! Two columns call two providers. One provider refuses a call in the middle of the run, with a Retry-After
//! of two seconds. The workers that wait for it release their slots, so the other provider always has work:
//! there are four slots in total, and it has two calls in flight from start to end.

// A run takes its workload in an `Arc`, but this host has only one thread.
#![allow(clippy::arc_with_non_send_sync)]

use std::cell::Cell;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_core::driver::{self, FatalError, SaveError, Workload};
use tidegate_core::gate::Gate;
use tidegate_core::pipeline::{
    Column, FinishedRowGroup, Pipeline, PipelineConfig, PlanBuilder, RetryKind, Strategy, Task, TaskOutcome,
};
use tidegate_core::request::{Completion, Domain, Outcome, Request, RequestAdmission, RequestConfig, ResourceId};
use tidegate_core::runtime::Timer;
use tidegate_core::sim::executor::{Executor, SimHost};
use tidegate_core::task::TaskGroup;
use tidegate_core::time::{Clock, Duration, Instant};

type Host = SimHost;

const CALL: Duration = Duration::from_millis(10);
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// A workload that makes one call for each cell.
struct Calls {
    host: Host,
    gate: Gate<Host>,
    /// The request resource of each column.
    resources: [ResourceId; 2],
    /// The instant at which the latest call to the steady provider ended.
    steady_until: Rc<Cell<Instant>>,
}

impl Workload for Calls {
    type Work = Pin<Box<dyn Future<Output = Result<TaskOutcome, FatalError>>>>;
    type Save = Ready<Result<(), SaveError>>;

    fn work(&self, task: Task) -> Self::Work {
        let (host, gate, column) = (self.host.clone(), self.gate.clone(), task.column.index());
        let request = Request::new(self.resources[column]);
        let steady_until = Rc::clone(&self.steady_until);
        Box::pin(async move {
            // With the token, the worker holds no task resources while it waits, and its request is rejected
            // once the run stops.
            let Ok(permit) = gate.acquire(request).for_task(task.token).await else {
                return Ok(TaskOutcome::Cancelled);
            };
            host.sleep_until(host.now() + CALL).await;
            let is_pause = column == 0 && task.row == Some(20) && task.attempt == 1;
            if is_pause {
                permit.finish(Completion::rate_limited(Some(RETRY_AFTER)));
                return Ok(TaskOutcome::Retryable {
                    kind: RetryKind::RateLimited,
                    status: None,
                    retry_after: Some(RETRY_AFTER),
                });
            }
            permit.finish(Outcome::Success);
            if column == 1 {
                steady_until.set(host.now());
            }
            Ok(TaskOutcome::Success)
        })
    }

    fn checkpoint(&self, group: FinishedRowGroup) -> Self::Save {
        println!("{}: {} rows are saved", self.host.now(), group.live.len());
        ready(Ok(()))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Executor::new();
    let host = runtime.host();
    let gate = Gate::new(host.clone(), RequestAdmission::new(RequestConfig::default())?);
    let register = |name: &str| {
        gate.with(|machine, now| {
            machine.register(now, name, "model", "default", 2).and_then(|id| machine.resource(id, Domain::Chat))
        })
    };
    let resources = [register("limited")?, register("steady")?];

    let column = |name: &str| {
        let group = TaskGroup::model(name, "model", 1.0);
        Column::new(name, Strategy::Cell).with_group(group).with_demand(&format!("request:{name}"), 1)
    };
    let plan = PlanBuilder::new().column(column("limited")).column(column("steady")).build()?;
    let names = ["request:limited", "request:steady"];
    let config = PipelineConfig {
        rows: 100,
        row_group_size: 100,
        submission_limit: 4,
        resources: names.iter().map(|name| (name.to_string(), 4)).collect(),
        ..PipelineConfig::default()
    };
    let pipeline = Pipeline::new(plan, config)?;

    let steady_until = Rc::new(Cell::new(Instant::ZERO));
    let work =
        Arc::new(Calls { host: host.clone(), gate: gate.clone(), resources, steady_until: Rc::clone(&steady_until) });
    let calls = [(names[0], resources[0]), (names[1], resources[1])];
    let report = runtime.block_on(driver::run_through(pipeline, work, &gate, &calls))?;
    println!("{} rows in {}, the steady provider's part in {}", report.rows_out, report.ended, steady_until.get());
    assert_eq!(report.rows_out, 100);
    // 100 calls of 10 ms, two at a time: the cooldown of the other provider had no effect.
    assert_eq!(steady_until.get(), Instant::ZERO + Duration::from_millis(500));
    Ok(())
}

#[test]
fn the_example_runs() {
    main().expect("the settings are valid");
}
