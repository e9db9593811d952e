//! Budgets that a provider states itself, in the headers of its answers, where none is configured.
//!
//! An answer says `limit`, `remaining` and `reset`: how much is allowed, how much was left when the call
//! arrived, and when all of it is back. Two kinds of provider say the same three things and mean different
//! ones, and which one it is shows in how the reset moves:
//!
//! | shape | what comes back | the reset, while calls are sent |
//! | --- | --- | --- |
//! | bucket | `limit / window`, evenly | moves on by `window / limit` with each call |
//! | window | nothing until the reset, then all | stays where it is |
//!
//! The window of a limit that does not name it is a minute; a reset further away than that shows a slower
//! one, which then refills by `(limit - remaining) / reset`.
//!
//! **A statement is old when it comes**: it was made when its call arrived, or when it ended. With `beside`
//! calls that were out while its call was, of which `since` were granted after it and still are, and `age`
//! from its grant to now, what is left now lies between
//!
//! ```text
//! remaining - beside + refill of `age`    if none of them was counted: calls may arrive in another order than they were sent
//! remaining - since + refill of `age`     if the others were counted
//! remaining                               if all were counted
//! ```
//!
//! of which the lowest and the highest count. The own account of what was sent is exact but for its start, so
//! it stays as it is where it lies between these two, and is moved to the nearer one where it does not. The
//! same holds for the end of a window. Of a bucket one call is left unused, and what comes back in
//! [`HELD_UP`], but no more than a quarter of it: calls do not arrive as evenly as they are sent.
//!
//! **What is not believed.** A statement never stops a resource for longer than [`LONGEST_HOLD`]: then one
//! call goes out all the same. If that call is answered, the provider does not do what it says, and the
//! budget holds nothing back until a call is refused. Neither does it for [`UNSTEADY`] where the limit
//! changes to and fro, as behind a balancer over accounts with different limits. It is given up after
//! [`SILENCE`] answers without a statement.

use super::bucket::Bucket;
use super::{BudgetConfig, BudgetSnapshot, BudgetSource, Correction, Dimension, MAX_LIMIT};
use crate::call::{Completion, Outcome, Usage};
use crate::time::{Duration, Instant};

/// Budgets of one resource at most: headers come from outside, and may name any number of windows.
pub(super) const MOST_STATED: usize = 8;
/// The longest that statements keep every call of a resource from going out. More than a minute and a long
/// call, so that the end of a window is waited for.
const LONGEST_HOLD: Duration = Duration::from_secs(90);
/// How long a limit that changes to and fro holds nothing back.
const UNSTEADY: Duration = Duration::from_secs(600);
/// Changes back to the limit before, after which it counts as one that changes to and fro. One or two may be
/// an account that was changed and changed back.
const RETURNS: u32 = 3;
/// Successes in a row without a statement, after which a budget is given up.
const SILENCE: u32 = 32;
/// The window of a limit that does not name one.
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// A reset beyond this is not that of a limit per minute: a tenth is left for calls that are on their way.
const PAST_A_MINUTE: Duration = Duration::from_secs(66);
/// The furthest reset that is believed.
const FURTHEST_RESET: Duration = Duration::from_secs(366 * 86_400);
/// How long a call may be held up on its way.
const HELD_UP: Duration = Duration::from_millis(50);
/// Providers state resets in whole seconds: below this, a difference says nothing.
const RESOLUTION: Duration = Duration::from_secs(1);

/// What an answer said of one dimension, as far as it is sound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statement {
    limit: u64,
    remaining: u64,
    reset: Option<Duration>,
}

impl Statement {
    /// `None` where something is missing, or cannot be: a limit of zero or beyond all measure is none.
    pub(super) fn of(correction: &Correction) -> Option<Self> {
        let limit = correction.limit.filter(|limit| (1..=MAX_LIMIT).contains(limit))?;
        let reset = correction.reset_after.map(|reset| reset.min(FURTHEST_RESET));
        let has_time = reset.is_some() || correction.window.is_some_and(|window| !window.is_zero());
        let remaining = correction.remaining.filter(|_| has_time)?.min(limit);
        Some(Self { limit, remaining, reset })
    }

    fn missing(&self) -> u64 {
        self.limit - self.remaining
    }
}

