//! Processes that [share](crate::share) a limit, their store and their provider, in virtual time and under
//! faults.
//!
//! Each process drives a real [`Session`](crate::share::Session), as a host does. Only its surroundings are
//! simulated: a network that loses, delays, repeats and reorders messages, and can disconnect a process from
//! the store; a store that can lose its last writes or all of them; clocks; and a provider with slots.
//! Processes are suspended, killed and started. A step at the store fails if no reply arrives in time, and
//! may run at the store also then, or later. A run is a function of the settings, the seed and the changes.
//!
//! ```
//! use tidegate_core::sim::rng::Rng;
//! use tidegate_core::sim::sharing::{START, SharingChange, SharingConfig, SharingWorld};
//! use tidegate_core::time::Duration;
//!
//! let mut world = SharingWorld::new(SharingConfig::known(12), Rng::new(1), ())?;
//! for _ in 0..3 {
//!     world.start_process(12);
//! }
//! world.advance_to(START + Duration::from_secs(5));
//! world.change(SharingChange::Connected { process: 2, connected: false })?;
//! world.advance_to(START + Duration::from_secs(20));
//! let sample = world.sample();
//! assert_eq!(sample.processes[2].lease_ns, 0);
//! assert_eq!(sample.processes[0].share + sample.processes[1].share, sample.limit);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `p` is the index of a process; each start of a process adds one. The *number* of a process, in samples,
//! events and changes, stays the same if another process starts in the place of a killed one. An instant
//! named `local` is by the clock of the process, any other is true time.
//!
//! | types | purpose |
//! | --- | --- |
//! | [`SharingConfig`], [`SharingWorld`] | the settings, and the world |
//! | [`SharingObserver`] | what a checker observes of it |
//! | [`SlotProvider`] | the provider |
//! | [`SharingSample`], [`SharingEvent`], [`SharingChange`] | its figures, events and changes |

mod budgets;
mod observer;
mod process;
mod provider;
mod sample;

use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

pub use self::observer::{DriftingClock, SharingObserver};
use self::process::Process;
pub use self::provider::{BURST, CallEnd, SlotProvider};
pub use self::sample::{ProcessSample, SharingChange, SharingEvent, SharingEventKind, SharingSample, UnknownProcess};
use crate::budget::BudgetConfig;
use crate::error::ConfigError;
use crate::limit::{LimitChoice, LimitConfig, TideConfig};
use crate::share::{Decision, MemberId, MemoryStore, OnLoss, Role, ShareConfig, StoreReply, StoreStep, Term};
use crate::sim::rng::Rng;
use crate::time::{Duration, Instant};

const MS: u64 = 1_000_000;

/// The instant at which a world begins.
pub const START: Instant = Instant::from_nanos(1_000 * MS);

/// The clock of a process if clocks do not drift.
const TRUE_CLOCK: DriftingClock = DriftingClock { origin: 0, rate: 1_000_000 };

/// The most events that wait for [`SharingWorld::take_events`]. Older ones are dropped.
const EVENTS: usize = 1_000;

/// The settings of a world. By default, nothing is lost, and no clock drifts.
#[derive(Clone, Debug)]
pub struct SharingConfig {
    /// The settings of sharing.
    pub share: ShareConfig,
    /// The algorithm of the shared limit.
    pub choice: LimitChoice,
    /// The highest limit.
    pub cap: u32,
    /// How many calls the provider serves at once. It refuses others.
    pub capacity: u32,
    /// The time between two calls that the provider accepts, with a bucket for [`BURST`] calls. It refuses
    /// others, with the time until the next one as Retry-After. `None` without a limit of the rate.
    pub interval: Option<Duration>,
    /// The longest time that a call takes, less 5 ms.
    pub longest_call: Duration,
    /// How many of 1000 messages are lost.
    pub lost: u64,
    /// How many of 1000 messages arrive twice.
    pub repeated: u64,
    /// The longest delay of a message.
    pub delay: Duration,
    /// How long a process waits for the reply to a step at the store. By default 1 s, as on the native host.
    pub step_timeout: Duration,
    /// Whether a process is sometimes suspended between the grant of a call and its first byte.
    pub stops_before_send: bool,
    /// Whether clocks drift and have different origins.
    pub clocks_drift: bool,
    /// The weights of the groups, at least one. Each process calls for one of them, and they take turns.
    pub weights: Vec<u32>,
    /// The budgets of the calls, which the processes share.
    pub budgets: Vec<BudgetConfig>,
    /// The most tokens that a call is estimated to use, at least 1.
    pub most_tokens: u32,
}

