//! How many row groups to have in work: a fixed number, or a control loop.
//!
//! More row groups in work keep models busy across the dependencies of one group; each costs memory and
//! delays its first checkpoint. The loop starts low. Once in a *tick*, which is one command to the pipeline,
//! it looks for the first reason not to grow; if there is none, it raises its target by one.
//!
//! | reason, in this order | what it means |
//! | --- | --- |
//! | no pending row groups | nothing is left to admit |
//! | max admitted rows | the next group would pass `max_admitted_rows` (none is too large for an empty run) |
//! | deferred tasks | all that a new group could do first is held back by failures that may pass |
//! | queued tasks | four times as many tasks are queued as may run |
//! | no model resource | no column holds a resource of a model while it runs: nothing to keep busy |
//! | model saturated | every model resource is fully leased |
//! | queued model demand | what is queued already suffices for what is free |
//! | queued work | something is queued: grow in every second tick only |
//!
//! It lowers its target by one, never below where it began, once every model resource has been fully leased,
//! with twice its limit queued behind it, for `shrink_after` ticks on end. Groups in work are never taken
//! back.

use crate::error::{ConfigError, require};

/// Settings of the control loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct AdaptiveRowGroups {
    /// Row groups to begin with, from 1 to the cap `row_groups`. 1.
    pub initial: u32,
    /// The most rows in work at once, at least 1; `None` is three row groups or 8192 rows, whichever is more.
    /// `None`.
    pub max_admitted_rows: Option<u64>,
    /// Ticks of sustained pressure after which the target falls by one. At least 1; 64.
    pub shrink_after: u32,
}

impl Default for AdaptiveRowGroups {
    fn default() -> Self {
        Self { initial: 1, max_admitted_rows: None, shrink_after: 64 }
    }
}

impl AdaptiveRowGroups {
    pub(crate) fn validate(&self, cap: u32) -> Result<(), ConfigError> {
        let initial = self.initial;
        require((1..=cap).contains(&initial), "adaptive.initial", initial, "from 1 to `row_groups`")?;
        require(self.max_admitted_rows != Some(0), "adaptive.max_admitted_rows", 0, "at least 1")?;
        require(self.shrink_after > 0, "adaptive.shrink_after", 0, "at least 1")
    }
}

/// Why the target did not grow in the last tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RowGroupBlock {
    /// Nothing is left to admit.
    NoPendingRowGroups,
    /// The next row group would be too much at once.
    MaxAdmittedRows,
    /// What a new row group could do first is held back by failures that may pass.
    DeferredTasks,
    /// Too many tasks are queued.
    QueuedTasks,
    /// No column holds a resource of a model.
    NoModelResource,
    /// Every model resource is fully leased.
    ModelSaturated,
    /// What is queued suffices for what is free.
    QueuedModelDemand,
    /// Something is queued; the next tick may grow.
    QueuedWork,
    /// The target is at the cap.
    AtCap,
}

/// A model resource, as one tick finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelLoad {
    pub(crate) limit: u32,
    pub(crate) leased: u32,
    /// What queued tasks want of it.
    pub(crate) queued: u64,
}

impl ModelLoad {
    fn available(self) -> u32 {
        self.limit - self.leased
    }

    fn is_saturated(self) -> bool {
        self.available() == 0
    }

    /// Whether what is free will be taken by what is queued.
    fn is_fully_leased(self) -> bool {
        self.queued > 0 && self.leased > 0 && u64::from(self.available()) <= self.queued
    }

    fn is_overloaded(self) -> bool {
        self.is_saturated() && self.queued >= 2 * u64::from(self.limit)
    }
}

/// What one tick sees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample<'a> {
    /// Row groups in work.
    pub(crate) active: u32,
    /// Their rows.
    pub(crate) rows: u64,
    /// Rows of the next row group, if one is pending.
    pub(crate) next_rows: Option<u64>,
    pub(crate) is_deferred: bool,
    pub(crate) queued: usize,
    /// Workers at once.
    pub(crate) worker_cap: u32,
    pub(crate) models: &'a [ModelLoad],
}

