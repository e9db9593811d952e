//! Faults around a whole run: ids, causes that got lost, counts that stayed, loops that span.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate_core::driver::{self, FatalError, SaveError, Workload};
use tidegate_core::pipeline::{
    Column, FailureKind, FinishedRowGroup, Hook, HookError, Pipeline, PipelineConfig, PipelineEffect, PlanBuilder,
    RetryKind, RunReport, SeededRowGroup, StopReason, Strategy, Task, TaskOutcome,
};
use tidegate_core::runtime::{Spawn, Timer};
use tidegate_core::task::TaskGroup;
use tidegate_core::time::{Clock, Duration, Instant};

use super::{Runtime, WatchedHost, at, ms};

type Ended = Result<TaskOutcome, FatalError>;
type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

/// A workload of one closure, whose checkpoint and hooks fail as told.
pub(crate) struct Tasks {
    perform: Box<dyn Fn(Task) -> Boxed<Ended>>,
    save: Result<(), SaveError>,
    hooks: Option<(WatchedHost, Duration)>,
    hook: Result<(), HookError>,
    pause: RefCell<Option<Boxed<()>>>,
    hook_polls: Cell<u32>,
}

impl Tasks {
    pub(crate) fn new<F: Future<Output = Ended> + 'static>(perform: impl Fn(Task) -> F + 'static) -> Self {
        Self {
            perform: Box::new(move |task| Box::pin(perform(task))),
            save: Ok(()),
            hooks: None,
            hook: Ok(()),
            pause: RefCell::default(),
            hook_polls: Cell::new(0),
        }
    }

    fn that_succeed() -> Self {
        Self::new(|_| ready(Ok(TaskOutcome::Success)))
    }

    fn poll_hook(&self, context: &mut Context<'_>) -> Poll<Result<(), HookError>> {
        self.hook_polls.set(self.hook_polls.get() + 1);
        if let Some((host, span)) = &self.hooks {
            let mut pause = self.pause.borrow_mut();
            let sleep = pause.get_or_insert_with(|| Box::pin(host.sleep_until(host.now() + *span)));
            std::task::ready!(sleep.as_mut().poll(context));
            *pause = None;
        }
        Poll::Ready(self.hook.clone())
    }
}

impl Workload for Tasks {
    type Work = Boxed<Ended>;
    type Save = std::future::Ready<Result<(), SaveError>>;

    fn work(&self, task: Task) -> Self::Work {
        (self.perform)(task)
    }

    fn checkpoint(&self, _: FinishedRowGroup) -> Self::Save {
        ready(self.save.clone())
    }

    fn poll_pre_batch(&self, _: SeededRowGroup, context: &mut Context<'_>) -> Poll<Result<Vec<u32>, HookError>> {
        self.poll_hook(context).map_ok(|()| Vec::new())
    }

    fn poll_post_batch(&self, _: &FinishedRowGroup, context: &mut Context<'_>) -> Poll<Result<(), HookError>> {
        self.poll_hook(context)
    }
}

fn pipeline(columns: impl IntoIterator<Item = Column>, config: PipelineConfig) -> Pipeline {
    let plan = columns.into_iter().fold(PlanBuilder::new(), PlanBuilder::column).build().expect("a valid plan");
    Pipeline::new(plan, config).expect("valid settings")
}

/// One column, cell by cell, in one row group.
pub(crate) fn one_column(rows: u64) -> Pipeline {
    pipeline([Column::new("title", Strategy::Cell)], PipelineConfig { rows, ..PipelineConfig::default() })
}

fn with_hooks(rows: u64) -> Pipeline {
    let hooks = PipelineConfig { pre_batch_hook: true, post_batch_hook: true, ..PipelineConfig::default() };
    let columns = [Column::new("a", Strategy::Cell), Column::new("b", Strategy::Cell).with_upstream("a")];
    pipeline(columns, PipelineConfig { rows, row_group_size: 2, ..hooks })
}

fn run(pipeline: Pipeline, work: Tasks) -> RunReport {
    let runtime = Runtime::new();
    runtime.block_on(driver::run(runtime.host(), pipeline, Arc::new(work))).expect("it ends")
}