/// Which call an answer is of, and what else is out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnsweredCall {
    /// The number of its grant.
    pub(crate) grant: u64,
    /// When it was granted, if that is known.
    pub(crate) granted_at: Option<Instant>,
    /// Whether it would be known without any budget, and without events.
    pub(crate) is_timed: bool,
    /// Grants that have been given.
    pub(crate) grants: u64,
    /// Calls that are out, this one included; and that were once it was granted.
    pub(crate) in_flight: u32,
    pub(crate) in_flight_at_grant: u32,
}

impl AnsweredCall {
    /// The same to a budget that knows of grants from number `since` on. When an earlier one was given may be
    /// known because events are on, and events must change nothing.
    fn to_budget(self, since: u64) -> Self {
        Self { granted_at: self.granted_at.filter(|_| self.is_timed || self.grant >= since), ..self }
    }

    /// The other calls that are out.
    fn others(&self) -> u64 {
        u64::from(self.in_flight.saturating_sub(1))
    }

    /// Those of them that were granted after it.
    fn since(&self) -> u64 {
        self.granted_later().min(self.others())
    }

    /// The calls that were out while it was, also those that have ended: any of them may have arrived after
    /// it.
    fn beside(&self) -> u64 {
        u64::from(self.in_flight_at_grant.saturating_sub(1)) + self.granted_later()
    }

    fn age(&self, now: Instant) -> Duration {
        self.granted_at.map_or(Duration::ZERO, |at| now - at)
    }

    fn granted_later(&self) -> u64 {
        self.grants.saturating_sub(self.grant + 1)
    }
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Bucket,
    Window {
        /// When all is back.
        ends: Instant,
        /// The furthest reset that was stated: the window itself, once one was stated at its begin.
        length: Duration,
        began: Instant,
    },
}

/// A statement to compare later ones with: see [`StatedBudget::learn_shape`].
#[derive(Clone, Copy, Debug)]
struct Anchor {
    grant: u64,
    remaining: u64,
    /// The instant of the reset, counted from the grant of the call and from its end.
    resets: [Instant; 2],
}

#[derive(Clone, Debug)]
pub(super) struct StatedBudget {
    dimension: Dimension,
    /// The window that the header names, if it does.
    named: Option<Duration>,
    limit: u64,
    /// The limit before, and how often it came back since when.
    limit_before: Option<u64>,
    returns: u32,
    bucket: Bucket,
    /// The most that was ever left, under this limit: what may be sent at once.
    most: u64,
    shape: Shape,
    anchor: Option<Anchor>,
    /// What a snapshot shows for the window.
    window: Duration,
    reserved: u64,
    /// The first grant that this budget knows of.
    since: u64,
    /// The newest call whose statement counts.
    newest: u64,
    /// When a call last went out, or the budget was made.
    latest: Instant,
    /// The call that went out although there was nothing left.
    probe: Option<u64>,
    is_disbelieved: bool,
    unsteady_until: Option<Instant>,
    silence: u32,
}

impl StatedBudget {
    /// The budget of a first statement.
    pub(super) fn new(
        now: Instant,
        correction: &Correction,
        statement: &Statement,
        call: &AnsweredCall,
        typical: Usage,
    ) -> Self {
        let call = &call.to_budget(call.grants);
        let window = correction.window.filter(|window| !window.is_zero());
        let config = BudgetConfig::per(window.unwrap_or(MINUTE), correction.dimension, statement.limit);
        let mut this = Self {
            dimension: correction.dimension,
            named: window,
            limit: statement.limit,
            limit_before: None,
            returns: 0,
            bucket: Bucket::new(now, &config),
            most: 0,
            shape: Shape::Bucket,
            anchor: None,
            window: config.window,
            reserved: 0,
            since: call.grants,
            newest: call.grant,
            latest: now,
            probe: None,
            is_disbelieved: false,
            unsteady_until: None,
            silence: 0,
        };
        this.begin(now, statement);
        this.apply(now, statement, call, typical);
        // There is no account of its own to keep yet: the lower end is safe.
        let low = this.lowest(now, statement, call, call.others(), typical);
        this.bucket.put(now, low);
        this
    }