impl SharingConfig {
    /// Returns the settings for a provider whose capacity is known: the limit is at most `capacity`, so calls
    /// are refused only if the capacity is lowered later. A process that has lost the others stops.
    #[must_use]
    pub fn known(capacity: u32) -> Self {
        let share = ShareConfig { on_loss: OnLoss::Stop, ..ShareConfig::default() };
        Self { share, choice: LimitChoice::Aimd, cap: capacity, capacity, ..Self::default() }
    }

    /// Returns the further settings of the limit.
    #[must_use]
    pub fn aimd() -> LimitConfig {
        LimitConfig {
            cooldown: Duration::from_millis(100),
            max_cooldown: Duration::from_millis(500),
            ..LimitConfig::default()
        }
    }
}

impl Default for SharingConfig {
    fn default() -> Self {
        Self {
            share: ShareConfig::default(),
            choice: LimitChoice::Tide(TideConfig::default()),
            cap: 64,
            capacity: 12,
            interval: None,
            longest_call: Duration::from_millis(300),
            lost: 0,
            repeated: 0,
            delay: Duration::from_millis(2),
            step_timeout: Duration::from_secs(1),
            stops_before_send: false,
            clocks_drift: false,
            weights: vec![1],
            budgets: Vec::new(),
            most_tokens: 1,
        }
    }
}

/// What happens to a message between a process and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives in time.
    Arrives,
    /// It arrives after the process has given up waiting for the reply.
    IsLate,
    /// It arrives in time, and once more late.
    IsRepeated,
    /// It never arrives.
    IsLost,
}

/// A step of a process at the store: the process, its role, and the number of the step in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    p: usize,
    role: Role,
    number: u64,
}

/// What happens at an instant to the process with this index.
#[derive(Clone, Debug)]
enum Step {
    /// Its timer fires.
    Wake(usize),
    /// Its step arrives at the store.
    AtStore(Sent, StoreStep),
    /// The reply to its step arrives, or the step takes too long.
    AtProcess(Sent, Result<StoreReply, String>),
    /// It sends a granted call, if it still may.
    Send(usize, u64),
    /// The provider ends a call, also for a process that is suspended or dead.
    CallEnds(usize, u64, CallEnd),
    /// It handles the end of a call.
    Ended(usize, u64, CallEnd),
}

/// What stays if another process starts in the place of a killed one.
#[derive(Debug)]
struct Numbered {
    /// The index of the latest process with this number.
    latest: usize,
    /// Its calls at the provider, and those of the processes before it.
    in_flight: u32,
    is_disconnected: bool,
    /// Whether it reaches the second primary.
    is_on_second: bool,
}

/// Processes, their store and their provider.
#[derive(Debug)]
pub struct SharingWorld<O = ()> {
    /// The settings. The network, the provider, the faults and the weights can change during a run; the
    /// others apply to processes that start later.
    pub config: SharingConfig,
    /// The present time.
    pub now: Instant,
    rng: Rng,
    store: MemoryStore,
    /// The other primary after a failover, while there are two.
    second: Option<MemoryStore>,
    store_is_down: bool,
    /// Earlier states of the store, newest last, with the number of decisions published then.
    backups: Vec<(Instant, MemoryStore, usize)>,
    processes: Vec<Process>,
    /// When each event happens, with its number. Events at the same instant happen in the order of numbers.
    events: BinaryHeap<Reverse<(Instant, u64)>>,
    payloads: BTreeMap<u64, Step>,
    /// The number of the latest event.
    latest_event: u64,
    /// The number of the latest step at the store.
    latest_step: u64,
    /// The provider.
    pub provider: SlotProvider,
    /// What happens to the next messages, in their order. Later ones go by [`SharingWorld::config`].
    pub fates: VecDeque<Fate>,
    /// The number of decisions that the store has accepted.
    published: usize,
    /// By number of the process.
    numbers: Vec<Numbered>,
    /// The processes whose leases were valid after their last steps, by index.
    leased: BTreeSet<usize>,
    /// What happened since it was last taken.
    happened: VecDeque<SharingEvent>,
    /// The number of refused calls at the newest decision.
    refused_before: u64,
    /// Sees each step.
    pub observer: O,
}

