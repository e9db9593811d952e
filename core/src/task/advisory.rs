//! Advice from request admission: a task whose call would only wait should not start before one whose call
//! could start at once.
//!
//! A task resource can stand for a request resource: its slots are the workers that may call one model. For
//! each of them the caller sets whether a call would have to wait, the *pressure*. Without pressure the
//! request resource is *open*. While a task with an open request resource may start, tasks whose request
//! resource is under pressure are passed over. If there is no such task, tasks start in their turn. A task
//! that is passed over keeps its turn, and every skip is counted.

use alloc::vec::Vec;

use crate::request::RequestPressure;

/// The state of the request resource that a task resource stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RequestState {
    /// It stands for no request resource.
    #[default]
    Other,
    /// A call could start at once.
    Open,
    /// A call would have to wait.
    Pressured(RequestPressure),
}

/// A task that was passed over, and the task that started instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AdvisorySkip {
    /// The task that was passed over. It was the first in turn.
    pub skipped: u64,
    /// Why its call would have had to wait.
    pub pressure: RequestPressure,
    /// The task that started instead.
    pub preferred: u64,
}

/// The advice on a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// It needs no resource that stands for a request resource.
    Indifferent,
    /// It could call at once.
    Open,
    /// It would wait.
    Wait(RequestPressure),
}

/// The states of the request resources.
#[derive(Clone, Debug, Default)]
pub(super) struct Adviser {
    /// By task resource.
    states: Vec<RequestState>,
    /// The number of request resources under pressure.
    pressured: usize,
    /// How often a task was passed over.
    pub(super) skips: u64,
    pub(super) last_skip: Option<AdvisorySkip>,
}

impl Adviser {
    /// Sets the state of a request resource. Returns whether that changed anything.
    pub(super) fn record(&mut self, resource: u32, pressure: Option<RequestPressure>) -> bool {
        let at = resource as usize;
        self.states.resize(self.states.len().max(at + 1), RequestState::Other);
        let state = pressure.map_or(RequestState::Open, RequestState::Pressured);
        let before = core::mem::replace(&mut self.states[at], state);
        let is_pressured = |state| matches!(state, RequestState::Pressured(_));
        self.pressured += usize::from(is_pressured(state));
        self.pressured -= usize::from(is_pressured(before));
        before != state
    }

    /// Returns whether any request resource is under pressure. If none is, advice makes no difference.
    pub(super) fn is_needed(&self) -> bool {
        self.pressured > 0
    }

    /// Returns the advice on a candidate that needs these resources.
    pub(super) fn advise(&self, amounts: &[(u32, u32)]) -> Advice {
        let states = amounts.iter().filter_map(|(resource, _)| self.states.get(*resource as usize));
        states.fold(Advice::Indifferent, |advice, state| match (advice, state) {
            (Advice::Wait(_), _) | (_, RequestState::Other) => advice,
            (_, RequestState::Open) => Advice::Open,
            (_, RequestState::Pressured(pressure)) => Advice::Wait(*pressure),
        })
    }
}
