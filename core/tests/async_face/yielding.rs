//! Tests of runs that call through a gate: a task that waits for a permit holds no worker slot, and every run
//! ends.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use tidegate_core::driver::{self, PipelineRun};
use tidegate_core::gate::Gate;
use tidegate_core::pipeline::{
    Column, Pipeline, PipelineConfig, PlanBuilder, RetryKind, StopReason, Strategy, Task, TaskOutcome,
};
use tidegate_core::request::{Completion, Domain, Outcome, Request, RequestAdmission, RequestConfig, ResourceId};
use tidegate_core::runtime::{Spawn, Timer};
use tidegate_core::sim::rng::Rng;
use tidegate_core::task::TaskGroup;
use tidegate_core::time::{Clock, Instant};

use crate::driver::Work;
use crate::support::{Runtime, TestHost, at, held, ms};

/// Returns a gate with a resource for each of these models.
fn gate_of_models(host: TestHost, models: &[(&str, u32)]) -> (Gate<TestHost>, Vec<ResourceId>) {
    let gate = Gate::new(host, RequestAdmission::new(RequestConfig::default()).expect("the defaults are valid"));
    let resources = gate.with(|machine, now| {
        let resource = |(name, cap): &(&str, u32)| {
            let model = machine.register(now, name, name, "alias", *cap).expect("a valid cap");
            machine.resource(model, Domain::Chat).expect("a known model")
        };
        models.iter().map(resource).collect()
    });
    (gate, resources)
}

/// Returns a pipeline of independent cell columns, one for each model.
fn side_by_side(models: &[(&str, u32)], rows: u64, config: PipelineConfig) -> Pipeline {
    let columns = models.iter().map(|(name, _)| {
        let group = TaskGroup::model(name, name, 1.0);
        Column::new(name, Strategy::Cell).with_group(group).with_demand(&format!("request:{name}"), 1)
    });
    let plan = columns.fold(PlanBuilder::new(), PlanBuilder::column).build().expect("a valid plan");
    let resources = models.iter().map(|(name, cap)| (format!("request:{name}"), cap * 2)).collect();
    Pipeline::new(plan, PipelineConfig { rows, resources, ..config }).expect("a valid configuration")
}

fn calls<'a>(names: &'a [String], resources: &[ResourceId]) -> Vec<(&'a str, ResourceId)> {
    names.iter().map(String::as_str).zip(resources.iter().copied()).collect()
}

fn names(models: &[(&str, u32)]) -> Vec<String> {
    models.iter().map(|(name, _)| format!("request:{name}")).collect()
}

/// Runs two columns on two models, the first of which has a cooldown of two seconds. Returns when the last
/// cell of the second column was made.
fn finish_beside_a_cooldown(is_on: bool) -> Instant {
    let models = [("paused", 2), ("open", 2)];
    let runtime = Runtime::new();
    let host = runtime.host();
    let (gate, resources) = gate_of_models(host.clone(), &models);
    gate.try_acquire(Request::new(resources[0])).expect("it is free").finish(Completion::rate_limited(Some(ms(2_000))));
    let last = Rc::new(Cell::new(Instant::ZERO));
    let work = {
        let (gate, resources, host, last) = (gate.clone(), resources.clone(), host.clone(), Rc::clone(&last));
        Work::new(move |task: Task| {
            let (gate, resource, host, last) =
                (gate.clone(), resources[task.column.index()], host.clone(), Rc::clone(&last));
            async move {
                let permit =
                    gate.acquire(Request::new(resource)).for_task(task.token).await.expect("the permit is granted");
                host.sleep_until(host.now() + ms(10)).await;
                permit.finish(Outcome::Success);
                if task.column.index() == 1 {
                    last.set(host.now());
                }
                TaskOutcome::Success
            }
        })
    };
    let config = PipelineConfig { submission_limit: 3, yield_while_waiting: is_on, ..PipelineConfig::default() };
    let pipeline = side_by_side(&models, 60, config);
    let names = names(&models);
    let calls = if is_on { calls(&names, &resources) } else { Vec::new() };
    let run = driver::run_through(pipeline, Arc::new(work), &gate, &calls);
    let report = runtime.block_on(run).expect("nothing waits forever");
    assert_eq!((report.rows_out, held(&gate)), (60, (0, 0)));
    last.get()
}

