//! Tests that a run whose limit several processes share is replayed to the same digests.

use alloc::rc::Rc;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cell::Cell;

use super::*;
use crate::budget::{BudgetConfig, Dimension};
use crate::gate::{Gate, SharedLimit};
use crate::limit::{LimitChoice, LimitConfig, TideConfig};
use crate::pipeline::{Column, PipelineConfig, PlanBuilder, Strategy};
use crate::request::{Domain, Outcome, Request, RequestAdmission, RequestCommand, RequestConfig};
use crate::runtime::{Spawn, Timer};
use crate::share::{
    Decided, LeaderCommand, MemberCommand, MemberShare, MemoryStore, OnLoss, Role, SessionSettings, ShareConfig,
    StoreStep,
};
use crate::sim::executor::{Executor, SimHost};
use crate::sim::rng::Rng;
use crate::time::{Clock, Duration, Instant};

type Log = Vec<Stamped<Command>>;

/// Returns whether a command is of one kind.
type IsKind = fn(&RequestCommand) -> bool;

/// A process that shares its only limit. Its callers, if it has any, make calls all the time.
struct Process {
    gate: Gate<SimHost>,
    shared: SharedLimit<SimHost, parking_lot::RawMutex>,
    /// The number of its calls so far.
    calls: Rc<Cell<u32>>,
    is_cut_off: bool,
}

impl Process {
    fn start(host: &SimHost, settings: &SessionSettings, seed: u64, callers: u64) -> Self {
        let mut machine = Recorded::new(RequestAdmission::new(RequestConfig::default()).unwrap());
        machine.start_recording(&Sequence::default());
        let gate = Gate::new(host.clone(), machine);
        let resource = gate.with(|machine, now| {
            let model = machine.register(now, "p", "m", "default", 16).unwrap();
            let resource = machine.resource(model, Domain::Chat).unwrap();
            let budget = BudgetConfig::per(Duration::from_secs(1), Dimension::Requests, 40);
            machine.set_budgets(now, resource, &[budget]).unwrap();
            resource
        });
        let mut rng = Rng::new(seed);
        let random = || rng.next_u64() >> 11;
        let shared = SharedLimit::install(&gate, resource, settings.clone(), random).unwrap();
        let calls = Rc::<Cell<u32>>::default();
        for caller in 0..callers {
            let (gate, host, calls, mut rng) = (gate.clone(), host.clone(), Rc::clone(&calls), rng.fork(caller));
            let spawner = host.clone();
            spawner.spawn(async move {
                loop {
                    let request = Request::new(resource).within(Duration::from_millis(400));
                    let permit = gate.acquire_owned(request).await;
                    host.sleep_until(host.now() + Duration::from_millis(1 + rng.below(300))).await;
                    if let Ok(permit) = permit {
                        calls.set(calls.get() + 1);
                        let is_refused = rng.below(20) == 0;
                        permit.finish(if is_refused { Outcome::RateLimited } else { Outcome::Success });
                    }
                }
            });
        }
        Self { gate, shared, calls, is_cut_off: false }
    }

    /// Carries out every step that is due.
    fn drive(&self, store: &mut MemoryStore) {
        loop {
            self.shared.update();
            let next = Role::ALL.into_iter().find_map(|role| Some((role, self.shared.poll_step(role)?)));
            let Some((role, step)) = next else { return };
            let reply = if self.is_cut_off { Err("it is unreachable".to_string()) } else { Ok(store.run(step)) };
            self.shared.on_reply(role, reply);
        }
    }

    /// Returns its log and the digest of its decisions.
    fn log(&self) -> (Log, u64) {
        self.gate.with(|machine, _| (merge(Vec::new(), machine.take_commands()), machine.decision_digest()))
    }
}

/// Two processes and their store, in virtual time.
struct World {
    executor: Executor,
    store: MemoryStore,
    processes: [Process; 2],
}

impl World {
    fn start(on_loss: OnLoss, choice: LimitChoice, callers: u64) -> Self {
        let executor = Executor::new();
        let share = ShareConfig { on_loss, ..ShareConfig::default() };
        let settings = SessionSettings { share, choice, limit: LimitConfig::default() };
        let processes = [1, 2].map(|seed| Process::start(&executor.host(), &settings, seed, callers));
        Self { executor, store: MemoryStore::default(), processes }
    }

