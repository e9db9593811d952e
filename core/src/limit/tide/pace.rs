//! Calls spaced in time, for providers that count calls per minute.
//!
//! A bucket that refuses says when it will hold the next call. So it is known to be empty at two instants,
//! and what it let through between them is what flowed in:
//!
//! ```text
//! ready    = when the refused call went out + its Retry-After
//! interval = (ready - ready of the refusal before) / calls let through between the two
//! ```
//!
//! Two refusals give the rate to the nanosecond, if the Retry-After is that exact. The figure is believed if
//! it cannot be a want of slots (as many calls at once were let through shortly before, or the call was
//! alone), if the pause asked for is about the time of one call, and if the pauses differ, for a provider
//! without slots asks for the same one each time. Where they are equal or in whole seconds, or only one call
//! was let through in between, two figures in a row have to agree. Without a Retry-After (or with one that
//! stops nothing) `ready` is when the refused call went out, and the figure is believed once calls were let
//! through a little later at the load that was refused ([`Pace::adopt`]). From then on every refusal at the
//! pace adds to a mean over all that flowed in since, so that calls which cost differently (tokens) come out
//! right; after such a one a call's time or two are let pass, as a reserve for dear calls. A rate that
//! changed shows in eight calls that do not fit. Two refusals in a row of more calls at once than were let
//! through before are the limit's, and the pace is forgotten.
//!
//! Too slow a pace is never refused. So it is quickened, seldom where calls go out singly: by a sixteenth
//! after so many successes, then an eighth, then a quarter each time, until the next refusal. Where the
//! bucket was full in between, the figure comes out too slow; what went well before it then counts. A pace
//! that holds nobody up is forgotten.
//!
//! A quickened pace is not quickened again before a refusal of its first call would have come back, and only
//! while a refusal is affordable (`storm`). What was out when a refusal corrected the pace tells nothing of
//! it. Where nothing is let through between two refusals, each call waits half as long again as the one
//! before.
//!
//! A pace may be none: `doubt` and `reached` find out. Where a share of calls is refused at any pace, the pace is given
//! up, and the next 32 refusals teach nothing, then 64, and so on.

use super::alone::Alone;
use super::doubt::{Doubt, FASTER};
use super::reached::Reached;
use crate::time::{Duration, Instant};

/// Grants in a row that the pace did not hold up, after which it is forgotten.
const UNBOUND: u32 = 64;
/// What part of the interval a grant may be late by and still be held up by the pace.
const LATE: u64 = 4;
/// Successes after which a pace is quickened; each failure doubles it, so many times at most.
const PATIENCE: u32 = 32;
const DOUBLINGS: u32 = 5;
/// How many calls tell what was let through lately.
const LATELY: u64 = 64;
/// The least and the greatest reserve where calls cost differently, in calls.
const RESERVE: (u64, u64) = (1, 2);
/// A pause that is longer than so many calls are apart says little of when the next may go.
const LONG: u64 = 4;
/// The fewest calls that tell that a rate changed.
const FEWEST: u64 = 8;
/// Calls that a pace was learned from that is off by little: by one of them.
const SURE: u64 = 32;
/// The fewest calls between two refusals whose interval is believed at once.
const MEAN: u64 = 2;
/// Figures that are no further apart than one part in so many are the same.
const EXACTLY: u64 = 64;
/// Measurements in a row, beside the first, that have to be exactly the same to be the cost of every call.
const STEADY: u32 = 2;
/// Pauses that are no further apart than one part in so many are the same.
const EQUALLY: u64 = 32;
/// The first quickening, one part in so many, and the strongest.
const SHARES: (u64, u64) = (16, 4);
/// Refusals in a row that a pace is not to blame for, after which it is forgotten.
const FOREIGN: u32 = 2;
/// What part of the time since the first of a row of refusals the next call waits: each wait is half as long
/// again as the one before.
const CLOSED_PART: u64 = 2;
/// Refusals that teach nothing after a pace was given up, doubled each time, so many times at most.
const DEAF: (u32, u32) = (32, 10);

