//! The laws of sharing, checked from what crosses the borders of the machines: messages, clocks and calls.
//!
//! The limit that a call is compared with is the highest one in the decision under which it was granted and
//! in the later ones. Calls of the exemptions E1 to E4 (see [`share`](crate::share)) are not counted; each
//! has a bound of its own. A call that was once exempt stays so.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::super::*;
use super::budget_oracle::BudgetOracle;
use crate::call::Outcome;
use crate::sim::sharing::{DriftingClock, SharingConfig, SharingObserver};
use crate::time::{Duration, Instant};

/// Why a call is not counted. The documentation of [`share`](crate::share) describes each exemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Exemption {
    E1,
    E2,
    E3,
    E4,
}

/// The decision that a member has adopted last.
#[derive(Debug)]
struct Adopted {
    /// Its place among the published decisions.
    place: usize,
    version: u64,
    share: u32,
    /// The equal part of its limit.
    part: u32,
    members: u32,
    pace: Duration,
    /// The end of the lease, by the clock of the member.
    lease_until: Instant,
    at: Instant,
}

/// The calls of a member that are spaced by its part of a rate.
#[derive(Clone, Copy, Debug)]
struct Paced {
    pace: Duration,
    /// The latest call, and the shortest interval that applied since then.
    latest: Instant,
    shortest: Duration,
    /// The first of the calls under the present pace, and the number of those after it.
    first: Instant,
    calls: u64,
    is_steady: bool,
}

impl Paced {
    fn new(now: Instant, pace: Duration) -> Self {
        Self { pace, latest: now, shortest: pace, first: now, calls: 0, is_steady: true }
    }

    /// Returns this after a call. A call that is late by a quarter of the interval does not make the next one
    /// late.
    fn after(self, now: Instant, pace: Duration) -> Self {
        let at_least = |since: Instant, least: u64| {
            assert!((now - since).as_nanos() >= least, "a member keeps to its part of the rate: {self:?}, {now}");
        };
        at_least(self.latest, self.shortest.as_nanos() / 4 * 3);
        if !self.is_steady {
            return Self::new(now, pace);
        }
        let calls = self.calls + 1;
        at_least(self.first, pace.as_nanos() * calls - pace.as_nanos() / 4);
        Self { latest: now, calls, ..self }
    }
}

#[derive(Clone, Copy, Debug)]
struct Call {
    /// The decision under which it was granted, and whether the lease was valid then.
    place: usize,
    version: u64,
    is_at_provider: bool,
    exemption: Option<Exemption>,
}

/// What the oracle knows of a member. Instants are by the clock of the member, except `last_start`.
#[derive(Debug)]
struct MemberView {
    clock: DriftingClock,
    joined: Instant,
    adopted: Option<Adopted>,
    /// The time and the ended calls of each report.
    sent: BTreeMap<u64, (Instant, u64)>,
    calls: BTreeMap<u64, Call>,
    /// The outcomes of the ended calls, in order, with the version of each call.
    finished: Vec<(Outcome, u64)>,
    /// The refused calls that no adopted decision has acknowledged, by their place in `finished`.
    frozen: Vec<u64>,
    paced: Option<Paced>,
    last_start: Instant,
}

impl MemberView {
    fn is_leased(&self, local: Instant) -> bool {
        self.adopted.as_ref().is_some_and(|adopted| local < adopted.lease_until)
    }
}

/// Calls of a lower version belong to the cascade of the last cut. A cut of a low limit may not show, so
/// there are two bounds.
#[derive(Clone, Copy, Debug, Default)]
struct CutVersion {
    lowest: u64,
    highest: u64,
}

impl CutVersion {
    fn exactly(version: u64) -> Self {
        Self { lowest: version, highest: version }
    }
}

/// A decision that the store has accepted.
#[derive(Debug)]
struct Published {
    at: Instant,
    term: Term,
    version: u64,
    limit: u32,
    cut_version: CutVersion,
    /// The calls in flight of each member that the leader knew.
    in_flight: BTreeMap<MemberId, u64>,
    /// Whether the store has lost it, and no leader that knows it has written since.
    is_lost: bool,
    /// Whether the budgets that it has granted are exempt.
    is_exempt: bool,
}

