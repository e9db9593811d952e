//! One cost limit of several processes that fill one dataset.
//!
//! A process leases a part of the limit from a store, and may spend that part without a message. Amounts are
//! integers of at most [`MAX_COST`], in a unit that the host chooses.
//!
//! ```text
//! used    what a process has spent, and the estimates of its calls in flight
//! lease   the most that `used` may become
//! free    limit - sum of all leases
//! step    free / 16: a process leases its need or a step, whichever is more
//!
//! sum of all leases <= limit, and a process starts a call only if used <= lease then
//! ```
//!
//! A call may cost more than its estimate. Then `used` may be more than the lease, which does not grow by
//! that: the store counts what is used, and the process starts no call until it uses less or gets more.
//!
//! What earlier runs have spent is the lease of the process [`EARLIER_RUNS`]. The step becomes smaller as the
//! limit comes near, and a process gives back what it has beyond one step. So processes ask rarely while much
//! is left, and a process that dies takes at most about a sixteenth of the rest with it. Its lease counts as
//! spent.
//!
//! # Lost data
//!
//! The store may lose its data, so each process also has a file, which all processes can read. Three rules
//! keep the sum of all leases within the limit, whatever is lost, late or repeated:
//!
//! 1. The file of a process contains at least its lease at any time. A process writes [`CostRequest::most`]
//!    before it sends a request, and what it got afterwards.
//! 2. A process lowers its lease before it sends a request that gives back. A request replaces the lease at
//!    the store, unless the store has a newer one of the process or another term.
//! 3. A store without data grants nothing until a process has joined: the process marks the store, then reads
//!    all files, and then adds them. The store accepts them only with this mark, which has a number of its
//!    own in each attempt, so it has lost nothing since the files were read, also if an earlier mark or an
//!    earlier attempt is late. It draws a new *term*, so requests from before the loss have no effect.
//!
//! [`CostSession`](super::CostSession) makes the steps of a process in this order.

use alloc::collections::BTreeMap;

/// The largest amount: 2^53 - 1. Stores may compute with doubles.
pub const MAX_COST: u64 = (1 << 53) - 1;

/// A process leases its need, or what is free divided by this number, whichever is more.
pub const COST_STEPS: u64 = 16;

/// The number that stands for the earlier runs of the job. No process has it.
pub const EARLIER_RUNS: u64 = 0;

/// What a process asks of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostRequest {
    /// Counts the requests of the process, from 1.
    pub seq: u64,
    /// The limit of all processes together.
    pub limit: u64,
    /// The amount that the process keeps in any case.
    pub held: u64,
    /// The amount beyond `held` without which the process can do nothing.
    pub need: u64,
    /// The amount beyond `held` that the process accepts, at least `need`.
    pub wanted: u64,
}

impl CostRequest {
    /// Returns the largest lease that can result from the request.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.held.saturating_add(self.wanted.max(self.need))
    }
}

/// The answer of the store to a [`CostRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostGrant {
    /// The new lease of the process.
    pub lease: u64,
    /// The amount that a process should lease in advance: what is free now, divided by [`COST_STEPS`].
    pub step: u64,
    /// The sum of the leases of all others.
    pub others: u64,
    /// Whether the need is more than what is free. The lease is `held` then.
    pub is_refused: bool,
}

/// Decides a request. `others` is the sum of the leases of all other processes.
#[must_use]
pub fn grant_cost(request: &CostRequest, others: u64) -> CostGrant {
    let CostRequest { limit, held, need, wanted, .. } = *request;
    let free = limit.saturating_sub(others).saturating_sub(held);
    let is_refused = need > free;
    let more = if is_refused { 0 } else { need.max(wanted.min(free / COST_STEPS)) };
    CostGrant { lease: held + more, step: (free - more) / COST_STEPS, others, is_refused }
}

/// The lease of one process, as the process has it.
#[derive(Clone, Debug)]
pub struct CostLease {
    limit: u64,
    lease: u64,
    step: u64,
    seq: u64,
}