    fn pass(&mut self, span: Duration) {
        let end = self.executor.host().now() + span;
        while self.executor.host().now() < end {
            self.executor.run_until(self.executor.host().now() + Duration::from_millis(5));
            self.processes.iter().for_each(|process| process.drive(&mut self.store));
        }
    }

    /// Runs two processes of which one is cut off from the store until its lease has lapsed and it is alone,
    /// then both while the machine is suspended, and then one after the other has left.
    fn run(on_loss: OnLoss, choice: LimitChoice) -> Self {
        let mut world = Self::start(on_loss, choice, 12);
        let [leader, member] = [0, 1];
        world.pass(Duration::from_secs(3));
        assert!(world.processes.iter().all(|process| process.shared.state().has_lease));
        world.processes[member].is_cut_off = true;
        world.pass(Duration::from_secs(11));
        let calls = world.processes[member].calls.get();
        world.pass(Duration::from_secs(2));
        assert!(!world.processes[member].shared.state().has_lease);
        assert_eq!(world.processes[member].calls.get() > calls, on_loss != OnLoss::Stop, "{on_loss:?}");
        world.processes[member].is_cut_off = false;
        world.pass(Duration::from_secs(7));
        assert!(world.processes.iter().all(|process| process.shared.state().has_lease));
        world.executor.host().suspend(Duration::from_secs(6));
        world.pass(Duration::from_secs(3));
        world.processes[leader].shared.leave();
        world.pass(Duration::from_secs(2));
        assert!(world.processes[leader].shared.has_ended() && world.processes[member].shared.state().is_leader);
        world
    }
}

fn tide() -> LimitChoice {
    LimitChoice::Tide(TideConfig::default())
}

fn header() -> Header {
    let plan = PlanBuilder::new().column(Column::new("a", Strategy::Cell)).build().unwrap();
    Header::new(&plan, &PipelineConfig::default(), &RequestConfig::default())
}

/// Returns the digest of the decisions of request admission.
fn replayed(log: &[Stamped<Command>]) -> Result<u64, ReplayError> {
    let mut replay = Replay::new(&header())?;
    log.iter().try_for_each(|entry| replay.apply(entry))?;
    Ok(replay.digest().1)
}

/// Returns the log without the commands that `is_left_out`, numbered anew.
fn without(log: &[Stamped<Command>], is_left_out: impl Fn(&RequestCommand) -> bool) -> Log {
    let is_kept = |entry: &&Stamped<Command>| match &entry.command {
        Command::Request(command) => !is_left_out(command),
        Command::Pipeline(_) => true,
    };
    let kept = log.iter().filter(is_kept).cloned();
    kept.zip(0..).map(|(entry, n)| Stamped { n, ..entry }).collect()
}

#[test]
fn processes_that_share_a_limit_are_replayed_to_the_same_digests_also_across_a_lost_lease() {
    for choice in [tide(), LimitChoice::Aimd] {
        for on_loss in [OnLoss::Share, OnLoss::Stop, OnLoss::Alone] {
            for process in &World::run(on_loss, choice).processes {
                let (log, digest) = process.log();
                assert_eq!(replayed(&log), Ok(digest), "{on_loss:?}");
            }
        }
    }
}

#[test]
fn a_call_that_is_made_right_after_the_machine_was_suspended_starts_on_no_lapsed_lease() {
    let mut world = World::start(OnLoss::Alone, LimitChoice::Fixed { limit: 16 }, 0);
    world.pass(Duration::from_secs(1));
    let acquire = |process: &Process| {
        let resource = process.gate.with(|machine, _| machine.resources().next()).expect("it is registered");
        let request = Request::new(resource);
        (process.gate.try_acquire_owned(request), request)
    };
    let [(first, request), (second, _)] = world.processes.each_ref().map(acquire);
    let [first, second] = [first, second].map(|permit| permit.expect("it has a share"));
    assert!(first.may_send() && second.may_send());
    world.executor.host().suspend(Duration::from_secs(6));
    // Each is the first thing that its gate does.
    assert!(world.processes[0].gate.try_acquire_owned(request).is_err());
    assert!(!second.may_send());
    drop((first, second));
    for process in &world.processes {
        let (log, digest) = process.log();
        assert_eq!(replayed(&log), Ok(digest));
    }
}

