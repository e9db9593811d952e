//! Rate budgets: how much may go out per minute or day, beside how much may be in flight.
//!
//! A resource may have any number of them: requests per minute, input, output or total tokens per minute,
//! requests per day. Each is a token bucket over injected time, in integers, so equal inputs give equal
//! answers everywhere.
//!
//! ```text
//! reserve     when a call goes out its estimate is taken from every budget at once, or the call waits
//! settle      when it ends, what it used takes the place of the estimate; what was too much comes back
//! give back   a call that was refused for too many calls (429), never reached its provider or was cancelled returns all of it;
//!             one whose request, key, account or model was refused returns all but the request
//! correct     what the provider says is left overrules the bucket
//! ```
//!
//! In any interval, what is reserved less what comes back is at most `burst` and the refill of that interval,
//! estimates larger than the bucket aside. One of these waits until the bucket is full and overdraws it. A
//! budget that is overdrawn, as by a call that used more than it was estimated at, refills to zero before the
//! next call goes out: so budgets hold on average even for callers who never estimate.
//!
//! A dimension for which none is configured gets a budget from the headers of answers, where they say
//! `limit`, `remaining` and `reset`: from the first answer on, so that no refusal is needed to find the rate.
//! How, and what is not believed, is in `stated.rs`.
//!
//! Whoever waits for a budget keeps the calls of the same resource behind it, small ones too: they would
//! spend what it waits for, and it would wait for ever.
//!
//! ```
//! use tidegate_core::budget::{BudgetConfig, Dimension, Usage};
//! use tidegate_core::request::{Acquire, Completion, Domain, Outcome, Request, RequestAdmission, RequestConfig};
//! use tidegate_core::time::{Duration, Instant};
//!
//! let mut now = Instant::ZERO;
//! let mut gate = RequestAdmission::new(RequestConfig::default())?;
//! let model = gate.register(now, "provider", "model", "default", 8)?;
//! let chat = gate.resource(model, Domain::Chat)?;
//! gate.set_budgets(now, chat, &[BudgetConfig::per_minute(Dimension::TotalTokens, 6_000)])?;
//!
//! let large = Request::new(chat).estimated(Usage::tokens(3_000, 3_000));
//! let Acquire::Granted(first) = gate.acquire(now, &large) else { panic!("the budget is whole") };
//! let Acquire::Waiting(_) = gate.acquire(now, &large) else { panic!("and now it is spent") };
//! // It used 1 000 less than it was estimated at; the other 5 000 come back at 100 a second.
//! let done = Completion::from(Outcome::Success).used(Usage::tokens(3_000, 2_000));
//! let _ = gate.release(now, first, &done);
//! assert_eq!(gate.poll_timeout(), Some(now + Duration::from_secs(50)));
//! # Ok::<(), tidegate_core::error::ConfigError>(())
//! ```

mod bucket;
mod stated;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_stated;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::call::{Completion, Outcome};
use crate::error::{ConfigError, require};
use crate::time::{Duration, Instant};
use bucket::Bucket;
use stated::{MOST_STATED, StatedBudget, Statement};

pub(crate) use stated::AnsweredCall;

pub use crate::call::{Dimension, Usage};

/// The most a budget's `limit` and `burst` may be. Products with any span of time then fit 127 bits.
pub const MAX_LIMIT: u64 = 1_000_000_000_000_000;

/// One budget of a resource: a bucket that holds `burst` and refills by `limit` in each `window`, evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct BudgetConfig {
    /// What it counts.
    pub dimension: Dimension,
    /// How much refills in each window. In `1..=10^15`.
    pub limit: u64,
    /// The window. Longer than zero.
    pub window: Duration,
    /// The most that may be spent at once after a rest, in `1..=10^15`; `None` is `limit`. A provider that
    /// counts in fixed or sliding windows wants a small one: a full bucket and its refill together let
    /// `burst + limit` through in one window.
    #[cfg_attr(feature = "serde", serde(default))]
    pub burst: Option<u64>,
}

