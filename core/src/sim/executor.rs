//! A single-threaded executor in virtual time, to test code that runs over a [`Host`].
//!
//! Ready tasks run in the order in which they were woken. When none is ready, the clock jumps to the end of
//! the next sleep. An hour of waiting therefore takes no time, no sleep ends late, and equal programs run
//! equally. A future that can never end is reported instead of blocking: [`Executor::block_on`] returns
//! [`Stalled`].
//!
//! ```
//! use tidegate_core::runtime::{Spawn, Timer};
//! use tidegate_core::sim::executor::Executor;
//! use tidegate_core::time::{Clock, Duration, Instant};
//!
//! let executor = Executor::new();
//! let host = executor.host();
//! let an_hour = Instant::ZERO + Duration::from_secs(3_600);
//! let sleep = host.sleep_until(an_hour);
//! assert_eq!(executor.block_on(sleep), Ok(()));
//! assert_eq!(host.now(), an_hour);
//! ```

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::OccupiedEntry;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};

use crossbeam_queue::SegQueue;
use tidegate_local_lock::LocalLock;

use crate::id::{SlotKey, Slots};
use crate::runtime::{Host, Spawn, Timer};
use crate::time::{Clock, Duration, Instant};

/// A single-threaded executor, which owns the tasks and the clock. Dropping it drops its tasks, as a runtime
/// does on shutdown.
pub struct Executor {
    core: Rc<Core>,
}

/// The host that an executor provides to its tasks: a clock, a timer and a spawner. Clones are the same
/// host.
pub struct SimHost {
    core: Rc<Core>,
}

/// The error of an executor that has neither a ready task nor an armed timer: the awaited future can never
/// end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stalled at {at}: nothing is ready, no timer is armed, and {tasks} tasks wait")]
pub struct Stalled {
    /// The time of the stall.
    pub at: Instant,
    /// The number of spawned tasks that have not ended.
    pub tasks: usize,
}

/// The state that an executor shares with its hosts.
struct Core {
    now: Cell<Instant>,
    suspended: Cell<Duration>,
    /// The spawned tasks. The slot of a task is empty while the task is polled.
    tasks: RefCell<Slots<Option<Task>>>,
    /// The tasks to poll, oldest wake first. Each task is in it at most once. Wakers push to it from any
    /// thread.
    ready: Arc<SegQueue<Runnable>>,
    timers: RefCell<Timers>,
    /// Whether the executor is being dropped. Nothing is spawned from then on.
    is_closed: Cell<bool>,
}

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Arc<TaskWaker>,
}

/// A future that can be polled.
#[derive(Clone, Copy)]
enum Runnable {
    Task(SlotKey),
    /// The future that `block_on` awaits.
    Awaited,
}

struct TaskWaker {
    /// What a wake-up makes ready.
    wakes: Runnable,
    /// Whether it is in the queue of ready tasks already.
    queued: AtomicBool,
    ready: Arc<SegQueue<Runnable>>,
}

/// The wakers of sleeps, ordered by the end of the sleep, then by its first poll.
#[derive(Default)]
struct Timers {
    armed: BTreeMap<(Instant, u64), Waker>,
    next_sequence: u64,
}

impl Executor {
    /// Creates an executor with the clock at [`Instant::ZERO`].
    #[must_use]
    pub fn new() -> Self {
        Self {
            core: Rc::new(Core {
                now: Cell::new(Instant::ZERO),
                suspended: Cell::new(Duration::ZERO),
                tasks: RefCell::new(Slots::default()),
                ready: Arc::default(),
                timers: RefCell::new(Timers::default()),
                is_closed: Cell::new(false),
            }),
        }
    }

    /// Returns the host to pass to a gate or a run.
    #[must_use]
    pub fn host(&self) -> SimHost {
        SimHost { core: Rc::clone(&self.core) }
    }

    /// Runs `future` to its end, together with all spawned tasks.
    ///
    /// # Errors
    /// Fails with [`Stalled`] if the future has not ended, nothing is ready, and no timer is armed.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Stalled> {
        let mut future = core::pin::pin!(future);
        let waker = TaskWaker::new(Runnable::Awaited, Arc::clone(&self.core.ready));
        waker.wake_by_ref();
        loop {
            match self.core.ready.pop() {
                Some(Runnable::Task(task)) => self.core.poll_task(task),
                Some(Runnable::Awaited) => {
                    waker.queued.store(false, Ordering::Release);
                    let waker = Waker::from(Arc::clone(&waker));
                    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                        return Ok(output);
                    }
                }
                None if self.core.jump(Instant::MAX) => {}
                None => return Err(Stalled { at: self.core.now.get(), tasks: self.tasks() }),
            }
        }
    }

    /// Runs everything that is due up to and including the instant `at`, and moves the clock there. An
    /// instant in the past leaves the clock as it is.
    pub fn run_until(&self, at: Instant) {
        self.run_while_due(at);
        self.core.now.set(self.core.now.get().max(at));
    }

    /// Runs everything that is ready now, without moving the clock.
    pub fn run_ready(&self) {
        while let Some(next) = self.core.ready.pop() {
            // A wake-up of a `block_on` that has returned has no effect.
            if let Runnable::Task(task) = next {
                self.core.poll_task(task);
            }
        }
    }

    /// Runs until nothing is ready and no timer is armed. Never returns for a program that keeps starting
    /// sleeps.
    pub fn run(&self) {
        self.run_while_due(Instant::MAX);
    }

    fn run_while_due(&self, limit: Instant) {
        self.run_ready();
        while self.core.jump(limit) {
            self.run_ready();
        }
    }

    /// Returns the number of spawned tasks that have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.core.tasks.borrow().len()
    }

    /// Returns the number of armed timers: sleeps that were polled and have not ended.
    #[must_use]
    pub fn armed_timers(&self) -> usize {
        self.core.timers.borrow().armed.len()
    }
}

