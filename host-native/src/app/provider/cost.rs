//! The cost of calls: prices per token and image, and a ledger that enforces a cost limit.
//!
//! Money is an integer number of units of 10^-12 of the currency of the pipeline file, so sums are exact on
//! every platform. A price of 0.15 per million tokens is 150 000 units per token.
//!
//! ```text
//! reserve    before a call is sent, its estimate is reserved, unless
//!                spent by the job + reserved + estimate > limit;
//!            then neither this call nor any later one is sent
//! settle     when a call ends, its actual cost replaces the estimate
//! ```
//!
//! `spent by the job + reserved + estimate` is what the job may have spent. It is written to a
//! [file](AmountFile) before the call is sent. If the run is killed, the next run reads it, so calls that
//! were in flight count with their estimates.
//!
//! If several processes fill one dataset, each [leases](LeasedPart) a part of the limit, which takes the
//! place of the limit here. A call that needs more waits until more is leased.
//!
//! The limit is as accurate as the estimates: a call that costs more than its estimate may exceed the limit
//! by the difference. A call that the provider rejected or failed costs nothing. A call costs its estimate if
//! the response does not report its usage, or if the call was cancelled here, for example by the timeout of
//! the model. A response with invalid content costs the same as a valid one.

mod amount_file;

use std::fmt;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use tokio::sync::{Notify, watch};

pub use amount_file::AmountFile;

/// The number of units in 1 of the currency.
const UNITS: u128 = 1_000_000_000_000;

/// The maximum price of a million tokens. A higher one is taken for a typing error.
pub const MAX_PER_MILLION: f64 = 1_000_000.0;

/// The maximum price of an image. A higher one is taken for a typing error.
pub const MAX_PER_IMAGE: f64 = 1_000.0;

/// An amount of the currency of the pipeline file, in units of 10^-12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Money(u128);

impl Money {
    /// Creates an amount of the currency. Returns `None` unless `amount` is from 0 to 10^12.
    #[must_use]
    pub fn new(amount: f64) -> Option<Self> {
        (0.0..=1e12).contains(&amount).then(|| Self((amount * 1e12).round() as u128))
    }

    /// Formats the exact amount without trailing zeros, as the command line accepts it.
    #[must_use]
    pub fn exact(self) -> String {
        self.to_padded_string().trim_end_matches('0').trim_end_matches('.').to_string()
    }

    /// Formats the exact amount with 12 decimals.
    fn to_padded_string(self) -> String {
        format!("{}.{:012}", self.0 / UNITS, self.0 % UNITS)
    }

    fn from_padded_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (whole, part) = text.split_once('.').filter(|(_, part)| part.len() == 12)?;
            let (whole, part) = (whole.parse::<u128>().ok()?, part.parse::<u128>().ok()?);
            whole.checked_mul(UNITS)?.checked_add(part).map(Self)
        };
        read().ok_or_else(|| format!("{text:?} is not an amount; expected a number such as \"1.500000000000\""))
    }

    /// Returns the amount in millionths of the currency, rounded down.
    #[must_use]
    pub fn micros(self) -> u64 {
        u64::try_from(self.0 / 1_000_000).unwrap_or(u64::MAX)
    }

    /// Returns an amount of this many millionths of the currency.
    #[must_use]
    pub fn from_micros(micros: u64) -> Self {
        Self(u128::from(micros) * 1_000_000)
    }

    /// Returns the amount in millionths of the currency, rounded up.
    #[must_use]
    pub fn micros_rounded_up(self) -> u64 {
        u64::try_from(self.0.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// Adds `other`, saturating at the maximum.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Multiplies by `count`, saturating at the maximum.
    #[must_use]
    pub fn saturating_mul(self, count: u64) -> Self {
        Self(self.0.saturating_mul(u128::from(count)))
    }

    /// Subtracts `other`, saturating at zero.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Serializes an amount as text, since not every JSON parser reads numbers exactly.
pub mod text {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Money;

    /// Writes text such as `"1.500000000000"`.
    pub fn serialize<S: Serializer>(money: &Money, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&money.to_padded_string())
    }

    /// Reads text such as `"1.500000000000"`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Money, D::Error> {
        let text = String::deserialize(deserializer)?;
        Money::from_padded_str(&text).map_err(D::Error::custom)
    }
}

