//! The hash map of the core.
//!
//! Its hasher has no random state, so two runs of one build behave alike. It does hash differently on 32 and
//! 64 bit, and a table orders its entries by hash: no decision, event or report may depend on the order of
//! iteration. Where order is visible, use a [`BTreeMap`](alloc::collections::BTreeMap) or sort. `clippy.toml`
//! refuses the methods that iterate, so each such place states why its order does not matter.

/// A set of values that are also numbered in the order they came.
pub(crate) type IndexSet<T> = indexmap::IndexSet<T, rustc_hash::FxBuildHasher>;

/// A map whose hasher is the same in every process of one target.
pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, rustc_hash::FxBuildHasher>;
