//! A host whose every step is a choice of the shuttle scheduler: lock, clock, timer and spawner.
//!
//! The scheduler may switch threads whenever the gate's lock is taken, whenever the clock is read or
//! set, and before a waker does its work.
//! The host's own books are under a lock of the standard library, which is never held across such a point.

mod explore;
mod scene;

pub(crate) use explore::{exhaust, in_order, sample};
pub(crate) use scene::{Scene, Waiter, ms, rate_limited};

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use lock_api::{GuardNoSend, RawMutex};
use shuttle::future::{AbortHandle, JoinHandle};
use shuttle::sync::atomic::{AtomicBool as ScheduledBool, AtomicU64};
use tidegate_core::runtime::{Host, Spawn, Timer};
use tidegate_core::time::{Clock, Duration, Instant};

/// A lock at which the scheduler decides who goes on before it is taken, and at no other time.
///
/// The gate runs no foreign code under its lock, so nobody ever finds it taken, and what happens under it is one step to
/// all others: to stop before the lock is opened leads nowhere that to stop before it was taken does not. After it is
/// opened each next step that others can see, a wake above all, is a choice of its own. Were any code of the host's run
/// under the lock after all, another thread would find it taken, and panic.
pub(crate) struct ScheduledLock {
    choice: ScheduledBool,
    held: AtomicBool,
}

// SAFETY: `try_lock` makes a guard only if it turned `held` from false to true, `lock` is `try_lock` or a panic, and only
// `unlock` turns it back, with the orderings of a lock.
#[allow(unsafe_code)]
unsafe impl RawMutex for ScheduledLock {
    #[allow(clippy::declare_interior_mutable_const)] // The trait asks for a constant initial value.
    const INIT: Self = Self { choice: ScheduledBool::new(false), held: AtomicBool::new(false) };
    type Guard = GuardNoSend;

    fn lock(&self) -> GuardNoSend {
        self.try_lock().expect("a thread was stopped while it held the lock: foreign code ran under it")
    }

    fn try_lock(&self) -> Option<GuardNoSend> {
        choose(&self.choice);
        (!self.held.swap(true, Ordering::Acquire)).then_some(GuardNoSend::new())
    }

    unsafe fn unlock(&self, _guard: GuardNoSend) {
        self.held.store(false, Ordering::Release);
    }

    fn is_locked(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }
}

/// Lets the scheduler decide who goes on. The value means nothing: shuttle may switch threads before it is read.
pub(crate) fn choose(at: &ScheduledBool) {
    let _ = at.load(Ordering::SeqCst);
}

/// Clones are the same host. Its clock moves when [`ShuttleHost::advance`] is called, and in no other way.
#[derive(Clone)]
pub(crate) struct ShuttleHost(Arc<Core>);

struct Core {
    now_ns: AtomicU64,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    /// Wakers of pending sleeps, by their end and their number.
    sleepers: BTreeMap<(Instant, u64), Waker>,
    next_sleep: u64,
    /// The task that was spawned last: a gate spawns one.
    task: Option<JoinHandle<()>>,
    /// That task has not been woken since it was last polled.
    is_idle: bool,
    /// It was woken during the poll that goes on.
    is_woken: bool,
    awaits_idle: Option<Waker>,
}

impl ShuttleHost {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Core { now_ns: AtomicU64::new(0), books: Mutex::default() }))
    }

    /// Moves the clock and wakes who slept until then, soonest first.
    pub(crate) fn advance(&self, span: Duration) {
        let now_ns = self.0.now_ns.fetch_add(span.as_nanos(), Ordering::SeqCst) + span.as_nanos();
        let due = {
            let mut books = self.books();
            let later = books.sleepers.split_off(&(Instant::from_nanos(now_ns), u64::MAX));
            std::mem::replace(&mut books.sleepers, later)
        };
        due.into_values().for_each(Waker::wake);
    }

    /// Waits until the spawned task has nothing to do, in one order only. To be called when the other threads are done or
    /// not yet there: then only that task can run, and there is nothing to choose.
    pub(crate) fn settle(&self) {
        let is_idle = poll_fn(|context| {
            let mut books = self.books();
            if books.is_idle {
                return Poll::Ready(());
            }
            books.awaits_idle = Some(context.waker().clone());
            Poll::Pending
        });
        in_order(|| shuttle::future::block_on(is_idle));
    }

    /// Ends the spawned task at its next turn, as a runtime does that shuts down.
    pub(crate) fn task_aborter(&self) -> AbortHandle {
        self.books().task.as_ref().expect("a gate has spawned its timer").abort_handle()
    }

    /// Waits until the spawned task has ended or was dropped, and says how many sleeps were left behind.
    pub(crate) fn join_task(&self) -> usize {
        let task = self.books().task.take().expect("a gate has spawned its timer");
        let _aborted_or_ended = shuttle::future::block_on(task);
        self.books().sleepers.len()
    }

    fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.0.books.lock().expect("nothing panics while it holds the books")
    }
}

impl Clock for ShuttleHost {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.now_ns.load(Ordering::SeqCst))
    }
}

impl Timer for ShuttleHost {
    type Sleep = Sleep;

    fn sleep_until(&self, at: Instant) -> Sleep {
        let mut books = self.books();
        let key = (at, books.next_sleep);
        books.next_sleep += 1;
        drop(books);
        Sleep { host: self.clone(), key }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Spawn<F> for ShuttleHost {
    fn spawn(&self, future: F) {
        let task = shuttle::future::spawn(Watched { host: self.clone(), future: Box::pin(future) });
        self.books().task = Some(task);
    }
}

impl Host for ShuttleHost {
    type Lock = ScheduledLock;
}

pub(crate) struct Sleep {
    host: ShuttleHost,
    key: (Instant, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Registered before the clock is read: whoever moves the clock in between finds the waker.
        self.host.books().sleepers.insert(self.key, context.waker().clone());
        if self.host.now() < self.key.0 {
            return Poll::Pending;
        }
        self.host.books().sleepers.remove(&self.key);
        Poll::Ready(())
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.host.books().sleepers.remove(&self.key);
    }
}

/// Tells the host when `future` has nothing to do.
struct Watched<F> {
    host: ShuttleHost,
    future: Pin<Box<F>>,
}

impl<F: Future<Output = ()>> Future for Watched<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Until the end of the poll whoever wakes the task takes this back.
        self.host.books().is_woken = false;
        let due = Waker::from(Arc::new(Due {
            host: self.host.clone(),
            task: context.waker().clone(),
            choice: ScheduledBool::new(false),
        }));
        let polled = self.future.as_mut().poll(&mut Context::from_waker(&due));
        let mut books = self.host.books();
        books.is_idle = polled.is_ready() || !books.is_woken;
        let awaits_idle = if books.is_idle { books.awaits_idle.take() } else { None };
        drop(books);
        awaits_idle.into_iter().for_each(Waker::wake);
        polled
    }
}

impl<F> Drop for Watched<F> {
    fn drop(&mut self) {
        let mut books = self.host.books();
        books.is_idle = true;
        let awaits_idle = books.awaits_idle.take();
        drop(books);
        awaits_idle.into_iter().for_each(Waker::wake);
    }
}

/// Wakes the task and keeps in mind that it was woken.
struct Due {
    host: ShuttleHost,
    task: Waker,
    choice: ScheduledBool,
}

impl Wake for Due {
    fn wake(self: Arc<Self>) {
        choose(&self.choice);
        let mut books = self.host.books();
        (books.is_woken, books.is_idle) = (true, false);
        drop(books);
        self.task.wake_by_ref();
    }
}
