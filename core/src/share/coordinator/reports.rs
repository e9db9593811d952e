//! What the leader learns from reports: the calls that started and ended, for the limit algorithm, and which
//! members are there.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Coordinator;
use crate::call::{Completion, Outcome};
use crate::share::member_record::{MemberRecord, StartedCall};
use crate::share::message::{EndedCall, KnownMember, MemberReport};
use crate::time::{Duration, Instant};

/// The number of latest latencies from which the 95th percentile is taken.
const LATENCIES: usize = 128;

/// For how many halves of a beat a member counts as one with waiting calls after a report of them: at the
/// moment of a later report, all its calls may be in flight.
const WAITS_FOR: u64 = 6;

impl Coordinator {
    /// Sets the most calls that each member had in flight at once since the report before these, as far as
    /// these show it.
    pub(super) fn set_peaks(&mut self, reports: &[MemberReport]) {
        for record in self.members.values_mut() {
            record.peak = record.in_flight;
        }
        for report in reports.iter().filter(|report| !report.is_damaged()) {
            if let Some(record) = self.members.get_mut(&report.member).filter(|record| report.seq > record.seq) {
                record.peak = record.peak.max(report.most_in_flight(record.ended));
            }
        }
        self.peaks = self.members.values().map(|record| u64::from(record.peak)).sum();
    }

    pub(super) fn on_report(&mut self, now: Instant, report: &MemberReport) {
        if report.is_damaged() {
            return;
        }
        if report.version > self.version {
            // The store has lost decisions, and with them other members may have got more than is known.
            self.learn_version(report.version);
            self.no_raise_until = Some(now + self.config.reclaim_after());
            self.ends_early = false;
        }
        let is_new = !self.members.contains_key(&report.member);
        if is_new && report.leaves && report.in_flight() == 0 {
            return;
        }
        // The calls of a new member that have ended give no information about the present limit.
        let known = KnownMember { seq: 0, ended: report.ended, in_flight: 0, occupied: 0, budgets: BTreeMap::new() };
        let record = self.members.entry(report.member).or_insert_with(|| MemberRecord::new(now, 0, &known));
        if is_new {
            record.peak = report.in_flight();
            self.peaks += u64::from(record.peak);
        }
        if report.seq <= record.seq {
            return;
        }
        record.seq = report.seq;
        record.received = now;
        record.groups.clone_from(&report.groups);
        if record.demanded() > report.in_flight() {
            record.waits_until = now + self.config.half_beats(WAITS_FOR);
        }
        record.has_adopted |= report.version >= self.first_version;
        record.reclaimed = None;
        record.leaves = report.leaves;
        record.held = report.share;
        self.budgets.on_report(now, &mut record.budgets, &report.budgets);
        while record.pending.front().is_some_and(|(version, _)| *version <= report.version) {
            record.pending.pop_front();
        }
        let ended = report.ended.saturating_sub(record.ended);
        record.ended = record.ended.max(report.ended);
        record.in_flight = report.in_flight();
        if !report.groups.is_empty() {
            self.controller.on_attempt(now);
        }
        let ended = usize::try_from(ended).unwrap_or(usize::MAX);
        // Ends that are not in the report were acknowledged by another leader, or were too many to report.
        // Their outcome is unknown.
        for _ in 0..ended.saturating_sub(report.ends.len()) {
            let Some((_, call)) = record.calls.pop_first() else { break };
            self.controller.end(now, &call.grant, &Outcome::LocalCancelled.into(), true);
        }
        // The starts and ends since the last report, in their order: the algorithm needs to know how many
        // calls were in flight at each start.
        let skipped = report.ends.len() - ended.min(report.ends.len());
        let unseen = self.members.get(&report.member).map_or(0, |record| self.unseen_calls(record));
        // The member had adopted no decision with the last cut when it sent the report.
        let cut = (report.version < self.cut_version && self.cut_grants > 0).then_some(self.cut_grants);
        for end in &report.ends[skipped..] {
            let Some(record) = self.members.get_mut(&report.member) else { return };
            record.grant_until(now, end.started.min(report.started), cut, unseen, &mut self.controller);
            let Some(call) = record.take_call(end.call) else { continue };
            self.on_end(now, &call, end);
        }
        let Some(record) = self.members.get_mut(&report.member) else { return };
        record.grant_until(now, report.started, cut, unseen, &mut self.controller);
        // After lost reports, calls can be left over that have ended.
        while record.calls.len() as u64 > u64::from(record.in_flight) {
            let Some((_, call)) = record.calls.pop_first() else { break };
            self.controller.end(now, &call.grant, &Outcome::LocalCancelled.into(), true);
        }
    }

