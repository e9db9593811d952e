//! Budgets derived from the response headers of a provider, for dimensions without a configured budget.
//!
//! An answer states `limit`, `remaining` and `reset`: the allowed amount, the amount that was left when the
//! call arrived, and the time until the whole amount is available again. Two kinds of provider send these
//! three values with different meanings. The movement of the reset shows which kind it is:
//!
//! | shape | refill | the reset, while calls are sent |
//! | --- | --- | --- |
//! | bucket | `limit / window`, evenly | moves on by `window / limit` with each call |
//! | window | nothing until the reset, then all | stays at one instant |
//!
//! A limit that does not name its window has a window of one minute. A reset further away than that means a
//! slower limit, which then refills by `(limit - remaining) / reset`.
//!
//! **A statement is old when it arrives.** The provider made it when the call arrived there, or when the call
//! ended. Let `overlapping` be the number of calls that were in flight at the same time as the call, `later`
//! the number of those that were granted after it and are still in flight, and `age` the time from its grant
//! to now. The amount that is left now is one of these:
//!
//! ```text
//! remaining - overlapping + refill of `age`    if none of the `overlapping` calls was counted: calls may
//!                                              arrive in another order than they were sent
//! remaining - later + refill of `age`          if all of them but the `later` calls were counted
//! remaining                                    if all of them were counted
//! ```
//!
//! The lowest and the highest of these are the bounds. The budget's own count of sent calls is exact except
//! for its starting value. It is kept if it lies between the bounds, and moved to the nearer bound otherwise.
//! The end of a window is bounded in the same way. In a bucket, one call and the refill of [`DELIVERY_DELAY`]
//! are left unused, but at most a quarter of the bucket, because calls do not arrive as evenly as they are
//! sent.
//!
//! **Statements are not trusted without limit.** A statement never stops a resource for longer than
//! [`LONGEST_HOLD`]. After that, one call is sent as a probe. If the probe succeeds, the statement was wrong:
//! a window is treated as a bucket, and a bucket delays no call until one is rate-limited. A budget
//! also delays no call for [`UNSTEADY_PERIOD`] if its limit changes to and fro, as it does behind a
//! balancer over accounts with different limits. A budget is removed after more than [`STATEMENT_LIFETIME`]
//! successful answers without a statement.

use super::bucket::Bucket;
use super::{BudgetConfig, BudgetSnapshot, BudgetSource, Dimension, MAX_LIMIT, RateLimitFeedback};
use crate::call::{Completion, Outcome, Usage};
use crate::time::{Duration, Instant};

/// The maximum number of stated budgets of one resource. Headers come from outside and may name any number of
/// windows.
pub(super) const MOST_STATED: usize = 8;
/// The longest time for which statements stop all calls of a resource. It is longer than a minute plus a long
/// call, so that the end of a window is reached.
const LONGEST_HOLD: Duration = Duration::from_secs(90);
/// The time for which a limit that changes to and fro delays no call.
const UNSTEADY_PERIOD: Duration = Duration::from_secs(600);
/// The number of changes back to the previous limit after which a limit counts as changing to and fro. One or
/// two may come from an account that was changed and changed back.
const RETURNS: u32 = 3;
/// The number of successive successes without a statement that a budget survives.
const STATEMENT_LIFETIME: u32 = 32;
/// The window of a limit that does not name one.
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// A reset further away than this does not belong to a limit per minute. It is a tenth above a minute, to
/// allow for calls on their way.
const PAST_A_MINUTE: Duration = Duration::from_secs(66);
/// Resets further away than this are reduced to it.
const FURTHEST_RESET: Duration = Duration::from_secs(366 * 86_400);
/// The time for which a call may be delayed on its way.
const DELIVERY_DELAY: Duration = Duration::from_millis(50);
/// Providers state resets in whole seconds, so smaller differences carry no information.
const RESOLUTION: Duration = Duration::from_secs(1);

/// The statement of an answer about one dimension, after validation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statement {
    limit: u64,
    remaining: u64,
    reset: Option<Duration>,
}

