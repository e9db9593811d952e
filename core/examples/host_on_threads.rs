//! A host on plain threads: each spawned future has its own thread, and the timers of `futures-timer` have
//! one more.

mod shared;

use std::error::Error;
use std::sync::Arc;
use std::thread;

use futures_timer::Delay;
use pollster::block_on;
use tidegate_core::driver;
use tidegate_core::gate::Gate;
use tidegate_core::pipeline::{RunReport, Task};
use tidegate_core::request::Request;
use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::time::{Clock, Instant};

use shared::Tasks;

#[derive(Clone)]
struct ThreadHost(std::time::Instant);

impl Clock for ThreadHost {
    fn now(&self) -> Instant {
        Instant::ZERO + self.0.elapsed().into()
    }
}

impl Timer for ThreadHost {
    type Sleep = Delay;

    fn sleep_until(&self, at: Instant) -> Delay {
        Delay::new((at - self.now()).into())
    }
}

impl<F: Future<Output = ()> + Send + 'static> Spawn<F> for ThreadHost {
    fn spawn(&self, future: F) {
        thread::spawn(|| block_on(future));
    }
}

impl Host for ThreadHost {
    type Lock = parking_lot::RawMutex;
}

/// Makes one call through a gate, then runs a pipeline of 20 rows.
async fn run(host: ThreadHost) -> Result<RunReport, Box<dyn Error>> {
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
    let report = block_on(run(ThreadHost(std::time::Instant::now())))?;
    println!("{} rows in {}", report.rows_out, report.ended);
    assert_eq!(report.rows_out, 20);
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate_core::runtime::{check_host, check_spawn, check_threads};

    use super::*;

    #[test]
    fn the_example_runs() {
        main().expect("the settings are valid");
    }

    #[test]
    fn the_host_keeps_the_rules() {
        let host = ThreadHost(std::time::Instant::now());
        block_on(async {
            assert_eq!(check_host(host.clone()).await, Ok(()));
            assert_eq!(check_spawn(host.clone()).await, Ok(()));
            assert_eq!(check_threads(host).await, Ok(()));
        });
    }
}