impl<O: SharingObserver> SharingWorld<O> {
    /// Creates a world without a process at [`START`]. Returns an error if a setting is out of range.
    pub fn new(config: SharingConfig, rng: Rng, observer: O) -> Result<Self, ConfigError> {
        // It has all settings with a range.
        Process::new(&config, 0, MemberId(0), TRUE_CLOCK, START, 0, 0)?;
        Ok(Self {
            config,
            now: START,
            rng,
            store: MemoryStore::default(),
            second: None,
            store_is_down: false,
            backups: Vec::new(),
            processes: Vec::new(),
            events: BinaryHeap::new(),
            payloads: BTreeMap::new(),
            latest_event: 0,
            latest_step: 0,
            provider: SlotProvider::default(),
            fates: VecDeque::new(),
            published: 0,
            numbers: Vec::new(),
            leased: BTreeSet::new(),
            happened: VecDeque::new(),
            refused_before: 0,
            observer,
        })
    }

    fn schedule(&mut self, at: Instant, event: Step) {
        self.latest_event += 1;
        self.payloads.insert(self.latest_event, event);
        self.events.push(Reverse((at.max(self.now), self.latest_event)));
    }

    /// Starts a process with a demand of so many calls, in flight or waiting, and returns its index, which is
    /// new.
    pub fn start_process(&mut self, demand: u32) -> usize {
        let latest = self.processes.len();
        self.numbers.push(Numbered { latest, in_flight: 0, is_disconnected: false, is_on_second: false });
        self.start(self.numbers.len() - 1, demand)
    }

    /// Starts a process with a number.
    fn start(&mut self, number: usize, demand: u32) -> usize {
        let p = self.processes.len();
        self.numbers[number].latest = p;
        self.emit(SharingEventKind::Started { process: number });
        let clock = if self.config.clocks_drift {
            DriftingClock { origin: self.rng.below(1 << 50), rate: 996_000 + self.rng.below(8_001) }
        } else {
            TRUE_CLOCK
        };
        let id = MemberId(100 + p as u64);
        let process = Process::new(&self.config, number, id, clock, self.now, demand, self.rng.next_u64());
        self.processes.push(process.expect("the settings are in range"));
        self.observer.on_member(id, self.now, clock);
        self.after(p);
        p
    }

    /// Returns how many processes were started.
    #[must_use]
    pub fn started(&self) -> usize {
        self.processes.len()
    }

    /// Returns whether a process was not killed.
    #[must_use]
    pub fn is_alive(&self, p: usize) -> bool {
        self.processes[p].is_alive
    }

    /// Returns whether a process leads, as far as it knows.
    #[must_use]
    pub fn is_leader(&self, p: usize) -> bool {
        self.processes[p].is_alive && self.processes[p].session.leads().is_some()
    }

    /// Returns whether a process leaves: it stops its calls in order.
    #[must_use]
    pub fn leaves(&self, p: usize) -> bool {
        self.processes[p].leaves
    }

    /// Returns the interval in nanoseconds that the newest decision gives to each member.
    #[must_use]
    pub fn paces(&self) -> Vec<u64> {
        let newest = self.store.decisions_since(Term::default(), 0);
        newest.map_or(Vec::new(), |newest| newest.shares.values().map(|given| given.pace_ns).collect())
    }

    /// Returns the id of a process as a member.
    #[must_use]
    pub fn id(&self, p: usize) -> MemberId {
        self.processes[p].id
    }

    /// Describes the newest decision, for a failing test.
    #[must_use]
    pub fn state(&self) -> String {
        let newest = self.store.decisions_since(Term::default(), 0);
        format!(
            "store at {}: {:?}, {newest:#?}, provider {}/{}",
            self.now,
            self.store.term(),
            self.provider.in_flight,
            self.config.capacity
        )
    }