/// Column, row group, row, attempt.
type Spawned = (&'static str, u32, Option<u32>, u32);

/// Runs the machine to its end, one worker at a time; answers what was spawned, in order.
fn spawned(mut pipeline: Pipeline, end: impl Fn(&Spawned) -> TaskOutcome) -> Vec<Spawned> {
    let names = ["seed", "a", "b", "all"];
    let (mut now, mut spawned, mut running) = (Instant::ZERO, Vec::new(), Vec::new());
    pipeline.start(now);
    loop {
        while let Some(effect) = pipeline.poll_effect() {
            match effect {
                PipelineEffect::Spawn(task) => {
                    let name = names[task.column.index()];
                    spawned.push((name, task.row_group, task.row, task.attempt));
                    running.push((task.worker, spawned[spawned.len() - 1]));
                }
                PipelineEffect::Checkpoint(group) => pipeline.checkpoint_finished(now, group.row_group, Ok(())),
                PipelineEffect::Finished => {
                    assert_eq!((pipeline.active_leases(), pipeline.queued()), (0, 0));
                    return spawned;
                }
                other => panic!("{other:?} was not asked for"),
            }
        }
        if let Some((worker, what)) = running.pop() {
            let _ = pipeline.task_finished(now, worker, end(&what));
        } else {
            now = pipeline.poll_timeout().unwrap_or(now);
            pipeline.handle_timeout(now);
        }
    }
}

/// A task was queued under one id and looked for under another: rows that were dropped ran, and retries ran twice.
#[test]
fn no_two_hash_recipes_for_one_task_id() {
    let group = || TaskGroup::local("one queue, so first come, first served");
    let column = |name, strategy| Column::new(name, strategy).with_group(group());
    let columns = [
        column("seed", Strategy::FromScratch),
        column("a", Strategy::Cell).with_upstream("seed"),
        column("b", Strategy::Cell).with_upstream("seed"),
        column("all", Strategy::FullColumn).with_upstream("a"),
    ];
    let config =
        PipelineConfig { rows: 9, row_group_size: 3, submission_limit: 1, shutdown_rate: None, ..Default::default() };
    // Every way that a task's id is made or looked for: queued, delayed, deferred, dropped while queued, for rows and
    // for whole row groups.
    let end = |what: &Spawned| match *what {
        ("a", _, Some(0), 1) => {
            TaskOutcome::Retryable { kind: RetryKind::RateLimited, status: None, retry_after: Some(ms(500)) }
        }
        ("b", _, Some(2), 1) => TaskOutcome::Retryable { kind: RetryKind::Timeout, status: None, retry_after: None },
        ("a", _, Some(1), 1) | ("all", 1, None, 1) => TaskOutcome::Failed(FailureKind::Request),
        ("seed", 2, None, 1) => TaskOutcome::Cancelled,
        _ => TaskOutcome::Success,
    };
    let mut found = spawned(pipeline(columns, config), end);
    let mut expected: Vec<Spawned> = vec![("seed", 2, None, 2)];
    for group in 0..3 {
        expected.extend([("seed", group, None, 1), ("all", group, None, 1)]);
        expected.extend([(0, 1), (0, 2), (1, 1), (2, 1)].map(|(row, attempt)| ("a", group, Some(row), attempt)));
        // Row 1 was dropped while its `b` was queued.
        expected.extend([(0, 1), (2, 1)].map(|(row, attempt)| ("b", group, Some(row), attempt)));
        // Row group 1 was dropped while its `b` waited to be tried again.
        expected.extend((group != 1).then_some(("b", group, Some(2), 2)));
    }
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), found.len(), "nothing was started twice");
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

/// What a checkpoint or a hook said of its failure was caught, logged and forgotten; the run called itself complete.
#[test]
fn no_sink_error_is_swallowed() {
    let failing = Tasks { save: Err("disk full".into()), ..Tasks::that_succeed() };
    let report = run(one_column(4), failing);
    assert_eq!(report.stop, StopReason::CheckpointFailed { row_group: 0, why: "disk full".to_string() });
    assert_eq!((report.rows_out, report.rows_dropped, report.rows_unmade), (0, 0, 4));
    assert_eq!(report.stop.to_string(), "row group 0 could not be saved: disk full");

    let failing = Tasks { hook: Err("no schema".into()), ..Tasks::that_succeed() };
    let report = run(with_hooks(4), failing);
    let why = "no schema".to_string();
    assert_eq!(report.stop, StopReason::HookFailed { row_group: 0, hook: Hook::PreBatch, why });
    assert_eq!((report.rows_out, report.rows_in), (0, report.rows_unmade));
}

