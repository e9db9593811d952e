//! A host on smol: its timers, its global executor, and the mutex of `parking_lot`.

mod shared;

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;

use tidegate_core::driver;
use tidegate_core::gate::Gate;
use tidegate_core::pipeline::{RunReport, Task};
use tidegate_core::request::Request;
use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::time::{Clock, Instant};

use shared::Tasks;

#[derive(Clone)]
struct SmolHost(std::time::Instant);

impl Clock for SmolHost {
    fn now(&self) -> Instant {
        Instant::ZERO + self.0.elapsed().into()
    }
}

impl Timer for SmolHost {
    type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn sleep_until(&self, at: Instant) -> Self::Sleep {
        let timer = smol::Timer::at(self.0 + (at - Instant::ZERO).into());
        Box::pin(async {
            timer.await;
        })
    }
}

impl<F: Future<Output = ()> + Send + 'static> Spawn<F> for SmolHost {
    fn spawn(&self, future: F) {
        // Dropping a smol task cancels it.
        smol::spawn(future).detach();
    }
}

impl Host for SmolHost {
    type Lock = parking_lot::RawMutex;
}

/// Makes one call through a gate, then runs a pipeline of 20 rows.
async fn run(host: SmolHost) -> Result<RunReport, Box<dyn Error>> {
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
    let report = smol::block_on(run(SmolHost(std::time::Instant::now())))?;
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
        let host = SmolHost(std::time::Instant::now());
        smol::block_on(async {
            assert_eq!(check_host(host.clone()).await, Ok(()));
            assert_eq!(check_spawn(host.clone()).await, Ok(()));
            assert_eq!(check_threads(host).await, Ok(()));
        });
    }
}