/// A refusal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    /// The number of the call's grant.
    pub(super) grant: u64,
    /// When it went out.
    pub(super) sent: Instant,
    /// Its Retry-After; zero for none.
    pub(super) asked: Duration,
    /// The same, also where it stops the refused call only.
    pub(super) said: Duration,
    /// Calls that were out with it, itself included.
    pub(super) at_once: u32,
    /// Whether calls are refused at any load.
    pub(super) is_share: bool,
    /// Whether something may be tried that may be refused.
    pub(super) may_risk: bool,
}

impl Refusal {
    fn ready(&self) -> Instant {
        self.sent + self.asked
    }

    /// Whether its Retry-After may have been rounded to seconds.
    fn is_rough(&self) -> bool {
        self.asked.as_nanos().is_multiple_of(1_000_000_000)
    }
}

/// What flowed in, and how many calls it was worth.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    nanos: u64,
    calls: u64,
}

impl Flow {
    fn interval(self) -> u64 {
        self.nanos.checked_div(self.calls).unwrap_or(0)
    }
}

/// Refusals in a row, of which each call went out when the one before had been heard of.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    first: Instant,
    last: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// The last refusal.
    mark: Option<Refusal>,
    /// The most calls at once that were let through since it, and between it and the one before.
    level: u32,
    level_before: u32,
    /// The last measurement.
    last: u64,
    /// Measurements in a row that were exactly the one before.
    steady: u32,
    /// Nanoseconds from one call to the next, while there is a pace.
    interval: Option<u64>,
    /// All that the pace was learned from.
    known: Flow,
    /// Calls' time that is let pass after a refusal.
    reserve: u64,
    /// The interval before it was last quickened, if it was since the last refusal.
    slower: Option<u64>,
    next: Instant,
    /// Whether no call has gone since the last refusal.
    is_first: bool,
    unbound: u32,
    successes: u32,
    failures: u32,
    /// What to quicken by: one part in so many.
    share: u64,
    /// Refusals that teach nothing, and how often a pace was given up.
    deaf: u32,
    given_up: u32,
    /// Refusals in a row that the pace was not to blame for.
    foreign: u32,
    /// What was let through lately, whatever held it up.
    reached: Flow,
    /// Whether the pace is a guess: one call that was let through after a wait.
    is_guess: bool,
    granted: Instant,
    /// When a refusal of the first call at the present pace would have come back.
    heard_at: Instant,
    /// When the pace was last corrected.
    corrected: Instant,
    /// Whether the last correction went back to what was borne before it was quickened.
    is_as_before: bool,
    row: Row,
    alone: Alone,
    doubt: Doubt,
    /// What was reached before the pace became slow.
    once: Reached,
    /// What share of the calls was refused at a pace that was given up just now.
    refused_share: Option<f64>,
}

