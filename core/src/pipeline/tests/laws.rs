//! Laws that hold for every run, checked with random plans, sizes, outcomes, checkpoint results and stops.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use super::*;
use crate::pipeline::event::SchedulerInterest;
use crate::pipeline::tests::event_checker::EventTotals;
use crate::pipeline::tests::harness::*;
use crate::sim::rng::Rng;
use crate::time::Duration;

fn random_columns(rng: &mut Rng) -> Vec<Column> {
    let count = 1 + rng.below(6);
    let mut columns: Vec<Column> = Vec::new();
    for n in 0..count {
        let strategy = match rng.below(4) {
            0 => Strategy::FromScratch,
            1 => Strategy::FullColumn,
            _ => Strategy::Cell,
        };
        let name = rng.below(3).to_string();
        let group = match rng.below(2) {
            0 => crate::task::TaskGroup::local(&name),
            _ => crate::task::TaskGroup::model("provider", &name, 1.0),
        };
        let mut column = Column::new(&alloc::format!("c{n}"), strategy).with_group(group);
        for upstream in &columns {
            let allowed = strategy != Strategy::FromScratch || upstream.strategy != Strategy::Cell;
            if allowed && rng.below(2) == 0 {
                column = column.with_upstream(&upstream.name);
            }
        }
        column.ordered = rng.below(4) == 0;
        column.skips_with_upstream = rng.below(2) == 0;
        if rng.below(3) == 0 {
            column = column.batched(1 + rng.below(5) as u32);
            column.splits_retries = rng.below(2) == 0;
        }
        columns.push(column.with_demand("slot", 1 + rng.below(3) as u32));
    }
    columns
}

fn random_config(rng: &mut Rng) -> PipelineConfig {
    let row_count = rng.below(40);
    let row_group_size = 1 + rng.below(9) as u32;
    let groups = row_count.div_ceil(u64::from(row_group_size)) as u32;
    let row_groups = 1 + rng.below(4) as u32;
    let adaptive = AdaptiveRowGroups {
        initial: 1 + rng.below(u64::from(row_groups)) as u32,
        max_admitted_rows: (rng.below(2) == 0).then(|| 1 + rng.below(30)),
        shrink_after: 1 + rng.below(5) as u32,
    };
    PipelineConfig {
        row_groups,
        adaptive: (rng.below(2) == 0).then_some(adaptive),
        submission_limit: 1 + rng.below(12) as u32,
        resources: [("slot".to_string(), 3 + rng.below(9) as u32)].into(),
        retries: rng.below(3) as u32,
        shutdown_rate: (rng.below(2) == 0).then_some(0.5),
        rate_limit_patience: (rng.below(3) == 0).then_some(Duration::from_secs(2)),
        pre_batch_hook: rng.below(3) == 0,
        post_batch_hook: rng.below(3) == 0,
        done_row_groups: (0..groups).filter(|_| rng.below(5) == 0).collect(),
        ..rows(row_count, row_group_size)
    }
}

/// Returns random rows that an earlier run has left incomplete in some row groups.
fn random_missing_rows(rng: &mut Rng, config: &PipelineConfig) -> Vec<Range<u64>> {
    let groups = config.rows.div_ceil(u64::from(config.row_group_size)) as u32;
    let parts: Vec<u32> =
        (0..groups).filter(|group| rng.below(4) == 0 && !config.done_row_groups.contains(group)).collect();
    let mut missing: Vec<Range<u64>> = Vec::new();
    for group in parts {
        let first = u64::from(group) * u64::from(config.row_group_size);
        for row in first..config.rows.min(first + u64::from(config.row_group_size)) {
            match missing.last_mut() {
                _ if rng.below(2) == 0 => {}
                Some(last) if last.end == row && rng.below(2) == 0 => last.end += 1,
                _ => missing.push(row..row + 1),
            }
        }
    }
    missing
}

/// Returns the rows that a run computes in a row group that is not done.
fn missing_of(config: &PipelineConfig, row_group: u32, rows: u32) -> BTreeSet<u32> {
    let first = u64::from(row_group) * u64::from(config.row_group_size);
    let is_missing = |row: &u32| config.missing_rows.iter().any(|range| range.contains(&(first + u64::from(*row))));
    let missing: BTreeSet<u32> = (0..rows).filter(is_missing).collect();
    if missing.is_empty() { (0..rows).collect() } else { missing }
}

