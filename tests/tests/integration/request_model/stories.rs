//! What waiting promises, told as stories: each is a fault that one queue over all providers had, or one
//! beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::budget::{BudgetConfig, Dimension, Usage};
use tidegate_core::limit::{CallReport, LimitAlgorithm};
use tidegate_core::request::{
    AcquireResult, Completion, DenialReason, Domain, Outcome, Request, RequestAdmission, RequestConfig, RequestEffect,
    RequestLease, WaiterId,
};
use tidegate_core::time::{Duration, Instant};

use super::resource;

/// A machine, and its clock.
struct Host {
    machine: RequestAdmission,
    now: Instant,
}

/// An effect, by the waiter it is for.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    Granted(WaiterId),
    Refused(WaiterId, DenialReason),
}

impl Host {
    fn new() -> Self {
        let machine = RequestAdmission::new(RequestConfig::default()).expect("valid settings");
        Self { machine, now: Instant::ZERO }
    }

    /// A call of one domain of a provider/model that is registered with this cap.
    fn call(&mut self, provider: &str, model: &str, cap: u32, domain: Domain) -> Request {
        let owner = self.machine.register(self.now, provider, model, "default", cap).expect("a valid cap");
        Request::new(resource(&mut self.machine, owner, domain))
    }

    fn chat(&mut self, model: &str, cap: u32) -> Request {
        self.call("provider", model, cap, Domain::Chat)
    }

    fn granted(&mut self, request: Request) -> RequestLease {
        match self.machine.acquire(self.now, &request) {
            AcquireResult::Granted(lease) => lease,
            other => panic!("it is free, and the answer is {other:?}"),
        }
    }

    fn waits(&mut self, request: Request) -> WaiterId {
        match self.machine.acquire(self.now, &request) {
            AcquireResult::Waiting(waiter) => waiter,
            other => panic!("it is not free, and the answer is {other:?}"),
        }
    }

    fn tries(&mut self, request: Request) -> Result<RequestLease, DenialReason> {
        self.machine.try_acquire(self.now, &request).map_err(|denial| denial.reason)
    }

    fn release(&mut self, lease: RequestLease, done: &Completion) {
        let _ = self.machine.release(self.now, lease, done);
    }

    fn succeeds(&mut self, lease: RequestLease) {
        self.release(lease, &Outcome::Success.into());
    }

    /// The provider answers a call with 429 and Retry-After.
    fn is_refused(&mut self, lease: RequestLease, retry_after: Duration) {
        let mut done = Completion::from(Outcome::RateLimited);
        done.retry_after = Some(retry_after);
        self.release(lease, &done);
    }

    /// The effects that wait; leases that come with them stay out.
    fn effects(&mut self) -> Vec<Came> {
        let mut came = Vec::new();
        while let Some(effect) = self.machine.poll_effect() {
            came.push(match effect {
                RequestEffect::Granted { waiter, .. } => Came::Granted(waiter),
                RequestEffect::Denied { waiter, denial } => Came::Refused(waiter, denial.reason),
                other => panic!("{other:?} is for no waiter"),
            });
        }
        came
    }

