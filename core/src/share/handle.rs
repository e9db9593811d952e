//! A member that request admission and a host drive together.

use alloc::sync::Arc;
use core::fmt;

use lock_api::{Mutex, RawMutex};

use super::member::Member;
use crate::limit::{CallReport, LimitAlgorithm, MemberState};
use crate::time::{Duration, Instant};

/// A handle to a [`Member`] under a lock. Clones are handles to the same member.
///
/// One clone is the [limit algorithm](LimitAlgorithm) of the shared resource, and the host drives the member
/// through another. After a command of the host that can change the limit, such as [`Member::on_decision`],
/// the host calls [`refresh_limit`](crate::request::RequestAdmission::refresh_limit), outside the lock.
///
/// The clock of the member is that of the host plus the time of
/// [`set_suspended`](crate::request::RequestAdmission::set_suspended), so that a lease lapses while the
/// machine is suspended. A gate calls it after [`Gate::count_suspended`](crate::gate::Gate::count_suspended).
/// The member converts the instants of request admission; the host converts its own
/// with [`MemberHandle::to_member`] and [`MemberHandle::to_host`].
pub struct MemberHandle<L: RawMutex>(Arc<Mutex<L, Member>>);

impl<L: RawMutex> MemberHandle<L> {
    /// Creates a handle to `member`.
    #[must_use]
    pub fn new(member: Member) -> Self {
        Self(Arc::new(Mutex::new(member)))
    }

    /// Runs one command on the member, under the lock. `command` must be short, and must not use a handle or
    /// a gate: the gate locks the member as well.
    pub fn with<R>(&self, command: impl FnOnce(&mut Member) -> R) -> R {
        command(&mut self.0.lock())
    }

    /// Converts an instant of the host to one of the member.
    #[must_use]
    pub fn to_member(&self, at: Instant) -> Instant {
        self.0.lock().to_member(at)
    }

    /// Converts an instant of the member to one of the host.
    #[must_use]
    pub fn to_host(&self, at: Instant) -> Instant {
        self.0.lock().to_host(at)
    }
}

impl<L: RawMutex> Clone for MemberHandle<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L: RawMutex> fmt::Debug for MemberHandle<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberHandle").finish_non_exhaustive()
    }
}

impl<L: RawMutex + Send + Sync + 'static> LimitAlgorithm for MemberHandle<L> {
    fn limit(&self, now: Instant) -> u32 {
        self.0.lock().limit(now)
    }

    fn next_change(&self, now: Instant) -> Option<Instant> {
        self.0.lock().next_change(now)
    }

    fn on_attempt(&mut self, now: Instant, in_flight: u32) {
        self.0.lock().on_attempt(now, in_flight);
    }

    fn on_time(&mut self, now: Instant) {
        self.0.lock().on_time(now);
    }

    fn on_grant(&mut self, now: Instant, grant: u64, in_flight: u32) {
        self.0.lock().on_grant(now, grant, in_flight);
    }

    fn on_outcome(&mut self, now: Instant, call: &CallReport) {
        self.0.lock().on_outcome(now, call);
    }

    fn cooldown(&self, now: Instant, call: &CallReport) -> Option<Duration> {
        self.0.lock().cooldown(now, call)
    }

    fn on_cooldown(&mut self, now: Instant, until: Instant) {
        self.0.lock().on_cooldown(now, until);
    }

    fn opens_at(&self, now: Instant) -> Option<Instant> {
        self.0.lock().opens_at(now)
    }

    fn may_send(&self, now: Instant) -> bool {
        self.0.lock().may_send(now)
    }

    fn set_suspended(&mut self, suspended: Duration) {
        self.0.lock().set_suspended(suspended);
    }

    fn member_state(&self, now: Instant) -> Option<MemberState> {
        self.0.lock().member_state(now)
    }

    fn set_max(&mut self, now: Instant, max: u32, lifts: bool) {
        self.0.lock().set_max(now, max, lifts);
    }
}
