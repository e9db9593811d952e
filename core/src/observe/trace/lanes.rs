//! Tracks for things that overlap: each takes the lowest that is free.

use alloc::format;
use alloc::vec::Vec;

use super::{EventBuffer, Track};

/// The tracks of one process, numbered from 1.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    pid: u32,
    title: &'static str,
    taken: Vec<bool>,
}

impl Lanes {
    pub(super) fn new(pid: u32, title: &'static str) -> Self {
        Self { pid, title, taken: Vec::new() }
    }

    /// The lowest free track. It is named when it is taken for the first time.
    pub(super) fn take(&mut self, out: &mut EventBuffer) -> Track {
        let free = self.taken.iter().position(|taken| !taken);
        let at = free.unwrap_or_else(|| {
            self.taken.push(false);
            let number = self.taken.len();
            out.track((self.pid, number as u32), format!("{} {number}", self.title));
            number - 1
        });
        self.taken[at] = true;
        (self.pid, at as u32 + 1)
    }

    pub(super) fn give_back(&mut self, (_, tid): Track) {
        if let Some(taken) = (tid as usize).checked_sub(1).and_then(|at| self.taken.get_mut(at)) {
            *taken = false;
        }
    }
}
