//! How workers make requests: a worker releases its task resources while it waits for a request lease, and
//! gets no lease once its run stops.
//!
//! A request made through
//! [`RequestAdmission::acquire_yielding`](crate::request::RequestAdmission::acquire_yielding) carries the
//! [`TaskToken`] of its worker. If the request must wait and the token allows it, the worker *yields*: it
//! holds no task resources, so work for another provider can use them while its own provider accepts none.
//! Later the worker gets its request lease and everything that it released in one transaction. It never holds
//! one while it waits for the other.
//!
//! - At most [`YIELD_FACTOR`] x `effective_max` workers yield for each request resource. `effective_max` is
//!   the most calls of the resource that its settings and the model's cap allow at once. Further waiters keep
//!   their task resources, with one exception. If a yielded worker of the run could resume with the task
//!   resources of one of these waiters, one waiter releases them: first one for the same request resource,
//!   and among those the latest.
//! - While the [health](crate::request::HealthState) of a provider is not `Healthy`, all workers that begin
//!   to wait for it yield. Their number is bounded by the rows that a run processes at the same time.
//! - Yielded workers resume before anything new starts: see
//!   [`RequestAdmission::resume_yielded`](crate::request::RequestAdmission::resume_yielded).
//! - The yielding waiters of a run wait in a FIFO of their own, in the group of the request. So a waiter that
//!   needs its task resources back never blocks waiters that need none, and the group has one share.
//! - A worker whose request was denied (its deadline passed, for example) stays yielded until its next
//!   request or its end. The next request takes the task resources back at once if they are free, and
//!   otherwise together with its grant.
//! - Once a run stops, its waiting requests and all its later requests are denied as cancelled. Calls in
//!   flight end and none begins. See
//!   [`RequestAdmission::deny_stopping`](crate::request::RequestAdmission::deny_stopping).
//!
//! Request admission depends on the task side only through [`TaskResources`], which the
//! [pipeline](crate::pipeline::Pipeline) implements.

use crate::event::Correlation;
use crate::id::SlotKey;
use crate::time::Instant;

/// The maximum number of yielded workers of a request resource, for each call that its effective maximum
/// allows. See the [module documentation](self).
pub const YIELD_FACTOR: u32 = 2;

/// Identifies the worker that makes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TaskToken {
    /// The run, among those that share one `RequestAdmission`. If a slot number is reused, its generation
    /// differs.
    pub run: SlotKey,
    /// The worker, among those of its run.
    pub worker: SlotKey,
    /// The demand that the worker releases while it waits, as a number within its run: a
    /// [`DemandId`](crate::task::DemandId). `None` for a worker that keeps its task resources.
    ///
    /// Workers with equal demands have equal numbers. Use few different numbers: every pair of request
    /// resource and demand that ever waited is stored.
    // Recorded logs call it `vector`.
    #[cfg_attr(feature = "serde", serde(rename = "vector", default, skip_serializing_if = "Option::is_none"))]
    pub demand: Option<u32>,
}

/// The task resources of one or more runs, as request admission uses them.
///
/// [`Pipeline`](crate::pipeline::Pipeline) implements it. Implement it for a driver of several runs, which
/// passes each token to its run.
pub trait TaskResources {
    /// Releases all resources of a worker. Returns false if the worker keeps them because it may not yield
    /// or is unknown.
    fn yield_resources(&mut self, now: Instant, token: &TaskToken) -> bool;

    /// Restores all released resources of a worker, or none of them. Returns whether the worker holds its
    /// resources, which is also true if it never released them.
    fn resume(&mut self, now: Instant, token: &TaskToken) -> bool;

    /// Returns whether [`TaskResources::resume`] would return true.
    fn can_resume(&self, token: &TaskToken) -> bool;

    /// Returns whether `holder` holds some of the resources that the worker of `token` lacks. The caller
    /// has checked that this worker cannot resume now.
    fn blocks(&self, holder: &TaskToken, token: &TaskToken) -> bool;

    /// Returns the task of a worker, for the events of its calls. `None` if the worker is unknown.
    fn correlation(&self, token: &TaskToken) -> Option<Correlation>;

    /// Returns whether a run is stopping and begins no more calls.
    fn is_stopping(&self, run: SlotKey) -> bool;
}
