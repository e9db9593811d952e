//! A single-threaded executor in virtual time, to test what runs over a [`Host`].
//!
//! Ready tasks run in the order in which they were woken. When none is ready the clock jumps to the next
//! instant somebody sleeps for, so an hour of waiting takes no time, no sleep is ever late, and equal
//! programs run equally. What never happens shows as an answer instead of a hang: [`Executor::block_on`]
//! returns [`Stalled`].
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
use crate::time::{Clock, Instant};

/// Owns the tasks and the clock. Dropping it drops its tasks, as a runtime does that shuts down.
pub struct Executor {
    core: Rc<Core>,
}

/// The executor as its tasks see it: a clock, a timer, a spawner. Clones are the same host.
pub struct SimHost {
    core: Rc<Core>,
}

/// Nothing is ready and nobody sleeps: the awaited future can never end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stalled at {at}: nothing is ready, no timer is armed, and {tasks} tasks wait")]
pub struct Stalled {
    /// When.
    pub at: Instant,
    /// Spawned tasks that have not ended.
    pub tasks: usize,
}

struct Core {
    now: Cell<Instant>,
    tasks: RefCell<Slots<Option<Task>>>,
    /// Tasks to poll, oldest wake first. A task is in it at most once. Wakers push to it from any thread.
    ready: Arc<SegQueue<Runnable>>,
    timers: RefCell<Timers>,
    closed: Cell<bool>,
}

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Arc<TaskWaker>,
}

/// What is polled.
#[derive(Clone, Copy)]
enum Runnable {
    Task(SlotKey),
    /// The future that `block_on` awaits.
    Awaited,
}

struct TaskWaker {
    wakes: Runnable,
    queued: AtomicBool,
    ready: Arc<SegQueue<Runnable>>,
}

/// Sleeps by their end, and in the order of their first poll where that is equal.
#[derive(Default)]
struct Timers {
    armed: BTreeMap<(Instant, u64), Waker>,
    next_sequence: u64,
}

impl Executor {
    /// An executor whose clock stands at [`Instant::ZERO`].
    #[must_use]
    pub fn new() -> Self {
        Self {
            core: Rc::new(Core {
                now: Cell::new(Instant::ZERO),
                tasks: RefCell::new(Slots::default()),
                ready: Arc::default(),
                timers: RefCell::new(Timers::default()),
                closed: Cell::new(false),
            }),
        }
    }

    /// The host to hand to a gate or a run.
    #[must_use]
    pub fn host(&self) -> SimHost {
        SimHost { core: Rc::clone(&self.core) }
    }

    /// Runs `future` to its end, and everything spawned along with it for as long.
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

    /// Runs everything up to and including the instant `at`, where the clock then stands.
    pub fn run_until(&self, at: Instant) {
        self.run_while_due(at);
        self.core.now.set(self.core.now.get().max(at));
    }

    /// Runs everything that is ready now, without moving the clock.
    pub fn run_ready(&self) {
        while let Some(next) = self.core.ready.pop() {
            // A wake of a `block_on` that has returned is nobody's.
            if let Runnable::Task(task) = next {
                self.core.poll_task(task);
            }
        }
    }

    /// Runs until nothing is ready and nobody sleeps. Never returns for a program that sleeps for ever anew.
    pub fn run(&self) {
        self.run_while_due(Instant::MAX);
    }

    fn run_while_due(&self, limit: Instant) {
        self.run_ready();
        while self.core.jump(limit) {
            self.run_ready();
        }
    }

    /// Spawned tasks that have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.core.tasks.borrow().len()
    }

    /// Sleeps that somebody waits for. Counts how many timers a program keeps.
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
        // Tasks hold the host, which holds the tasks. A task that is dropped may spawn another: refused from
        // here on.
        self.core.closed.set(true);
        let keys: Vec<SlotKey> = self.core.tasks.borrow().iter().map(|(key, _)| key).collect();
        for key in keys {
            let task = self.core.tasks.borrow_mut().remove(key);
            drop(task);
        }
    }
}

impl Core {
    fn poll_task(&self, key: SlotKey) {
        // Out of its slot while it runs: it may spawn. A panic drops it, as runtimes do.
        let taken = self.tasks.borrow_mut().get_mut(key).and_then(Option::take);
        let Some(mut task) = taken else { return };
        task.waker.queued.store(false, Ordering::Release);
        let vacant = Vacant { core: self, key: Some(key) };
        let waker = Waker::from(Arc::clone(&task.waker));
        if task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            vacant.keep(task);
        }
    }

    /// Moves the clock to the next instant up to `limit` that somebody sleeps for, and wakes all who do.
    /// False when there is none.
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

/// The slot of a task that is being polled. Gives the slot up unless the task comes back.
struct Vacant<'a> {
    core: &'a Core,
    key: Option<SlotKey>,
}

impl Vacant<'_> {
    fn keep(mut self, task: Task) {
        let Some(key) = self.key.take() else { return };
        // The slot is there: only this guard gives it up while the task is out. (A closing executor drops the
        // task.)
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

impl Clock for SimHost {
    fn now(&self) -> Instant {
        self.core.now.get()
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
        if self.core.closed.get() {
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

/// Ends when the clock reaches its instant. Its timer counts as armed from the first poll to the end or the
/// drop.
#[must_use = "a sleep does nothing until it is polled"]
pub struct Sleep {
    host: SimHost,
    at: Instant,
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