impl BudgetConfig {
    /// `limit` in each `window`.
    #[must_use]
    pub const fn per(window: Duration, dimension: Dimension, limit: u64) -> Self {
        Self { dimension, limit, window, burst: None }
    }

    /// `limit` a minute.
    #[must_use]
    pub const fn per_minute(dimension: Dimension, limit: u64) -> Self {
        Self::per(Duration::from_secs(60), dimension, limit)
    }

    /// `limit` a day.
    #[must_use]
    pub const fn per_day(dimension: Dimension, limit: u64) -> Self {
        Self::per(Duration::from_secs(86_400), dimension, limit)
    }

    /// The same with another `burst`.
    #[must_use]
    pub const fn with_burst(self, burst: u64) -> Self {
        Self { burst: Some(burst), ..self }
    }

    /// Refuses a value out of range, naming its field.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let range = 1..=MAX_LIMIT;
        require(range.contains(&self.limit), "budget.limit", self.limit, "a number from 1 to 10^15")?;
        require(!self.window.is_zero(), "budget.window", self.window, "longer than zero")?;
        let burst = self.burst.unwrap_or(self.limit);
        require(range.contains(&burst), "budget.burst", burst, "a number from 1 to 10^15")
    }
}

/// What a provider said about one budget, as in the `x-ratelimit-*` headers of an answer, parsed into
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Correction {
    /// Which budgets it is about.
    pub dimension: Dimension,
    /// The window it is about; `None` for the budget whose limit is `limit`, or else the one of the shortest
    /// window.
    #[cfg_attr(feature = "serde", serde(default))]
    pub window: Option<Duration>,
    /// How much the provider allows in each window. Less than configured lowers the budget; more never lifts
    /// it above what was configured.
    #[cfg_attr(feature = "serde", serde(default))]
    pub limit: Option<u64>,
    /// How much is left.
    #[cfg_attr(feature = "serde", serde(default))]
    pub remaining: Option<u64>,
    /// How long until all of it is back.
    #[cfg_attr(feature = "serde", serde(default))]
    pub reset_after: Option<Duration>,
}

impl Correction {
    /// Nothing said yet about `dimension`.
    #[must_use]
    pub const fn of(dimension: Dimension) -> Self {
        Self { dimension, window: None, limit: None, remaining: None, reset_after: None }
    }
}

/// Where a budget comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum BudgetSource {
    /// The settings.
    #[default]
    Settings,
    /// The headers of the provider's answers.
    Headers,
}

/// A rate that a provider states: so much of what in how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StatedRate {
    /// What it counts.
    pub dimension: Dimension,
    /// How much is allowed in each window.
    pub limit: u64,
    /// The window.
    pub window: Duration,
}

impl StatedRate {
    /// The rate that a budget keeps to.
    #[must_use]
    pub fn of(budget: &BudgetSnapshot) -> Self {
        let BudgetConfig { dimension, window, .. } = budget.config;
        Self { dimension, limit: budget.limit, window }
    }

    fn noun(&self) -> &'static str {
        match self.dimension {
            Dimension::Requests => "requests",
            Dimension::InputTokens => "input tokens",
            Dimension::OutputTokens => "output tokens",
            Dimension::TotalTokens => "tokens",
        }
    }

    /// Its name in a capacity plan: `requests_per_minute`, or `requests_in_10s`.
    #[must_use]
    pub fn name(&self) -> String {
        let noun = self.noun().replace(' ', "_");
        match unit_of(self.window) {
            Some(unit) => format!("{noun}_per_{unit}"),
            None => format!("{noun}_in_{}", self.window),
        }
    }
}

/// The unit that a window is.
fn unit_of(window: Duration) -> Option<&'static str> {
    let secs = window.as_nanos() / 1_000_000_000;
    Some(match secs {
        1 => "second",
        60 => "minute",
        3_600 => "hour",
        86_400 => "day",
        _ => return None,
    })
}

