//! The steps of one process that leases parts of a cost limit, in their order. The module
//! [`cost`](super::cost) defines the terms.
//!
//! ```text
//! join       mark the store -> read the files of all processes -> add them to the store
//! request    raise the own file -> request -> lower the own file
//! ```
//!
//! A process joins first, and again after the store has lost its data. It sends a request every 500 ms, and
//! earlier if a call lacks a lease or is about to.
//!
//! If a call needs more than is free, the process waits 1.5 s for what others give back, and requests again.
//! If that is refused too, the limit is reached. A step that fails is tried again after 500 ms, but for two
//! cases, in which the process must stop: its own file cannot be written, or the files of all processes could
//! not be read for five seconds.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::cost::{CostGrant, CostLease, CostRequest};
use crate::time::{Duration, Instant};

/// The longest time between two requests of a process. In two of them, it gives back what it has beyond one
/// step.
const BEAT: Duration = Duration::from_millis(500);

/// How long a process waits for what others give back before it takes the limit for reached.
const LAST_WAIT: Duration = Duration::from_millis(1_500);

/// How long the files of all processes may be unreadable.
const FILES_PATIENCE: Duration = Duration::from_secs(5);

/// A step of a process at the store or at the files. `P` is the name of a process, and `T` a term.
///
/// Exhaustive on purpose: a host carries out every step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostStep<P, T> {
    /// Mark the store with this number: [`CostStore::mark`](super::CostStore::mark).
    Mark(u64),
    /// Read what earlier runs have spent, and the files of all processes.
    ReadFiles,
    /// Add the files to the store: [`CostStore::join`](super::CostStore::join).
    Join {
        /// The number of the mark.
        mark: u64,
        /// The amount of each process.
        files: Vec<(P, u64)>,
    },
    /// Write this amount to the file of the process.
    WriteFile {
        /// The amount.
        amount: u64,
        /// Whether it may be more than the file contains. Then it must be on disk before the reply.
        rises: bool,
    },
    /// Request a part of the limit: [`CostStore::request`](super::CostStore::request).
    Request {
        /// The term in which the process has joined.
        term: T,
        /// The request.
        request: CostRequest,
    },
}

/// The reply to a [`CostStep`].
///
/// Exhaustive on purpose, as the steps are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostReply<P, T> {
    /// To [`CostStep::Mark`].
    Marked,
    /// To [`CostStep::ReadFiles`]: the amount of each process, also of this one, and of
    /// [`EARLIER_RUNS`](super::EARLIER_RUNS).
    Files(Vec<(P, u64)>),
    /// To [`CostStep::Join`]: the term, or `None` if the mark is lost.
    Joined(Option<T>),
    /// To [`CostStep::WriteFile`].
    Written,
    /// To [`CostStep::Request`]: the grant, or `None` if the process must join again.
    Granted(Option<CostGrant>),
}

/// Why a step has failed, with the error message. A step at the store may have run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostError {
    /// The store is unreachable or rejects the command.
    Store(String),
    /// A file of another process, or of earlier runs, cannot be read.
    Files(String),
    /// The file of the process cannot be written.
    OwnFile(String),
}

/// What changes for the calls of a process.
///
/// Exhaustive on purpose: a host applies every change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostChange {
    /// The lease has changed. Calls that lack a lease try again.
    Leased,
    /// The lease has changed, and calls that lack one go on waiting.
    Lacking,
    /// What is left of the limit does not suffice for a call: start no more.
    LimitReached,
    /// Nothing can be leased now, and it is tried again. Returned once until a request succeeds.
    Failing(String),
    /// Files cannot be written or read: start no more calls. No step follows until the process leaves.
    Stopped(String),
}

/// Why nothing can be leased now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The store fails.
    Store,
    /// The files cannot be read.
    Files,
    /// The store has lost its data.
    LostData,
}

/// Since when the steps fail for the same cause.
#[derive(Clone, Copy, Debug)]
struct Failing {
    cause: Cause,
    since: Instant,
    /// Whether [`CostChange::Failing`] was returned.
    is_announced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// No further step until the process leaves.
    Stopped,
    /// The last request follows.
    Leaving,
    /// The last request is under way.
    GivingBack,
    Ended,
}