impl Pace {
    /// When the next call may go.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        self.interval.map(|_| self.next)
    }

    /// Whether there is a pace.
    pub(super) fn is_known(&self) -> bool {
        self.interval.is_some()
    }

    /// Whether a pause is much longer than calls are apart.
    pub(super) fn is_long(&self, asked: Duration) -> bool {
        self.interval.is_none_or(|interval| asked.as_nanos() > interval.saturating_mul(LONG))
    }

    /// What share of the calls was refused at a pace that was given up, once for each.
    pub(super) fn take_refused_share(&mut self) -> Option<f64> {
        self.refused_share.take()
    }

    /// The most calls at once that were let through lately.
    pub(super) fn level(&self) -> u32 {
        self.level.max(self.level_before)
    }

    /// A call goes out that counts as let through at `passes`; `latency` is what calls take, in nanoseconds.
    /// `may_risk`: a refusal is affordable.
    pub(super) fn on_grant(
        &mut self,
        now: Instant,
        grant: u64,
        at_once: u32,
        passes: Instant,
        latency: f64,
        may_risk: bool,
    ) {
        self.doubt.on_grant(at_once);
        self.once.on_grant(now);
        self.reached.nanos += (now - self.granted).as_nanos();
        self.reached.calls += 1;
        self.granted = now;
        if self.reached.calls >= LATELY {
            self.reached = Flow { nanos: self.reached.nanos / 2, calls: self.reached.calls / 2 };
        }
        let Some(interval) = self.interval else { return };
        if self.doubt.is_testing() {
            if let Some(is_last) = self.doubt.on_test_grant(grant) {
                let soon = now + Duration::from_nanos(interval / FASTER);
                self.next = if is_last { soon.max(passes) } else { soon };
                return;
            }
            if let Some(share) = self.doubt.conclude() {
                self.give_up(Some(share));
                return;
            }
            self.start_over();
        }
        let late = now - self.next;
        let is_unbound = late > Duration::from_nanos(interval / LATE);
        self.unbound = if is_unbound { self.unbound + 1 } else { 0 };
        // Whoever wakes a little late keeps to the schedule all the same. It begins with the end of a pause.
        let from = if is_unbound || core::mem::take(&mut self.is_first) { self.next.max(now) } else { self.next };
        self.next = from + Duration::from_nanos(interval);
        if self.unbound >= UNBOUND {
            self.forget();
        } else if !is_unbound && now >= self.heard_at {
            self.successes = self.successes.saturating_add(1);
            if self.successes >= self.patience(interval, latency) && may_risk {
                self.successes /= 2;
                self.slower = Some(interval);
                self.heard_at = passes;
                self.interval = Some((interval - interval / self.share.max(1)).max(1));
                self.share = (self.share / 2).max(SHARES.1);
            }
        }
    }

    /// A call was let through, so long after one was refused at the same load.
    pub(super) fn adopt(&mut self, now: Instant, waited: Duration) {
        if self.interval.is_some() || self.mark.is_none() || self.deaf > 0 {
            return;
        }
        let waited = waited.as_nanos().max(1);
        let interval = if self.last > 0 { self.last.min(waited) } else { waited };
        let reached = self.reached.interval();
        let interval = if reached > 0 { interval.min(reached) } else { interval };
        self.guess(now, interval);
    }

    /// A pace that one call was let through at, which went out at `from`.
    fn guess(&mut self, from: Instant, interval: u64) {
        self.begin(Flow { nanos: interval, calls: 1 }, from + Duration::from_nanos(interval));
        self.is_guess = true;
    }

    fn begin(&mut self, known: Flow, next: Instant) {
        self.interval = Some(known.interval());
        self.once.on_begin(known.interval());
        self.known = known;
        self.is_guess = false;
        self.reserve = 0;
        self.doubt.start_over();
        self.next = next;
        self.failures = 0;
        self.foreign = 0;
        self.start_over();
    }

    /// A call was let through that went out at `sent`, whether it has been answered or not.
    pub(super) fn on_let_through(&mut self, grant: u64, at_once: u32, sent: Instant) {
        if let Some(interval) = self.alone.on_let_through(sent)
            && self.interval.is_none()
            && self.deaf == 0
        {
            self.guess(sent, interval);
        }
        if self.mark.is_none_or(|mark| grant > mark.grant) {
            self.level = self.level.max(at_once);
        }
    }

    /// Successes before the pace is quickened. The longer a call's interval beside its latency, the fewer
    /// calls there are, and the greater a part of them a refusal is.
    fn patience(&self, interval: u64, latency: f64) -> u32 {
        // What was learned from a few calls may be far too slow.
        if self.known.calls < FEWEST {
            return (PATIENCE / 2) << self.failures.min(DOUBLINGS);
        }
        let patience = PATIENCE << self.failures.min(DOUBLINGS);
        let slowness = (interval as f64 / latency.max(1.0)).clamp(1.0, 8.0);
        (f64::from(patience) * slowness * slowness) as u32
    }

    /// A call was refused. Answers whether the pace is to blame, and not the limit.
    pub(super) fn on_refused(&mut self, now: Instant, refusal: &Refusal) -> bool {
        self.reached.calls = self.reached.calls.saturating_sub(1);
        self.alone.on_refused(refusal.at_once);
        self.once.on_refused();
        let Some(last) = self.mark else {
            self.turn(refusal);
            return false;
        };
        if self.doubt.on_test_refused(refusal.grant) {
            self.turn(refusal);
            return true;
        }
        let calls = refusal.grant.saturating_sub(last.grant + 1);
        if calls == 0 {
            // The rest of a cascade.
            if refusal.grant > last.grant {
                self.mark = Some(*refusal);
                self.on_another(now, refusal.sent);
            }
            return self.interval.is_some();
        }
        self.row = Row { first: now, last: now };
        if self.interval.is_some() && refusal.sent < self.corrected {
            // It was out when the pace was corrected.
            self.mark = Some(*refusal);
            return true;
        }
        // Only what both of them say can be compared.
        let span = if refusal.asked.is_zero() {
            refusal.sent - last.sent
        } else {
            refusal.sent + refusal.said - (last.sent + last.said)
        };
        let flow = Flow { nanos: span.as_nanos(), calls };
        let is_settled = self.known.calls >= FEWEST;
        // At a pace that is new, one more than ever before goes out with nearly each call.
        let is_new = self.is_known() && !is_settled;
        let is_contradiction = refusal.at_once <= self.level().max(1) + u32::from(is_new);
        if self.is_known() && is_settled && self.doubt.is_want_of_slots(refusal.at_once) {
            self.forget();
            self.turn(refusal);
            return false;
        }
        let is_to_blame = match self.interval {
            None => self.learn(&last, refusal, flow, is_contradiction),
            Some(interval) if is_contradiction || asks_for_a_call(refusal, interval) => {
                self.foreign = 0;
                self.corrected = now;
                self.correct(flow, refusal.ready());
                let is_slow = |interval| refusal.may_risk && self.once.gives_up(interval, refusal.is_share);
                if self.interval.is_some_and(is_slow) {
                    self.give_up(None);
                }
                true
            }
            Some(interval) => {
                self.interval = Some(self.slower.take().unwrap_or(interval));
                self.foreign += 1;
                if self.foreign >= FOREIGN {
                    self.forget();
                }
                self.start_over();
                false
            }
        };
        self.turn(refusal);
        is_to_blame
    }

    /// Another refusal with nothing let through in between: the provider lets nothing through for now, at any
    /// pace.
    fn on_another(&mut self, now: Instant, sent: Instant) {
        self.successes = 0;
        if sent < self.row.last {
            return;
        }
        self.row.last = now;
        let wait = (now - self.row.first).as_nanos() / CLOSED_PART;
        self.next = self.next.max(now + Duration::from_nanos(wait));
    }

    /// Takes a first pace from what flowed in between two refusals, if it is to be believed.
    fn learn(&mut self, last: &Refusal, refusal: &Refusal, flow: Flow, is_contradiction: bool) -> bool {
        let measured = flow.interval();
        let rumour = core::mem::replace(&mut self.last, measured);
        let differs = !is_near(refusal.asked.as_nanos(), last.asked.as_nanos(), EQUALLY);
        let is_exact = differs && !last.asked.is_zero() && !(refusal.is_rough() && last.is_rough());
        // A single call may have been a dear one, or held up by a pause.
        let is_mean = flow.calls >= MEAN;
        let is_again = is_near(rumour, measured, 8);
        let is_bucket = is_contradiction && asks_for_a_call(refusal, measured) && (is_again || (is_exact && is_mean));
        if self.deaf > 0 {
            self.deaf -= 1;
            return false;
        }
        let is_own_pause = refusal.asked.as_nanos().saturating_mul(LONG) < measured;
        let is_alone = refusal.at_once == 1 && !refusal.asked.is_zero() && refusal.sent >= last.ready();
        if measured == 0 || !(is_bucket || (is_alone && (is_again || is_mean) && !is_own_pause)) {
            return false;
        }
        self.begin(flow, refusal.ready());
        true
    }

    /// Whether the pace was learned from so many calls that it is off by little.
    fn is_sure(&self) -> bool {
        self.known.calls >= SURE
    }

    /// A refusal at a pace: what flowed in says what it should have been.
    fn correct(&mut self, flow: Flow, ready: Instant) {
        let slower = self.slower.take();
        self.start_over();
        if self.known.calls >= FEWEST && self.doubt.on_refused(flow.calls, slower.is_some()) {
            self.next = ready;
            return;
        }
        // It was slower than the bucket filled, which was full in between: what went well before counts. Not
        // twice: then it had not been full.
        let is_as_before = core::mem::take(&mut self.is_as_before);
        let slower = slower.filter(|_| !is_as_before);
        if let Some(borne) = slower.filter(|borne| flow.interval() > borne.saturating_add(borne / 8)) {
            self.failures += u32::from(self.is_sure());
            self.is_as_before = true;
            self.interval = Some(borne);
            self.next = ready;
            return;
        }
        let (measured, known) = (flow.interval(), self.known.interval());
        let is_same = is_near(measured, core::mem::replace(&mut self.last, measured), EXACTLY);
        self.steady = if is_same { self.steady + 1 } else { 0 };
        let is_steady = self.steady >= STEADY;
        let is_other = core::mem::take(&mut self.is_guess) || (flow.calls >= FEWEST && !is_near(measured, known, 4));
        if is_steady {
            self.reserve = 0;
        } else if flow.calls >= FEWEST && flow.nanos.abs_diff(known.saturating_mul(flow.calls)) > known / 8 && !is_other
        {
            self.reserve = (self.reserve * 2).clamp(RESERVE.0, RESERVE.1);
        }
        // Exact figures in a row outweigh whatever was believed before.
        if is_other || (is_steady && !is_near(measured, known, EXACTLY)) {
            self.known = flow;
            self.failures = 0;
        } else {
            self.known.nanos = self.known.nanos.saturating_add(flow.nanos);
            self.known.calls += flow.calls;
            self.failures = if is_near(measured, known, 8) && self.is_sure() { self.failures + 1 } else { 0 };
        }
        let learned = self.known.interval();
        // Where the bucket was full in between, more would have flowed in: what went well then counts.
        let slower = slower.filter(|slower| learned > slower.saturating_add(slower / 4));
        self.interval = Some(slower.unwrap_or(learned).max(1));
        self.next = ready + Duration::from_nanos(learned.saturating_mul(self.reserve));
    }

    /// Whether calls go out faster than the pace to find out whether it is one.
    pub(super) fn is_testing(&self) -> bool {
        self.interval.is_some() && self.doubt.is_testing()
    }

    /// The most calls that may be out: in a test, no more than were let through before.
    pub(super) fn most(&self) -> u32 {
        if self.is_testing() { self.level().max(1) } else { u32::MAX }
    }

    /// There is no pace any more, nor a test of it: a test that outlived its pace would take every later
    /// refusal for its own.
    fn forget(&mut self) {
        self.interval = None;
        self.doubt.start_over();
    }

    /// It was no rate, but perhaps a share that is refused at any pace.
    fn give_up(&mut self, share: Option<f64>) {
        let (first, doublings) = DEAF;
        self.forget();
        self.refused_share = share;
        self.deaf = first << self.given_up.min(doublings);
        self.given_up += 1;
    }

    fn start_over(&mut self) {
        self.is_first = true;
        self.unbound = 0;
        self.successes = 0;
        self.share = SHARES.0;
    }

    fn turn(&mut self, refusal: &Refusal) {
        self.mark = Some(*refusal);
        // The others that were out with it have been let through, answered or not.
        self.level_before = core::mem::take(&mut self.level).max(refusal.at_once.saturating_sub(1));
    }
}

/// A bucket asks for the time of one call; a provider without slots for any.
fn asks_for_a_call(refusal: &Refusal, interval: u64) -> bool {
    !refusal.asked.is_zero() && refusal.asked.as_nanos() <= interval.saturating_mul(2)
}

/// Whether two figures are no further apart than one part in `parts` of the second.
pub(super) fn is_near(figure: u64, other: u64, parts: u64) -> bool {
    figure.abs_diff(other) <= other / parts
}