impl CostLease {
    /// Creates an empty lease of a part of `limit`, which is at most [`MAX_COST`].
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { limit: limit.min(MAX_COST), lease: 0, step: 0, seq: 0 }
    }

    /// Returns what the process may spend in all, with the estimates of its calls in flight.
    #[must_use]
    pub fn amount(&self) -> u64 {
        self.lease
    }

    /// Returns the amount from which on the process should send a request before it needs more.
    #[must_use]
    pub fn refill_at(&self) -> u64 {
        self.lease.saturating_sub(self.step / 4)
    }

    /// Returns the next request. `used` is what the process uses now, and `needed` the
    /// [`amount`](Self::amount) without which its next call must wait, or 0.
    ///
    /// May lower the amount. Send the request only after that applies, and after the file contains
    /// [`CostRequest::most`].
    pub fn request(&mut self, used: u64, needed: u64) -> CostRequest {
        if needed > self.lease || used > self.refill_at() {
            let held = self.lease.max(used);
            let need = needed.saturating_sub(held);
            self.send(held, need, need.max(self.step))
        } else {
            self.send(self.lease.min(used.saturating_add(self.step)), 0, 0)
        }
    }

    /// Returns the last request: it gives back what the process has not used.
    pub fn give_back(&mut self, used: u64) -> CostRequest {
        self.send(used, 0, 0)
    }

    /// Adopts the answer to the last request. What others do not leave is no part of the lease, also if it is
    /// used.
    pub fn apply(&mut self, grant: &CostGrant) {
        self.lease = grant.lease.min(self.limit.saturating_sub(grant.others));
        self.step = grant.step;
    }

    fn send(&mut self, held: u64, need: u64, wanted: u64) -> CostRequest {
        let held = held.min(MAX_COST);
        self.seq += 1;
        self.lease = self.lease.min(held);
        CostRequest { seq: self.seq, limit: self.limit, held, need, wanted }
    }
}

/// A store in memory: the reference of what a store does. Each method is one atomic step. A step whose answer
/// is lost may have run.
///
/// A store that is restarted, or replaced by its replica, may lack its last writes. It must then behave as
/// one without data, which is the default.
#[derive(Clone, Debug, Default)]
pub struct CostStore {
    /// Drawn by the process that was the first to join. `None` means that there are no data.
    term: Option<u64>,
    /// The newest mark of each process that reads the files.
    marks: BTreeMap<u64, u64>,
    /// The newest request and the lease of each process.
    leases: BTreeMap<u64, (u64, u64)>,
}

impl CostStore {
    /// Marks the store. The process `process` reads all files after the answer, and [joins](Self::join).
    /// `mark` is a number that it has not used before.
    pub fn mark(&mut self, process: u64, mark: u64) {
        self.marks.insert(process, mark);
    }

    /// Adds the amounts in `files`, each with its process, where the store has no lease of the process.
    /// Returns the term, which is `new_term` if there was none. Returns `None` if `mark` is lost or
    /// is not the newest of the process.
    pub fn join(&mut self, process: u64, mark: u64, new_term: u64, files: &[(u64, u64)]) -> Option<u64> {
        if self.marks.get(&process) != Some(&mark) {
            return None;
        }
        self.marks.remove(&process);
        for &(of, amount) in files {
            self.leases.entry(of).or_insert((0, amount));
        }
        Some(*self.term.get_or_insert(new_term))
    }

    /// Decides a request of `process`, and keeps its lease. Returns `None`, and changes nothing, if the term
    /// is another one or the store has a newer request of the process. The process must join again then.
    pub fn request(&mut self, process: u64, term: u64, request: &CostRequest) -> Option<CostGrant> {
        let newest = self.leases.get(&process).map_or(0, |(seq, _)| *seq);
        if self.term != Some(term) || newest >= request.seq {
            return None;
        }
        let others = self.leases.iter().filter(|(of, _)| **of != process);
        let others = others.fold(0, |sum: u64, (_, (_, lease))| sum.saturating_add(*lease));
        let grant = grant_cost(request, others);
        self.leases.insert(process, (request.seq, grant.lease));
        Some(grant)
    }
}