impl Statement {
    /// Returns `None` if a value is missing or impossible, such as a limit of zero or above [`MAX_LIMIT`].
    pub(super) fn of(correction: &RateLimitFeedback) -> Option<Self> {
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

/// The call that an answer belongs to, and the other calls in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnsweredCall {
    /// The number of the call's grant.
    pub(crate) grant: u64,
    /// The instant of the grant, if it was recorded.
    pub(crate) granted_at: Option<Instant>,
    /// Whether `granted_at` would be recorded even without budgets and events.
    pub(crate) is_timed: bool,
    /// The number of grants so far.
    pub(crate) grants: u64,
    /// The calls in flight now and at the grant of this call, both including this call.
    pub(crate) in_flight: u32,
    pub(crate) in_flight_at_grant: u32,
}

impl AnsweredCall {
    /// Returns the call as it is visible to a budget that counts grants from number `first_grant` on.
    ///
    /// The grant time of an earlier call may be recorded only because events are enabled. It is removed then,
    /// because events must not change decisions.
    fn to_budget(self, first_grant: u64) -> Self {
        Self { granted_at: self.granted_at.filter(|_| self.is_timed || self.grant >= first_grant), ..self }
    }

    /// Returns the number of other calls in flight.
    fn others(&self) -> u64 {
        u64::from(self.in_flight.saturating_sub(1))
    }

    /// Returns the number of other calls in flight that were granted after this one.
    fn later_in_flight(&self) -> u64 {
        self.granted_later().min(self.others())
    }

    /// Returns the number of calls that were in flight at the same time as this one, including those that
    /// have ended. Any of them may have arrived after it.
    fn overlapping(&self) -> u64 {
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
        /// The instant at which the whole amount is available again.
        ends: Instant,
        /// The longest stated reset. It equals the window once a statement was made at the start of one.
        length: Duration,
        began: Instant,
    },
}

/// A statement that later ones are compared with: see [`StatedBudget::learn_shape`].
#[derive(Clone, Copy, Debug)]
struct Anchor {
    grant: u64,
    remaining: u64,
    /// The instant of the reset, measured from the grant of the call and from its end.
    resets: [Instant; 2],
}

#[derive(Clone, Debug)]
pub(super) struct StatedBudget {
    dimension: Dimension,
    /// The window that the header names, if any.
    named_window: Option<Duration>,
    limit: u64,
    /// The limit before the latest change.
    limit_before: Option<u64>,
    /// How often the limit changed back to the previous one.
    returns: u32,
    bucket: Bucket,
    /// The largest remaining amount seen under this limit: the amount that may be sent at once.
    largest_remaining: u64,
    shape: Shape,
    anchor: Option<Anchor>,
    /// The window that a snapshot shows.
    window: Duration,
    reserved: u64,
    /// The number of the first grant that this budget counts.
    first_grant: u64,
    /// The number of the newest call whose statement was applied.
    newest_grant: u64,
    /// The instant at which the latest call started, or at which the budget was created.
    latest_start: Instant,
    /// The call that was sent although nothing was left.
    probe: Option<u64>,
    is_distrusted: bool,
    unsteady_until: Option<Instant>,
    successes_without_statement: u32,
}

impl StatedBudget {
    /// Creates the budget from its first statement.
    pub(super) fn new(
        now: Instant,
        correction: &RateLimitFeedback,
        statement: &Statement,
        call: &AnsweredCall,
        typical: Usage,
    ) -> Self {
        let call = &call.to_budget(call.grants);
        let window = correction.window.filter(|window| !window.is_zero());
        let config = BudgetConfig::per(window.unwrap_or(MINUTE), correction.dimension, statement.limit);
        let mut this = Self {
            dimension: correction.dimension,
            named_window: window,
            limit: statement.limit,
            limit_before: None,
            returns: 0,
            bucket: Bucket::new(now, &config),
            largest_remaining: 0,
            shape: Shape::Bucket,
            anchor: None,
            window: config.window,
            reserved: 0,
            first_grant: call.grants,
            newest_grant: call.grant,
            latest_start: now,
            probe: None,
            is_distrusted: false,
            unsteady_until: None,
            successes_without_statement: 0,
        };
        this.begin(now, statement);
        this.apply(now, statement, call, typical);
        // The budget has no count of its own yet, so the lower bound is safe.
        let low = this.lowest(now, statement, call, call.others(), typical);
        this.bucket.put(now, low);
        this
    }