impl fmt::Display for StatedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.limit, self.noun())?;
        match unit_of(self.window) {
            Some("hour") => f.write_str("an hour"),
            Some(unit) => write!(f, "a {unit}"),
            None => write!(f, "in {}", self.window),
        }
    }
}

/// The state of one budget at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BudgetSnapshot {
    /// Its settings.
    pub config: BudgetConfig,
    /// The limit in force: the configured one, or a lower one that the provider named.
    pub limit: u64,
    /// What may be spent now, rounded down; negative while it is overdrawn.
    pub available: i64,
    /// Estimates of calls that are out.
    pub reserved: u64,
    /// Where it comes from.
    pub source: BudgetSource,
}

/// What the statements of an answer changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Feedback {
    /// Configured budgets that changed.
    pub(crate) corrected: Vec<Corrected>,
    /// Rates that were not known before.
    pub(crate) learned: Vec<StatedRate>,
    /// Whether any budget was looked at.
    pub(crate) is_any: bool,
}

/// A budget that was corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrected {
    pub(crate) dimension: Dimension,
    pub(crate) before: i64,
    pub(crate) after: i64,
}

#[derive(Clone, Debug)]
struct Budget {
    config: BudgetConfig,
    bucket: Bucket,
    reserved: u64,
}

/// The budgets of one resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets {
    entries: Vec<Budget>,
    /// The first grant that these budgets know of: calls that were out when they were set settle nothing.
    since: u64,
    /// Those that the provider states. `None` while it states none.
    stated: Option<Box<Stated>>,
}

/// The budgets that the provider states. Never of a dimension that is configured.
#[derive(Clone, Debug, Default)]
struct Stated {
    entries: Vec<StatedBudget>,
    /// What a call uses: the mean of those that said it, the latest counting most.
    typical: Usage,
}

impl Budgets {
    /// Full budgets, for grants from number `since` on. The settings were validated.
    pub(crate) fn new(now: Instant, configs: &[BudgetConfig], since: u64) -> Self {
        let full = |config: &BudgetConfig| Budget { config: *config, bucket: Bucket::new(now, config), reserved: 0 };
        Self { entries: configs.iter().map(full).collect(), since, stated: None }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.stated.is_none()
    }

    /// From when on a call of this estimate fits all budgets, if it does not now.
    #[inline]
    pub(crate) fn fits_at(&self, now: Instant, estimate: Usage) -> Option<Instant> {
        // Most resources have no budget: then this is one branch, as in the other two.
        if self.is_empty() { None } else { self.all_fit_at(now, estimate) }
    }

    fn all_fit_at(&self, now: Instant, estimate: Usage) -> Option<Instant> {
        let fits = self.entries.iter().map(|budget| budget.bucket.fits_at(now, estimate.of(budget.config.dimension)));
        let (_, stated) = self.stated_fit_at(now, estimate).unzip();
        fits.chain(stated).max().filter(|at| *at > now)
    }

    /// The stated budget that a call of this estimate waits for longest, and from when on it fits that.
    fn stated_fit_at(&self, now: Instant, estimate: Usage) -> Option<(&StatedBudget, Instant)> {
        let stated = self.stated.as_deref()?;
        let reserved = self.reserved_for(estimate);
        // A call that is not estimated may use more than usual: there is room for twice as much, or it waits.
        let spare = if estimate == Usage::default() { reserved } else { Usage::default() };
        let fits = stated.entries.iter().map(|budget| (budget, budget.fits_at(now, reserved, spare)));
        fits.max_by_key(|(_, at)| *at)
    }

