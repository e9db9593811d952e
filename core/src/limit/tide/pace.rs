//! Spaces calls in time, for providers that count calls per minute.
//!
//! A bucket that refuses a call states when it will hold enough for it. So the bucket is known to be empty at
//! two instants, and the calls accepted between them are the inflow:
//!
//! ```text
//! ready    = when the refused call was sent + its Retry-After
//! interval = (ready - ready of the refusal before) / calls accepted between the two
//! ```
//!
//! # Learning
//!
//! Two refusals give the exact rate if the Retry-After is exact. The sample is accepted if
//!
//! - the cause cannot be a concurrency limit: as many calls at once were accepted shortly before, or the call
//!   was alone in flight;
//! - the Retry-After is about the time of one call;
//! - the Retry-Afters differ, because a provider without slots always states the same one. If they are equal
//!   or in whole seconds, or only one call was accepted in between, two samples in a row have to agree.
//!
//! Without a Retry-After (or with one that stops nothing), `ready` is when the refused call was sent. The
//! sample is then accepted once calls were accepted a little later at the load that was refused
//! ([`Pace::adopt`]).
//!
//! # Correction
//!
//! Each later refusal at the pace is a sample of the inflow since the one before. It is compared with what is
//! known. The row `the bucket was full` ends the correction; the others apply in order. `steady` excludes
//! `costs differ`.
//!
//! | case | holds if | effect |
//! | --- | --- | --- |
//! | `slower` | the pace was quickened since the last refusal | the interval before is the fallback |
//! | `is_as_before` | the last correction restored `slower` | the next correction does not restore it again |
//! | the bucket was full | `slower`, not `is_as_before`, sample > 9/8 `slower` | `slower` is restored |
//! | `is_guess` | the pace comes from one call accepted after a wait | the sample replaces `known` |
//! | the rate changed | sample of 8 calls, off `known` by over 1/4 | the sample replaces `known` |
//! | `steady` | two samples equal the one before to 1/64 | `reserve` is 0, a new sample replaces `known` |
//! | costs differ | the sample has 8 calls and is off by over 1/8 of a call | `reserve` is 1 call, then 2 |
//! | otherwise | | the sample is added to `known` |
//! | `known` is too long | `slower`, not `is_as_before`, `known` > `slower` | the interval is `slower` |
//!
//! `known` is the sum of all samples, so that the pace is the mean where calls cost differently (tokens).
//! `reserve` is the time in calls that passes after a refusal before the next call, because expensive
//! calls follow.
//!
//! # Quickening
//!
//! A pace that is too slow is never refused. So it is quickened after a number of successes, by a sixteenth,
//! then an eighth, then a quarter each time, until the next refusal. After a refusal, no step is greater than
//! half of the refused one, or a sixteenth, until another pace begins: a provider that lets traffic grow by a
//! third in a period refuses a step of a quarter and accepts two of an eighth. If even a sixteenth was
//! refused of a pace that is accurate (32 calls), then the next first step is half as large, down to a 64th.
//! The wait is longer where calls rarely overlap. The pace is not quickened again before a refusal of its
//! first call would have arrived, and only while a refusal is affordable (`storm`). Calls that were in flight
//! when a refusal corrected the pace are no sample of it.
//!
//! # End
//!
//! - A pace that delays no call is discarded.
//! - Two refusals in a row with more calls in flight than were accepted before belong to the concurrency
//!   limit: the pace is discarded.
//! - A pace that is not a rate is given up (`pace_check`, `reached`). The next 32 refusals are then no
//!   samples, then 64, and so on.
//!
//! Where no call is accepted between two refusals, each call waits half as long again as the one before.

use super::alone::Alone;
use super::inflow::{Inflow, Refusal, is_near};
use super::pace_check::{FASTER, PaceCheck};
use super::reached::Reached;
use crate::time::{Duration, Instant};

