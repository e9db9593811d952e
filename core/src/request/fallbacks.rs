//! Ordered lists of fallback resources, and how many requests of each list wait for each resource.
//! `admission/fallback.rs` decides which resource a request uses.

use alloc::vec::Vec;

use super::keys::ResourceId;
use super::waiter::Waiter;
use crate::time::Instant;

/// The fallback lists of one request admission.
#[derive(Clone, Debug, Default)]
pub(super) struct Fallbacks {
    lists: Vec<FallbackList>,
    /// The number of requests with fallbacks that wait.
    waiting: u32,
    /// The instant of the current [`Timer::Fallback`](super::timers::Timer::Fallback), if one is armed.
    pub(super) wake_at: Option<Instant>,
}

/// One list of fallbacks.
#[derive(Clone, Debug)]
pub(super) struct FallbackList {
    /// The resources, in order of preference.
    pub(super) resources: Vec<ResourceId>,
    /// The number of requests that wait for each of `resources`.
    pub(super) waiting: Vec<u32>,
    /// Whether one waiter of the list was denied so that it can make the single trial call of a provider
    /// that is not usable. No further waiter is moved for that call until a request of the list is made.
    pub(super) is_trial_offered: bool,
}

impl FallbackList {
    /// Returns the place of a resource in the list, counted from 0.
    pub(super) fn place(&self, resource: ResourceId) -> Option<usize> {
        self.resources.iter().position(|other| *other == resource)
    }
}

impl Fallbacks {
    /// Returns the index of the list with these resources.
    pub(super) fn find(&self, resources: &[ResourceId]) -> Option<usize> {
        self.lists.iter().position(|list| list.resources == resources)
    }

    /// Appends a list. Its index is the previous [`Self::len`].
    pub(super) fn add(&mut self, resources: &[ResourceId]) {
        let waiting = alloc::vec![0; resources.len()];
        self.lists.push(FallbackList { resources: resources.to_vec(), waiting, is_trial_offered: false });
    }

    pub(super) fn len(&self) -> usize {
        self.lists.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&FallbackList> {
        self.lists.get(index)
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut FallbackList> {
        self.lists.get_mut(index)
    }

    /// Returns whether any request with fallbacks waits.
    pub(super) fn has_waiters(&self) -> bool {
        self.waiting > 0
    }

    /// Counts a request that starts to wait.
    pub(super) fn join(&mut self, waiter: &Waiter) {
        if let Some(waiting) = self.waiting_of(waiter) {
            *waiting += 1;
            self.waiting += 1;
        }
    }

    /// Removes a request that no longer waits from the counts.
    pub(super) fn leave(&mut self, waiter: &Waiter) {
        if let Some(waiting) = self.waiting_of(waiter) {
            *waiting -= 1;
            self.waiting -= 1;
        }
    }

    fn waiting_of(&mut self, waiter: &Waiter) -> Option<&mut u32> {
        let list = self.lists.get_mut(waiter.fallback?.index())?;
        let place = list.place(waiter.resource)?;
        list.waiting.get_mut(place)
    }
}