    /// Returns how many more calls than the leader counts the members other than this one may have had in
    /// flight.
    fn unseen_calls(&self, member: &MemberRecord) -> u32 {
        let most = self.peaks.saturating_sub(u64::from(member.peak));
        let counted = u64::from(self.controller.in_flight()).saturating_sub(member.calls.len() as u64);
        u32::try_from(most.saturating_sub(counted)).unwrap_or(u32::MAX)
    }

    /// Continues the versions from that of a decision which this leader did not make. Earlier calls do not
    /// cut the limit.
    pub(super) fn learn_version(&mut self, version: u64) {
        self.version = version;
        self.cut_version = version + 1;
        self.budgets.empty(self.time.latest());
    }

    /// Gives the end of a call to the limit algorithm.
    fn on_end(&mut self, now: Instant, call: &StartedCall, end: &EndedCall) {
        let grant = call.grant;
        // An algorithm separates the calls before and after a cut by the numbers of their grants. Grants are
        // made when a report arrives, which is too late. So the number is moved to the side of the cut on
        // which the call started, by its version.
        let number = if end.version < self.cut_version {
            grant.number.min(self.cut_grants.saturating_sub(1))
        } else {
            grant.number.max(self.cut_grants)
        };
        let is_refused = end.outcome == Outcome::RateLimited;
        let mut latency = Duration::from_millis(u64::from(end.latency_ms));
        if is_refused {
            // An algorithm computes when the call was sent from the time until the refusal arrives, and takes
            // other calls for accepted after this time. A refusal waits for a report and for its reader: for
            // one beat on average, and for two at most. One that has waited for the store or for a leader
            // shows nothing about later ones.
            let (least, most) = (self.config.half_beats(3), self.config.half_beats(8));
            latency = latency + Duration::from_millis(u64::from(end.age_ms)).max(least).min(most);
        }
        let since = Instant::from_nanos(now.as_nanos().saturating_sub(latency.as_nanos()));
        let done = Completion {
            outcome: end.outcome,
            retry_after: end.retry_after_ms.map(|wait| Duration::from_millis(u64::from(wait))),
            usage: None,
        };
        if end.outcome == Outcome::Success {
            if self.latencies.len() == LATENCIES {
                self.latencies.pop_front();
            }
            self.latencies.push_back(end.latency_ms);
        }
        let before = self.controller.limit(now);
        // A call that started without a lease is no measurement of the shared limit. And the algorithm of
        // this leader does not know a cut of another leader, and would cut again.
        let is_hidden = end.version == 0 || end.version < self.cut_version && self.cut_grants == 0;
        // Calls at a learned pace are refused for their rate, and not for their number.
        let is_counted = is_refused && self.controller.interval().is_none();
        let in_flight = if is_counted { call.most_in_flight } else { grant.in_flight() };
        self.controller.end(now, &grant.as_reported(number, since, in_flight), &done, is_hidden);
        if is_refused
            && !is_hidden
            && let Some(at) = self.controller.opens_at(now)
        {
            self.refills_at = at;
        }
        if is_refused && self.controller.limit(now) < before {
            self.cut_version = self.version + 1;
            self.cut_grants = self.controller.grants();
        }
    }

    /// Reclaims lapsed leases, and drops members whose calls are no longer reserved.
    pub(super) fn reclaim(&mut self, now: Instant) {
        let (lease, hold) = (self.config.reclaim_after(), self.hold());
        let mut dropped = Vec::new();
        for (id, record) in &mut self.members {
            if record.leaves && record.in_flight == 0 {
                dropped.push(*id);
                continue;
            }
            if now - record.received >= lease {
                let since = *record.reclaimed.get_or_insert(now);
                self.budgets.reclaim(now, &mut record.budgets);
                record.held = 0;
                record.pending.clear();
                record.share = 0;
                record.groups.clear();
                if now - since >= hold || record.in_flight == 0 {
                    dropped.push(*id);
                }
            }
        }
        for id in dropped {
            let Some(mut record) = self.members.remove(&id) else { continue };
            self.budgets.reclaim(now, &mut record.budgets);
            for call in record.calls.into_values() {
                self.controller.end(now, &call.grant, &Outcome::LocalCancelled.into(), true);
            }
        }
    }

    /// Returns how long the slots of a member's calls stay reserved after its lease was reclaimed.
    fn hold(&self) -> Duration {
        let mut latencies: Vec<u32> = self.latencies.iter().copied().collect();
        latencies.sort_unstable();
        let p95 = latencies.get(latencies.len() * 95 / 100).copied().unwrap_or(0);
        self.config.call_timeout.min(self.config.ttl.max(Duration::from_millis(2 * u64::from(p95))))
    }
}
