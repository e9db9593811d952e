//! Outages from the view of a run's user: how soon work continues after one, and what another model does
//! meanwhile.

use super::tests::millis;
use super::*;
use crate::limit::{TideConfig, VegasConfig};
use crate::pipeline::{StopReason, Strategy};
use crate::request::HealthState;
use crate::request::event::RequestEventPayload;
use crate::sim::latency::Latency;
use crate::sim::provider::{Capacity, Closure, Outage, ProviderSpec, Rejection};
use crate::sim::scenario::ScenarioColumn;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn model(name: &str, slots: u32, latency: Duration) -> Model {
    Model {
        name: name.into(),
        domain_of: None,
        provider: ProviderSpec {
            capacity: Capacity::Constant { slots },
            latency: Latency::Constant { latency },
            ..ProviderSpec::default()
        },
        max_parallel: slots,
        request: crate::request::LimitConfig { grow_on_evidence: true, ..crate::request::LimitConfig::default() },
        algorithm: LimitChoice::Aimd,
        task_limit: None,
    }
}

/// A scenario with one column that calls the first model.
fn one_column(models: impl Into<Vec<Model>>, rows: u64) -> Scenario {
    let models = models.into();
    let column =
        ScenarioColumn { model: Some(models[0].name.clone()), ..ScenarioColumn::new("answer", Strategy::Cell) };
    Scenario { rows, row_group_size: 100, row_groups: 8, models, columns: [column].into(), ..Scenario::default() }
}

/// Returns the calls that the first model accepted from an instant on, in thousandths of its capacity. The
/// window is ten calls or two seconds, whichever is longer.
fn goodput(world: &mut World, from: Instant, slots: u64, latency: Duration) -> u64 {
    let mut accepted = |at| {
        world.advance_to(at);
        world.sample().providers[0].accepted
    };
    let window = secs(2).max(Duration::from_nanos(latency.as_nanos() * 10));
    let before = accepted(from);
    let count = accepted(from + window) - before;
    count * 1_000 * latency.as_nanos() / (slots * window.as_nanos())
}

/// Returns when the first model recovered last, if it did.
fn recovered_at(scenario: &Scenario) -> Option<Instant> {
    let mut world = World::watched_with_events(scenario, 1).unwrap();
    world.advance_to(Instant::ZERO + secs(140));
    let (requests, _) = world.take_events();
    let back =
        requests.iter().rev().find(|event| matches!(event.payload, RequestEventPayload::ProviderRecovered { .. }));
    back.map(|event| event.at)
}

#[test]
fn the_goodput_is_90_percent_two_seconds_or_two_calls_after_the_first_successful_probe() {
    let limits = [
        LimitChoice::Aimd,
        LimitChoice::Fixed { limit: 16 },
        LimitChoice::Tide(TideConfig::default()),
        LimitChoice::Vegas(VegasConfig::default()),
    ];
    let outages = [secs(3), secs(30)].map(|span| Outage::of_errors(secs(60), span));
    let hangs = Outage { errors: Duration::ZERO, timeouts: secs(3), hang: secs(5), ..outages[0] };
    for (limit, latency) in limits.iter().flat_map(|limit| [80, 800, 4_000].map(|latency| (*limit, millis(latency)))) {
        for outage in [outages[0], outages[1], hangs] {
            let mut scenario = one_column([model("m", 16, latency)], 16 * secs(160).as_nanos() / latency.as_nanos());
            scenario.models[0].algorithm = limit;
            scenario.models[0].provider.outages = [outage].into();
            // Some models never go down: a response to an earlier call arrives again and again, or calls
            // that hang end together and the next one gets a response.
            let ends = Instant::ZERO + secs(60) + outage.errors + if hangs == outage { secs(3 + 5) } else { secs(0) };
            let back = recovered_at(&scenario).unwrap_or(ends);
            let mut world = World::new(&scenario, 1).unwrap();
            let goodput = goodput(&mut world, back + secs(2).max(latency + latency), 16, latency);
            assert!(goodput >= 900, "{limit:?}, calls of {latency}, {outage:?}: {goodput} thousandths");
        }
    }
}

#[test]
fn the_fallback_completes_a_column_whose_model_is_down_for_good() {
    let mut scenario = one_column([model("first", 8, millis(100)), model("second", 8, millis(100))], 2_000);
    scenario.models[0].provider.outages = [Outage::of_errors(secs(5), secs(86_400))].into();
    scenario.columns[0].fallbacks = ["second".into()].into();
    let mut world = World::watched(&scenario, 1).unwrap();
    while world.step() {}
    assert_eq!(world.violation(), None);
    let (report, end) = (world.finished().unwrap(), world.sample());
    assert_eq!((&report.stop, report.rows_out, report.rows_dropped), (&StopReason::Completed, 2_000, 0));
    let [first, second] = [0, 1].map(|place| end.providers[place].accepted);
    assert_eq!(first + second, 2_000, "each row once");
    assert!((360..=400).contains(&first), "for five seconds: {first}");
    // The rest at the same pace, with hardly a pause in between.
    assert!(end.at < Instant::ZERO + secs(28), "{}", end.at);
}

