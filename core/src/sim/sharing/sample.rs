//! The figures of one instant, what happened, and what can be changed.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{EVENTS, Numbered, START, SharingObserver, SharingWorld};
use crate::share::{Decision, Term};
use crate::time::Instant;

/// The figures of one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SharingSample {
    /// The virtual time since the start.
    pub at: Instant,
    /// By number of the process.
    pub processes: Vec<ProcessSample>,
    /// The process that leads in the present term of the store. `None` if it is killed or suspended, or if
    /// there was no leader yet.
    pub leader: Option<usize>,
    /// The number of leaderships so far.
    pub epoch: u64,
    /// The version of the newest decision in the store, or 0 if there is none.
    pub version: u64,
    /// The limit over all processes in this decision, or 0.
    pub limit: u32,
    /// The highest limit.
    pub cap: u32,
    /// How long a lease lasts.
    pub ttl_ns: u64,
    /// How many calls the provider serves at once.
    pub capacity: u32,
    /// The calls at the provider, also those of killed processes and those that it refuses.
    pub in_flight: u32,
    /// The calls that the provider has answered.
    pub answered: u64,
    /// The calls that it has refused (429).
    pub refused: u64,
}

/// The figures of one process. Those of a killed process are zero, apart from `is_connected`, `in_flight` and
/// `demand`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ProcessSample {
    /// Whether it runs.
    pub is_alive: bool,
    /// Whether it reaches the store. Of a killed process: whether one that starts in its place does.
    pub is_connected: bool,
    /// Its share, or 0 if its lease has lapsed.
    pub share: u32,
    /// Its calls at the provider, including those of killed processes that had its number.
    pub in_flight: u32,
    /// Its calls that wait for admission.
    pub waiting: u32,
    /// Its demand: its calls in flight or waiting.
    pub demand: u32,
    /// How much longer its lease is valid.
    pub lease_ns: u64,
    /// The version of the decision that it has adopted, or 0 if there is none.
    pub version: u64,
    /// The limit over all processes in this decision, or 0.
    pub limit: u32,
}

/// What happened, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SharingEvent {
    /// The virtual time since the start.
    pub at: Instant,
    /// What happened.
    #[serde(flatten)]
    pub what: SharingEventKind,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum SharingEventKind {
    /// A process was started.
    Started {
        /// Its number.
        process: usize,
    },
    /// A process was killed.
    Killed {
        /// Its number.
        process: usize,
    },
    /// A process no longer reaches the store.
    Disconnected {
        /// Its number.
        process: usize,
    },
    /// A process reaches the store again.
    Connected {
        /// Its number.
        process: usize,
    },
    /// A process took the lead.
    Leads {
        /// Its number.
        process: usize,
        /// The number of leaderships so far.
        epoch: u64,
    },
    /// A process has a valid lease.
    Leased {
        /// Its number.
        process: usize,
    },
    /// The lease of a process has lapsed: it starts no call, unless [`OnLoss`](crate::share::OnLoss) allows
    /// it.
    Lapsed {
        /// Its number.
        process: usize,
    },
    /// The leader has reclaimed the share of a process, for the others.
    Reclaimed {
        /// The number of the process.
        process: usize,
        /// The slots of its share.
        slots: u32,
    },
    /// The provider refused calls, and the limit fell.
    Cut {
        /// The limit before.
        from: u32,
        /// The limit after.
        to: u32,
    },
}

/// A change of the surroundings, from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(tag = "set", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum SharingChange {
    /// Whether a process reaches the store, and one that starts in its place. Messages on their way are lost
    /// as well.
    Connected {
        /// Its number.
        process: usize,
        /// Whether it does.
        connected: bool,
    },
    /// Whether a process runs. A killed process does not come back: another one starts in its place, without
    /// a share and with a new identity, and gets its number.
    Alive {
        /// Its number.
        process: usize,
        /// Whether it does.
        alive: bool,
    },
    /// The demand of a process: its calls in flight or waiting.
    Demand {
        /// Its number.
        process: usize,
        /// The calls.
        calls: u32,
    },
    /// How many calls the provider serves at once.
    Capacity {
        /// The calls.
        slots: u32,
    },
}

/// A change names a process that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no process {process}: expected a number below {processes}")]
pub struct UnknownProcess {
    process: usize,
    processes: usize,
}

