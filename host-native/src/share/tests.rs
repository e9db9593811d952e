//! Tests of the stores against one contract, and of the driver in virtual time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration as StdDuration;

use tidegate_core::budget::{BudgetConfig, BudgetKey, Dimension, WalletReport};
use tidegate_core::gate::OwnedPermit;
use tidegate_core::request::{Outcome, Request};
use tidegate_core::share::{
    Decide, Decided, Decision, KnownMember, Lead, LeaderSnapshot, MemberId, MemberReport, MemoryStore, Reports,
    StoreReply, StoreStep, TakeLead, Term,
};

use super::store::StoreError;
use super::*;
use crate::gate::{Limits, RequestGate, ResourceKey};
use crate::redis_server::RedisServer;

/// A store in memory that can be made unreachable. Clones are handles to the same store.
#[derive(Clone, Default)]
struct TestStore {
    store: Arc<Mutex<MemoryStore>>,
    is_unreachable: Arc<AtomicBool>,
}

impl TestStore {
    fn step<T>(&self, step: impl FnOnce(&mut MemoryStore) -> T) -> Result<T, StoreError> {
        if self.is_unreachable.load(Ordering::Relaxed) {
            return Err(StoreError::Failed("it is unreachable".to_string()));
        }
        Ok(step(&mut self.store.lock()))
    }

    fn set_unreachable(&self, is_unreachable: bool) {
        self.is_unreachable.store(is_unreachable, Ordering::Relaxed);
    }

    fn flush(&self) {
        *self.store.lock() = MemoryStore::default();
    }
}

impl Store for TestStore {
    async fn run(&self, step: StoreStep) -> Result<StoreReply, StoreError> {
        self.step(|store| store.run(step))
    }
}

/// Returns the answer to a step as its own type.
macro_rules! answer {
    ($store:ident, $step:expr, $kind:ident) => {
        $store.run($step).await.map(|answer| match answer {
            StoreReply::$kind(answer) => answer,
            other => panic!("the answer to another step: {other:?}"),
        })
    };
}

/// The steps of a store as methods.
trait Steps: Store {
    async fn report(&self, report: MemberReport) -> Result<(), StoreError> {
        self.run(StoreStep::Report(report)).await.map(|answer| assert_eq!(answer, StoreReply::Reported))
    }

    async fn reports_since(&self, since: u64) -> Result<Reports, StoreError> {
        answer!(self, StoreStep::ReportsSince(since), Reports)
    }

    async fn decide(&self, decide: Decide, read: u64) -> Result<Decided, StoreError> {
        answer!(self, StoreStep::Decide { decide, read }, Decided)
    }

    async fn take_lead(&self, request: TakeLead) -> Result<Lead, StoreError> {
        answer!(self, StoreStep::TakeLead(request), Lead)
    }

    async fn decisions_since(&self, term: Term, version: u64) -> Result<Option<Decision>, StoreError> {
        answer!(self, StoreStep::DecisionsSince { term, version }, Decision)
    }
}

impl<S: Store> Steps for S {}

fn budget() -> BudgetKey {
    BudgetKey::of_each(&[BudgetConfig::per_minute(Dimension::Requests, 1)]).next().unwrap()
}

fn report(member: u64, seq: u64) -> MemberReport {
    let (started, ended, ends, groups) = (3, 1, Vec::new(), Vec::new());
    let wallet = WalletReport { granted: 5, left: 1, spent: 4, call: 0, need: 2 };
    let (leaves, budgets) = (false, [(budget(), wallet)].into());
    MemberReport { member: MemberId(member), seq, version: 0, share: 0, started, ended, ends, groups, leaves, budgets }
}

fn decide(term: Term, version: u64, members: &[u64]) -> Decide {
    let known = KnownMember { seq: 1, ended: 0, in_flight: 0, occupied: 0, budgets: [].into() };
    let members = members.iter().map(|id| (MemberId(*id), known.clone())).collect();
    let shares = std::collections::BTreeMap::new();
    Decide {
        decision: Decision {
            term,
            version,
            limit: 7,
            pause_ms: 0,
            beat_ms: 100,
            leader_leaves: false,
            is_scarce: false,
            shares,
        },
        snapshot: LeaderSnapshot {
            version,
            limit: 7,
            interval_ns: None,
            cut_version: 0,
            members,
            budgets: [(budget(), -3)].into(),
        },
    }
}