/// What the oracle knows of a leader.
#[derive(Clone, Debug, Default)]
struct LeaderView {
    /// The calls in flight of each member in the snapshot.
    inherited: BTreeMap<MemberId, u64>,
    /// The newest processed report of each member: number, time, calls in flight, ended calls.
    seen: BTreeMap<MemberId, (u64, Instant, u64, u64)>,
    version: u64,
    limit: Option<u32>,
    was_paused: bool,
    fast_until: Instant,
    /// When a move of the limit by one has last made the beat the fast one.
    probed_at: Option<Instant>,
    /// Since when the beat has been the fast one for no other reason than that shares wait for slots.
    settles_since: Option<Instant>,
    cut_version: CutVersion,
    /// How many decisions it has made since the last one that it sent. A leader does not send one if it
    /// begins to leave before: it reads the reports once more, for its last decision.
    made: u64,
    /// Whether the reports since the decision before contain a refusal that may cut the limit.
    may_cut: bool,
    /// Whether they contain one that has to cut it.
    must_cut: bool,
    /// The successes in the reports since the decision before.
    successes: u32,
}

/// The checker of the laws. It panics at the first one that is broken.
#[derive(Debug)]
pub(super) struct Oracle {
    share: ShareConfig,
    cap: u32,
    /// Whether the number of cuts is checked: only AIMD is simple enough to say when it cuts.
    checks_cuts: bool,
    members: BTreeMap<MemberId, MemberView>,
    /// The decisions that the store has accepted, in order.
    published: Vec<Published>,
    /// The cut version of each decision, and the calls in flight that its leader knew.
    made: BTreeMap<(Term, u64), (CutVersion, BTreeMap<MemberId, u64>)>,
    leaders: BTreeMap<Term, LeaderView>,
    /// How each leader begins, by its term and the version of its snapshot.
    leads: BTreeMap<(Term, Option<u64>), LeaderView>,
    /// The present term in the store.
    term: Term,
    /// How often the store has lost writes.
    losses: u32,
    /// The number of calls that were sent.
    pub(super) calls: u64,
    /// The member and the time of each of them.
    pub(super) starts: Vec<(MemberId, Instant)>,
    /// The number of cuts of the limit.
    pub(super) cuts: u64,
    /// The number of decisions with a rate.
    pub(super) paced: u64,
    /// The number of calls by exemption.
    pub(super) exempt: BTreeMap<Exemption, u64>,
    pub(super) budgets: BudgetOracle,
}

impl Oracle {
    pub(super) fn new(config: &SharingConfig) -> Self {
        Self {
            share: config.share,
            cap: config.cap,
            checks_cuts: config.choice.is_aimd(),
            members: BTreeMap::new(),
            published: Vec::new(),
            made: BTreeMap::new(),
            leaders: BTreeMap::new(),
            leads: BTreeMap::new(),
            term: Term::default(),
            losses: 0,
            calls: 0,
            starts: Vec::new(),
            cuts: 0,
            paced: 0,
            exempt: BTreeMap::new(),
            budgets: BudgetOracle::new(&config.budgets),
        }
    }

    fn member(&mut self, id: MemberId) -> &mut MemberView {
        self.members.get_mut(&id).expect("the member is known")
    }

    /// Returns when the member last sent a call under a lease.
    pub(super) fn last_start(&self, id: MemberId) -> Instant {
        self.members[&id].last_start
    }
}

impl SharingObserver for Oracle {
    fn on_member(&mut self, id: MemberId, now: Instant, clock: DriftingClock) {
        let view = MemberView {
            clock,
            joined: clock.local(now),
            adopted: None,
            sent: BTreeMap::new(),
            calls: BTreeMap::new(),
            finished: Vec::new(),
            frozen: Vec::new(),
            paced: None,
            last_start: Instant::ZERO,
        };
        self.members.insert(id, view);
    }

