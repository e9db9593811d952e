//! Is every lease released exactly once, and every release answered rightly?

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use tidegate_core::lease::{LeaseId, ReleaseDiagnostics, ReleaseResult};

/// The books of one controller's leases, kept in plain sets that grow with every lease: what the ledger must know
/// without remembering it.
#[derive(Clone, Debug)]
pub struct LedgerCheck {
    controller: u32,
    /// Slot and generation of each lease that is out, and what it was made for.
    out: BTreeMap<(u32, u32), u32>,
    returned: BTreeSet<(u32, u32)>,
    irregular: ReleaseDiagnostics,
}

impl LedgerCheck {
    /// Empty books for the controller of this number.
    #[must_use]
    pub fn new(controller: u32) -> Self {
        let (out, returned) = (BTreeMap::new(), BTreeSet::new());
        Self { controller, out, returned, irregular: ReleaseDiagnostics::default() }
    }

    /// A lease was granted for `item`.
    ///
    /// # Errors
    /// A lease that names another controller or item, or that was issued before.
    pub fn on_grant(&mut self, lease: LeaseId, item: u32) -> Result<()> {
        ensure!(lease.controller == self.controller, "{lease:?} names another controller");
        ensure!(lease.item == item, "{lease:?} was made for {item}");
        let key = (lease.key.slot, lease.key.generation);
        ensure!(!self.returned.contains(&key), "{lease:?} was issued and returned before");
        ensure!(self.out.insert(key, item).is_none(), "{lease:?} is out already");
        Ok(())
    }

    /// The right answer to a release of `lease` now.
    pub fn expected(&self, lease: LeaseId) -> ReleaseResult {
        let key = (lease.key.slot, lease.key.generation);
        if lease.controller != self.controller {
            ReleaseResult::WrongController
        } else if let Some(item) = self.out.get(&key) {
            if *item == lease.item { ReleaseResult::Released } else { ReleaseResult::Stale }
        } else if self.returned.contains(&key) {
            ReleaseResult::Duplicate
        } else {
            ReleaseResult::UnknownLease
        }
    }

    /// `lease` was released and `answer` was given.
    ///
    /// # Errors
    /// Any answer but the right one.
    pub fn on_release(&mut self, lease: LeaseId, answer: ReleaseResult) -> Result<()> {
        let expected = self.expected(lease);
        ensure!(answer == expected, "{lease:?} was answered {answer:?} instead of {expected:?}");
        match answer {
            ReleaseResult::Released => {
                let key = (lease.key.slot, lease.key.generation);
                self.out.remove(&key).context("a lease that is out is in the books")?;
                self.returned.insert(key);
            }
            ReleaseResult::Duplicate => self.irregular.duplicate += 1,
            ReleaseResult::Stale => self.irregular.stale += 1,
            ReleaseResult::UnknownLease => self.irregular.unknown_lease += 1,
            ReleaseResult::WrongController => self.irregular.wrong_controller += 1,
        }
        Ok(())
    }

    /// Leases that are out.
    #[must_use]
    pub fn out(&self) -> usize {
        self.out.len()
    }

    /// Leases that are out for `item`.
    #[must_use]
    pub fn out_for(&self, item: u32) -> usize {
        self.out.values().filter(|known| **known == item).count()
    }

    /// The irregular releases that the controller must have counted.
    #[must_use]
    pub fn irregular(&self) -> ReleaseDiagnostics {
        self.irregular
    }

    /// The run is over. `rest` names what must have come down to zero, beside the leases.
    ///
    /// # Errors
    /// A lease that is still out, or anything in `rest` that is not zero.
    pub fn finish(&self, active: usize, rest: &[(&str, usize)]) -> Result<()> {
        ensure!(self.out.is_empty(), "leases were never released: {:?}", self.out);
        ensure!(active == 0, "the controller counts {active} leases, and none is out");
        for (name, count) in rest {
            ensure!(*count == 0, "{name}: {count} at the end of the run");
        }
        Ok(())
    }
}