/// The mix of outcomes in one run: the number of each kind among 100 workers.
struct OutcomeMix {
    skipped: u64,
    failed: u64,
    retryable: u64,
    fatal: u64,
    lost: u64,
    /// The number of workers among 100 that cannot be started.
    failed_spawns: u64,
    /// Whether almost all calls end with a rate limit.
    only_rate_limits: bool,
    /// The number of workers among 100 whose provider is unavailable.
    unavailable: u64,
}

impl OutcomeMix {
    fn random(rng: &mut Rng) -> Self {
        let fatal = u64::from(rng.below(10) == 0);
        let only_rate_limits = rng.below(20) == 0;
        let skipped = rng.below(2) * rng.below(30);
        Self {
            skipped,
            failed: rng.below(30),
            retryable: rng.below(40),
            fatal,
            lost: rng.below(5),
            failed_spawns: rng.below(4),
            only_rate_limits,
            unavailable: 0,
        }
    }

    fn end(&self, rng: &mut Rng) -> Result<TaskOutcome, FatalError> {
        if self.only_rate_limits && rng.below(60) > 0 {
            return Ok(rate_limited(Duration::from_millis(rng.below(900))));
        }
        if self.unavailable > 0 && rng.below(100) < self.unavailable {
            return Ok(TaskOutcome::Unavailable);
        }
        if rng.below(100) < self.skipped {
            return Ok(TaskOutcome::Skipped);
        }
        let draw = rng.below(100);
        let kinds = [
            RetryKind::RateLimited,
            RetryKind::Timeout,
            RetryKind::ServerError,
            RetryKind::Connection,
            RetryKind::AdmissionTimeout,
        ];
        Ok(if draw < self.failed {
            FAILED
        } else if draw < self.failed + self.retryable {
            let kind = kinds[rng.below(5) as usize];
            let retry_after = (rng.below(2) == 0).then(|| Duration::from_millis(rng.below(900)));
            TaskOutcome::Retryable { kind, status: None, retry_after }
        } else if draw < self.failed + self.retryable + self.fatal {
            return Err("a bug".into());
        } else if draw < self.failed + self.retryable + self.fatal + self.lost {
            TaskOutcome::Cancelled
        } else {
            TaskOutcome::Success
        })
    }
}

/// The row group, column and row of a task.
type Id = (u32, ColumnId, Option<u32>);

/// A reference model of a run, computed from its spawns and outcomes.
#[derive(Default)]
struct Checker {
    /// Each attempt of each task. No attempt occurs twice.
    attempts: BTreeSet<(u32, ColumnId, Option<u32>, u32)>,
    done: BTreeSet<Id>,
    /// The tasks in `done` that a worker skipped.
    skipped: BTreeSet<Id>,
    /// The tasks that failed permanently.
    failed: BTreeSet<Id>,
    /// The tasks whose provider is unavailable.
    parked: BTreeSet<Id>,
    /// The latest task of each ordered column.
    latest_turns: BTreeMap<ColumnId, (u32, Option<u32>)>,
    /// The row groups whose pre-batch hook has ended, with the rows that it left out.
    pre_batch_done: BTreeMap<u32, Vec<u32>>,
    /// The row groups whose post-batch hook has ended.
    post_batch_done: BTreeSet<u32>,
    checked_spawns: usize,
    saved: BTreeMap<u32, usize>,
}