    /// Sets the demand of a process: its calls in flight or waiting.
    pub fn set_demand(&mut self, p: usize, demand: u32) {
        let process = &mut self.processes[p];
        process.demand = if process.leaves { 0 } else { demand };
        self.schedule(self.now, Step::Wake(p));
    }

    /// Kills a process. Its calls at the provider go on.
    pub fn kill(&mut self, p: usize) {
        let process = &mut self.processes[p];
        process.is_alive = false;
        let process = process.number;
        self.emit(SharingEventKind::Killed { process });
    }

    /// Makes a process leave: see [`Session::leave`](crate::share::Session::leave).
    pub fn leave(&mut self, p: usize) {
        let local = self.local(p);
        let process = &mut self.processes[p];
        process.session.leave(local);
        process.demand = 0;
        process.leaves = true;
        self.after(p);
    }

    /// Suspends a process for a time.
    pub fn suspend(&mut self, p: usize, span: Duration) {
        self.processes[p].suspended_until = self.now + span;
    }

    /// Sets whether a process does not reach the store, and neither does one that starts in its place.
    /// Messages on their way are lost as well.
    pub fn set_disconnected(&mut self, p: usize, is_disconnected: bool) {
        let process = self.processes[p].number;
        let numbered = &mut self.numbers[process];
        if is_disconnected != numbered.is_disconnected {
            numbered.is_disconnected = is_disconnected;
            self.emit(if is_disconnected {
                SharingEventKind::Disconnected { process }
            } else {
                SharingEventKind::Connected { process }
            });
        }
    }

    /// Sets whether the store is down.
    pub fn stop_store(&mut self, is_down: bool) {
        self.store_is_down = is_down;
    }

    /// Makes the store lose the writes of the last `span`, or all writes if it is `None`.
    pub fn roll_back(&mut self, span: Option<Duration>) {
        let until = span.map_or(0, |span| self.now.as_nanos().saturating_sub(span.as_nanos()));
        self.backups.retain(|(at, ..)| at.as_nanos() <= until);
        let (store, published) =
            self.backups.last().map(|(_, store, published)| (store.clone(), *published)).unwrap_or_default();
        self.store = store;
        let term = self.store.term();
        self.observer.on_lost_writes(self.now, published, term);
    }

    /// Makes a failover with two primaries: from now on, these processes reach a new one, which lacks the
    /// writes of the last `lag`. The others reach the old one, of which samples show the newest decision.
    /// Observers do not learn which primary a process reaches.
    pub fn split(&mut self, moved: &[usize], lag: Duration) {
        let until = self.now.as_nanos().saturating_sub(lag.as_nanos());
        let backup = self.backups.iter().rfind(|(at, ..)| at.as_nanos() <= until);
        self.second = Some(backup.map(|(_, store, _)| store.clone()).unwrap_or_default());
        for p in moved {
            self.numbers[self.processes[*p].number].is_on_second = true;
        }
    }

    /// Ends this: all processes reach the new primary.
    pub fn end_split(&mut self) {
        if let Some(second) = self.second.take() {
            self.store = second;
        }
        self.numbers.iter_mut().for_each(|numbered| numbered.is_on_second = false);
    }

    /// Returns the primary that a process reaches.
    fn store_of(&mut self, p: usize) -> &mut MemoryStore {
        let second = self.second.as_mut().filter(|_| self.numbers[self.processes[p].number].is_on_second);
        second.unwrap_or(&mut self.store)
    }

    fn is_disconnected(&self, p: usize) -> bool {
        self.numbers[self.processes[p].number].is_disconnected
    }

    fn local(&self, p: usize) -> Instant {
        self.processes[p].clock.local(self.now)
    }

    /// Runs until `end`. An end in the past has no effect.
    pub fn advance_to(&mut self, end: Instant) {
        while let Some(Reverse((at, number))) = self.events.peek().copied() {
            if at > end {
                break;
            }
            self.events.pop();
            self.now = at;
            let Some(event) = self.payloads.remove(&number) else { continue };
            self.handle(event);
        }
        self.now = self.now.max(end);
    }