/// Returns whether a command is one of the member, of this kind.
fn drives(command: &RequestCommand, is_kind: fn(&MemberCommand) -> bool) -> bool {
    matches!(command, RequestCommand::DriveMember { command, .. } if is_kind(command))
}

#[test]
fn the_state_of_a_share_shows_a_lapsed_lease_right_after_the_machine_was_suspended() {
    let mut world = World::start(OnLoss::Stop, LimitChoice::Fixed { limit: 16 }, 0);
    world.pass(Duration::from_secs(1));
    let shared = &world.processes[0].shared;
    assert!(shared.state().has_lease);
    let due = shared.poll_timeout().unwrap();
    world.executor.host().suspend(Duration::from_secs(6));
    assert!(shared.poll_timeout().unwrap() < due, "the beat is due earlier");
    world.executor.host().suspend(Duration::from_secs(6));
    assert!(!shared.state().has_lease);
}

#[test]
fn a_leader_that_was_suspended_reclaims_a_share_no_earlier_than_its_holder_stops() {
    let mut world = World::start(OnLoss::Stop, LimitChoice::Fixed { limit: 16 }, 0);
    world.pass(Duration::from_secs(2));
    let World { executor, store, processes: [leader, holder] } = &mut world;
    let host = executor.host();
    assert!(leader.shared.state().is_leader && leader.shared.state().share < 16);
    // The reply to the leader has a report of the holder, and is the first thing after the suspension.
    let step = loop {
        executor.run_until(host.now() + Duration::from_millis(5));
        holder.drive(store);
        leader.shared.update();
        match leader.shared.poll_step(Role::Leader) {
            Some(step @ StoreStep::ReportsSince(_)) => break step,
            Some(step) => leader.shared.on_reply(Role::Leader, Ok(store.run(step))),
            None => leader.drive(store),
        }
    };
    for _ in 0..240 {
        executor.run_until(host.now() + Duration::from_millis(5));
        holder.drive(store);
    }
    let reply = store.run(step);
    host.suspend(Duration::from_secs(2));
    leader.shared.on_reply(Role::Leader, Ok(reply));
    let received = host.now();
    // The bound ends the test if it never does.
    while leader.shared.state().share < 16 && host.now() < received + Duration::from_secs(10) {
        executor.run_until(host.now() + Duration::from_millis(5));
        leader.drive(store);
    }
    let waited = host.now() - received;
    assert!(waited >= Duration::from_millis(5_050) && waited < Duration::from_secs(7), "{waited:?}");
}

#[test]
fn a_log_without_one_kind_of_input_of_a_share_is_replayed_to_another_digest() {
    let world = World::run(OnLoss::Share, tide());
    let [(log, digest), (others, other_digest)] = [0, 1].map(|process| world.processes[process].log());
    let kinds: [(&str, IsKind); 7] = [
        ("the share", |command| matches!(command, RequestCommand::ShareLimit { .. })),
        ("timeouts", |command| drives(command, |command| *command == MemberCommand::HandleTimeout)),
        ("hurries", |command| drives(command, |command| *command == MemberCommand::Hurry)),
        ("decisions", |command| drives(command, |command| matches!(command, MemberCommand::OnDecision(_)))),
        ("suspensions", |command| matches!(command, RequestCommand::SetSuspended { .. })),
        ("changes of the limit", |command| matches!(command, RequestCommand::RefreshLimit { .. })),
        ("leases of budgets", |command| matches!(command, RequestCommand::LeaseBudgets { .. })),
    ];
    for (kind, is_kind) in kinds {
        assert_ne!(replayed(&without(&others, is_kind)), Ok(other_digest), "{kind}");
    }
    let leaves = |command: &RequestCommand| drives(command, |command| *command == MemberCommand::Leave);
    assert_ne!(replayed(&without(&log, leaves)), Ok(digest));
}

/// Returns the commands of the leader of a process, in their order.
fn leader_commands(log: &mut Log) -> impl Iterator<Item = &mut LeaderCommand> {
    log.iter_mut().filter_map(|entry| match &mut entry.command {
        Command::Request(RequestCommand::DriveLeader { command, .. }) => Some(command),
        _ => None,
    })
}

