//! What waiting costs in memory: little for a task that is queued, nothing for a row group that is not admitted.

use tidegate_core::pipeline::{
    Column, Pipeline, PipelineConfig, PipelineEffect, Plan, PlanBuilder, Strategy, TaskOutcome,
};
use tidegate_core::task::{DemandId, Dispatcher, TaskConfig, TaskGroup, TaskGroupId};
use tidegate_core::time::Instant;
use tidegate_tests::live_bytes::{LiveBytes, live_bytes};

#[global_allocator]
static ALLOCATOR: LiveBytes = LiveBytes;

/// The most that a task may take while it waits, beside the user's payload.
const MOST_PER_TASK: isize = 64;
/// What of it is left to its row group's frontier: 8 for the task and 2 for its row.
const FRONTIER: isize = 10;

/// A dispatcher without a task; what is registered is no cost of a task.
fn dispatcher(groups: usize) -> (Dispatcher, Vec<TaskGroupId>, DemandId) {
    let mut tasks = Dispatcher::new(TaskConfig::default()).expect("valid settings");
    let ids = (0..groups).map(|group| tasks.group(&TaskGroup::local(&group.to_string())).expect("a valid group"));
    let ids = ids.collect();
    let demand = tasks.demand::<&str>(&[]).expect("it fits");
    (tasks, ids, demand)
}

/// The most bytes per task that a queue ever takes while it grows to `queued` tasks, once it has `from`: below that a
/// table's smallest size is what counts.
fn worst_bytes_per_task(groups: usize, from: u64, queued: u64) -> f64 {
    let (mut tasks, ids, demand) = dispatcher(groups);
    let before = live_bytes();
    let mut worst: f64 = 0.0;
    for task in 0..queued {
        assert!(tasks.enqueue(task, ids[task as usize % ids.len()], demand));
        if task + 1 >= from {
            worst = worst.max((live_bytes() - before) as f64 / (task + 1) as f64);
        }
    }
    worst
}

#[test]
fn a_queue_leaves_room_for_the_frontier_within_64_bytes_a_task_however_long_it_is() {
    for groups in [1, 8, 64] {
        let worst = worst_bytes_per_task(groups, 1_000, 200_000);
        assert!(worst <= (MOST_PER_TASK - FRONTIER) as f64, "{worst:.1} bytes in the queue with {groups} groups");
    }
}

fn chain(columns: usize) -> Plan {
    let columns = (0..columns).map(|number| {
        let column = Column::new(&number.to_string(), Strategy::Cell);
        if number == 0 { column } else { column.with_upstream(&(number - 1).to_string()) }
    });
    columns.fold(PlanBuilder::new(), PlanBuilder::column).build().expect("a chain is a plan")
}

fn pipeline(rows: u64, row_group_size: u32) -> Pipeline {
    let config = PipelineConfig { rows, row_group_size, submission_limit: 1, ..PipelineConfig::default() };
    Pipeline::new(chain(5), config).expect("valid settings")
}

#[test]
fn a_task_that_waits_in_a_pipeline_takes_at_most_64_bytes() {
    for rows in [1_000, 9_000, 33_000, 66_000, 131_000] {
        let config =
            PipelineConfig { rows: u64::from(rows), row_group_size: rows, submission_limit: 1, ..Default::default() };
        let mut pipeline = Pipeline::new(chain(1), config).expect("valid settings");
        let before = live_bytes();
        pipeline.start(Instant::ZERO);
        let each = (live_bytes() - before) as f64 / f64::from(rows);
        assert!(each <= MOST_PER_TASK as f64, "{each:.1} bytes for each of {rows} tasks");
    }
}

/// What it takes to make a pipeline, and what more to start it.
fn bytes_to_make_and_start(rows: u64, row_group_size: u32) -> (isize, isize) {
    let before = live_bytes();
    let mut pipeline = pipeline(rows, row_group_size);
    let made = live_bytes() - before;
    pipeline.start(Instant::ZERO);
    (made, live_bytes() - before - made)
}

#[test]
fn preparing_a_million_row_groups_takes_as_little_as_preparing_ten() {
    let (few, few_started) = bytes_to_make_and_start(10 * 64, 64);
    let (many, many_started) = bytes_to_make_and_start(1_000_000 * 64, 64);
    assert!(many < 5 << 20, "{many} bytes for a million row groups");
    assert_eq!(many, few, "a row group that is not admitted takes nothing");
    assert_eq!(many_started, few_started, "only admitted row groups take memory");
}

#[test]
fn a_run_takes_no_more_memory_after_many_row_groups_than_after_few() {
    let mut pipeline = pipeline(64 * 2_000, 64);
    let before = live_bytes();
    let now = Instant::ZERO;
    pipeline.start(now);
    let (mut saved, mut early, mut late) = (0, 0, 0);
    loop {
        match pipeline.poll_effect().expect("a run that is not over has something to do") {
            PipelineEffect::Spawn(task) => drop(pipeline.task_finished(now, task.worker, TaskOutcome::Success)),
            PipelineEffect::Checkpoint(group) => {
                pipeline.checkpoint_finished(now, group.row_group, Ok(()));
                saved += 1;
                let used = live_bytes() - before;
                match saved {
                    ..1_000 => early = early.max(used),
                    _ => late = late.max(used),
                }
            }
            // No hook is asked for, nothing fails, and nobody cancels.
            PipelineEffect::ClaimRowGroup
            | PipelineEffect::PreBatch(_)
            | PipelineEffect::PostBatch(_)
            | PipelineEffect::Abort(_)
            | PipelineEffect::Warn(_) => {}
            PipelineEffect::Finished => break,
        }
    }
    assert_eq!(saved, 2_000);
    assert!(late <= early, "{late} bytes late in the run, {early} early");
}
