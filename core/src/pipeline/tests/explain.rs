//! Explanations: each reason that a task waits is reported, and only the one that applies.

use super::*;
use crate::pipeline::tests::harness::*;
use crate::task::{TaskDenialReason, TaskGroup};
use crate::time::Duration;

/// Returns the number of a task.
fn task(rig: &Rig, column: &str, row_group: u32, row: Option<u32>) -> u64 {
    let column = rig.pipeline.plan().column_id(column).unwrap();
    Pipeline::task_number(column, row_group, row).unwrap()
}

fn why(rig: &Rig, column: &str, row_group: u32, row: Option<u32>) -> Option<TaskWait> {
    rig.pipeline.why_waiting(task(rig, column, row_group, row))
}

#[test]
fn the_reason_of_a_waiting_task_is_its_upstream_turn_row_group_or_pause() {
    let columns = [cell("a", &[]), cell("b", &["a"]), cell("c", &[]).ordered(), whole("all", &["a"])];
    let config = PipelineConfig { row_groups: 1, ..rows(4, 2) };
    let mut rig = Rig::new(columns, config);
    assert_eq!(why(&rig, "a", 0, Some(0)), Some(TaskWait::NotStarted));
    rig.pipeline.start(rig.now);
    rig.drain();
    assert_eq!(why(&rig, "a", 0, Some(0)), None, "it runs");
    let lacks = |row| Some(TaskWait::Upstream { column: "a".into(), row: Some(row) });
    assert_eq!(why(&rig, "b", 0, Some(1)), lacks(1));
    rig.succeed("a:0.0");
    assert_eq!(why(&rig, "all", 0, None), lacks(1));
    assert_eq!(why(&rig, "c", 0, Some(1)), Some(TaskWait::ColumnOrder { row_group: 0, row: Some(0) }));
    assert_eq!(why(&rig, "a", 1, Some(0)), Some(TaskWait::RowGroup { reason: RowGroupBlock::AtCap }));
    rig.end("b:0.0", rate_limited(Duration::from_secs(3)));
    let until = rig.now + Duration::from_secs(3);
    assert_eq!(why(&rig, "b", 0, Some(0)), Some(TaskWait::Delayed { until }));
    rig.end("a:0.1", retry(RetryKind::Timeout));
    assert_eq!(why(&rig, "a", 0, Some(1)), Some(TaskWait::Round));
    assert_eq!(why(&rig, "a", 7, Some(0)), None, "there is no such task");
    assert_eq!(rig.pipeline.why_waiting(u64::MAX), None);
    assert_eq!(Pipeline::task_number(ColumnId(0), MAX_ROW_GROUPS, None), None, "no run can have such a task");
    rig.cancel();
    assert_eq!(why(&rig, "a", 1, Some(0)), Some(TaskWait::Stopping));
}

#[test]
fn the_reason_of_a_queued_task_is_the_resource_without_capacity() {
    let config = PipelineConfig { submission_limit: 1, ..rows(3, 3) };
    let rig = Rig::start([cell("a", &[])], config);
    let Some(TaskWait::Denied { denial }) = why(&rig, "a", 0, Some(2)) else { panic!("the task is denied") };
    assert_eq!((denial.reason, denial.resource.as_deref()), (TaskDenialReason::NoCapacity, Some("submission")));
    assert_eq!(rig.pipeline.why_idle_now(0), None, "no slot is free");
}

#[test]
fn the_reason_of_a_free_slot_is_a_denial_a_checkpoint_a_row_group_or_running_tasks() {
    let gpu = cell("a", &[]).with_demand("gpu", 1).with_group(TaskGroup::local("gpu"));
    let config = PipelineConfig { resources: [("gpu".into(), 1)].into(), row_groups: 1, ..rows(4, 2) };
    let mut rig = Rig::start([gpu, cell("b", &["a"])], config);
    let Some(SlotWait::Denied { denial }) = rig.pipeline.why_idle_now(0) else { panic!("the queued task is denied") };
    assert_eq!((denial.reason, denial.resource.as_deref()), (TaskDenialReason::NoCapacity, Some("gpu")));
    rig.succeed("a:0.0");
    assert_eq!(rig.pipeline.why_idle_now(0), Some(SlotWait::RowGroups { reason: RowGroupBlock::AtCap }));
    for label in ["b:0.0", "a:0.1", "b:0.1"] {
        rig.succeed(label);
    }
    assert_eq!(rig.pipeline.why_idle_now(1), Some(SlotWait::HookOrCheckpoint { row_group: 0 }));
    rig.saved(0);
    rig.succeed("a:1.0");
    rig.succeed("a:1.1");
    assert_eq!(rig.pipeline.why_idle_now(1), Some(SlotWait::Upstreams { running: 2 }));
    rig.run_well();
    assert_eq!(rig.pipeline.why_idle_now(1), Some(SlotWait::NotRunning));
    assert_eq!(rig.pipeline.why_idle_now(9), None);
}
