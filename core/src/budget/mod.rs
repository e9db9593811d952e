//! Rate budgets: limits on the calls and tokens per minute or day, in addition to the limit on concurrent
//! calls.
//!
//! A resource may have any number of budgets: requests per minute, input, output or total tokens per minute,
//! requests per day. Each is a token bucket over injected time with integer arithmetic, so equal inputs give
//! equal results everywhere.
//!
//! ```text
//! reserve     when a call starts, its estimate is taken from every budget at once, or the call waits
//! settle      when it ends, its usage replaces the estimate, and an excess is returned
//! return      a call that was rate-limited (429), never reached its provider or was cancelled returns
//!             the whole estimate; one whose request, key, account or model was rejected returns all of
//!             it but the request
//! correct     the remaining amount that the provider reports overrides the bucket
//! ```
//!
//! In any interval, the reserved amount minus the returned amount is at most `burst` plus the refill of that
//! interval. The exception is an estimate larger than the bucket: its call waits until the bucket is full and
//! overdraws it. A budget that is overdrawn, for example by a call that used more than its estimate, refills
//! to zero before the next call starts. Budgets therefore hold on average even for callers that never
//! estimate.
//!
//! A dimension without a configured budget gets one from response headers that state a limit, the remaining
//! amount, and a reset or a window. This starts with the first answer, so the rate is found without a rate
//! limit. Impossible statements are ignored, and no statement stops a resource for longer than 90 seconds.
//!
//! Several processes can [share](crate::share) the configured budgets of a resource. Each then spends what a
//! leader grants. Budgets from response headers are not shared.
//!
//! A call that waits for a budget blocks the later calls of the same resource, including small ones.
//! Otherwise small calls would spend the budget again and again, and the large call would wait forever.
//!
//! ```
//! use tidegate_core::budget::{BudgetConfig, Dimension, Usage};
//! use tidegate_core::request::{AcquireResult, Completion, Domain, Outcome};
//! use tidegate_core::request::{Request, RequestAdmission, RequestConfig};
//! use tidegate_core::time::{Duration, Instant};
//!
//! let mut now = Instant::ZERO;
//! let mut admission = RequestAdmission::new(RequestConfig::default())?;
//! let model = admission.register(now, "provider", "model", "default", 8)?;
//! let chat = admission.resource(model, Domain::Chat)?;
//! admission.set_budgets(now, chat, &[BudgetConfig::per_minute(Dimension::TotalTokens, 6_000)])?;
//!
//! let large = Request::new(chat).estimated(Usage::tokens(3_000, 3_000));
//! let AcquireResult::Granted(first) = admission.acquire(now, &large) else { panic!("the budget is whole") };
//! let AcquireResult::Waiting(_) = admission.acquire(now, &large) else { panic!("and now it is spent") };
//! // It used 1 000 less than its estimate; the other 5 000 refill at 100 per second.
//! let done = Completion::from(Outcome::Success).used(Usage::tokens(3_000, 2_000));
//! let _ = admission.release(now, first, &done);
//! assert_eq!(admission.poll_timeout(), Some(now + Duration::from_secs(50)));
//! # Ok::<(), tidegate_core::error::ConfigError>(())
//! ```

mod bucket;
mod stated;
mod wallet;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_stated;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::call::{Completion, Outcome};
use crate::error::{ConfigError, require};
use crate::time::{Duration, Instant};
use stated::{MOST_STATED, StatedBudget, Statement};
use wallet::Wallet;

pub(crate) use bucket::Bucket;
pub(crate) use stated::AnsweredCall;
pub(crate) use wallet::{DeniedCall, WaitingCalls};

pub use crate::call::{Dimension, Usage};
pub use wallet::{BudgetKey, WalletLease, WalletMode, WalletReport};

/// The largest value of a budget's `limit` and `burst`. Products with any span of time then fit in 127 bits.
pub const MAX_LIMIT: u64 = 1_000_000_000_000_000;

