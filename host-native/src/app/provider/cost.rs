//! What calls cost: prices per token, and a ledger that knows when the next call would cost too much.
//!
//! Money is counted in whole units of 10^-12 of the file's currency, so sums are exact and equal everywhere: a price of
//! 0.15 a million tokens is 150 000 units a token.
//!
//! ```text
//! reserve     when a call is about to go out, its estimate is set aside: if
//!                 spent by the job + reserved + estimate > limit
//!             it does not go, and from then on no other does
//! settle      when it is answered, what it cost takes the place of the estimate
//! ```
//!
//! The sum of all that is on the left is what the job may have spent, and a [file](AmountFile) holds it before the call goes out. A run that
//! is killed leaves it there for the next one: a call that was out counts as its estimate.
//!
//! So the limit is kept as far as estimates are: a call that costs more than it was estimated at may pass it by the
//! difference. A call that the provider refused or failed costs nothing; one that was answered without saying what it used,
//! or that was cut short here, as by the model's timeout, costs its estimate. What the answer was worth does not matter: one
//! that is not what was asked for is paid for too.

mod amount_file;

use std::fmt;

use parking_lot::Mutex;
use serde::Serialize;
use tidegate_core::budget::Usage;

pub use amount_file::AmountFile;

/// Units of money in one of the currency.
const UNITS: u128 = 1_000_000_000_000;

/// The most a million tokens may cost: a price that is a slip of the keys rather than a price.
pub const MAX_PER_MILLION: f64 = 1_000_000.0;

/// An amount of the file's currency, in units of 10^-12 of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Money(u128);

impl Money {
    /// `amount` of the currency; `None` unless it is finite and from 0 to 10^12.
    #[must_use]
    pub fn new(amount: f64) -> Option<Self> {
        (0.0..=1e12).contains(&amount).then(|| Self((amount * 1e12).round() as u128))
    }

    /// All of it, as a command line takes it.
    #[must_use]
    pub fn exact(self) -> String {
        self.to_last_unit().trim_end_matches('0').trim_end_matches('.').to_string()
    }

    fn to_last_unit(self) -> String {
        format!("{}.{:012}", self.0 / UNITS, self.0 % UNITS)
    }

    fn from_last_unit(text: &str) -> Result<Self, String> {
        let read = || {
            let (whole, part) = text.split_once('.').filter(|(_, part)| part.len() == 12)?;
            let (whole, part) = (whole.parse::<u128>().ok()?, part.parse::<u128>().ok()?);
            whole.checked_mul(UNITS)?.checked_add(part).map(Self)
        };
        read().ok_or_else(|| format!("{text:?} is no amount; expected such as \"1.500000000000\""))
    }

    /// In whole millionths of the currency, rounded down.
    #[must_use]
    pub fn micros(self) -> u64 {
        u64::try_from(self.0 / 1_000_000).unwrap_or(u64::MAX)
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// So many times as much.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(u128::from(count)))
    }

    /// What is left of it without `other`; nothing if that is more.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// An amount as text in files, to its last unit: a number of JSON is not exact everywhere.
pub mod text {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Money;

    /// Writes such as `"1.500000000000"`.
    pub fn serialize<S: Serializer>(money: &Money, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&money.to_last_unit())
    }

    /// Reads it back.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Money, D::Error> {
        let text = String::deserialize(deserializer)?;
        Money::from_last_unit(&text).map_err(D::Error::custom)
    }
}

impl fmt::Display for Money {
    /// With two decimals, or four below one of the currency, rounded up: a cost is never shown as less than it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = if self.0 >= UNITS { 2 } else { 4 };
        let parts = 10_u128.pow(decimals);
        let rounded = self.0.div_ceil(UNITS / parts);
        let text = format!("{}.{:0width$}", rounded / parts, rounded % parts, width = decimals as usize);
        f.pad(&text)
    }
}

/// What tokens of a model cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    input: Money,
    output: Money,
}

impl Price {
    /// A price in the currency per million tokens sent and received; `None` unless both are from 0 to
    /// [`MAX_PER_MILLION`].
    #[must_use]
    pub fn per_million(input: f64, output: f64) -> Option<Self> {
        let per_token =
            |price: f64| (0.0..=MAX_PER_MILLION).contains(&price).then(|| Money((price * 1e6).round() as u128));
        Some(Self { input: per_token(input)?, output: per_token(output)? })
    }

    /// What so many tokens cost.
    #[must_use]
    pub fn of(&self, usage: Usage) -> Money {
        self.of_many(u64::from(usage.input_tokens), u64::from(usage.output_tokens))
    }

    /// What so many tokens sent and received cost.
    #[must_use]
    pub fn of_many(&self, input: u64, output: u64) -> Money {
        self.input.times(input).plus(self.output.times(output))
    }
}

/// What was spent, what calls that are out may cost, and the limit of both.
#[derive(Debug, Default)]
pub struct Ledger {
    limit: Option<Money>,
    /// By earlier runs of the job.
    earlier: Money,
    spent: Money,
    reserved: Money,
    /// Holds all three together.
    file: Option<AmountFile>,
    withheld: Option<Withheld>,
}

/// Why no call goes out any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// The next one might pass this limit.
    CostLimit(Money),
    /// What it may cost cannot be written down: where, and why.
    Unwritable(String),
}