#[test]
fn the_log_of_each_process_that_has_led_has_its_takeover_its_reports_and_that_it_has_left() {
    let world = World::run(OnLoss::Share, tide());
    let commands = |process: usize| {
        let (mut log, _) = world.processes[process].log();
        leader_commands(&mut log).map(|command| command.clone()).collect::<Vec<_>>()
    };
    let [first, second] = [0, 1].map(commands);
    assert!(matches!(&first[0], LeaderCommand::TakeOver { lead, .. } if lead.snapshot.is_none()));
    assert!(matches!(&first[1], LeaderCommand::SetBudgets(_)));
    let [.., last_but_two, last_but_one, last] = &first[..] else { panic!("it has led") };
    assert_eq!(*last_but_two, LeaderCommand::Leave);
    assert!(matches!((last_but_one, last), (LeaderCommand::OnReports(_), LeaderCommand::OnDecided(_))));
    assert!(matches!(&second[0], LeaderCommand::TakeOver { lead, .. } if lead.snapshot.is_some()));
    for commands in [first, second] {
        let is_set =
            |command: &&LeaderCommand| matches!(command, LeaderCommand::SetCap(_) | LeaderCommand::SetBudgets(_));
        let takeovers = commands.iter().filter(|command| matches!(command, LeaderCommand::TakeOver { .. })).count();
        assert_eq!(commands.iter().filter(is_set).count(), takeovers, "only changes are recorded");
    }
}

#[test]
fn a_log_in_which_one_input_of_a_leader_was_changed_is_replayed_to_another_digest() {
    type Change = fn(&mut LeaderCommand) -> bool;
    let world = World::run(OnLoss::Share, tide());
    let [(log, digest), (other_log, other_digest)] = [0, 1].map(|process| world.processes[process].log());
    let changes: [(&str, Change); 6] = [
        ("the highest limit", |command| match command {
            LeaderCommand::TakeOver { cap, .. } => core::mem::replace(cap, 1) != 1,
            _ => false,
        }),
        ("a budget", |command| match command {
            LeaderCommand::SetBudgets(budgets) => core::mem::replace(&mut budgets[0].limit, 1) != 1,
            _ => false,
        }),
        ("the number of a report", |command| match command {
            LeaderCommand::OnReports(reports) => reports.first_mut().map(|report| report.seq += 1).is_some(),
            _ => false,
        }),
        ("the outcome of a call", |command| match command {
            LeaderCommand::OnReports(reports) => {
                let ends = reports.iter_mut().flat_map(|report| &mut report.ends);
                let mut ends = ends.filter(|end| end.outcome == Outcome::Success && end.version > 0);
                ends.next().map(|end| end.outcome = Outcome::RateLimited).is_some()
            }
            _ => false,
        }),
        ("a reply to a decision", |command| match command {
            LeaderCommand::OnDecided(Decided { version, .. }) => {
                *version += 1_000;
                true
            }
            _ => false,
        }),
        ("that it leaves", |command| {
            let no_change = LeaderCommand::SetCap(16);
            *command == LeaderCommand::Leave && core::mem::replace(command, no_change) == LeaderCommand::Leave
        }),
    ];
    for (what, change) in changes {
        let mut log = log.clone();
        assert!(leader_commands(&mut log).any(change), "{what}");
        assert_ne!(replayed(&log), Ok(digest), "{what}");
    }
    let mut log = other_log;
    let snapshot = leader_commands(&mut log).find_map(|command| match command {
        LeaderCommand::TakeOver { lead, .. } => lead.snapshot.as_mut(),
        _ => None,
    });
    snapshot.expect("it continues from the first").version += 1;
    assert_ne!(replayed(&log), Ok(other_digest));
}