    fn on_report_sent(&mut self, local: Instant, report: &MemberReport) {
        let view = self.member(report.member);
        let until = report.ended as usize;
        assert_eq!(until, view.finished.len(), "a report counts every ended call");
        for (end, (outcome, version)) in report.ends.iter().rev().zip(view.finished.iter().rev()) {
            assert_eq!((end.outcome, end.version), (*outcome, *version), "the version is that of the start");
        }
        assert_eq!(report.started - report.ended, view.calls.len() as u64, "a report counts every call in flight");
        view.sent.insert(report.seq, (local, report.ended));
        self.budgets.on_report_sent(report.member, report.seq);
    }

    fn on_adopted(&mut self, id: MemberId, local: Instant, decision: &Decision) {
        let is_it = |published: &Published| (published.term, published.version) == (decision.term, decision.version);
        let place = self.published.iter().rposition(is_it).expect("a decision comes from the store");
        let ttl = self.share.ttl;
        let view = self.member(id);
        let before = view.adopted.as_ref().map_or(0, |adopted| adopted.version);
        assert!(decision.version > before, "an older decision is never adopted");
        let given = decision.shares.get(&id);
        let seen = given.and_then(|given| view.sent.get(&given.seen_seq)).copied();
        if let Some((_, ended)) = seen {
            view.frozen.retain(|number| *number >= ended);
        }
        let interval = Duration::from_nanos(given.map_or(0, |given| given.pace_ns));
        if let Some(paced) = &mut view.paced {
            paced.shortest = interval.min(paced.shortest);
            paced.is_steady &= interval == paced.pace;
        }
        let (limit, members) = (decision.limit as usize, decision.shares.len());
        let is_first = |place: usize| usize::from(place < limit % members);
        let part = decision.shares.keys().position(|other| *other == id);
        view.adopted = Some(Adopted {
            place,
            version: decision.version,
            share: given.map_or(0, |given| given.share),
            members: members as u32,
            part: part.map_or(0, |place| (limit / members + is_first(place)) as u32),
            pace: interval,
            lease_until: seen.map_or(Instant::ZERO, |(sent, _)| sent + ttl),
            at: local,
        });
    }

    fn on_lead(&mut self, now: Instant, lead: &Lead) {
        self.exempt_calls(now);
        let mut view = LeaderView::default();
        if let Some(snapshot) = &lead.snapshot {
            let is_it = |published: &&Published| published.version == snapshot.version && !published.is_lost;
            let it = self.published.iter().rev().find(is_it).expect("a snapshot is that of a published decision");
            view.inherited = it.in_flight.clone();
            (view.version, view.limit, view.cut_version) = (it.version, Some(it.limit), it.cut_version);
        }
        self.leads.insert((lead.term, lead.snapshot.as_ref().map(|snapshot| snapshot.version)), view.clone());
        self.leaders.entry(lead.term).or_insert(view);
        self.on_term(now, lead.term);
    }

    fn on_leader(&mut self, term: Term, snapshot: Option<u64>) {
        let view = self.leads[&(term, snapshot)].clone();
        self.leaders.insert(term, view);
    }

    fn on_reports(&mut self, now: Instant, term: Term, local: Instant, reports: &[MemberReport]) {
        self.exempt_calls(now);
        for report in reports {
            self.budgets.on_report(now, report.member, report.seq);
        }
        let Some(view) = self.leaders.get_mut(&term) else { return };
        if view.made == 0 {
            (view.may_cut, view.must_cut, view.successes) = (false, false, 0);
        }
        let (mut is_forced, mut lost_writes) = (false, false);
        for report in reports {
            if report.version > view.version + view.made {
                view.cut_version = CutVersion::exactly(report.version + 1);
                lost_writes = true;
            }
            let seen = view.seen.get(&report.member).copied();
            if seen.is_some_and(|(seq, ..)| seq >= report.seq) {
                continue;
            }
            view.seen.insert(report.member, (report.seq, local, report.started - report.ended, report.ended));
            let ended = seen.map_or(0, |(.., ended)| ended);
            // A member whose lease was reclaimed begins anew.
            let is_known = seen.is_some_and(|(_, at, ..)| local - at < self.share.ttl);
            let first = (report.ended as usize - report.ends.len()).max(ended as usize);
            for (outcome, version) in &self.members[&report.member].finished[first..report.ended as usize] {
                // A call that started without a lease, under version 0, is not compared with the shared
                // limit.
                let is_refused = *outcome == Outcome::RateLimited && *version > 0;
                view.may_cut |= is_refused && *version >= view.cut_version.lowest;
                is_forced |= is_refused && *version >= view.cut_version.highest && is_known;
                view.successes += u32::from(*outcome == Outcome::Success);
            }
        }
        view.must_cut |= is_forced && !lost_writes;
        view.made += 1;
    }

