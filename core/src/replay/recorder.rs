//! The recorder: the numbered commands of a machine, and a hash over its decisions.
//!
//! The machine defines the types of its commands and effects.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::Hasher;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::portable_hasher::PortableHasher;

/// The largest number of recorded commands that are kept for one machine. Further commands are lost. The log
/// then has a gap and cannot be replayed.
pub const MAX_PENDING: usize = 1 << 20;

/// Numbers the commands of machines that work together, in the order in which they are applied. There are
/// 2^32 numbers.
#[derive(Clone, Debug, Default)]
pub struct Sequence(Arc<AtomicU32>);

impl Sequence {
    fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// A command with its number.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Stamped<C> {
    /// The number of the command in the run, from 0 without a gap.
    pub n: u32,
    /// The command.
    pub command: C,
}

/// Records the commands of one machine after [`Recorder::begin`].
#[derive(Debug)]
pub(super) struct Recorder<C>(Option<Box<Recording<C>>>);

#[derive(Debug)]
struct Recording<C> {
    sequence: Sequence,
    commands: Vec<Stamped<C>>,
    /// The digests of the results of commands and of effects. They are separate, because effects may be
    /// polled after the next command was applied.
    results: Digest,
    effects: Digest,
    polled: u64,
}

impl<C> Default for Recorder<C> {
    fn default() -> Self {
        Self(None)
    }
}

impl<C> Recorder<C> {
    pub(super) fn begin(&mut self, sequence: &Sequence) {
        let (sequence, commands) = (sequence.clone(), Vec::new());
        let (results, effects) = (Digest::default(), Digest::default());
        self.0 = Some(Box::new(Recording { sequence, commands, results, effects, polled: 0 }));
    }

    /// Returns whether commands are recorded. This is the one branch that a run without a log costs.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records a command, and adds the number of effects of earlier commands to the digest. `waiting` of them
    /// are not polled yet.
    #[inline]
    pub(super) fn record(&mut self, waiting: usize, command: impl FnOnce() -> C) {
        if let Some(recording) = &mut self.0 {
            recording.results.add_effect_count(recording.polled + waiting as u64);
            recording.push(command());
        }
    }

    /// Adds the result of a command to the digest.
    #[inline]
    pub(super) fn add_result(&mut self, feed: impl FnOnce(&mut Digest)) {
        if let Some(recording) = &mut self.0 {
            feed(&mut recording.results);
        }
    }

    /// Adds an effect to the digest.
    #[inline]
    pub(super) fn add_effect(&mut self, feed: impl FnOnce(&mut Digest)) {
        if let Some(recording) = &mut self.0 {
            recording.polled += 1;
            feed(&mut recording.effects);
        }
    }

    pub(super) fn take(&mut self) -> Vec<Stamped<C>> {
        self.0.as_mut().map(|recording| core::mem::take(&mut recording.commands)).unwrap_or_default()
    }

    pub(super) fn digest(&self) -> u64 {
        self.0.as_ref().map_or(0, |recording| recording.results.and(recording.effects))
    }
}

impl<C> Recording<C> {
    #[cold]
    fn push(&mut self, command: C) {
        let n = self.sequence.next();
        if self.commands.len() < MAX_PENDING {
            self.commands.push(Stamped { n, command });
        }
    }
}

/// Hashes decisions one after another.
#[derive(Clone, Copy, Default)]
pub(super) struct Digest(pub(super) PortableHasher);

impl core::fmt::Debug for Digest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:016x}", self.0.finish())
    }
}

impl Digest {
    /// Combines two digests into one number.
    pub(super) fn and(self, other: Self) -> u64 {
        let mut both = self;
        both.hash_words([other.0.finish()]);
        both.0.finish()
    }

    pub(super) fn hash_words<const N: usize>(&mut self, words: [u64; N]) {
        for word in words {
            self.0.write_u64(word);
        }
    }

    /// Adds the number of effects that existed before the next command.
    pub(super) fn add_effect_count(&mut self, effects: u64) {
        self.hash_words([4, effects]);
    }

    /// Hashes bytes.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
}
