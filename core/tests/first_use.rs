//! A host, a task policy and a limit algorithm as a caller of the crate writes them, each in at most 30
//! lines.

use std::cell::Cell;
use std::future::Future;

use futures_executor::{LocalPool, LocalSpawner};
use futures_util::future::join_all;
use futures_util::task::LocalSpawnExt;
use tidegate_core::gate::{Gate, GateTimer};
use tidegate_core::limit::{CallReport, LimitAlgorithm};
use tidegate_core::request::{Domain, Outcome, Request, RequestAdmission, RequestConfig, ResourceId};
use tidegate_core::runtime::{Host, Spawn, Timer, check_host, check_spawn, watch_shutdown};
use tidegate_core::sim::executor::Executor;
use tidegate_core::sim::policy::{Criterion, Judgement, PolicyReport, two_groups};
use tidegate_core::sim::{scenario, world::World};
use tidegate_core::task::{
    PolicyDenial, PolicyGrant, PolicyView, ShareRounding, StrictFair, TaskDenialReason, TaskPolicy, TaskResourceId,
};
use tidegate_core::time::{Clock, Duration, Instant};

/// A host on one thread, with the executor of the crate `futures`.
#[derive(Clone)]
struct LocalHost {
    spawner: LocalSpawner,
    origin: std::time::Instant,
}

impl Clock for LocalHost {
    fn now(&self) -> Instant {
        Instant::ZERO + Duration::from(self.origin.elapsed())
    }
}

impl Timer for LocalHost {
    type Sleep = futures_timer::Delay;

    fn sleep_until(&self, at: Instant) -> Self::Sleep {
        futures_timer::Delay::new((at - self.now()).into())
    }
}

impl<F: Future<Output = ()> + 'static> Spawn<F> for LocalHost {
    fn spawn(&self, future: F) {
        // The pool is gone: dropping the future is a shutdown.
        let _ = self.spawner.spawn_local(future);
    }
}

impl Host for LocalHost {
    type Lock = tidegate_local_lock::LocalLock;
}

fn local_host() -> (LocalPool, LocalHost) {
    let pool = LocalPool::new();
    let host = LocalHost { spawner: pool.spawner(), origin: std::time::Instant::now() };
    (pool, host)
}

/// Returns a gate in front of a model that may have two calls in flight.
fn gate_of_two<H: Host + Spawn<GateTimer<H>>>(host: H) -> (Gate<H>, ResourceId) {
    let gate = Gate::new(host, RequestAdmission::new(RequestConfig::default()).expect("the settings are valid"));
    let chat = gate.with(|control, now| {
        let model = control.register(now, "acme", "large", "default", 2)?;
        control.resource(model, Domain::Chat)
    });
    (gate, chat.expect("the model is new"))
}

/// Makes ten calls of 20 ms at once. Returns how many succeeded, and the most that were in flight together.
async fn ten_calls<H: Host>(gate: &Gate<H>, chat: ResourceId) -> (usize, u32) {
    let (in_flight, most) = (Cell::new(0_u32), Cell::new(0));
    let call = async || {
        in_flight.set(in_flight.get() + 1);
        most.set(most.get().max(in_flight.get()));
        gate.host().sleep_until(gate.host().now() + Duration::from_millis(20)).await;
        in_flight.set(in_flight.get() - 1);
        Ok::<(), Outcome>(())
    };
    let ended = join_all((0..10).map(|_| gate.run(Request::new(chat), call()))).await;
    (ended.into_iter().filter(|end| *end == Ok(Ok(()))).count(), most.get())
}

#[test]
fn a_host_on_the_executor_of_futures_keeps_the_rules() {
    let (mut pool, host) = local_host();
    assert_eq!(pool.run_until(check_host(host.clone())), Ok(()));
    assert_eq!(pool.run_until(check_spawn(host.clone())), Ok(()));
    let watch = watch_shutdown(&host).expect("nothing panics");
    drop(pool);
    assert_eq!(watch.check(), Ok(()));
}

#[test]
fn a_gate_on_the_executor_of_futures_has_two_of_ten_calls_in_flight() {
    let (mut pool, host) = local_host();
    let (gate, chat) = gate_of_two(host);
    assert_eq!(pool.run_until(ten_calls(&gate, chat)), (10, 2));
}

/// A group gets its share by weight. While no other group competes it may have three quarters of a resource.
struct ThreeQuartersAlone;

impl TaskPolicy for ThreeQuartersAlone {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
        let most = |resource: TaskResourceId| {
            let is_contended = view.has_competition_for(resource);
            let strict = view.strict_share(resource, ShareRounding::Down);
            if is_contended { strict } else { (view.limit(resource) * 3).div_ceil(4) }
        };
        match view.demands().find(|&(resource, amount)| view.held(resource) + amount > most(resource)) {
            None => Ok(PolicyGrant::unlimited()),
            Some((resource, _)) => Err(PolicyDenial { resource: Some(resource), ..TaskDenialReason::Policy.into() }),
        }
    }
}

#[test]
fn a_policy_of_the_callers_own_is_judged_beside_strict_fairness() {
    let run = |policy| PolicyReport::run(&two_groups(), 1, policy).expect("the scenario is valid");
    let (own, strict) = (run(Box::new(ThreeQuartersAlone)), run(Box::new(StrictFair)));
    assert!(own.is_good(), "{own}");
    assert_eq!(own.judgement(Criterion::Service), Judgement::Good);
    assert!(own.wall_ns > strict.wall_ns, "the reserve costs time");
}

/// Rises by one after as many successes as the limit. A refusal sets the limit to what was in flight.
struct InFlightAtRefusal {
    limit: u32,
    max: u32,
    successes: u32,
}

impl LimitAlgorithm for InFlightAtRefusal {
    fn limit(&self, _now: Instant) -> u32 {
        self.limit
    }

    fn on_outcome(&mut self, _now: Instant, call: &CallReport) {
        match call.outcome {
            Outcome::RateLimited => (self.limit, self.successes) = (call.in_flight.clamp(1, self.limit), 0),
            Outcome::Success => self.successes += 1,
            _ => {}
        }
        if self.successes >= self.limit {
            (self.limit, self.successes) = ((self.limit + 1).min(self.max), 0);
        }
    }

    fn set_max(&mut self, _now: Instant, max: u32, _lifts: bool) {
        (self.max, self.limit) = (max, self.limit.min(max));
    }

    fn uses_time(&self) -> bool {
        false
    }
}

#[test]
fn a_limit_of_the_callers_own_keeps_every_law_in_a_scenario() {
    let builtin = scenario::builtin();
    let scenario = builtin.iter().find(|scenario| scenario.name == "unknown-limit").expect("it is built in");
    let limit = |max| Box::new(InFlightAtRefusal { limit: 1, max, successes: 0 });
    let mut world = World::with_limit(scenario, 1, |model| Some(limit(model.cap()))).expect("the scenario is valid");
    while world.step() {}
    assert_eq!(world.violation(), None);
}

#[test]
fn a_limit_of_the_callers_own_decides_behind_a_gate() {
    let runtime = Executor::new();
    let (gate, chat) = gate_of_two(runtime.host());
    let limit = Box::new(InFlightAtRefusal { limit: 1, max: 2, successes: 0 });
    gate.with(|control, now| control.set_algorithm(now, chat, limit)).expect("the resource is known");
    assert_eq!(runtime.block_on(ten_calls(&gate, chat)), Ok((10, 2)));
}