    fn on_decision_made(&mut self, now: Instant, local: Instant, decide: &Decide) {
        self.exempt_calls(now);
        let Decide { decision, snapshot } = decide;
        let interval = snapshot.interval_ns.unwrap_or(0) as f64;
        let paces = decision.shares.values().map(|given| given.pace_ns).filter(|pace| *pace > 0);
        let has_paces = paces.clone().next().is_some();
        assert!(!has_paces || interval > 0.0, "the next leader learns the rate");
        let rates: f64 = paces.map(|pace| interval / pace as f64).sum();
        // A member without waiting calls has the least part.
        let most = 1.0 + decision.shares.len() as f64 / 65_536.0;
        assert!(rates <= most, "the members together keep to the rate: {rates}");
        self.paced += u64::from(has_paces);
        let fast = self.share.fast_beat;
        let view = self.leaders.get_mut(&decision.term).expect("a leader makes decisions");
        assert!(decision.version > view.version, "versions rise");
        let made = core::mem::take(&mut view.made);
        if decision.version > view.version + made {
            // The store had a decision that this leader did not make. Calls under it, and under those before,
            // are no calls of this leader, also if no report contains its version.
            view.cut_version = CutVersion::exactly(decision.version);
        }
        view.version = decision.version;
        let before = view.limit.replace(decision.limit);
        let moved = before.map_or(0, |before| before.abs_diff(decision.limit));
        let is_paused = decision.pause_ms > 0;
        if moved > 1 || (is_paused && !view.was_paused) {
            view.fast_until = local + self.share.fast_for;
        } else if moved == 1 && view.probed_at.is_none_or(|probed_at| local - probed_at >= self.share.fast_for) {
            view.probed_at = Some(local);
            view.fast_until = view.fast_until.max(local + (self.share.beat + self.share.beat).min(self.share.fast_for));
        }
        view.was_paused = is_paused;
        // The beat is also fast while shares wait for slots that others hold, which only the leader knows.
        let is_due = local < view.fast_until;
        let is_beat = |beat: Duration| u64::from(decision.beat_ms) == beat.as_nanos() / 1_000_000;
        assert!(is_beat(fast) || (is_beat(self.share.beat) && !is_due) || made > 1, "rule 4: the beat");
        // A decision that was made and not sent may have ended such a time.
        let began = view.settles_since.filter(|_| made <= 1).unwrap_or(local);
        view.settles_since = (is_beat(fast) && !is_due).then_some(began);
        let settles_for = view.settles_since.map_or(Duration::ZERO, |since| local - since);
        assert!(settles_for <= self.share.fast_for, "rule 4: the beat is fast for {settles_for}");
        if let Some(before) = before.filter(|_| self.checks_cuts) {
            if decision.limit < before {
                assert!(view.may_cut, "one cut for each cascade: {before} to {}", decision.limit);
                assert!(decision.limit >= (before * 3 / 4).max(1), "one cut for each cascade, not two at once");
                view.cut_version = CutVersion::exactly(decision.version);
                self.cuts += 1;
            } else {
                // A cut of a low limit does not show if the limit rose just before.
                let shows = before > 1 && (view.successes == 0 || before > 3 && view.successes < 20);
                assert!(!view.must_cut || !shows, "rule 1: refusals after a cut cut again");
                if view.may_cut && !shows {
                    view.cut_version.highest = decision.version;
                }
            }
        }
        let mut in_flight = view.inherited.clone();
        in_flight.extend(view.seen.iter().map(|(id, (_, _, in_flight, _))| (*id, *in_flight)));
        in_flight.retain(|id, _| decision.shares.contains_key(id));
        self.made.insert((decision.term, decision.version), (view.cut_version, in_flight));
    }