    /// Whether `correction` is about it.
    pub(super) fn is_of(&self, correction: &Correction) -> bool {
        self.dimension == correction.dimension && self.named == correction.window.filter(|window| !window.is_zero())
    }

    /// Starts over under a limit that was not known before.
    fn begin(&mut self, now: Instant, statement: &Statement) {
        self.limit = statement.limit;
        self.most = 0;
        self.anchor = None;
        let usual = self.usual();
        self.shape = match statement.reset {
            // In a bucket, what is missing would be back much earlier.
            Some(reset)
                if (self.named.is_some() || reset <= PAST_A_MINUTE)
                    && reset.as_nanos() > 2 * spend_time(statement.missing(), usual) + RESOLUTION.as_nanos() =>
            {
                window(now, reset)
            }
            _ => Shape::Bucket,
        };
    }

    /// Takes over what an answer said; answers whether the limit is another one now.
    pub(super) fn apply(&mut self, now: Instant, statement: &Statement, call: &AnsweredCall, typical: Usage) -> bool {
        let call = &call.to_budget(self.since);
        self.silence = 0;
        self.roll(now);
        let is_new = statement.limit != self.limit;
        if is_new {
            self.judge_change(now, statement.limit);
            self.begin(now, statement);
        }
        if call.grant < self.newest && !is_new {
            self.lower(now, statement, call, typical);
            return false;
        }
        self.newest = call.grant;
        let own = typical.of(self.dimension);
        self.most = self.most.max(statement.remaining.saturating_add(own).min(statement.limit)).max(1);
        self.learn_shape(now, statement, call);
        self.set_rate(now, statement);
        self.bucket.set_burst(now, self.most - self.slack());
        if self.is_of_this_window(call) {
            let (low, high) = self.bounds(now, statement, call, typical);
            self.bucket.keep_between(now, low, high);
        }
        is_new
    }

    /// Takes over what an older call says after a newer one: it may have arrived later, so there may be less.
    /// No more, though.
    fn lower(&mut self, now: Instant, statement: &Statement, call: &AnsweredCall, typical: Usage) {
        if self.is_of_this_window(call) {
            let (_, high) = self.bounds(now, statement, call, typical);
            self.bucket.keep_between(now, i128::MIN, high);
        }
    }

    /// Counts how often the limit goes back to what it was before.
    fn judge_change(&mut self, now: Instant, limit: u64) {
        if self.unsteady_until.is_some_and(|end| end <= now) {
            (self.unsteady_until, self.returns) = (None, 0);
        }
        if self.limit_before == Some(limit) {
            self.returns += 1;
            if self.returns >= RETURNS && self.unsteady_until.is_none() {
                self.unsteady_until = Some(now + UNSTEADY);
            }
        }
        self.limit_before = Some(self.limit);
    }

    /// The rate that the limit has by its name, or by convention: so much in so long.
    fn usual(&self) -> (u64, Duration) {
        (self.limit, self.named.unwrap_or(MINUTE))
    }

    fn set_rate(&mut self, now: Instant, statement: &Statement) {
        let usual = self.usual();
        let slow = statement.reset.filter(|reset| self.named.is_none() && *reset > PAST_A_MINUTE);
        self.window = match (self.shape, slow) {
            (_, None) => usual.1,
            (Shape::Window { .. }, Some(reset)) => {
                if reset <= HOUR {
                    HOUR
                } else {
                    DAY
                }
            }
            (Shape::Bucket, Some(reset)) => {
                let whole =
                    u128::from(self.limit) * u128::from(reset.as_nanos()) / u128::from(statement.missing().max(1));
                if whole <= 2 * u128::from(HOUR.as_nanos()) { HOUR } else { DAY }
            }
        };
        match (self.shape, slow) {
            (Shape::Window { .. }, _) => self.bucket.set_rate(now, 0, usual.1),
            (Shape::Bucket, Some(reset)) => self.bucket.set_rate(now, statement.missing().max(1), reset),
            (Shape::Bucket, None) => self.bucket.set_rate(now, usual.0, usual.1),
        }
    }