impl fmt::Display for Money {
    /// Formats with two decimals, or with four below 1. Rounds up, so a cost is never shown as less than it
    /// is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = if self.0 >= UNITS { 2 } else { 4 };
        let parts = 10_u128.pow(decimals);
        let rounded = self.0.div_ceil(UNITS / parts);
        let text = format!("{}.{:0width$}", rounded / parts, rounded % parts, width = decimals as usize);
        f.pad(&text)
    }
}

/// The price of the tokens of a model, and of the images that it makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    input: Money,
    output: Money,
    image: Money,
}

impl Price {
    /// Creates a price from the prices of a million input and output tokens. Returns `None` unless both are
    /// from 0 to [`MAX_PER_MILLION`].
    #[must_use]
    pub fn per_million(input: f64, output: f64) -> Option<Self> {
        let per_token =
            |price: f64| (0.0..=MAX_PER_MILLION).contains(&price).then(|| Money((price * 1e6).round() as u128));
        Some(Self { input: per_token(input)?, output: per_token(output)?, image: Money::default() })
    }

    /// Adds a price for each image. Returns `None` unless it is from 0 to [`MAX_PER_IMAGE`].
    #[must_use]
    pub fn per_image(self, image: f64) -> Option<Self> {
        let image = Money::new(image).filter(|_| image <= MAX_PER_IMAGE)?;
        Some(Self { image, ..self })
    }

    /// Returns the cost of `input` and `output` tokens, and of `images`.
    #[must_use]
    pub fn of_many(&self, input: u64, output: u64, images: u64) -> Money {
        let tokens = self.input.saturating_mul(input).saturating_add(self.output.saturating_mul(output));
        tokens.saturating_add(self.image.saturating_mul(images))
    }
}

/// What a run has spent, what its calls in flight may cost, and the limit for both.
#[derive(Debug, Default)]
pub struct Ledger {
    limit: Option<Money>,
    /// The amount that earlier runs of the job have spent.
    earlier: Money,
    spent: Money,
    reserved: Money,
    /// The part of the limit that this process may spend, if others fill the same dataset.
    lease: Option<LeasedPart>,
    /// Holds the sum of `earlier`, `spent` and `reserved`.
    file: Option<AmountFile>,
    stop: Option<LedgerStop>,
    /// Whether calls that lack a lease are rejected.
    is_closed: bool,
}

/// The part of a cost limit that one of several processes may spend.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeasedPart {
    /// The most that this process may spend.
    pub amount: Money,
    /// The amount from which on more is leased in advance.
    pub refill_at: Money,
    /// What the other processes may spend, and what earlier runs have spent.
    pub others: Money,
}

/// The answer of the ledger to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// The call may be sent.
    Reserved,
    /// Neither this call nor any later one may be sent.
    Rejected,
    /// The call needs more than what is leased.
    Lacking,
}

/// Why the ledger rejects all further calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerStop {
    /// A call might have exceeded this limit.
    CostLimit(Money),
    /// The file of the spent amount, or what a call has paid for, cannot be written, or a file that has what
    /// other processes may spend cannot be read. Holds the error message.
    Unwritable(String),
}

