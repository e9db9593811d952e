//! A limit algorithm as a setting.

use alloc::boxed::Box;
#[cfg(feature = "serde")]
use alloc::string::String;

use super::{Fixed, LimitAlgorithm, Tide, TideConfig, Vegas, VegasConfig};
use crate::error::{ConfigError, require};
#[cfg(feature = "serde")]
use crate::time::Duration;
#[cfg(feature = "serde")]
use crate::written::{nothing_left, taken};

/// Which algorithm decides a resource's limit. In a file: `{ name = "tide", probe_after = 8 }`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "name", rename_all = "snake_case", try_from = "Written"))]
#[non_exhaustive]
pub enum LimitChoice {
    /// [`Aimd`](super::Aimd), by the resource's own settings.
    #[default]
    Aimd,
    /// [`Vegas`].
    Vegas(VegasConfig),
    /// [`Tide`].
    Tide(TideConfig),
    /// [`Fixed`].
    Fixed {
        /// Calls at once, at least 1.
        limit: u32,
    },
}

/// A choice as it is written.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: Name,
    #[serde(default)]
    limit: Option<u32>,
    #[serde(default)]
    initial_limit: Option<u32>,
    #[serde(default)]
    alpha: Option<f64>,
    #[serde(default)]
    beta: Option<f64>,
    #[serde(default)]
    windows_until_relearned: Option<u32>,
    #[serde(default)]
    probe_after: Option<u32>,
    #[serde(default)]
    probe_after_most: Option<u32>,
    #[serde(default)]
    pauses_between_probes: Option<u32>,
    #[serde(default)]
    decrease_factor: Option<f64>,
    #[serde(default, rename = "longest_pause_ms", with = "crate::millis::option")]
    longest_pause: Option<Duration>,
    #[serde(default)]
    latency_tolerance: Option<f64>,
}

#[cfg(feature = "serde")]
#[derive(Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum Name {
    Aimd,
    Vegas,
    Tide,
    Fixed,
}

#[cfg(feature = "serde")]
impl Written {
    fn vegas(&mut self) -> VegasConfig {
        let default = VegasConfig::default();
        VegasConfig {
            initial_limit: self.initial_limit.take().unwrap_or(default.initial_limit),
            alpha: self.alpha.take().unwrap_or(default.alpha),
            beta: self.beta.take().unwrap_or(default.beta),
            windows_until_relearned: self.windows_until_relearned.take().unwrap_or(default.windows_until_relearned),
        }
    }

    fn tide(&mut self) -> TideConfig {
        let default = TideConfig::default();
        TideConfig {
            initial_limit: self.initial_limit.take().unwrap_or(default.initial_limit),
            probe_after: self.probe_after.take().unwrap_or(default.probe_after),
            probe_after_most: self.probe_after_most.take().unwrap_or(default.probe_after_most),
            pauses_between_probes: self.pauses_between_probes.take().unwrap_or(default.pauses_between_probes),
            decrease_factor: self.decrease_factor.take().unwrap_or(default.decrease_factor),
            longest_pause: self.longest_pause.take().unwrap_or(default.longest_pause),
            latency_tolerance: self.latency_tolerance.take().unwrap_or(default.latency_tolerance),
        }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<Written> for LimitChoice {
    type Error = String;

    fn try_from(mut written: Written) -> Result<Self, String> {
        let choice = match written.name {
            Name::Aimd => Self::Aimd,
            Name::Vegas => Self::Vegas(written.vegas()),
            Name::Tide => Self::Tide(written.tide()),
            Name::Fixed => Self::Fixed { limit: taken(&mut written.limit, "limit")? },
        };
        let left = [
            ("limit", written.limit.is_some()),
            ("initial_limit", written.initial_limit.is_some()),
            ("alpha", written.alpha.is_some()),
            ("beta", written.beta.is_some()),
            ("windows_until_relearned", written.windows_until_relearned.is_some()),
            ("probe_after", written.probe_after.is_some()),
            ("probe_after_most", written.probe_after_most.is_some()),
            ("pauses_between_probes", written.pauses_between_probes.is_some()),
            ("decrease_factor", written.decrease_factor.is_some()),
            ("longest_pause_ms", written.longest_pause.is_some()),
            ("latency_tolerance", written.latency_tolerance.is_some()),
        ];
        nothing_left(&left, "algorithm").map(|()| choice)
    }
}

impl LimitChoice {
    /// Whether it is the default.
    #[must_use]
    pub fn is_aimd(&self) -> bool {
        *self == Self::Aimd
    }

    /// Its name, as files write it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Aimd => "aimd",
            Self::Vegas(_) => "vegas",
            Self::Tide(_) => "tide",
            Self::Fixed { .. } => "fixed",
        }
    }

    /// A fresh one of its kind, to be given to
    /// [`set_algorithm`](crate::request::RequestAdmission::set_algorithm); `None` for [`LimitChoice::Aimd`], which a resource
    /// has from the beginning.
    pub fn make(&self) -> Result<Option<Box<dyn LimitAlgorithm>>, ConfigError> {
        Ok(match *self {
            Self::Aimd => None,
            Self::Vegas(config) => Some(Box::new(Vegas::new(config)?)),
            Self::Tide(config) => Some(Box::new(Tide::new(config)?)),
            Self::Fixed { limit } => {
                require(limit > 0, "limit", limit, "at least 1")?;
                Some(Box::new(Fixed::new(limit)))
            }
        })
    }
}