impl Checker {
    fn check(&mut self, rig: &Rig, config: &PipelineConfig) {
        let hooks = rig.pre_batch.iter().map(|batch| batch.row_group);
        let hooks = hooks.chain(rig.post_batch.iter().map(|group| group.row_group));
        let busy = rig.running.iter().map(|task| task.row_group).chain(rig.saving.iter().copied());
        let open: BTreeSet<u32> = busy.chain(hooks).collect();
        for batch in &rig.pre_batch {
            assert!(rig.running.iter().all(|task| task.row_group != batch.row_group), "{batch:?} too early");
            assert!(!self.pre_batch_done.contains_key(&batch.row_group), "{batch:?} twice");
        }
        for group in &rig.post_batch {
            assert!(rig.running.iter().all(|task| task.row_group != group.row_group), "{group:?} too early");
            assert!(!self.post_batch_done.contains(&group.row_group), "{group:?} twice");
        }
        assert!(open.len() <= config.row_groups as usize, "the limit of row groups");
        let leading = || rig.running.iter().filter(|task| !task.follows());
        assert!(leading().count() <= config.submission_limit as usize, "the submission limit");
        let demand = |task: &Task| rig.pipeline.plan().columns()[task.column.index()].demand[0].1;
        let held: u32 = leading().map(demand).sum();
        assert!(held <= config.resources[0].1, "the limit of a resource");
        for task in &rig.spawned[self.checked_spawns..] {
            self.check_spawn(rig, config, task);
        }
        self.checked_spawns = rig.spawned.len();
        for row_group in &rig.saving {
            assert!(
                !config.post_batch_hook || self.post_batch_done.contains(row_group),
                "{row_group} without its hook"
            );
            self.saved.insert(*row_group, 0);
        }
        assert_eq!(rig.finished.len(), self.saved.len(), "a row group is checkpointed once");
    }

    fn check_spawn(&mut self, rig: &Rig, config: &PipelineConfig, task: &Task) {
        let id = (task.row_group, task.column, task.row);
        assert!(self.attempts.insert((task.row_group, task.column, task.row, task.attempt)), "{task:?} twice");
        assert!(
            task.attempt == 1 || self.attempts.contains(&(id.0, id.1, id.2, task.attempt - 1)),
            "{task:?} skips an attempt"
        );
        let is_over = [&self.done, &self.failed, &self.parked].into_iter().any(|ended| ended.contains(&id));
        assert!(!is_over, "{task:?} after its end");
        assert!(!config.done_row_groups.contains(&task.row_group), "{task:?} of a row group that is done");
        let is_saved_before = task.row.is_some_and(|row| !missing_of(config, task.row_group, task.rows).contains(&row));
        assert!(!is_saved_before, "{task:?} of a row that an earlier run has saved");
        assert!(!self.saved.contains_key(&task.row_group), "{task:?} after its checkpoint");
        let plan = rig.pipeline.plan();
        if config.pre_batch_hook {
            let left_out = self.pre_batch_done.get(&task.row_group);
            assert_eq!(
                left_out.is_none(),
                plan.is_seed(task.column),
                "{task:?} before or after the pre-batch hook, contrary to its column"
            );
            let is_left_out = left_out.is_some_and(|rows| rows.iter().any(|row| Some(*row) == task.row));
            assert!(!is_left_out, "{task:?} of a row that was left out");
        }
        if plan.columns()[task.column.index()].ordered {
            let turn = (task.row_group, task.row);
            let before = self.latest_turns.insert(task.column, turn);
            assert!(before.is_none_or(|before| before <= turn), "{task:?} after {before:?}");
            let at_once = rig.running.iter().filter(|other| other.column == task.column).count();
            assert_eq!(at_once, 1, "{task:?} runs concurrently with another task of its ordered column");
        }
        assert!(!self.is_skipped_with_upstream(plan, id), "{task:?} should have been skipped");
        check_batch(rig, task);
        for upstream in plan.upstreams(task.column) {
            if let Some(upstream) = upstream_of(plan, id, *upstream) {
                assert!(self.is_done(plan, upstream), "{task:?} too early");
            } else {
                let mut rows = (0..task.rows).map(|row| (task.row_group, *upstream, Some(row)));
                assert!(rows.any(|cell| self.is_done(plan, cell)), "{task:?} for a row group without rows");
            }
        }
    }

    /// Returns whether a task is skipped with an upstream instead of run.
    fn is_skipped_with_upstream(&self, plan: &Plan, id: Id) -> bool {
        let upstreams = || plan.upstreams(id.1).iter().filter_map(|upstream| upstream_of(plan, id, *upstream));
        plan.columns()[id.1.index()].skips_with_upstream
            && upstreams()
                .any(|upstream| self.skipped.contains(&upstream) || self.is_skipped_with_upstream(plan, upstream))
            && upstreams().all(|upstream| self.is_done(plan, upstream))
    }

    fn is_done(&self, plan: &Plan, id: Id) -> bool {
        self.done.contains(&id) || self.is_skipped_with_upstream(plan, id)
    }