impl Ledger {
    /// Creates an empty ledger. `None` means no limit.
    #[must_use]
    pub fn new(limit: Option<Money>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Sets the amount that earlier runs of the job have spent and the amount that they have reserved for
    /// what goes on, which count towards the limit, and the file for the amount that the job may have spent.
    pub fn resume_from(&mut self, earlier: Money, reserved: Money, file: Option<AmountFile>) {
        (self.earlier, self.reserved, self.file) = (earlier, reserved, file);
    }

    /// Creates an empty ledger of a process that leases parts of `limit`, and has none yet.
    #[must_use]
    pub fn leasing(limit: Option<Money>) -> Self {
        Self { lease: limit.map(|_| LeasedPart::default()), ..Self::new(limit) }
    }

    /// Reserves `estimate` for a call, if it may be sent.
    pub fn try_reserve(&mut self, estimate: Money) -> Reservation {
        let after = self.total().saturating_add(estimate);
        match (&self.lease, self.limit) {
            _ if self.stop.is_some() => return Reservation::Rejected,
            (Some(lease), _) if after > lease.amount && self.is_closed => return Reservation::Rejected,
            (Some(lease), _) if after > lease.amount => return Reservation::Lacking,
            (None, Some(limit)) if after > limit => self.stop = Some(LedgerStop::CostLimit(limit)),
            _ => self.store(after),
        }
        if self.stop.is_some() {
            return Reservation::Rejected;
        }
        self.reserved = self.reserved.saturating_add(estimate);
        Reservation::Reserved
    }

    /// Reserves `estimate` for a call. Returns `false` if the call must not be sent. Without a lease, all
    /// later calls are rejected too then.
    pub fn reserve(&mut self, estimate: Money) -> bool {
        self.try_reserve(estimate) == Reservation::Reserved
    }

    /// Replaces the reserved `estimate` of a call that has ended with its `cost`.
    pub fn settle(&mut self, estimate: Money, cost: Money) {
        self.reserved = self.reserved.saturating_sub(estimate);
        self.spent = self.spent.saturating_add(cost);
        self.store(self.total());
    }

    /// Returns what this run has spent, including the estimates of calls in flight.
    #[must_use]
    pub fn spent(&self) -> Money {
        self.spent.saturating_add(self.reserved)
    }

    /// Returns why calls are rejected, or `None` if they are not.
    #[must_use]
    pub fn stop_reason(&self) -> Option<&LedgerStop> {
        self.stop.as_ref()
    }

    /// Rejects all later calls, since what they pay for cannot be written, or a file that has what other
    /// processes may spend cannot be read. `why` is the error message.
    pub fn stop_unwritable(&mut self, why: String) {
        self.stop.get_or_insert(LedgerStop::Unwritable(why));
    }

    /// Rejects all later calls: what is left of the limit does not suffice for one of them.
    pub fn stop_at_limit(&mut self) {
        let limit = self.limit.unwrap_or_default();
        self.stop.get_or_insert(LedgerStop::CostLimit(limit));
    }

    /// Lets no call wait for a lease any more, since the run has stopped.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Returns the part of the limit that this process may spend, if others fill the same dataset.
    #[must_use]
    pub fn lease(&self) -> Option<LeasedPart> {
        self.lease
    }

    /// Sets the part of the limit that this process may spend.
    pub fn set_lease(&mut self, lease: LeasedPart) {
        self.lease = Some(lease);
    }

    /// Returns what the job may have spent, as far as the ledger has it: of several processes that fill one
    /// dataset, what this one has.
    #[must_use]
    pub fn total(&self) -> Money {
        self.earlier.saturating_add(self.spent())
    }

    fn store(&mut self, total: Money) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.store(total) {
            self.stop
                .get_or_insert(LedgerStop::Unwritable(format!("cannot write to {}: {error}", file.path().display())));
        }
    }
}

/// A ledger that is shared by the providers of a run, and by the task that leases parts of the limit, if
/// there is one.
#[derive(Debug, Default)]
pub struct SharedLedger {
    ledger: Mutex<Ledger>,
    /// The largest estimate of the calls that lack a lease.
    lacking: Mutex<Option<Money>>,
    /// More should be leased.
    refill: Notify,
    /// The lease or the reason to stop has changed.
    changes: watch::Sender<()>,
}

impl SharedLedger {
    /// Shares `ledger`.
    #[must_use]
    pub fn new(ledger: Ledger) -> Self {
        Self { ledger: Mutex::new(ledger), ..Self::default() }
    }