#[test]
fn a_run_whose_models_are_all_down_continues_with_the_first_model_that_recovers() {
    let mut scenario = one_column([model("first", 8, millis(100)), model("second", 8, millis(100))], 1_000);
    for (model, back) in scenario.models.iter_mut().zip([3_600, 30]) {
        model.provider.outages = [Outage::of_errors(secs(2), secs(back))].into();
    }
    scenario.columns[0].fallbacks = ["second".into()].into();
    let mut world = World::watched(&scenario, 1).unwrap();
    while world.step() {}
    assert_eq!(world.violation(), None);
    let (report, end) = (world.finished().unwrap(), world.sample());
    assert_eq!((&report.stop, report.rows_out, report.rows_dropped), (&StopReason::Completed, 1_000, 0));
    assert!(end.at < Instant::ZERO + secs(90), "{}", end.at);
}

/// Runs a watched world to its end and checks that it keeps every law.
fn finished(scenario: &Scenario) -> (RunReport, Sample) {
    let mut world = World::watched(scenario, 1).unwrap();
    while world.steps() < 100_000 && world.step() {}
    assert_eq!(world.violation(), None);
    (world.finished().expect("it ends").clone(), world.sample())
}

#[test]
fn rows_with_a_poison_request_are_dropped_and_nothing_else_waits_for_them() {
    for fallbacks in [Vec::new(), ["second".into()].into()] {
        let mut scenario = one_column([model("first", 4, millis(50)), model("second", 4, millis(50))], 400);
        (scenario.columns[0].poison_share, scenario.columns[0].fallbacks) = (0.02, fallbacks);
        (scenario.health_calls, scenario.outage_patience, scenario.shutdown_rate) = (true, None, None);
        let (report, end) = finished(&scenario);
        assert_eq!(report.stop, StopReason::Completed);
        assert!((4..=12).contains(&report.rows_dropped), "{}", report.rows_dropped);
        assert_eq!(report.rows_out + report.rows_dropped, 400);
        // Four attempts each, and the pauses between them, also for the last task.
        assert!(end.at < Instant::ZERO + secs(120), "{}", end.at);
    }
}

#[test]
fn a_model_that_refuses_every_call_for_good_stops_the_run_without_a_dropped_row() {
    for because in [Rejection::KeyRejected, Rejection::QuotaExhausted, Rejection::ModelNotFound] {
        let mut scenario = one_column([model("m", 8, millis(100))], 1_000);
        scenario.models[0].provider.closures = [Closure { starts_at: secs(2), lasts: None, because }].into();
        let (report, end) = finished(&scenario);
        assert!(matches!(report.stop, StopReason::ProviderUnavailable { .. }), "{:?}", report.stop);
        let unmade = report.rows_unmade + report.rows_not_started;
        assert_eq!((report.rows_dropped, report.rows_out + unmade), (0, 1_000));
        assert!(report.rows_out >= 100 && end.at < Instant::ZERO + secs(3), "{} by {}", report.rows_out, end.at);
    }
}

#[test]
fn a_model_that_is_rechecked_completes_the_rest_once_its_key_is_accepted() {
    let mut scenario = one_column([model("a", 8, millis(100)), model("b", 8, millis(100))], 400);
    scenario.models[0].provider.closures =
        [Closure { starts_at: secs(1), lasts: Some(secs(10)), because: Rejection::KeyRejected }].into();
    // The fallback keeps the run going meanwhile.
    (scenario.columns[0].fallbacks, scenario.recheck) = (["b".into()].into(), Some(secs(3)));
    let (report, end) = finished(&scenario);
    assert_eq!((&report.stop, report.rows_out), (&StopReason::Completed, 400));
    assert!(end.providers[1].accepted > 0);
    assert!(end.at < Instant::ZERO + secs(8), "the fallback is as quick: {}", end.at);
}

#[test]
fn a_run_stops_after_the_outage_patience_and_drops_nothing() {
    let mut scenario = one_column([model("m", 8, millis(100))], 1_000);
    scenario.models[0].provider.outages = [Outage::of_errors(secs(2), secs(3_600))].into();
    for patience in [20, 200] {
        scenario.outage_patience = Some(secs(patience));
        let (report, end) = finished(&scenario);
        assert!(matches!(report.stop, StopReason::ProviderUnavailable { .. }), "{:?}", report.stop);
        let unmade = report.rows_unmade + report.rows_not_started;
        assert_eq!((report.rows_dropped, report.rows_out + unmade), (0, 1_000));
        let waited = end.at.saturating_duration_since(Instant::ZERO + secs(2));
        assert!(waited >= secs(patience) && waited < secs(patience + 2), "{waited}");
    }
}

#[test]
fn tasks_that_wait_for_a_model_that_is_down_hold_no_resources() {
    let mut scenario = one_column([model("m", 1, millis(100))], 50);
    scenario.models[0].provider.outages = [Outage::of_errors(secs(0), secs(60))].into();
    (scenario.models[0].task_limit, scenario.submission_limit) = (Some(8), 8);
    let mut world = World::watched(&scenario, 1).unwrap();
    // While the model is up, at most twice its cap of workers may yield.
    world.advance_to(Instant::ZERO + millis(10));
    let held = |world: &World| world.sample().slots.iter().map(|slot| slot.used).max();
    assert!(held(&world) > Some(1));
    let health = |world: &World| world.admission.stats(world.now(), world.providers[0].resource).map(|now| now.health);
    while !matches!(health(&world), Some(HealthState::Down { .. })) {
        assert!(world.step());
    }
    // Tasks that wait give their resources back, and so do those that start later.
    let next = world.next_event_at().expect("the probe");
    world.advance_to(next.min(world.now() + millis(10)));
    assert_eq!(held(&world), Some(0));
    while world.step() {}
    assert_eq!((world.violation(), world.finished().unwrap().rows_out), (None, 50));
}
