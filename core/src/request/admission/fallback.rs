//! Fallbacks: requests that use another resource while the preferred provider and model is not usable.
//!
//! A request may name an ordered list of resources. It uses the first that is *usable*: its provider and
//! model is neither down nor unavailable, and has not responded only with rate limits for
//! [`fallback_after`](crate::request::HealthConfig::fallback_after). When a provider that is not usable is
//! due for a *trial call*, such as a probe, one request with fallbacks makes that call. If no resource is
//! usable, the request waits for the one that may become usable first.
//!
//! The delay before the next trial call grows with each one that fails. After a rate limit, the host requests
//! the same call again, as [repeated](Request::is_repeated): otherwise it could be the trial call each time
//! that it falls due, and wait again and again.
//!
//! A call reserves its own estimate at each resource: see [`Request::with_estimates`].
//!
//! A waiter does not stay at a resource that is not usable. It is denied with [`DenialReason::UseFallback`],
//! is requested again by the caller, and is queued at the resource that is chosen then. In the same way it
//! moves back when a resource earlier in its list becomes usable again.
//!
//! Each list counts how many of its requests wait for each resource. The end of a call therefore costs
//! O(lists), and O(waiters) only if waiters must move.

use alloc::vec::Vec;

use super::{Address, RequestAdmission};
use crate::error::{ConfigError, require};
use crate::id::SlotKey;
use crate::request::keys::{FallbackId, Request, ResourceId};
use crate::request::provider::ProviderModel;
use crate::request::result::{Denial, DenialReason};
use crate::request::timers::Timer;
use crate::time::Instant;

/// Registration.
impl RequestAdmission {
    /// Registers a list of fallbacks for [`Request::with_fallbacks`]. A request uses the first of `resources`
    /// that is usable. Equal lists have the same id.
    ///
    /// A resource is not usable while its provider and model is down or unavailable, or once it has responded
    /// only with rate limits for [`fallback_after`](crate::request::HealthConfig::fallback_after). A request
    /// that waits for it is then denied with [`DenialReason::UseFallback`], and the caller must make the
    /// request again; a [`Gate`](crate::gate::Gate) does so automatically.
    /// [`RequestLease::resource`](crate::request::RequestLease::resource) returns the resource that was
    /// chosen. Without [health tracking](crate::request::RequestConfig::health), the first resource is always
    /// usable.
    ///
    /// ```
    /// # use tidegate_core::request::{Domain, Outcome, Request, RequestAdmission, RequestConfig};
    /// # use tidegate_core::time::Instant;
    /// let mut admission = RequestAdmission::new(RequestConfig::default())?;
    /// let now = Instant::ZERO;
    /// let mut chat = |provider, model| {
    ///     let model = admission.register(now, provider, model, "default", 8)?;
    ///     admission.resource(model, Domain::Chat)
    /// };
    /// let (large, small) = (chat("a", "large")?, chat("b", "small")?);
    /// let list = admission.fallbacks(&[large, small])?;
    /// let request = Request::new(large).with_fallbacks(list);
    ///
    /// let lease = admission.try_acquire(now, &request).expect("there is room");
    /// assert_eq!(lease.resource(), large);
    /// let _ = admission.release(now, lease, &Outcome::KeyRejected.into());
    ///
    /// let lease = admission.try_acquire(now, &request).expect("there is room");
    /// assert_eq!(lease.resource(), small);
    /// # let _ = admission.release(now, lease, &Outcome::Success.into());
    /// # Ok::<(), tidegate_core::error::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fewer than two resources, a duplicate resource, a resource that this machine did not create, or
    /// more than 65,535 lists.
    pub fn fallbacks(&mut self, resources: &[ResourceId]) -> Result<FallbackId, ConfigError> {
        require(resources.len() >= 2, "resources", resources.len(), "at least two")?;
        for (place, resource) in resources.iter().enumerate() {
            let is_known = self.find(*resource).is_some();
            require(is_known, "resources", resource.index(), "resources that this machine made")?;
            require(!resources[..place].contains(resource), "resources", resource.index(), "each resource once")?;
        }
        let lists = &mut self.shared.fallbacks;
        let known = lists.find(resources);
        let index = known.unwrap_or(lists.len());
        let id = FallbackId::new(index);
        let id = id.ok_or_else(|| ConfigError::new("resources", index, "at most 65,535 lists of fallbacks"))?;
        if known.is_none() {
            lists.add(resources);
        }
        Ok(id)
    }
}

/// Choosing.
impl RequestAdmission {
    /// Returns the request with the resource of its fallbacks that it uses at `now`, and with the estimate
    /// for that resource.
    #[cold]
    pub(super) fn choose_fallback(
        &mut self,
        now: Instant,
        request: &Request,
        fallback: FallbackId,
    ) -> Result<Request, Denial> {
        // A due timer may make a provider of the list unavailable.
        self.expire(now);
        let unregistered = Denial { reason: DenialReason::Unregistered, changes_at: None };
        let list = self.shared.fallbacks.get_mut(fallback.index()).ok_or(unregistered)?;
        if list.resources[0] != request.resource {
            return Err(unregistered);
        }
        list.is_trial_offered = false;
        let resource = self.best_resource(now, fallback.index(), None, request.is_repeated);
        self.note_passed_over(now, fallback.index(), resource, request.is_repeated);
        let list = self.shared.fallbacks.get(fallback.index());
        let place = list.and_then(|list| list.place(resource)).expect("the resource is one of the list");
        Ok(request.moved_to(resource, place))
    }

