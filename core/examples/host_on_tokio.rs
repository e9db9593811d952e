//! A host on tokio with several threads: its clock, its timer, its tasks, and the mutex of `parking_lot`.
//!
//! The host keeps a handle to the runtime, because permits may be dropped and timers armed on any thread.
//! `tidegate-native` provides the same host.

mod shared;

use std::error::Error;
use std::sync::Arc;

use tidegate_core::driver;
use tidegate_core::gate::Gate;
use tidegate_core::pipeline::{RunReport, Task};
use tidegate_core::request::Request;
use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::time::{Clock, Instant};
use tokio::runtime::{Handle, Runtime};

use shared::Tasks;

#[derive(Clone)]
struct TokioHost {
    runtime: Handle,
    origin: tokio::time::Instant,
}

impl Clock for TokioHost {
    fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed().into()
    }
}

impl Timer for TokioHost {
    type Sleep = tokio::time::Sleep;

    fn sleep_until(&self, at: Instant) -> Self::Sleep {
        let _inside = self.runtime.enter();
        tokio::time::sleep_until(self.origin + (at - Instant::ZERO).into())
    }
}

impl<F: Future<Output = ()> + Send + 'static> Spawn<F> for TokioHost {
    fn spawn(&self, future: F) {
        self.runtime.spawn(future);
    }
}

impl Host for TokioHost {
    type Lock = parking_lot::RawMutex;
}

/// Makes one call through a gate, then runs a pipeline of 20 rows.
async fn run(host: TokioHost) -> Result<RunReport, Box<dyn Error>> {
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

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::new()?;
    let host = TokioHost { runtime: runtime.handle().clone(), origin: tokio::time::Instant::now() };
    let report = runtime.block_on(run(host))?;
    println!("{} rows in {}", report.rows_out, report.ended);
    assert_eq!(report.rows_out, 20);
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate_core::runtime::{check_host, check_spawn, check_threads, watch_shutdown};

    use super::*;

    #[test]
    fn the_example_runs() {
        main().expect("the settings are valid");
    }

    #[test]
    fn the_host_keeps_the_rules() {
        let runtime = Runtime::new().expect("threads can be started");
        let host = TokioHost { runtime: runtime.handle().clone(), origin: tokio::time::Instant::now() };
        runtime.block_on(async {
            assert_eq!(check_host(host.clone()).await, Ok(()));
            assert_eq!(check_spawn(host.clone()).await, Ok(()));
            assert_eq!(check_threads(host.clone()).await, Ok(()));
        });
        let watch = watch_shutdown(&host).expect("nothing panics");
        drop(runtime);
        assert_eq!(watch.check(), Ok(()));
    }
}
