//! A model of processes, a store and a provider, in virtual time and under faults.
//!
//! The network loses, delays, repeats and reorders messages, and can disconnect a process. The store can lose
//! its last writes or all of them. Processes have clocks of their own, and are suspended, killed and started.
//! An [`Observer`] sees each step.
//!
//! `p` is the index of a process. An instant named `local` is by the clock of the process, any other is true
//! time.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::call::Outcome;
use crate::limit::{Aimd, AimdConfig, CallReport, LimitAlgorithm, LimitChoice};
use crate::share::*;
use crate::sim::rng::Rng;
use crate::time::{Duration, Instant};

pub(crate) const MS: u64 = 1_000_000;

/// The settings of a world.
#[derive(Clone, Debug)]
pub(crate) struct WorldConfig {
    pub(crate) share: ShareConfig,
    pub(crate) choice: LimitChoice,
    /// The highest limit.
    pub(crate) cap: u32,
    /// How many calls the provider serves at once. It refuses others.
    pub(crate) capacity: u32,
    /// The time between two calls that the provider accepts, with a bucket for [`BURST`] calls. It refuses
    /// others, with the time until the next one as Retry-After. `None` without a limit of the rate.
    pub(crate) interval: Option<Duration>,
    /// The longest time that a call takes, less 5 ms.
    pub(crate) longest_call: Duration,
    /// How many of 1000 messages are lost.
    pub(crate) lost: u64,
    /// How many of 1000 messages arrive twice.
    pub(crate) repeated: u64,
    /// The longest delay of a message.
    pub(crate) delay: Duration,
    /// Whether a process is sometimes suspended between the grant of a call and its first byte.
    pub(crate) stops_before_send: bool,
    /// Whether clocks drift and have different origins.
    pub(crate) clocks_drift: bool,
}

impl WorldConfig {
    pub(crate) fn aimd() -> AimdConfig {
        AimdConfig {
            cooldown: Duration::from_millis(100),
            max_cooldown: Duration::from_millis(500),
            ..AimdConfig::default()
        }
    }
}

/// How many calls the bucket of a rate holds.
pub(crate) const BURST: u32 = 8;

/// How a call at the provider ends, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallEnd {
    pub(crate) outcome: Outcome,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) at: Instant,
}

/// A provider with a number of slots, and perhaps a limit of the rate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Provider {
    pub(crate) in_flight: u32,
    /// When the bucket of the rate is full.
    full_at: Instant,
    /// The number of calls that it has answered, and refused.
    pub(crate) answered: u64,
    pub(crate) refused: u64,
}

impl Provider {
    /// Starts a call. The caller counts it as ended at the instant that this returns.
    pub(crate) fn start(&mut self, now: Instant, config: &WorldConfig, rng: &mut Rng) -> CallEnd {
        self.in_flight += 1;
        let wait = config.interval.map(|interval| {
            let bucket = Duration::from_nanos(interval.as_nanos() * u64::from(BURST - 1));
            (self.full_at - now, self.full_at - (now + bucket), interval)
        });
        let retry_after = wait.map(|(_, wait, _)| wait).filter(|wait| !wait.is_zero());
        let is_refused = self.in_flight > config.capacity || retry_after.is_some();
        if let Some((until_full, _, interval)) = wait.filter(|_| !is_refused) {
            self.full_at = now + until_full + interval;
        }
        self.refused += u64::from(is_refused);
        self.answered += u64::from(!is_refused);
        let most = if is_refused { 20 * MS } else { config.longest_call.as_nanos() };
        let outcome = if is_refused { Outcome::RateLimited } else { Outcome::Success };
        CallEnd { outcome, retry_after, at: now + Duration::from_nanos(5 * MS + rng.below(most)) }
    }
}

