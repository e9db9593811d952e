//! Runs a scenario under many schedules.
//!
//! A schedule that fails is printed by shuttle as a string. The same test under
//! `SHUTTLE_REPLAY=<that string> cargo test -p tidegate-tests --test integration <its name>` runs that one
//! schedule again, and no other.

use std::cell::Cell;

use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, MaxSteps, Runner};

/// Above this a scenario is too large to be exhausted, and the test says so.
const MOST: usize = 50_000;
/// Schedules of each kind of sampling.
const SAMPLES: usize = 2_000;
const SEED: u64 = 7;
/// The bug depth of probabilistic concurrency testing: how many ordering constraints a fault may need to show.
const DEPTH: usize = 3;

/// Runs `scenario` under every schedule there is, of which there must be at least `floor`: fewer means that points of
/// the schedule were lost.
pub(crate) fn exhaust(name: &str, floor: usize, scenario: impl Fn() + Send + Sync + 'static) -> bool {
    if let Some(schedule) = to_replay() {
        shuttle::replay(scenario, &schedule);
        return false;
    }
    let schedules = run(DfsScheduler::new(Some(MOST), false), scenario);
    assert!(schedules < MOST, "{name} has more than {MOST} schedules");
    assert!(schedules >= floor, "{name} has only {schedules} schedules");
    println!("{name}: {schedules} schedules, which are all");
    true
}

/// Runs `scenario` under schedules drawn evenly at each step, and under schedules with few changes of
/// priority, which find other faults.
pub(crate) fn sample(name: &str, scenario: impl Fn() + Clone + Send + Sync + 'static) -> bool {
    if let Some(schedule) = to_replay() {
        shuttle::replay(scenario, &schedule);
        return false;
    }
    let random = run(RandomScheduler::new_from_seed(SEED, SAMPLES), scenario.clone());
    let preempted = run(PctScheduler::new_from_seed(SEED, DEPTH, SAMPLES), scenario);
    println!("{name}: {random} random schedules, {preempted} at bug depth {DEPTH}");
    assert_eq!((random, preempted), (SAMPLES, SAMPLES), "{name}");
    true
}

fn to_replay() -> Option<String> {
    std::env::var("SHUTTLE_REPLAY").ok()
}

thread_local! {
    /// Shuttle runs all threads of an execution on one thread of the system.
    static IS_CHOOSING: Cell<bool> = const { Cell::new(true) };
}

/// Runs `part` of a scenario in one order only: whatever was spawned last goes first, and the caller when that waits.
/// For what comes before a race and after it.
pub(crate) fn in_order<R>(part: impl FnOnce() -> R) -> R {
    let was = IS_CHOOSING.replace(false);
    let result = part();
    IS_CHOOSING.set(was);
    result
}

/// Asks `inner` only where a scenario races.
struct Races<S>(S);

impl<S: Scheduler> Scheduler for Races<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        IS_CHOOSING.set(true);
        self.0.new_execution()
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        if IS_CHOOSING.get() {
            return self.0.next_task(runnable, current, is_yielding);
        }
        runnable.last().map(|task| task.id())
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}

fn run(scheduler: impl Scheduler + 'static, scenario: impl Fn() + Send + Sync + 'static) -> usize {
    let mut config = Config::new();
    // The longest takes a few hundred: who spins fails soon.
    config.max_steps = MaxSteps::FailAfter(20_000);
    Runner::new(Races(scheduler), config).run(scenario)
}
