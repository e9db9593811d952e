//! The hash map and set types of the core.
//!
//! Their hasher has no random state, so two runs of one build behave alike. Hashes differ between 32-bit
//! and 64-bit targets, and the iteration order of a table depends on them. No decision, event or report may
//! depend on the order of iteration. Use a [`BTreeMap`](alloc::collections::BTreeMap) or sort where the
//! order is visible. `clippy.toml` disallows the methods that iterate, so each use must state why its order
//! does not matter.

/// A set whose values are also numbered in insertion order.
pub(crate) type IndexSet<T> = indexmap::IndexSet<T, rustc_hash::FxBuildHasher>;

/// A map whose hasher is the same in every process on one target.
pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, rustc_hash::FxBuildHasher>;