/// Sees what crosses the borders of the processes: messages, clocks and calls. Each method is called as it
/// happens; by default it does nothing.
///
/// An instant named `local` is by the clock of the process, `now` is true time.
#[expect(unused_variables, reason = "the names of the parameters are their documentation")]
pub(crate) trait Observer {
    /// A process starts.
    fn on_member(&mut self, id: MemberId, now: Instant, clock: DriftingClock) {}
    /// A member sends a report.
    fn on_report_sent(&mut self, local: Instant, report: &MemberReport) {}
    /// A member adopts a decision.
    fn on_adopted(&mut self, id: MemberId, local: Instant, decision: &Decision) {}
    /// A leader takes the lead in the store.
    fn on_lead(&mut self, now: Instant, lead: &Lead) {}
    /// A process learns that it is the leader, and the version of the snapshot that it got.
    fn on_leader(&mut self, term: Term, snapshot: Option<u64>) {}
    /// A leader processes reports, and makes a decision next.
    fn on_reports(&mut self, now: Instant, term: Term, local: Instant, reports: &[MemberReport]) {}
    /// A leader makes a decision.
    fn on_decision_made(&mut self, now: Instant, local: Instant, decision: &Decision) {}
    /// The store accepts a decision.
    fn on_published(&mut self, now: Instant, decision: &Decision) {}
    /// The store has this term now.
    fn on_term(&mut self, now: Instant, term: Term) {}
    /// The store has lost all decisions that it accepted but the first `kept`, and has this term now.
    fn on_lost_writes(&mut self, now: Instant, kept: usize, term: Term) {}
    /// A call is granted. `in_flight` counts the granted calls of the member, this one included.
    fn on_granted(&mut self, id: MemberId, local: Instant, call: u64, in_flight: u32) {}
    /// A granted call is sent to the provider.
    fn on_call(&mut self, id: MemberId, now: Instant, call: u64, in_flight: u32) {}
    /// The provider ends a call.
    fn on_call_ended(&mut self, id: MemberId, call: u64) {}
    /// The member handles the end of a call.
    fn on_finished(&mut self, id: MemberId, call: u64, outcome: Outcome) {}
}

impl Observer for () {}

/// The clock of a process: it starts at `origin` and runs at `rate` parts per million.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriftingClock {
    pub(crate) origin: u64,
    pub(crate) rate: u64,
}

impl DriftingClock {
    pub(crate) fn local(self, at: Instant) -> Instant {
        let nanos = u128::from(at.as_nanos()) * u128::from(self.rate) / 1_000_000;
        Instant::from_nanos(self.origin + nanos as u64)
    }

    /// Returns the true time at which the clock shows `local`, or just after it.
    pub(crate) fn true_time(self, local: Instant) -> Instant {
        let nanos = u128::from(local.as_nanos().saturating_sub(self.origin)) * 1_000_000;
        Instant::from_nanos(nanos.div_ceil(u128::from(self.rate)) as u64 + 1)
    }
}

/// A message from a process to the store.
#[derive(Clone, Debug)]
enum Request {
    Report(MemberReport),
    ReadDecision(Term, u64),
    TakeLead(TakeLead),
    ReadReports(Term, u64),
    Decide(Decide, u64),
}

/// The store's answer.
#[derive(Clone, Debug)]
enum Answer {
    Decision(Decision),
    Lead(Lead),
    /// For the leader of the term.
    Reports(Term, Reports),
    Decided(Term, Decided),
}

/// What happens at an instant to the process with this index.
#[derive(Clone, Debug)]
enum Event {
    /// Its timer fires.
    Wake(usize),
    /// Its message arrives at the store.
    AtStore(usize, Request),
    /// An answer of the store arrives.
    AtProcess(usize, Answer),
    /// It sends a granted call, if it still may.
    Send(usize, u64),
    /// The provider ends a call, also for a process that is suspended or dead.
    CallEnds(usize, u64, CallEnd),
    /// It handles the end of a call.
    Ended(usize, u64, CallEnd),
}

