//! The wrapper that records the commands of a machine.

use alloc::vec::Vec;
use core::fmt::Debug;
use core::ops::Deref;

use super::recorder::{Recorder, Sequence, Stamped};

/// A machine that can be recorded, because its commands exist as values.
pub trait Machine {
    /// A command of the machine.
    type Command: Clone + Debug;

    /// Returns the number of effects that were not polled yet.
    fn pending_effects(&self) -> usize;
}

/// A machine whose commands are recorded after a call of [`Recorded::start_recording`].
///
/// It has the methods of the machine that change it, with the same signatures. Each records the command and
/// passes it on. Methods that only read are available through [`Deref`]. Without a recording, a command costs
/// one more branch.
#[derive(Debug)]
pub struct Recorded<M: Machine> {
    pub(super) machine: M,
    pub(super) recorder: Recorder<M::Command>,
}

impl<M: Machine> Recorded<M> {
    /// Wraps a machine. Nothing is recorded yet.
    pub fn new(machine: M) -> Self {
        Self { machine, recorder: Recorder::default() }
    }

    /// Starts to record every command, numbered by `sequence`. A log can be replayed only if it begins with
    /// the first command of the machine.
    pub fn start_recording(&mut self, sequence: &Sequence) {
        self.recorder.begin(sequence);
    }

    /// Returns whether commands are recorded.
    pub(crate) fn is_recorded(&self) -> bool {
        self.recorder.is_on()
    }

    /// Takes the commands that were recorded since the last call.
    pub fn take_commands(&mut self) -> Vec<Stamped<M::Command>> {
        self.recorder.take()
    }

    /// Returns a hash over every decision since [`Recorded::start_recording`]: the results of commands, and
    /// the polled effects.
    #[must_use]
    pub fn decision_digest(&self) -> u64 {
        self.recorder.digest()
    }

    /// Records a command before it is applied to the machine.
    #[inline]
    pub(super) fn record(&mut self, command: impl FnOnce() -> M::Command) {
        if self.recorder.is_on() {
            self.recorder.record(self.machine.pending_effects(), command);
        }
    }

    /// Prepares the record of a command that the machine may reject, before it is applied. Returns `None`
    /// while nothing is recorded.
    pub(super) fn prepare(&self, command: impl FnOnce() -> M::Command) -> Option<Prepared<M::Command>> {
        let is_on = self.recorder.is_on();
        is_on.then(|| Prepared { pending_effects: self.machine.pending_effects(), command: command() })
    }

    /// Records a prepared command, unless the machine rejected it and therefore did not change.
    pub(super) fn record_accepted<T, E>(
        &mut self,
        prepared: Option<Prepared<M::Command>>,
        answer: Result<T, E>,
    ) -> Result<T, E> {
        if let (Some(Prepared { pending_effects, command }), Ok(_)) = (prepared, &answer) {
            self.recorder.record(pending_effects, || command);
        }
        answer
    }
}

/// A command that is recorded if the machine accepts it.
pub(super) struct Prepared<C> {
    pending_effects: usize,
    command: C,
}

impl<M: Machine> From<M> for Recorded<M> {
    fn from(machine: M) -> Self {
        Self::new(machine)
    }
}

impl<M: Machine> Deref for Recorded<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.machine
    }
}
