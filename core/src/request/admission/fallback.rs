//! Fallbacks: calls that go elsewhere while the provider and model that they would rather have is of no use.
//!
//! A request may name an ordered list of resources. It calls the first that is *of use*: one whose provider
//! and model is neither down nor unavailable, and has not answered nothing but rate limits for
//! [`fallback_after`](crate::request::HealthConfig::fallback_after). Where one call is due that finds out how
//! such a provider is, as a probe is, one request with fallbacks makes it. If none is of use, the request
//! waits for the one that may be soonest.
//!
//! What waits does not stay where it is of no use: it is rejected with [`DenialReason::FallBack`], asks
//! again, and is queued where it is now. So it goes back, too, when a provider that comes before in its list
//! is of use again.
//!
//! Which of its requests wait where is counted by list, so that the end of a call costs O(lists) and not
//! O(waiters), unless some have to move.

use alloc::vec::Vec;

use super::{Address, RequestAdmission};
use crate::error::{ConfigError, require};
use crate::id::SlotKey;
use crate::request::answer::{Denial, DenialReason};
use crate::request::keys::{FallbackId, Request, ResourceId};
use crate::request::provider::ProviderModel;
use crate::request::timers::Timer;
use crate::time::Instant;

/// Registration.
impl RequestAdmission {
    /// Makes a list of fallbacks for [`Request::with_fallbacks`]: a request calls the first of `resources`
    /// that is of use. Equal lists have one id.
    ///
    /// A resource is of no use while its provider and model is down or unavailable, or once it has answered
    /// nothing but rate limits for [`fallback_after`](crate::request::HealthConfig::fallback_after). A
    /// request that waits then is rejected with [`DenialReason::FallBack`] and has to ask again; a
    /// [`Gate`](crate::gate::Gate) does that by itself. The [lease](crate::request::RequestLease::resource)
    /// says what is called. Without [health](crate::request::RequestConfig::health) the first is always of
    /// use.
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
    /// let _ = admission.release(now, lease, &Outcome::KeyRefused.into());
    ///
    /// let lease = admission.try_acquire(now, &request).expect("there is room");
    /// assert_eq!(lease.resource(), small);
    /// # let _ = admission.release(now, lease, &Outcome::Success.into());
    /// # Ok::<(), tidegate_core::error::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fewer than two resources, one twice, one that this controller did not make, or more than 65,535 lists.
    pub fn fallbacks(&mut self, resources: &[ResourceId]) -> Result<FallbackId, ConfigError> {
        require(resources.len() >= 2, "resources", resources.len(), "at least two")?;
        for (place, resource) in resources.iter().enumerate() {
            let is_known = self.find(*resource).is_some();
            require(is_known, "resources", resource.index(), "resources that this controller made")?;
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
    /// The call that a request with fallbacks makes at `now`.
    #[cold]
    pub(super) fn choose(&mut self, now: Instant, request: &Request, fallback: FallbackId) -> Result<Request, Denial> {
        // What fell due may end the patience with one of them.
        self.expire(now);
        let unregistered = Denial { reason: DenialReason::Unregistered, changes_at: None };
        let list = self.shared.fallbacks.get_mut(fallback.index()).ok_or(unregistered)?;
        if list.resources[0] != request.resource {
            return Err(unregistered);
        }
        list.is_trial_offered = false;
        let resource = self.best(now, fallback.index(), None);
        Ok(Request { resource, ..*request })
    }

    /// The resource of a list that is to be called at `now`, by one that waits for `waits_for` or for none of
    /// them yet.
    fn best(&self, now: Instant, list: usize, waits_for: Option<ResourceId>) -> ResourceId {
        let resources = &self.shared.fallbacks.get(list).expect("the list is known").resources;
        let of_use = resources.iter().find(|resource| {
            let (provider, slot) = self.place(**resource);
            provider.is_usable(now, slot, waits_for == Some(**resource))
        });
        let soonest = |resource: &&ResourceId| {
            let (provider, slot) = self.place(**resource);
            let is_unavailable = provider.is_unavailable(now);
            let never = if is_unavailable { Instant::MAX } else { now };
            (is_unavailable, provider.next_change(now, slot).unwrap_or(never))
        };
        *of_use.or_else(|| resources.iter().min_by_key(soonest)).expect("a list is not empty")
    }

    /// What is called instead of `resource` at `now` by requests with fallbacks, if there are any.
    pub(super) fn fallback_for(&self, now: Instant, resource: ResourceId) -> ResourceId {
        let mut lists = 0..self.shared.fallbacks.len();
        let begins = |list: &usize| self.shared.fallbacks.get(*list).is_some_and(|it| it.resources[0] == resource);
        lists.find(begins).map_or(resource, |list| self.best(now, list, None))
    }

    fn place(&self, resource: ResourceId) -> (&ProviderModel, usize) {
        let Address { provider, slot } = self.address(resource);
        (&self.providers[provider as usize], slot as usize)
    }
}

/// Waiting.
impl RequestAdmission {
    /// Tells the requests to ask again that are to call something else now. O(lists), and O(waiters) if there
    /// are any.
    #[inline]
    pub(super) fn reconsider_fallbacks(&mut self, now: Instant) {
        if self.shared.fallbacks.has_waiters() {
            self.reconsider_lists(now);
        }
    }

    #[cold]
    fn reconsider_lists(&mut self, now: Instant) {
        for index in 0..self.shared.fallbacks.len() {
            let Some(list) = self.shared.fallbacks.get(index) else { break };
            let (resources, waiting) = (list.resources.clone(), list.waiting.clone());
            for (resource, _) in resources.into_iter().zip(waiting).filter(|(_, count)| *count > 0) {
                self.move_from(now, index, resource);
            }
        }
        self.arm_fallbacks(now);
    }

    /// Moves the requests of a list that wait for `from`, if there is better.
    fn move_from(&mut self, now: Instant, list: usize, from: ResourceId) {
        let best = self.best(now, list, Some(from));
        if best == from {
            return;
        }
        let ((here, _), (there, slot)) = (self.place(from), self.place(best));
        let moves_all = there.serves(now) || here.is_unavailable(now) && !there.is_unavailable(now);
        let offers_trial = there.is_usable(now, slot, false);
        let id = FallbackId::new(list);
        let waiters = self.shared.waiters.iter();
        let waiters = waiters.filter(|(_, waiter)| waiter.fallback == id && waiter.resource == from);
        let mut waiters: Vec<(u64, SlotKey)> = waiters.map(|(key, waiter)| (waiter.number, key)).collect();
        waiters.sort_unstable();
        if !moves_all {
            let Some(list) = self.shared.fallbacks.get_mut(list) else { return };
            let is_first = offers_trial && !core::mem::replace(&mut list.is_trial_offered, offers_trial);
            waiters.truncate(usize::from(is_first));
        }
        for (_, key) in waiters {
            self.reject(now, key, DenialReason::FallBack);
        }
    }

    /// Arms the instant at which time alone may change what requests with fallbacks wait for.
    fn arm_fallbacks(&mut self, now: Instant) {
        let lists = (0..self.shared.fallbacks.len()).filter_map(|index| self.shared.fallbacks.get(index));
        let used = lists.filter(|list| list.waiting.iter().any(|count| *count > 0));
        let changes = used.flat_map(|list| &list.resources).filter_map(|resource| {
            let (provider, slot) = self.place(*resource);
            if provider.serves(now) { provider.gives_up_at() } else { provider.next_change(now, slot) }
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
