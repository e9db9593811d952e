//! The one hash table of the core: places in somebody's slab, in chains by the hashes of what is kept there.
//!
//! It knows neither keys nor values, so it is compiled once. A table that does is 2 KiB of code for each kind of them,
//! which a module for browsers would load a dozen times. It takes 8 to 13 bytes for each place.

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use crate::id::FixedHasher;

/// The end of a chain.
const END: u32 = u32::MAX;
/// The least number of chains, and of places that the table grows by.
const SMALLEST: usize = 8;

/// Places by hash. The owner of the slab compares the keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chains {
    /// The first place of each chain; a power of two of them, or none.
    heads: Vec<u32>,
    /// The place after each place in its chain.
    next: Vec<u32>,
    len: usize,
}

impl Chains {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The place in the chain of `hash` that `is_wanted`. O(1) on average.
    #[inline]
    pub(crate) fn find(&self, hash: u32, is_wanted: impl Fn(u32) -> bool) -> Option<u32> {
        if self.heads.is_empty() {
            return None;
        }
        let mut place = self.heads[self.chain(hash)];
        while place != END {
            if is_wanted(place) {
                return Some(place);
            }
            place = self.next[place as usize];
        }
        None
    }

    /// Adds a place that is not in the table; `hash_of` knows the hashes of all that are. O(1) amortised.
    pub(crate) fn insert(&mut self, hash: u32, place: u32, hash_of: &dyn Fn(u32) -> u32) {
        if self.len >= self.heads.len() {
            self.grow(hash_of);
        }
        let at = place as usize;
        if at >= self.next.len() {
            if at >= self.next.capacity() {
                self.next.reserve_exact((at / 4).max(SMALLEST));
            }
            self.next.resize(at + 1, END);
        }
        self.len += 1;
        self.link(hash, place);
    }

    /// Takes out a place that is in the table under `hash`. O(1) on average.
    pub(crate) fn remove(&mut self, hash: u32, place: u32) {
        let after = self.next[place as usize];
        let chain = self.chain(hash);
        self.len -= 1;
        if self.heads[chain] == place {
            self.heads[chain] = after;
            return;
        }
        let mut before = self.heads[chain];
        while self.next[before as usize] != place {
            before = self.next[before as usize];
        }
        self.next[before as usize] = after;
    }

    /// All places, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let or_end = |place: u32| (place != END).then_some(place);
        let chain = move |head: &u32| core::iter::successors(or_end(*head), move |at| or_end(self.next[*at as usize]));
        self.heads.iter().flat_map(chain)
    }

    fn grow(&mut self, hash_of: &dyn Fn(u32) -> u32) {
        let places: Vec<u32> = self.iter().collect();
        let chains = (self.heads.len() * 2).max(SMALLEST);
        self.heads = alloc::vec![END; chains];
        for place in places {
            self.link(hash_of(place), place);
        }
    }

    fn link(&mut self, hash: u32, place: u32) {
        let chain = self.chain(hash);
        self.next[place as usize] = core::mem::replace(&mut self.heads[chain], place);
    }

    #[inline]
    fn chain(&self, hash: u32) -> usize {
        hash as usize & (self.heads.len() - 1)
    }
}

/// The same in every process.
#[inline]
pub(crate) fn hash<K: Hash + ?Sized>(key: &K) -> u32 {
    let mut hasher = FixedHasher::default();
    key.hash(&mut hasher);
    let hash = hasher.finish();
    (hash ^ hash >> 32) as u32
}