    /// Handles wake-ups up to `seconds` after the start, and answers when each effect came.
    fn until(&mut self, seconds: u64) -> Vec<(u64, Came)> {
        let (end, mut came) = (Instant::ZERO + Duration::from_secs(seconds), Vec::new());
        loop {
            let millis = self.now.as_nanos() / 1_000_000;
            came.extend(self.effects().into_iter().map(|effect| (millis, effect)));
            let Some(at) = self.machine.poll_timeout().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            self.machine.handle_timeout(self.now);
        }
        self.now = end;
        came
    }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A call to model `a` comes back with a Retry-After of 10 s, six more wait for the end of the pause, and
/// model `b` of the same tenant is idle. With one queue over all providers the calls to `b` stood behind
/// those to `a`.
#[test]
fn a_cooldown_of_one_model_never_delays_an_idle_model_of_the_same_tenant() {
    let mut host = Host::new();
    let tenant = host.machine.group_of_tenant("default").expect("there are few tenants");
    let (a, b) = (host.chat("a", 2).in_group(tenant), host.chat("b", 2).in_group(tenant));
    let refused = host.granted(a);
    host.is_refused(refused, seconds(10));
    let paused: Vec<WaiterId> = (0..6).map(|_| host.waits(a)).collect();

    assert_eq!(host.until(1), []);
    let (first, second) = (host.granted(b), host.granted(b));
    let waiting: Vec<WaiterId> = (0..4).map(|_| host.waits(b)).collect();
    host.succeeds(first);
    assert_eq!(host.effects(), [Came::Granted(waiting[0])], "a call to b ends, and the next goes at once");
    host.succeeds(second);
    assert_eq!(host.effects(), [Came::Granted(waiting[1])]);
    assert_eq!(host.until(3), [], "the limit of b is reached, and nothing else changes");
    assert_eq!(host.machine.poll_timeout(), Some(Instant::ZERO + seconds(10)), "the pause of a ends");
    // The refusal has cut the limit of a to one call.
    assert_eq!(host.until(11), [(10_000, Came::Granted(paused[0]))]);
}

/// The same with two domains of one model: the chat domain is full, the cap is not.
#[test]
fn a_full_limit_of_one_domain_never_delays_another_domain_of_the_same_group() {
    let mut host = Host::new();
    let (chat, embedding) = (host.call("p", "m", 4, Domain::Chat), host.call("p", "m", 4, Domain::Embedding));
    let group = host.machine.group("group", 1.0).expect("a valid weight");
    let (chat, embedding) = (chat.in_group(group), embedding.in_group(group));
    // Three refusals, and a limit of 1 is left of 4.
    for _ in 0..3 {
        let lease = host.granted(chat);
        host.is_refused(lease, seconds(1));
        let after = host.now.as_nanos() / 1_000_000_000 + 1;
        assert_eq!(host.until(after), []);
    }
    let out = host.granted(chat);
    let chats = [host.waits(chat), host.waits(chat)];
    let embeddings = [host.granted(embedding), host.granted(embedding), host.granted(embedding)];
    let last = host.waits(embedding);
    assert_eq!(host.effects(), []);

    // The cap makes room, and only the embedding may use it, though a chat call of its group has waited for
    // longer.
    let [first, _others @ ..] = embeddings;
    host.succeeds(first);
    assert_eq!(host.effects(), [Came::Granted(last)]);
    // The chat domain makes room, and the cap is full but for it.
    host.succeeds(out);
    assert_eq!(host.effects(), [Came::Granted(chats[0])]);
}

/// A pause of one domain does not hold the others, and does not end early for a group that waits elsewhere
/// too.
#[test]
fn a_cooldown_of_one_domain_never_delays_another_domain_of_the_same_group() {
    let mut host = Host::new();
    let (chat, embedding) = (host.call("p", "m", 2, Domain::Chat), host.call("p", "m", 2, Domain::Embedding));
    let group = host.machine.group("group", 1.0).expect("a valid weight");
    let (chat, embedding) = (chat.in_group(group), embedding.in_group(group));
    let refused = host.granted(chat);
    host.is_refused(refused, seconds(10));
    let paused = host.waits(chat);
    let (first, _second) = (host.granted(embedding), host.granted(embedding));
    let next = host.waits(embedding);
    assert_eq!(host.until(2), []);
    host.succeeds(first);
    assert_eq!(host.effects(), [Came::Granted(next)]);
    assert_eq!(host.until(9), []);
    host.machine.register(host.now, "p", "m", "default", 3).expect("a valid cap");
    assert_eq!(host.until(11), [(10_000, Came::Granted(paused))]);
}

#[test]
fn waiters_of_one_group_and_one_resource_go_in_the_order_they_came() {
    let mut host = Host::new();
    let (chat, embedding) = (host.call("p", "m", 1, Domain::Chat), host.call("p", "m", 1, Domain::Embedding));
    let other = host.chat("other", 1);
    let group = host.machine.group("group", 1.0).expect("a valid weight");
    let mut out = host.granted(chat);
    let _held = host.granted(other);
    let mut lines: [Vec<WaiterId>; 2] = Default::default();
    for _ in 0..5 {
        lines[0].push(host.waits(chat.in_group(group)));
        let _elsewhere = host.waits(other.in_group(group));
        lines[1].push(host.waits(embedding.in_group(group)));
    }
    let mut order = Vec::new();
    for _ in 0..10 {
        host.succeeds(out);
        let Some(RequestEffect::Granted { waiter, lease }) = host.machine.poll_effect() else {
            panic!("there is room")
        };
        assert_eq!(host.effects(), [], "a release wakes one");
        order.push(waiter);
        out = lease;
    }
    for line in &lines {
        let served: Vec<WaiterId> = order.iter().copied().filter(|waiter| line.contains(waiter)).collect();
        assert_eq!(served, *line);
    }
    // Each line has the weight of its group, so they take turns.
    for pair in order.chunks(2) {
        assert_ne!(lines[0].contains(&pair[0]), lines[0].contains(&pair[1]), "{order:?}");
    }
}

#[test]
fn a_try_passes_no_waiter_that_could_go_and_is_not_held_by_waiters_of_another_provider() {
    let mut host = Host::new();
    let (chat, embedding) = (host.call("p", "m", 3, Domain::Chat), host.call("p", "m", 3, Domain::Embedding));
    let other = host.chat("other", 1);
    let group = host.machine.group("group", 1.0).expect("a valid weight");
    let refused = host.granted(chat);
    host.is_refused(refused, seconds(1));
    let waiter = host.waits(chat.in_group(group));
    assert_eq!(host.tries(chat.in_group(group)).err(), Some(DenialReason::Cooldown));
    let _passes = host.tries(embedding.in_group(group)).expect("the waiter before it cannot go");

    // The pause is over, and the host has not handled the wake-up yet.
    host.now += seconds(2);
    for call in [chat, embedding, chat.in_group(group), embedding.in_group(group)] {
        assert_eq!(host.tries(call).err(), Some(DenialReason::QueuedWaitersAhead));
    }
    let _elsewhere = host.tries(other.in_group(group)).expect("nothing waits for it");
    assert_eq!(host.effects(), [], "a try serves no waiter");
    host.machine.handle_timeout(host.now);
    assert_eq!(host.effects(), [Came::Granted(waiter)]);
    let _last = host.tries(embedding).expect("nothing is before it any more");
}

/// A waiter that lacks tokens is blocked, but what it waits for is not to be spent by a newcomer.
#[test]
fn a_try_never_spends_the_budget_that_a_waiter_of_the_same_resource_waits_for() {
    let mut host = Host::new();
    let (chat, embedding) = (host.call("p", "m", 9, Domain::Chat), host.call("p", "m", 9, Domain::Embedding));
    let budget = BudgetConfig::per_minute(Dimension::TotalTokens, 60);
    host.machine.set_budgets(host.now, chat.resource, &[budget]).expect("valid budgets");
    let _out = host.granted(chat.estimated(Usage::tokens(50, 0)));
    let waiter = host.waits(chat.estimated(Usage::tokens(40, 0)));
    let small = chat.estimated(Usage::tokens(5, 0));
    assert_eq!(host.tries(small).err(), Some(DenialReason::QueuedWaitersAhead), "10 tokens are left, and 40 are due");
    let _passes = host.tries(embedding.estimated(Usage::tokens(5, 0))).expect("it spends nothing of that budget");
    assert_eq!(host.until(40), [(30_000, Came::Granted(waiter))], "a token comes back each second");
}

/// A limit that counts how often it is asked anything.
struct Counted {
    calls: Arc<AtomicU64>,
    limit: u32,
}

impl LimitAlgorithm for Counted {
    fn limit(&self, _now: Instant) -> u32 {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.limit
    }