struct Process {
    id: MemberId,
    member: Member,
    leader: Option<Coordinator>,
    /// The position in the reports that the leader has read.
    read: u64,
    /// The term and the version of the newest decision that it has read.
    newest: (Term, u64),
    is_alive: bool,
    leaves: bool,
    suspended_until: Instant,
    is_disconnected: bool,
    clock: DriftingClock,
    /// The granted calls: the local instant, the limit and the calls in flight after the grant.
    granted: BTreeMap<u64, (Instant, u32, u32)>,
    /// The number of grants so far.
    grants: u64,
    /// How many calls it wants in flight.
    wanted: u32,
    /// The earliest instant for which its timer is set.
    wake_at: Instant,
}

/// Processes, their store and their provider.
pub(crate) struct World<O = ()> {
    pub(crate) config: WorldConfig,
    pub(crate) now: Instant,
    rng: Rng,
    store: MemoryStore,
    store_is_down: bool,
    /// Earlier states of the store, newest last, with the number of decisions published then.
    backups: Vec<(Instant, MemoryStore, usize)>,
    processes: Vec<Process>,
    /// When each event happens, with its number. Events at the same instant happen in the order of numbers.
    events: BinaryHeap<Reverse<(Instant, u64)>>,
    payloads: BTreeMap<u64, Event>,
    /// The number of the latest event.
    numbered: u64,
    pub(crate) provider: Provider,
    /// The process and the time of each call that was sent.
    pub(crate) starts: Vec<(usize, Instant)>,
    /// The number of decisions that the store has accepted.
    published: usize,
    pub(crate) observer: O,
}

impl<O: Observer> World<O> {
    pub(crate) fn new(config: WorldConfig, rng: Rng, observer: O) -> Self {
        Self {
            config,
            now: Instant::from_nanos(1_000 * MS),
            rng,
            store: MemoryStore::default(),
            store_is_down: false,
            backups: Vec::new(),
            processes: Vec::new(),
            events: BinaryHeap::new(),
            payloads: BTreeMap::new(),
            numbered: 0,
            provider: Provider::default(),
            starts: Vec::new(),
            published: 0,
            observer,
        }
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.numbered += 1;
        self.payloads.insert(self.numbered, event);
        self.events.push(Reverse((at.max(self.now), self.numbered)));
    }

    pub(crate) fn start_process(&mut self, wanted: u32) -> usize {
        let p = self.processes.len();
        let clock = if self.config.clocks_drift {
            DriftingClock { origin: self.rng.below(1 << 50), rate: 996_000 + self.rng.below(8_001) }
        } else {
            DriftingClock { origin: 0, rate: 1_000_000 }
        };
        let local = clock.local(self.now);
        let id = MemberId(100 + p as u64);
        let own = Aimd::new(WorldConfig::aimd(), self.config.cap).expect("valid");
        let member = Member::new(local, id, self.config.share, Box::new(own), self.rng.next_u64()).expect("valid");
        self.processes.push(Process {
            id,
            member,
            leader: None,
            read: 0,
            newest: (Term::default(), 0),
            is_alive: true,
            leaves: false,
            suspended_until: Instant::ZERO,
            is_disconnected: false,
            clock,
            granted: BTreeMap::new(),
            grants: 0,
            wanted,
            wake_at: Instant::MAX,
        });
        self.observer.on_member(id, self.now, clock);
        self.after(p);
        p
    }

    pub(crate) fn len(&self) -> usize {
        self.processes.len()
    }

    pub(crate) fn is_alive(&self, p: usize) -> bool {
        self.processes[p].is_alive
    }

    pub(crate) fn is_leader(&self, p: usize) -> bool {
        self.processes[p].is_alive && self.processes[p].leader.is_some()
    }

    pub(crate) fn leaves(&self, p: usize) -> bool {
        self.processes[p].leaves
    }

    /// Returns the interval in nanoseconds that the newest decision gives to each member.
    pub(crate) fn paces(&self) -> Vec<u64> {
        let newest = self.store.decisions_since(Term::default(), 0);
        newest.map_or(Vec::new(), |newest| newest.shares.values().map(|given| given.pace_ns).collect())
    }

