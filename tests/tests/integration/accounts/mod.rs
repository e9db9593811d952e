//! Accounts of whole runs: the same from a recording as while the run goes on, and the same as by definition.

mod reference;

use self::reference::{Integrals, Record, task_resources};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_core::observe::{Distribution, IdleCause, ResourceFigures, RunAccount, RunFigures, Sink, SinkError};
use tidegate_core::pipeline::event::SchedulerEvent;
use tidegate_core::request::event::RequestEvent;
use tidegate_core::sim::scenario::{Intervention, Model, Scenario, builtin};
use tidegate_core::sim::world::World;
use tidegate_tests::worlds::draw;

/// Events above which the reference would take too long.
const MOST: usize = 2_500;

/// What a run came to, and what was heard of it.
struct Heard {
    empty: RunAccount,
    figures: RunFigures,
    record: Record,
    /// Whether each event is one of the scheduler, in the order in which they were heard.
    order: Vec<bool>,
}

fn hear(scenario: &Scenario, seed: u64) -> Heard {
    let mut empty = RunAccount::new(&scenario.plan().unwrap(), &scenario.pipeline_config());
    let prepare = |admission: &_| empty.add_all_calls(tidegate_core::time::Instant::ZERO, admission);
    let mut world = World::with_events(scenario, seed, prepare).unwrap();
    let account = empty.clone();
    let record = Record { scheduler: Vec::new(), requests: Vec::new() };
    let mut ears = Ears { account, record, order: Vec::new() };
    world.run_feeding(&mut ears).unwrap();
    assert!(world.finished().is_some());
    let Ears { account, record, order } = ears;
    Heard { empty, figures: account.figures(), record, order }
}

/// What is kept of a run while it goes on.
struct Ears {
    account: RunAccount,
    record: Record,
    order: Vec<bool>,
}

impl Sink for Ears {
    fn on_scheduler(&mut self, event: &SchedulerEvent) -> Result<(), SinkError> {
        self.account.on_scheduler(event);
        self.order.push(true);
        self.record.scheduler.push(*event);
        Ok(())
    }

    fn on_request(&mut self, event: &RequestEvent) -> Result<(), SinkError> {
        self.account.on_request(event);
        self.order.push(false);
        self.record.requests.push(*event);
        Ok(())
    }
}

/// The event, out of its line of a recording.
fn read_back<Event: Serialize + DeserializeOwned>(event: &Event) -> Event {
    serde_json::from_str(&serde_json::to_string(event).unwrap()).unwrap()
}

fn replay(mut account: RunAccount, record: &Record, order: &[bool]) -> RunFigures {
    let (mut scheduler, mut requests) = (record.scheduler.iter(), record.requests.iter());
    for of_scheduler in order {
        if *of_scheduler {
            account.on_scheduler(&read_back(scheduler.next().unwrap()));
        } else {
            account.on_request(&read_back(requests.next().unwrap()));
        }
    }
    account.figures()
}

fn integrals(figures: &ResourceFigures) -> Integrals {
    assert_eq!(figures.idle_slot_ns, figures.starved_slot_ns + figures.frontier_slot_ns, "{}", figures.name);
    Integrals {
        busy: figures.busy_slot_ns,
        idle: figures.idle_slot_ns,
        overhang: figures.overhang_slot_ns,
        starved: figures.starved_slot_ns,
        busy_squared: figures.busy_squared_slot_ns,
    }
}

fn is_distribution_of(read: &Distribution, values: &[u64]) {
    let count = values.len();
    assert_eq!(read.count, count as u64);
    let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
    assert_eq!(u128::from(read.mean_ns), sum / (count.max(1) as u128));
    assert_eq!(read.max_ns, values.last().copied().unwrap_or(0));
    for (per_mille, read) in [(500, read.p50_ns), (950, read.p95_ns)] {
        let exact = (count * per_mille).div_ceil(1000).max(1) - 1;
        let exact = values.get(exact).copied().unwrap_or(0);
        assert!(read.abs_diff(exact) * 64 <= exact, "{exact} is read as {read}");
    }
}