/// Grants in a row without delay, after which the pace is discarded.
const UNDELAYED: u32 = 64;
/// A grant is delayed by the pace if it is late by at most 1/`LATE` of the interval.
const LATE: u64 = 4;
/// A call that starts more than this many intervals before it is due does not delay the next one.
const AHEAD: u64 = 8;
/// Successes after which a pace is quickened. Each failure doubles them, this many times at most.
const PATIENCE: u32 = 32;
const DOUBLINGS: u32 = 5;
/// Calls in the recent rate.
const LATELY: u64 = 64;
/// The least and the greatest reserve where calls cost differently, in calls.
const RESERVE: (u64, u64) = (1, 2);
/// A Retry-After of more than this many intervals does not state when the next call is accepted.
const LONG: u64 = 4;
/// The fewest calls that show that the rate changed.
const FEWEST: u64 = 8;
/// Calls after which the known interval is accurate to one of them.
const SURE: u64 = 32;
/// The fewest calls in a sample that is accepted at once.
const MEAN: u64 = 2;
/// Two samples are equal if they differ by at most 1/`EXACTLY`.
const EXACTLY: u64 = 64;
/// Equal samples in a row, beside the first, after which every call costs the same.
const STEADY: u32 = 2;
/// Two Retry-Afters are equal if they differ by at most 1/`EQUALLY`.
const EQUALLY: u64 = 32;
/// The first and the greatest quickening, which shortens the interval by 1/16 and by 1/4.
const QUICKENINGS: (u64, u64) = (16, 4);
/// The least first quickening of a pace that is accurate. One of a sixteenth would never be accepted where
/// the pace is already nearer than that to the rate.
const LEAST_QUICKENING: u64 = 64;
/// Refusals in a row that the pace did not cause, after which it is discarded.
const UNRELATED: u32 = 2;
/// The part of the time since the first of a row of refusals that the next call waits: each wait is half as
/// long again as the one before.
const CLOSED_PART: u64 = 2;
/// Refusals that are ignored after a pace was given up. Each time doubles them, this many times at most.
const IGNORED: (u32, u32) = (32, 10);

/// Refusals in a row, each of a call that was sent after the refusal before had arrived.
#[derive(Clone, Copy, Debug, Default)]
struct RefusalRow {
    first: Instant,
    last: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// The last refusal.
    mark: Option<Refusal>,
    /// The most concurrent calls accepted since the last refusal, and between it and the one before.
    most_accepted: u32,
    most_accepted_before: u32,
    /// The interval of the last sample.
    last: u64,
    /// Samples in a row that equal the one before.
    steady: u32,
    /// Nanoseconds between two calls, while there is a pace.
    interval: Option<u64>,
    /// The sum of the samples of the pace.
    known: Inflow,
    /// Calls whose time passes after a refusal.
    reserve: u64,
    /// The interval before it was last quickened, if it was since the last refusal.
    slower: Option<u64>,
    next: Instant,
    /// Whether no call was sent since the last refusal.
    is_first: bool,
    undelayed: u32,
    successes: u32,
    failures: u32,
    /// The next and the last quickening, the first after a refusal, and the greatest: each shortens the
    /// interval by one divided by this.
    quickening: u64,
    last_quickening: u64,
    first_quickening: u64,
    greatest_quickening: u64,
    /// Refusals that are still ignored, and how often a pace was given up.
    ignored: u32,
    given_up: u32,
    /// Refusals in a row that the pace did not cause.
    unrelated: u32,
    /// The recent rate, whatever limited it.
    recent: Inflow,
    /// Whether the pace comes from one call that was accepted after a wait, or from another process.
    is_guess: bool,
    last_granted: Instant,
    /// When a refusal of the first call at the current pace would have arrived.
    feedback_at: Instant,
    /// When the pace was last corrected.
    corrected: Instant,
    /// Whether the last correction restored the interval before the quickening.
    is_as_before: bool,
    refusal_row: RefusalRow,
    alone: Alone,
    check: PaceCheck,
    /// The rate that was reached before the pace.
    reached: Reached,
    /// The share of calls that was refused at a pace that was just given up.
    refused_share: Option<f64>,
}

