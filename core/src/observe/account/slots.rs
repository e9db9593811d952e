//! The use of one resource's slots over time.

use alloc::string::String;
use alloc::vec::Vec;

use super::cause::{CauseShare, IdleCause};
use super::figures::ResourceFigures;
use crate::observe::IdleAccount;
use crate::time::Instant;

/// A cause of idle slots, with the index of the task resource that is short, if that is the cause.
pub(super) type AttributedCause = (IdleCause, Option<u32>);

/// Integrates the use of one resource, and attributes its idle time to causes.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    pub(super) name: String,
    pub(super) limit: u32,
    pub(super) leased: u32,
    pub(super) demand: u64,
    idle: IdleAccount,
    busy_squared: u128,
    adaptive_limit: u128,
    span: u64,
    max_leased: u32,
    max_demand: u64,
    /// Slot-nanoseconds by cause, in ascending order of the cause. There are few.
    causes: Vec<(AttributedCause, u128)>,
}

impl Slots {
    pub(super) fn new(name: &str, limit: u32) -> Self {
        Self {
            name: name.into(),
            limit,
            leased: 0,
            demand: 0,
            idle: IdleAccount::default(),
            busy_squared: 0,
            adaptive_limit: 0,
            span: 0,
            max_leased: 0,
            max_demand: 0,
            causes: Vec::new(),
        }
    }

    /// Returns the number of free slots.
    pub(super) fn free(&self) -> u32 {
        self.limit.saturating_sub(self.leased)
    }

    /// Adds to the slots in use.
    pub(super) fn lease(&mut self, amount: u32) {
        self.leased = self.leased.saturating_add(amount);
        self.max_leased = self.max_leased.max(self.leased);
    }

    pub(super) fn give_back(&mut self, amount: u32) {
        self.leased = self.leased.saturating_sub(amount);
    }

    pub(super) fn change_demand(&mut self, more: bool) {
        self.demand = if more { self.demand + 1 } else { self.demand.saturating_sub(1) };
        self.max_demand = self.max_demand.max(self.demand);
    }

    /// Starts the account at the start of the run. Time before it does not count.
    pub(super) fn begin(&mut self, at: Instant) {
        self.idle = IdleAccount::starting(at);
        (self.busy_squared, self.adaptive_limit, self.span) = (0, 0, 0);
        self.causes.clear();
    }

    /// Accounts for the time from `from` to `to`, in which nothing changed, the adaptive limit included. If
    /// slots are free, `attribute` returns their causes; the counts must sum to the free slots.
    pub(super) fn pass(
        &mut self,
        from: Instant,
        to: Instant,
        adaptive_limit: u32,
        attribute: impl FnOnce(&Self) -> [(AttributedCause, u32); 3],
    ) {
        let span = (to - from).as_nanos();
        self.idle.update(from, self.limit, self.leased, self.demand);
        self.idle.update(to, self.limit, self.leased, self.demand);
        self.busy_squared += u128::from(u64::from(self.leased) * u64::from(self.leased)) * u128::from(span);
        self.adaptive_limit += u128::from(adaptive_limit) * u128::from(span);
        self.span += span;
        let mut left = self.free();
        if left == 0 {
            return;
        }
        for (cause, slots) in attribute(self) {
            let slots = slots.min(left);
            left -= slots;
            if slots > 0 {
                let slot_ns = u128::from(slots) * u128::from(span);
                match self.causes.binary_search_by(|(known, _)| known.cmp(&cause)) {
                    Ok(place) => self.causes[place].1 += slot_ns,
                    Err(place) => self.causes.insert(place, (cause, slot_ns)),
                }
            }
        }
        debug_assert_eq!(left, 0, "every free slot has a cause");
    }

    pub(super) fn figures(&self, at: Instant, name_of: impl Fn(u32) -> String) -> ResourceFigures {
        let idle = self.idle.read(at);
        let mut why_idle: Vec<CauseShare> = self
            .causes
            .iter()
            .filter(|(_, slot_ns)| *slot_ns > 0)
            .map(|&((cause, resource), slot_ns)| CauseShare { cause, resource: resource.map(&name_of), slot_ns })
            .collect();
        why_idle.sort_by_key(|share| core::cmp::Reverse(share.slot_ns));
        ResourceFigures {
            name: self.name.clone(),
            limit: self.limit,
            busy_slot_ns: idle.busy_slot_ns,
            idle_slot_ns: idle.idle_slot_ns,
            overhang_slot_ns: idle.overhang_slot_ns,
            starved_slot_ns: idle.starved_slot_ns,
            frontier_slot_ns: idle.frontier_slot_ns(),
            busy_squared_slot_ns: self.busy_squared,
            adaptive_limit_slot_ns: self.adaptive_limit,
            span_ns: self.span,
            max_leased: self.max_leased,
            max_demand: self.max_demand,
            why_idle,
        }
    }
}