/// One budget of a resource: a bucket that holds `burst` and refills evenly by `limit` in each `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct BudgetConfig {
    /// The quantity that the budget counts.
    pub dimension: Dimension,
    /// The amount that refills in each window, in `1..=10^15`.
    pub limit: u64,
    /// The length of the window. Longer than zero.
    pub window: Duration,
    /// The largest amount that may be spent at once after a rest, in `1..=10^15`. `None` means `limit`.
    ///
    /// Use a small burst for a provider that counts in fixed or sliding windows: a full bucket and its refill
    /// together allow `burst + limit` in one window.
    #[cfg_attr(feature = "serde", serde(default))]
    pub burst: Option<u64>,
}

impl BudgetConfig {
    /// Creates a budget of `limit` in each `window`.
    #[must_use]
    pub const fn per(window: Duration, dimension: Dimension, limit: u64) -> Self {
        Self { dimension, limit, window, burst: None }
    }

    /// Creates a budget of `limit` per minute.
    #[must_use]
    pub const fn per_minute(dimension: Dimension, limit: u64) -> Self {
        Self::per(Duration::from_secs(60), dimension, limit)
    }

    /// Creates a budget of `limit` per day.
    #[must_use]
    pub const fn per_day(dimension: Dimension, limit: u64) -> Self {
        Self::per(Duration::from_secs(86_400), dimension, limit)
    }

    /// Returns this budget with another `burst`.
    #[must_use]
    pub const fn with_burst(self, burst: u64) -> Self {
        Self { burst: Some(burst), ..self }
    }

    /// Returns an error with the field name if a value is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let range = 1..=MAX_LIMIT;
        require(range.contains(&self.limit), "budget.limit", self.limit, "a number from 1 to 10^15")?;
        require(!self.window.is_zero(), "budget.window", self.window, "longer than zero")?;
        let burst = self.burst.unwrap_or(self.limit);
        require(range.contains(&burst), "budget.burst", burst, "a number from 1 to 10^15")
    }
}

/// A provider's statement about one budget, such as the `x-ratelimit-*` headers of an answer, parsed into
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RateLimitFeedback {
    /// The dimension of the budgets that it applies to.
    pub dimension: Dimension,
    /// The window of the budget that it applies to. `None` selects the budget whose limit equals `limit`, or
    /// else the one with the shortest window.
    #[cfg_attr(feature = "serde", serde(default))]
    pub window: Option<Duration>,
    /// The amount that the provider allows in each window. A lower value than configured lowers the budget. A
    /// higher value never raises it above the configured limit.
    #[cfg_attr(feature = "serde", serde(default))]
    pub limit: Option<u64>,
    /// The remaining amount.
    #[cfg_attr(feature = "serde", serde(default))]
    pub remaining: Option<u64>,
    /// The time until the whole amount is available again.
    #[cfg_attr(feature = "serde", serde(default))]
    pub reset_after: Option<Duration>,
}

impl RateLimitFeedback {
    /// Creates an empty statement about `dimension`.
    #[must_use]
    pub const fn of(dimension: Dimension) -> Self {
        Self { dimension, window: None, limit: None, remaining: None, reset_after: None }
    }
}

/// The origin of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum BudgetSource {
    /// The configured settings.
    #[default]
    Settings,
    /// The headers of the provider's answers.
    Headers,
}

/// A rate that a provider states: an amount of one dimension per window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StatedRate {
    /// The quantity that the rate limits.
    pub dimension: Dimension,
    /// The amount that is allowed in each window.
    pub limit: u64,
    /// The length of the window.
    pub window: Duration,
}

impl StatedRate {
    /// Returns the rate of a budget.
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

    /// Returns the name in a capacity plan: `requests_per_minute`, or `requests_in_10s`.
    #[must_use]
    pub fn name(&self) -> String {
        let noun = self.noun().replace(' ', "_");
        match unit_of(self.window) {
            Some(unit) => format!("{noun}_per_{unit}"),
            None => format!("{noun}_in_{}", self.window),
        }
    }
}

/// Returns the name of the unit that equals `window`, if there is one.
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
    /// The configured or derived settings.
    pub config: BudgetConfig,
    /// The limit in force: the configured one, or a lower one that the provider stated.
    pub limit: u64,
    /// The amount that may be spent now, rounded down. Negative while the budget is overdrawn.
    pub available: i64,
    /// The sum of the estimates of calls in flight.
    pub reserved: u64,
    /// The origin of the budget.
    pub source: BudgetSource,
}

