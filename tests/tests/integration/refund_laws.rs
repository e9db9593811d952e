//! Who is answered where most calls are refused: tenants have answers in proportion to their weights, and those whose every call is
//! refused take a bounded share of the calls that are sent.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::cases;
use proptest::prelude::*;
use tidegate_core::limit::Fixed;
use tidegate_core::request::{
    AcquireResult, Completion, Domain, GroupId, LimitConfig, Outcome, Request, RequestAdmission, RequestConfig,
    RequestEffect, RequestLease, ResourceId,
};
use tidegate_core::time::{Duration, Instant};

const REFUSAL: Duration = Duration::from_millis(5);

/// Tenants that always wait for more calls than can be out, and a provider that lets a call through each `interval`.
#[derive(Clone, Debug)]
struct World {
    weights: Vec<f64>,
    cap: u32,
    /// `None`: AIMD.
    is_fixed: bool,
    interval_ms: u64,
    /// Calls that it lets through at once after a quiet time.
    burst: u64,
    latency_ms: u64,
    /// Whether refusals say when the next call is let through.
    says_when: bool,
    /// How many tenants, the first of them, have every call refused. These refusals leave the provider's rate alone.
    hostile: usize,
    secs: u64,
}

/// What became of the calls of one tenant.
#[derive(Clone, Debug, Default)]
struct Calls {
    sent: u64,
    answered: u64,
    out: u64,
    most_out: u64,
}

struct Run<'a> {
    world: &'a World,
    machine: RequestAdmission,
    resource: ResourceId,
    groups: Vec<GroupId>,
    now: Instant,
    /// When the provider's bucket is full, which says how much it holds before.
    full_at: Instant,
    waiting: BTreeMap<u64, usize>,
    ends: BinaryHeap<Reverse<(Instant, u64)>>,
    out: BTreeMap<u64, (usize, RequestLease, Completion)>,
    number: u64,
    calls: Vec<Calls>,
}

impl<'a> Run<'a> {
    fn new(world: &'a World) -> Self {
        let config = RequestConfig { limit: LimitConfig::default(), health: None, ..RequestConfig::default() };
        let mut machine = RequestAdmission::new(config).expect("valid settings");
        let model = machine.register(Instant::ZERO, "provider", "model", "default", world.cap).expect("a valid cap");
        let resource = machine.resource(model, Domain::Chat).expect("a known model");
        if world.is_fixed {
            let fixed = Box::new(Fixed::new(world.cap));
            machine.set_algorithm(Instant::ZERO, resource, fixed).expect("a known resource");
        }
        let group = |(at, weight): (usize, &f64)| machine.group(&at.to_string(), *weight).expect("a valid weight");
        let groups: Vec<GroupId> = world.weights.iter().enumerate().map(group).collect();
        Self {
            world,
            machine,
            resource,
            calls: vec![Calls::default(); groups.len()],
            groups,
            now: Instant::ZERO,
            full_at: Instant::ZERO,
            waiting: BTreeMap::new(),
            ends: BinaryHeap::new(),
            out: BTreeMap::new(),
            number: 0,
        }
    }

    fn finish(mut self) -> Vec<Calls> {
        for worker in 0..self.groups.len() * (self.world.cap as usize + 1) {
            self.ask(worker % self.groups.len());
        }
        let end = Instant::ZERO + Duration::from_secs(self.world.secs);
        loop {
            let call = self.ends.peek().map(|Reverse((at, _))| *at);
            let Some(at) = call.into_iter().chain(self.machine.poll_timeout()).min().filter(|at| *at <= end) else {
                return self.calls;
            };
            self.now = self.now.max(at);
            match self.ends.peek().copied() {
                Some(Reverse((at, number))) if at <= self.now => {
                    self.ends.pop();
                    let (tenant, lease, done) = self.out.remove(&number).expect("it is out");
                    self.calls[tenant].out -= 1;
                    self.calls[tenant].answered += u64::from(done.outcome == Outcome::Success);
                    let _ = self.machine.release(self.now, lease, &done);
                    self.ask(tenant);
                }
                _ => self.machine.handle_timeout(self.now),
            }
            while let Some(effect) = self.machine.poll_effect() {
                let RequestEffect::Granted { waiter, lease } = effect else { panic!("it is no grant: {effect:?}") };
                let tenant = self.waiting.remove(&waiter.to_bits()).expect("it waits");
                self.send(tenant, lease);
            }
        }
    }

