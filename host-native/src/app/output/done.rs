//! A set of row groups, kept as ranges: a run finishes them nearly in order, so a million are a few ranges.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Row groups that are done. In JSON a list of texts such as `["0-311", "313"]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DoneRowGroups {
    /// First to last, apart from each other.
    ranges: BTreeMap<u32, u32>,
}

impl DoneRowGroups {
    /// Adds one; O(log ranges).
    pub fn insert(&mut self, row_group: u32) {
        if self.contains(row_group) {
            return;
        }
        let (mut first, mut last) = (row_group, row_group);
        if let Some((&before, &end)) = self.ranges.range(..row_group).next_back()
            && end + 1 == row_group
        {
            self.ranges.remove(&before);
            first = before;
        }
        if let Some(end) = row_group.checked_add(1).and_then(|next| self.ranges.remove(&next)) {
            last = end;
        }
        self.ranges.insert(first, last);
    }

    /// Whether it is there.
    #[must_use]
    pub fn contains(&self, row_group: u32) -> bool {
        self.ranges.range(..=row_group).next_back().is_some_and(|(_, last)| *last >= row_group)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }
}

impl FromIterator<u32> for DoneRowGroups {
    fn from_iter<I: IntoIterator<Item = u32>>(row_groups: I) -> Self {
        let mut done = Self::default();
        row_groups.into_iter().for_each(|row_group| done.insert(row_group));
        done
    }
}

impl Serialize for DoneRowGroups {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            self.ranges.iter().map(
                |(first, last)| {
                    if first == last { first.to_string() } else { format!("{first}-{last}") }
                },
            ),
        )
    }
}

impl<'de> Deserialize<'de> for DoneRowGroups {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let mut ranges = BTreeMap::new();
        let mut free = 0;
        for text in &texts {
            let wrong = || {
                D::Error::custom(format!("`done` has {text:?}; expected ranges such as \"0-311\", ascending and apart"))
            };
            let range = parse(text).ok_or_else(wrong)?;
            if u64::from(*range.start()) < free {
                return Err(wrong());
            }
            free = u64::from(*range.end()) + 2;
            ranges.insert(*range.start(), *range.end());
        }
        Ok(Self { ranges })
    }
}

fn parse(text: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = first.parse().ok()?..=last.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(done: &DoneRowGroups) -> String {
        serde_json::to_string(done).unwrap()
    }

    #[test]
    fn neighbours_become_one_range_in_whatever_order_they_come() {
        let mut done = DoneRowGroups::default();
        for row_group in [4, 0, 2, 2, 1, 9, 5] {
            done.insert(row_group);
        }
        assert_eq!((text(&done).as_str(), done.len()), (r#"["0-2","4-5","9"]"#, 6));
        assert!(done.contains(2) && !done.contains(3) && done.contains(9));
        assert_eq!(done.iter().collect::<Vec<_>>(), [0, 1, 2, 4, 5, 9]);
        assert_eq!(serde_json::from_str::<DoneRowGroups>(&text(&done)).unwrap(), done);
        done.insert(u32::MAX);
        assert!(done.contains(u32::MAX));
    }

    #[test]
    fn what_is_no_ascending_list_of_ranges_is_refused() {
        for wrong in [r#"["3-1"]"#, r#"["0-2","2"]"#, r#"["0-2","3"]"#, r#"["x"]"#, r#"["-1"]"#, "[3]"] {
            assert!(serde_json::from_str::<DoneRowGroups>(wrong).is_err(), "{wrong}");
        }
    }
}
