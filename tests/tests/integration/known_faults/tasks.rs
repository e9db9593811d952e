//! Faults around task admission and the choice of row groups.

use tidegate_core::pipeline::{
    AdaptiveRowGroups, Column, Pipeline, PipelineConfig, PlanBuilder, RowGroupBlock, Strategy,
};
use tidegate_core::request::RequestPressure;
use tidegate_core::task::{
    AdvisorySkip, BoundedBorrow, BoundedBorrowConfig, Dispatched, Dispatcher, TaskConfig, TaskGroup,
};
use tidegate_core::time::Instant;

/// A group that could have started but was passed over appeared nowhere: it looked as if nothing had been ready.
#[test]
fn no_eligible_but_skipped_group_is_lost_from_diagnostics() {
    let resources = vec![("request:p/closed".to_string(), 1), ("request:p/open".to_string(), 1)];
    let mut tasks = Dispatcher::new(TaskConfig { resources, ..TaskConfig::default() }).expect("valid settings");
    let mut group = |name: &str| {
        let resource = format!("request:p/{name}");
        let group = tasks.group(&TaskGroup::model("p", name, 1.0)).expect("a valid group");
        assert!(tasks.set_request_pressure(&resource, None));
        (group, tasks.demand(&[(resource, 1)]).expect("it fits"))
    };
    let (closed, open) = (group("closed"), group("open"));
    for (pressures, pressure) in (1..).zip([
        RequestPressure::CoolingDown,
        RequestPressure::Waiters,
        RequestPressure::LimitReached,
        RequestPressure::Paced,
        RequestPressure::CapReached,
    ]) {
        let (skipped, preferred) = (10 * pressures, 10 * pressures + 1);
        assert!(tasks.set_request_pressure("request:p/closed", Some(pressure)));
        assert!(tasks.enqueue(skipped, closed.0, closed.1) && tasks.enqueue(preferred, open.0, open.1));
        let started = tasks.dispatch().expect("the open one may start");
        assert_eq!(started.task, preferred);
        assert_eq!(tasks.advisory_skips(), pressures, "counted");
        let skip = AdvisorySkip { skipped, pressure, preferred };
        assert_eq!(tasks.last_advisory_skip(), Some(skip), "named, with the reason and for whom");
        assert_eq!((tasks.queued_in(closed.0), tasks.is_queued(skipped)), (1, true), "and still there");
        let _ = tasks.release(started.lease);
        let alone = tasks.dispatch().expect("nobody else is there");
        assert_eq!((alone.task, tasks.advisory_skips()), (skipped, pressures));
        let _ = tasks.release(alone.lease);
    }
}

/// Whether any release may repay a group's debt, or only that of the lease that borrowed, was nowhere said. Any may.
#[test]
fn a_lease_that_never_borrowed_may_repay_the_debt() {
    let limits = TaskConfig { resources: vec![("llm".to_string(), 4)], ..TaskConfig::default() };
    let policy = BoundedBorrow::new(BoundedBorrowConfig::default()).expect("the defaults are valid");
    let mut tasks = Dispatcher::with_policy(limits, policy).expect("valid settings");
    let hot = TaskGroup { admitted_limit: Some(100), ..TaskGroup::local("hot") };
    let hot = tasks.group(&hot).expect("a valid group");
    let demand = tasks.demand(&[("llm", 1)]).expect("it fits");
    for task in 0..3 {
        assert!(tasks.enqueue(task, hot, demand));
    }
    let debt = |tasks: &Dispatcher<BoundedBorrow>| tasks.debts_of(hot).map(|(_, debt)| debt).sum::<u32>();
    let mut leases = Vec::new();
    let mut owed = Vec::new();
    while let Some(Dispatched { lease, .. }) = tasks.dispatch() {
        leases.push(lease);
        owed.push(debt(&tasks));
    }
    assert_eq!(owed, [0, 0, 1], "a group alone has a share of two of the four: the third lease borrows");
    let mut left = Vec::new();
    for lease in leases {
        let _ = tasks.release(lease);
        left.push(debt(&tasks));
    }
    assert_eq!(left, [0, 0, 0], "the first to come back, which had borrowed nothing, repays; never below zero");
}

/// Rows in one column that holds a model, under the control loop.
fn adaptive(model_limit: u32, workers: u32) -> Pipeline {
    let column =
        Column::new("draft", Strategy::Cell).with_group(TaskGroup::model("p", "m", 8.0)).with_demand("request:p/m", 1);
    let plan = PlanBuilder::new().column(column).build().expect("a valid plan");
    let config = PipelineConfig {
        rows: 64,
        row_group_size: 8,
        row_groups: 8,
        adaptive: Some(AdaptiveRowGroups::default()),
        submission_limit: workers,
        resources: vec![("request:p/m".to_string(), model_limit)],
        ..PipelineConfig::default()
    };
    let mut pipeline = Pipeline::new(plan, config).expect("valid settings");
    pipeline.start(Instant::ZERO);
    pipeline
}

/// The two checks stood in the wrong order: a full model was blamed on what was queued for it.
#[test]
fn saturation_is_not_reported_as_queued_demand() {
    let full = adaptive(4, 100).progress();
    assert_eq!((full.running, full.queued), (4, 4), "there is queued demand as well");
    assert_eq!(full.row_group_block, Some(RowGroupBlock::ModelSaturated));
    // With room left in the model it is the demand: two of four slots are free, for six that are queued.
    let free = adaptive(4, 2).progress();
    assert_eq!((free.running, free.queued), (2, 6));
    assert_eq!(free.row_group_block, Some(RowGroupBlock::QueuedModelDemand));
}