impl Ledger {
    /// Nothing spent yet, and never more than `limit`.
    #[must_use]
    pub fn new(limit: Option<Money>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Earlier runs of the job have spent this; the limit is for all of them together. What the job may have spent is kept in `file`.
    pub fn carry(&mut self, earlier: Money, file: Option<AmountFile>) {
        (self.earlier, self.file) = (earlier, file);
    }

    /// Sets `estimate` aside for a call that is about to go out. `false`: it may not, and no other from now on.
    pub fn reserve(&mut self, estimate: Money) -> bool {
        let after = self.total().plus(estimate);
        if let Some(limit) = self.limit.filter(|limit| after > *limit) {
            self.withheld.get_or_insert(Withheld::CostLimit(limit));
        }
        if self.withheld.is_none() {
            self.store(after);
        }
        let may_go = self.withheld.is_none();
        if may_go {
            self.reserved = self.reserved.plus(estimate);
        }
        may_go
    }

    /// A call for which `estimate` was set aside is over, and cost `cost`.
    pub fn settle(&mut self, estimate: Money, cost: Money) {
        self.reserved = self.reserved.less(estimate);
        self.spent = self.spent.plus(cost);
        self.store(self.total());
    }

    /// What this run has spent, with the estimates of calls that are out.
    #[must_use]
    pub fn spent(&self) -> Money {
        self.spent.plus(self.reserved)
    }

    /// Why a call was kept back, once one was.
    #[must_use]
    pub fn withheld(&self) -> Option<&Withheld> {
        self.withheld.as_ref()
    }

    /// What the job may have spent.
    fn total(&self) -> Money {
        self.earlier.plus(self.spent())
    }

    fn store(&mut self, total: Money) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.store(total) {
            self.withheld
                .get_or_insert(Withheld::Unwritable(format!("cannot write to {}: {error}", file.path().display())));
        }
    }
}

/// The ledger of a run, shared by its providers.
pub type SharedLedger = Mutex<Ledger>;

#[cfg(test)]
mod tests {
    use super::*;

    fn money(amount: f64) -> Money {
        Money::new(amount).unwrap()
    }

    #[test]
    fn a_price_is_exact_to_the_token() {
        let price = Price::per_million(0.15, 0.6).unwrap();
        assert_eq!(price.of(Usage::tokens(1, 0)), Money(150_000));
        assert_eq!(price.of(Usage::tokens(1_000_000, 500_000)), money(0.45));
        assert_eq!(Price::per_million(-1.0, 0.0), None);
        assert_eq!(Price::per_million(0.0, f64::NAN), None);
        assert_eq!(Price::per_million(2e6, 0.0), None);
    }

    #[test]
    fn an_amount_is_never_shown_as_less_than_it_is() {
        let shown = [money(0.0), money(1.5), money(0.03), Money(1), money(12_345.678)].map(|money| money.to_string());
        assert_eq!(shown, ["0.0000", "1.50", "0.0300", "0.0001", "12345.68"]);
    }

    #[test]
    fn a_call_that_would_pass_the_limit_stays_and_so_does_every_later_one() {
        let mut ledger = Ledger::new(Some(money(1.0)));
        assert!(ledger.reserve(money(0.6)));
        assert!(ledger.reserve(money(0.4)), "exactly the limit is not past it");
        assert!(!ledger.reserve(money(0.1)));
        ledger.settle(money(0.6), money(0.1));
        assert!(!ledger.reserve(money(0.0)), "one was kept back already");
        ledger.settle(money(0.4), money(0.4));
        assert_eq!((ledger.spent(), ledger.withheld()), (money(0.5), Some(&Withheld::CostLimit(money(1.0)))));
    }

    #[test]
    fn what_came_back_can_be_spent() {
        let mut ledger = Ledger::new(Some(money(1.0)));
        for _ in 0..9 {
            assert!(ledger.reserve(money(0.9)));
            ledger.settle(money(0.9), money(0.01));
        }
        assert_eq!(ledger.withheld(), None);
    }

    #[test]
    fn the_limit_is_for_all_runs_of_a_job() {
        let mut ledger = Ledger::new(Some(money(1.0)));
        ledger.carry(money(0.7), None);
        assert!(ledger.reserve(money(0.3)));
        ledger.settle(money(0.3), money(0.2));
        assert!(!ledger.reserve(money(0.2)));
        assert_eq!(ledger.spent(), money(0.2), "of this run");
    }

    #[test]
    fn what_may_have_been_spent_is_in_the_file_before_a_call_goes_out_and_what_was_spent_once_it_is_over() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("spent.txt");
        std::fs::write(&path, "").unwrap();
        let stored = || AmountFile::read(&path).unwrap().unwrap();
        let mut ledger = Ledger::new(Some(money(1.0)));
        ledger.carry(money(0.5), Some(AmountFile::open(&path).unwrap()));
        assert!(ledger.reserve(money(0.2)) && ledger.reserve(money(0.2)));
        assert_eq!((stored(), ledger.spent()), (money(0.9), money(0.4)));
        assert!(!ledger.reserve(money(0.2)));
        assert_eq!(stored(), money(0.9), "a call that is kept back costs nothing");
        ledger.settle(money(0.2), money(0.05));
        ledger.settle(money(0.2), money(0.3));
        assert_eq!((stored(), ledger.spent()), (money(0.85), money(0.35)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_call_whose_cost_cannot_be_written_down_stays() {
        let mut ledger = Ledger::new(None);
        ledger.carry(money(0.0), Some(AmountFile::open(std::path::Path::new("/dev/full")).unwrap()));
        assert!(!ledger.reserve(money(0.1)));
        let Some(Withheld::Unwritable(why)) = ledger.withheld() else { panic!("{ledger:?}") };
        assert!(why.starts_with("cannot write to /dev/full: "), "{why}");
        assert_eq!(ledger.spent(), money(0.0));
    }

    #[test]
    fn without_a_limit_everything_may_go_and_is_counted() {
        let mut ledger = Ledger::new(None);
        assert!(ledger.reserve(money(1e12)));
        ledger.settle(money(1e12), money(3.0));
        assert_eq!((ledger.spent(), ledger.withheld()), (money(3.0), None));
    }
}
