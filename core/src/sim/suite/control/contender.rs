//! Who competes.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::error::ConfigError;
use crate::limit::{Fixed, LimitAlgorithm, Tide, TideConfig, Vegas, VegasConfig};
use crate::request::AimdConfig;
use crate::time::Duration;

/// Makes a limit algorithm for a cap.
type MakeAlgorithm = Box<dyn Fn(u32) -> Result<Box<dyn LimitAlgorithm>, ConfigError>>;

/// A limit algorithm, with the settings of the resource it decides for.
pub struct Contender {
    /// Short name.
    pub name: String,
    pub(super) settings: AimdConfig,
    /// `None`: the settings' own.
    pub(super) make: Option<MakeAlgorithm>,
}

impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Contender {
    /// The contenders of the table, in its order.
    #[must_use]
    pub fn all() -> Vec<Self> {
        [Self::aimd(), Self::ramped(), Self::vegas(), Self::tide(), Self::fixed()].into()
    }

    /// AIMD as it is by default.
    #[must_use]
    pub fn aimd() -> Self {
        Self { name: "aimd".to_string(), settings: AimdConfig::default(), make: None }
    }

    /// AIMD that climbs for ten seconds first.
    #[must_use]
    pub fn ramped() -> Self {
        let settings = AimdConfig { ramp: Duration::from_secs(10), ..AimdConfig::default() };
        Self { name: "aimd, ramp".to_string(), settings, make: None }
    }

    /// The one that watches latency.
    #[must_use]
    pub fn vegas() -> Self {
        Self::new("vegas", |_| Ok(Box::new(Vegas::new(VegasConfig::default())?)))
    }

    /// The one that remembers the ceiling.
    #[must_use]
    pub fn tide() -> Self {
        Self::new("tide", |_| Ok(Box::new(Tide::new(TideConfig::default())?)))
    }

    /// The cap and nothing less.
    #[must_use]
    pub fn fixed() -> Self {
        Self::new("fixed", |cap| Ok(Box::new(Fixed::new(cap))))
    }

    /// Any other: `make` is given the cap.
    pub fn new(name: &str, make: impl Fn(u32) -> Result<Box<dyn LimitAlgorithm>, ConfigError> + 'static) -> Self {
        Self { name: name.to_string(), settings: AimdConfig::default(), make: Some(Box::new(make)) }
    }
}
