//! Guards that count live objects and bytes, and release their share on drop.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Adds one to a counter while it lives.
#[derive(Debug)]
pub(super) struct CountGuard<'a>(&'a AtomicU32);

impl<'a> CountGuard<'a> {
    pub(super) fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }

    /// Adds one if the counter is below `max`. Otherwise returns the current count.
    pub(super) fn try_new(count: &'a AtomicU32, max: u32) -> Result<Self, u32> {
        match count.fetch_add(1, Ordering::Relaxed) {
            before if before < max => Ok(Self(count)),
            before => {
                count.fetch_sub(1, Ordering::Relaxed);
                Err(before)
            }
        }
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reserves an amount of a shared total while it lives.
#[derive(Debug)]
pub(super) struct QuotaGuard<'a> {
    total: &'a AtomicU64,
    amount: u64,
}

impl<'a> QuotaGuard<'a> {
    /// Reserves `amount` if the total stays within `max`. Otherwise returns the current total.
    pub(super) fn try_acquire(total: &'a AtomicU64, amount: u64, max: u64) -> Result<Self, u64> {
        let before = total.fetch_add(amount, Ordering::Relaxed);
        let guard = Self { total, amount };
        if before.saturating_add(amount) <= max { Ok(guard) } else { Err(before) }
    }
}

impl<'a> QuotaGuard<'a> {
    /// Creates a guard that reserves nothing yet.
    pub(super) fn empty(total: &'a AtomicU64) -> Self {
        Self { total, amount: 0 }
    }

    /// Reserves `more` in addition if the total stays within `max`. Otherwise returns the current total.
    pub(super) fn try_grow(&mut self, more: u64, max: u64) -> Result<(), u64> {
        let more = Self::try_acquire(self.total, more, max)?;
        self.amount += more.amount;
        std::mem::forget(more);
        Ok(())
    }
}

impl Drop for QuotaGuard<'_> {
    fn drop(&mut self) {
        self.total.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_respect_the_maximum_and_release_their_share_on_drop() {
        let (count, bytes) = (AtomicU32::new(0), AtomicU64::new(0));
        let one = CountGuard::try_new(&count, 1).unwrap();
        assert_eq!(CountGuard::try_new(&count, 1).unwrap_err(), 1);
        drop(one);
        drop(CountGuard::try_new(&count, 1).unwrap());
        let guard = QuotaGuard::try_acquire(&bytes, 7, 10).unwrap();
        assert_eq!(QuotaGuard::try_acquire(&bytes, 4, 10).unwrap_err(), 7);
        let mut grown = QuotaGuard::empty(&bytes);
        grown.try_grow(2, 10).unwrap();
        assert_eq!(grown.try_grow(2, 10), Err(9));
        grown.try_grow(1, 10).unwrap();
        assert_eq!(bytes.load(Ordering::Relaxed), 10);
        drop((guard, grown));
        assert_eq!((count.into_inner(), bytes.into_inner()), (0, 0));
    }
}
