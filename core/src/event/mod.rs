//! The pending events of one stream. Every event stream uses these types.
//!
//! A machine emits only the events whose kind is in its [`Interest`]. Any other event costs one branch.
//! Unlike effects, events need not be drained: at most [`MAX_PENDING`] are kept, and further events are
//! counted as dropped.

mod correlation;

use alloc::collections::VecDeque;
use core::fmt;
use core::marker::PhantomData;

pub use correlation::{ColumnId, Correlation, GroupKind, Strategy};

/// The largest number of pending events of one stream.
pub const MAX_PENDING: usize = 65_536;

/// The event kinds of one stream: a field-less enum of at most 64 variants.
pub trait EventKind: Copy + Eq + fmt::Debug + 'static {
    /// Every kind.
    const ALL: &'static [Self];

    /// Returns the index of the kind in [`EventKind::ALL`].
    fn index(self) -> u32;
}

/// A set of event kinds.
///
/// ```
/// use tidegate_core::request::event::{RequestInterest, RequestEventKind};
/// let denials = RequestInterest::of(&[RequestEventKind::RateLimited, RequestEventKind::AcquireDenied]);
/// assert!(denials.contains(RequestEventKind::RateLimited));
/// assert!(!denials.contains(RequestEventKind::WaitStarted));
/// assert!(RequestInterest::ALL.contains(RequestEventKind::WaitStarted));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest<K> {
    bits: u64,
    kinds: PhantomData<K>,
}

impl<K> Default for Interest<K> {
    fn default() -> Self {
        Self::NONE
    }
}

impl<K> Interest<K> {
    /// The empty set.
    pub const NONE: Self = Self { bits: 0, kinds: PhantomData };
    /// Every kind, including kinds that are added later.
    pub const ALL: Self = Self { bits: u64::MAX, kinds: PhantomData };

    /// Returns whether the set is empty.
    #[inline]
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.bits == 0
    }
}

impl<K: EventKind> Interest<K> {
    /// Creates the set of these kinds.
    #[must_use]
    pub fn of(kinds: &[K]) -> Self {
        Self { bits: kinds.iter().fold(0, |bits, kind| bits | 1 << kind.index()), kinds: PhantomData }
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self { bits: self.bits | other.bits, kinds: PhantomData }
    }

    /// Returns whether `kind` is in the set.
    #[must_use]
    pub fn contains(self, kind: K) -> bool {
        self.bits & (1 << kind.index()) != 0
    }
}

/// The pending events of one stream.
#[derive(Clone, Debug)]
pub(crate) struct EventLog<K, E> {
    interest: Interest<K>,
    sequence: u64,
    pending: VecDeque<E>,
    dropped: u64,
}

impl<K, E> Default for EventLog<K, E> {
    fn default() -> Self {
        Self { interest: Interest::NONE, sequence: 0, pending: VecDeque::new(), dropped: 0 }
    }
}

impl<K: EventKind, E> EventLog<K, E> {
    pub(crate) fn set_interest(&mut self, interest: Interest<K>) {
        self.interest = interest;
    }

    /// Returns whether any kind is of interest. This is the one branch that an event costs if no kind is of
    /// interest.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.interest.is_none()
    }

    /// Records the event that `make` creates from its sequence number, if `kind` is of interest.
    #[inline]
    pub(crate) fn record(&mut self, kind: K, make: impl FnOnce(u64) -> E) {
        if !self.interest.contains(kind) {
            return;
        }
        let sequence = self.sequence;
        self.sequence += 1;
        if self.pending.len() < MAX_PENDING {
            self.pending.push_back(make(sequence));
        } else {
            self.dropped += 1;
        }
    }

    pub(crate) fn pop(&mut self) -> Option<E> {
        self.pending.pop_front()
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Defines the kind enum of an event payload, and the method that returns the kind of a payload.
macro_rules! event_kinds {
    ($Payload:ident, $Kind:ident: $($kind:ident),* $(,)?) => {
        #[doc = concat!("The kinds of [`", stringify!($Payload), "`].")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
        #[non_exhaustive]
        pub enum $Kind {
            $(#[doc = concat!("[`", stringify!($Payload), "::", stringify!($kind), "`]")] $kind),*
        }

        impl $Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];
        }

        impl $crate::event::EventKind for $Kind {
            const ALL: &'static [Self] = Self::ALL;

            #[inline]
            fn index(self) -> u32 {
                self as u32
            }
        }

        const _: () = assert!($Kind::ALL.len() <= 64, "an interest has 64 bits");

        impl $Payload {
            /// Returns the kind of the event.
            #[must_use]
            pub const fn kind(&self) -> $Kind {
                match self {
                    $(Self::$kind { .. } => $Kind::$kind),*
                }
            }
        }
    };
}
pub(crate) use event_kinds;