#[test]
fn a_leader_whose_highest_limit_and_budgets_change_is_replayed_to_the_same_digest() {
    let mut world = World::start(OnLoss::Share, tide(), 12);
    world.pass(Duration::from_secs(2));
    let [leader, _] = &world.processes;
    let resource = leader.gate.with(|machine, now| {
        machine.register(now, "p", "m", "smaller", 3).unwrap();
        machine.resources().next().expect("it is registered")
    });
    world.pass(Duration::from_secs(1));
    let [leader, _] = &world.processes;
    let budget = BudgetConfig::per(Duration::from_secs(1), Dimension::Requests, 5);
    leader.gate.with(|machine, now| machine.set_budgets(now, resource, &[budget]).unwrap());
    world.pass(Duration::from_secs(1));
    let (mut log, digest) = world.processes[0].log();
    assert_eq!(replayed(&log), Ok(digest));
    let changes = [LeaderCommand::SetCap(3), LeaderCommand::SetBudgets([budget].to_vec())];
    for change in changes {
        assert_eq!(leader_commands(&mut log).filter(|command| **command == change).count(), 1);
    }
}

#[test]
fn a_member_that_is_not_the_limit_any_more_is_driven_without_effect_also_in_the_replay() {
    let mut world = World::start(OnLoss::Alone, tide(), 12);
    world.pass(Duration::from_secs(1));
    let mut rng = Rng::new(9);
    let [process, _] = &mut world.processes;
    let gate = process.gate.clone();
    let resource = gate.with(|machine, _| machine.resources().next()).expect("it is registered");
    let settings = SessionSettings { share: ShareConfig::default(), choice: tide(), limit: LimitConfig::default() };
    let new = SharedLimit::install(&gate, resource, settings, || rng.next_u64() >> 11).unwrap();
    let old = core::mem::replace(&mut process.shared, new);
    let old = Process { gate: gate.clone(), shared: old, calls: Rc::default(), is_cut_off: false };
    for step in 0..1_200 {
        world.pass(Duration::from_millis(5));
        old.drive(&mut world.store);
        match step {
            500 => old.shared.leave(),
            // The new one is driven on, too.
            900 => gate.with(|machine, now| machine.choose_algorithm(now, resource, LimitChoice::Aimd).unwrap()),
            _ => {}
        }
    }
    let (log, digest) = world.processes[0].log();
    assert_eq!(replayed(&log), Ok(digest));
}

#[test]
fn a_recorded_decision_has_the_share_of_its_member_and_only_the_keys_of_the_others() {
    let mut world = World::start(OnLoss::Share, tide(), 12);
    world.pass(Duration::from_secs(2));
    for process in &world.processes {
        let (log, _) = process.log();
        let is_driven = |entry: &Stamped<Command>| match &entry.command {
            Command::Request(RequestCommand::DriveMember {
                id, command: MemberCommand::OnDecision(decision), ..
            }) => Some((*id, decision.clone())),
            _ => None,
        };
        let decisions: Vec<_> = log.iter().filter_map(is_driven).collect();
        assert!(decisions.iter().any(|(id, decision)| decision.shares.len() == 2 && decision.shares[id].share > 0));
        for (id, decision) in decisions {
            let others = decision.shares.iter().filter(|(member, _)| **member != id);
            assert!(others.into_iter().all(|(_, share)| *share == MemberShare::default()));
        }
    }
}

#[test]
fn the_budgets_of_a_resource_without_any_are_not_recorded() {
    let mut machine = Recorded::new(RequestAdmission::new(RequestConfig::default()).unwrap());
    let model = machine.register(Instant::ZERO, "p", "m", "default", 1).unwrap();
    let resource = machine.resource(model, Domain::Chat).unwrap();
    machine.start_recording(&Sequence::default());
    assert!(machine.report_budgets(Instant::ZERO, resource).is_empty() && machine.take_commands().is_empty());
    machine
        .set_budgets(Instant::ZERO, resource, &[BudgetConfig::per(Duration::from_secs(1), Dimension::Requests, 1)])
        .unwrap();
    machine.report_budgets(Instant::ZERO, resource);
    assert_eq!(machine.take_commands().len(), 2);
}

#[cfg(feature = "redis")]
#[test]
fn the_commands_of_a_shared_limit_are_read_as_they_were_written() {
    let world = World::run(OnLoss::Share, tide());
    for entry in world.processes.iter().flat_map(|process| process.log().0) {
        let line = LogLine::command(entry);
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<LogLine>(&text).unwrap(), line, "{text}");
    }
}