impl Default for Executor {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Tasks hold the host, which holds the tasks. A dropped task may spawn another one, which is ignored
        // from here on.
        self.core.is_closed.set(true);
        let keys: Vec<SlotKey> = self.core.tasks.borrow().iter().map(|(key, _)| key).collect();
        for key in keys {
            let task = self.core.tasks.borrow_mut().remove(key);
            drop(task);
        }
    }
}

impl Core {
    fn poll_task(&self, key: SlotKey) {
        // The task is out of its slot while it is polled, because it may spawn. A panic drops it, as runtimes
        // do.
        let task = self.tasks.borrow_mut().get_mut(key).and_then(Option::take);
        let Some(mut task) = task else { return };
        task.waker.queued.store(false, Ordering::Release);
        let vacant = Vacant { core: self, key: Some(key) };
        let waker = Waker::from(Arc::clone(&task.waker));
        if task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            vacant.put_back(task);
        }
    }

    /// Moves the clock to the end of the next sleep, if that is at most `limit`, and wakes all sleeps that
    /// end then. Returns `false` if there is none.
    fn jump(&self, limit: Instant) -> bool {
        let Some(at) = self.timers.borrow().next().filter(|at| *at <= limit) else { return false };
        self.now.set(self.now.get().max(at));
        loop {
            let waker = self.timers.borrow_mut().take_due(self.now.get());
            let Some(waker) = waker else { return true };
            waker.wake();
        }
    }
}

/// The empty slot of a task that is being polled. Dropping it frees the slot.
struct Vacant<'a> {
    core: &'a Core,
    key: Option<SlotKey>,
}

impl Vacant<'_> {
    fn put_back(mut self, task: Task) {
        let Some(key) = self.key.take() else { return };
        // Only this guard frees the slot while the task is polled. A closing executor has removed it; the
        // task is then dropped.
        if let Some(slot) = self.core.tasks.borrow_mut().get_mut(key) {
            *slot = Some(task);
        }
    }
}

impl Drop for Vacant<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.core.tasks.borrow_mut().remove(key);
        }
    }
}

impl TaskWaker {
    fn new(wakes: Runnable, ready: Arc<SegQueue<Runnable>>) -> Arc<Self> {
        Arc::new(Self { wakes, queued: AtomicBool::new(false), ready })
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.push(self.wakes);
        }
    }
}

impl Timers {
    fn next(&self) -> Option<Instant> {
        self.armed.first_key_value().map(|((at, _), _)| *at)
    }

    fn take_due(&mut self, now: Instant) -> Option<Waker> {
        self.armed.first_entry().filter(|first| first.key().0 <= now).map(OccupiedEntry::remove)
    }
}

impl Clone for SimHost {
    fn clone(&self) -> Self {
        Self { core: Rc::clone(&self.core) }
    }
}

impl SimHost {
    /// Suspends the machine for `span`. Virtual time does not count it, as the clocks of most hosts do not.
    pub fn suspend(&self, span: Duration) {
        self.core.suspended.set(self.core.suspended.get() + span);
    }
}

impl Clock for SimHost {
    fn now(&self) -> Instant {
        self.core.now.get()
    }

    fn suspended(&self) -> Duration {
        self.core.suspended.get()
    }
}

impl Timer for SimHost {
    type Sleep = Sleep;

    fn sleep_until(&self, at: Instant) -> Sleep {
        Sleep { host: self.clone(), at, sequence: None }
    }
}

impl<F: Future<Output = ()> + 'static> Spawn<F> for SimHost {
    fn spawn(&self, future: F) {
        if self.core.is_closed.get() {
            return;
        }
        let key = self.core.tasks.borrow_mut().insert(None);
        let waker = TaskWaker::new(Runnable::Task(key), Arc::clone(&self.core.ready));
        let task = Task { future: Box::pin(future), waker: Arc::clone(&waker) };
        if let Some(slot) = self.core.tasks.borrow_mut().get_mut(key) {
            *slot = Some(task);
        }
        waker.wake();
    }
}

impl Host for SimHost {
    type Lock = LocalLock;
}

/// A sleep in virtual time. Its timer is armed from the first poll until it ends or is dropped.
#[must_use = "a sleep does nothing until it is polled"]
pub struct Sleep {
    host: SimHost,
    at: Instant,
    /// The number of its armed timer. `None` before the first poll.
    sequence: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.at <= self.host.now() {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let mut timers = self.host.core.timers.borrow_mut();
        let sequence = self.sequence.unwrap_or(timers.next_sequence);
        timers.next_sequence = timers.next_sequence.max(sequence + 1);
        let replaced = timers.armed.insert((self.at, sequence), waker);
        drop(timers);
        drop(replaced);
        self.sequence = Some(sequence);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(sequence) = self.sequence {
            let waker = self.host.core.timers.borrow_mut().armed.remove(&(self.at, sequence));
            drop(waker);
        }
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("now", &self.core.now.get())
            .field("tasks", &self.tasks())
            .field("armed_timers", &self.armed_timers())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SimHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimHost").field("now", &self.core.now.get()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("until", &self.at).finish_non_exhaustive()
    }
}