#[test]
fn a_cooldown_of_one_provider_does_not_delay_another() {
    // 60 calls of 10 ms, two at a time, take exactly this long.
    assert_eq!(finish_beside_a_cooldown(true), at(300));
}

#[test]
fn without_yielding_a_cooldown_of_one_provider_delays_another() {
    let finished = finish_beside_a_cooldown(false);
    assert!(finished >= at(500), "{finished}");
}

#[test]
fn a_drained_run_ends_with_its_last_call_in_flight_even_during_a_cooldown() {
    for yield_while_waiting in [true, false] {
        let models = [("m", 2)];
        let runtime = Runtime::new();
        let host = runtime.host();
        let (gate, resources) = gate_of_models(host.clone(), &models);
        let work = {
            let (gate, resource, host) = (gate.clone(), resources[0], host.clone());
            Work::new(move |task: Task| {
                let (gate, host) = (gate.clone(), host.clone());
                async move {
                    let Ok(permit) = gate.acquire(Request::new(resource)).for_task(task.token).await else {
                        return TaskOutcome::Cancelled;
                    };
                    host.sleep_until(host.now() + ms(if task.row == Some(0) { 10 } else { 700 })).await;
                    // The first outcome starts a cooldown of an hour.
                    permit.finish(Completion::rate_limited(Some(ms(3_600_000))));
                    TaskOutcome::Success
                }
            })
        };
        let config = PipelineConfig { yield_while_waiting, ..PipelineConfig::default() };
        let names = names(&models);
        let pipeline = side_by_side(&models, 20, config);
        let run = driver::run_through(pipeline, Arc::new(work), &gate, &calls(&names, &resources));
        let handle = run.handle();
        let ended = Rc::new(Cell::new(None));
        let result = Rc::clone(&ended);
        host.clone().spawn(async move { result.set(Some((run.await.stop, host.now()))) });
        runtime.run_until(at(500));
        handle.drain();
        runtime.run_until(at(1_000));
        assert_eq!(ended.take(), Some((StopReason::Drained, at(700))), "yields: {yield_while_waiting}");
        assert_eq!(held(&gate), (0, 0));
    }
}

#[test]
fn draining_a_run_does_not_affect_another_run_of_the_same_gate() {
    let models = [("m", 1)];
    let runtime = Runtime::new();
    let host = runtime.host();
    let (gate, resources) = gate_of_models(host.clone(), &models);
    let work = {
        let (gate, resource, host) = (gate.clone(), resources[0], host.clone());
        Arc::new(Work::new(move |task: Task| {
            let (gate, host) = (gate.clone(), host.clone());
            async move {
                let Ok(permit) = gate.acquire(Request::new(resource)).for_task(task.token).await else {
                    return TaskOutcome::Cancelled;
                };
                host.sleep_until(host.now() + ms(10)).await;
                permit.finish(Outcome::Success);
                TaskOutcome::Success
            }
        }))
    };
    let names = names(&models);
    let ends = Rc::new(RefCell::new(Vec::new()));
    let handles = ["drained", "other"].map(|name| {
        let pipeline = side_by_side(&models, 5, PipelineConfig::default());
        let calls = calls(&names, &resources);
        let run = driver::run_through(pipeline, Arc::clone(&work), &gate, &calls);
        let (handle, ends) = (run.handle(), Rc::clone(&ends));
        host.spawn(async move {
            let report = run.await;
            ends.borrow_mut().push((name, report.stop, report.rows_out));
        });
        handle
    });
    runtime.run_until(at(5));
    handles[0].drain();
    runtime.run();
    let ended = ends.take();
    // The row whose call was in flight is kept.
    assert_eq!(ended, [("drained", StopReason::Drained, 1), ("other", StopReason::Completed, 5)]);
    assert_eq!(held(&gate), (0, 0));
}