/// The changes made by the statements of one answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Feedback {
    /// Configured budgets that changed.
    pub(crate) corrected: Vec<Corrected>,
    /// Rates that were not known before.
    pub(crate) learned: Vec<StatedRate>,
    /// Whether any budget was corrected or any statement was processed.
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
    key: BudgetKey,
    config: BudgetConfig,
    bucket: Bucket,
    reserved: u64,
    /// Takes the place of the bucket if several processes share the budget.
    wallet: Option<Wallet>,
}

/// The budgets of one resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets {
    entries: Vec<Budget>,
    /// The number of the first grant that these budgets count. Earlier calls settle nothing.
    first_grant: u64,
    /// The budgets that the provider states. `None` while there are none.
    stated: Option<Box<Stated>>,
    /// Whether several processes share the configured budgets.
    is_shared: bool,
    /// The wallets of budgets that are not configured any more. If one is configured again, what was granted
    /// before counts as granted.
    unused_wallets: BTreeMap<BudgetKey, Wallet>,
}

/// The budgets that the provider states. Never of a dimension that is configured.
#[derive(Clone, Debug, Default)]
struct Stated {
    entries: Vec<StatedBudget>,
    /// The typical usage of a call: a mean over calls with known usage, in which later calls count more.
    typical: Usage,
}

impl Budgets {
    /// Creates full budgets that count grants from number `first_grant` on. `configs` must be valid.
    pub(crate) fn new(now: Instant, configs: &[BudgetConfig], first_grant: u64) -> Self {
        Self {
            entries: BudgetKey::of_each(configs)
                .zip(configs)
                .map(|(key, config)| Budget::new(now, key, config))
                .collect(),
            first_grant,
            ..Self::default()
        }
    }

    /// Replaces the configured budgets, and removes those from response headers. The new budgets are full.
    /// If several processes share them, they stay as they are without a change, and else are empty.
    pub(crate) fn replace(&mut self, now: Instant, configs: &[BudgetConfig], first_grant: u64) {
        self.stated = None;
        if self.is_shared && self.configs().eq(configs.iter().copied()) {
            return;
        }
        let mut wallets = core::mem::take(&mut self.unused_wallets);
        wallets.extend(self.entries.iter_mut().filter_map(|budget| Some((budget.key, budget.wallet.take()?))));
        wallets.values_mut().for_each(Wallet::close);
        *self = Self { is_shared: self.is_shared, ..Self::new(now, configs, first_grant) };
        for budget in self.entries.iter_mut().filter(|_| self.is_shared) {
            budget.wallet = Some(wallets.remove(&budget.key).unwrap_or_default());
        }
        self.unused_wallets = wallets;
    }

    /// Returns the settings of the configured budgets.
    pub(crate) fn configs(&self) -> impl Iterator<Item = BudgetConfig> {
        self.entries.iter().map(|budget| budget.config)
    }

    /// Returns whether a lease changes nothing.
    pub(crate) fn has_lease(&self, lease: &WalletLease) -> bool {
        let has_lease = |budget: &Budget| budget.wallet.as_ref().is_some_and(|wallet| wallet.has(budget.key, lease));
        self.is_shared && self.entries.iter().all(has_lease)
    }

    /// Applies a lease of amounts, after which the configured budgets are those of several processes.
    /// `grants` is the number of grants so far.
    pub(crate) fn lease(&mut self, now: Instant, lease: &WalletLease, grants: u64) {
        let is_new = !core::mem::replace(&mut self.is_shared, true);
        let mut is_alone = false;
        let mut was_alone = false;
        for budget in &mut self.entries {
            let wallet = budget.wallet.get_or_insert_default();
            was_alone |= wallet.is_alone();
            if let Some(bucket) = wallet.lease(now, budget.key, lease, &budget.config) {
                budget.bucket = bucket;
            }
            is_alone |= wallet.is_alone();
        }
        if is_new || is_alone != was_alone {
            // What these calls return was not taken from the bucket that is used now.
            self.first_grant = grants;
            self.entries.iter_mut().for_each(|budget| budget.reserved = 0);
        }
    }