/// Checks every step of an empty store.
async fn check_contract(store: &impl Store) {
    let (first, second) = (Term { epoch: 1, nonce: 5 }, Term { epoch: 2, nonce: (1 << 53) - 1 });
    let seqs = |reports: &Reports| {
        let mut seqs: Vec<_> = reports.reports.iter().map(|report| (report.member.0, report.seq)).collect();
        seqs.sort_unstable();
        seqs
    };

    // The newest report of each member is kept. A repeated or older one changes nothing.
    assert_eq!(store.reports_since(0).await, Ok(Reports::default()));
    for seq in [1, 2, 2, 1] {
        store.report(report(1, seq)).await.unwrap();
    }
    store.report(report(1 << 53, 9)).await.unwrap();
    let all = store.reports_since(0).await.unwrap();
    assert_eq!((seqs(&all), all.next), (vec![(1, 2), (1 << 53, 9)], 3));
    assert!(all.reports.contains(&report(1, 2)), "a report is returned as it was written");
    assert_eq!(seqs(&store.reports_since(2).await.unwrap()), [(1 << 53, 9)]);
    assert_eq!(seqs(&store.reports_since(3).await.unwrap()), []);
    assert_eq!(seqs(&store.reports_since(4).await.unwrap()).len(), 2, "a store that lost writes returns all");

    // The first leader takes the lead, also if its request is repeated. A second one must know its term.
    let request = TakeLead { expected: Term::default(), term: first };
    for _ in 0..2 {
        assert_eq!(store.take_lead(request).await, Ok(Lead { term: first, snapshot: None, is_damaged: false }));
    }
    let late = TakeLead { expected: Term::default(), term: second };
    assert_eq!(store.take_lead(late).await.map(|lead| lead.term), Ok(first));

    // A decision is kept if its term is the present one and its version is new.
    assert_eq!(store.decisions_since(Term::default(), 0).await, Ok(None));
    let two = decide(first, 2, &[1, 1 << 53]);
    let is_newest = Ok(Decided { term: first, version: 2 });
    assert_eq!(store.decide(two.clone(), 3).await, is_newest);
    assert_eq!(store.decide(decide(first, 1, &[]), 3).await, is_newest, "a stale version is rejected");
    assert_eq!(store.decide(decide(second, 3, &[]), 3).await, is_newest);
    assert_eq!(store.decisions_since(Term::default(), 0).await, Ok(Some(two.decision.clone())));
    assert_eq!(store.decisions_since(first, 1).await, Ok(Some(two.decision.clone())));
    assert_eq!(store.decisions_since(first, 2).await, Ok(None), "it is known");
    assert_eq!(store.reports_since(0).await.unwrap().reports.len(), 2, "rejected decisions drop no reports");

    // A successor gets the snapshot, and the old leader is fenced off.
    let request = TakeLead { expected: first, term: second };
    let lead = Lead { term: second, snapshot: Some(two.snapshot), is_damaged: false };
    assert_eq!(store.take_lead(request).await, Ok(lead));
    assert_eq!(store.decide(decide(first, 3, &[]), 3).await, Ok(Decided { term: second, version: 2 }));
    assert_eq!(store.decisions_since(first, 2).await, Ok(None));

    // The reports of members that are gone are dropped if the leader has read them.
    store.report(report(2, 1)).await.unwrap();
    assert_eq!(store.decide(decide(second, 3, &[1]), 3).await, Ok(Decided { term: second, version: 3 }));
    assert_eq!(seqs(&store.reports_since(0).await.unwrap()), [(1, 2), (2, 1)]);
}

#[tokio::test]
async fn the_store_in_memory_keeps_the_contract() {
    check_contract(&TestStore::default()).await;
}

