//! The shared budgets of a simulated process, and what its calls use of them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::budget::{BudgetConfig, BudgetKey, Budgets, Usage, WaitingCalls, WalletLease, WalletMode, WalletReport};
use crate::call::{Completion, Outcome};
use crate::sim::rng::Rng;
use crate::time::Instant;

/// The budgets of one process, in the place of request admission.
#[derive(Debug)]
pub(super) struct ProcessBudgets {
    pub(super) configs: Vec<BudgetConfig>,
    budgets: Budgets,
    /// The estimate of the next call.
    pub(super) next: Usage,
    /// Whether the budgets are those of a process that has lost the others.
    pub(super) is_alone: bool,
}

impl ProcessBudgets {
    /// The first decision grants amounts.
    pub(super) fn new(local: Instant, configs: &[BudgetConfig]) -> Self {
        let budgets = Budgets::new(local, configs, 0);
        let mut new = Self { configs: configs.to_vec(), budgets, next: Usage::default(), is_alone: false };
        new.lease(local, 0, &WalletLease::default());
        new
    }

    /// Returns an amount for each budget.
    pub(super) fn amounts(&self, usage: Usage) -> Vec<u64> {
        self.configs.iter().map(|config| usage.of(config.dimension)).collect()
    }

    /// Applies a lease. `grants` is the number of calls granted so far.
    pub(super) fn lease(&mut self, local: Instant, grants: u64, lease: &WalletLease) {
        self.is_alone = matches!(lease.mode, WalletMode::Alone { .. });
        self.budgets.lease(local, lease, grants);
    }

    /// Returns the states of the wallets for a report. `waiting` is the number of calls that wait, of which
    /// `room` may start.
    pub(super) fn report(&mut self, local: Instant, waiting: u32, room: u32) -> BTreeMap<BudgetKey, WalletReport> {
        let mut calls = WaitingCalls::default();
        calls.room = room;
        (0..waiting).for_each(|_| calls.add(self.next));
        calls.next = (waiting > 0 && room > 0 && self.fits_at(local) == Some(Instant::MAX)).then_some(self.next);
        self.budgets.report(local, &calls)
    }

    /// Returns when the next call fits, or `None` if it does now.
    pub(super) fn fits_at(&self, local: Instant) -> Option<Instant> {
        self.budgets.fits_at(local, self.next)
    }

    /// Takes the estimate of the next call, and draws that of the one after it, of at most `most` tokens.
    pub(super) fn reserve(&mut self, local: Instant, call: u64, most: u32, rng: &mut Rng) -> Usage {
        let estimate = self.budgets.reserve(local, call, self.next);
        if !self.configs.is_empty() {
            self.next = Usage::tokens(1 + rng.below(u64::from(most.max(1))) as u32, 0);
        }
        estimate
    }

    /// Settles a call. Of four calls, two use their estimates, one a half, and one double of it. Returns what
    /// each budget gets back.
    pub(super) fn settle(&mut self, local: Instant, call: u64, estimate: Usage, mut done: Completion) -> Vec<u64> {
        let tokens =
            [estimate.input_tokens, estimate.input_tokens / 2, estimate.input_tokens, estimate.input_tokens * 2];
        let used = Usage::tokens(tokens[call as usize % tokens.len()], 0);
        done.usage = (done.outcome == Outcome::Success).then_some(used);
        self.budgets.settle(local, call, estimate, &done);
        let kept = if done.usage.is_some() { self.amounts(used) } else { Vec::new() };
        let kept = kept.into_iter().chain(core::iter::repeat(0));
        self.amounts(estimate).into_iter().zip(kept).map(|(estimate, kept)| estimate.saturating_sub(kept)).collect()
    }
}