    /// What is left unused of a bucket: calls that are held up on their way come closer together than they
    /// were sent.
    fn slack(&self) -> u64 {
        if let Shape::Window { .. } = self.shape {
            return 0;
        }
        let (limit, window) = self.usual();
        let late = u128::from(limit) * u128::from(HELD_UP.as_nanos()) / u128::from(window.as_nanos());
        (1 + late as u64).min(self.most / 4)
    }

    /// Tells a bucket from a window by how far the reset moved while a bucket would have taken at least two
    /// seconds to refill what was sent. Counted from grant and from end: where these disagree, the statements
    /// are too old to tell.
    fn learn_shape(&mut self, now: Instant, statement: &Statement, call: &AnsweredCall) {
        let Some(reset) = statement.reset else { return };
        let granted_at = call.granted_at.unwrap_or(now);
        let known = if let Shape::Window { length, .. } = self.shape { length } else { Duration::ZERO };
        if now - granted_at > reset.max(known) {
            // It speaks of a window that is over: even spacing suits windows of any place.
            (self.shape, self.anchor) = (Shape::Bucket, None);
            return;
        }
        let anchor =
            Anchor { grant: call.grant, remaining: statement.remaining, resets: [granted_at + reset, now + reset] };
        let before = self.anchor.replace(anchor);
        if let Some(before) = before.filter(|before| before.remaining >= statement.remaining) {
            if before.grant > call.grant {
                self.anchor = Some(before);
                return;
            }
            let expected = spend_time(before.remaining - statement.remaining, self.usual());
            let moved = [0, 1].map(|end| (anchor.resets[end] - before.resets[end]).as_nanos());
            let is_far = moved.map(|moved| moved >= expected / 2);
            if expected < 2 * RESOLUTION.as_nanos() || is_far[0] != is_far[1] {
                self.anchor = Some(before);
                return;
            }
            match self.shape {
                Shape::Bucket if !is_far[0] => self.shape = window(now, reset),
                Shape::Window { .. } if is_far[0] => self.shape = Shape::Bucket,
                _ => {}
            }
        }
        if let Shape::Window { ends, length, .. } = &mut self.shape {
            *length = (*length).max(in_whole_seconds(reset));
            *ends = (*ends).clamp(anchor.resets[0], anchor.resets[1]);
        }
    }

    /// Whether the statement is of the window that runs now.
    fn is_of_this_window(&self, call: &AnsweredCall) -> bool {
        match (self.shape, call.granted_at) {
            (Shape::Window { began, .. }, Some(at)) => at >= began,
            _ => true,
        }
    }

    /// Between which credits what is left now lies.
    fn bounds(&self, now: Instant, statement: &Statement, call: &AnsweredCall, typical: Usage) -> (i128, i128) {
        let left = i128::from(statement.remaining);
        let none = left - self.spent_by(call.since(), call, typical);
        let gain = self.bucket.gain(call.age(now));
        let low = self.lowest(now, statement, call, call.beside(), typical);
        (low, self.bucket.units_of(left).max(self.bucket.units_of(none).saturating_add(gain)))
    }

    /// What is left now at least, if so many calls were not counted.
    fn lowest(&self, now: Instant, statement: &Statement, call: &AnsweredCall, calls: u64, typical: Usage) -> i128 {
        let left = i128::from(statement.remaining);
        let fewest = self.bucket.units_of(left - self.spent_by(calls, call, typical));
        // What is full gains nothing.
        let missing = self.bucket.units_of(i128::from(self.most) - left);
        let gain = missing.clamp(0, self.bucket.gain(call.age(now)));
        let slack = self.bucket.units_of(i128::from(self.slack()));
        self.bucket.units_of(left).min(fewest.saturating_add(gain)).saturating_sub(slack)
    }

    /// What so many of the calls that are out have spent.
    fn spent_by(&self, calls: u64, call: &AnsweredCall, typical: Usage) -> i128 {
        match self.dimension {
            Dimension::Requests => i128::from(calls),
            _ if self.reserved > 0 => {
                i128::from(self.reserved).saturating_mul(i128::from(calls)) / i128::from(call.in_flight.max(1))
            }
            _ => i128::from(calls.saturating_mul(typical.of(self.dimension))),
        }
    }