    fn handle(&mut self, event: Step) {
        if let Step::Wake(p) | Step::AtProcess(Sent { p, .. }, _) | Step::Send(p, _) | Step::Ended(p, ..) = &event {
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
            Step::Wake(p) => {
                if self.processes[p].wake_at <= self.now {
                    self.processes[p].wake_at = Instant::MAX;
                }
                self.after(p);
            }
            Step::AtStore(sent, step) => self.at_store(sent, step),
            Step::AtProcess(sent, reply) => self.at_process(sent, reply),
            Step::Send(p, call) => {
                self.send_call(p, call);
                self.after(p);
            }
            Step::CallEnds(p, call, end) => {
                self.provider.in_flight -= 1;
                self.numbers[self.processes[p].number].in_flight -= 1;
                self.observer.on_call_ended(self.processes[p].id, call);
                self.schedule(self.now, Step::Ended(p, call, end));
            }
            Step::Ended(p, call, end) => {
                self.finish(p, call, end.outcome, end.retry_after);
                self.after(p);
            }
        }
    }

    /// Sends a step to the store, and returns it. It can be lost, and it can arrive twice.
    fn send(&mut self, p: usize, role: Role, step: &StoreStep) -> Sent {
        self.latest_step += 1;
        let sent = Sent { p, role, number: self.latest_step };
        let timeout = self.config.step_timeout;
        self.schedule(self.now + timeout, Step::AtProcess(sent, Err(format!("no reply within {timeout}"))));
        if !self.is_disconnected(p) {
            for at in self.arrivals(true) {
                self.schedule(at, Step::AtStore(sent, step.clone()));
            }
        }
        sent
    }

    /// Returns when the next message arrives, if at all. A step can arrive twice; a process ignores a second
    /// reply.
    fn arrivals(&mut self, is_step: bool) -> Vec<Instant> {
        let late = self.now + self.config.step_timeout + self.config.delay;
        match self.fates.pop_front() {
            Some(Fate::Arrives) => vec![self.now + self.delay()],
            Some(Fate::IsLate) => vec![late],
            Some(Fate::IsRepeated) => vec![self.now + self.delay(), late],
            Some(Fate::IsLost) => Vec::new(),
            None if self.rng.below(1_000) < self.config.lost => Vec::new(),
            None => {
                let is_repeated = is_step && self.rng.below(1_000) < self.config.repeated;
                (0..=u32::from(is_repeated)).map(|_| self.now + self.delay()).collect()
            }
        }
    }

    fn delay(&mut self) -> Duration {
        Duration::from_nanos(1 + self.rng.below(self.config.delay.as_nanos()))
    }

    fn at_store(&mut self, sent: Sent, step: StoreStep) {
        if self.store_is_down || self.is_disconnected(sent.p) {
            return;
        }
        let newest = |store: &MemoryStore| store.decisions_since(Term::default(), 0);
        let reply = match step {
            StoreStep::TakeLead(request) => {
                let lead = self.store_of(sent.p).take_lead(request);
                if lead.term == request.term {
                    self.observer.on_lead(self.now, &lead);
                }
                StoreReply::Lead(lead)
            }
            StoreStep::Decide { decide, read } => {
                let (decision, before) = (decide.decision.clone(), newest(self.store_of(sent.p)));
                let decided = self.store_of(sent.p).decide(decide, read);
                let version = |of: &Option<Decision>| of.as_ref().map(|newest| newest.version);
                let after = newest(self.store_of(sent.p));
                if version(&after) != version(&before) && after.as_ref() == Some(&decision) {
                    self.published += 1;
                    self.observer.on_published(self.now, &decision);
                    self.emit_differences(before.as_ref(), &decision);
                }
                self.observer.on_term(self.now, decided.term);
                StoreReply::Decided(decided)
            }
            step => self.store_of(sent.p).run(step),
        };
        if self.backups.last().is_none_or(|(at, ..)| self.now - *at >= Duration::from_millis(10)) {
            self.backups.push((self.now, self.store.clone(), self.published));
            if self.backups.len() > 150 {
                self.backups.remove(0);
            }
        }
        for at in self.arrivals(false) {
            self.schedule(at, Step::AtProcess(sent, Ok(reply.clone())));
        }
    }
}
