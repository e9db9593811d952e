//! A resource of a gate whose limit several processes share.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;

use lock_api::{Mutex, RawMutex};

use super::{Gate, GateControl};
use crate::budget::WalletLease;
use crate::error::ConfigError;
use crate::limit::{LimitAlgorithm, LimitChoice, LimitConfig};
use crate::request::ResourceId;
use crate::runtime::Host;
use crate::share::{MemberHandle, MemberId, MemberState, Role, Session, SessionSettings, StoreReply, StoreStep};
use crate::time::Instant;

/// A resource whose limit is a share: connects the [`Session`] of this process to the gate.
///
/// The host has a store, and drives this as it drives a session: [`SharedLimit::update`] at the instant of
/// [`SharedLimit::poll_timeout`], then each step of [`SharedLimit::poll_step`] at the store, whose reply it
/// passes to [`SharedLimit::on_reply`]. No waker runs under its lock.
pub struct SharedLimit<H: Host, L: RawMutex> {
    gate: Gate<H>,
    resource: ResourceId,
    member: MemberId,
    is_recorded: bool,
    session: Mutex<L, Session<L>>,
}

impl<H: Host, L: RawMutex + Send + Sync + 'static> SharedLimit<H, L> {
    /// Makes the limit of a resource a share. No call starts until the first share arrives. A resource whose
    /// limit was shared already is shared anew.
    ///
    /// `random` returns a number below 2^53 that differs between processes, and between calls. The leases
    /// count the time of [`Clock::suspended`](crate::time::Clock::suspended): this calls
    /// [`Gate::count_suspended`], also if it fails.
    ///
    /// # Errors
    ///
    /// A setting is out of range, or `resource` is not one of the gate's.
    pub fn install(
        gate: &Gate<H>,
        resource: ResourceId,
        settings: SessionSettings,
        mut random: impl FnMut() -> u64,
    ) -> Result<Self, ConfigError> {
        gate.shared.count_suspended();
        let (id, seed) = (MemberId(random()), random());
        let (member, is_recorded) = gate.with(|machine, now| {
            let share = |member| {
                let handle = MemberHandle::<L>::new(member);
                (Box::new(handle.clone()) as Box<dyn LimitAlgorithm>, handle)
            };
            let member = machine.0.share_limit(now, resource, id, seed, &settings, share)?;
            // The first decision grants amounts of the budgets.
            machine.lease_budgets(now, resource, &WalletLease::default())?;
            Ok::<_, ConfigError>((member, machine.0.is_recorded()))
        })?;
        let mut session = Session::new(member, settings);
        if is_recorded {
            session.start_recording();
        }
        Ok(Self { gate: gate.clone(), resource, member: id, is_recorded, session: Mutex::new(session) })
    }
}

/// Commands of the member run under the lock of the gate, so that they have one order with those of the gate,
/// also in a recording.
impl<H: Host, L: RawMutex> SharedLimit<H, L> {
    /// Makes the steps that are due, see [`Session::handle_timeout`]. O(leases + groups) if there are any,
    /// and up to 1,024 ends of calls are copied for a report. Those of the member run under the lock of the
    /// gate.
    pub fn update(&self) {
        let now = self.now();
        if self.session.lock().poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        let (now, cap, budgets) = self.gate.with(|machine, now| {
            self.lease_budgets(machine, now);
            let mut session = self.session.lock();
            if session.is_member_due(now) {
                session.set_wallets(machine.report_budgets(now, self.resource));
                session.handle_member_timeout(now, &machine.demand(self.resource));
            }
            drop(session);
            self.record(machine, now);
            let cap = machine.stats(now, self.resource).map_or(1, |stats| stats.effective_max);
            (now, cap, machine.budgets(self.resource))
        });
        // A decision takes long, and calls need not wait for it, unless another thread gives a command of the
        // member meanwhile.
        let mut session = self.session.lock();
        session.set_budgets(budgets);
        session.handle_leader_timeout(now, cap);
    }

    /// Applies the present lease of the budgets to the gate.
    fn lease_budgets(&self, machine: &mut GateControl<'_>, now: Instant) {
        let lease = self.session.lock().wallet_lease(now);
        // The resource is one of the gate's.
        let _ = machine.lease_budgets(now, self.resource, &lease);
    }

    /// Returns the next step of a role: see [`Session::poll_step`].
    pub fn poll_step(&self, role: Role) -> Option<StoreStep> {
        self.session.lock().poll_step(role)
    }

    /// Handles the reply to the last step of a role, see [`Session::on_reply`], and serves the waiters of
    /// the gate after a change of the share.
    pub fn on_reply(&self, role: Role, reply: Result<StoreReply, String>) {
        if role == Role::Leader && !matches!(reply, Ok(StoreReply::Decided(_))) {
            // It changes no share. The decision of a leader takes long, and calls need not wait for it.
            let now = self.now();
            self.session.lock().on_reply(now, role, reply);
            if self.is_recorded {
                self.gate.with(|machine, now| self.record(machine, now));
            }
            return;
        }
        // No call may start between the two: it would spend amounts of a lease that has lapsed.
        self.gate.with(|machine, now| {
            let has_changed = self.session.lock().on_reply(now, role, reply).is_some();
            self.record(machine, now);
            self.lease_budgets(machine, now);
            if has_changed {
                self.refresh(machine, now);
            }
        });
    }

    /// Leaves: see [`Session::leave`].
    pub fn leave(&self) {
        self.gate.with(|machine, now| {
            self.session.lock().leave(now);
            self.record(machine, now);
            self.refresh(machine, now);
        });
    }

    /// Records the commands that the session has given since the last time. Each one of the member is
    /// recorded in the command of the gate that caused it. One of the leader changes nothing at the gate, so
    /// it may be recorded later.
    fn record(&self, machine: &mut GateControl<'_>, now: Instant) {
        let commands = self.session.lock().take_commands();
        for command in commands {
            machine.0.record_session(now, self.resource, self.member, command);
        }
    }

    /// Returns the present instant, after it has passed the time for which the machine was suspended to the
    /// member. Outside of a command, each use of the time of the session begins with it.
    fn now(&self) -> Instant {
        self.gate.shared.read_now(|_, now| now)
    }

    fn refresh(&self, machine: &mut GateControl<'_>, now: Instant) {
        // The resource is one of the gate's.
        let _ = machine.refresh_limit(now, self.resource);
    }

    /// Returns when to call [`SharedLimit::update`]: see [`Session::poll_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.now();
        self.session.lock().poll_timeout()
    }

    /// Returns whether the process has left: no step follows.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.session.lock().has_ended()
    }

    /// Returns the state of the share now, to show.
    #[must_use]
    pub fn state(&self) -> MemberState {
        let now = self.now();
        self.session.lock().state(now)
    }

    /// Returns the error of a step that has not succeeded since, if there is one.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        self.session.lock().error().map(ToString::to_string)
    }

    /// Returns whether the limit is shared with this algorithm and these settings. They cannot change.
    #[must_use]
    pub fn is_shared_with(&self, choice: LimitChoice, limit: &LimitConfig) -> bool {
        let session = self.session.lock();
        let settings = session.settings();
        settings.choice == choice && settings.limit == *limit
    }

    /// Returns the algorithm of the limit.
    #[must_use]
    pub fn algorithm(&self) -> LimitChoice {
        self.session.lock().settings().choice
    }
}

impl<H: Host, L: RawMutex> fmt::Debug for SharedLimit<H, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLimit").field("resource", &self.resource).finish_non_exhaustive()
    }
}
