//! The target number of active row groups: a fixed number, or a control loop.
//!
//! More active row groups keep models busy while tasks of one row group wait for their upstreams. But each
//! uses memory, and takes workers from the others, so that the first checkpoint comes later. The loop
//! therefore starts with a low target. In each *tick*, which is one command to the pipeline, it looks for the
//! first reason not to grow. If there is none, it raises its target by one.
//!
//! A *model resource* is a resource of [`task`](crate::task) with the slots of one model. A slot is *leased*
//! while a worker holds it. A resource is *saturated* if all slots of its limit are leased.
//!
//! | reason, in this order | what it means |
//! | --- | --- |
//! | at cap | the target has reached `row_groups` |
//! | no pending row groups | no row group is left to admit |
//! | max admitted rows | the next row group would exceed `max_admitted_rows` (ignored if none is active) |
//! | deferred tasks | all first work of a new row group is blocked by retryable failures |
//! | queued tasks | the queue has at least four times as many tasks as workers may run |
//! | no model resource | no column holds a model resource, so no model can be idle |
//! | model saturated | every model resource is saturated |
//! | queued model demand | the queued tasks can use all free slots of every model resource |
//! | queued work | a task is queued: the target then grows only in every second tick, at half the speed |
//!
//! A tick is *overloaded* if every model resource is saturated and has at least twice its limit queued. After
//! `shrink_after` consecutive overloaded ticks, the loop lowers its target by one, but never below its
//! initial value. Active row groups stay: no other one is admitted until enough of them are saved.

use crate::error::{ConfigError, require};

/// The settings of the control loop that chooses the number of admitted row groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct AdaptiveRowGroups {
    /// The initial number of row groups, from 1 to `row_groups`. Default: 1.
    pub initial: u32,
    /// The largest number of rows in active row groups, at least 1. `None` means three row groups or 8192
    /// rows, whichever is more. Default: `None`.
    pub max_admitted_rows: Option<u64>,
    /// The number of consecutive scheduler ticks with overloaded models after which the target falls by one,
    /// at least 1. A model is overloaded if its slots are full and twice its limit is queued. Default: 64.
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
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RowGroupBlock {
    /// No row group is left to admit.
    NoPendingRowGroups,
    /// The next row group would exceed [`AdaptiveRowGroups::max_admitted_rows`].
    MaxAdmittedRows,
    /// Retryable failures block all first work of a new row group.
    DeferredTasks,
    /// Too many tasks are queued.
    QueuedTasks,
    /// No column holds a model resource.
    NoModelResource,
    /// All slots of every model resource are leased.
    ModelSaturated,
    /// The queued tasks can use all that is free of every model resource.
    QueuedModelDemand,
    /// A task is queued. The target may grow in the next tick.
    QueuedWork,
    /// The target has reached the cap.
    AtCap,
    /// The host [claims](crate::pipeline::PipelineEffect::ClaimRowGroup) a row group, and has none yet.
    Claim,
}

/// The load of one model resource in a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelLoad {
    /// The number of its slots, at least `leased`.
    pub(crate) limit: u32,
    /// The number of slots that workers hold.
    pub(crate) leased: u32,
    /// The number of slots that the queued tasks need together.
    pub(crate) queued: u64,
}

impl ModelLoad {
    fn available(self) -> u32 {
        self.limit - self.leased
    }

    fn is_saturated(self) -> bool {
        self.available() == 0
    }

    /// Returns whether some slots are leased and the queued tasks need all others.
    fn has_enough_queued(self) -> bool {
        self.queued > 0 && self.leased > 0 && u64::from(self.available()) <= self.queued
    }

    fn is_overloaded(self) -> bool {
        self.is_saturated() && self.queued >= 2 * u64::from(self.limit)
    }
}

/// The input of one tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample<'a> {
    /// The number of active row groups.
    pub(crate) active: u32,
    /// The number of their rows.
    pub(crate) rows: u64,
    /// The number of rows of the next row group, if one is pending.
    pub(crate) next_rows: Option<u64>,
    /// Whether retryable failures block all first work of a new row group.
    pub(crate) is_deferred: bool,
    /// The number of queued tasks.
    pub(crate) queued: usize,
    /// The largest number of concurrent workers.
    pub(crate) worker_cap: u32,
    /// The load of each model resource.
    pub(crate) models: &'a [ModelLoad],
}

