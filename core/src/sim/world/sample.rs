//! The figures of one instant of a world.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

use super::World;
use crate::observe::IdleFigures;
use crate::time::Instant;

/// The figures of one instant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Virtual time.
    pub at: Instant,
    /// By model, in the scenario's order.
    pub providers: Vec<ProviderSample>,
    /// Tasks that are ready and wait for a worker.
    pub queue_depth: usize,
    /// Workers.
    pub running: usize,
    /// Rows in finished row groups.
    pub rows_done: u64,
    /// Rows dropped.
    pub rows_dropped: u64,
    /// Rows of the run.
    pub rows_total: u64,
    /// Whether the run has ended.
    pub finished: bool,
}

/// The figures of one provider.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProviderSample {
    /// The model's name.
    pub name: String,
    /// The adaptive limit.
    pub limit: u32,
    /// Calls out.
    pub in_flight: u32,
    /// Calls that wait for admission.
    pub waiting: u32,
    /// What the provider would truly bear.
    pub capacity: u32,
    /// Calls it accepted so far.
    pub accepted: u64,
    /// Calls it refused so far.
    pub refused: u64,
    /// The end of the cooldown in force.
    pub cooldown_until: Option<Instant>,
    /// Slot-time so far.
    pub idle: IdleFigures,
}

impl World {
    /// The figures of this instant. Changes nothing.
    #[must_use]
    pub fn sample(&self) -> Sample {
        let progress = self.pipeline.progress();
        let providers = self.providers.iter().filter_map(|provider| {
            let state = self.admission.snapshot(self.now, provider.resource)?;
            let counters = provider.machine.counters();
            Some(ProviderSample {
                name: provider.name.clone(),
                limit: state.current_limit,
                in_flight: state.in_flight,
                waiting: state.waiters,
                capacity: provider.machine.capacity(self.now),
                accepted: counters.accepted,
                refused: counters.refused,
                cooldown_until: state.blocked_until,
                idle: provider.idle.read(self.now),
            })
        });
        Sample {
            at: self.now,
            providers: providers.collect(),
            queue_depth: progress.queued,
            running: progress.running,
            rows_done: progress.rows_done,
            rows_dropped: progress.rows_dropped,
            rows_total: progress.rows_total,
            finished: self.finished.is_some(),
        }
    }
}
