//! What a request asks for: provider, model, domain, and the fairness group it waits in.

use alloc::string::String;
use core::fmt;

use crate::budget::Usage;
use crate::time::Duration;

/// A registered provider and model. Its cap bounds the in-flight calls of all its domains together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProviderModelId(pub(crate) u32);

impl ProviderModelId {
    /// The number of the provider and model, in order of registration from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One domain of a provider's model: the unit that has an adaptive limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ResourceId(pub(crate) u32);

impl ResourceId {
    /// The resource's number, in order of first mention from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The resource with this number. One that was never made is answered with
    /// [`DenialReason::Unregistered`](super::DenialReason::Unregistered).
    #[must_use]
    pub const fn from_index(index: u32) -> Self {
        Self(index)
    }
}

/// The kind of call. Domains of one model have limits of their own and share the model's cap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Domain {
    /// Chat and text completion.
    Chat,
    /// Embedding vectors.
    Embedding,
    /// Image generation.
    Image,
    /// Health checks.
    Healthcheck,
    /// Any other, by name.
    Other(String),
}

impl Domain {
    /// The domain's name in files and labels.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Chat => "chat",
            Self::Embedding => "embedding",
            Self::Image => "image",
            Self::Healthcheck => "healthcheck",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for Domain {
    fn from(name: &str) -> Self {
        match name {
            "chat" => Self::Chat,
            "embedding" => Self::Embedding,
            "image" => Self::Image,
            "healthcheck" => Self::Healthcheck,
            other => Self::Other(other.into()),
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A fairness group of request waiters.
pub use crate::fair_queue::GroupId;

/// One concrete outbound call that wants to go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Request {
    /// What it calls.
    pub resource: ResourceId,
    /// The fairness group it waits in; `None` is the resource's own group, of weight 1.
    #[cfg_attr(feature = "serde", serde(default))]
    pub group: Option<GroupId>,
    /// How long it may wait: zero is "now or not at all", `None` the configured default.
    #[cfg_attr(feature = "serde", serde(default))]
    pub timeout: Option<Duration>,
    /// What it is expected to use, to be reserved in the resource's budgets. Nothing, if nothing is said.
    pub estimate: Usage,
}

impl Request {
    /// A call of `resource`, in the resource's own group, with the default timeout.
    #[must_use]
    pub const fn new(resource: ResourceId) -> Self {
        Self { resource, group: None, timeout: None, estimate: Usage::tokens(0, 0) }
    }

    /// The same call, waiting in `group`.
    #[must_use]
    pub const fn in_group(self, group: GroupId) -> Self {
        Self { group: Some(group), ..self }
    }

    /// The same call, waiting at most `timeout`.
    #[must_use]
    pub const fn within(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// The same call, expected to use this much.
    #[must_use]
    pub const fn estimated(self, estimate: Usage) -> Self {
        Self { estimate, ..self }
    }
}
