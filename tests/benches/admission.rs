//! What admission costs beside its peers, as ratios.
//!
//! `cargo bench -p tidegate-tests` runs every row; `cargo bench -p tidegate-tests -- hand-off` those whose name
//! contains "hand-off". Ours and the peer take turns, batch by batch in one process, so that whatever else the machine
//! does falls on both; the figures are medians over the batches. Nothing is asserted: a ratio above its target is marked.
//!
//! Without `--bench`, as in `cargo test --benches`, each row runs one small batch, which shows only that it works.

#[path = "common/measure.rs"]
mod measure;
#[path = "common/parked.rs"]
mod parked;

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use governor::{Quota, RateLimiter};
use measure::{Bench, Row};
use parked::Parked;
use tidegate_core::gate::Gate;
use tidegate_core::request::{Domain, Outcome, Request, RequestAdmission, RequestConfig};
use tidegate_core::time::{Duration as Span, Instant};
use tidegate_native::host::TokioHost;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::{coop::unconstrained, yield_now};
use tower_service::Service;

fn main() -> anyhow::Result<()> {
    let bench = Bench::from_args();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    bench.header();
    machine(&bench)?;
    uncontended(&bench, &runtime)?;
    hand_off(&bench, &runtime)?;
    few_slots(&bench, &runtime)?;
    threads(&bench, &runtime)
}

/// Runs a loop that never has to wait. Outside the cooperative budget: its forced yields would count against tokio's
/// semaphore alone, because the gate does not take part in it.
fn block_on(runtime: &Runtime, run: impl Future<Output = ()>) {
    runtime.block_on(unconstrained(run));
}

// ---- subjects ----

fn admission(cap: u32) -> anyhow::Result<(RequestAdmission, Request)> {
    let mut machine = RequestAdmission::new(RequestConfig::default())?;
    let model = machine.register(Instant::ZERO, "provider", "model", "default", cap)?;
    let request = Request::new(machine.resource(model, Domain::Chat).expect("a known model"));
    Ok((machine, request))
}

fn gate(runtime: &Runtime, cap: u32) -> anyhow::Result<(Gate<TokioHost>, Request)> {
    let (machine, request) = admission(cap)?;
    let _inside = runtime.enter();
    Ok((Gate::new(TokioHost::current()?, machine), request))
}

async fn through_gate(gate: &Gate<TokioHost>, request: Request) {
    let permit = gate.acquire(request).await.expect("the gate is not shut down");
    permit.finish(Outcome::Success);
}

async fn through_semaphore(semaphore: &Semaphore) {
    drop(semaphore.acquire().await.expect("the semaphore is not closed"));
}

// ---- rows ----

fn machine(bench: &Bench) -> anyhow::Result<()> {
    let (mut machine, request) = admission(32)?;
    let mut now = Instant::ZERO;
    let semaphore = Semaphore::new(32);
    bench.compare(
        &Row { name: "machine: try_acquire + release", peer: "tokio Semaphore try_acquire + drop", target: Some(1.5) },
        |ops| {
            for _ in 0..ops {
                now += Span::from_nanos(1);
                let lease = machine.try_acquire(now, black_box(&request)).expect("there is room");
                let _ = black_box(machine.release(now, lease, &Outcome::Success.into()));
            }
        },
        |ops| {
            for _ in 0..ops {
                drop(black_box(&semaphore).try_acquire().expect("there is room"));
            }
        },
    );
    Ok(())
}

fn uncontended(bench: &Bench, runtime: &Runtime) -> anyhow::Result<()> {
    let (gate, request) = gate(runtime, 32)?;
    let mut ours = |ops| {
        block_on(runtime, async {
            for _ in 0..ops {
                through_gate(black_box(&gate), request).await;
            }
        });
    };
    let name = "gate: acquire().await + finish";

    let semaphore = Arc::new(Semaphore::new(32));
    let peer = "tokio Semaphore acquire().await";
    bench.compare(&Row { name, peer, target: Some(2.0) }, &mut ours, |ops| {
        block_on(runtime, async {
            for _ in 0..ops {
                through_semaphore(black_box(&semaphore)).await;
            }
        });
    });

    let owned = "gate: acquire_owned().await + finish";
    let peer = "tokio Semaphore acquire_owned()";
    bench.compare(
        &Row { name: owned, peer, target: None },
        |ops| {
            block_on(runtime, async {
                for _ in 0..ops {
                    let permit = black_box(&gate).acquire_owned(request).await.expect("the gate is not shut down");
                    permit.finish(Outcome::Success);
                }
            });
        },
        |ops| {
            block_on(runtime, async {
                for _ in 0..ops {
                    let semaphore = Arc::clone(black_box(&semaphore));
                    drop(semaphore.acquire_owned().await.expect("the semaphore is not closed"));
                }
            });
        },
    );

    let adaptive =
        throttle_net::AdaptiveLimiter::builder().initial(32).ceiling(32).build(throttle_net::Aimd::default());
    let peer = "throttle-net AdaptiveLimiter";
    bench.compare(&Row { name, peer, target: Some(1.0) }, &mut ours, |ops| {
        block_on(runtime, async {
            for _ in 0..ops {
                black_box(&adaptive).acquire().await.success();
            }
        });
    });

    let limit = tower_acc::Aimd::builder().initial_limit(32).max_limit(32).build();
    let mut service = tower_acc::ConcurrencyLimit::new(Immediate, limit);
    let peer = "tower-acc ConcurrencyLimit (AIMD)";
    bench.compare(&Row { name, peer, target: Some(0.7) }, &mut ours, |ops| {
        block_on(runtime, async {
            for _ in 0..ops {
                let is_ready = std::future::poll_fn(|context| service.poll_ready(context)).await;
                let Ok(()) = is_ready;
                let Ok(()) = service.call(()).await;
            }
        });
    });

    let quota = Quota::per_second(NonZeroU32::new(1_000_000_000).context("a billion is not zero")?);
    let rate = RateLimiter::direct(quota);
    let peer = "governor check (rate, not in-flight)";
    bench.compare(&Row { name, peer, target: None }, &mut ours, |ops| {
        for _ in 0..ops {
            let _ = black_box(black_box(&rate).check());
        }
    });
    Ok(())
}

