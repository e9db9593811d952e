//! The gate under every order of its threads, or thousands of them where there are too many.
//!
//! Each pair of cancel, grant, deadline, enqueue, release and shutdown that can meet is exhausted: it is run under all
//! schedules there are. With all of them at once there are too many: those are sampled. After every schedule no lease is
//! active, nobody waits, every permit came back once, and every acquire was answered; a wake-up that is lost shows as a
//! deadlock. How to replay a schedule that fails is told in `shuttle_host/explore.rs`.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use crate::shuttle_host::{Scene, Waiter, exhaust, in_order, ms, rate_limited, sample};
use shuttle::thread;
use tidegate_core::request::{Denial, DenialReason, Outcome};

/// How often each end of a race was seen, over all schedules.
#[derive(Clone, Default)]
struct Ends(Arc<[AtomicUsize; 3]>);

impl Ends {
    fn note<T>(&self, answer: &Result<T, Denial>) {
        let end = match answer {
            Ok(_) => 0,
            Err(Denial { reason: DenialReason::QueueTimeout, .. }) => 1,
            Err(Denial { reason: DenialReason::Shutdown, .. }) => 2,
            Err(denial) => panic!("nobody asked for {denial}"),
        };
        self.0[end].fetch_add(1, Ordering::Relaxed);
    }

    /// Which of granted, timed out and shut down were seen at all.
    fn seen(&self) -> [bool; 3] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed) > 0)
    }
}

fn spawn<R: Send + 'static>(scene: &Scene, role: impl FnOnce(Scene) -> R + Send + 'static) -> thread::JoinHandle<R> {
    let scene = scene.clone();
    thread::spawn(move || role(scene))
}

fn join<R>(thread: thread::JoinHandle<R>) -> R {
    thread.join().expect("a thread that panics fails the schedule")
}

#[test]
fn a_cancel_races_a_grant_and_the_slot_reaches_the_next_in_line() {
    exhaust("cancel against grant", 150, || {
        let scene = Scene::new(1);
        let permit = scene.hold();
        let cancelled = Waiter::queue(&scene, scene.request());
        let next = Waiter::queue(&scene, scene.request());
        let release = spawn(&scene, |scene| scene.use_up(permit, Outcome::Success));
        let cancel = spawn(&scene, |_| drop(cancelled));
        join(release);
        join(cancel);
        next.answer().expect("it is the next one's turn").finish(Outcome::Success);
        scene.close();
    });
}

#[test]
fn a_grant_races_a_deadline_and_exactly_one_of_them_wins() {
    let ends = Ends::default();
    let noted = ends.clone();
    let all = exhaust("grant against deadline", 5_000, move || {
        let scene = Scene::new(1);
        let permit = scene.hold();
        let raced = in_order(|| Waiter::queue(&scene, scene.request().within(ms(10))));
        scene.host.settle();
        let release = spawn(&scene, |_| permit.finish(Outcome::Success));
        scene.host.advance(ms(10));
        join(release);
        scene.host.settle();
        let answer = raced.answer();
        noted.note(&answer);
        drop(answer);
        scene.close();
    });
    assert!(!all || ends.seen() == [true, true, false]);
}

#[test]
fn a_clock_that_moves_while_the_timer_is_armed_costs_nobody_a_deadline() {
    exhaust("arming against the clock", 30, || {
        let scene = Scene::new(1);
        let permit = scene.hold();
        // The timer has been woken to arm itself and has not run yet; nobody but it can refuse the waiter.
        let late = Waiter::queue(&scene, scene.request().within(ms(10)));
        scene.host.advance(ms(10));
        scene.host.settle();
        assert_eq!(late.answer().expect_err("the slot is taken").reason, DenialReason::QueueTimeout);
        permit.finish(Outcome::Success);
        scene.close();
    });
}

#[test]
fn a_release_races_an_enqueue_and_the_newcomer_is_never_left_waiting() {
    exhaust("release against enqueue", 8, || {
        let scene = Scene::new(1);
        let permit = scene.hold();
        let newcomer = spawn(&scene, |scene| scene.call(scene.request(), Outcome::Success));
        scene.use_up(permit, Outcome::Success);
        assert!(join(newcomer).is_ok());
        scene.close();
    });
}

#[test]
fn a_shutdown_races_a_grant_and_a_cancel() {
    let ends = Ends::default();
    let noted = ends.clone();
    let all = exhaust("shutdown against grant, then cancel", 70, move || {
        let scene = Scene::new(1);
        let permit = scene.hold();
        let cancelled = Waiter::queue(&scene, scene.request());
        let waiting = Waiter::queue(&scene, scene.request());
        let shutdown = spawn(&scene, |scene| scene.gate.shutdown());
        permit.finish(Outcome::Success);
        drop(cancelled);
        join(shutdown);
        let answer = waiting.answer();
        noted.note(&answer);
        drop(answer);
        scene.close();
    });
    assert!(!all || ends.seen() == [true, false, true]);
}

#[test]
fn a_shutdown_races_an_enqueue_and_the_newcomer_is_never_left_waiting() {
    let ends = Ends::default();
    let noted = ends.clone();
    let all = exhaust("shutdown against enqueue", 25, move || {
        let scene = Scene::new(1);
        let permit = scene.hold();
        let newcomer = spawn(&scene, |scene| scene.call(scene.request(), Outcome::Success));
        let shutdown = spawn(&scene, |scene| scene.gate.shutdown());
        // Only a shutdown can answer the newcomer: the permit comes back when it has been answered.
        noted.note(&join(newcomer));
        permit.finish(Outcome::Success);
        join(shutdown);
        scene.close();
    });
    assert!(!all || ends.seen() == [false, false, true]);
}