    /// Returns the resource of a list to use at `now`, for a request that waits for `waits_for`, or for none
    /// of them yet, and whose call was made before if `is_repeated`.
    fn best_resource(&self, now: Instant, list: usize, waits_for: Option<ResourceId>, is_repeated: bool) -> ResourceId {
        let resources = &self.shared.fallbacks.get(list).expect("the list is known").resources;
        let usable = resources.iter().find(|resource| {
            let (provider, slot) = self.provider_of(**resource);
            provider.is_usable(now, slot, waits_for == Some(**resource), is_repeated)
        });
        let soonest = |resource: &&ResourceId| {
            let (provider, slot) = self.provider_of(**resource);
            let is_unavailable = provider.is_unavailable(now);
            let if_unknown = if is_unavailable { Instant::MAX } else { now };
            (is_unavailable, provider.next_change(now, slot).unwrap_or(if_unknown))
        };
        *usable.or_else(|| resources.iter().min_by_key(soonest)).expect("a list is not empty")
    }

    /// Records that a request uses `chosen` of a list, for the resources before it.
    fn note_passed_over(&mut self, now: Instant, list: usize, chosen: ResourceId, is_repeated: bool) {
        let Some(list) = self.shared.fallbacks.get(list) else { return };
        for resource in list.resources.iter().take_while(|resource| **resource != chosen) {
            let Address { provider, slot } = self.addresses[resource.index()];
            self.providers[provider as usize].note_passed_over(now, slot as usize, is_repeated);
        }
    }

    /// Returns the resource that requests with fallbacks use instead of `resource` at `now`, according to the
    /// first list that begins with it. Returns `resource` if there is no such list.
    pub(super) fn fallback_for(&self, now: Instant, resource: ResourceId) -> ResourceId {
        let mut lists = 0..self.shared.fallbacks.len();
        let begins_with = |list: &usize| self.shared.fallbacks.get(*list).is_some_and(|it| it.resources[0] == resource);
        lists.find(begins_with).map_or(resource, |list| self.best_resource(now, list, None, false))
    }

    fn provider_of(&self, resource: ResourceId) -> (&ProviderModel, usize) {
        let Address { provider, slot } = self.address(resource);
        (&self.providers[provider as usize], slot as usize)
    }
}

/// Waiting.
impl RequestAdmission {
    /// Denies the waiters with fallbacks that should now use another resource, so that they are requested
    /// again. O(lists), and O(waiters) if waiters move.
    #[inline]
    pub(super) fn move_fallback_waiters(&mut self, now: Instant) {
        if self.shared.fallbacks.has_waiters() {
            self.move_waiters_of_lists(now);
        }
    }

    #[cold]
    fn move_waiters_of_lists(&mut self, now: Instant) {
        for index in 0..self.shared.fallbacks.len() {
            let Some(list) = self.shared.fallbacks.get(index) else { break };
            let (resources, waiting) = (list.resources.clone(), list.waiting.clone());
            for (resource, _) in resources.into_iter().zip(waiting).filter(|(_, count)| *count > 0) {
                for is_repeated in [false, true] {
                    self.move_from(now, index, resource, is_repeated);
                }
            }
        }
        self.arm_fallbacks(now);
    }

    /// Denies the repeated waiters of a list that wait for `from`, or the others, if another resource is
    /// better. If that resource needs only a trial call, denies one waiter.
    fn move_from(&mut self, now: Instant, list: usize, from: ResourceId, is_repeated: bool) {
        let best = self.best_resource(now, list, Some(from), is_repeated);
        self.note_passed_over(now, list, best, is_repeated);
        if best == from {
            return;
        }
        let ((current, _), (better, slot)) = (self.provider_of(from), self.provider_of(best));
        let moves_all = better.serves(now) || current.is_unavailable(now) && !better.is_unavailable(now);
        let offers_trial = better.is_usable(now, slot, false, is_repeated);
        let id = FallbackId::new(list);
        let waiters = self.shared.waiters.iter();
        let waiters = waiters.filter(|(_, waiter)| {
            waiter.fallback == id && waiter.resource == from && waiter.is_repeated == is_repeated
        });
        let mut waiters: Vec<(u64, SlotKey)> = waiters.map(|(key, waiter)| (waiter.number, key)).collect();
        waiters.sort_unstable();
        if !moves_all {
            let Some(list) = self.shared.fallbacks.get_mut(list) else { return };
            let makes_offer = offers_trial && !list.is_trial_offered;
            waiters.truncate(usize::from(makes_offer));
            let keeps_offer = list.is_trial_offered && (offers_trial || is_repeated);
            list.is_trial_offered = keeps_offer || !waiters.is_empty();
        }
        for (_, key) in waiters {
            self.deny_waiter(now, key, DenialReason::UseFallback);
        }
    }

    /// Arms the timer for the next instant at which time alone may change the resource that waiters with
    /// fallbacks should use.
    fn arm_fallbacks(&mut self, now: Instant) {
        let lists = (0..self.shared.fallbacks.len()).filter_map(|index| self.shared.fallbacks.get(index));
        let used = lists.filter(|list| list.waiting.iter().any(|count| *count > 0));
        let changes = used.flat_map(|list| &list.resources).filter_map(|resource| {
            let (provider, slot) = self.provider_of(*resource);
            if provider.serves(now) { provider.gives_up_at() } else { provider.next_trial(now, slot) }
        });
        let wake_at = changes.filter(|at| *at > now).min();
        if wake_at != self.shared.fallbacks.wake_at {
            self.shared.fallbacks.wake_at = wake_at;
            if let Some(at) = wake_at {
                self.arm(at, Timer::Fallback);
            }
        }
    }
}
