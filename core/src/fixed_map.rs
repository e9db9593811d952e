//! A hash map over the [one table](crate::chains) of the core.

use alloc::vec::Vec;
use core::borrow::Borrow;
use core::hash::Hash;

use crate::chains::{self, Chains};

/// A map whose hashing is the same in every process. Its iteration order decides nothing.
#[derive(Clone, Debug)]
pub(crate) struct FixedMap<K, V> {
    index: Chains,
    entries: Vec<Option<(K, V)>>,
    /// The places in `entries` that hold nothing.
    free: Vec<u32>,
}

impl<K, V> Default for FixedMap<K, V> {
    fn default() -> Self {
        Self { index: Chains::default(), entries: Vec::new(), free: Vec::new() }
    }
}

impl<K, V> FixedMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().flatten().map(|(key, value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.iter().flatten().map(|(key, _)| key)
    }

    #[cfg(any(feature = "sim", test))]
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().flatten().map(|(_, value)| value)
    }

    #[cfg(any(feature = "sim", test))]
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.iter_mut().flatten().map(|(_, value)| value)
    }
}

impl<K: Hash + Eq, V> FixedMap<K, V> {
    /// The value of `key`. O(1).
    #[inline]
    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let place = self.find(chains::hash(key), key)?;
        self.entries[place as usize].as_ref().map(|(_, value)| value)
    }

    /// The value of `key`, to be changed. O(1).
    #[inline]
    pub(crate) fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let place = self.find(chains::hash(key), key)?;
        self.entries[place as usize].as_mut().map(|(_, value)| value)
    }

    pub(crate) fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(chains::hash(key), key).is_some()
    }

    /// Keeps `value`, and answers the one it takes the place of. O(1) amortised.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let hash = chains::hash(&key);
        if let Some(place) = self.find(hash, &key) {
            return self.entries[place as usize].replace((key, value)).map(|(_, before)| before);
        }
        self.add(hash, key, value);
        None
    }

    /// Takes the value of `key` out. O(1).
    #[inline]
    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let hash = chains::hash(key);
        let place = self.find(hash, key)?;
        self.index.remove(hash, place);
        self.free.push(place);
        self.entries[place as usize].take().map(|(_, value)| value)
    }

    /// The place of `key`, to be filled if it is empty.
    pub(crate) fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        Entry { map: self, key }
    }

    #[inline]
    fn find<Q: Eq + ?Sized>(&self, hash: u32, key: &Q) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        let is_same =
            |place: u32| self.entries[place as usize].as_ref().is_some_and(|(known, _)| known.borrow() == key);
        self.index.find(hash, is_same)
    }

    /// Keeps an entry whose key is new; answers its place.
    fn add(&mut self, hash: u32, key: K, value: V) -> u32 {
        let place = if let Some(place) = self.free.pop() {
            self.entries[place as usize] = Some((key, value));
            place
        } else {
            self.entries.push(Some((key, value)));
            u32::try_from(self.entries.len() - 1).expect("fewer than 2^32 entries")
        };
        let entries = &self.entries;
        self.index
            .insert(hash, place, &|known| entries[known as usize].as_ref().map_or(0, |(key, _)| chains::hash(key)));
        place
    }
}

/// Where a key is, or would be.
pub(crate) struct Entry<'a, K, V> {
    map: &'a mut FixedMap<K, V>,
    key: K,
}

impl<'a, K: Hash + Eq, V> Entry<'a, K, V> {
    /// The value of the key, at first `initial`. O(1) amortised.
    pub(crate) fn or_insert(self, initial: V) -> &'a mut V {
        let Self { map, key } = self;
        let hash = chains::hash(&key);
        let place = match map.find(hash, &key) {
            Some(place) => place,
            None => map.add(hash, key, initial),
        };
        let entry = map.entries[place as usize].as_mut();
        &mut entry.expect("what the table names is there").1
    }

    pub(crate) fn or_default(self) -> &'a mut V
    where
        V: Default,
    {
        self.or_insert(V::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::string::{String, ToString};

    #[test]
    fn it_keeps_what_any_map_keeps() {
        let (mut map, mut model) = (FixedMap::default(), BTreeMap::new());
        let mut state = 1_u64;
        for step in 0..20_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (state >> 33) % 700;
            match state >> 61 {
                0..3 => assert_eq!(map.insert(key, step), model.insert(key, step)),
                3..5 => assert_eq!(map.remove(&key), model.remove(&key)),
                5 => assert_eq!(map.entry(key).or_insert(step), model.entry(key).or_insert(step)),
                _ => assert_eq!(map.get(&key), model.get(&key)),
            }
            assert_eq!(map.len(), model.len());
        }
        let mut kept: Vec<(u64, u64)> = map.iter().map(|(key, value)| (*key, *value)).collect();
        kept.sort_unstable();
        assert_eq!(kept, model.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_place_is_used_again() {
        let mut map = FixedMap::default();
        for key in 0..1_000 {
            map.insert(key, ());
            map.remove(&key);
        }
        assert_eq!((map.entries.len(), map.len()), (1, 0));
    }

    #[test]
    fn names_are_found_without_being_copied() {
        let mut map = FixedMap::<String, u32>::default();
        map.insert("a".to_string(), 1);
        assert_eq!((map.get("a"), map.get("b")), (Some(&1), None));
    }
}
