//! What a request asks for: provider, model, domain, and the fairness group it waits in.

use alloc::string::String;
use core::fmt;
use core::num::NonZeroU16;

use crate::budget::Usage;
use crate::time::Duration;

/// The most resources, provider models or groups of one controller: 2^20 of each.
pub const MAX_IDS: u32 = 1 << INDEX_BITS;

/// An id as one number has the controller's number above this many bits.
const INDEX_BITS: u32 = 20;

macro_rules! controller_id {
    ($(#[$doc:meta])* $Name:ident, $of:literal) => {
        $(#[$doc])*
        ///
        /// It names its controller, so another controller refuses it. Serialised as one number, which
        /// JavaScript holds exactly: the controller's number times 2^20, plus the index.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(from = "u64", into = "u64"))]
        pub struct $Name {
            controller: u32,
            index: u32,
        }

        impl $Name {
            #[doc = concat!("The id of ", $of, " of a controller. The controller checks it with every use.")]
            #[must_use]
            pub const fn new(controller: u32, index: u32) -> Self {
                Self { controller, index }
            }

            /// The number of its controller.
            #[must_use]
            pub const fn controller(self) -> u32 {
                self.controller
            }

            /// Its number in the controller, in order of first mention from 0.
            #[must_use]
            pub const fn index(self) -> usize {
                self.index as usize
            }
        }

        impl From<$Name> for u64 {
            fn from(id: $Name) -> Self {
                u64::from(id.controller) << INDEX_BITS | u64::from(id.index)
            }
        }

        impl From<u64> for $Name {
            fn from(number: u64) -> Self {
                Self::new((number >> INDEX_BITS) as u32, (number & u64::from(MAX_IDS - 1)) as u32)
            }
        }
    };
}

controller_id! {
    /// A registered provider and model. Its cap bounds the in-flight calls of all its domains together.
    ProviderModelId, "a provider and model"
}

controller_id! {
    /// One domain of a provider's model: the unit that has an adaptive limit.
    ResourceId, "a resource"
}

controller_id! {
    /// A fairness group of request waiters. It has one weight, and a share of its own at each provider and
    /// model.
    GroupId, "a group"
}

/// An ordered list of resources, of which a call uses the first that is of use: see
/// [`RequestAdmission::fallbacks`](super::RequestAdmission::fallbacks). For requests of the first of them
/// only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FallbackId(NonZeroU16);

impl FallbackId {
    /// The id of the list with this index; `None` beyond 65,534.
    pub(super) fn new(index: usize) -> Option<Self> {
        u16::try_from(index + 1).ok().and_then(NonZeroU16::new).map(Self)
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0.get()) - 1
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
    /// What it calls while `resource`, which is first in this list, is of no use.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub fallback: Option<FallbackId>,
}

impl Request {
    /// A call of `resource`, in the resource's own group, with the default timeout.
    #[must_use]
    pub const fn new(resource: ResourceId) -> Self {
        Self { resource, group: None, timeout: None, estimate: Usage::tokens(0, 0), fallback: None }
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

    /// The same call, of the next in a list that begins with its resource while the ones before are of no
    /// use.
    #[must_use]
    pub const fn with_fallbacks(self, fallback: FallbackId) -> Self {
        Self { fallback: Some(fallback), ..self }
    }
}