    /// Hands back what the wallets do not need, and returns their states, for the leader.
    pub(crate) fn report(&mut self, now: Instant, waiting: &WaitingCalls) -> BTreeMap<BudgetKey, WalletReport> {
        // A call that needs a budget which the leader does not have would keep amounts of the others in vain.
        let is_in_vain = waiting.next.is_some_and(|estimate| self.is_unknown_to_leader(estimate));
        let waiting = if is_in_vain { WaitingCalls::default() } else { *waiting };
        let report = |budget: &mut Budget| {
            let report = budget.wallet.as_mut()?.report(now, &waiting, budget.config.dimension);
            Some((budget.key, report))
        };
        self.entries.iter_mut().filter_map(report).collect()
    }

    /// Returns whether a call with this estimate waits for a shared budget that the leader does not have.
    pub(crate) fn is_unknown_to_leader(&self, estimate: Usage) -> bool {
        let is_unknown = |budget: &Budget| {
            let amount = estimate.of(budget.config.dimension);
            budget.wallet().is_some_and(|wallet| wallet.is_unknown() && !wallet.fits(amount))
        };
        self.entries.iter().any(is_unknown)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.stated.is_none()
    }

    /// Returns the earliest instant at which a call with this estimate fits all budgets, or `None` if it fits
    /// now.
    #[inline]
    pub(crate) fn fits_at(&self, now: Instant, estimate: Usage) -> Option<Instant> {
        // Most resources have no budget. This method, `reserve` and `settle` then cost one branch each.
        if self.is_empty() { None } else { self.all_fit_at(now, estimate) }
    }

    fn all_fit_at(&self, now: Instant, estimate: Usage) -> Option<Instant> {
        let fits = self.entries.iter().map(|budget| budget.fits_at(now, estimate.of(budget.config.dimension)));
        let (_, stated) = self.stated_fit_at(now, estimate).unzip();
        fits.chain(stated).max().filter(|at| *at > now)
    }

    /// Returns the stated budget that a call with this estimate waits for longest, and the instant at which
    /// it fits.
    fn stated_fit_at(&self, now: Instant, estimate: Usage) -> Option<(&StatedBudget, Instant)> {
        let stated = self.stated.as_deref()?;
        let reserved = self.reserved_for(estimate);
        // A call without an estimate may use more than usual, so it waits until there is room for twice as
        // much.
        let spare = if estimate == Usage::default() { reserved } else { Usage::default() };
        let fits = stated.entries.iter().map(|budget| (budget, budget.fits_at(now, reserved, spare)));
        fits.max_by_key(|(_, at)| *at)
    }

    /// Returns the rate stated by the provider, if a call with this estimate waits for it.
    pub(crate) fn holding_rate(&self, now: Instant, estimate: Usage) -> Option<StatedRate> {
        let until = self.fits_at(now, estimate)?;
        let (budget, _) = self.stated_fit_at(now, estimate).filter(|(_, at)| *at == until)?;
        Some(StatedRate::of(&budget.snapshot(now)))
    }

    /// Returns the amount to reserve for a call.
    ///
    /// This is the estimate if a token budget is configured. Otherwise it is the typical usage for a call
    /// without an estimate, and the output of an estimate is limited to twice the typical output. Output is
    /// most often estimated at the largest allowed value.
    fn reserved_for(&self, estimate: Usage) -> Usage {
        let is_configured = self.entries.iter().any(|budget| budget.config.dimension != Dimension::Requests);
        let Some(typical) = self.stated.as_deref().filter(|_| !is_configured).map(|stated| stated.typical) else {
            return estimate;
        };
        if estimate == Usage::default() {
            return typical;
        }
        let max_output = if typical.output_tokens == 0 { u32::MAX } else { typical.output_tokens.saturating_mul(2) };
        Usage { output_tokens: estimate.output_tokens.min(max_output), ..estimate }
    }

    /// Reserves the estimate of the call with number `grant`. Returns the reserved amount.
    #[inline]
    pub(crate) fn reserve(&mut self, now: Instant, grant: u64, estimate: Usage) -> Usage {
        if self.is_empty() { estimate } else { self.reserve_all(now, grant, estimate) }
    }

