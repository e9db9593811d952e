//! A limit algorithm as a setting.

use alloc::boxed::Box;

use super::{Fixed, LimitAlgorithm, Tide, TideConfig, Vegas, VegasConfig};
use crate::error::{ConfigError, require};

/// Which algorithm decides a resource's limit. In a file: `{ name = "tide", probe_after = 8 }`.
///
/// The default is the core's: AIMD, the reference of the recorded traces. The hosts start with tide.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "name", rename_all = "snake_case", deny_unknown_fields))]
#[non_exhaustive]
pub enum LimitChoice {
    /// [`Aimd`](super::Aimd), by the resource's own settings.
    #[default]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "no_settings"))]
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

/// Reads a variant without settings. The derived code would ignore keys that do not belong there.
#[cfg(feature = "serde")]
fn no_settings<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NoSettings {}
    serde::Deserialize::deserialize(deserializer).map(|NoSettings {}| ())
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

    /// The most that its limit can become, whatever the cap.
    pub(crate) fn most(&self) -> u32 {
        match self {
            Self::Fixed { limit } => *limit,
            Self::Aimd | Self::Vegas(_) | Self::Tide(_) => u32::MAX,
        }
    }

    /// A fresh one of its kind, to be given to
    /// [`set_algorithm`](crate::request::RequestAdmission::set_algorithm); `None` for [`LimitChoice::Aimd`],
    /// which a resource has from the beginning.
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
