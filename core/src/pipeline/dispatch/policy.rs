//! The task policy of a run, whose panics end the run instead of unwinding through it.

use alloc::string::String;
use core::cell::RefCell;
use core::fmt;

use crate::error::ConfigError;
use crate::panics;
use crate::task::{
    Allowed, BoxedPolicy, DenialReason, PolicyView, Refusal, ResourceId, TaskGroup, TaskGroupId, TaskPolicy,
};

/// A policy that refuses everything once it has panicked, and keeps the message of the panic.
///
/// A panic that unwound through the dispatcher would leave the queue half-way. With the feature `std` it is
/// caught where it happens. Without, it unwinds to the host.
pub(crate) struct GuardedPolicy {
    policy: BoxedPolicy,
    state: RefCell<State>,
}

enum State {
    Sound,
    /// With the cause of the stop, until it is taken.
    Panicked(Option<String>),
}

impl GuardedPolicy {
    pub(crate) fn new(policy: BoxedPolicy) -> Self {
        Self { policy, state: RefCell::new(State::Sound) }
    }

    /// Returns that the policy panicked, and its message. Once.
    pub(crate) fn take_panic(&self) -> Option<String> {
        match &mut *self.state.borrow_mut() {
            State::Sound => None,
            State::Panicked(cause) => cause.take(),
        }
    }

    /// Calls the policy. Returns `None` if it panics, or has panicked.
    fn call<R>(&self, panicked: &str, question: impl FnOnce(&BoxedPolicy) -> R) -> Option<R> {
        if matches!(*self.state.borrow(), State::Panicked(_)) {
            return None;
        }
        match panics::catch(panicked, || question(&self.policy)) {
            Ok(answer) => Some(answer),
            Err(cause) => {
                *self.state.borrow_mut() = State::Panicked(Some(cause));
                None
            }
        }
    }
}

impl TaskPolicy for GuardedPolicy {
    fn evaluate(&self, view: &PolicyView<'_>) -> Result<Allowed, Refusal> {
        let answer = self.call("the task policy panicked in `evaluate`", |policy| policy.evaluate(view));
        answer.unwrap_or_else(|| Err(DenialReason::Policy.into()))
    }

    fn repaid(&self, resource: ResourceId, amount: u32) -> u32 {
        let answer = self.call("the task policy panicked in `repaid`", |policy| policy.repaid(resource, amount));
        answer.unwrap_or_default()
    }

    fn group_registered(
        &mut self,
        id: TaskGroupId,
        group: &TaskGroup,
        find: &dyn Fn(&str) -> Option<ResourceId>,
    ) -> Result<(), ConfigError> {
        self.policy.group_registered(id, group, find)
    }
}

impl fmt::Debug for GuardedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedPolicy").field("policy", &self.policy).finish_non_exhaustive()
    }
}