/// The part of one process in a cost limit: makes its steps, one at a time.
///
/// It does no input or output. The host calls [`CostSession::handle_timeout`] at the instant of
/// [`CostSession::poll_timeout`] and when a call lacks a lease, carries out the step that
/// [`CostSession::poll_step`] returns, and passes the reply to [`CostSession::on_reply`]. After each of
/// these, the calls of the process may use [`CostSession::amount`] and no more. Extra calls have no effect.
///
/// The file of the process exists, with the amount 0, before the first step.
#[derive(Clone, Debug)]
pub struct CostSession<P, T> {
    lease: CostLease,
    /// The sum of the leases of all others, by the last grant.
    others: u64,
    /// The term in which the process has joined.
    term: Option<T>,
    /// The number of the last mark.
    mark: u64,
    /// What the own file contains. `None` from the start of a write until it has succeeded.
    filed: Option<u64>,
    /// What is written to the own file.
    writes: u64,
    /// The request that follows once the own file contains what may result from it.
    request: Option<CostRequest>,
    /// The amount that the calls needed when the last request was made.
    needed: u64,
    /// The step that is next.
    step: Option<CostStep<P, T>>,
    /// Whether the reply to a step is awaited.
    is_awaited: bool,
    /// When the next step is due in any case.
    next_at: Instant,
    /// Whether the calls that lack a lease are a reason for an earlier one.
    may_be_early: bool,
    /// Whether the last request was refused.
    was_refused: bool,
    failing: Option<Failing>,
    phase: Phase,
}

impl<P, T: Clone> CostSession<P, T> {
    /// Creates the session of a process that leases parts of `limit`, at most
    /// [`MAX_COST`](super::MAX_COST). Its first step is due at once.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self {
            lease: CostLease::new(limit),
            others: 0,
            term: None,
            mark: 0,
            filed: Some(0),
            writes: 0,
            request: None,
            needed: 0,
            step: None,
            is_awaited: false,
            next_at: Instant::ZERO,
            may_be_early: false,
            was_refused: false,
            failing: None,
            phase: Phase::Running,
        }
    }

    /// Makes the next step if one is due at `now`, or if the calls of the process need one. `used` is what
    /// the process has spent, with the estimates of its calls in flight, and `needed` the
    /// [`amount`](Self::amount) without which a call must wait, or 0.
    ///
    /// May lower the amount. Returns [`CostChange::Leased`] if what was needed is there already.
    pub fn handle_timeout(&mut self, now: Instant, used: u64, needed: u64) -> Option<CostChange> {
        let is_due = now >= self.next_at;
        match self.phase {
            _ if self.is_busy() => {}
            Phase::Running if !is_due && !self.may_be_early => {}
            Phase::Running if self.term.is_none() => {
                self.mark += 1;
                self.step = Some(CostStep::Mark(self.mark));
            }
            Phase::Running if is_due || needed > self.lease.amount() || used > self.lease.refill_at() => {
                self.needed = needed;
                let request = self.lease.request(used, needed);
                self.begin(request);
            }
            // What the call lacked was left by another one.
            Phase::Running if needed > 0 => return Some(CostChange::Leased),
            Phase::Leaving => {
                self.phase = Phase::GivingBack;
                self.needed = 0;
                let request = self.lease.give_back(used);
                self.begin(request);
            }
            Phase::Running | Phase::Stopped | Phase::GivingBack | Phase::Ended => {}
        }
        None
    }

    /// Processes the reply to the last step, and returns what changes for the calls of the process.
    pub fn on_reply(&mut self, now: Instant, reply: Result<CostReply<P, T>, CostError>) -> Option<CostChange> {
        self.is_awaited = false;
        match reply {
            // The last request of a process that leaves needs no files.
            Ok(CostReply::Marked | CostReply::Files(_)) if self.phase == Phase::Leaving => None,
            Ok(CostReply::Marked) => {
                self.step = Some(CostStep::ReadFiles);
                None
            }
            Ok(CostReply::Files(files)) => {
                self.step = Some(CostStep::Join { mark: self.mark, files });
                None
            }
            Ok(CostReply::Joined(Some(term))) => {
                self.term = Some(term);
                self.next_at = now;
                None
            }
            Ok(CostReply::Joined(None) | CostReply::Granted(None)) => {
                self.term = None;
                self.fail(now, Cause::LostData, "it has lost its data".to_string())
            }
            Ok(CostReply::Written) => {
                self.filed = Some(self.writes);
                self.after_write();
                None
            }
            Ok(CostReply::Granted(Some(grant))) => Some(self.on_grant(now, &grant)),
            Err(CostError::Store(why)) => self.fail(now, Cause::Store, why),
            Err(CostError::Files(why)) => self.fail(now, Cause::Files, why),
            Err(CostError::OwnFile(why)) => self.stop(why),
        }
    }

    fn on_grant(&mut self, now: Instant, grant: &CostGrant) -> CostChange {
        self.lease.apply(grant);
        self.others = grant.others;
        self.failing = None;
        // Calls that have cost more than their estimates may have used what was granted.
        let is_refused = self.needed > self.lease.amount();
        let change = match (is_refused, self.was_refused) {
            (false, _) => CostChange::Leased,
            (true, false) => CostChange::Lacking,
            (true, true) => CostChange::LimitReached,
        };
        self.was_refused = change == CostChange::Lacking;
        let wait = if self.was_refused { LAST_WAIT } else { BEAT };
        // The needs of other calls are no reason to request again before others can have given back.
        self.wait(now + wait, !self.was_refused);
        self.write(self.lease.amount());
        change
    }

    /// Starts the last request, which gives back what is left, after the step whose reply is awaited. The
    /// process starts no calls any more.
    pub fn leave(&mut self) {
        if matches!(self.phase, Phase::Running | Phase::Stopped) {
            self.phase = Phase::Leaving;
        }
    }

    /// Sends `request` after the own file contains what may result from it.
    fn begin(&mut self, request: CostRequest) {
        self.request = Some(request);
        self.write(request.most());
    }

    fn write(&mut self, amount: u64) {
        if self.filed == Some(amount) {
            self.after_write();
            return;
        }
        let rises = self.filed.is_none_or(|filed| amount > filed);
        (self.filed, self.writes) = (None, amount);
        self.step = Some(CostStep::WriteFile { amount, rises });
    }

    fn after_write(&mut self) {
        match (self.request.take(), self.term.clone()) {
            (Some(request), Some(term)) => self.step = Some(CostStep::Request { term, request }),
            _ => self.end_if_given_back(),
        }
    }

    fn end_if_given_back(&mut self) {
        if self.phase == Phase::GivingBack {
            self.phase = Phase::Ended;
        }
    }

    /// Ends the process if its last request has failed: the rest stays leased until a later run counts what
    /// is spent.
    fn ends_with_error(&mut self) -> bool {
        self.request = None;
        self.end_if_given_back();
        self.phase == Phase::Ended
    }

    fn wait(&mut self, until: Instant, may_be_early: bool) {
        (self.next_at, self.may_be_early) = (until, may_be_early);
    }

    fn fail(&mut self, now: Instant, cause: Cause, why: String) -> Option<CostChange> {
        if self.ends_with_error() {
            return None;
        }
        let before = self.failing;
        let same = before.filter(|before| before.cause == cause);
        let since = same.map_or(now, |before| before.since);
        if cause == Cause::Files && now - since >= FILES_PATIENCE {
            return self.stop(why);
        }
        // Without its data, the store answers. A process joins again at once, unless that did not help.
        let is_at_once = cause == Cause::LostData && same.is_none();
        self.wait(if is_at_once { now } else { now + BEAT }, false);
        let was_announced = before.is_some_and(|before| before.is_announced);
        self.failing = Some(Failing { cause, since, is_announced: was_announced || !is_at_once });
        (!was_announced && !is_at_once).then_some(CostChange::Failing(why))
    }

    fn stop(&mut self, why: String) -> Option<CostChange> {
        if self.ends_with_error() {
            return None;
        }
        if self.phase == Phase::Running {
            self.phase = Phase::Stopped;
        }
        Some(CostChange::Stopped(why))
    }
}