/// A bug in user code was caught with the failures of providers, and cost a row, and then all of them.
#[test]
fn no_bug_is_disguised_as_dropped_rows() {
    type Bug = fn() -> Ended;
    let bugs: [(&str, Bug); 2] = [
        ("a task panicked: index out of bounds", || std::panic::resume_unwind(Box::new("index out of bounds"))),
        ("the column has no model", || Err("the column has no model".into())),
    ];
    for (expected, bug) in bugs {
        let work =
            Tasks::new(move |task| async move { if task.row == Some(2) { bug() } else { Ok(TaskOutcome::Success) } });
        let report = run(one_column(6), work);
        let StopReason::Fatal { column, row_group, cause } = &report.stop else { panic!("{:?}", report.stop) };
        assert_eq!((report.columns[column.index()].name.as_str(), *row_group), ("title", 0));
        assert_eq!(cause, expected);
        assert_eq!((report.columns[0].tasks.fatal, report.columns[0].tasks.failed), (1, 0));
        // Its rows are undone because the run stopped; none of them is said to have failed.
        assert_eq!((report.rows_dropped, report.rows_unmade), (0, report.rows_in - report.rows_out));
    }
}

/// A worker that could not be spawned stayed counted as running: its slot was gone, and the run waited for it for ever.
#[test]
fn no_worker_spawn_failure_leaves_counts() {
    for drops in 0.. {
        let runtime = Runtime::new();
        let host = WatchedHost { drops: Some(drops), ..WatchedHost::new(&runtime) };
        let run = driver::run(host.clone(), with_hooks(4), Arc::new(Tasks::that_succeed()));
        let handle = run.handle();
        let report = runtime.block_on(run).expect("it ends");
        runtime.run_ready();
        let progress = handle.progress();
        assert_eq!((progress.running, progress.queued, progress.delayed), (0, 0, 0), "without spawn {drops}");
        assert!(
            progress.finished && report.rows_in == report.rows_out + report.rows_dropped + report.rows_unmade,
            "{report:?}"
        );
        for column in &report.columns {
            assert_eq!(column.tasks.spawned, column.tasks.ended(), "without spawn {drops}: {column:?}");
        }
        assert_eq!((runtime.tasks(), runtime.armed_timers()), (0, 0));
        if host.spawned.get() <= drops {
            // Two row groups: a hook, four tasks, a hook and a checkpoint for each.
            assert_eq!((drops, report.stop), (14, StopReason::Completed));
            break;
        }
        assert_ne!(report.stop, StopReason::Completed, "without spawn {drops}");
    }
}

/// While a hook was pending, the loop found nothing to do and looked again at once, at full speed.
#[test]
fn no_loop_spins_while_hooks_are_pending() {
    const HOUR: u64 = 3_600_000;
    let runtime = Runtime::new();
    let host = WatchedHost::new(&runtime);
    let work = Arc::new(Tasks { hooks: Some((host.clone(), ms(HOUR))), ..Tasks::that_succeed() });
    let run = driver::run(host.clone(), with_hooks(2), Arc::clone(&work));
    let handle = run.handle();
    host.spawn(async move { drop(run.await) });
    for hook in 0..2 {
        runtime.run_until(at(hook * HOUR + 1));
        let before = host.work.get();
        runtime.run_until(at((hook + 1) * HOUR - 1));
        assert_eq!(host.work.get(), before, "an hour of waiting: no poll, no look at the clock, no timer");
    }
    runtime.run();
    assert_eq!((handle.progress().rows_done, handle.progress().finished), (2, true));
    assert_eq!(work.hook_polls.get(), 4, "two hooks, each polled when it begins and when it is woken");
    let polls = host.work.get().polls;
    assert!(polls <= 20, "{polls} polls for four tasks, two hooks, a checkpoint and the run");
}
