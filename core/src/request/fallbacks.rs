//! Ordered lists of resources, and how many requests wait for each because of its list. Who uses what is
//! decided in `admission/fallback.rs`.

use alloc::vec::Vec;

use super::keys::ResourceId;
use super::shared::Waiter;
use crate::time::Instant;

/// The lists of a controller.
#[derive(Clone, Debug, Default)]
pub(super) struct Fallbacks {
    lists: Vec<FallbackList>,
    /// Requests with fallbacks that wait.
    waiting: u32,
    /// The instant that is armed for them, if any.
    pub(super) wake_at: Option<Instant>,
}

/// One list.
#[derive(Clone, Debug)]
pub(super) struct FallbackList {
    /// The first comes first.
    pub(super) resources: Vec<ResourceId>,
    /// Requests that wait, by place in the list.
    pub(super) waiting: Vec<u32>,
    /// Whether one of them was told to ask again for the one call that finds out how a provider is.
    pub(super) is_trial_offered: bool,
}

impl Fallbacks {
    /// The index of a list, if it is known.
    pub(super) fn find(&self, resources: &[ResourceId]) -> Option<usize> {
        self.lists.iter().position(|list| list.resources == resources)
    }

    /// Adds a list after the [others](Self::len).
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

    /// Whether any request with fallbacks waits.
    pub(super) fn has_waiters(&self) -> bool {
        self.waiting > 0
    }

    /// Counts a request that begins to wait.
    pub(super) fn join(&mut self, waiter: &Waiter) {
        if let Some(waiting) = self.waiting_of(waiter) {
            *waiting += 1;
            self.waiting += 1;
        }
    }

    /// Counts out a request that waits no more.
    pub(super) fn leave(&mut self, waiter: &Waiter) {
        if let Some(waiting) = self.waiting_of(waiter) {
            *waiting -= 1;
            self.waiting -= 1;
        }
    }

    fn waiting_of(&mut self, waiter: &Waiter) -> Option<&mut u32> {
        let list = self.lists.get_mut(waiter.fallback?.index())?;
        let place = list.resources.iter().position(|resource| *resource == waiter.resource)?;
        list.waiting.get_mut(place)
    }
}