/// A service whose answer is there at once.
struct Immediate;

impl Service<()> for Immediate {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Ok(()))
    }
}

fn hand_off(bench: &Bench, runtime: &Runtime) -> anyhow::Result<()> {
    const WAITERS: usize = 1_000;
    let peer = "tokio Semaphore";
    let target = Some(1.2);

    let (gate, request) = gate(runtime, 1)?;
    let semaphore = Semaphore::new(1);
    let mut ours = Parked::new(WAITERS, || gate.acquire(request));
    let mut theirs = Parked::new(WAITERS, || semaphore.acquire());
    bench.compare(
        &Row { name: "hand-off to one of 1000 parked, polled by hand", peer, target },
        |ops| ours.pass_on(ops, |permit| permit.expect("the gate is not shut down").finish(Outcome::Success)),
        |ops| theirs.pass_on(ops, drop),
    );
    as_tasks(bench, runtime, &Row { name: "hand-off to one of 1000 parked, as tasks", peer, target }, WAITERS as u64, 1)
}

fn few_slots(bench: &Bench, runtime: &Runtime) -> anyhow::Result<()> {
    let peer = "tokio Semaphore";
    as_tasks(bench, runtime, &Row { name: "64 tasks on 1 slot", peer, target: None }, 64, 1)?;
    as_tasks(bench, runtime, &Row { name: "64 tasks on 4 slots", peer, target: None }, 64, 4)?;
    as_tasks(bench, runtime, &Row { name: "64 tasks on 8 slots", peer, target: None }, 64, 8)
}

/// Tasks of one thread that each take a slot, yield once while they hold it, and give it back. The turn of the
/// executor is part of both figures.
fn as_tasks(bench: &Bench, runtime: &Runtime, row: &Row, tasks: u64, slots: u32) -> anyhow::Result<()> {
    let (gate, request) = gate(runtime, slots)?;
    let semaphore = Arc::new(Semaphore::new(slots as usize));
    bench.compare(
        row,
        |ops| {
            spawn_all(runtime, tasks, || {
                let gate = gate.clone();
                async move {
                    for _ in 0..ops / tasks {
                        let permit = gate.acquire(request).await.expect("the gate is not shut down");
                        yield_now().await;
                        permit.finish(Outcome::Success);
                    }
                }
            });
        },
        |ops| {
            spawn_all(runtime, tasks, || {
                let semaphore = Arc::clone(&semaphore);
                async move {
                    for _ in 0..ops / tasks {
                        let permit = semaphore.acquire().await.expect("the semaphore is not closed");
                        yield_now().await;
                        drop(permit);
                    }
                }
            });
        },
    );
    Ok(())
}

fn spawn_all<F: Future<Output = ()> + Send + 'static>(runtime: &Runtime, tasks: u64, task: impl Fn() -> F) {
    let spawned: Vec<_> = (0..tasks).map(|_| runtime.spawn(task())).collect();
    runtime.block_on(async {
        for task in spawned {
            task.await.expect("no task of the bench panics");
        }
    });
}

/// Threads that take a slot, hold it for no time, and give it back.
///
/// With fewer slots than threads the figure depends on whether a queue ever forms. Whoever waits is served in order, so
/// once threads queue each operation hands a slot to a thread that sleeps: one switch of threads for each, some
/// microseconds, until the first thread is done. That is the price of never overtaking, and tokio's semaphore, fair as
/// well, pays it too. A queue forms when a thread loses its processor while it holds a slot; the longer an operation the
/// likelier, so of two short loops one may be spared by luck. In the last row every thread pauses once with a slot.
fn threads(bench: &Bench, runtime: &Runtime) -> anyhow::Result<()> {
    const THREADS: u64 = 8;
    const NEVER: Duration = Duration::ZERO;
    const ONCE: Duration = Duration::from_micros(300);
    let rows = [
        ("8 threads on 8 slots", 8, NEVER),
        ("8 threads on 2 slots", 2, NEVER),
        ("8 threads on 2 slots, queueing", 2, ONCE),
    ];
    for (name, slots, pause) in rows {
        let (gate, request) = gate(runtime, slots)?;
        let semaphore = Semaphore::new(slots as usize);
        let share = |ops| ops / THREADS;
        bench.compare(
            &Row { name, peer: "tokio Semaphore", target: None },
            |ops| {
                on_threads(THREADS, || {
                    block_on(runtime, async {
                        let permit = gate.acquire(request).await.expect("the gate is not shut down");
                        pause_for(pause);
                        permit.finish(Outcome::Success);
                        for _ in 1..share(ops) {
                            through_gate(&gate, request).await;
                        }
                    });
                });
            },
            |ops| {
                on_threads(THREADS, || {
                    block_on(runtime, async {
                        let permit = semaphore.acquire().await.expect("the semaphore is not closed");
                        pause_for(pause);
                        drop(permit);
                        for _ in 1..share(ops) {
                            through_semaphore(&semaphore).await;
                        }
                    });
                });
            },
        );
    }
    Ok(())
}

fn pause_for(pause: Duration) {
    if !pause.is_zero() {
        std::thread::sleep(pause);
    }
}

fn on_threads(threads: u64, run: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(&run);
        }
    });
}