    fn on_published(&mut self, now: Instant, decision: &Decision) {
        self.exempt_calls(now);
        let (cut_version, in_flight) = self.made[&(decision.term, decision.version)].clone();
        let (term, version, limit) = (decision.term, decision.version, decision.limit);
        // The leader writes again what it knows: its decisions and those before.
        let known = self.published.iter().rposition(|published| published.term == term && published.is_lost);
        for published in self.published.iter_mut().take(known.map_or(0, |place| place + 1)) {
            published.is_lost = false;
        }
        let is_lost = false;
        self.published.push(Published {
            at: now,
            term,
            version,
            limit,
            cut_version,
            in_flight,
            is_lost,
            is_exempt: false,
        });
    }

    fn on_term(&mut self, now: Instant, term: Term) {
        self.exempt_calls(now);
        self.term = term;
        self.exempt_calls(now);
        let is_lost = |published: &Published| published.is_lost && !published.is_exempt && published.term != term;
        if let Some(first) = self.published.iter().find(|published| is_lost(published)).map(|published| published.at) {
            self.published.iter_mut().for_each(|published| published.is_exempt |= published.is_lost);
            self.budgets.on_lost_decisions(now - first);
        }
    }

    fn on_lost_writes(&mut self, now: Instant, kept: usize, term: Term) {
        self.exempt_calls(now);
        self.losses += 1;
        for published in &mut self.published[kept..] {
            published.is_lost = true;
        }
        self.on_term(now, term);
    }

    fn on_granted(&mut self, id: MemberId, local: Instant, call: u64, in_flight: u32) {
        let view = self.member(id);
        let is_leased = view.is_leased(local);
        let frozen = view.frozen.len() as u32;
        let (place, version) = match &view.adopted {
            Some(adopted) if is_leased => {
                assert!(in_flight <= adopted.share, "a member stays within its share");
                assert!(in_flight + frozen <= adopted.share, "rule 2: a refused slot is frozen");
                let after = view.paced.map(|paced| paced.after(local, adopted.pace));
                view.paced = Some(after.unwrap_or(Paced::new(local, adopted.pace)));
                (adopted.place, adopted.version)
            }
            _ => (0, 0),
        };
        view.calls.insert(call, Call { place, version, is_at_provider: false, exemption: None });
    }

    fn on_reserved(&mut self, id: MemberId, now: Instant, call: u64, amounts: &[u64], is_alone: bool) {
        let (ttl, on_loss) = (self.share.ttl, self.share.on_loss);
        let view = self.member(id);
        let local = view.clock.local(now);
        if is_alone {
            let contact = view.adopted.as_ref().map_or(view.joined, |adopted| adopted.at);
            let members = view.adopted.as_ref().map_or(0, |adopted| adopted.members);
            let parts = if on_loss == OnLoss::Alone { 1 } else { members };
            assert!(parts > 0 && local >= contact + ttl, "only a member that has lost the others is alone");
            self.budgets.on_reserved_alone(id, (local, contact + ttl, parts), call, amounts);
        } else if self.budgets.on_reserved(id, now, call, amounts) {
            *self.exempt.entry(Exemption::E3).or_default() += 1;
        }
    }

    fn on_returned(&mut self, id: MemberId, call: u64, amounts: &[u64]) {
        self.budgets.on_returned(id, call, amounts);
    }