/// A random scenario.
struct Scenario {
    runtime: Runtime,
    gate: Gate<TestHost>,
    work: Arc<Work>,
    runs: Vec<PipelineRun<TestHost, Work>>,
}

fn random_scenario(rng: &mut Rng) -> Scenario {
    let models = [("a", 1 + draw(rng, 3)), ("b", 1 + draw(rng, 3))];
    let runtime = Runtime::new();
    let host = runtime.host();
    let (gate, resources) = gate_of_models(host.clone(), &models);
    let dice = Rc::new(RefCell::new(Rng::new(rng.next_u64())));
    let work = {
        let (gate, resources, host) = (gate.clone(), resources.clone(), host.clone());
        Arc::new(Work::new(move |task: Task| {
            let (gate, resources, host, dice) = (gate.clone(), resources.clone(), host.clone(), Rc::clone(&dice));
            let roll = move |sides| dice.borrow_mut().below(sides);
            async move {
                for _ in 0..roll(4) {
                    let mut request = Request::new(resources[roll(2) as usize]);
                    if roll(4) == 0 {
                        request = request.within(ms(roll(30)));
                    }
                    let token = task.token.filter(|_| roll(8) > 0);
                    let Ok(permit) = gate.acquire(request).for_task(token).await else {
                        return TaskOutcome::Retryable {
                            kind: RetryKind::AdmissionTimeout,
                            status: None,
                            retry_after: None,
                        };
                    };
                    host.sleep_until(host.now() + ms(roll(20))).await;
                    match roll(6) {
                        0 => drop(permit),
                        1 => permit.finish(Completion::rate_limited(Some(ms(roll(90))))),
                        _ => permit.finish(Outcome::Success),
                    }
                    if roll(3) == 0 {
                        host.sleep_until(host.now() + ms(roll(10))).await;
                    }
                }
                TaskOutcome::Success
            }
        }))
    };
    let names = names(&models);
    let runs = (0..=rng.below(2)).map(|_| {
        let config = PipelineConfig { submission_limit: 1 + draw(rng, 6), ..PipelineConfig::default() };
        let pipeline = side_by_side(&models, rng.below(12), config);
        driver::run_through(pipeline, Arc::clone(&work), &gate, &calls(&names, &resources))
    });
    let runs = runs.collect();
    Scenario { runtime, gate, work, runs }
}

fn draw(rng: &mut Rng, below: u64) -> u32 {
    u32::try_from(rng.below(below)).expect("a small number")
}

#[test]
fn every_run_ends_and_nothing_leaks_for_random_tasks() {
    for seed in 0..400 {
        let rng = &mut Rng::new(seed);
        let Scenario { runtime, gate, work, runs } = random_scenario(rng);
        let (mut kept, mut awaited, ends) = (Vec::new(), 0, Rc::new(Cell::new(0)));
        for run in runs {
            match rng.below(5) {
                // Dropped after the other runs were started.
                0 => kept.push(run),
                fate => {
                    awaited += 1;
                    let (handle, ends) = (run.handle(), Rc::clone(&ends));
                    runtime.host().spawn(async move {
                        let report = run.await;
                        assert_eq!(report.rows_in, report.rows_out + report.rows_dropped + report.rows_unmade);
                        ends.set(ends.get() + 1);
                    });
                    if fate < 3 {
                        runtime.run_until(at(rng.below(60)));
                        if fate == 1 { handle.cancel() } else { handle.drain() }
                    }
                }
            }
        }
        drop(kept);
        runtime.run();
        assert_eq!(ends.get(), awaited, "seed {seed}: every run ends");
        assert_eq!((held(&gate), work.running()), ((0, 0), 0), "seed {seed}");
        drop(gate);
        assert_eq!(Arc::strong_count(&work), 1, "seed {seed}: no run is kept");
        drop(work);
        runtime.run();
        assert_eq!((runtime.tasks(), runtime.armed_timers()), (0, 0), "seed {seed}");
    }
}
