//! A wrapper for the task policy of a run. A panic of the policy ends the run instead of unwinding through
//! it.

use alloc::string::String;
use core::cell::RefCell;
use core::fmt;

use crate::error::ConfigError;
use crate::panics;
use crate::task::{
    BoxedPolicy, PolicyDenial, PolicyGrant, PolicyView, TaskDenialReason, TaskGroup, TaskGroupId, TaskPolicy,
    TaskResourceId,
};

/// A wrapper that keeps the message of a policy's panic, and denies every task after it.
///
/// A panic that unwinds through the dispatcher would leave the queue in an inconsistent state. With the
/// feature `std`, the panic is caught inside the call of the policy. Without `std`, the panic unwinds to the
/// host.
pub(crate) struct GuardedPolicy {
    policy: BoxedPolicy,
    state: RefCell<State>,
}

enum State {
    Active,
    /// Contains the cause of the stop until it is taken.
    Panicked(Option<String>),
}

impl GuardedPolicy {
    pub(crate) fn new(policy: BoxedPolicy) -> Self {
        Self { policy, state: RefCell::new(State::Active) }
    }

    /// Returns a message with the text of the panic if the policy has panicked. Later calls return `None`.
    pub(crate) fn take_panic(&self) -> Option<String> {
        match &mut *self.state.borrow_mut() {
            State::Active => None,
            State::Panicked(cause) => cause.take(),
        }
    }
}

/// Calls a method of the policy. Returns what happened if it panics, or has panicked before.
fn guard<R>(state: &RefCell<State>, message: &str, method: impl FnOnce() -> R) -> Result<R, String> {
    if matches!(*state.borrow(), State::Panicked(_)) {
        return Err("it panicked before".into());
    }
    panics::catch(message, method).inspect_err(|cause| *state.borrow_mut() = State::Panicked(Some(cause.clone())))
}

impl TaskPolicy for GuardedPolicy {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<PolicyGrant, PolicyDenial> {
        const PANICKED: &str = "the task policy panicked in `evaluate`";
        let result = guard(&self.state, PANICKED, || self.policy.evaluate(view));
        result.unwrap_or_else(|_| Err(TaskDenialReason::Policy.into()))
    }

    fn repaid(&self, resource: TaskResourceId, amount: u32) -> u32 {
        const PANICKED: &str = "the task policy panicked in `repaid`";
        guard(&self.state, PANICKED, || self.policy.repaid(resource, amount)).unwrap_or_default()
    }

    fn group_registered(
        &mut self,
        id: TaskGroupId,
        group: &TaskGroup,
        find: &dyn Fn(&str) -> Option<TaskResourceId>,
    ) -> Result<(), ConfigError> {
        const PANICKED: &str = "the task policy panicked in `group_registered`";
        // The caller gets an error, and a run that goes on under this policy stops.
        guard(&self.state, PANICKED, || self.policy.group_registered(id, group, find))
            .unwrap_or_else(|cause| Err(ConfigError::new("policy", format_args!("invalid: {cause}"), "no panic")))
    }
}

impl fmt::Debug for GuardedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedPolicy").field("policy", &self.policy).finish_non_exhaustive()
    }
}
