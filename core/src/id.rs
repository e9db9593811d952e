//! Generational handles and interned names.
//!
//! Every identifier that leaves the core is a small copyable handle. A slot table issues
//! `(slot, generation)` keys and distinguishes a key that was removed from one that was never issued. Its
//! memory is bounded by the largest number of values that were live at the same time.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use crate::map::IndexSet;

/// A key into a slot table. Two keys are equal only if they have the same slot and the same generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SlotKey {
    /// Index of the slot.
    pub slot: u32,
    /// How many values the slot had held before this key was issued.
    pub generation: u32,
}

// Hashes one word instead of two: a waiter is looked up several times during its life.
impl Hash for SlotKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.to_bits());
    }
}

impl SlotKey {
    /// Returns the key as one number, for foreign-language bindings and item ids.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// Returns the key that [`SlotKey::to_bits`] turned into `bits`.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self { slot: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// The state of a key in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// Issued and not yet removed.
    Live,
    /// Issued and removed.
    Spent,
    /// Never issued.
    Unknown,
}

/// A slab whose keys carry a generation.
///
/// A slot is retired when its generation would overflow. This costs one slot per four billion uses.
#[derive(Clone, Debug)]
pub(crate) struct Slots<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    live: usize,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    /// The generation of the live value, or of the next value if the slot is empty.
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), live: 0 }
    }
}

impl<T> Slots<T> {
    /// Stores `value`. O(1) amortised; allocates only past the high-water mark.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> SlotKey {
        self.live += 1;
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.entries[slot as usize];
            entry.value = Some(value);
            return SlotKey { slot, generation: entry.generation };
        }
        let slot = u32::try_from(self.entries.len()).expect("fewer than 2^32 values are live at once");
        self.entries.push(Entry { generation: 0, value: Some(value) });
        SlotKey { slot, generation: 0 }
    }

    /// Removes and returns the value of a live key. Returns `None` for any other key.
    pub(crate) fn remove(&mut self, key: SlotKey) -> Option<T> {
        self.remove_if(key, |_| true)
    }

    /// Removes and returns the value of a live key if `holds` returns true for it.
    #[inline]
    pub(crate) fn remove_if(&mut self, key: SlotKey, holds: impl FnOnce(&T) -> bool) -> Option<T> {
        let entry = self.entries.get_mut(key.slot as usize)?;
        if entry.generation != key.generation {
            return None;
        }
        let value = entry.value.take_if(|value| holds(value))?;
        self.live -= 1;
        if entry.generation < u32::MAX {
            entry.generation += 1;
            self.free.push(key.slot);
        }
        Some(value)
    }

    pub(crate) fn get(&self, key: SlotKey) -> Option<&T> {
        let entry = self.entries.get(key.slot as usize)?;
        if entry.generation == key.generation { entry.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, key: SlotKey) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.slot as usize)?;
        if entry.generation == key.generation { entry.value.as_mut() } else { None }
    }

    /// Returns whether a key is live, was removed, or was never issued.
    pub(crate) fn state(&self, key: SlotKey) -> KeyState {
        match self.entries.get(key.slot as usize) {
            Some(entry) if key.generation == entry.generation && entry.value.is_some() => KeyState::Live,
            // A retired slot keeps its last generation although its value was removed.
            Some(entry) if key.generation == entry.generation && entry.generation == u32::MAX => KeyState::Spent,
            Some(entry) if key.generation < entry.generation => KeyState::Spent,
            _ => KeyState::Unknown,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Iterates over live values with their keys, in slot order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SlotKey, &T)> {
        self.entries.iter().zip(0..).filter_map(|(entry, slot)| {
            let key = SlotKey { slot, generation: entry.generation };
            entry.value.as_ref().map(|value| (key, value))
        })
    }
}

/// A map from keys of a [`Slots`] table to values. At most one key of each slot has a value.
///
/// Memory is bounded by the largest slot index.
#[derive(Debug)]
pub(crate) struct SecondaryMap<T> {
    /// The generation and value of each slot.
    entries: Vec<Option<(u32, T)>>,
}