    /// Returns whether `correction` applies to this budget.
    pub(super) fn applies_to(&self, correction: &RateLimitFeedback) -> bool {
        self.dimension == correction.dimension
            && self.named_window == correction.window.filter(|window| !window.is_zero())
    }

    /// Starts over with a limit that was not known before.
    fn begin(&mut self, now: Instant, statement: &Statement) {
        self.limit = statement.limit;
        self.largest_remaining = 0;
        self.anchor = None;
        let nominal_rate = self.nominal_rate();
        self.shape = match statement.reset {
            // A bucket would refill the missing amount much earlier.
            Some(reset)
                if (self.named_window.is_some() || reset <= PAST_A_MINUTE)
                    && reset.as_nanos()
                        > 2 * refill_time(statement.missing(), nominal_rate) + RESOLUTION.as_nanos() =>
            {
                window(now, reset)
            }
            _ => Shape::Bucket,
        };
    }

    /// Applies the statement of an answer. Returns whether the limit changed.
    pub(super) fn apply(&mut self, now: Instant, statement: &Statement, call: &AnsweredCall, typical: Usage) -> bool {
        let call = &call.to_budget(self.first_grant);
        self.successes_without_statement = 0;
        self.roll(now);
        let is_new = statement.limit != self.limit;
        if is_new {
            self.count_return(now, statement.limit);
            self.begin(now, statement);
        }
        if call.grant < self.newest_grant && !is_new {
            self.lower(now, statement, call, typical);
            return false;
        }
        self.newest_grant = call.grant;
        let own = typical.of(self.dimension);
        self.largest_remaining =
            self.largest_remaining.max(statement.remaining.saturating_add(own).min(statement.limit)).max(1);
        self.learn_shape(now, statement, call);
        self.set_rate(now, statement);
        self.bucket.set_burst(now, self.largest_remaining - self.slack());
        if self.is_of_current_window(call) {
            let (low, high) = self.bounds(now, statement, call, typical);
            self.bucket.clamp_credit(now, low, high);
        }
        is_new
    }

    /// Applies the statement of a call that is older than the newest one. It may have arrived later at the
    /// provider, so it may lower the amount but never raise it.
    fn lower(&mut self, now: Instant, statement: &Statement, call: &AnsweredCall, typical: Usage) {
        if self.is_of_current_window(call) {
            let (_, high) = self.bounds(now, statement, call, typical);
            self.bucket.clamp_credit(now, i128::MIN, high);
        }
    }

    /// Counts how often the limit changes back to its previous value.
    fn count_return(&mut self, now: Instant, limit: u64) {
        if self.unsteady_until.is_some_and(|end| end <= now) {
            (self.unsteady_until, self.returns) = (None, 0);
        }
        if self.limit_before == Some(limit) {
            self.returns += 1;
            if self.returns >= RETURNS && self.unsteady_until.is_none() {
                self.unsteady_until = Some(now + UNSTEADY_PERIOD);
            }
        }
        self.limit_before = Some(self.limit);
    }

    /// Returns the rate that the limit has by its named window, or per minute by convention.
    fn nominal_rate(&self) -> (u64, Duration) {
        (self.limit, self.named_window.unwrap_or(MINUTE))
    }

    /// Sets the refill of the bucket, and the window that snapshots show.
    fn set_rate(&mut self, now: Instant, statement: &Statement) {
        let nominal_rate = self.nominal_rate();
        let slow = statement.reset.filter(|reset| self.named_window.is_none() && *reset > PAST_A_MINUTE);
        self.window = match (self.shape, slow) {
            (_, None) => nominal_rate.1,
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
            (Shape::Window { .. }, _) => self.bucket.set_rate(now, 0, nominal_rate.1),
            (Shape::Bucket, Some(reset)) => self.bucket.set_rate(now, statement.missing().max(1), reset),
            (Shape::Bucket, None) => self.bucket.set_rate(now, nominal_rate.0, nominal_rate.1),
        }
    }

