//! The contenders: the limit algorithms that the suite compares.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::error::ConfigError;
use crate::limit::{Fixed, LimitAlgorithm, Tide, TideConfig, Vegas, VegasConfig};
use crate::request::LimitConfig;
use crate::time::Duration;

/// Creates a limit algorithm for a cap.
type MakeAlgorithm = Box<dyn Fn(u32) -> Result<Box<dyn LimitAlgorithm>, ConfigError>>;

/// A limit algorithm, with the settings of the request resource that it limits.
pub struct Contender {
    /// The short name.
    pub name: String,
    /// The settings of the resource: those of AIMD, and the cooldown and the ramp of every algorithm.
    pub(super) settings: LimitConfig,
    /// Creates the algorithm. `None` is AIMD, which request admission creates from `settings`.
    pub(super) make: Option<MakeAlgorithm>,
}

impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Contender {
    /// Returns the contenders of the suite, in the order of the [`Table`](super::Table).
    #[must_use]
    pub fn all() -> Vec<Self> {
        [Self::aimd(), Self::ramped(), Self::vegas(), Self::tide(), Self::fixed()].into()
    }

    /// Returns [`Aimd`](crate::limit::Aimd) with the default settings.
    #[must_use]
    pub fn aimd() -> Self {
        Self { name: "aimd".to_string(), settings: LimitConfig::default(), make: None }
    }

    /// Returns [`Aimd`](crate::limit::Aimd) with a start-up ramp of ten seconds.
    #[must_use]
    pub fn ramped() -> Self {
        let settings = LimitConfig { ramp: Duration::from_secs(10), ..LimitConfig::default() };
        Self { name: "aimd, ramp".to_string(), settings, make: None }
    }

    /// Returns [`Vegas`] with the default settings.
    #[must_use]
    pub fn vegas() -> Self {
        Self::new("vegas", |_| Ok(Box::new(Vegas::new(VegasConfig::default())?)))
    }

    /// Returns [`Tide`] with the default settings.
    #[must_use]
    pub fn tide() -> Self {
        Self::new("tide", |_| Ok(Box::new(Tide::new(TideConfig::default())?)))
    }

    /// Returns [`Fixed`], with the cap as its limit.
    #[must_use]
    pub fn fixed() -> Self {
        Self::new("fixed", |cap| Ok(Box::new(Fixed::new(cap))))
    }

    /// Creates a contender from any algorithm. Each run calls `make` once, with the [cap](super::ControlCase)
    /// of its case. An error of `make` is returned by the function that runs the contender.
    pub fn new(name: &str, make: impl Fn(u32) -> Result<Box<dyn LimitAlgorithm>, ConfigError> + 'static) -> Self {
        Self { name: name.to_string(), settings: LimitConfig::default(), make: Some(Box::new(make)) }
    }
}
