//! Counts of what there is now, kept by those who are counted.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One more of something, for as long as it lives.
#[derive(Debug)]
pub(super) struct OneMore<'a>(&'a AtomicU32);

impl<'a> OneMore<'a> {
    pub(super) fn of(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }

    /// The same if there are fewer than `most`; else how many there are.
    pub(super) fn within(count: &'a AtomicU32, most: u32) -> Result<Self, u32> {
        match count.fetch_add(1, Ordering::Relaxed) {
            before if before < most => Ok(Self(count)),
            before => {
                count.fetch_sub(1, Ordering::Relaxed);
                Err(before)
            }
        }
    }
}

impl Drop for OneMore<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A share of a quantity, for as long as it lives.
#[derive(Debug)]
pub(super) struct Share<'a> {
    total: &'a AtomicU64,
    part: u64,
}

impl<'a> Share<'a> {
    /// `part` more, if there is no more than `most` then; else how much there is.
    pub(super) fn of(total: &'a AtomicU64, part: u64, most: u64) -> Result<Self, u64> {
        let before = total.fetch_add(part, Ordering::Relaxed);
        let share = Self { total, part };
        if before.saturating_add(part) <= most { Ok(share) } else { Err(before) }
    }
}

impl<'a> Share<'a> {
    /// Nothing so far.
    pub(super) fn none(total: &'a AtomicU64) -> Self {
        Self { total, part: 0 }
    }

    /// `more` on top, if there is no more than `most` then; else how much there is.
    pub(super) fn grow(&mut self, more: u64, most: u64) -> Result<(), u64> {
        let more = Self::of(self.total, more, most)?;
        self.part += more.part;
        std::mem::forget(more);
        Ok(())
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.total.fetch_sub(self.part, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_counted_than_may_be_and_nothing_is_left_of_who_is_gone() {
        let (count, bytes) = (AtomicU32::new(0), AtomicU64::new(0));
        let one = OneMore::within(&count, 1).unwrap();
        assert_eq!(OneMore::within(&count, 1).unwrap_err(), 1);
        drop(one);
        drop(OneMore::within(&count, 1).unwrap());
        let share = Share::of(&bytes, 7, 10).unwrap();
        assert_eq!(Share::of(&bytes, 4, 10).unwrap_err(), 7);
        let mut grown = Share::none(&bytes);
        grown.grow(2, 10).unwrap();
        assert_eq!(grown.grow(2, 10), Err(9));
        grown.grow(1, 10).unwrap();
        assert_eq!(bytes.load(Ordering::Relaxed), 10);
        drop((share, grown));
        assert_eq!((count.into_inner(), bytes.into_inner()), (0, 0));
    }
}