/// The number of row groups to have in work.
#[derive(Clone, Debug)]
pub(crate) struct RowGroupTarget {
    adaptive: Option<AdaptiveRowGroups>,
    cap: u32,
    target: u32,
    max_rows: u64,
    ticks: u64,
    /// Ticks of overload on end.
    pressure: u32,
    blocked: Option<RowGroupBlock>,
}

/// Queued tasks for each that may run, from which on nothing is added to them.
const QUEUE_FACTOR: usize = 4;
/// Rows that may always be in work.
const ROW_FLOOR: u64 = 8_192;

impl RowGroupTarget {
    /// The settings were validated.
    pub(crate) fn new(adaptive: Option<AdaptiveRowGroups>, cap: u32, row_group_size: u32) -> Self {
        let by_size = (3 * u64::from(row_group_size)).max(ROW_FLOOR);
        Self {
            adaptive,
            cap,
            target: adaptive.map_or(cap, |adaptive| adaptive.initial),
            max_rows: adaptive.and_then(|adaptive| adaptive.max_admitted_rows).unwrap_or(by_size),
            ticks: 0,
            pressure: 0,
            blocked: None,
        }
    }

    pub(crate) fn is_adaptive(&self) -> bool {
        self.adaptive.is_some()
    }

    /// Why the target did not grow in the last tick.
    pub(crate) fn block(&self) -> Option<RowGroupBlock> {
        self.blocked
    }

    pub(crate) fn get(&self) -> u32 {
        self.target
    }

    /// Whether one more row group of `next` rows fits beside `active` groups of `rows` rows.
    pub(crate) fn has_room(&self, active: u32, rows: u64, next: u64) -> bool {
        active < self.target && (self.adaptive.is_none() || active == 0 || rows + next <= self.max_rows)
    }

    /// One tick of the loop; answers whether the target grew.
    pub(crate) fn tick(&mut self, sample: &Sample<'_>) -> bool {
        let Some(AdaptiveRowGroups { initial, shrink_after, .. }) = self.adaptive else { return false };
        self.ticks += 1;
        let is_overloaded = !sample.models.is_empty() && sample.models.iter().all(|model| model.is_overloaded());
        self.pressure = if is_overloaded { self.pressure + 1 } else { 0 };
        if self.pressure >= shrink_after {
            self.pressure = 0;
            self.target = (self.target - 1).max(initial);
        }
        self.blocked = self.reason(sample);
        if self.blocked.is_none() {
            self.target += 1;
        }
        self.blocked.is_none()
    }