    fn ask(&mut self, tenant: usize) {
        let request = Request { group: Some(self.groups[tenant]), ..Request::new(self.resource) };
        match self.machine.acquire(self.now, &request) {
            AcquireResult::Granted(lease) => self.send(tenant, lease),
            AcquireResult::Waiting(waiter) => drop(self.waiting.insert(waiter.to_bits(), tenant)),
            AcquireResult::Denied(denial) => panic!("{denial}"),
        }
    }

    fn send(&mut self, tenant: usize, lease: RequestLease) {
        let interval = Duration::from_millis(self.world.interval_ms);
        let fits_at = self.full_at.max(self.now) + interval;
        let room = self.now + Duration::from_millis(self.world.interval_ms * self.world.burst);
        let (at, done) = if tenant < self.world.hostile {
            (self.now + REFUSAL, Completion::rate_limited(None))
        } else if fits_at <= room {
            self.full_at = fits_at;
            (self.now + Duration::from_millis(self.world.latency_ms), Outcome::Success.into())
        } else {
            let retry_after = self.world.says_when.then(|| fits_at - room);
            (self.now + REFUSAL, Completion::rate_limited(retry_after))
        };
        let calls = &mut self.calls[tenant];
        calls.sent += 1;
        calls.out += 1;
        calls.most_out = calls.most_out.max(calls.out);
        self.number += 1;
        self.out.insert(self.number, (tenant, lease, done));
        self.ends.push(Reverse((at, self.number)));
    }
}

fn world() -> impl Strategy<Value = World> {
    let weights = prop::collection::vec(prop_oneof![Just(1.0), Just(2.0), 0.25..8.0_f64], 2..5);
    let provider = (20..1_500_u64, 1..12_u64, 20..2_000_u64, any::<bool>());
    (weights, 1..64_u32, any::<bool>(), provider).prop_map(|(weights, cap, is_fixed, provider)| {
        let (interval_ms, burst, latency_ms, says_when) = provider;
        let secs = interval_ms.max(400) * 600 / 1_000;
        World { weights, cap, is_fixed, interval_ms, burst, latency_ms, says_when, hostile: 0, secs }
    })
}

proptest! {
    #![proptest_config(cases::config(150))]

    #[test]
    fn tenants_are_answered_in_proportion_to_their_weights_however_many_calls_are_refused(world in world()) {
        let calls = Run::new(&world).finish();
        for (i, one) in calls.iter().enumerate() {
            for (j, other) in calls.iter().enumerate().take(i) {
                let apart = one.answered as f64 / world.weights[i] - other.answered as f64 / world.weights[j];
                // One item each, the calls that are out, and what was out when a lag began.
                let most = (1 + 2 * one.most_out) as f64 / world.weights[i]
                    + (1 + 2 * other.most_out) as f64 / world.weights[j];
                prop_assert!(apart.abs() <= most, "tenants {i} and {j}: {apart} apart, {most} at most: {calls:?}");
            }
        }
    }

    #[test]
    fn tenants_whose_every_call_is_refused_have_three_turns_for_each_of_their_share_at_most_and_a_fixed_number(
        world in world(),
        hostile in 1..4_usize,
    ) {
        let hostile = hostile.min(world.weights.len() - 1);
        let world = World { hostile, interval_ms: 1, burst: 1_000_000, ..world };
        let calls = Run::new(&world).finish();
        let weight = |range: std::ops::Range<usize>| world.weights[range].iter().sum::<f64>();
        let sent = |range: std::ops::Range<usize>| calls[range].iter().map(|calls| calls.sent).sum::<u64>() as f64;
        let all = world.weights.len();
        let (theirs, others) = (weight(0..hostile), weight(hostile..all));
        let share = sent(hostile..all) * theirs / others;
        let fixed = (f64::from(world.cap) + 8.0) * hostile as f64 * (theirs + others) / others;
        // A service of the lightest moves virtual time by as much as many of the heaviest.
        let lightest = world.weights.iter().copied().fold(f64::INFINITY, f64::min);
        let items = 4.0 * (theirs / lightest + f64::from(world.cap));
        prop_assert!(sent(0..hostile) <= 3.0 * share + fixed + items, "{share} and {fixed}: {calls:?}");
        prop_assert!(sent(hostile..all) > 0.0, "{calls:?}");
    }
}