    pub(crate) fn id(&self, p: usize) -> MemberId {
        self.processes[p].id
    }

    /// Describes the newest decision, for a failing test.
    pub(crate) fn state(&mut self) -> String {
        let newest = self.store.decisions_since(Term::default(), 0);
        format!(
            "store at {}: {:?}, {newest:#?}, provider {}/{}",
            self.now,
            self.store.term(),
            self.provider.in_flight,
            self.config.capacity
        )
    }

    pub(crate) fn want(&mut self, p: usize, wanted: u32) {
        let process = &mut self.processes[p];
        process.wanted = if process.leaves { 0 } else { wanted };
        self.schedule(self.now, Event::Wake(p));
    }

    pub(crate) fn kill(&mut self, p: usize) {
        let process = &mut self.processes[p];
        process.is_alive = false;
        process.leader = None;
    }

    pub(crate) fn leave(&mut self, p: usize) {
        let local = self.local(p);
        self.processes[p].member.leave(local);
        self.processes[p].wanted = 0;
        self.processes[p].leaves = true;
        self.after(p);
    }

    pub(crate) fn suspend(&mut self, p: usize, span: Duration) {
        self.processes[p].suspended_until = self.now + span;
    }

    pub(crate) fn set_disconnected(&mut self, p: usize, is_disconnected: bool) {
        self.processes[p].is_disconnected = is_disconnected;
    }

    pub(crate) fn stop_store(&mut self, is_down: bool) {
        self.store_is_down = is_down;
    }

    /// Makes the store lose the writes of the last `span`, or all writes if it is `None`.
    pub(crate) fn roll_back(&mut self, span: Option<Duration>) {
        let until = span.map_or(0, |span| self.now.as_nanos().saturating_sub(span.as_nanos()));
        self.backups.retain(|(at, ..)| at.as_nanos() <= until);
        let (store, published) =
            self.backups.last().map(|(_, store, published)| (store.clone(), *published)).unwrap_or_default();
        self.store = store;
        let term = self.store.term();
        self.observer.on_lost_writes(self.now, published, term);
    }

    fn local(&self, p: usize) -> Instant {
        self.processes[p].clock.local(self.now)
    }

    /// Runs until `end`.
    pub(crate) fn run_until(&mut self, end: Instant) {
        while let Some(Reverse((at, number))) = self.events.peek().copied() {
            if at > end {
                break;
            }
            self.events.pop();
            self.now = at;
            let event = self.payloads.remove(&number).expect("each event has a payload");
            self.handle(event);
        }
        self.now = end;
    }

    fn handle(&mut self, event: Event) {
        if let Event::Wake(p) | Event::AtProcess(p, _) | Event::Send(p, _) | Event::Ended(p, ..) = &event {
            if !self.processes[*p].is_alive {
                return;
            }
            let until = self.processes[*p].suspended_until;
            if until > self.now {
                self.schedule(until, event);
                return;
            }
        }
        match event {
            Event::Wake(p) => {
                if self.processes[p].wake_at <= self.now {
                    self.processes[p].wake_at = Instant::MAX;
                }
                let local = self.local(p);
                self.processes[p].member.handle_timeout(local);
                if let Some(leader) = &mut self.processes[p].leader {
                    leader.handle_timeout(local);
                }
                self.after(p);
            }
            Event::AtStore(p, request) => self.at_store(p, request),
            Event::AtProcess(p, answer) => self.at_process(p, answer),
            Event::Send(p, call) => {
                self.send_call(p, call);
                self.after(p);
            }
            Event::CallEnds(p, call, end) => {
                self.provider.in_flight -= 1;
                self.observer.on_call_ended(self.processes[p].id, call);
                self.schedule(self.now, Event::Ended(p, call, end));
            }
            Event::Ended(p, call, end) => {
                self.finish(p, call, end.outcome, end.retry_after);
                self.after(p);
            }
        }
    }

