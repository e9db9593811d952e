//! Tests that a replayed log gives the same decisions.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;
use crate::limit::Fixed;
use crate::pipeline::{Column, Pipeline, PipelineConfig, PlanBuilder, Strategy};
use crate::request::RequestCommand;
use crate::request::{Domain, RequestAdmission, RequestConfig};
use crate::sim::scenario::builtin;
use crate::sim::world::World;
use crate::time::Instant;

/// Runs the first built-in scenario. Returns its header, its log and its digests.
fn log_of(seed: u64) -> (Header, Vec<Stamped<Command>>, (u64, u64)) {
    let (header, mut world) = World::recorded(&builtin()[0], seed).unwrap();
    while world.step() {}
    (header, world.take_commands(), world.decision_digests())
}

fn replayed(header: &Header, log: &[Stamped<Command>]) -> Result<(u64, u64), ReplayError> {
    let mut replay = Replay::new(header)?;
    log.iter().try_for_each(|entry| replay.apply(entry))?;
    Ok(replay.digest())
}

#[test]
fn every_built_in_scenario_is_replayed_to_the_same_digests() {
    for scenario in builtin() {
        let (header, mut world) = World::recorded(&scenario, 7).unwrap();
        while world.step() {}
        assert_eq!(replayed(&header, &world.take_commands()), Ok(world.decision_digests()), "{}", scenario.name);
    }
}

#[test]
fn recording_changes_no_decision_and_is_off_by_default() {
    let mut plain = World::new(&builtin()[0], 3).unwrap();
    let (_, mut recorded) = World::recorded(&builtin()[0], 3).unwrap();
    while plain.step() {}
    while recorded.step() {}
    assert_eq!(plain.digest(), recorded.digest());
    assert!(plain.take_commands().is_empty() && plain.decision_digests() == (0, 0));
}

#[test]
fn different_decisions_have_different_digests() {
    let (header, mut log, digests) = log_of(1);
    assert_ne!(log_of(2).2, digests);
    // Changes the first answer into a rate limit.
    let completion = log.iter_mut().find_map(|entry| match &mut entry.command {
        Command::Request(RequestCommand::Finish { done, .. }) if done.retry_after.is_none() => Some(done),
        _ => None,
    });
    *completion.unwrap() = crate::request::Completion::rate_limited(None);
    assert_ne!(replayed(&header, &log), Ok(digests));
}

#[test]
fn the_same_tasks_in_other_batches_have_another_digest() {
    let digest = |size| {
        let column = Column::new("a", Strategy::Cell).batched(size);
        let plan = PlanBuilder::new().column(column).build().unwrap();
        let config = PipelineConfig { rows: 4, row_group_size: 4, ..PipelineConfig::default() };
        let mut run = Recorded::new(Pipeline::new(plan, config).unwrap());
        run.start_recording(&Sequence::default());
        run.start(Instant::ZERO);
        while run.poll_effect().is_some() {}
        run.decision_digest()
    };
    assert_ne!(digest(2), digest(4));
    assert_eq!(digest(4), digest(4));
}

#[test]
fn the_replay_of_a_log_fails_at_its_first_gap() {
    let (header, mut log, _) = log_of(1);
    log.remove(100);
    assert_eq!(replayed(&header, &log), Err(ReplayError::Gap { expected: 100, found: 101 }));
}

#[test]
fn a_header_of_another_version_or_with_an_invalid_plan_is_rejected() {
    let (header, ..) = log_of(1);
    let later = Header { schema: SCHEMA + 1, ..header.clone() };
    assert_eq!(Replay::new(&later).unwrap_err(), ReplayError::Schema { found: SCHEMA + 1 });
    let twice = Header { columns: [header.columns.clone(), header.columns.clone()].concat(), ..header };
    assert!(matches!(Replay::new(&twice).unwrap_err(), ReplayError::Plan(_)));
}

#[test]
fn the_replay_of_a_custom_limit_algorithm_fails_with_its_entry() {
    let plan = PlanBuilder::new().column(Column::new("a", Strategy::Cell)).build().unwrap();
    let header = Header::new(&plan, &PipelineConfig::default(), &RequestConfig::default());
    let mut admission = Recorded::new(RequestAdmission::new(RequestConfig::default()).unwrap());
    admission.start_recording(&Sequence::default());
    let model = admission.register(Instant::ZERO, "p", "m", "a", 4).unwrap();
    let chat = admission.resource(model, Domain::Chat).expect("a known model");
    admission.set_algorithm(Instant::ZERO, chat, alloc::boxed::Box::new(Fixed::new(2))).unwrap();
    let log = merge(Vec::new(), admission.take_commands());
    let error = replayed(&header, &log).unwrap_err();
    assert_eq!(error.to_string(), "entry 2: a limit algorithm is code of the host's own, which a log cannot hold");
}