    /// The rate that the provider states, if that is what a call of this estimate waits for.
    pub(crate) fn holding_rate(&self, now: Instant, estimate: Usage) -> Option<StatedRate> {
        let until = self.fits_at(now, estimate)?;
        let (budget, _) = self.stated_fit_at(now, estimate).filter(|(_, at)| *at == until)?;
        Some(StatedRate::of(&budget.snapshot(now)))
    }

    /// What is reserved for a call: its estimate, or what calls usually use where there is none. Of its
    /// output, which is most often estimated at the most that is allowed, no more than twice what is usual.
    /// Where tokens are configured, the estimate as it is.
    fn reserved_for(&self, estimate: Usage) -> Usage {
        let is_configured = self.entries.iter().any(|budget| budget.config.dimension != Dimension::Requests);
        let Some(typical) = self.stated.as_deref().filter(|_| !is_configured).map(|stated| stated.typical) else {
            return estimate;
        };
        if estimate == Usage::default() {
            return typical;
        }
        let most = if typical.output_tokens == 0 { u32::MAX } else { typical.output_tokens.saturating_mul(2) };
        Usage { output_tokens: estimate.output_tokens.min(most), ..estimate }
    }

    /// Takes the estimate of a call that goes out under number `grant`. Returns what was taken.
    #[inline]
    pub(crate) fn reserve(&mut self, now: Instant, grant: u64, estimate: Usage) -> Usage {
        if self.is_empty() { estimate } else { self.reserve_all(now, grant, estimate) }
    }

    fn reserve_all(&mut self, now: Instant, grant: u64, estimate: Usage) -> Usage {
        let estimate = self.reserved_for(estimate);
        for budget in &mut self.entries {
            let amount = estimate.of(budget.config.dimension);
            budget.bucket.take(now, amount);
            budget.reserved += amount;
        }
        for budget in self.stated.iter_mut().flat_map(|stated| &mut stated.entries) {
            budget.reserve(now, grant, estimate);
        }
        estimate
    }

    /// Replaces the estimate of call number `grant` by what it cost.
    #[inline]
    pub(crate) fn settle(&mut self, now: Instant, grant: u64, estimate: Usage, done: &Completion) {
        if !self.is_empty() {
            self.settle_all(now, grant, estimate, done);
        }
    }

    fn settle_all(&mut self, now: Instant, grant: u64, estimate: Usage, done: &Completion) {
        let used = match (done.outcome, done.usage) {
            (Outcome::RateLimited | Outcome::ConnectionFailed, _) | (Outcome::LocalCancelled, None) => None,
            (outcome, None) if outcome.is_refusal() => Some(Usage::default()),
            // What failed on the way may have been counted: only a refusal or the caller's own word says it
            // was not.
            (_, usage) => Some(usage.unwrap_or(estimate)),
        };
        let is_known = grant >= self.since;
        for budget in self.entries.iter_mut().filter(|_| is_known) {
            let amount = estimate.of(budget.config.dimension);
            budget.reserved -= amount;
            budget.bucket.give(now, amount);
            budget.bucket.take(now, used.map_or(0, |usage| usage.of(budget.config.dimension)));
        }
        let Some(stated) = &mut self.stated else { return };
        for budget in &mut stated.entries {
            budget.settle(now, grant, estimate, used, done);
        }
        if let Some(used) = done.usage {
            stated.typical = mean(stated.typical, used);
        }
        stated.entries.retain(|budget| !budget.is_silent());
        if stated.entries.is_empty() {
            self.stated = None;
        }
    }

    /// Takes over what an answer said of all dimensions. `learns`: those that are not configured get budgets
    /// of it.
    pub(crate) fn apply(
        &mut self,
        now: Instant,
        corrections: &[Correction],
        call: &AnsweredCall,
        learns: bool,
    ) -> Feedback {
        let mut feedback = Feedback::default();
        for correction in corrections {
            let is_configured = self.entries.iter().any(|budget| budget.config.dimension == correction.dimension);
            if is_configured {
                feedback.corrected.extend(self.correct(now, correction));
            } else if let Some(statement) = Statement::of(correction).filter(|_| learns) {
                let is_new = self.state(now, correction, &statement, call);
                feedback.is_any = true;
                let known =
                    self.stated.iter().flat_map(|stated| &stated.entries).find(|budget| budget.is_of(correction));
                feedback.learned.extend(known.filter(|_| is_new).map(|budget| StatedRate::of(&budget.snapshot(now))));
            }
        }
        feedback.is_any |= !feedback.corrected.is_empty();
        feedback
    }