/// The target number of active row groups.
#[derive(Clone, Debug)]
pub(crate) struct RowGroupTarget {
    /// The settings of the control loop; `None` if the target is fixed.
    adaptive: Option<AdaptiveRowGroups>,
    /// The highest target.
    cap: u32,
    target: u32,
    /// The largest number of rows in active row groups.
    max_rows: u64,
    ticks: u64,
    /// The number of consecutive overloaded ticks.
    overloaded_ticks: u32,
    /// Why the target did not grow in the last tick.
    blocked: Option<RowGroupBlock>,
}

/// The number of queued tasks per possible worker from which on the target does not grow.
const QUEUE_FACTOR: usize = 4;
/// The smallest default of `max_admitted_rows`.
const ROW_FLOOR: u64 = 8_192;

impl RowGroupTarget {
    /// Creates a target. The settings must be valid.
    pub(crate) fn new(adaptive: Option<AdaptiveRowGroups>, cap: u32, row_group_size: u32) -> Self {
        let by_size = (3 * u64::from(row_group_size)).max(ROW_FLOOR);
        Self {
            adaptive,
            cap,
            target: adaptive.map_or(cap, |adaptive| adaptive.initial),
            max_rows: adaptive.and_then(|adaptive| adaptive.max_admitted_rows).unwrap_or(by_size),
            ticks: 0,
            overloaded_ticks: 0,
            blocked: None,
        }
    }

    pub(crate) fn is_adaptive(&self) -> bool {
        self.adaptive.is_some()
    }

    /// Returns why the target did not grow in the last tick, or `None` if it grew or is fixed.
    pub(crate) fn block(&self) -> Option<RowGroupBlock> {
        self.blocked
    }

    /// Returns the target, from 1 to the cap.
    pub(crate) fn get(&self) -> u32 {
        self.target
    }

    /// Returns whether one more row group of `next` rows fits, given `active` row groups with `rows` rows.
    pub(crate) fn has_room(&self, active: u32, rows: u64, next: u64) -> bool {
        active < self.target && (self.adaptive.is_none() || active == 0 || rows + next <= self.max_rows)
    }

    /// Runs one tick of the loop. Returns whether the target grew.
    pub(crate) fn tick(&mut self, sample: &Sample<'_>) -> bool {
        let Some(AdaptiveRowGroups { initial, shrink_after, .. }) = self.adaptive else { return false };
        self.ticks += 1;
        let is_overloaded = !sample.models.is_empty() && sample.models.iter().all(|model| model.is_overloaded());
        self.overloaded_ticks = if is_overloaded { self.overloaded_ticks + 1 } else { 0 };
        if self.overloaded_ticks >= shrink_after {
            self.overloaded_ticks = 0;
            self.target = (self.target - 1).max(initial);
        }
        self.blocked = self.reason(sample);
        if self.blocked.is_none() {
            self.target += 1;
        }
        self.blocked.is_none()
    }

    /// Returns the first reason not to grow.
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
        } else if models.iter().all(|model| model.is_saturated() || model.has_enough_queued()) {
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
    fn the_first_reason_in_order_is_reported() {
        use RowGroupBlock::*;
        // Each sample also has every reason of the samples below it.
        let all = Sample { next_rows: None, rows: 8_192, is_deferred: true, queued: 64, ..sample(&[]) };
        let some_rows = Sample { next_rows: Some(64), ..all };
        let few_rows = Sample { rows: 64, ..some_rows };
        let free = Sample { is_deferred: false, ..few_rows };
        let short_queue = Sample { queued: 1, ..free };
        let fully_queued = ModelLoad { leased: 6, queued: 2, ..FULL };
        let expected = [
            (all, NoPendingRowGroups),
            (some_rows, MaxAdmittedRows),
            (few_rows, DeferredTasks),
            (free, QueuedTasks),
            (short_queue, NoModelResource),
            (Sample { models: &[FULL, FULL], ..short_queue }, ModelSaturated),
            (Sample { models: &[FULL, fully_queued], ..short_queue }, QueuedModelDemand),
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
    fn queued_demand_does_not_block_growth_while_nothing_is_leased() {
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
    fn a_row_group_larger_than_the_maximum_is_admitted_when_none_is_active() {
        let target = target(9);
        assert!(target.has_room(0, 0, 1 << 20));
        assert!(!RowGroupTarget { target: 2, ..target }.has_room(1, 8_000, 1 << 20));
    }
}