    /// Sends a message to the store. It can be lost, and it can arrive twice.
    fn send(&mut self, p: usize, request: &Request) {
        if self.processes[p].is_disconnected || self.rng.below(1_000) < self.config.lost {
            return;
        }
        let copies = 1 + u64::from(self.rng.below(1_000) < self.config.repeated);
        for _ in 0..copies {
            let at = self.now + self.delay();
            self.schedule(at, Event::AtStore(p, request.clone()));
        }
    }

    fn delay(&mut self) -> Duration {
        Duration::from_nanos(1 + self.rng.below(self.config.delay.as_nanos()))
    }

    fn at_store(&mut self, p: usize, request: Request) {
        if self.store_is_down || self.processes[p].is_disconnected {
            return;
        }
        let answer = match request {
            Request::Report(report) => {
                self.store.report(report);
                None
            }
            Request::ReadDecision(term, version) => self.store.decisions_since(term, version).map(Answer::Decision),
            Request::TakeLead(request) => {
                let lead = self.store.take_lead(request);
                if lead.term == request.term {
                    self.observer.on_lead(self.now, &lead);
                }
                Some(Answer::Lead(lead))
            }
            Request::ReadReports(term, since) => Some(Answer::Reports(term, self.store.reports_since(since))),
            Request::Decide(decide, read) => {
                let (decision, term) = (decide.decision.clone(), decide.decision.term);
                let before = self.store.decisions_since(Term::default(), 0).map(|newest| newest.version);
                let decided = self.store.decide(decide, read);
                let newest = self.store.decisions_since(Term::default(), 0);
                if newest.as_ref().map(|newest| newest.version) != before && newest.as_ref() == Some(&decision) {
                    self.published += 1;
                    self.observer.on_published(self.now, &decision);
                }
                self.observer.on_term(self.now, decided.term);
                Some(Answer::Decided(term, decided))
            }
        };
        if self.backups.last().is_none_or(|(at, ..)| self.now - *at >= Duration::from_millis(10)) {
            self.backups.push((self.now, self.store.clone(), self.published));
            if self.backups.len() > 150 {
                self.backups.remove(0);
            }
        }
        let Some(answer) = answer else { return };
        if self.rng.below(1_000) >= self.config.lost {
            let at = self.now + self.delay();
            self.schedule(at, Event::AtProcess(p, answer));
        }
    }

    fn at_process(&mut self, p: usize, answer: Answer) {
        if self.processes[p].is_disconnected {
            return;
        }
        let local = self.local(p);
        match answer {
            Answer::Decision(decision) => {
                let process = &mut self.processes[p];
                process.newest = (decision.term, decision.version);
                if process.member.on_decision(local, &decision) {
                    self.observer.on_adopted(process.id, local, &decision);
                }
            }
            Answer::Lead(lead) => {
                if self.processes[p].member.on_lead(lead.term) {
                    self.observer.on_leader(lead.term, lead.snapshot.as_ref().map(|snapshot| snapshot.version));
                    let config = &self.config;
                    let leader = Coordinator::take_over(
                        local,
                        config.share,
                        config.choice,
                        &WorldConfig::aimd(),
                        config.cap,
                        lead,
                    )
                    .expect("valid");
                    (self.processes[p].leader, self.processes[p].read) = (Some(leader), 0);
                }
            }
            Answer::Reports(term, reports) => {
                let process = &mut self.processes[p];
                if let Some(leader) = process.leader.as_mut().filter(|leader| leader.term() == term) {
                    leader.on_reports(local, &reports.reports);
                    process.read = reports.next;
                    self.observer.on_reports(self.now, term, local, &reports.reports);
                }
            }
            Answer::Decided(term, decided) => {
                let leader = &mut self.processes[p].leader;
                if leader.as_mut().is_some_and(|leader| leader.term() == term && !leader.on_decided(decided)) {
                    *leader = None;
                }
            }
        }
        self.after(p);
    }

