//! A host on plain threads: each spawned future has its own thread, and one more thread serves the timers.

mod shared;

use std::collections::BTreeMap;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::task::{Context, Poll, Waker};
use std::thread;

use pollster::block_on;
use tidegate_core::driver;
use tidegate_core::gate::Gate;
use tidegate_core::pipeline::{RunReport, Task};
use tidegate_core::request::Request;
use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::time::{Clock, Duration, Instant};

use shared::Tasks;

#[derive(Clone)]
struct ThreadHost {
    origin: std::time::Instant,
    alarms: Sender<(Instant, Waker)>,
}

impl Clock for ThreadHost {
    fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed().into()
    }
}

impl Timer for ThreadHost {
    type Sleep = Sleep;

    fn sleep_until(&self, at: Instant) -> Sleep {
        Sleep { host: self.clone(), at }
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

impl ThreadHost {
    /// Starts the timer thread. It ends with the last clone of the host.
    fn start() -> Self {
        let (alarms, received) = mpsc::channel();
        let origin = std::time::Instant::now();
        thread::spawn(move || keep_alarms(origin, &received));
        Self { origin, alarms }
    }
}

/// Wakes each waker at its instant. Wakers that are no longer needed are kept until then.
fn keep_alarms(origin: std::time::Instant, alarms: &Receiver<(Instant, Waker)>) {
    let mut pending = BTreeMap::<Instant, Vec<Waker>>::new();
    loop {
        let now = Instant::ZERO + origin.elapsed().into();
        let later = pending.split_off(&(now + Duration::from_nanos(1)));
        std::mem::replace(&mut pending, later).into_values().flatten().for_each(Waker::wake);
        let next = pending.keys().next().copied().unwrap_or(Instant::MAX);
        match alarms.recv_timeout((next - now).into()) {
            Ok((at, waker)) => pending.entry(at).or_default().push(waker),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

struct Sleep {
    host: ThreadHost,
    at: Instant,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.at <= self.host.now() {
            return Poll::Ready(());
        }
        // Fails only if the timer thread panicked.
        self.host.alarms.send((self.at, context.waker().clone())).expect("the thread of the timers runs");
        Poll::Pending
    }
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
    let report = block_on(run(ThreadHost::start()))?;
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
        let host = ThreadHost::start();
        block_on(async {
            assert_eq!(check_host(host.clone()).await, Ok(()));
            assert_eq!(check_spawn(host.clone()).await, Ok(()));
            assert_eq!(check_threads(host).await, Ok(()));
        });
    }
}