    /// Takes over a statement; answers whether its rate was not known.
    fn state(&mut self, now: Instant, correction: &Correction, statement: &Statement, call: &AnsweredCall) -> bool {
        let stated = self.stated.get_or_insert_default();
        let typical = stated.typical;
        if let Some(budget) = stated.entries.iter_mut().find(|budget| budget.is_of(correction)) {
            return budget.apply(now, statement, call, typical);
        }
        let has_room = stated.entries.len() < MOST_STATED;
        if has_room {
            stated.entries.push(StatedBudget::new(now, correction, statement, call, typical));
        }
        has_room
    }

    /// Takes over what the provider said; answers the budget that changed, if one did.
    pub(crate) fn correct(&mut self, now: Instant, correction: &Correction) -> Option<Corrected> {
        let of_dimension = |budget: &&mut Budget| budget.config.dimension == correction.dimension;
        let budget = match correction.window {
            Some(window) => self.entries.iter_mut().filter(of_dimension).find(|budget| budget.config.window == window),
            None => self
                .entries
                .iter_mut()
                .filter(of_dimension)
                .min_by_key(|budget| (correction.limit != Some(budget.config.limit), budget.config.window)),
        }?;
        let before = budget.bucket.available(now);
        let limit_before = budget.bucket.limit();
        budget.correct(now, correction);
        let after = budget.bucket.available(now);
        let is_changed = before != after || limit_before != budget.bucket.limit();
        is_changed.then_some(Corrected { dimension: correction.dimension, before, after })
    }

    pub(crate) fn snapshot(&self, now: Instant) -> Vec<BudgetSnapshot> {
        let show = |budget: &Budget| BudgetSnapshot {
            config: budget.config,
            limit: budget.bucket.limit(),
            available: budget.bucket.available(now),
            reserved: budget.reserved,
            source: BudgetSource::Settings,
        };
        let stated = self.stated.iter().flat_map(|stated| &stated.entries);
        self.entries.iter().map(show).chain(stated.map(|budget| budget.snapshot(now))).collect()
    }
}

/// A mean in which the latest counts an eighth.
fn mean(before: Usage, latest: Usage) -> Usage {
    let of = |before: u32, latest: u32| {
        if before == 0 { latest } else { ((u64::from(before) * 7 + u64::from(latest)).div_ceil(8)) as u32 }
    };
    Usage {
        input_tokens: of(before.input_tokens, latest.input_tokens),
        output_tokens: of(before.output_tokens, latest.output_tokens),
    }
}

impl Budget {
    fn correct(&mut self, now: Instant, correction: &Correction) {
        if let Some(limit) = correction.limit {
            let limit = limit.clamp(1, self.config.limit);
            self.bucket.set_limit(now, limit, self.config.burst.unwrap_or(limit));
        }
        match (correction.remaining, correction.reset_after) {
            (Some(remaining), _) => {
                // The provider may have counted all calls that are out, or none of them yet.
                let remaining = remaining.min(MAX_LIMIT);
                self.bucket.lower_to(now, remaining);
                // A provider that allows more than was configured says nothing about what was configured.
                if correction.limit.is_none_or(|limit| limit <= self.config.limit) {
                    self.bucket.raise_to(now, remaining.saturating_sub(self.reserved));
                }
            }
            (None, Some(reset_after)) => self.bucket.full_not_before(now, reset_after),
            (None, None) => {}
        }
    }
}