#[tokio::test]
async fn the_store_on_redis_keeps_the_contract_also_with_a_password_and_after_a_loss_of_its_data() {
    let mut server = RedisServer::start_with_password();
    let connection = Arc::new(Connection::open(&ShareSettings::new(&server.url(), "prod")).await.unwrap());
    let store = |limit| RedisStore::new(Arc::clone(&connection), "prod", limit);
    check_contract(&store("acme/{odd} model/chat")).await;
    // Another limit has its own state.
    check_contract(&store("acme/other/chat")).await;
    server.send("FLUSHALL").unwrap();
    check_contract(&store("acme/other/chat")).await;
    server.stop();
    store("acme/third/chat").report(report(1, 1)).await.unwrap_err();
    server.restart();
    check_contract(&store("acme/third/chat")).await;
}

#[tokio::test]
async fn a_leader_arises_whatever_the_values_in_the_store_are() {
    let server = RedisServer::start();
    let connection = Arc::new(Connection::open(&ShareSettings::new(&server.url(), "prod")).await.unwrap());
    let (first, second) = (Term { epoch: 1, nonce: 1 }, Term { epoch: 2, nonce: 2 });
    let huge = ["99999999999999999999 1", "9007199254740993 1", "9999999999999999999", "9007199254740992", "1e30"];
    for damaged in ["x", "{}", "-1", "\"\"", "1 2 3", "1e9", "inf", "nan"].into_iter().chain(huge) {
        let store = RedisStore::new(Arc::clone(&connection), "prod", &format!("acme/{}/chat", damaged.len()));
        let value = format!("'{damaged}'");
        let (state, reports) = (store.limit.state(), store.limit.reports());
        server.send(&format!("HSET {state} term {value} version {value} decision {value} snapshot {value}")).unwrap();
        server.send(&format!("HSET {reports} position {value} 7 \"1 1 nonsense\" 8 {value}")).unwrap();
        assert!(store.decisions_since(Term::default(), 0).await.is_err());
        let lead = store.take_lead(TakeLead { expected: Term::default(), term: first }).await;
        assert_eq!(lead, Ok(Lead { term: first, snapshot: None, is_damaged: true }), "{damaged}");
        let decided = store.decide(decide(first, 1, &[]), 0).await;
        assert_eq!(decided, Ok(Decided { term: first, version: 1 }), "{damaged}");
        assert_eq!(store.decisions_since(Term::default(), 0).await.unwrap().unwrap().version, 1);
        // A damaged report is left out: the others must not stop.
        store.report(report(1, 1)).await.unwrap();
        store.report(report(8, 9)).await.unwrap();
        assert_eq!(store.reports_since(0).await.unwrap().reports.len(), 2, "{damaged}");
        // A position that is damaged later hides no report.
        server.send(&format!("HSET {reports} position {value}")).unwrap();
        let next = store.reports_since(0).await.unwrap().next;
        store.report(report(1, 2)).await.unwrap();
        let later = store.reports_since(next).await.unwrap();
        assert!(later.reports.contains(&report(1, 2)), "{damaged}: {later:?}");
        let next = later.next;
        store.report(report(1, 3)).await.unwrap();
        assert!(store.reports_since(next).await.unwrap().reports.contains(&report(1, 3)), "{damaged}");
        // A term or a version that is damaged later counts as none.
        server.send(&format!("HSET {state} term {value} version {value}")).unwrap();
        let decided = store.decide(decide(second, 2, &[]), 0).await;
        assert_eq!(decided, Ok(Decided { term: second, version: 2 }), "{damaged}");
        server.send(&format!("DEL {state} {reports}")).unwrap();
    }
}