    fn on_outcome(&mut self, _now: Instant, _call: &CallReport) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn set_max(&mut self, _now: Instant, _max: u32, _lifts: bool) {}

    fn uses_time(&self) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn next_change(&self, _now: Instant) -> Option<Instant> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// How often the limits of any provider/model are asked in one release at one of them, and how many waiters
/// it wakes: so many groups wait there, and so many waiters of each of them at each of three others.
fn cost_of_a_release(groups: u32, elsewhere: u32) -> (u64, usize) {
    let mut host = Host::new();
    let calls = Arc::new(AtomicU64::new(0));
    let models: Vec<Request> = ["a", "b", "c", "d"].iter().map(|model| host.chat(model, 2)).collect();
    for call in &models {
        let algorithm = Box::new(Counted { calls: Arc::clone(&calls), limit: 2 });
        host.machine.set_algorithm(host.now, call.resource, algorithm).expect("it was registered here");
    }
    let mut held: Vec<RequestLease> =
        models.iter().flat_map(|call| [*call; 2]).map(|call| host.granted(call)).collect();
    for group in 0..groups {
        let group = host.machine.group(&format!("g{group}"), 1.0).expect("a valid weight");
        host.waits(models[0].in_group(group));
        for _ in 0..elsewhere {
            for call in &models[1..] {
                host.waits(call.in_group(group));
            }
        }
    }
    assert_eq!(host.effects(), []);
    let before = calls.load(Ordering::Relaxed);
    host.succeeds(held.remove(0));
    let asked = calls.load(Ordering::Relaxed) - before;
    (asked, host.effects().len())
}

#[test]
fn a_release_wakes_one_waiter_and_costs_the_same_however_many_wait_there_or_for_other_providers() {
    let (alone, woken) = cost_of_a_release(1, 0);
    assert_eq!(woken, 1);
    for (groups, elsewhere) in [(1, 1), (1, 200), (2, 1), (200, 0), (200, 5)] {
        let (asked, woken) = cost_of_a_release(groups, elsewhere);
        // A second group is looked at once the first is served; no other is.
        assert!(asked <= alone + 4, "{groups} groups, {elsewhere} elsewhere: {asked} questions instead of {alone}");
        assert_eq!(woken, 1);
    }
}

/// Room for two wakes two: no more, and in order of turn.
#[test]
fn a_raised_cap_wakes_as_many_waiters_as_it_makes_room_for() {
    let mut host = Host::new();
    let call = host.chat("m", 1);
    let _out = host.granted(call);
    let waiters: Vec<WaiterId> = (0..5).map(|_| host.waits(call)).collect();
    host.machine.register(host.now, "provider", "m", "default", 3).expect("a valid cap");
    assert_eq!(host.effects(), [Came::Granted(waiters[0]), Came::Granted(waiters[1])]);
}

/// The refusal of the newcomer and that of the waiter come at the same instant; neither is granted what is
/// released then.
#[test]
fn a_waiter_past_its_deadline_is_never_granted_even_by_a_release_of_the_same_instant() {
    let mut host = Host::new();
    let call = host.chat("m", 1);
    let out = host.granted(call);
    let late = host.waits(call.within(seconds(1)));
    let next = host.waits(call);
    host.now += seconds(1);
    host.succeeds(out);
    assert_eq!(host.effects(), [Came::Refused(late, DenialReason::QueueTimeout), Came::Granted(next)]);
}