    fn spawn_failed(&mut self, task: &Task) {
        let was_tried = self.attempts.remove(&(task.row_group, task.column, task.row, task.attempt));
        assert!(was_tried, "{task:?} was never spawned");
    }

    fn worker_ended(&mut self, task: &Task, ended: &Result<TaskOutcome, FatalError>) {
        let id = (task.row_group, task.column, task.row);
        match ended {
            Ok(TaskOutcome::Success) => drop(self.done.insert(id)),
            Ok(TaskOutcome::Skipped) => drop((self.done.insert(id), self.skipped.insert(id))),
            Ok(TaskOutcome::Failed(_)) => drop(self.failed.insert(id)),
            Ok(TaskOutcome::Unavailable) => drop(self.parked.insert(id)),
            _ => {}
        }
    }

    fn finish(&self, rig: &Rig, config: &PipelineConfig) {
        let report = rig.report();
        let mut out = 0;
        for group in &rig.finished {
            let missing = missing_of(config, group.row_group, group.rows);
            assert_eq!(group.live.len() + group.dropped.len() + group.unmade.len(), missing.len());
            let rows = group.live.iter().chain(&group.unmade).copied().chain(group.dropped.iter().map(|row| row.row));
            assert_eq!(rows.collect::<BTreeSet<u32>>(), missing, "each row is in one of the lists");
            for row in &group.live {
                let left_out = self.pre_batch_done.get(&group.row_group).is_some_and(|rows| rows.contains(row));
                assert!(!left_out, "row {row} of {group:?} was left out");
                assert!(!config.pre_batch_hook || self.pre_batch_done.contains_key(&group.row_group), "{group:?}");
                for id in rig.pipeline.plan().order() {
                    let is_cell = rig.pipeline.plan().columns()[id.index()].strategy == Strategy::Cell;
                    let task = (group.row_group, *id, is_cell.then_some(*row));
                    assert!(self.is_done(rig.pipeline.plan(), task), "{task:?} is saved but was never computed");
                }
            }
            out += group.live.len() as u64;
        }
        let unsaved = rig.pipeline.unsaved().filter(|group| self.saved.contains_key(&group.row_group));
        let unsaved: u64 = unsaved.map(|group| group.live.len() as u64).sum();
        assert_eq!(report.rows_out, out - unsaved);
        for (column, definition) in report.columns.iter().zip(rig.pipeline.plan().columns()) {
            let of = |(_, id, _): &&Id| *id == column.column;
            assert!(column.tasks.skipped <= self.skipped.iter().filter(of).count() as u64, "{column:?}");
            assert!(column.tasks.skipped_with_upstream == 0 || definition.skips_with_upstream, "{column:?}");
        }
        for (row_group, column, row) in &self.parked {
            let group = rig.finished.iter().find(|group| group.row_group == *row_group);
            // Another column may have dropped the row since.
            let is_live = group.is_none_or(|group| match row {
                Some(row) => group.live.contains(row),
                None => !group.live.is_empty(),
            });
            let is_reported = report.stop != StopReason::Completed || !is_live;
            assert!(is_reported, "{:?} although column {column:?}, row {row:?} of {row_group} is parked", report.stop);
        }
        if report.is_complete() {
            assert_eq!((report.rows_not_started, report.rows_unmade), (0, 0));
            assert_eq!(rig.finished.len() + config.done_row_groups.len(), report.row_groups as usize);
        }
    }
}

/// Checks that the batch of a task has a lead of its column and row group, and not too many tasks.
fn check_batch(rig: &Rig, task: &Task) {
    let Some(batch) = task.batch else { return };
    let column = &rig.pipeline.plan().columns()[task.column.index()];
    assert!((2..=column.batch_size).contains(&batch.size), "{task:?} in a batch of {column:?}");
    let is_lead = |other: &Task| {
        (other.column, other.row_group) == (task.column, task.row_group)
            && other.batch == Some(batch)
            && !other.follows()
    };
    assert!(rig.spawned.iter().any(is_lead), "{task:?} without a lead");
}

