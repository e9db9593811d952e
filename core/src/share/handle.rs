//! A member that request admission and a host drive together.

use alloc::sync::Arc;
use core::fmt;

use lock_api::{Mutex, RawMutex};

use super::member::Member;
use crate::limit::{CallReport, LimitAlgorithm};
use crate::time::{Duration, Instant};

/// A handle to a [`Member`] under a lock. Clones are handles to the same member.
///
/// One clone is the [limit algorithm](LimitAlgorithm) of the shared resource, and the host drives the member
/// through another. After a command of the host that can change the limit, such as [`Member::on_decision`],
/// the host calls [`refresh_limit`](crate::request::RequestAdmission::refresh_limit), outside the lock.
///
/// A lease must lapse while a machine is suspended, and the clocks of most hosts stop then. So the clock of
/// the member is that of the host plus the time for which the machine was suspended. The handle converts the
/// instants of request admission; the host converts its own with [`MemberHandle::to_member`] and
/// [`MemberHandle::to_host`].
pub struct MemberHandle<L: RawMutex> {
    member: Arc<Mutex<L, Member>>,
    suspended: fn() -> Duration,
}

impl<L: RawMutex> MemberHandle<L> {
    /// Creates a handle to `member`.
    ///
    /// `suspended` returns for how long the machine was suspended so far, as far as the clock of the host
    /// does not count it. It must not fall.
    #[must_use]
    pub fn new(member: Member, suspended: fn() -> Duration) -> Self {
        Self { member: Arc::new(Mutex::new(member)), suspended }
    }

    /// Runs one command on the member, under the lock. `command` must be short, and must not use a handle or
    /// a gate: the gate locks the member as well.
    pub fn with<R>(&self, command: impl FnOnce(&mut Member) -> R) -> R {
        command(&mut self.member.lock())
    }

    /// Converts an instant of the host to one of the member.
    #[must_use]
    pub fn to_member(&self, at: Instant) -> Instant {
        at + (self.suspended)()
    }

    /// Converts an instant of the member to one of the host.
    #[must_use]
    pub fn to_host(&self, at: Instant) -> Instant {
        Instant::from_nanos(at.as_nanos().saturating_sub((self.suspended)().as_nanos()))
    }
}

impl<L: RawMutex> Clone for MemberHandle<L> {
    fn clone(&self) -> Self {
        Self { member: Arc::clone(&self.member), suspended: self.suspended }
    }
}

impl<L: RawMutex> fmt::Debug for MemberHandle<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemberHandle").finish_non_exhaustive()
    }
}

impl<L: RawMutex + Send + Sync> LimitAlgorithm for MemberHandle<L> {
    fn limit(&self, now: Instant) -> u32 {
        self.member.lock().limit(self.to_member(now))
    }

    fn next_change(&self, now: Instant) -> Option<Instant> {
        self.member.lock().next_change(self.to_member(now)).map(|at| self.to_host(at))
    }

    fn on_attempt(&mut self, now: Instant, in_flight: u32) {
        self.member.lock().on_attempt(self.to_member(now), in_flight);
    }

    fn on_time(&mut self, now: Instant) {
        self.member.lock().on_time(self.to_member(now));
    }

    fn on_grant(&mut self, now: Instant, grant: u64, in_flight: u32) {
        self.member.lock().on_grant(self.to_member(now), grant, in_flight);
    }

    fn on_outcome(&mut self, now: Instant, call: &CallReport) {
        self.member.lock().on_outcome(self.to_member(now), call);
    }

    fn cooldown(&self, now: Instant, call: &CallReport) -> Option<Duration> {
        self.member.lock().cooldown(self.to_member(now), call)
    }

    fn on_cooldown(&mut self, now: Instant, until: Instant) {
        self.member.lock().on_cooldown(self.to_member(now), self.to_member(until));
    }

    fn opens_at(&self, now: Instant) -> Option<Instant> {
        self.member.lock().opens_at(self.to_member(now)).map(|at| self.to_host(at))
    }

    fn may_send(&self, now: Instant) -> bool {
        self.member.lock().may_send(self.to_member(now))
    }

    fn set_max(&mut self, now: Instant, max: u32, lifts: bool) {
        self.member.lock().set_max(self.to_member(now), max, lifts);
    }
}
