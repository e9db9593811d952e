//! What the leader decides: the limit and the rate, divided between the members.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Coordinator, CoordinatorEffect};
use crate::share::budgets::Claimant;
use crate::share::fairness::{Demand, divide};
use crate::share::member_record::MemberRecord;
use crate::share::message::{Decide, Decision, GroupDemand, LeaderSnapshot, MAX_NUMBER, MemberId, MemberShare};
use crate::time::{Duration, Instant};

/// How long the slots that cannot be divided evenly stay with the same members.
const TURN: Duration = Duration::from_secs(1);

/// The parts into which a rate is divided between members.
const PACE_PARTS: u32 = 1 << 16;

impl Coordinator {
    /// Makes the next decision and its snapshot.
    pub(super) fn decide(&mut self, now: Instant) {
        let limit = self.controller.limit(now);
        let interval = self.controller.interval();
        let pause = self.controller.blocked_until(now).map_or(Duration::ZERO, |until| until - now);
        let pause = interval.map_or(pause, |_| pause.max(self.refills_at - now));
        let is_paused = !pause.is_zero();
        if limit.abs_diff(self.last_limit) > 1 || (is_paused && !self.was_paused) {
            self.fast_until = now + self.config.fast_for;
        } else if limit != self.last_limit && self.hurry.may_begin(now, &self.config) {
            // Probably a probe. The slots of calls that are refused in it are idle until a decision
            // acknowledges the refusals.
            self.hurry.begin(now);
        }
        (self.last_limit, self.was_paused) = (limit, is_paused);
        self.version += 1;
        let is_settled = self.assign(now, limit);
        self.unsettled_since = (!is_settled).then(|| self.unsettled_since.unwrap_or(now));
        let parts = self.parts(now);
        let is_scarce = self.grant_budgets(now, &parts);
        let share = |id: &MemberId, record: &MemberRecord| {
            let pace_ns = interval.and_then(|interval| Some(pace(interval, *parts.get(id)?))).unwrap_or(0);
            MemberShare { share: record.share, pace_ns, seen_seq: record.seq, granted: record.budgets.granted() }
        };
        let decision = Decision {
            term: self.term,
            version: self.version,
            limit,
            pause_ms: millis_up(pause),
            beat_ms: millis_up(self.beat(now)),
            leader_leaves: self.leaves,
            is_scarce,
            shares: self.members.iter().map(|(id, record)| (*id, share(id, record))).collect(),
        };
        let members = self.members.iter().map(|(id, record)| (*id, record.known())).collect();
        let interval_ns = interval.map(Duration::as_nanos);
        let (version, cut_version) = (self.version, self.cut_version);
        let budgets = self.budgets.amounts(now);
        let snapshot = LeaderSnapshot { version, limit, interval_ns, cut_version, members, budgets };
        self.next_beat = now + self.beat(now);
        self.effect = Some(CoordinatorEffect::Decide(Decide { decision, snapshot }));
    }

    /// Returns the part of each member in a rate, in parts of [`PACE_PARTS`].
    ///
    /// Members with waiting calls divide it by weighted max-min fairness between their groups, and others
    /// have next to nothing of it. Without waiting calls, the members have equal parts.
    fn parts(&self, now: Instant) -> BTreeMap<MemberId, u32> {
        let waiting = |record: &MemberRecord| {
            record.waiting_groups(now).map(|group| GroupDemand { demand: u32::MAX, ..*group }).collect()
        };
        let open = self.members.iter().filter(|(_, record)| record.is_open());
        let groups: BTreeMap<MemberId, Vec<GroupDemand>> = open.map(|(id, record)| (*id, waiting(record))).collect();
        let demands = groups.iter().map(|(id, groups)| (*id, Demand { groups, served: 0 })).collect();
        divide(PACE_PARTS, &demands, 0)
    }

    /// Grants amounts of the budgets. `parts` contains the members that may get some. Returns whether one
    /// waits.
    ///
    /// A call that was denied does not wait, so its member has next to no part. It gets that of a member with
    /// waiting calls, on average: else its next try would succeed after thousands of calls of the others.
    fn grant_budgets(&mut self, now: Instant, parts: &BTreeMap<MemberId, u32>) -> bool {
        let with_waiting = self.members.values().filter(|record| record.is_open() && record.has_waiting_calls(now));
        let mean_part = PACE_PARTS.checked_div(u32::try_from(with_waiting.count()).unwrap_or(u32::MAX));
        let (mut claimants, mut outstanding) = (Vec::new(), BTreeMap::new());
        for (id, record) in &mut self.members {
            record.budgets.add_outstanding(&mut outstanding);
            if let Some(part) = parts.get(id) {
                let is_denied = record.budgets.has_next_call() && !record.has_waiting_calls(now);
                let weight = mean_part.filter(|_| is_denied).unwrap_or(*part);
                claimants.push(Claimant { budgets: &mut record.budgets, weight });
            }
        }
        self.budgets.grant(now, &mut claimants, &outstanding)
    }

    /// Sets the shares of the decision `self.version`, as far as other members leave room. Returns whether
    /// they do, but for one slot: a slot that cannot be divided moves each second. O(members) and the cost of
    /// [`divide`].
    fn assign(&mut self, now: Instant, limit: u32) -> bool {
        let all_adopted = self.ends_early && self.members.values().all(|record| record.has_adopted);
        self.no_raise_until = self.no_raise_until.filter(|until| now < *until && !all_adopted);
        let may_raise = self.no_raise_until.is_none();
        let turn = ((now - self.began).as_nanos() / TURN.as_nanos()) as usize;
        if turn != self.turn {
            for record in self.members.values_mut().filter(|record| record.share > 0) {
                record.served = self.turn as u64 + 1;
            }
            self.turn = turn;
        }
        let open = self.members.iter().filter(|(_, record)| record.is_open());
        let targets = divide(limit, &open.map(|(id, record)| (*id, record.demand())).collect(), turn);
        // The sum of what all members occupy. For a member that has its new share, it is `max(occupied,
        // share)`.
        let mut total: u64 = self.members.values().map(|record| u64::from(record.occupied())).sum();
        let mut lacking = 0;
        for (id, record) in &mut self.members {
            let target = targets.get(id).copied().unwrap_or(0);
            let occupied = record.occupied();
            let others = total - u64::from(occupied);
            let room = u32::try_from(u64::from(limit).saturating_sub(others)).unwrap_or(u32::MAX);
            let mut share = target.min(room);
            lacking += u64::from(target.min(record.demanded()).saturating_sub(share));
            if !may_raise {
                share = share.min(record.usable_share());
            }
            if record.reclaimed.is_none() {
                record.issue(self.version, share);
            }
            total = others + u64::from(occupied.max(share));
        }
        lacking <= 1
    }
}

/// Returns the time between two calls of a member with this part of the rate of one call in each `interval`,
/// in nanoseconds. The members together keep to the rate.
fn pace(interval: Duration, part: u32) -> u64 {
    let nanos = u128::from(interval.as_nanos()) * u128::from(PACE_PARTS);
    u64::try_from(nanos.div_ceil(u128::from(part.max(1)))).unwrap_or(MAX_NUMBER).min(MAX_NUMBER)
}

/// Returns a span in milliseconds, rounded up.
fn millis_up(span: Duration) -> u32 {
    u32::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}