/// Output and state.
impl<P, T> CostSession<P, T> {
    /// Returns the next step, unless the reply to the last one is awaited or none is due.
    pub fn poll_step(&mut self) -> Option<CostStep<P, T>> {
        let step = self.step.take()?;
        self.is_awaited = true;
        Some(step)
    }

    /// Returns when to call [`CostSession::handle_timeout`] in any case, or `None` while the reply to a step
    /// is awaited or no step follows. An instant in the past is due now.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            _ if self.is_busy() => None,
            Phase::Running => Some(self.next_at),
            Phase::Leaving => Some(Instant::ZERO),
            Phase::Stopped | Phase::GivingBack | Phase::Ended => None,
        }
    }

    fn is_busy(&self) -> bool {
        self.is_awaited || self.step.is_some()
    }

    /// Returns what the process may spend in all, with the estimates of its calls in flight.
    #[must_use]
    pub fn amount(&self) -> u64 {
        self.lease.amount()
    }

    /// Returns the amount from which on the process should request before it needs more.
    #[must_use]
    pub fn refill_at(&self) -> u64 {
        self.lease.refill_at()
    }

    /// Returns the sum of the leases of all others, by the last grant.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.others
    }

    /// Returns whether the process has joined.
    #[must_use]
    pub fn has_joined(&self) -> bool {
        self.term.is_some()
    }

    /// Returns whether the process has left: no step follows.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }
}