/// Returns the task of an upstream column that a task waits for, or `None` if it waits for the cells of all
/// rows.
fn upstream_of(plan: &Plan, (row_group, _, row): Id, upstream: ColumnId) -> Option<Id> {
    let is_cell = plan.columns()[upstream.index()].strategy == Strategy::Cell;
    if is_cell { row.map(|row| (row_group, upstream, Some(row))) } else { Some((row_group, upstream, None)) }
}

fn run_world(seed: u64) -> RunReport {
    run_watched(seed, true)
}

/// Runs a seed, with all events enabled and checked if `is_watched` is true.
fn run_watched(seed: u64, is_watched: bool) -> RunReport {
    let mut rng = Rng::new(seed);
    let columns = random_columns(&mut rng);
    let mut config = random_config(&mut rng);
    if columns.iter().all(|column| column.strategy != Strategy::FullColumn) {
        config.missing_rows = random_missing_rows(&mut rng, &config);
    }
    config.claims_row_groups = rng.below(4) == 0 && columns.iter().all(|column| !column.ordered);
    let mut outcomes = OutcomeMix::random(&mut rng);
    let cancel_at = (rng.below(5) == 0).then(|| rng.below(60));
    let wind_down_at = (rng.below(6) == 0).then(|| rng.below(60));
    let drain_at = (rng.below(6) == 0).then(|| rng.below(60));
    let bad_disk = rng.below(12) == 0;
    let bad_hooks = rng.below(6) == 0;
    if rng.below(6) == 0 {
        outcomes.unavailable = 1 + rng.below(20);
    }
    let mut known = config.clone();
    if config.claims_row_groups {
        known.missing_rows.clear();
    }
    let mut rig =
        Rig::start_with(columns, known, if is_watched { SchedulerInterest::ALL } else { SchedulerInterest::NONE });
    let mut checker = Checker::default();
    let mut totals = is_watched.then(EventTotals::default);
    checker.check(&rig, &config);
    for step in 0_u64.. {
        if let Some(totals) = &mut totals {
            totals.check(&mut rig);
        }
        assert!(step < 100_000, "the run does not end");
        if rig.ends > 0 {
            break;
        }
        if cancel_at == Some(step) {
            rig.cancel();
        } else if wind_down_at == Some(step) {
            rig.wind_down();
        } else if drain_at == Some(step) {
            rig.drain_run();
        } else if (!rig.pre_batch.is_empty() || !rig.post_batch.is_empty())
            && (rng.below(3) == 0 || rig.running.is_empty())
        {
            finish_hook(&mut rig, &mut checker, &mut rng, bad_hooks);
        } else if rig.claims > 0 && (rng.below(3) == 0 || rig.running.is_empty()) {
            claim_any(&mut rig, &mut rng, &config);
        } else if !rig.saving.is_empty() && (rng.below(3) == 0 || rig.running.is_empty()) {
            let row_group = rig.saving[rng.below(rig.saving.len() as u64) as usize];
            let result = if bad_disk && rng.below(3) == 0 { Err("no space".into()) } else { Ok(()) };
            rig.finish_checkpoint(row_group, result);
        } else if !rig.running.is_empty() {
            let task = rig.running[rng.below(rig.running.len() as u64) as usize];
            if rng.below(100) < outcomes.failed_spawns {
                checker.spawn_failed(&task);
                rig.fail_spawn(&rig.label(&task));
                checker.check(&rig, &config);
                continue;
            }
            let aborted = rig.aborted.contains(&task.worker) && rng.below(4) > 0;
            let ended = if aborted { Ok(TaskOutcome::Cancelled) } else { outcomes.end(&mut rng) };
            checker.worker_ended(&task, &ended);
            rig.end_worker_with(&rig.label(&task), ended);
            rig.advance(Duration::from_millis(rng.below(20)));
        } else {
            let due = rig.pipeline.poll_timeout().expect("a run that has not ended has work in progress");
            rig.advance(due - rig.now);
        }
        checker.check(&rig, &config);
    }
    checker.finish(&rig, &config);
    rig.report().clone()
}