#[test]
fn a_host_that_drops_the_timer_races_an_acquire_and_leaves_nobody_waiting() {
    let ends = Ends::default();
    let noted = ends.clone();
    let all = exhaust("lost timer against acquire", 90, move || {
        let scene = Scene::new(1);
        let aborter = scene.host.task_aborter();
        let caller = spawn(&scene, |scene| scene.call(scene.request(), Outcome::Success));
        aborter.abort();
        noted.note(&join(caller));
        scene.close();
    });
    assert!(!all || ends.seen() == [true, false, true]);
}

#[test]
fn a_shutdown_races_a_deadline_and_exactly_one_of_them_wins() {
    let ends = Ends::default();
    let noted = ends.clone();
    let all = exhaust("shutdown against deadline", 3_000, move || {
        let scene = Scene::new(1);
        let permit = scene.hold();
        let raced = in_order(|| Waiter::queue(&scene, scene.request().within(ms(10))));
        scene.host.settle();
        let shutdown = spawn(&scene, |scene| scene.gate.shutdown());
        scene.host.advance(ms(10));
        join(shutdown);
        scene.host.settle();
        noted.note(&raced.answer());
        permit.finish(Outcome::Success);
        scene.close();
    });
    assert!(!all || ends.seen() == [false, true, true]);
}

#[test]
fn a_run_that_is_dropped_at_an_await_races_a_grant_and_the_slot_reaches_the_next_in_line() {
    let at_call = Arc::new(AtomicUsize::new(0));
    let polled = Arc::clone(&at_call);
    let all = exhaust("run dropped against grant", 190, move || {
        let scene = Scene::new(1);
        let permit = scene.hold();
        let polled = Arc::clone(&polled);
        // Dropped while it waits, when it was granted and has not seen it, or while its call is out.
        let dropped = spawn(&scene, move |scene| {
            let call = poll_fn(|_| {
                polled.fetch_add(1, Ordering::Relaxed);
                Poll::<Outcome>::Pending
            });
            let mut run = Box::pin(scene.gate.run(scene.request(), call));
            for _ in 0..2 {
                let polled = run.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_pending());
            }
        });
        permit.finish(Outcome::Success);
        assert!(scene.call(scene.request(), Outcome::Success).is_ok());
        join(dropped);
        scene.close();
    });
    assert!(!all || at_call.load(Ordering::Relaxed) > 0);
}

/// Callers, one that is rate limited so that a cooldown follows, one that leaves, a moving clock.
fn crowd(ends: &Ends, has_shutdown: bool) {
    let scene = Scene::new(2);
    let permits = [scene.hold(), scene.hold()];
    let callers = [10, 15, 1_000].map(|patience| {
        let ends = ends.clone();
        spawn(&scene, move |scene| {
            let request = scene.request().within(ms(patience));
            let is_limited = patience == 15 && has_shutdown;
            let answer = scene.call(request, if is_limited { rate_limited(8) } else { Outcome::Success.into() });
            ends.note(&answer);
        })
    });
    let leaver = spawn(&scene, |scene| scene.ask_and_leave(scene.request().within(ms(5))));
    let clock = spawn(&scene, |scene| (0..4).for_each(|_| scene.host.advance(ms(5))));
    let shutdown = has_shutdown.then(|| spawn(&scene, |scene| scene.gate.shutdown()));
    for permit in permits {
        scene.use_up(permit, Outcome::Success);
    }
    callers.into_iter().for_each(join);
    [Some(leaver), Some(clock), shutdown].into_iter().flatten().for_each(join);
    scene.close();
}

#[test]
fn cancels_grants_deadlines_and_releases_race_each_other() {
    let ends = Ends::default();
    let noted = ends.clone();
    let all = sample("all but shutdown", move || crowd(&noted, false));
    assert!(!all || ends.seen() == [true, true, false]);
}

#[test]
fn a_shutdown_races_everything_else() {
    let ends = Ends::default();
    let noted = ends.clone();
    let all = sample("shutdown against all", move || crowd(&noted, true));
    assert!(!all || ends.seen() == [true, true, true]);
}

/// What the checks above are worth: each of these is wrong, and must be caught.
mod controls {
    use super::{Outcome, Scene, exhaust, join, spawn};

    #[test]
    #[should_panic(expected = "active leases are left")]
    fn a_permit_that_is_forgotten_is_noticed() {
        exhaust("forgotten permit", 1, || {
            let scene = Scene::new(2);
            let forgetful = spawn(&scene, |scene| std::mem::forget(scene.hold()));
            scene.hold().finish(Outcome::Success);
            join(forgetful);
            scene.close();
        });
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn an_acquire_that_nobody_answers_is_noticed() {
        exhaust("permit kept across a wait", 1, || {
            let scene = Scene::new(1);
            let kept = scene.hold();
            let answer = scene.call(scene.request(), Outcome::Success);
            drop((kept, answer));
        });
    }

    /// Right when one thread runs after the other: only an order in between shows the fault.
    #[test]
    #[should_panic(expected = "there is room")]
    fn a_check_that_is_stale_when_it_is_acted_on_is_noticed() {
        exhaust("check, then act", 1, || {
            let scene = Scene::new(1);
            let takes_if_free = |scene: Scene| {
                if scene.in_flight() == 0 {
                    scene.hold().finish(Outcome::Success);
                }
            };
            let other = spawn(&scene, takes_if_free);
            takes_if_free(scene.clone());
            join(other);
            scene.close();
        });
    }
}
