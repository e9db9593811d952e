//! Requests of workers: a worker gives its task resources back while it waits for a request lease, and asks
//! for none once its run stops.
//!
//! A request that is made through
//! [`RequestAdmission::acquire_yielding`](crate::request::RequestAdmission::acquire_yielding) carries the
//! [`TaskToken`] of the worker that makes it. If the request must wait and the token says so, the worker
//! *yields*: it holds no task resource, so a paused provider never occupies a slot that work for another
//! provider could use. The worker gets its request lease only together with everything it gave back, in one
//! transaction. It never holds one while it waits for the other.
//!
//! - At most [`YIELD_FACTOR`] x effective max workers yield for each resource. Further waiters keep what they
//!   hold. Such a waiter gives it up when a yielded worker of the same run could continue with it. Waiters
//!   for the same resource are chosen first, and of those the latest arrival. While a provider is not
//!   healthy, all that begin to wait for it yield: their number is bounded by the rows that a run has in
//!   work.
//! - Yielded workers resume before anything new starts: see
//!   [`RequestAdmission::resume_yielded`](crate::request::RequestAdmission::resume_yielded).
//! - The yielding waiters of a run are queued in a group of their own beside the request group, with the same
//!   weight. A waiter that holds no task resources therefore never blocks waiters that need none.
//! - A worker whose request was rejected (its deadline passed, for example) stays yielded until its next
//!   request is granted or it ends.
//! - Once a run stops, its waiting requests are rejected as cancelled, and so is every later one: calls that
//!   are out end, and none begins. See
//!   [`RequestAdmission::reject_stopping`](crate::request::RequestAdmission::reject_stopping).
//!
//! Request admission depends on the task side only through [`TaskResources`], which the
//! [pipeline](crate::pipeline::Pipeline) implements.

use crate::event::Correlation;
use crate::id::SlotKey;
use crate::time::Instant;

/// How many workers may be suspended for each call that a resource can ever have out.
pub const YIELD_FACTOR: u32 = 2;

/// The worker behind a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TaskToken {
    /// The run, among those that share the controller. A number that is used again needs another generation.
    pub run: SlotKey,
    /// The worker, among those of its run.
    pub worker: SlotKey,
    /// What it gives back while it waits, as a number of its run: workers of equal vectors have equal
    /// numbers. Small numbers, please: every pair of resource and vector that ever waited is remembered.
    /// `None` for a worker that keeps what it holds.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub vector: Option<u32>,
}

/// The task stage, as request admission sees it.
pub trait TaskResources {
    /// Takes back all that a worker holds. False if it goes on holding it: it may not yield, or it is
    /// unknown.
    fn suspend(&mut self, now: Instant, token: &TaskToken) -> bool;

    /// Gives a worker all that it gave back, or nothing. True too for a worker that holds it still.
    fn resume(&mut self, now: Instant, token: &TaskToken) -> bool;

    /// Whether [`TaskResources::resume`] would answer true.
    fn can_resume(&self, token: &TaskToken) -> bool;

    /// Whether `holder` holds some of what the worker of `token` is short of, which cannot resume.
    fn blocks(&self, holder: &TaskToken, token: &TaskToken) -> bool;

    /// The task of a worker, for the events of its calls; `None` if it is unknown.
    fn correlation(&self, token: &TaskToken) -> Option<Correlation>;

    /// Whether a run begins no call any more.
    fn is_stopping(&self, run: SlotKey) -> bool;
}
