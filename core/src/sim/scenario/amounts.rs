//! Amounts of things that have names, as a table of a file.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// So much of each of a few things, in the order of their names. A list: maps of the standard library would be 7 KiB of code for the
/// handful of resources that a scenario names. In a file it is a table, which names nothing twice.
///
/// ```
/// use tidegate_core::sim::scenario::Amounts;
///
/// let mut amounts = Amounts::from([("gpu", 4), ("disk", 1)]);
/// amounts.insert("gpu", 2);
/// assert_eq!(amounts.get("gpu"), Some(2));
/// assert!(amounts.iter().eq([("disk", 1), ("gpu", 2)]));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(Vec<(String, u32)>);

impl Amounts {
    /// So much of something, if it is named. O(log n).
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u32> {
        self.place(name).ok().map(|place| self.0[place].1)
    }

    /// Puts an amount in place of any that the name had, which is returned. O(n).
    pub fn insert(&mut self, name: impl Into<String>, amount: u32) -> Option<u32> {
        let name = name.into();
        match self.place(&name) {
            Ok(place) => Some(core::mem::replace(&mut self.0[place].1, amount)),
            Err(place) => {
                self.0.insert(place, (name, amount));
                None
            }
        }
    }

    /// Takes a name out, and returns its amount. O(n).
    pub fn remove(&mut self, name: &str) -> Option<u32> {
        self.place(name).ok().map(|place| self.0.remove(place).1)
    }

    /// How many names there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in the order of their names.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, u32)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.as_str().cmp(name))
    }
}

/// Of two amounts of the same name the last is taken.
impl<N: Into<String>, const COUNT: usize> From<[(N, u32); COUNT]> for Amounts {
    fn from(amounts: [(N, u32); COUNT]) -> Self {
        amounts.into_iter().collect()
    }
}

impl<N: Into<String>> FromIterator<(N, u32)> for Amounts {
    fn from_iter<I: IntoIterator<Item = (N, u32)>>(amounts: I) -> Self {
        let mut all = Self::default();
        all.extend(amounts);
        all
    }
}

impl<N: Into<String>> Extend<(N, u32)> for Amounts {
    fn extend<I: IntoIterator<Item = (N, u32)>>(&mut self, amounts: I) {
        for (name, amount) in amounts {
            self.insert(name, amount);
        }
    }
}

/// All of them, in the order of their names.
impl IntoIterator for Amounts {
    type Item = (String, u32);
    type IntoIter = alloc::vec::IntoIter<(String, u32)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Serialize for Amounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Amounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Table)
    }
}

struct Table;

impl<'de> Visitor<'de> for Table {
    type Value = Amounts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of names with amounts")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut table: M) -> Result<Amounts, M::Error> {
        let mut amounts = Amounts::default();
        while let Some(name) = table.next_key::<String>()? {
            if amounts.get(&name).is_some() {
                return Err(M::Error::custom(format_args!("`{name}` is named twice")));
            }
            amounts.insert(name, table.next_value()?);
        }
        Ok(amounts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_kept_by_name_and_the_last_of_two_is_taken() {
        let mut amounts = Amounts::from([("b", 1), ("a", 2), ("b", 3)]);
        assert!(amounts.iter().eq([("a", 2), ("b", 3)]));
        assert_eq!((amounts.insert("c", 0), amounts.insert("a", 9)), (None, Some(2)));
        assert_eq!((amounts.get("a"), amounts.get("c"), amounts.get("d")), (Some(9), Some(0), None));
        assert_eq!((amounts.remove("c"), amounts.remove("c"), amounts.len()), (Some(0), None, 2));
        amounts.extend([("a", 1), ("z", 5)]);
        assert!(amounts.into_iter().eq([("a", 1), ("b", 3), ("z", 5)].map(|(name, amount)| (name.into(), amount))));
        assert!(Amounts::default().is_empty());
    }
}