/// Claims any row group, with its missing rows. It may be one that cannot be admitted.
fn claim_any(rig: &mut Rig, rng: &mut Rng, config: &PipelineConfig) {
    let size = u64::from(config.row_group_size);
    let row_group = rng.below(config.rows.div_ceil(size)) as u32;
    let rows = (config.rows - u64::from(row_group) * size).min(size) as u32;
    let missing = missing_of(config, row_group, rows);
    let is_whole = missing.len() == rows as usize;
    let missing = if is_whole { Vec::new() } else { missing.into_iter().map(|row| row..row + 1).collect() };
    rig.claim_part(Ok(Some(ClaimedRowGroup { row_group, missing })));
}

/// Reports the result of a hook that is in progress.
fn finish_hook(rig: &mut Rig, checker: &mut Checker, rng: &mut Rng, bad: bool) {
    let fails = bad && rng.below(4) == 0;
    if let Some(batch) = rig.pre_batch.last().copied() {
        let left_out: Vec<u32> = (0..batch.rows).filter(|_| rng.below(5) == 0).collect();
        checker.pre_batch_done.insert(batch.row_group, left_out.clone());
        rig.finish_pre_batch(batch.row_group, if fails { Err("bad".into()) } else { Ok(left_out) });
    } else if let Some(group) = rig.post_batch.first() {
        let row_group = group.row_group;
        checker.post_batch_done.insert(row_group);
        rig.finish_post_batch(row_group, if fails { Err("bad".into()) } else { Ok(()) });
    }
}

/// The number of runs by stop reason.
type Endings = BTreeMap<String, u32>;

/// Runs every `stride`th of the seeds.
fn run_worlds(seeds: Range<u64>, stride: usize) -> Endings {
    /// The number of seeds between two progress messages.
    const STEP: u64 = 10_000;
    let mut endings = Endings::new();
    for seed in seeds.step_by(stride) {
        let world = std::panic::catch_unwind(|| run_world(seed));
        let report = world.unwrap_or_else(|_| panic!("{}", replay(seed)));
        assert!(!matches!(report.stop, StopReason::Stuck { .. }), "{}\n{}", report.stop, replay(seed));
        let ending = alloc::format!("{:?}", report.stop);
        let kind = ending.split(' ').next().unwrap_or_default();
        *endings.entry(kind.to_string()).or_default() += 1;
        if seed > 0 && seed % STEP == 0 {
            std::println!("{seed} worlds");
        }
    }
    endings
}

fn replay(seed: u64) -> String {
    alloc::format!(
        "replay with\n    TIDEGATE_SEED={seed} cargo test -p tidegate-core --features std,sim every_random_run"
    )
}

/// Runs as many seeds as `TIDEGATE_WORLDS` contains, on two threads. If `TIDEGATE_SEED` is set, runs only
/// this seed, to replay a failure.
#[test]
fn every_random_run_computes_each_task_once_accounts_for_each_row_and_releases_each_lease() {
    const THREADS: u64 = 2;
    let number = |name| {
        let value = std::env::var(name).ok()?;
        Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not an integer")))
    };
    if let Some(seed) = number("TIDEGATE_SEED") {
        run_worlds(seed..seed + 1, 1);
        return;
    }
    let worlds = number("TIDEGATE_WORLDS").unwrap_or(2_000);
    let mut endings = Endings::new();
    std::thread::scope(|scope| {
        let shares = (0..THREADS).map(|first| scope.spawn(move || run_worlds(first..worlds, THREADS as usize)));
        for share in shares.collect::<Vec<_>>() {
            // A failing thread has printed its seed and the command that replays it.
            for (kind, count) in share.join().expect("no run fails a check") {
                *endings.entry(kind).or_default() += count;
            }
        }
    });
    std::println!("{worlds} worlds: {endings:?}");
    assert_eq!(u64::from(endings.values().sum::<u32>()), worlds, "every world ran");
    for kind in [
        "Completed",
        "Drained",
        "Cancelled",
        "EarlyShutdown",
        "Fatal",
        "CheckpointFailed",
        "HookFailed",
        "ProviderUnavailable",
    ] {
        assert!(worlds < 2_000 || endings.contains_key(kind), "no world ended as {kind}: {endings:?}");
    }
}

#[test]
fn enabling_events_does_not_change_a_run() {
    for seed in 0..200 {
        assert_eq!(run_watched(seed, true), run_watched(seed, false), "seed {seed}");
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    for seed in 0..50 {
        assert_eq!(run_world(seed), run_world(seed), "seed {seed}");
    }
}
