//! The ids of provider models, resources and fairness groups, and the description of a request.

use alloc::string::String;
use core::fmt;
use core::num::NonZeroU16;

use crate::budget::Usage;
use crate::time::Duration;

/// The largest number of resources, of provider models and of groups that one
/// [`RequestAdmission`](crate::request::RequestAdmission) can have: 2^20 of each.
pub const MAX_IDS: u32 = 1 << INDEX_BITS;

/// In the numeric form of an id, the index uses this many low bits; the number of the machine is above them.
const INDEX_BITS: u32 = 20;

macro_rules! controller_id {
    ($(#[$doc:meta])* $Name:ident, $of:literal) => {
        $(#[$doc])*
        ///
        /// The id contains the number of the machine that issued it, and every other machine rejects it. It
        /// is serialised as one number that JavaScript represents exactly: the number of the machine times
        /// 2^20, plus the index.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(from = "u64", into = "u64"))]
        pub struct $Name {
            controller: u32,
            index: u32,
        }

        impl $Name {
            #[doc = concat!("Creates the id of ", $of, " from the number of its machine and an index. The machine checks the id at each use.")]
            #[must_use]
            pub const fn new(controller: u32, index: u32) -> Self {
                Self { controller, index }
            }

            /// Returns the number of the machine that issued the id: `RequestConfig::controller`.
            #[must_use]
            pub const fn controller(self) -> u32 {
                self.controller
            }

            /// Returns its index in the machine, counted from 0 in order of registration.
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
    /// The id of a registered provider and model. Its cap bounds the calls in flight over all its domains.
    ProviderModelId, "a provider and model"
}

controller_id! {
    /// The id of a resource: one domain of a provider's model. Each resource has an adaptive limit.
    ResourceId, "a resource"
}

controller_id! {
    /// The id of a fairness group of waiters. A group has one weight, and a separate share at each provider
    /// and model.
    GroupId, "a group"
}

/// The id of an ordered list of resources, of which a call uses the first that is usable: see
/// [`RequestAdmission::fallbacks`](super::RequestAdmission::fallbacks). Only requests for the first resource
/// of the list may name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FallbackId(NonZeroU16);

impl FallbackId {
    /// Creates the id of the list with this index. Returns `None` above 65,534.
    pub(super) fn new(index: usize) -> Option<Self> {
        u16::try_from(index + 1).ok().and_then(NonZeroU16::new).map(Self)
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0.get()) - 1
    }
}

/// The kind of a call. Each domain of a model has its own limit, and all domains share the model's cap.
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
    /// Any other kind, by name.
    Other(String),
}

impl Domain {
    /// Returns the name of the domain that is used in files and labels.
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

/// The expected usage of a request, in tokens, at each resource of its list of fallbacks but the first.
/// [`Request::with_estimates`] creates it.
///
/// So that a [`Request`] is small and can be copied, it has one estimate each for the second and the third
/// resource of the list, and one for all resources after them: the largest of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FallbackEstimates([Usage; 3]);

impl FallbackEstimates {
    /// Creates it from the estimates in the order of the list, without that of the first resource. Resources
    /// beyond the last estimate use the last one. Returns `None` if there are no estimates.
    fn new(estimates: &[Usage]) -> Option<Self> {
        let last = *estimates.last()?;
        let at = |place: usize| estimates.get(place).copied().unwrap_or(last);
        let largest = estimates.iter().skip(2).copied().reduce(Usage::max_of_each).unwrap_or(last);
        Some(Self([at(0), at(1), largest]))
    }

    /// Returns the estimate at the resource in this place, where the second resource of the list is at 0.
    fn at(self, place: usize) -> Usage {
        let Self(estimates) = self;
        estimates[place.min(estimates.len() - 1)]
    }
}

/// A request to make one outbound call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Request {
    /// The resource to call.
    pub resource: ResourceId,
    /// The fairness group to wait in. `None` means the resource's own group, of weight 1 unless
    /// [`set_resource_weight`](super::RequestAdmission::set_resource_weight) changes it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub group: Option<GroupId>,
    /// How long the request may wait. Zero means that it never waits; `None` means the configured default.
    #[cfg_attr(feature = "serde", serde(default))]
    pub timeout: Option<Duration>,
    /// The expected usage at `resource`, which is reserved in the resource's budgets. The default of
    /// [`Request::new`] is zero tokens.
    pub estimate: Usage,
    /// The list of resources to use while `resource` is not usable. The first resource of the list must be
    /// `resource`.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub fallback: Option<FallbackId>,
    /// The expected usage at the later resources of the list, which is reserved if the request uses one of
    /// them. `None` means that it is `estimate` at all of them.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub fallback_estimates: Option<FallbackEstimates>,
    /// Whether the same call was made before, as after a rate limit. While another resource of its list is
    /// usable, a repeated call is not the trial call of a provider that responds only with rate limits.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "core::ops::Not::not"))]
    pub is_repeated: bool,
}

impl Request {
    /// Creates a request for `resource`, in the resource's own group, with the default timeout.
    #[must_use]
    pub const fn new(resource: ResourceId) -> Self {
        Self {
            resource,
            group: None,
            timeout: None,
            estimate: Usage::tokens(0, 0),
            fallback: None,
            fallback_estimates: None,
            is_repeated: false,
        }
    }

    /// Returns the request with its fairness group set to `group`.
    #[must_use]
    pub const fn in_group(self, group: GroupId) -> Self {
        Self { group: Some(group), ..self }
    }

    /// Returns the request with its timeout set to `timeout`.
    #[must_use]
    pub const fn within(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Returns the request with its expected usage set to `estimate`.
    #[must_use]
    pub const fn estimated(self, estimate: Usage) -> Self {
        Self { estimate, ..self }
    }

    /// Returns the request with its expected usage at each resource of its list of fallbacks, in the order of
    /// the list. Resources beyond the last estimate use the last one. From the fourth resource on, each uses
    /// the largest of their numbers of tokens. Without estimates, the request is unchanged.
    #[must_use]
    pub fn with_estimates(self, estimates: &[Usage]) -> Self {
        match estimates {
            [] => self,
            [estimate, later @ ..] => {
                Self { estimate: *estimate, fallback_estimates: FallbackEstimates::new(later), ..self }
            }
        }
    }

    /// Returns the request with a list of fallbacks, which must begin with the request's resource.
    #[must_use]
    pub const fn with_fallbacks(self, fallback: FallbackId) -> Self {
        Self { fallback: Some(fallback), ..self }
    }

    /// Returns the request with [`Self::is_repeated`] set to `is_repeated`.
    #[must_use]
    pub const fn repeated(self, is_repeated: bool) -> Self {
        Self { is_repeated, ..self }
    }

    /// Returns the request for the resource in this place of its list of fallbacks, counted from 0, with the
    /// expected usage at that resource.
    pub(super) fn moved_to(self, resource: ResourceId, place: usize) -> Self {
        let estimates = self.fallback_estimates.zip(place.checked_sub(1));
        let estimate = estimates.map_or(self.estimate, |(estimates, later)| estimates.at(later));
        Self { resource, estimate, ..self }
    }
}