/// Whether the cap of this model, or of any, is changed in the midst of the run.
fn is_capped_anew(scenario: &Scenario, model: Option<&str>) -> bool {
    let caps = |what: &Intervention| matches!(what, Intervention::Request { .. } | Intervention::MaxParallel { .. });
    let mut changes = scenario.changes.iter().filter(|change| caps(&change.what));
    changes.any(|change| model.is_none() || change.what.model() == model)
}

#[test]
fn a_recorded_run_comes_to_the_same_figures_as_the_run_itself_to_the_byte() {
    // No event tells of other settings.
    for seed in (0..60).filter(|seed| !is_capped_anew(&draw(*seed), None)) {
        let take_events = hear(&draw(seed), seed);
        let again = replay(take_events.empty, &take_events.record, &take_events.order);
        assert_eq!(again, take_events.figures, "world {seed}");
        assert_eq!(serde_json::to_string(&again).unwrap(), serde_json::to_string(&take_events.figures).unwrap());
    }
}

#[test]
fn figures_are_what_the_definitions_say_when_every_instant_is_counted_anew() {
    let mut compared = 0;
    for seed in 0..80 {
        let scenario = draw(seed);
        let (plan, config) = (scenario.plan().unwrap(), scenario.pipeline_config());
        let Heard { figures, record, .. } = hear(&scenario, seed);
        if record.scheduler.len() + record.requests.len() > MOST {
            continue;
        }
        compared += 1;
        for (resource, (name, limit)) in figures.tasks.iter().zip(task_resources(&config)) {
            assert_eq!(resource.name, name);
            assert_eq!(integrals(resource), record.task_resource(&plan, &name, limit), "world {seed}, {name}");
        }
        for (at, (resource, model)) in figures.requests.iter().zip(&scenario.models).enumerate() {
            // Domains of one provider and model share the lowest of their caps.
            let owner = |model: &Model| model.domain_of.clone().unwrap_or_else(|| model.name.clone());
            let siblings: Vec<_> = scenario.models.iter().filter(|other| owner(other) == owner(model)).collect();
            if siblings.iter().any(|sibling| is_capped_anew(&scenario, Some(&sibling.name))) {
                continue;
            }
            let shared = siblings.iter().map(|sibling| sibling.max_parallel).min().unwrap_or(model.max_parallel);
            let cap = model.request.max_limit.map_or(shared, |max| max.min(shared)).max(1);
            assert_eq!(integrals(resource), record.request_resource(at, cap), "world {seed}, {}", model.name);
        }
        is_distribution_of(&figures.queue_age, &record.queue_ages());
        is_distribution_of(&figures.downstream_ready_gap, &record.gaps(&plan));
        assert_eq!(figures.request_wait_while_leased_ns, record.wait_while_leased(), "world {seed}");
    }
    assert!(compared >= 25, "only {compared} worlds were small enough");
}

#[test]
fn every_idle_slot_nanosecond_has_one_cause_and_no_worker_waits_in_hiding() {
    let mut seen = std::collections::BTreeSet::new();
    let mut unexplained = 0;
    let worlds = (0..200).map(|seed| (draw(seed), seed)).chain(builtin().into_iter().map(|scenario| (scenario, 1)));
    for (scenario, seed) in worlds {
        let figures = hear(&scenario, seed).figures;
        assert_eq!((figures.hidden_waiters, figures.missing_events), (0, 0), "world {seed}");
        for resource in figures.tasks.iter().chain(&figures.requests) {
            let sum = |starved: Option<bool>| {
                let shares = resource.why_idle.iter();
                let shares = shares.filter(|share| starved.is_none_or(|is| is == share.cause.is_starved()));
                shares.map(|share| share.slot_ns).sum::<u128>()
            };
            assert_eq!(sum(None), resource.idle_slot_ns, "world {seed}: {resource:?}");
            assert_eq!(sum(Some(true)), resource.starved_slot_ns, "world {seed}: {resource:?}");
            assert_eq!(sum(Some(false)), resource.frontier_slot_ns, "world {seed}: {resource:?}");
            for share in &resource.why_idle {
                seen.insert(share.cause);
                unexplained += u32::from(share.cause == IdleCause::Unexplained);
            }
        }
    }
    assert_eq!(unexplained, 0, "some idle time has no cause that the stream tells");
    // The rest have tests of their own: they take two domains, a policy of one's own, or a host that is late.
    assert!(seen.len() >= 14, "the worlds are too much alike: {seen:?}");
}
