//! What the leader knows of one member.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::budgets::MemberBudgets;
use super::fairness::Demand;
use super::message::{GroupDemand, KnownMember};
use crate::limit::controller::{Controller, Grant};
use crate::time::Instant;

/// The most calls of one member that are given to the limit algorithm. It bounds the work that a damaged
/// report causes.
const MAX_CALLS: u64 = 1 << 16;

/// A call in flight that the leader knows of.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartedCall {
    pub(super) grant: Grant,
    /// The most calls of all members that may have been in flight when it started, itself included.
    pub(super) most_in_flight: u32,
}

/// What the leader knows of one member.
#[derive(Debug)]
pub(super) struct MemberRecord {
    /// The number of the newest report that was processed.
    pub(super) seq: u64,
    /// When the report `seq` was received. The takeover counts as the receipt of the reports in the snapshot.
    pub(super) received: Instant,
    /// Whether it has adopted a decision of this leader.
    pub(super) has_adopted: bool,
    /// The number of ended calls that were processed.
    pub(super) ended: u64,
    /// The number of calls in flight in the newest report.
    pub(super) in_flight: u32,
    /// The most calls that it had in flight since the report before the newest, as far as the newest show it.
    pub(super) peak: u32,
    /// The share that the member uses according to its report.
    pub(super) held: u32,
    /// Shares in decisions that the member may still adopt, with their versions. The shares fall from front
    /// to back: a later share that is at least as high covers an earlier one.
    pub(super) pending: VecDeque<(u64, u32)>,
    /// The share in the newest decision.
    pub(super) share: u32,
    /// The last turn in which the member had a slot: see [`Demand::served`].
    pub(super) served: u64,
    pub(super) groups: Vec<GroupDemand>,
    pub(super) budgets: MemberBudgets,
    /// Until when it counts as one with waiting calls.
    pub(super) waits_until: Instant,
    /// The number of calls that got a grant of the limit algorithm.
    pub(super) started: u64,
    /// Those of them that are in flight, by number.
    pub(super) calls: BTreeMap<u64, StartedCall>,
    /// When the lease was reclaimed; `None` while it may be valid.
    pub(super) reclaimed: Option<Instant>,
    /// Whether the member starts no more calls.
    pub(super) leaves: bool,
}

impl MemberRecord {
    /// Creates the record of a member. `version` is that of the snapshot, or 0 for a member that was not
    /// known.
    pub(super) fn new(now: Instant, version: u64, known: &KnownMember) -> Self {
        Self {
            seq: known.seq,
            received: now,
            has_adopted: false,
            ended: known.ended,
            started: known.ended,
            in_flight: known.in_flight,
            peak: 0,
            held: 0,
            pending: [(version, known.occupied)].into(),
            share: known.occupied,
            served: 0,
            groups: Vec::new(),
            budgets: MemberBudgets::new(&known.budgets),
            waits_until: Instant::ZERO,
            calls: BTreeMap::new(),
            reclaimed: None,
            leaves: false,
        }
    }

    /// Gives a grant to each call below the number `started` that has none. `cut` is the number of grants at
    /// the last cut if these calls started before the member knew of it. `unseen` is the number of calls of
    /// other members that may have been in flight besides those that the controller counts.
    pub(super) fn grant_until(
        &mut self,
        now: Instant,
        started: u64,
        cut: Option<u64>,
        unseen: u32,
        controller: &mut Controller,
    ) {
        self.started = self.started.max(started.saturating_sub(MAX_CALLS));
        while self.started < started {
            let grant = match cut {
                None => controller.grant(now, true),
                Some(cut) => controller.grant_before_cut(now, cut),
            };
            let most_in_flight = grant.in_flight().saturating_add(unseen);
            self.calls.insert(self.started, StartedCall { grant, most_in_flight });
            self.started += 1;
        }
    }

    /// Removes and returns a call. If the leader does not know the number, because it took over while the
    /// call was in flight or the store lost reports, it returns the oldest.
    pub(super) fn take_call(&mut self, number: u64) -> Option<StartedCall> {
        self.calls.remove(&number).or_else(|| self.calls.pop_first().map(|(_, call)| call))
    }

    /// Returns the most calls that the member may have in flight under the decisions so far.
    pub(super) fn occupied(&self) -> u32 {
        match self.reclaimed {
            None => self.in_flight.max(self.usable_share()),
            Some(_) => self.in_flight,
        }
    }

    /// Returns the highest share that the member uses or may still adopt.
    pub(super) fn usable_share(&self) -> u32 {
        self.pending.front().map_or(0, |(_, share)| *share).max(self.held)
    }

    /// Gives the member this share in the decision `version`.
    pub(super) fn issue(&mut self, version: u64, share: u32) {
        while self.pending.back().is_some_and(|(_, older)| *older <= share) {
            self.pending.pop_back();
        }
        self.pending.push_back((version, share));
        self.share = share;
    }

    /// Returns whether the member may get a share.
    pub(super) fn is_open(&self) -> bool {
        self.reclaimed.is_none() && !self.leaves
    }

    pub(super) fn demand(&self) -> Demand<'_> {
        Demand { groups: &self.groups, served: self.served }
    }

    /// Returns how many calls its groups have in flight or waiting.
    pub(super) fn demanded(&self) -> u32 {
        GroupDemand::sum(&self.groups)
    }

    /// Returns the groups with waiting calls, or none if the member counts as one without.
    pub(super) fn waiting_groups(&self, now: Instant) -> impl Iterator<Item = &GroupDemand> {
        self.groups.iter().filter(move |group| group.demand > 0 && now < self.waits_until)
    }

    pub(super) fn has_waiting_calls(&self, now: Instant) -> bool {
        self.waiting_groups(now).next().is_some()
    }

    pub(super) fn known(&self) -> KnownMember {
        KnownMember {
            seq: self.seq,
            ended: self.ended,
            in_flight: self.in_flight,
            occupied: self.occupied(),
            budgets: self.budgets.known(),
        }
    }
}
