//! A resource of a gate whose limit several processes share.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;

use lock_api::{Mutex, RawMutex};

use super::{Gate, GateControl};
use crate::budget::WalletLease;
use crate::error::ConfigError;
use crate::limit::{Aimd, LimitChoice, LimitConfig};
use crate::request::ResourceId;
use crate::runtime::Host;
use crate::share::{
    Member, MemberHandle, MemberId, MemberState, Role, Session, SessionSettings, StoreReply, StoreStep,
};
use crate::time::{Duration, Instant};

/// A resource whose limit is a share: connects the [`Session`] of this process to the gate.
///
/// The host has a store, and drives this as it drives a session: [`SharedLimit::update`] at the instant of
/// [`SharedLimit::poll_timeout`], then each step of [`SharedLimit::poll_step`] at the store, whose reply it
/// passes to [`SharedLimit::on_reply`]. No waker runs under its lock.
pub struct SharedLimit<H: Host, L: RawMutex> {
    gate: Gate<H>,
    resource: ResourceId,
    session: Mutex<L, Session<L>>,
}

impl<H: Host, L: RawMutex + Send + Sync + 'static> SharedLimit<H, L> {
    /// Makes the limit of a resource a share. No call starts until the first share arrives. A resource whose
    /// limit was shared already is shared anew.
    ///
    /// `random` returns a number below 2^53 that differs between processes, and between calls. `suspended` is
    /// that of [`MemberHandle::new`].
    ///
    /// # Errors
    ///
    /// A setting is out of range, or `resource` is not one of the gate's.
    pub fn install(
        gate: &Gate<H>,
        resource: ResourceId,
        settings: SessionSettings,
        mut random: impl FnMut() -> u64,
        suspended: fn() -> Duration,
    ) -> Result<Self, ConfigError> {
        // The leader has the ramp. A ramp of its own here would hold back the share.
        let local = LimitConfig { ramp: Duration::ZERO, ..settings.limit.clone() };
        let member = gate.with(|machine, now| {
            let cap = machine.stats(now, resource).map_or(1, |stats| stats.effective_max);
            let own = match settings.choice.make()? {
                Some(algorithm) => algorithm,
                None => Box::new(Aimd::new(settings.limit.clone(), cap)?),
            };
            let start = now + suspended();
            let member = Member::new(start, MemberId(random()), settings.share, own, random())?;
            let member = MemberHandle::<L>::new(member, suspended);
            machine.reconfigure(now, resource, local)?;
            machine.set_algorithm(now, resource, Box::new(member.clone()))?;
            // The first decision grants amounts of the budgets.
            machine.lease_budgets(now, resource, &WalletLease::default())?;
            Ok::<_, ConfigError>(member)
        })?;
        Ok(Self { gate: gate.clone(), resource, session: Mutex::new(Session::new(member, settings)) })
    }
}

impl<H: Host, L: RawMutex> SharedLimit<H, L> {
    /// Makes the steps that are due, see [`Session::handle_timeout`]. O(leases + groups) if there are any.
    pub fn update(&self) {
        let now = self.gate.host().now();
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        let is_member_due = self.session.lock().is_member_due(now);
        let (demand, cap, budgets, wallets) = self.gate.with(|machine, now| {
            self.lease_budgets(machine, now);
            let cap = machine.stats(now, self.resource).map_or(1, |stats| stats.effective_max);
            let wallets = is_member_due.then(|| machine.report_budgets(now, self.resource));
            (machine.demand(self.resource), cap, machine.budgets(self.resource), wallets)
        });
        let mut session = self.session.lock();
        session.set_budgets(budgets);
        if let Some(wallets) = wallets {
            session.set_wallets(wallets);
        }
        session.handle_timeout(now, &demand, cap);
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
        let has_changed = match role {
            // No call may start between the two: it would spend amounts of a lease that has lapsed.
            Role::Member => self.gate.with(|machine, now| {
                let has_changed = self.session.lock().on_reply(now, role, reply);
                self.lease_budgets(machine, now);
                has_changed
            }),
            // It changes no lease. A decision takes long, and calls need not wait for it.
            Role::Leader => self.session.lock().on_reply(self.gate.host().now(), role, reply),
        };
        if has_changed {
            self.refresh();
        }
    }

    /// Leaves: see [`Session::leave`].
    pub fn leave(&self) {
        self.session.lock().leave(self.gate.host().now());
        self.refresh();
    }

    fn refresh(&self) {
        // The resource is one of the gate's.
        let _ = self.gate.with(|machine, now| machine.refresh_limit(now, self.resource));
    }

    /// Returns when to call [`SharedLimit::update`]: see [`Session::poll_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
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
        let now = self.gate.host().now();
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