    /// Returns the amount of a bucket that is left unused. Calls that are delayed on their way arrive closer
    /// together than they were sent.
    fn slack(&self) -> u64 {
        if let Shape::Window { .. } = self.shape {
            return 0;
        }
        let (limit, window) = self.nominal_rate();
        let late = u128::from(limit) * u128::from(DELIVERY_DELAY.as_nanos()) / u128::from(window.as_nanos());
        (1 + late as u64).min(self.largest_remaining / 4)
    }

    /// Distinguishes a bucket from a window by how far the reset moved while calls were sent. This needs
    /// enough calls that a bucket would take at least two seconds to refill them. The movement is measured
    /// from the grants and from the ends of the calls. If the two disagree, the statements are too old to
    /// decide.
    fn learn_shape(&mut self, now: Instant, statement: &Statement, call: &AnsweredCall) {
        let Some(reset) = statement.reset else { return };
        let granted_at = call.granted_at.unwrap_or(now);
        let known_length = if let Shape::Window { length, .. } = self.shape { length } else { Duration::ZERO };
        if now - granted_at > reset.max(known_length) {
            // The statement belongs to a window that is over. Even spacing suits windows at any position.
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
            let expected = refill_time(before.remaining - statement.remaining, self.nominal_rate());
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

    /// Returns whether the statement belongs to the current window.
    fn is_of_current_window(&self, call: &AnsweredCall) -> bool {
        match (self.shape, call.granted_at) {
            (Shape::Window { began, .. }, Some(at)) => at >= began,
            _ => true,
        }
    }

    /// Returns the lower and upper bound of the credit that is left now.
    fn bounds(&self, now: Instant, statement: &Statement, call: &AnsweredCall, typical: Usage) -> (i128, i128) {
        let left = i128::from(statement.remaining);
        let none = left - self.spent_by(call.later_in_flight(), call, typical);
        let gain = self.bucket.gain(call.age(now));
        let low = self.lowest(now, statement, call, call.overlapping(), typical);
        (low, self.bucket.units_of(left).max(self.bucket.units_of(none).saturating_add(gain)))
    }

    /// Returns the lowest credit that may be left now if `calls` calls were not counted.
    fn lowest(&self, now: Instant, statement: &Statement, call: &AnsweredCall, calls: u64, typical: Usage) -> i128 {
        let left = i128::from(statement.remaining);
        let fewest = self.bucket.units_of(left - self.spent_by(calls, call, typical));
        // A full bucket gains nothing.
        let missing = self.bucket.units_of(i128::from(self.largest_remaining) - left);
        let gain = missing.clamp(0, self.bucket.gain(call.age(now)));
        let slack = self.bucket.units_of(i128::from(self.slack()));
        self.bucket.units_of(left).min(fewest.saturating_add(gain)).saturating_sub(slack)
    }

    /// Returns the amount that `calls` of the calls in flight have spent.
    fn spent_by(&self, calls: u64, call: &AnsweredCall, typical: Usage) -> i128 {
        match self.dimension {
            Dimension::Requests => i128::from(calls),
            _ if self.reserved > 0 => {
                i128::from(self.reserved).saturating_mul(i128::from(calls)) / i128::from(call.in_flight.max(1))
            }
            _ => i128::from(calls.saturating_mul(typical.of(self.dimension))),
        }
    }

    /// Starts the next window if the current one has ended.
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

    /// Returns whether the stated limit holds calls back at all.
    fn is_enforced(&self, now: Instant) -> bool {
        !self.is_distrusted && self.unsteady_until.is_none_or(|end| end <= now)
    }

    /// Returns the earliest instant at which `amount` is available, by refill or by the next window.
    fn free_at(&self, now: Instant, amount: u64) -> Instant {
        match self.shape {
            Shape::Bucket => self.bucket.fits_at(now, amount),
            Shape::Window { ends, .. } if ends <= now => now,
            Shape::Window { ends, .. } => self.bucket.fits_at(now, amount).min(ends),
        }
    }

    /// Returns the earliest instant at which a call may start and leave `spare` tokens in addition to its
    /// own. At the latest this is [`LONGEST_HOLD`] after the latest call.
    pub(super) fn fits_at(&self, now: Instant, estimate: Usage, spare: Usage) -> Instant {
        if !self.is_enforced(now) {
            return now;
        }
        let amount = estimate.of(self.dimension);
        let at = match self.dimension {
            Dimension::Requests => self.free_at(now, amount),
            _ => self.free_at(now, amount.saturating_add(spare.of(self.dimension))),
        };
        at.min(self.latest_start + LONGEST_HOLD).max(now)
    }

    /// Reserves the estimate of call number `grant`. A call that starts although nothing is left becomes the
    /// probe.
    pub(super) fn reserve(&mut self, now: Instant, grant: u64, estimate: Usage) {
        let amount = estimate.of(self.dimension);
        self.roll(now);
        if self.free_at(now, amount) > now && self.is_enforced(now) {
            self.probe = Some(grant);
        }
        self.bucket.take(now, amount);
        self.reserved += amount;
        self.latest_start = now;
    }

    /// Settles a call that ended with this usage. `None` means that it was not counted.
    pub(super) fn settle(&mut self, now: Instant, grant: u64, estimate: Usage, used: Option<Usage>, done: &Completion) {
        if done.outcome == Outcome::RateLimited {
            self.is_distrusted = false;
        }
        if grant < self.first_grant {
            return;
        }
        self.roll(now);
        let amount = estimate.of(self.dimension);
        self.reserved = self.reserved.saturating_sub(amount);
        // Statements of this or a later call already reflect whether this call was counted.
        if grant > self.newest_grant {
            self.bucket.give(now, amount);
            self.bucket.take(now, used.map_or(0, |used| used.of(self.dimension)));
        }
        if self.probe == Some(grant) {
            self.probe = None;
            if done.outcome == Outcome::Success {
                match self.shape {
                    Shape::Window { .. } => {
                        self.shape = Shape::Bucket;
                        let (limit, window) = self.nominal_rate();
                        self.bucket.set_rate(now, limit, window);
                    }
                    Shape::Bucket => self.is_distrusted = true,
                }
            }
        }
        if done.outcome == Outcome::Success {
            self.successes_without_statement += 1;
        }
    }

    /// Returns whether the provider has stopped stating this budget.
    pub(super) fn has_expired(&self) -> bool {
        self.successes_without_statement > STATEMENT_LIFETIME
    }

    pub(super) fn snapshot(&self, now: Instant) -> BudgetSnapshot {
        let is_over = matches!(self.shape, Shape::Window { ends, .. } if ends <= now);
        BudgetSnapshot {
            config: BudgetConfig {
                dimension: self.dimension,
                limit: self.limit,
                window: self.window,
                burst: Some(self.largest_remaining),
            },
            limit: self.limit,
            available: if is_over { self.largest_remaining.cast_signed() } else { self.bucket.available(now) },
            reserved: self.reserved,
            source: BudgetSource::Headers,
        }
    }
}

fn window(now: Instant, reset: Duration) -> Shape {
    Shape::Window { ends: now + reset, length: in_whole_seconds(reset), began: Instant::ZERO }
}

/// Returns the length of a window whose stated reset is `reset`. Windows last whole seconds, at least one,
/// and a stated reset may be a part of one.
fn in_whole_seconds(reset: Duration) -> Duration {
    Duration::from_secs(reset.as_nanos().div_ceil(RESOLUTION.as_nanos()).max(1))
}

/// Returns the nanoseconds in which a rate refills `amount`.
fn refill_time(amount: u64, (limit, window): (u64, Duration)) -> u64 {
    let nanos = u128::from(amount) * u128::from(window.as_nanos()) / u128::from(limit.max(1));
    u64::try_from(nanos).unwrap_or(u64::MAX).min(u64::MAX / 4)
}