    /// Does what a host does after each command: drains the effects, starts calls and arms the timer.
    fn after(&mut self, p: usize) {
        let local = self.local(p);
        let process = &mut self.processes[p];
        let group = Group { group: p as u64 % 2, weight: 1, wanted: process.wanted.max(process.granted.len() as u32) };
        process.member.set_demand(&[group]);
        while let Some(effect) = self.processes[p].member.poll_effect() {
            let request = match effect {
                MemberEffect::Report(report) => {
                    self.observer.on_report_sent(local, &report);
                    Request::Report(report)
                }
                MemberEffect::ReadDecision => {
                    let (term, version) = self.processes[p].newest;
                    Request::ReadDecision(term, version)
                }
                MemberEffect::TakeLead(request) => Request::TakeLead(request),
            };
            self.send(p, &request);
        }
        while let Some(leader) = &mut self.processes[p].leader {
            let (term, Some(effect)) = (leader.term(), leader.poll_effect()) else { break };
            let read = self.processes[p].read;
            let request = match effect {
                CoordinatorEffect::ReadReports => Request::ReadReports(term, read),
                CoordinatorEffect::Decide(decide) => {
                    self.observer.on_decision_made(self.now, local, &decide.decision);
                    Request::Decide(decide, read)
                }
            };
            self.send(p, &request);
        }
        self.start_calls(p, local);
        let process = &self.processes[p];
        let leader = process.leader.as_ref().and_then(Coordinator::poll_timeout);
        let waits = process.wanted > process.granted.len() as u32;
        let change = if waits { process.member.next_change(local) } else { None };
        let next = [process.member.poll_timeout(), leader, change].into_iter().flatten().min();
        let at = next.map_or(Instant::MAX, |next| process.clock.true_time(next));
        if at < self.processes[p].wake_at {
            self.processes[p].wake_at = at.max(self.now);
            self.schedule(at, Event::Wake(p));
        }
    }

    fn start_calls(&mut self, p: usize, local: Instant) {
        loop {
            let process = &mut self.processes[p];
            let in_flight = process.granted.len() as u32;
            let member = &mut process.member;
            if in_flight >= process.wanted || in_flight >= member.limit(local) || member.opens_at(local).is_some() {
                return;
            }
            member.on_attempt(local, in_flight);
            let grant = process.grants;
            process.grants += 1;
            process.granted.insert(grant, (local, member.limit(local), in_flight + 1));
            member.on_grant(local, grant, in_flight + 1);
            self.observer.on_granted(process.id, local, grant, in_flight + 1);
            if self.config.stops_before_send && self.rng.below(2_000) == 0 {
                // The process stops between the grant and the first byte.
                let span = Duration::from_nanos(self.rng.below(2 * self.config.share.ttl.as_nanos()));
                self.suspend(p, span);
                self.schedule(self.now + span, Event::Send(p, grant));
                return;
            }
            self.send_call(p, grant);
        }
    }

    fn send_call(&mut self, p: usize, call: u64) {
        let local = self.local(p);
        if !self.processes[p].member.may_send(local) {
            self.finish(p, call, Outcome::LocalCancelled, None);
            return;
        }
        let process = &self.processes[p];
        let granted = process.granted.len() as u32;
        self.observer.on_call(process.id, self.now, call, granted);
        self.starts.push((p, self.now));
        let end = self.provider.start(self.now, &self.config, &mut self.rng);
        self.schedule(end.at, Event::CallEnds(p, call, end));
    }

    fn finish(&mut self, p: usize, call: u64, outcome: Outcome, retry_after: Option<Duration>) {
        let local = self.local(p);
        let process = &mut self.processes[p];
        let (since, limit, in_flight) = process.granted.remove(&call).expect("the call is out");
        let report = CallReport {
            outcome,
            grant: call,
            admitted_limit: limit,
            admitted_in_flight: in_flight,
            retry_after,
            latency: local - since,
            in_flight: process.granted.len() as u32,
            is_cooling_down: false,
        };
        process.member.on_outcome(local, &report);
        self.observer.on_finished(process.id, call, outcome);
    }
}