    fn reserve_all(&mut self, now: Instant, grant: u64, estimate: Usage) -> Usage {
        let estimate = self.reserved_for(estimate);
        for budget in &mut self.entries {
            budget.reserve(now, estimate.of(budget.config.dimension));
        }
        for budget in self.stated.iter_mut().flat_map(|stated| &mut stated.entries) {
            budget.reserve(now, grant, estimate);
        }
        estimate
    }

    /// Replaces the estimate of call number `grant` by its actual usage.
    #[inline]
    pub(crate) fn settle(&mut self, now: Instant, grant: u64, estimate: Usage, done: &Completion) {
        if !self.is_empty() {
            self.settle_all(now, grant, estimate, done);
        }
    }

    fn settle_all(&mut self, now: Instant, grant: u64, estimate: Usage, done: &Completion) {
        let used = match (done.outcome, done.usage) {
            (Outcome::RateLimited | Outcome::ConnectionFailed | Outcome::TlsFailed, _)
            | (Outcome::LocalCancelled, None) => None,
            (outcome, None) if outcome.is_rejection() => Some(Usage::default()),
            // A call that failed on the way may have been counted by the provider. Only a rate limit, a
            // failed connection or a cancellation by the caller means that it was not.
            (_, usage) => Some(usage.unwrap_or(estimate)),
        };
        let is_known = grant >= self.first_grant;
        for budget in self.entries.iter_mut().filter(|_| is_known) {
            let dimension = budget.config.dimension;
            budget.settle(now, estimate.of(dimension), used.map_or(0, |usage| usage.of(dimension)));
        }
        let Some(stated) = &mut self.stated else { return };
        for budget in &mut stated.entries {
            budget.settle(now, grant, estimate, used, done);
        }
        if let Some(used) = done.usage {
            stated.typical = mean(stated.typical, used);
        }
        stated.entries.retain(|budget| !budget.has_expired());
        if stated.entries.is_empty() {
            self.stated = None;
        }
    }

    /// Applies the statements of an answer. If `learns` is true, dimensions that are not configured get
    /// budgets from them.
    pub(crate) fn apply(
        &mut self,
        now: Instant,
        corrections: &[RateLimitFeedback],
        call: &AnsweredCall,
        learns: bool,
    ) -> Feedback {
        let mut feedback = Feedback::default();
        for correction in corrections {
            let is_configured = self.entries.iter().any(|budget| budget.config.dimension == correction.dimension);
            if is_configured {
                feedback.corrected.extend(self.correct(now, correction));
            } else if let Some(statement) = Statement::of(correction).filter(|_| learns) {
                let is_new = self.apply_statement(now, correction, &statement, call);
                feedback.is_any = true;
                let known =
                    self.stated.iter().flat_map(|stated| &stated.entries).find(|budget| budget.applies_to(correction));
                feedback.learned.extend(known.filter(|_| is_new).map(|budget| StatedRate::of(&budget.snapshot(now))));
            }
        }
        feedback.is_any |= !feedback.corrected.is_empty();
        feedback
    }

    /// Applies a statement about a dimension that is not configured. Returns whether its rate was unknown
    /// before.
    fn apply_statement(
        &mut self,
        now: Instant,
        correction: &RateLimitFeedback,
        statement: &Statement,
        call: &AnsweredCall,
    ) -> bool {
        let stated = self.stated.get_or_insert_default();
        let typical = stated.typical;
        if let Some(budget) = stated.entries.iter_mut().find(|budget| budget.applies_to(correction)) {
            return budget.apply(now, statement, call, typical);
        }
        let has_room = stated.entries.len() < MOST_STATED;
        if has_room {
            stated.entries.push(StatedBudget::new(now, correction, statement, call, typical));
        }
        has_room
    }

