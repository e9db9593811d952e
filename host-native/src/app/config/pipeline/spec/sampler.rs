//! The distributions of columns of kind `sampler`.
//!
//! Values are drawn in [`run::columns::sampler`](crate::app::run::columns::sampler).

use jiff::civil::DateTime;
use serde_json::{Map, Value};
use toml::Spanned;

use crate::app::config::pipeline::names::Locale;

/// The distribution of a column of kind `sampler`, and those that replace it for some rows.
#[derive(Clone, Debug)]
pub struct SamplerSpec {
    /// The distribution for rows to which no case applies.
    pub law: LawSpec,
    /// Conditions in file order, each with the distribution for the rows for which it is the first that
    /// holds.
    pub cases: Vec<(Spanned<String>, LawSpec)>,
}

impl SamplerSpec {
    /// Returns every distribution that a row may be drawn from.
    pub fn laws(&self) -> impl Iterator<Item = &LawSpec> {
        std::iter::once(&self.law).chain(self.cases.iter().map(|(_, law)| law))
    }
}

/// A distribution.
#[derive(Clone, Debug)]
pub enum LawSpec {
    /// One of several values.
    Category {
        /// The values. There is at least one.
        values: Vec<Value>,
        /// The relative weight of each value.
        weights: Vec<f64>,
    },
    /// One of the values listed for the value of another column.
    Subcategory {
        /// The other column.
        of: Spanned<String>,
        /// The list of values for each value of the other column.
        values: Map<String, Value>,
    },
    /// A uniformly distributed whole number.
    Integer {
        /// The minimum.
        low: i64,
        /// The maximum.
        high: i64,
    },
    /// A uniformly distributed number.
    Uniform {
        /// The minimum.
        low: f64,
        /// The maximum.
        high: f64,
        /// The number of decimals kept.
        decimals: Option<u32>,
    },
    /// A normally distributed number.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        sd: f64,
        /// The number of decimals kept.
        decimals: Option<u32>,
    },
    /// True or false.
    Bernoulli {
        /// The probability of true.
        p: f64,
    },
    /// The number of events in an interval in which `mean` are expected, each independent of the others.
    Poisson {
        /// The mean, from 0 to 10^9.
        mean: f64,
    },
    /// The number of successes in a number of independent trials.
    Binomial {
        /// The number of trials, at most 10^9.
        trials: u32,
        /// The probability of success in each trial.
        p: f64,
    },
    /// A uniformly distributed point in time, as ISO 8601 text.
    Datetime {
        /// The earliest time.
        from: DateTime,
        /// The end of the range, exclusive.
        to: DateTime,
        /// The distance between possible times, in seconds.
        step_s: u64,
    },
    /// A time at a random distance from the time in another column, as ISO 8601 text.
    Timedelta {
        /// The other column.
        of: Spanned<String>,
        /// The minimum distance, in units. Below 0 is before the other time.
        low: i64,
        /// The maximum distance, in units.
        high: i64,
        /// The unit of the distance, in seconds.
        unit_s: u64,
    },
    /// An invented person: an object with `name`, `first_name`, `last_name`, `age` and `email`.
    Person {
        /// The language and country that the names come from.
        locale: Locale,
        /// The minimum age, in years.
        youngest: u32,
        /// The maximum age, in years.
        oldest: u32,
    },
    /// A random UUID (version 4).
    Uuid,
}
