//! Tracks for slices that overlap. Each slice takes the lowest free track.

use alloc::format;
use alloc::vec::Vec;

use super::{EventBuffer, Track};

/// The tracks of one process, numbered from 1.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    pid: u32,
    title: &'static str,
    is_used: Vec<bool>,
}

impl Lanes {
    pub(super) fn new(pid: u32, title: &'static str) -> Self {
        Self { pid, title, is_used: Vec::new() }
    }

    /// Takes the lowest free track. A track is named when it is taken for the first time.
    pub(super) fn take(&mut self, out: &mut EventBuffer) -> Track {
        let free = self.is_used.iter().position(|is_used| !is_used);
        let at = free.unwrap_or_else(|| {
            self.is_used.push(false);
            let number = self.is_used.len();
            out.track((self.pid, number as u32), format!("{} {number}", self.title));
            number - 1
        });
        self.is_used[at] = true;
        (self.pid, at as u32 + 1)
    }

    pub(super) fn give_back(&mut self, (_, tid): Track) {
        if let Some(is_used) = (tid as usize).checked_sub(1).and_then(|at| self.is_used.get_mut(at)) {
            *is_used = false;
        }
    }
}
