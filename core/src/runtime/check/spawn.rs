//! Checks of a spawner.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker, ready};

use lock_api::Mutex;

use super::limit::watchdog;
use super::{Check, HostError, HostRule, panic_is_error};
use crate::runtime::{Host, Spawn};
use crate::time::Duration;

/// The number of spawned futures. Each ends only after all have begun.
const PROBES: usize = 3;

/// Checks how `host` spawns: a spawned future runs to its end concurrently with others, and is not dropped
/// before its end.
///
/// The spawned futures are `Send` exactly if those of the drivers are. Limits and panics are handled as in
/// [`check_host`](super::check_host). That check should pass first, because the futures sleep for a
/// millisecond.
pub async fn check_spawn<H: Host + Spawn<SpawnProbe<H>>>(host: H) -> Result<(), HostError> {
    check_spawn_within(host, watchdog()).await
}

/// Runs [`check_spawn`] with a time limit of the caller: the check fails once `limit` is ready.
pub async fn check_spawn_within<H: Host + Spawn<SpawnProbe<H>>>(
    host: H,
    limit: impl Future<Output = ()>,
) -> Result<(), HostError> {
    let step = "three futures are spawned, which wait for each other and sleep for 1ms";
    let shared = Arc::new(Mutex::new(Counts::default()));
    for _ in 0..PROBES {
        // This clone is dropped before the future runs, as that of a gate may be.
        let spawner = host.clone();
        let probe = SpawnProbe::new(host.clone(), Arc::clone(&shared));
        panic_is_error(step, move || spawner.spawn(probe))?;
    }
    let mut check = Check { host, limit: pin!(limit) };
    let ended = check.wait(step, HostRule::SpawnedFutureRuns, |context| {
        let waker = context.waker().clone();
        let (counts, replaced) = {
            let mut counts = shared.lock();
            let replaced = counts.check.replace(waker);
            ((counts.polls, counts.ended, counts.lost), replaced)
        };
        drop(replaced);
        match counts {
            (polls, _, Some(polls_of_lost)) => {
                let found = format!("one was dropped after {polls_of_lost} polls, {polls} polls in all");
                Err(HostError::new(HostRule::SpawnedFutureIsKept, step, found, "all three run to their end"))
            }
            (_, PROBES, None) => Ok(Poll::Ready(())),
            _ => Ok(Poll::Pending),
        }
    });
    ended.await.map_err(|error| {
        let counts = shared.lock();
        let (polls, begun, ended) = (counts.polls, counts.begun, counts.ended);
        if error.rule != HostRule::SpawnedFutureRuns {
            return error;
        }
        let found = format!("{begun} had begun and {ended} had ended, {polls} polls in all, when the limit was over");
        HostError::new(HostRule::SpawnedFutureRuns, step, found, "all three run to their end")
    })
}

/// A future that [`check_spawn`] spawns. It is `Send` exactly if the futures of the drivers are.
pub struct SpawnProbe<H: Host> {
    host: H,
    shared: Arc<Mutex<H::Lock, Counts>>,
    polls: usize,
    sleep: Option<Pin<Box<H::Sleep>>>,
    is_over: bool,
}

/// The counters that the probes share.
#[derive(Default)]
struct Counts {
    polls: usize,
    begun: usize,
    ended: usize,
    /// The number of polls of a probe that was dropped before its end.
    lost: Option<usize>,
    /// The waker of the check.
    check: Option<Waker>,
    /// The wakers of the probes that wait for others to begin.
    waiting: Vec<Waker>,
}

impl<H: Host> SpawnProbe<H> {
    fn new(host: H, shared: Arc<Mutex<H::Lock, Counts>>) -> Self {
        Self { host, shared, polls: 0, sleep: None, is_over: false }
    }

    /// Counts a poll. Returns whether all probes have begun. The last one to begin wakes the others.
    fn begin(&mut self, waker: &Waker) -> bool {
        let waker = waker.clone();
        let mut counts = self.shared.lock();
        self.polls += 1;
        counts.polls += 1;
        counts.begun += usize::from(self.polls == 1);
        if counts.begun < PROBES {
            counts.waiting.push(waker);
            return false;
        }
        let waiting = core::mem::take(&mut counts.waiting);
        drop(counts);
        waiting.into_iter().for_each(Waker::wake);
        true
    }

    fn report(&mut self, report: impl FnOnce(&mut Counts)) {
        self.is_over = true;
        let mut counts = self.shared.lock();
        report(&mut counts);
        let check = counts.check.take();
        drop(counts);
        check.into_iter().for_each(Waker::wake);
    }
}

// Nothing is pinned in place, because the sleep is in a box.
impl<H: Host> Unpin for SpawnProbe<H> {}

impl<H: Host> Future for SpawnProbe<H> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if !this.begin(context.waker()) {
            return Poll::Pending;
        }
        let host = &this.host;
        let sleep = this.sleep.get_or_insert_with(|| Box::pin(host.sleep_until(host.now() + Duration::from_millis(1))));
        ready!(sleep.as_mut().poll(context));
        this.report(|counts| counts.ended += 1);
        Poll::Ready(())
    }
}

impl<H: Host> Drop for SpawnProbe<H> {
    fn drop(&mut self) {
        if !self.is_over {
            let polls = self.polls;
            self.report(|counts| counts.lost = Some(polls));
        }
    }
}

impl<H: Host> fmt::Debug for SpawnProbe<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnProbe").field("polls", &self.polls).finish_non_exhaustive()
    }
}