    /// Applies a statement to the configured budget that it is about. Returns the budget if it changed.
    pub(crate) fn correct(&mut self, now: Instant, correction: &RateLimitFeedback) -> Option<Corrected> {
        let of_dimension = |budget: &&mut Budget| budget.config.dimension == correction.dimension;
        let budget = match correction.window {
            Some(window) => self.entries.iter_mut().filter(of_dimension).find(|budget| budget.config.window == window),
            None => self
                .entries
                .iter_mut()
                .filter(of_dimension)
                .min_by_key(|budget| (correction.limit != Some(budget.config.limit), budget.config.window)),
        }?;
        let before = budget.available(now);
        let limit_before = budget.bucket.limit();
        budget.correct(now, correction);
        let after = budget.available(now);
        let is_changed = before != after || limit_before != budget.bucket.limit();
        is_changed.then_some(Corrected { dimension: correction.dimension, before, after })
    }

    pub(crate) fn snapshot(&self, now: Instant) -> Vec<BudgetSnapshot> {
        let show = |budget: &Budget| BudgetSnapshot {
            config: budget.config,
            limit: budget.bucket.limit(),
            available: budget.available(now),
            reserved: budget.reserved,
            source: BudgetSource::Settings,
        };
        let stated = self.stated.iter().flat_map(|stated| &stated.entries);
        self.entries.iter().map(show).chain(stated.map(|budget| budget.snapshot(now))).collect()
    }
}

/// Returns a mean in which the latest value counts one eighth.
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
    fn new(now: Instant, key: BudgetKey, config: &BudgetConfig) -> Self {
        Self { key, config: *config, bucket: Bucket::new(now, config), reserved: 0, wallet: None }
    }

    /// Returns the wallet, if it is used in place of the bucket.
    fn wallet(&self) -> Option<&Wallet> {
        self.wallet.as_ref().filter(|wallet| !wallet.is_alone())
    }

    fn wallet_mut(&mut self) -> Option<&mut Wallet> {
        self.wallet.as_mut().filter(|wallet| !wallet.is_alone())
    }

    fn available(&self, now: Instant) -> i64 {
        let left = |wallet: &Wallet| i64::try_from(wallet.left()).unwrap_or(i64::MAX);
        self.wallet().map_or_else(|| self.bucket.available(now), left)
    }

    /// Returns the earliest instant at which `amount` may be taken. For a wallet with less, this depends on
    /// the leader, so it is [`Instant::MAX`].
    fn fits_at(&self, now: Instant, amount: u64) -> Instant {
        match self.wallet() {
            Some(wallet) if wallet.fits(amount) => now,
            Some(_) => Instant::MAX,
            None => self.bucket.fits_at(now, amount),
        }
    }

    fn reserve(&mut self, now: Instant, amount: u64) {
        self.reserved += amount;
        let burst = self.config.burst.unwrap_or(self.config.limit);
        match self.wallet_mut() {
            Some(wallet) => wallet.take(amount, burst),
            None => self.bucket.take(now, amount),
        }
    }

    fn settle(&mut self, now: Instant, estimate: u64, used: u64) {
        self.reserved -= estimate;
        if let Some(wallet) = self.wallet_mut() {
            wallet.settle(estimate, used);
        } else {
            self.bucket.give(now, estimate);
            self.bucket.take(now, used);
        }
    }

    fn correct(&mut self, now: Instant, correction: &RateLimitFeedback) {
        if let Some(wallet) = self.wallet_mut() {
            // The remaining amount is that of all processes, so it never raises a wallet.
            return correction.remaining.into_iter().for_each(|remaining| wallet.lower_to(remaining));
        }
        if let Some(limit) = correction.limit {
            let limit = limit.clamp(1, self.config.limit);
            self.bucket.set_limit(now, limit, self.config.burst.unwrap_or(limit));
        }
        match (correction.remaining, correction.reset_after) {
            (Some(remaining), _) => {
                // The provider may have counted all calls in flight, or none of them yet.
                let remaining = remaining.min(MAX_LIMIT);
                self.bucket.lower_to(now, remaining);
                // If the provider's limit is above the configured one, its remaining amount is not
                // comparable with ours.
                if correction.limit.is_none_or(|limit| limit <= self.config.limit) {
                    self.bucket.raise_to(now, remaining.saturating_sub(self.reserved));
                }
            }
            (None, Some(reset_after)) => self.bucket.full_not_before(now, reset_after),
            (None, None) => {}
        }
    }
}