impl Pace {
    /// Returns when the next call may be sent.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        self.interval.map(|_| self.next)
    }

    /// Returns the time between two calls. It is shorter in a test of the pace.
    pub(super) fn interval(&self) -> Option<Duration> {
        let faster = if self.check.is_testing() { FASTER } else { 1 };
        self.interval.map(|interval| Duration::from_nanos((interval / faster).max(1)))
    }

    /// Returns whether there is a pace.
    pub(super) fn is_known(&self) -> bool {
        self.interval.is_some()
    }

    /// Returns whether a Retry-After is much longer than the interval.
    pub(super) fn is_long(&self, retry_after: Duration) -> bool {
        self.interval.is_none_or(|interval| retry_after.as_nanos() > interval.saturating_mul(LONG))
    }

    /// Takes the share of calls that was refused at a pace that was given up.
    pub(super) fn take_refused_share(&mut self) -> Option<f64> {
        self.refused_share.take()
    }

    /// Returns the most concurrent calls that were accepted lately.
    pub(super) fn most_accepted(&self) -> u32 {
        self.most_accepted.max(self.most_accepted_before)
    }

    /// Records a grant. The call counts as accepted at `accepted_at`. `latency` is the mean latency in
    /// nanoseconds, and `may_risk` states whether a refusal may be risked.
    pub(super) fn on_grant(
        &mut self,
        now: Instant,
        grant: u64,
        in_flight: u32,
        accepted_at: Instant,
        latency: f64,
        may_risk: bool,
    ) {
        self.check.on_grant(in_flight);
        self.reached.on_grant(now);
        self.recent.nanos += (now - self.last_granted).as_nanos();
        self.recent.calls += 1;
        self.last_granted = now;
        if self.recent.calls >= LATELY {
            self.recent = Inflow { nanos: self.recent.nanos / 2, calls: self.recent.calls / 2 };
        }
        let Some(interval) = self.interval else { return };
        if self.check.is_testing() {
            if let Some(is_last) = self.check.on_test_grant(grant) {
                let soon = now + Duration::from_nanos(interval / FASTER);
                self.next = if is_last { soon.max(accepted_at) } else { soon };
                return;
            }
            if let Some(share) = self.check.conclude() {
                self.give_up(Some(share));
                return;
            }
            self.restart_schedule();
        }
        let late = now - self.next;
        let is_undelayed = late > Duration::from_nanos(interval / LATE);
        self.undelayed = if is_undelayed { self.undelayed + 1 } else { 0 };
        // A call that is sent a little late keeps to the schedule. The schedule begins at the end of a
        // cooldown.
        let begins = is_undelayed || core::mem::take(&mut self.is_first);
        let from = if begins { self.next.max(now) } else { self.next };
        // Calls that other processes start without regard to the pace, such as those that lost contact, move
        // the next one only so far into the future.
        if from <= now + Duration::from_nanos(interval.saturating_mul(AHEAD)) {
            self.next = from + Duration::from_nanos(interval);
        }
        if self.undelayed >= UNDELAYED {
            self.clear();
        } else if !is_undelayed && now >= self.feedback_at {
            self.successes = self.successes.saturating_add(1);
            if self.successes >= self.quicken_after(interval, latency) && may_risk {
                self.successes /= 2;
                self.slower = Some(interval);
                self.feedback_at = accepted_at;
                self.interval = Some((interval - interval / self.quickening.max(1)).max(1));
                self.last_quickening = self.quickening;
                self.quickening = (self.quickening / 2).max(self.greatest_quickening);
            }
        }
    }

    /// Adopts a pace, because a call was accepted `waited` after one was refused at the same load.
    pub(super) fn adopt(&mut self, now: Instant, waited: Duration) {
        if self.interval.is_some() || self.mark.is_none() || self.ignored > 0 {
            return;
        }
        let waited = waited.as_nanos().max(1);
        let interval = if self.last > 0 { self.last.min(waited) } else { waited };
        let reached = self.recent.interval();
        let interval = if reached > 0 { interval.min(reached) } else { interval };
        self.guess(now, interval);
    }

    /// Begins a pace from one accepted call, which was sent at `from`, or from the pace of another process.
    pub(super) fn guess(&mut self, from: Instant, interval: u64) {
        self.begin(Inflow { nanos: interval, calls: 1 }, from + Duration::from_nanos(interval));
        self.is_guess = true;
    }

    fn begin(&mut self, known: Inflow, next: Instant) {
        self.interval = Some(known.interval());
        self.reached.on_begin(known.interval());
        self.known = known;
        self.is_guess = false;
        self.reserve = 0;
        self.check.reset();
        self.next = next;
        self.failures = 0;
        (self.first_quickening, self.greatest_quickening) = QUICKENINGS;
        self.unrelated = 0;
        self.restart_schedule();
    }

    /// Records that a call sent at `sent` was accepted, answered or not.
    pub(super) fn on_accepted(&mut self, grant: u64, in_flight: u32, sent: Instant) {
        if let Some(interval) = self.alone.on_accepted(sent)
            && self.interval.is_none()
            && self.ignored == 0
        {
            self.guess(sent, interval);
        }
        if self.mark.is_none_or(|mark| grant > mark.grant) {
            self.most_accepted = self.most_accepted.max(in_flight);
        }
    }

    /// Returns the successes before the pace is quickened. The longer the interval compared with the latency,
    /// the fewer calls there are, and the greater the part of them that one refusal is.
    fn quicken_after(&self, interval: u64, latency: f64) -> u32 {
        // A pace learned from a few calls may be far too slow.
        if self.known.calls < FEWEST {
            return (PATIENCE / 2) << self.failures.min(DOUBLINGS);
        }
        let quicken_after = PATIENCE << self.failures.min(DOUBLINGS);
        let slowness = (interval as f64 / latency.max(1.0)).clamp(1.0, 8.0);
        (f64::from(quicken_after) * slowness * slowness) as u32
    }

    /// Records a refusal. Returns whether the pace caused it, and not the limit.
    pub(super) fn on_refused(&mut self, now: Instant, refusal: &Refusal) -> bool {
        self.recent.calls = self.recent.calls.saturating_sub(1);
        self.alone.on_refused(refusal.in_flight);
        self.reached.on_refused();
        let Some(last) = self.mark else {
            self.set_mark(now, refusal);
            return false;
        };
        if self.check.on_test_refused(refusal.grant) {
            self.set_mark(now, refusal);
            return true;
        }
        let calls = refusal.grant.saturating_sub(last.grant + 1);
        if calls == 0 {
            // The rest of a cascade.
            if refusal.grant > last.grant {
                self.mark = Some(*refusal);
                self.on_repeated_refusal(now, refusal.sent);
            }
            return self.interval.is_some();
        }
        if self.interval.is_some() && refusal.sent < self.corrected {
            // The call was in flight when the pace was corrected.
            self.mark = Some(*refusal);
            self.refusal_row = RefusalRow { first: now, last: now };
            return true;
        }
        // The Retry-Afters are compared only if this one may stop the resource.
        let span = if refusal.retry_after.is_zero() {
            refusal.sent - last.sent
        } else {
            refusal.sent + refusal.stated_retry_after - (last.sent + last.stated_retry_after)
        };
        let inflow = Inflow { nanos: span.as_nanos(), calls };
        let is_settled = self.known.calls >= FEWEST;
        // At a new pace, nearly each call is sent with one more in flight than ever before.
        let is_new = self.is_known() && !is_settled;
        let is_contradiction = refusal.in_flight <= self.most_accepted().max(1) + u32::from(is_new);
        if self.is_known() && is_settled && self.check.is_concurrency_limit(refusal.in_flight) {
            self.clear();
            self.set_mark(now, refusal);
            return false;
        }
        let is_to_blame = match self.interval {
            None => self.learn(&last, refusal, inflow, is_contradiction),
            Some(interval) if is_contradiction || refusal.is_about_one_call(interval) => {
                self.unrelated = 0;
                self.corrected = now;
                self.correct(inflow, refusal.ready());
                let is_slow = |interval| refusal.may_risk && self.reached.gives_up(interval, refusal.is_share);
                if self.interval.is_some_and(is_slow) {
                    self.give_up(None);
                }
                true
            }
            Some(interval) => {
                self.interval = Some(self.slower.take().unwrap_or(interval));
                self.unrelated += 1;
                if self.unrelated >= UNRELATED {
                    self.clear();
                }
                self.restart_schedule();
                false
            }
        };
        self.set_mark(now, refusal);
        is_to_blame
    }

    /// Records another refusal with no call accepted since the one before: for now, the provider accepts no
    /// call at any pace.
    fn on_repeated_refusal(&mut self, now: Instant, sent: Instant) {
        self.successes = 0;
        if sent < self.refusal_row.last {
            return;
        }
        self.refusal_row.last = now;
        let wait = (now - self.refusal_row.first).as_nanos() / CLOSED_PART;
        self.next = self.next.max(now + Duration::from_nanos(wait));
    }

    /// Learns a first pace from the inflow between two refusals, if the sample is acceptable.
    fn learn(&mut self, last: &Refusal, refusal: &Refusal, inflow: Inflow, is_contradiction: bool) -> bool {
        let measured = inflow.interval();
        let previous = core::mem::replace(&mut self.last, measured);
        let differs = !is_near(refusal.retry_after.as_nanos(), last.retry_after.as_nanos(), EQUALLY);
        let is_exact = differs && !last.retry_after.is_zero() && !(refusal.is_rounded() && last.is_rounded());
        // A single call may have been expensive, or delayed by a cooldown.
        let is_mean = inflow.calls >= MEAN;
        let is_again = is_near(previous, measured, 8);
        let is_bucket = is_contradiction && refusal.is_about_one_call(measured) && (is_again || (is_exact && is_mean));
        if self.ignored > 0 {
            self.ignored -= 1;
            return false;
        }
        let is_own_cooldown = refusal.retry_after.as_nanos().saturating_mul(LONG) < measured;
        let is_alone = refusal.in_flight == 1 && !refusal.retry_after.is_zero() && refusal.sent >= last.ready();
        if measured == 0 || !(is_bucket || (is_alone && (is_again || is_mean) && !is_own_cooldown)) {
            return false;
        }
        self.begin(inflow, refusal.ready());
        true
    }

    /// Returns whether the pace comes from so many calls that it is accurate.
    fn is_sure(&self) -> bool {
        self.known.calls >= SURE
    }

    /// Corrects the pace after a refusal. See the cases in the [module documentation](self).
    fn correct(&mut self, inflow: Inflow, ready: Instant) {
        let slower = self.slower.take();
        if slower.is_some() {
            let halved = self.last_quickening * 2;
            self.greatest_quickening = halved.min(QUICKENINGS.0);
            let least = if self.is_sure() { LEAST_QUICKENING } else { QUICKENINGS.0 };
            self.first_quickening = halved.clamp(QUICKENINGS.0, least);
        }
        self.restart_schedule();
        if self.known.calls >= FEWEST && self.check.on_refused(inflow.calls, slower.is_some()) {
            self.next = ready;
            return;
        }
        // The pace was slower than the inflow, and the bucket was full in between. If that happens twice in a
        // row, the bucket was not full.
        let is_as_before = core::mem::take(&mut self.is_as_before);
        let slower = slower.filter(|_| !is_as_before);
        if let Some(before) = slower.filter(|before| inflow.interval() > before.saturating_add(before / 8)) {
            self.failures += u32::from(self.is_sure());
            self.is_as_before = true;
            self.interval = Some(before);
            self.next = ready;
            return;
        }
        let (measured, known) = (inflow.interval(), self.known.interval());
        let is_same = is_near(measured, core::mem::replace(&mut self.last, measured), EXACTLY);
        self.steady = if is_same { self.steady + 1 } else { 0 };
        let is_steady = self.steady >= STEADY;
        let is_other = core::mem::take(&mut self.is_guess) || (inflow.calls >= FEWEST && !is_near(measured, known, 4));
        if is_steady {
            self.reserve = 0;
        } else if inflow.calls >= FEWEST
            && inflow.nanos.abs_diff(known.saturating_mul(inflow.calls)) > known / 8
            && !is_other
        {
            self.reserve = (self.reserve * 2).clamp(RESERVE.0, RESERVE.1);
        }
        // Equal samples in a row outweigh everything known before.
        if is_other || (is_steady && !is_near(measured, known, EXACTLY)) {
            self.known = inflow;
            self.failures = 0;
        } else {
            self.known.nanos = self.known.nanos.saturating_add(inflow.nanos);
            self.known.calls += inflow.calls;
            self.failures = if is_near(measured, known, 8) && self.is_sure() { self.failures + 1 } else { 0 };
        }
        let learned = self.known.interval();
        // The interval before was accepted, so a longer sample is of a bucket that was full in between.
        self.interval = Some(slower.map_or(learned, |slower| learned.min(slower)).max(1));
        self.next = ready + Duration::from_nanos(learned.saturating_mul(self.reserve));
    }

    /// Returns whether a test of the pace is running.
    pub(super) fn is_testing(&self) -> bool {
        self.interval.is_some() && self.check.is_testing()
    }

    /// Returns the most calls that may be in flight: in a test, as many as were accepted before.
    pub(super) fn most(&self) -> u32 {
        if self.is_testing() { self.most_accepted().max(1) } else { u32::MAX }
    }

    /// Discards the pace and its test. A test that outlived its pace would count all later refusals as its
    /// own.
    fn clear(&mut self) {
        self.interval = None;
        self.check.reset();
    }

    /// Gives the pace up as not being a rate. `share` is the share of calls that is refused at any pace, if
    /// known.
    fn give_up(&mut self, share: Option<f64>) {
        let (first, doublings) = IGNORED;
        self.clear();
        self.refused_share = share;
        self.ignored = first << self.given_up.min(doublings);
        self.given_up += 1;
    }

    fn restart_schedule(&mut self) {
        self.is_first = true;
        self.undelayed = 0;
        self.successes = 0;
        self.quickening = self.first_quickening;
    }

    fn set_mark(&mut self, now: Instant, refusal: &Refusal) {
        self.mark = Some(*refusal);
        self.refusal_row = RefusalRow { first: now, last: now };
        // The other calls that were in flight with it have been accepted, answered or not.
        self.most_accepted_before = core::mem::take(&mut self.most_accepted).max(refusal.in_flight.saturating_sub(1));
    }
}
