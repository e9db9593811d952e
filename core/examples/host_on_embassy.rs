//! A host on embassy. This example uses its executor and its timer for `std`. On a microcontroller the host
//! is the same.
//!
//! `embassy-time` needs one of the features `generic-queue-*`. Without it, its timers only accept wakers of
//! embassy's own executor, and panic where a combinator such as `FuturesUnordered` polls them. A job needs
//! one of the [`MAX_JOBS`] slots of its task pool. Without a free slot its future is dropped, and the run
//! ends with a lost worker, so the pool must be larger than the pipeline's `submission_limit`.

// A run takes its workload in an `Arc`, but this host has only one thread.
#![allow(clippy::arc_with_non_send_sync)]

mod shared;

use std::cell::Cell;
use std::error::Error;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use embassy_executor::{Executor, Spawner};
use tidegate_core::driver;
use tidegate_core::gate::Gate;
use tidegate_core::pipeline::{RunReport, Task};
use tidegate_core::request::Request;
use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::time::{Clock, Duration, Instant};
use tidegate_local_lock::LocalLock;

use shared::Tasks;

/// The largest number of futures that may be spawned at the same time.
const MAX_JOBS: usize = 64;

#[embassy_executor::task(pool_size = MAX_JOBS)]
async fn job(future: Pin<Box<dyn Future<Output = ()>>>) {
    future.await;
}

#[derive(Clone)]
struct EmbassyHost(Spawner);

impl Clock for EmbassyHost {
    fn now(&self) -> Instant {
        Instant::ZERO + Duration::from_micros(embassy_time::Instant::now().as_micros())
    }
}

impl Timer for EmbassyHost {
    type Sleep = embassy_time::Timer;

    fn sleep_until(&self, at: Instant) -> Self::Sleep {
        embassy_time::Timer::at(embassy_time::Instant::from_micros(at.as_nanos().div_ceil(1_000)))
    }
}

impl<F: Future<Output = ()> + 'static> Spawn<F> for EmbassyHost {
    fn spawn(&self, future: F) {
        if let Ok(token) = job(Box::pin(future)) {
            self.0.spawn(token);
        }
    }
}

impl Host for EmbassyHost {
    type Lock = LocalLock;
}

/// Makes one call through a gate, then runs a pipeline of 20 rows.
async fn run(host: EmbassyHost) -> Result<RunReport, Box<dyn Error>> {
    let (machine, chat) = shared::admission()?;
    let gate = Gate::new(host.clone(), machine);
    let answer = gate.run(Request::new(chat), shared::call_provider(host.clone(), 21)).await?;
    println!("the answer is {answer:?}");

    let gate_of_tasks = gate.clone();
    let tasks = Tasks(move |task: Task| {
        let (gate, host) = (gate_of_tasks.clone(), host.clone());
        async move {
            let call = shared::call_provider(host, task.row.unwrap_or_default());
            // With the token, the task holds no task resources while it waits at the gate.
            Ok(shared::outcome(gate.run(Request::new(chat), call).for_task(task.token).await))
        }
    });
    let run = driver::run_through(shared::pipeline()?, Arc::new(tasks), &gate, &[(shared::MODEL, chat)]);
    Ok(run.await)
}

/// Runs `future` to its end on a new executor.
fn block_on<F>(future: impl FnOnce(EmbassyHost) -> F) -> F::Output
where
    F: Future + 'static,
{
    let output = Rc::new(Cell::new(None));
    let output_of_job = Rc::clone(&output);
    // The futures of this executor live as long as the executor, which is forever.
    Box::leak(Box::new(Executor::new())).run_until(
        |spawner| {
            let host = EmbassyHost(spawner);
            let future = future(host.clone());
            host.spawn(async move { output_of_job.set(Some(future.await)) });
        },
        || {
            let ended = output.take();
            let is_over = ended.is_some();
            output.set(ended);
            is_over
        },
    );
    output.take().expect("the executor stopped because there is an output")
}

fn main() -> Result<(), Box<dyn Error>> {
    let report = block_on(run)?;
    println!("{} rows in {}", report.rows_out, report.ended);
    assert_eq!(report.rows_out, 20);
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate_core::runtime::{check_host, check_spawn};

    use super::*;

    // There is only one test, because the process has one task pool, which serves one executor at a time.
    #[test]
    fn the_example_runs_and_the_host_follows_the_rules() {
        main().expect("the settings are valid");
        assert_eq!(block_on(check_host), Ok(()));
        assert_eq!(block_on(check_spawn), Ok(()));
    }
}