    fn reason(&self, sample: &Sample<'_>) -> Option<RowGroupBlock> {
        let too_many_rows = |next| sample.active > 0 && sample.rows + next > self.max_rows;
        let models = sample.models;
        if self.target >= self.cap {
            return Some(RowGroupBlock::AtCap);
        }
        match sample.next_rows {
            None => return Some(RowGroupBlock::NoPendingRowGroups),
            Some(next) if too_many_rows(next) => return Some(RowGroupBlock::MaxAdmittedRows),
            Some(_) => {}
        }
        if sample.is_deferred {
            Some(RowGroupBlock::DeferredTasks)
        } else if sample.queued >= QUEUE_FACTOR * sample.worker_cap as usize {
            Some(RowGroupBlock::QueuedTasks)
        } else if models.is_empty() {
            Some(RowGroupBlock::NoModelResource)
        } else if models.iter().all(|model| model.is_saturated()) {
            Some(RowGroupBlock::ModelSaturated)
        } else if models.iter().all(|model| model.is_saturated() || model.is_fully_leased()) {
            Some(RowGroupBlock::QueuedModelDemand)
        } else if sample.queued > 0 && self.ticks % 2 == 1 {
            Some(RowGroupBlock::QueuedWork)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: ModelLoad = ModelLoad { limit: 8, leased: 1, queued: 0 };
    const FULL: ModelLoad = ModelLoad { limit: 8, leased: 8, queued: 3 };
    const OVERLOADED: ModelLoad = ModelLoad { limit: 8, leased: 8, queued: 16 };

    fn target(cap: u32) -> RowGroupTarget {
        RowGroupTarget::new(Some(AdaptiveRowGroups { shrink_after: 3, ..AdaptiveRowGroups::default() }), cap, 64)
    }

    fn sample(models: &[ModelLoad]) -> Sample<'_> {
        Sample { active: 1, rows: 64, next_rows: Some(64), is_deferred: false, queued: 0, worker_cap: 16, models }
    }

    #[test]
    fn the_target_rises_by_one_for_each_tick_in_which_nothing_blocks() {
        let mut target = target(3);
        assert!(target.tick(&sample(&[IDLE])) && target.tick(&sample(&[IDLE])));
        assert!(!target.tick(&sample(&[IDLE])));
        assert_eq!((target.get(), target.blocked), (3, Some(RowGroupBlock::AtCap)));
    }

    #[test]
    fn the_first_reason_in_order_is_told() {
        use RowGroupBlock::*;
        // Each sample has every reason of those below it too.
        let all = Sample { next_rows: None, rows: 8_192, is_deferred: true, queued: 64, ..sample(&[]) };
        let some_rows = Sample { next_rows: Some(64), ..all };
        let few_rows = Sample { rows: 64, ..some_rows };
        let free = Sample { is_deferred: false, ..few_rows };
        let short_queue = Sample { queued: 1, ..free };
        let spoken_for = ModelLoad { leased: 6, queued: 2, ..FULL };
        let expected = [
            (all, NoPendingRowGroups),
            (some_rows, MaxAdmittedRows),
            (few_rows, DeferredTasks),
            (free, QueuedTasks),
            (short_queue, NoModelResource),
            (Sample { models: &[FULL, FULL], ..short_queue }, ModelSaturated),
            (Sample { models: &[FULL, spoken_for], ..short_queue }, QueuedModelDemand),
            (Sample { models: &[IDLE], ..short_queue }, QueuedWork),
        ];
        for (sample, reason) in expected {
            let mut target = target(9);
            assert!(!target.tick(&sample));
            assert_eq!(target.blocked, Some(reason));
        }
    }

    #[test]
    fn saturation_is_not_reported_as_queued_demand() {
        let mut target = target(9);
        target.tick(&sample(&[FULL]));
        assert_eq!(target.blocked, Some(RowGroupBlock::ModelSaturated));
    }

    #[test]
    fn demand_that_is_queued_where_nothing_is_leased_yet_does_not_block() {
        let cold = ModelLoad { limit: 8, leased: 0, queued: 9 };
        assert!(target(9).tick(&sample(&[cold])));
    }

    #[test]
    fn with_queued_work_it_grows_in_every_second_tick() {
        let mut target = target(9);
        let busy = [IDLE];
        let busy = Sample { queued: 1, ..sample(&busy) };
        let grown: [bool; 4] = core::array::from_fn(|_| target.tick(&busy));
        assert_eq!(grown, [false, true, false, true]);
    }

    #[test]
    fn it_shrinks_under_sustained_pressure_and_never_below_where_it_began() {
        let mut target = target(3);
        target.tick(&sample(&[IDLE]));
        target.tick(&sample(&[IDLE]));
        let mut at = |ticks, load: ModelLoad| {
            (0..ticks).for_each(|_| _ = target.tick(&sample(&[load])));
            target.get()
        };
        assert_eq!(at(2, OVERLOADED), 3);
        assert_eq!((at(1, FULL), at(2, OVERLOADED)), (3, 3), "the pressure was not sustained");
        assert_eq!((at(1, OVERLOADED), at(3, OVERLOADED), at(30, OVERLOADED)), (2, 1, 1));
    }

    #[test]
    fn a_row_group_larger_than_the_guard_is_admitted_when_none_is_in_work() {
        let target = target(9);
        assert!(target.has_room(0, 0, 1 << 20));
        assert!(!RowGroupTarget { target: 2, ..target }.has_room(1, 8_000, 1 << 20));
    }
}