/// Figures, events and changes.
impl<O: SharingObserver> SharingWorld<O> {
    /// Returns the figures of the present time. Costs O(processes).
    #[must_use]
    pub fn sample(&self) -> SharingSample {
        let term = self.store.term();
        let newest = self.store.decisions_since(Term::default(), 0);
        let leads = |numbered: &Numbered| {
            let process = &self.processes[numbered.latest];
            let is_running = process.is_alive && process.suspended_until <= self.now;
            is_running && process.session.leads() == Some(term)
        };
        SharingSample {
            at: Instant::ZERO + (self.now - START),
            processes: (0..self.numbers.len()).map(|number| self.process_sample(number)).collect(),
            leader: self.numbers.iter().position(leads),
            epoch: term.epoch,
            version: newest.as_ref().map_or(0, |newest| newest.version),
            limit: newest.map_or(0, |newest| newest.limit),
            cap: self.config.cap,
            ttl_ns: self.config.share.ttl.as_nanos(),
            capacity: self.config.capacity,
            in_flight: self.provider.in_flight,
            answered: self.provider.answered,
            refused: self.provider.refused,
        }
    }

    fn process_sample(&self, number: usize) -> ProcessSample {
        let &Numbered { latest, in_flight, is_disconnected, is_on_second: _ } = &self.numbers[number];
        let process = &self.processes[latest];
        let (is_connected, demand) = (!is_disconnected, process.demand);
        if !process.is_alive {
            return ProcessSample { is_connected, in_flight, demand, ..ProcessSample::default() };
        }
        let local = process.clock.local(self.now);
        let state = process.session.state(local);
        let (lease_left, version) = process.member.with(|member| (member.lease_left(local), member.version()));
        ProcessSample {
            is_alive: true,
            is_connected,
            share: if state.has_lease { state.share } else { 0 },
            in_flight,
            waiting: process.waiting(),
            demand,
            lease_ns: lease_left.as_nanos(),
            version,
            limit: state.limit,
        }
    }

    /// Returns what happened since the last time, oldest first: at most the latest 1000 events.
    pub fn take_events(&mut self) -> Vec<SharingEvent> {
        self.happened.drain(..).collect()
    }

    /// Applies a change now. A change to what already holds has no effect. Returns an error if it names a
    /// process that does not exist, and then changes nothing.
    pub fn change(&mut self, change: SharingChange) -> Result<(), UnknownProcess> {
        match change {
            SharingChange::Connected { process, connected } => {
                let p = self.process(process)?;
                self.set_disconnected(p, !connected);
            }
            SharingChange::Alive { process, alive } => {
                let p = self.process(process)?;
                match (self.processes[p].is_alive, alive) {
                    (true, false) => self.kill(p),
                    (false, true) => {
                        let demand = self.processes[p].demand;
                        self.start(process, demand);
                    }
                    _ => {}
                }
            }
            SharingChange::Demand { process, calls } => {
                let p = self.process(process)?;
                self.set_demand(p, calls);
            }
            SharingChange::Capacity { slots } => self.config.capacity = slots,
        }
        Ok(())
    }

    /// Returns the index of the latest process with this number.
    fn process(&self, process: usize) -> Result<usize, UnknownProcess> {
        self.numbers
            .get(process)
            .map(|numbered| numbered.latest)
            .ok_or(UnknownProcess { process, processes: self.numbers.len() })
    }

    pub(super) fn emit(&mut self, what: SharingEventKind) {
        if self.happened.len() == EVENTS {
            self.happened.pop_front();
        }
        self.happened.push_back(SharingEvent { at: Instant::ZERO + (self.now - START), what });
    }

    /// Emits that the lease of a process has become valid, or has lapsed.
    pub(super) fn emit_lease(&mut self, p: usize, local: Instant) {
        let process = &self.processes[p];
        let has_lease = process.session.state(local).has_lease;
        let process = process.number;
        let is_same = if has_lease { !self.leased.insert(p) } else { !self.leased.remove(&p) };
        if is_same {
            return;
        }
        self.emit(if has_lease { SharingEventKind::Leased { process } } else { SharingEventKind::Lapsed { process } });
    }

    /// Emits what is different in the decision that the store has just accepted.
    pub(super) fn emit_differences(&mut self, before: Option<&Decision>, now: &Decision) {
        let Some(before) = before else { return };
        if now.limit < before.limit && self.provider.refused > self.refused_before {
            self.emit(SharingEventKind::Cut { from: before.limit, to: now.limit });
        }
        self.refused_before = self.provider.refused;
        for (id, given) in before.shares.iter().filter(|(_, given)| given.share > 0) {
            let is_gone = now.shares.get(id).is_none_or(|given| given.share == 0);
            let Some(of) = self.processes.iter().find(|process| is_gone && process.id == *id) else { continue };
            // A member that leaves gives its share back, and its lease is valid.
            if !of.session.state(of.clock.local(self.now)).has_lease {
                self.emit(SharingEventKind::Reclaimed { process: of.number, slots: given.share });
            }
        }
    }
}