#[tokio::test]
async fn the_driver_takes_the_lead_of_a_store_with_a_damaged_snapshot_and_says_so() {
    let server = RedisServer::start();
    let connection = Arc::new(Connection::open(&ShareSettings::new(&server.url(), "prod")).await.unwrap());
    let store = RedisStore::new(connection, "prod", "acme/m/chat");
    let state = store.limit.state();
    server.send(&format!("HSET {state} term \"5 5\" version 7 decision nonsense snapshot nonsense")).unwrap();
    let process =
        Process::start_in(store, &Limits::at_most(8).with_algorithm(LimitChoice::Fixed { limit: 8 }), OnLoss::Stop);
    let is_leader = async {
        while !process.state().is_leader || process.state().members == 0 {
            tokio::time::sleep(StdDuration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_mins(1), is_leader).await.unwrap();
    let text = process.shared.status().to_string();
    assert!(text.ends_with("the store: its snapshot cannot be read, so the limit is learned anew"), "{text}");
}

#[tokio::test]
async fn a_server_that_cannot_be_written_to_is_an_error_at_the_start() {
    let server = RedisServer::start();
    server.send("REPLICAOF 127.0.0.1 1").unwrap();
    let error = Connection::open(&ShareSettings::new(&server.url(), "prod")).await.err().unwrap().to_string();
    assert!(error.contains("it is a replica that cannot be written to"), "{error}");
}

#[tokio::test]
async fn a_gate_shares_once_and_a_shared_model_keeps_its_algorithm_when_it_is_registered_again() {
    let server = RedisServer::start();
    let settings = ShareSettings::new(&server.url(), "prod");
    let gate = RequestGate::new().unwrap();
    gate.share(Share::connect(&settings).await.unwrap()).unwrap();
    assert_eq!(gate.share(Share::connect(&settings).await.unwrap()), Err(ShareError::AlreadyShared));
    let (key, limits) = (ResourceKey::chat("acme", "m"), Limits::at_most(8));
    let resource = gate.register(&key, &limits).unwrap();
    let started = |gate: &RequestGate| gate.core().try_acquire_owned(Request::new(resource)).is_ok();
    assert!(!started(&gate), "it has no share yet");
    gate.register(&key, &Limits::at_most(4)).unwrap();
    assert!(!started(&gate), "it starts no call without a share");
    assert_eq!(gate.snapshot(&key).unwrap().effective_max, 4);
    assert!(gate.share_status(&key).is_some());
    let error = gate.register(&key, &limits.with_algorithm(LimitChoice::Aimd)).unwrap_err().to_string();
    assert!(error.contains("the algorithm of a shared limit"), "{error}");
}

#[tokio::test]
async fn settings_that_cannot_work_are_errors_without_the_password() {
    let connect = async |url: &str, name: &str| {
        let settings = ShareSettings::new(url, name);
        assert!(!format!("{settings:?}").contains("secret"));
        let error = Share::connect(&settings).await.unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
        error
    };
    assert!(connect("", "prod").await.contains("the address of the store is missing"));
    let without_name = "redis+sentinel://:secret@host:1,host:2";
    let unknown_parameter = "redis+sentinel://host:1/main?password=secret";
    let unknown_part = "redis+sentinel://host:1/main/0/secret";
    let sentinels = [without_name, unknown_parameter, unknown_part, "redis+sentinel://:secret@/main"];
    for url in ["secret", "http://host:1/secret", "redis://:secret@host:port"].into_iter().chain(sentinels) {
        let error = connect(url, "prod").await;
        assert!(error.contains("redis://host:port"), "{error}");
    }
    for name in ["", "a b", "a}b", &"n".repeat(65)] {
        assert!(connect("redis://:secret@127.0.0.1:1", name).await.contains("letters, digits"));
    }
    let unreachable = connect("redis://user:secret@127.0.0.1:1/3", "prod").await;
    assert!(unreachable.starts_with("cannot share limits over redis://127.0.0.1:1/3: "), "{unreachable}");
    let two = "rediss+sentinel://user:secret@[::1]:1,127.0.0.1:2/main/3?sentinel_username=u&sentinel_password=secret";
    let unreachable = connect(two, "prod").await;
    let start = "cannot share limits over rediss+sentinel://[::1]:1,127.0.0.1:2/main/3: the sentinels name no primary";
    assert!(unreachable.starts_with(start), "{unreachable}");
    let default_port = connect("redis+sentinel://[::1]/main", "prod").await;
    assert!(default_port.contains("redis+sentinel://[::1]:26379/main/0: "), "{default_port}");
    let certificate = ShareSettings::new("rediss://127.0.0.1:1", "prod").with_client_certificate(b"", b"secret");
    assert!(!format!("{certificate:?}").contains(&format!("{:?}", b"secret")));
    assert_eq!(Share::connect(&certificate).await.unwrap_err(), ShareError::ClientCertificate);
    let with_authorities = async |url: &str, pem: &str| {
        let settings = ShareSettings::new(url, "prod").with_authorities(pem.as_bytes());
        Share::connect(&settings).await.unwrap_err()
    };
    let without_certificate = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for pem in ["", "nothing", without_certificate, &without_certificate.replace("PRIVATE KEY", "CERTIFICATE")] {
        assert_eq!(with_authorities("rediss://:secret@127.0.0.1:1", pem).await, ShareError::Authorities);
    }
    let address = "redis://127.0.0.1:1/0".to_string();
    assert_eq!(with_authorities("redis://:secret@127.0.0.1:1", "").await, ShareError::NoTls { address });
    let server = RedisServer::start_with_password();
    let wrong = connect(&format!("redis://:secret@127.0.0.1:{}", server.port()), "prod").await;
    assert!(wrong.contains(&format!("127.0.0.1:{}", server.port())), "{wrong}");
}

/// A process in virtual time: a gate with one model, which is shared.
struct Process {
    gate: RequestGate,
    resource: ResourceId,
    shared: SharedLimit,
    leaves: watch::Sender<bool>,
    permits: Vec<OwnedPermit<TokioHost>>,
}

impl Process {
    fn start(store: &TestStore, cap: u32, on_loss: OnLoss) -> Self {
        Self::start_with(store, cap, LimitChoice::Fixed { limit: cap }, on_loss)
    }

    fn start_with(store: &TestStore, cap: u32, choice: LimitChoice, on_loss: OnLoss) -> Self {
        Self::start_in(store.clone(), &Limits::at_most(cap).with_algorithm(choice), on_loss)
    }

    fn start_in(store: impl Store, limits: &Limits, on_loss: OnLoss) -> Self {
        let gate = RequestGate::new().unwrap();
        let key = ResourceKey::chat("acme", "m");
        let (resource, choice) = (gate.register(&key, limits).unwrap(), limits.algorithm);
        let share = ShareConfig { on_loss, ..ShareConfig::default() };
        let limit = LimitConfig { ramp: tidegate_core::time::Duration::ZERO, ..LimitConfig::default() };
        let (leaves, left) = watch::channel(false);
        let settings = SessionSettings { share, choice, limit };
        let name = key.to_string();
        let shared = share_limit(gate.core(), resource, &name, settings, store, left).unwrap();
        Self { gate, resource, shared, leaves, permits: Vec::new() }
    }

    /// Starts as many calls as it may. Returns the number of its calls in flight.
    fn start_calls(&mut self) -> usize {
        while let Ok(permit) = self.gate.core().try_acquire_owned(Request::new(self.resource)) {
            self.permits.push(permit);
        }
        self.permits.len()
    }

    fn end_calls(&mut self, outcome: Outcome) {
        for permit in self.permits.drain(..) {
            permit.finish(outcome);
        }
    }

    fn state(&self) -> MemberState {
        self.shared.status().member
    }
}

/// Lets time pass in virtual time.
async fn pass(millis: u64) {
    tokio::time::sleep(StdDuration::from_millis(millis)).await;
}

/// Starts the calls of all processes during one second. Checks that they never exceed `limit` together.
/// Returns the calls in flight of each.
async fn start_calls(processes: &mut [&mut Process], limit: usize) -> Vec<usize> {
    let mut counts = Vec::new();
    for _ in 0..20 {
        pass(50).await;
        counts = processes.iter_mut().map(|process| process.start_calls()).collect();
        assert!(counts.iter().sum::<usize>() <= limit, "{counts:?}");
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn two_processes_divide_one_limit_and_a_call_waits_for_the_first_share() {
    let store = TestStore::default();
    let mut first = Process::start(&store, 8, OnLoss::Stop);
    assert_eq!(first.start_calls(), 0, "it has no share yet");
    let permit = first.gate.core().acquire_owned(Request::new(first.resource)).await.unwrap();
    drop(permit);
    assert_eq!(start_calls(&mut [&mut first], 8).await, [8]);
    let mut second = Process::start(&store, 8, OnLoss::Stop);
    assert_eq!(start_calls(&mut [&mut first, &mut second], 8).await, [8, 0], "the calls of the first occupy all");
    first.end_calls(Outcome::Success);
    // The demand of both is above their shares. The demand of the second is a call that waits.
    let waits = tokio::spawn(second.gate.core().acquire_owned(Request::new(second.resource)));
    pass(300).await;
    second.permits.push(waits.await.unwrap().unwrap());
    assert_eq!(start_calls(&mut [&mut first, &mut second], 8).await.iter().sum::<usize>(), 8);
    let states = [first.state(), second.state()];
    assert!(states.iter().all(|state| (state.members, state.limit, state.has_lease) == (2, 8, true)), "{states:?}");
    assert_eq!([states[0].is_leader, states[1].is_leader], [true, false]);
    let statuses = [first.shared.status(), second.shared.status()];
    let leader = statuses[0].leader().unwrap();
    assert_eq!(statuses[1].leader().as_ref(), Some(&leader));
    let [share, other_share] = states.map(|state| state.share);
    let shown = [
        format!("{share} of 8 slots, 2 processes, leader {leader} (this one), decision 0."),
        format!("{other_share} of 8 slots, 2 processes, leader {leader}, decision 0."),
    ];
    let texts = statuses.map(|status| status.to_string());
    assert!(texts.iter().zip(&shown).all(|(text, shown)| text.starts_with(shown)), "{texts:?} {shown:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_at_one_process_lowers_the_limit_of_all() {
    let store = TestStore::default();
    let mut first = Process::start_with(&store, 16, LimitChoice::Aimd, OnLoss::Stop);
    let mut second = Process::start_with(&store, 16, LimitChoice::Aimd, OnLoss::Stop);
    start_calls(&mut [&mut first, &mut second], 16).await;
    assert_eq!(second.state().limit, 16);
    first.end_calls(Outcome::RateLimited);
    pass(300).await;
    assert!(second.state().limit < 16, "{:?}", second.state());
}

#[tokio::test(start_paused = true)]
async fn a_short_loss_of_the_store_has_no_effect_and_a_long_one_that_of_on_loss() {
    for (on_loss, expected) in [(OnLoss::Stop, 0), (OnLoss::Share, 4), (OnLoss::Alone, 8)] {
        let store = TestStore::default();
        let mut first = Process::start(&store, 8, on_loss);
        let mut second = Process::start(&store, 8, on_loss);
        pass(1_000).await;
        store.set_unreachable(true);
        pass(4_000).await;
        let before = [first.state(), second.state()];
        assert!(before.iter().all(|state| state.has_lease && state.room == state.share), "{before:?}");
        pass(7_000).await;
        for process in [&mut first, &mut second] {
            assert_eq!(process.start_calls(), expected, "{on_loss:?}");
            let text = process.shared.status().to_string();
            assert!(text.ends_with("the store: it is unreachable") && text.starts_with("no share for 1"), "{text}");
            process.end_calls(Outcome::Success);
        }
        store.set_unreachable(false);
        pass(12_000).await;
        let counts = start_calls(&mut [&mut first, &mut second], 8).await;
        assert_eq!(counts.iter().sum::<usize>(), 8, "{on_loss:?}");
        assert_eq!(first.shared.status().error, None);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_go_on_when_the_leader_is_killed_and_when_the_store_loses_its_data() {
    let store = TestStore::default();
    let first = Process::start(&store, 8, OnLoss::Stop);
    let mut second = Process::start(&store, 8, OnLoss::Stop);
    pass(1_000).await;
    assert!(first.state().is_leader);
    let held = second.start_calls();
    assert!(held > 0);
    second.end_calls(Outcome::Success);
    drop(first);
    pass(2_500).await;
    let state = second.state();
    assert!(state.is_leader && state.has_lease && state.share as usize >= held, "{state:?}");
    pass(12_000).await;
    assert_eq!((second.state().members, second.state().share), (1, 8), "the share of the killed one has returned");
    store.flush();
    pass(12_000).await;
    assert_eq!(start_calls(&mut [&mut second], 8).await, [8]);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_leaves_starts_no_more_calls_and_gives_its_share_away_at_once() {
    let store = TestStore::default();
    let mut first = Process::start(&store, 8, OnLoss::Stop);
    let mut second = Process::start(&store, 8, OnLoss::Stop);
    pass(1_000).await;
    second.start_calls();
    second.leaves.send_replace(true);
    pass(200).await;
    assert!(!second.shared.task.is_finished(), "it reports the end of its calls");
    let held = second.permits.len();
    assert_eq!(second.start_calls(), held);
    second.end_calls(Outcome::Success);
    pass(500).await;
    assert!(second.shared.task.is_finished());
    assert_eq!(start_calls(&mut [&mut first], 8).await, [8]);
    assert_eq!(first.state().members, 1);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_leaves_is_replaced_within_half_a_second() {
    let store = TestStore::default();
    let first = Process::start(&store, 8, OnLoss::Stop);
    let mut second = Process::start(&store, 8, OnLoss::Stop);
    pass(1_000).await;
    assert!(first.state().is_leader);
    first.leaves.send_replace(true);
    pass(500).await;
    assert!(first.shared.task.is_finished() && second.state().is_leader);
    assert_eq!((second.state().members, second.state().share), (1, 8));
    assert_eq!(start_calls(&mut [&mut second], 8).await, [8]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_maximum_of_the_leader_is_that_of_all() {
    let store = TestStore::default();
    let first = Process::start(&store, 8, OnLoss::Stop);
    let second = Process::start(&store, 8, OnLoss::Stop);
    pass(1_000).await;
    first.gate.core().with(|machine, now| machine.register(now, "acme", "m", "default", 4)).unwrap();
    pass(500).await;
    assert_eq!([first.state().limit, second.state().limit], [4, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_granted_before_the_lease_lapsed_may_not_be_sent_after_it() {
    let store = TestStore::default();
    let process = Process::start(&store, 8, OnLoss::Stop);
    pass(1_000).await;
    let permit = process.gate.core().try_acquire_owned(Request::new(process.resource)).unwrap();
    assert!(permit.may_send());
    // The process is suspended: no beat runs.
    process.shared.task.abort();
    pass(6_000).await;
    assert!(!permit.may_send());
}

#[tokio::test(start_paused = true)]
async fn the_demand_of_tenants_is_reported_by_name_and_weight() {
    let gate = RequestGate::new().unwrap();
    let key = ResourceKey::chat("acme", "m");
    let resource = gate.register(&key, &Limits::at_most(1).with_algorithm(LimitChoice::Fixed { limit: 1 })).unwrap();
    gate.register_tenant("people", 4.0).unwrap();
    let call = |tenant| crate::gate::Call::new(key.clone()).for_tenant(tenant);
    let _held = gate.acquire(&call("people")).await.unwrap();
    let mut waiting = Vec::new();
    for tenant in ["people", "batch", "batch"] {
        let (gate, call) = (gate.clone(), call(tenant));
        waiting.push(tokio::spawn(async move { gate.acquire(&call).await.map(drop) }));
    }
    let unnamed = gate.core().clone();
    waiting.push(tokio::spawn(async move { unnamed.acquire_owned(Request::new(resource)).await.map(drop) }));
    pass(1).await;
    let group = tidegate_core::share::GroupDemand::new;
    let demand = gate.core().with(|machine, _| machine.demand(resource));
    assert_eq!(demand, [group("people", 4.0, 2), group("batch", 1.0, 2), group("", 1.0, 1)]);
    for task in waiting {
        task.abort();
    }
}

/// Makes short calls in `tasks` tasks, one after the other. The number of calls started rises.
fn keep_calling(process: &Process, tasks: usize) -> (Vec<JoinHandle<()>>, Arc<AtomicU64>) {
    let started = Arc::<AtomicU64>::default();
    let call = || {
        let (gate, resource, started) = (process.gate.core().clone(), process.resource, Arc::clone(&started));
        tokio::spawn(async move {
            while let Ok(permit) = gate.acquire_owned(Request::new(resource)).await {
                started.fetch_add(1, Ordering::Relaxed);
                pass(20).await;
                permit.finish(Outcome::Success);
            }
        })
    };
    ((0..tasks).map(|_| call()).collect(), started)
}

/// Twenty calls a second, and 30 at once.
fn limits_with_budget() -> Limits {
    let budget = BudgetConfig::per_minute(Dimension::Requests, 1_200).with_burst(30);
    Limits::at_most(64).with_algorithm(LimitChoice::Fixed { limit: 64 }).with_budget(budget)
}

#[tokio::test(start_paused = true)]
async fn two_processes_spend_one_budget_and_one_of_them_all_of_it_if_the_other_is_idle() {
    let store = TestStore::default();
    let [first, second] = [0; 2].map(|_| Process::start_in(store.clone(), &limits_with_budget(), OnLoss::Stop));
    let (tasks, of_first) = keep_calling(&first, 10);
    pass(60_000).await;
    let alone = of_first.load(Ordering::Relaxed);
    assert!((1_180..=1_230).contains(&alone), "of 1 230 calls, it has started {alone}");
    let (_tasks, of_second) = keep_calling(&second, 10);
    pass(60_000).await;
    let counts = [of_first.load(Ordering::Relaxed) - alone, of_second.load(Ordering::Relaxed)];
    assert!(counts.iter().sum::<u64>() <= 1_230, "{counts:?} calls of 1 200 and the burst");
    assert!(counts.iter().all(|count| *count >= 570), "each has a half: {counts:?}");
    tasks.iter().for_each(JoinHandle::abort);
    pass(5_000).await;
    let before = of_second.load(Ordering::Relaxed);
    pass(60_000).await;
    let moved = of_second.load(Ordering::Relaxed) - before;
    assert!((1_180..=1_230).contains(&moved), "all work has moved, and it has started {moved}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_store_leaves_each_process_its_part_of_a_budget() {
    for (on_loss, expected) in [(OnLoss::Stop, 0..=0), (OnLoss::Share, 590..=620), (OnLoss::Alone, 1_180..=1_235)] {
        let store = TestStore::default();
        let [first, second] = [0; 2].map(|_| Process::start_in(store.clone(), &limits_with_budget(), on_loss));
        pass(1_000).await;
        store.set_unreachable(true);
        pass(11_000).await;
        let (_first, of_first) = keep_calling(&first, 10);
        let (_second, of_second) = keep_calling(&second, 10);
        pass(60_000).await;
        for started in [of_first, of_second].map(|started| started.load(Ordering::Relaxed)) {
            assert!(expected.contains(&started), "{on_loss:?}: {started}");
        }
    }
}

#[tokio::test]
async fn two_processes_spend_one_budget_over_a_real_server() {
    let server = RedisServer::start();
    let start = tokio::time::Instant::now();
    let mut processes = Vec::new();
    for _ in 0..2 {
        let share = Share::connect(&ShareSettings::new(&server.url(), "test")).await.unwrap();
        let gate = RequestGate::new().unwrap();
        gate.share(share).unwrap();
        let resource = gate.register(&ResourceKey::chat("acme", "m"), &limits_with_budget()).unwrap();
        processes.push((gate, resource));
    }
    let started = Arc::<AtomicU64>::default();
    for (gate, resource) in &processes {
        for _ in 0..4 {
            let (gate, resource, started) = (gate.core().clone(), *resource, Arc::clone(&started));
            tokio::spawn(async move {
                while let Ok(permit) = gate.acquire_owned(Request::new(resource)).await {
                    started.fetch_add(1, Ordering::Relaxed);
                    permit.finish(Outcome::Success);
                }
            });
        }
    }
    // Two budgets of their own would let 60 calls start at once.
    while started.load(Ordering::Relaxed) < 80 {
        pass(10).await;
        let (count, elapsed) = (started.load(Ordering::Relaxed), start.elapsed());
        // The bucket of the leader is created later than `start`.
        assert!(u128::from(count) <= 30 + elapsed.as_millis() / 50, "{count} calls in {elapsed:?}");
        assert!(elapsed < StdDuration::from_mins(1), "{count} calls in {elapsed:?}");
    }
}