    /// Locks the ledger.
    pub fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock()
    }

    /// Reserves `estimate` for a call, if it may be sent. If it lacks a lease, wait
    /// [until that changes](Self::until_leased), without a slot of the provider, and try again.
    pub fn try_reserve(&self, estimate: Money) -> Reservation {
        let mut ledger = self.lock();
        let answer = ledger.try_reserve(estimate);
        if ledger.lease.is_some_and(|lease| ledger.total() > lease.refill_at) {
            self.refill.notify_one();
        }
        answer
    }

    /// Waits until `estimate` is leased or no call may be sent any more.
    pub async fn until_leased(&self, estimate: Money) {
        let mut changes = self.changes.subscribe();
        while self.lacks(estimate) {
            // It ends with the ledger only.
            let _ = changes.changed().await;
        }
    }

    fn lacks(&self, estimate: Money) -> bool {
        let ledger = self.lock();
        let after = ledger.total().saturating_add(estimate);
        let is_stopped = ledger.is_closed || ledger.stop.is_some();
        if is_stopped || ledger.lease.is_none_or(|lease| after <= lease.amount) {
            return false;
        }
        let mut lacking = self.lacking.lock();
        *lacking = (*lacking).max(Some(estimate));
        self.refill.notify_one();
        true
    }

    /// Returns the largest estimate of the calls that lack a lease, if there are any.
    #[must_use]
    pub fn lacking(&self) -> Option<Money> {
        *self.lacking.lock()
    }

    /// Waits until more should be leased.
    pub async fn until_refill(&self) {
        self.refill.notified().await;
    }

    /// Changes the ledger, and lets the calls that lack a lease try again.
    pub fn update(&self, change: impl FnOnce(&mut Ledger)) {
        change(&mut self.lock());
        *self.lacking.lock() = None;
        self.changes.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn money(amount: f64) -> Money {
        Money::new(amount).unwrap()
    }

    #[test]
    fn prices_are_exact() {
        let price = Price::per_million(0.15, 0.6).unwrap();
        assert_eq!(price.of_many(1, 0, 0), Money(150_000));
        assert_eq!(price.of_many(1_000_000, 500_000, 0), money(0.45));
        assert_eq!(Price::per_million(-1.0, 0.0), None);
        assert_eq!(Price::per_million(0.0, f64::NAN), None);
        assert_eq!(Price::per_million(2e6, 0.0), None);
        let with_image = price.per_image(0.04).unwrap();
        assert_eq!(
            (with_image.of_many(1, 0, 0), with_image.of_many(1, 0, 3)),
            (Money(150_000), Money(120_000_150_000))
        );
        assert_eq!((price.per_image(-0.1), price.per_image(1_001.0), price.per_image(f64::NAN)), (None, None, None));
    }

    #[test]
    fn formatted_amounts_are_rounded_up() {
        let shown = [money(0.0), money(1.5), money(0.03), Money(1), money(12_345.678)].map(|money| money.to_string());
        assert_eq!(shown, ["0.0000", "1.50", "0.0300", "0.0001", "12345.68"]);
    }

    #[test]
    fn a_call_that_would_exceed_the_limit_is_rejected_and_so_are_all_later_ones() {
        let mut ledger = Ledger::new(Some(money(1.0)));
        assert!(ledger.reserve(money(0.6)));
        assert!(ledger.reserve(money(0.4)), "the limit itself is allowed");
        assert!(!ledger.reserve(money(0.1)));
        ledger.settle(money(0.6), money(0.1));
        assert!(!ledger.reserve(money(0.0)), "an earlier call was rejected");
        ledger.settle(money(0.4), money(0.4));
        assert_eq!((ledger.spent(), ledger.stop_reason()), (money(0.5), Some(&LedgerStop::CostLimit(money(1.0)))));
    }

    #[test]
    fn the_unused_part_of_an_estimate_can_be_spent() {
        let mut ledger = Ledger::new(Some(money(1.0)));
        for _ in 0..9 {
            assert!(ledger.reserve(money(0.9)));
            ledger.settle(money(0.9), money(0.01));
        }
        assert_eq!(ledger.stop_reason(), None);
    }

    #[test]
    fn the_limit_applies_to_all_runs_of_a_job_together() {
        let mut ledger = Ledger::new(Some(money(1.0)));
        ledger.resume_from(money(0.7), money(0.0), None);
        assert!(ledger.reserve(money(0.3)));
        ledger.settle(money(0.3), money(0.2));
        assert!(!ledger.reserve(money(0.2)));
        assert_eq!(ledger.spent(), money(0.2), "earlier runs do not count here");
    }

    #[tokio::test]
    async fn a_call_that_lacks_a_lease_waits_until_it_is_leased_or_the_run_stops() {
        let ledger = SharedLedger::new(Ledger::leasing(Some(money(1.0))));
        let lease = |amount| {
            move |ledger: &mut Ledger| {
                let (amount, refill_at) = (money(amount), money(amount / 2.0));
                ledger.set_lease(LeasedPart { amount, refill_at, others: Money::default() });
            }
        };
        assert_eq!(ledger.try_reserve(money(0.2)), Reservation::Lacking);
        assert_eq!((ledger.lacking(), ledger.lock().spent()), (None, money(0.0)));
        let change = async {
            ledger.until_refill().await;
            assert_eq!(ledger.lacking(), Some(money(0.2)), "the larger of two");
            ledger.update(lease(0.1));
            ledger.until_refill().await;
            assert_eq!(ledger.lacking(), Some(money(0.2)));
            ledger.update(lease(0.2));
        };
        tokio::join!(ledger.until_leased(money(0.2)), ledger.until_leased(money(0.1)), change);
        assert_eq!(ledger.try_reserve(money(0.2)), Reservation::Reserved);
        assert_eq!(ledger.try_reserve(money(0.1)), Reservation::Lacking);
        ledger.update(Ledger::stop_at_limit);
        ledger.until_leased(money(0.1)).await;
        assert_eq!(ledger.try_reserve(money(0.1)), Reservation::Rejected);
        assert_eq!(ledger.lock().stop_reason(), Some(&LedgerStop::CostLimit(money(1.0))));
        let closed = SharedLedger::new(Ledger::leasing(Some(money(1.0))));
        closed.update(Ledger::close);
        closed.until_leased(money(0.1)).await;
        assert_eq!((closed.try_reserve(money(0.1)), closed.lock().stop_reason()), (Reservation::Rejected, None));
    }

    #[test]
    fn millionths_are_rounded_so_that_a_cost_is_never_too_low() {
        let amounts = [Money(0), Money(1), Money(1_000_000), Money(1_000_001)];
        assert_eq!(amounts.map(Money::micros_rounded_up), [0, 1, 1, 2]);
        assert_eq!(amounts.map(Money::micros), [0, 0, 1, 1]);
        assert_eq!(Money::from_micros(1_500_000), money(1.5));
    }

    #[test]
    fn the_file_has_the_estimate_before_a_call_is_sent_and_its_cost_once_it_has_ended() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("spent.txt");
        std::fs::write(&path, "").unwrap();
        let stored = || AmountFile::read(&path).unwrap().unwrap();
        let mut ledger = Ledger::new(Some(money(1.0)));
        ledger.resume_from(money(0.5), money(0.0), Some(AmountFile::open(&path).unwrap()));
        assert!(ledger.reserve(money(0.2)) && ledger.reserve(money(0.2)));
        assert_eq!((stored(), ledger.spent()), (money(0.9), money(0.4)));
        assert!(!ledger.reserve(money(0.2)));
        assert_eq!(stored(), money(0.9), "a rejected call costs nothing");
        ledger.settle(money(0.2), money(0.05));
        ledger.settle(money(0.2), money(0.3));
        assert_eq!((stored(), ledger.spent()), (money(0.85), money(0.35)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_call_is_rejected_if_the_file_cannot_be_written() {
        let mut ledger = Ledger::new(None);
        ledger.resume_from(money(0.0), money(0.0), Some(AmountFile::open(std::path::Path::new("/dev/full")).unwrap()));
        assert!(!ledger.reserve(money(0.1)));
        let Some(LedgerStop::Unwritable(why)) = ledger.stop_reason() else { panic!("{ledger:?}") };
        assert!(why.starts_with("cannot write to /dev/full: "), "{why}");
        assert_eq!(ledger.spent(), money(0.0));
    }

    #[test]
    fn without_a_limit_all_calls_are_granted_and_counted() {
        let mut ledger = Ledger::new(None);
        assert!(ledger.reserve(money(1e12)));
        ledger.settle(money(1e12), money(3.0));
        assert_eq!((ledger.spent(), ledger.stop_reason()), (money(3.0), None));
    }
}