impl<T> Default for SecondaryMap<T> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<T> SecondaryMap<T> {
    /// Sets the value of a key. Returns the previous value of its slot with its key, which may be an
    /// earlier generation. O(1) amortised.
    #[inline]
    pub(crate) fn insert(&mut self, key: SlotKey, value: T) -> Option<(SlotKey, T)> {
        let slot = key.slot as usize;
        if slot >= self.entries.len() {
            self.entries.resize_with(slot + 1, || None);
        }
        let before = self.entries[slot].replace((key.generation, value));
        before.map(|(generation, value)| (SlotKey { generation, ..key }, value))
    }

    pub(crate) fn get_mut(&mut self, key: SlotKey) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.slot as usize)?.as_mut();
        entry.filter(|(generation, _)| *generation == key.generation).map(|(_, value)| value)
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: SlotKey) -> Option<T> {
        let entry = self.entries.get_mut(key.slot as usize)?;
        entry.take_if(|(generation, _)| *generation == key.generation).map(|(_, value)| value)
    }
}

/// Maps names to small numbers, in order of first use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interner(IndexSet<String>);

impl Interner {
    /// Returns the number of `name`. A new name gets the next number.
    pub(crate) fn intern(&mut self, name: &str) -> u32 {
        self.get(name).unwrap_or_else(|| number(self.0.insert_full(name.to_string()).0))
    }

    pub(crate) fn get(&self, name: &str) -> Option<u32> {
        self.0.get_index_of(name).map(number)
    }

    pub(crate) fn name(&self, id: u32) -> &str {
        &self.0[id as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 names")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_key_is_distinguished_from_one_never_issued() {
        let mut slots = Slots::default();
        let first = slots.insert('a');
        assert_eq!(slots.state(first), KeyState::Live);
        assert_eq!(slots.remove(first), Some('a'));
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.state(first), KeyState::Spent);
        let next = SlotKey { generation: first.generation + 1, ..first };
        assert_eq!(slots.state(next), KeyState::Unknown);
        let second = slots.insert('b');
        assert_eq!(second, next);
        assert_eq!(slots.state(SlotKey { slot: 9, generation: 0 }), KeyState::Unknown);
    }

    #[test]
    fn a_slot_is_retired_after_its_last_generation() {
        let mut slots = Slots::default();
        slots.insert(());
        slots.entries[0].generation = u32::MAX;
        let last = SlotKey { slot: 0, generation: u32::MAX };
        assert_eq!(slots.remove(last), Some(()));
        assert_eq!(slots.state(last), KeyState::Spent);
        assert_eq!(slots.insert(()).slot, 1);
    }

    #[test]
    fn memory_is_bounded_by_the_values_live_at_the_same_time() {
        let mut slots = Slots::default();
        for _ in 0..1_000 {
            let key = slots.insert(());
            slots.remove(key);
        }
        assert_eq!((slots.entries.len(), slots.len()), (1, 0));
    }

    #[test]
    fn a_secondary_value_belongs_to_one_generation_of_its_slot() {
        let mut values = SecondaryMap::default();
        let first = SlotKey { slot: 3, generation: 0 };
        let second = SlotKey { generation: 1, ..first };
        assert_eq!(values.insert(first, 'a'), None);
        assert_eq!((values.get_mut(second).copied(), values.remove(second)), (None, None));
        assert_eq!(values.insert(second, 'b'), Some((first, 'a')));
        assert_eq!((values.remove(first), values.get_mut(second).copied()), (None, Some('b')));
        assert_eq!((values.remove(second), values.remove(second)), (Some('b'), None));
        assert_eq!(values.remove(SlotKey { slot: 9, generation: 0 }), None);
    }

    #[test]
    fn a_secondary_map_uses_one_entry_per_slot() {
        let mut values = SecondaryMap::default();
        for generation in 0..1_000 {
            let key = SlotKey { slot: 0, generation };
            assert_eq!(values.insert(key, ()), None);
            assert_eq!(values.remove(key), Some(()));
        }
        assert_eq!(values.entries.len(), 1);
    }

    #[test]
    fn a_key_survives_conversion_to_bits_and_back() {
        let key = SlotKey { slot: 7, generation: u32::MAX };
        assert_eq!(SlotKey::from_bits(key.to_bits()), key);
    }

    #[test]
    fn equal_names_share_one_number() {
        let mut names = Interner::default();
        assert_eq!((names.intern("a"), names.intern("b"), names.intern("a")), (0, 1, 0));
        assert_eq!(names.name(1), "b");
    }
}