    /// A window that has ended is followed by another one.
    fn roll(&mut self, now: Instant) {
        if let Shape::Window { ends, length, began } = &mut self.shape
            && *ends <= now
        {
            let over = (now - *ends).as_nanos() / length.as_nanos();
            *began = *ends + Duration::from_nanos(over * length.as_nanos());
            *ends = *began + *length;
            self.bucket.fill(now);
        }
    }

    fn holds(&self, now: Instant) -> bool {
        !self.is_disbelieved && self.unsteady_until.is_none_or(|end| end <= now)
    }

    fn free_at(&self, now: Instant, amount: u64) -> Instant {
        match self.shape {
            Shape::Bucket => self.bucket.fits_at(now, amount),
            Shape::Window { ends, .. } if ends <= now => now,
            Shape::Window { ends, .. } => self.bucket.fits_at(now, amount).min(ends),
        }
    }

    /// From when on a call may go out that leaves `spare` tokens beside its own.
    pub(super) fn fits_at(&self, now: Instant, estimate: Usage, spare: Usage) -> Instant {
        if !self.holds(now) {
            return now;
        }
        let amount = estimate.of(self.dimension);
        let at = match self.dimension {
            Dimension::Requests => self.free_at(now, amount),
            _ => self.free_at(now, amount.saturating_add(spare.of(self.dimension))),
        };
        at.min(self.latest + LONGEST_HOLD).max(now)
    }

    pub(super) fn reserve(&mut self, now: Instant, grant: u64, estimate: Usage) {
        let amount = estimate.of(self.dimension);
        self.roll(now);
        if self.free_at(now, amount) > now && self.holds(now) {
            self.probe = Some(grant);
        }
        self.bucket.take(now, amount);
        self.reserved += amount;
        self.latest = now;
    }

    /// A call ended that used this much, or nothing.
    pub(super) fn settle(&mut self, now: Instant, grant: u64, estimate: Usage, used: Option<Usage>, done: &Completion) {
        if done.outcome == Outcome::RateLimited {
            self.is_disbelieved = false;
        }
        if grant < self.since {
            return;
        }
        self.roll(now);
        let amount = estimate.of(self.dimension);
        self.reserved = self.reserved.saturating_sub(amount);
        // What was stated after it has counted it, or has not if it was refused.
        if grant > self.newest {
            self.bucket.give(now, amount);
            self.bucket.take(now, used.map_or(0, |used| used.of(self.dimension)));
        }
        if self.probe == Some(grant) {
            self.probe = None;
            if done.outcome == Outcome::Success {
                match self.shape {
                    Shape::Window { .. } => {
                        self.shape = Shape::Bucket;
                        let (limit, window) = self.usual();
                        self.bucket.set_rate(now, limit, window);
                    }
                    Shape::Bucket => self.is_disbelieved = true,
                }
            }
        }
        if done.outcome == Outcome::Success {
            self.silence += 1;
        }
    }

    /// Whether the provider has stopped to state it.
    pub(super) fn is_silent(&self) -> bool {
        self.silence > SILENCE
    }

    pub(super) fn snapshot(&self, now: Instant) -> BudgetSnapshot {
        let is_over = matches!(self.shape, Shape::Window { ends, .. } if ends <= now);
        BudgetSnapshot {
            config: BudgetConfig {
                dimension: self.dimension,
                limit: self.limit,
                window: self.window,
                burst: Some(self.most),
            },
            limit: self.limit,
            available: if is_over { self.most.cast_signed() } else { self.bucket.available(now) },
            reserved: self.reserved,
            source: BudgetSource::Headers,
        }
    }
}

fn window(now: Instant, reset: Duration) -> Shape {
    Shape::Window { ends: now + reset, length: in_whole_seconds(reset), began: Instant::ZERO }
}

/// Windows last whole seconds, at least one; what was left of one is less.
fn in_whole_seconds(reset: Duration) -> Duration {
    Duration::from_secs(reset.as_nanos().div_ceil(RESOLUTION.as_nanos()).max(1))
}

/// Nanoseconds in which a rate brings `amount`.
fn spend_time(amount: u64, (limit, window): (u64, Duration)) -> u64 {
    let nanos = u128::from(amount) * u128::from(window.as_nanos()) / u128::from(limit.max(1));
    u64::try_from(nanos).unwrap_or(u64::MAX).min(u64::MAX / 4)
}
