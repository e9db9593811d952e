//! Once it is warm, the core's hot paths allocate nothing: memory is bounded by what is live at once.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tidegate_core::fair_queue::{Eligibility, FairQueue};
use tidegate_core::lease::Ledger;
use tidegate_core::request::{AcquireResult, Domain, Outcome, Request, RequestAdmission, RequestConfig, RequestEffect};
use tidegate_core::time::{Duration, Instant};

/// Counts the allocations of each thread; the tests of this file run on threads of their own.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is handed on to the system's allocator as it came; the counter allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `System` made the block.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of `cycles` cycles, after as many to warm up as it takes to see the largest sizes.
fn allocations(warm_up: u64, cycles: u64, mut cycle: impl FnMut()) -> u64 {
    (0..warm_up).for_each(|_| cycle());
    let before = ALLOCATIONS.get();
    (0..cycles).for_each(|_| cycle());
    ALLOCATIONS.get() - before
}

#[test]
fn a_million_leases_take_no_more_memory_than_the_first_hundred() {
    let mut ledger = Ledger::new(1);
    let mut out = Vec::with_capacity(100);
    let mut granted = 0;
    let mut highest_slot = 0;
    let cycle = || {
        for item in 0..100 {
            out.push(ledger.grant(item, item));
            granted += 1;
        }
        for lease in out.drain(..) {
            highest_slot = highest_slot.max(lease.key.slot);
            assert!(ledger.release(lease).is_ok());
        }
    };
    assert_eq!(allocations(1, 10_000, cycle), 0);
    assert_eq!((granted, highest_slot), (1_000_100, 99), "slots are used again");
}

#[test]
fn passing_a_slot_on_among_waiters_allocates_nothing() {
    let mut machine = RequestAdmission::new(RequestConfig::default()).expect("valid settings");
    let model = machine.register(Instant::ZERO, "provider", "model", "default", 1).expect("a valid cap");
    let chat = Request::new(machine.resource(model, Domain::Chat).expect("a known model"));
    // Deadlines far away, each of which leaves an outdated timer behind when its waiter is served.
    let request = chat.within(Duration::from_secs(3_600));
    let mut now = Instant::ZERO;
    let AcquireResult::Granted(first) = machine.acquire(now, &request) else { panic!("there is room") };
    let mut held = Some(first);
    for _ in 0..100 {
        assert!(matches!(machine.acquire(now, &request), AcquireResult::Waiting(_)));
    }
    let cycle = || {
        now += Duration::from_nanos(1);
        let lease = held.take().expect("the slot is held");
        let _ = machine.release(now, lease, &Outcome::Success.into());
        let Some(RequestEffect::Granted { lease, .. }) = machine.poll_effect() else { panic!("a waiter was woken") };
        held = Some(lease);
        assert!(matches!(machine.acquire(now, &request), AcquireResult::Waiting(_)));
    };
    assert_eq!(allocations(10_000, 100_000, cycle), 0);
}

#[test]
fn a_turn_of_the_fair_queue_allocates_nothing() {
    let mut queue = FairQueue::new();
    let (class, set) = (queue.add_class(), queue.add_blocked_set());
    for item in 0..200 {
        let group = queue.add_unit_group();
        queue.enqueue(item, group, class, 1.0);
    }
    let cycle = || {
        queue.unblock(set);
        let selection = queue.select(|_| Eligibility::Accept).expect("a group waits");
        queue.commit(&selection).expect("nothing changed");
        assert_eq!(queue.select(|_| Eligibility::ClassBlocked(set)), None);
        assert!(queue.enqueue(selection.candidate.item, selection.candidate.group, class, 1.0));
    };
    assert_eq!(allocations(1_000, 100_000, cycle), 0);
}
