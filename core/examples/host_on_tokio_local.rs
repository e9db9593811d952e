//! A host on one tokio thread: tasks are spawned on a `LocalSet` and need not be `Send`, and the lock comes
//! from `tidegate-local-lock`.

// A run takes its workload in an `Arc`, but this host has only one thread.
#![allow(clippy::arc_with_non_send_sync)]

mod shared;

use std::error::Error;
use std::sync::Arc;

use tidegate_core::driver;
use tidegate_core::gate::Gate;
use tidegate_core::pipeline::{RunReport, Task};
use tidegate_core::request::Request;
use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::time::{Clock, Instant};
use tidegate_local_lock::LocalLock;
use tokio::task::LocalSet;

use shared::Tasks;

#[derive(Clone)]
struct LocalHost {
    origin: tokio::time::Instant,
}

impl Clock for LocalHost {
    fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed().into()
    }
}

impl Timer for LocalHost {
    type Sleep = tokio::time::Sleep;

    fn sleep_until(&self, at: Instant) -> Self::Sleep {
        tokio::time::sleep_until(self.origin + (at - Instant::ZERO).into())
    }
}

impl<F: Future<Output = ()> + 'static> Spawn<F> for LocalHost {
    fn spawn(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

impl Host for LocalHost {
    type Lock = LocalLock;
}

/// Makes one call through a gate, then runs a pipeline of 20 rows.
async fn run(host: LocalHost) -> Result<RunReport, Box<dyn Error>> {
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

/// Runs `future` and everything that it spawns on this thread.
fn block_on<F: Future>(future: impl FnOnce(LocalHost) -> F) -> std::io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let host = LocalHost { origin: tokio::time::Instant::now() };
    Ok(LocalSet::new().block_on(&runtime, future(host)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let report = block_on(run)??;
    println!("{} rows in {}", report.rows_out, report.ended);
    assert_eq!(report.rows_out, 20);
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate_core::runtime::{check_host, check_spawn};

    use super::*;

    #[test]
    fn the_example_runs() {
        main().expect("the settings are valid");
    }

    #[test]
    fn the_host_keeps_the_rules() {
        assert_eq!(block_on(check_host).expect("a runtime"), Ok(()));
        assert_eq!(block_on(check_spawn).expect("a runtime"), Ok(()));
    }
}
