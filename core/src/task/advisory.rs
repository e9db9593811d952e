//! Advice from request admission: a worker that would only wait for its request had better not start yet.
//!
//! A host tells, for each resource that stands for a request resource, whether request admission could let a
//! call out at once. While a task with an open request resource may start, tasks with a pressured one are
//! passed over for that selection; if none may, they start in their turn. Nobody loses a turn by it, and
//! every skip is counted.

use alloc::vec::Vec;

use crate::request::RequestPressure;

/// What is known of a resource as a request resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RequestState {
    /// It is none.
    #[default]
    Other,
    Open,
    Pressured(RequestPressure),
}

/// One task that was passed over, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AdvisorySkip {
    /// The task that was passed over: the first in turn.
    pub skipped: u64,
    /// Why.
    pub pressure: RequestPressure,
    /// The task that started instead.
    pub preferred: u64,
}

/// What an adviser says of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// It calls no request resource that is known here.
    Indifferent,
    /// It could call at once.
    Open,
    /// It would wait.
    Wait(RequestPressure),
}

/// The state of the request resources, by resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Adviser {
    states: Vec<RequestState>,
    pressured: usize,
    pub(super) skips: u64,
    pub(super) last_skip: Option<AdvisorySkip>,
}

impl Adviser {
    /// Takes note of a request resource; answers whether that changed anything.
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

    /// Whether anything is pressured. Where nothing is, no candidate has to be looked at.
    pub(super) fn is_needed(&self) -> bool {
        self.pressured > 0
    }

    /// What to say of a candidate that asks for these resources.
    pub(super) fn advise(&self, amounts: &[(u32, u32)]) -> Advice {
        let states = amounts.iter().filter_map(|(resource, _)| self.states.get(*resource as usize));
        states.fold(Advice::Indifferent, |advice, state| match (advice, state) {
            (Advice::Wait(_), _) | (_, RequestState::Other) => advice,
            (_, RequestState::Open) => Advice::Open,
            (_, RequestState::Pressured(pressure)) => Advice::Wait(*pressure),
        })
    }
}
