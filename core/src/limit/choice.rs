//! The choice of a limit algorithm, as a setting.

use alloc::boxed::Box;

use super::{Fixed, LimitAlgorithm, Tide, TideConfig, Vegas, VegasConfig};
use crate::error::{ConfigError, require};

/// Selects the algorithm that decides a resource's limit.
///
/// In a scenario file: `{ name = "tide", probe_after = 8 }`. The default in the core is
/// [`LimitChoice::Aimd`], which the recorded traces in the tests use. The hosts use [`LimitChoice::Tide`] by
/// default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(tag = "name", rename_all = "snake_case", deny_unknown_fields))]
#[non_exhaustive]
pub enum LimitChoice {
    /// Additive increase, multiplicative decrease, with the resource's own settings: [`Aimd`](super::Aimd).
    #[default]
    #[cfg_attr(feature = "serde", serde(deserialize_with = "no_settings"))]
    Aimd,
    /// Derives the limit from latency, which shows how many calls are queued: [`Vegas`].
    Vegas(VegasConfig),
    /// Learns the capacity from refusals and latency: [`Tide`].
    Tide(TideConfig),
    /// A constant limit: [`Fixed`].
    Fixed {
        /// The limit, at least 1. Default: the cap, which the limit then follows.
        #[cfg_attr(feature = "serde", serde(default = "no_bound", skip_serializing_if = "is_no_bound"))]
        limit: u32,
    },
}

/// Returns the limit that only the cap bounds.
#[cfg(feature = "serde")]
fn no_bound() -> u32 {
    u32::MAX
}

#[cfg(feature = "serde")]
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_no_bound(limit: &u32) -> bool {
    *limit == u32::MAX
}

/// Deserializes a variant that has no settings. The derived code would ignore unknown keys here.
#[cfg(feature = "serde")]
fn no_settings<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NoSettings {}
    serde::Deserialize::deserialize(deserializer).map(|NoSettings {}| ())
}

impl LimitChoice {
    /// A constant limit at the cap of the resource, also after the cap has changed.
    pub const AT_CAP: Self = Self::Fixed { limit: u32::MAX };

    /// Returns whether this is [`LimitChoice::Aimd`], the default.
    #[must_use]
    pub fn is_aimd(&self) -> bool {
        *self == Self::Aimd
    }

    /// Returns the algorithm's name, as in a file.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Aimd => "aimd",
            Self::Vegas(_) => "vegas",
            Self::Tide(_) => "tide",
            Self::Fixed { .. } => "fixed",
        }
    }

    /// Returns the highest limit that the algorithm can choose if there is no cap.
    pub(crate) fn most(&self) -> u32 {
        match self {
            Self::Fixed { limit } => *limit,
            Self::Aimd | Self::Vegas(_) | Self::Tide(_) => u32::MAX,
        }
    }

    /// Creates a new algorithm of this kind, for
    /// [`set_algorithm`](crate::request::RequestAdmission::set_algorithm).
    ///
    /// Returns `None` for [`LimitChoice::Aimd`], which every resource starts with, and an error if a setting
    /// is out of range.
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