    fn on_call(&mut self, id: MemberId, now: Instant, call: u64, in_flight: u32) {
        self.exempt_calls(now);
        let (share, cap) = (self.share, self.cap);
        self.calls += 1;
        self.starts.push((id, now));
        let view = self.member(id);
        let local = view.clock.local(now);
        let is_leased = view.is_leased(local);
        let contact = view.adopted.as_ref().map_or(view.joined, |adopted| adopted.at);
        let part = view.adopted.as_ref().map_or(0, |adopted| adopted.part);
        let mut exemption = None;
        if is_leased {
            view.last_start = now;
        } else {
            assert!(local >= contact + share.ttl, "no start on a lapsed lease");
            exemption = match share.on_loss {
                OnLoss::Stop => panic!("no start on a lapsed lease"),
                OnLoss::Share => {
                    assert!(in_flight <= part, "E2: at most the equal part of the last limit");
                    Some(Exemption::E2)
                }
                OnLoss::Alone => {
                    assert!(in_flight <= cap, "E1: at most the own limit");
                    Some(Exemption::E1)
                }
            };
        }
        let started = view.calls.get_mut(&call).expect("a call is granted first");
        started.is_at_provider = true;
        started.exemption = started.exemption.or(exemption);
        let started = *started;
        if let Some(exemption) = exemption {
            *self.exempt.entry(exemption).or_default() += 1;
        }
        self.exempt_calls(now);
        if exemption.is_some() || started.version == 0 {
            return;
        }
        let limit = self.published[started.place..].iter().map(|published| published.limit).max().expect("it is one");
        let out = |of: &MemberView| of.calls.values().filter(|call| call.is_at_provider).count() as u32;
        let counted = |of: &MemberView| {
            of.calls.values().filter(|call| call.is_at_provider && call.exemption.is_none()).count() as u32
        };
        let total: u32 = self.members.values().map(counted).sum();
        assert!(
            total <= limit,
            "{total} calls in flight, limit {limit}: {:?}",
            self.members.iter().map(|(id, view)| (id, out(view), counted(view))).collect::<Vec<_>>()
        );
    }

    fn on_call_ended(&mut self, id: MemberId, call: u64) {
        if let Some(call) = self.member(id).calls.get_mut(&call) {
            call.is_at_provider = false;
        }
    }

    fn on_finished(&mut self, id: MemberId, call: u64, outcome: Outcome) {
        let view = self.member(id);
        let call = view.calls.remove(&call).expect("a call ends once");
        if outcome == Outcome::RateLimited {
            view.frozen.push(view.finished.len() as u64);
        }
        view.finished.push((outcome, call.version));
    }
}

impl Oracle {
    /// Exempts the calls to which E3 or E4 applies now.
    fn exempt_calls(&mut self, now: Instant) {
        let hold = self.share.call_timeout.min(self.share.ttl);
        // The clock of the leader may be a little faster.
        let hold = Duration::from_nanos(hold.as_nanos() / 100 * 99);
        let leader = self.leaders.get(&self.term);
        for (id, view) in &mut self.members {
            for call in view.calls.values_mut().filter(|call| call.version > 0 && call.exemption.is_none()) {
                let published = &self.published[call.place];
                if published.is_lost && published.term != self.term {
                    call.exemption = Some(Exemption::E3);
                    *self.exempt.entry(Exemption::E3).or_default() += 1;
                }
            }
            let Some(adopted) = &view.adopted else { continue };
            let lapses = view.clock.true_time(adopted.lease_until);
            if now < lapses {
                continue;
            }
            let seen = leader.and_then(|leader| leader.seen.get(id).map(|(_, _, in_flight, _)| in_flight));
            let known = seen.or_else(|| leader.and_then(|leader| leader.inherited.get(id))).copied().unwrap_or(0);
            let reserved = if now >= lapses + hold { 0 } else { known as usize };
            for call in view.calls.values_mut().skip(reserved).filter(|call| call.exemption.is_none()) {
                call.exemption = Some(Exemption::E4);
                *self.exempt.entry(Exemption::E4).or_default() += 1;
            }
        }
        let exempt = |view: &MemberView| {
            view.calls.values().filter(|call| call.is_at_provider && call.exemption == Some(Exemption::E3)).count()
        };
        let lost: usize = self.members.values().map(exempt).sum();
        assert!(lost as u32 <= self.losses * self.cap, "E3: at most the limit once more for each loss");
    }
}
