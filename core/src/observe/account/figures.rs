//! What an account comes to: integers that serialise, and the ratios that are read from them.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::cause::CauseShare;
use crate::observe::Histogram;
use crate::pipeline::ColumnId;
use crate::pipeline::event::StopKind;
use crate::time::Duration;

/// The figures of a run. Equal streams of events give equal figures, to the byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RunFigures {
    /// From the start of the run to its end, or to the latest event of one that goes on.
    pub span_ns: u64,
    /// How it ended; `None`: it goes on.
    pub stop: Option<StopKind>,
    /// The resources of the task stage: `submission`, then the configured ones in their order.
    pub tasks: Vec<ResourceFigures>,
    /// The request resources, in the order in which the account was told of them.
    pub requests: Vec<ResourceFigures>,
    /// From the queue to a lease, each try of a task by itself.
    pub queue_age: Distribution,
    /// From the end of a task's last upstream to its own first start.
    pub downstream_ready_gap: Distribution,
    /// How long calls waited that had to, granted or not.
    pub request_wait: Distribution,
    /// The part of all waiting for calls during which the waiting worker held what its task demands: every
    /// waiter counts but those of yielded workers. Waiters from outside the run count too.
    pub request_wait_while_leased_ns: u128,
    /// From the start of the run to the first worker of a model's or custom model's group.
    pub first_model_dispatch_ns: Option<u64>,
    /// That worker's column.
    pub first_model_column: Option<ColumnId>,
    /// Leases of the task stage that were granted.
    pub dispatched: u64,
    /// Tasks that were passed over because their call would only wait.
    pub advisory_skips: u64,
    /// Tasks that were started against the policy, because nothing ran.
    pub liveness_overrides: u64,
    /// Workers that gave back what they held while they waited for a call.
    pub yields: u64,
    /// Workers that were started without holding what their task demands. Always 0.
    pub hidden_waiters: u64,
    /// The most there ever was, layer by layer.
    pub maxima: Maxima,
    /// Events that are missing from the two streams. With any, the other figures are not exact.
    pub missing_events: u64,
}

/// The most there ever was of each layer of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Maxima {
    /// Row groups in work.
    pub row_groups: u32,
    /// Tasks queued.
    pub queued: u32,
    /// Workers, yielded ones included.
    pub workers: u32,
    /// Workers that had yielded.
    pub yielded: u32,
    /// Calls out, of all request resources.
    pub in_flight: u32,
    /// Calls waiting for admission, of all request resources.
    pub waiters: u32,
}

/// What one resource was doing. All times are slot-nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ResourceFigures {
    /// Its name.
    pub name: String,
    /// Its limit at the end: for a request resource the effective maximum.
    pub limit: u32,
    /// Slots in use.
    pub busy_slot_ns: u128,
    /// Slots free: `starved + frontier`, to the nanosecond.
    pub idle_slot_ns: u128,
    /// Slots in use above the limit.
    pub overhang_slot_ns: u128,
    /// Slots free while something queued wanted the resource.
    pub starved_slot_ns: u128,
    /// Slots free while nothing did: beyond the dependency horizon.
    pub frontier_slot_ns: u128,
    /// The second moment: the integral of (slots in use)^2.
    pub busy_squared_slot_ns: u128,
    /// The time it was watched.
    pub span_ns: u64,
    /// The most slots that were in use.
    pub max_leased: u32,
    /// The most that waited for it.
    pub max_demand: u64,
    /// The idle time by cause, the largest first: sums to `idle_slot_ns`, to the nanosecond.
    pub why_idle: Vec<CauseShare>,
}

impl ResourceFigures {
    /// `busy / (busy + idle)`, from 0 to 1; 0 when the resource never had a slot.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        let whole = self.busy_slot_ns + self.idle_slot_ns;
        if whole == 0 { 0.0 } else { self.busy_slot_ns as f64 / whole as f64 }
    }

    /// How unevenly it was used: the time-weighted standard deviation of the slots in use by their mean. 0
    /// for steady use, and for none.
    #[must_use]
    pub fn burstiness(&self) -> f64 {
        if self.busy_slot_ns == 0 {
            return 0.0;
        }
        let busy = self.busy_slot_ns as f64;
        square_root(self.busy_squared_slot_ns as f64 / busy * (self.span_ns as f64 / busy) - 1.0)
    }
}

/// Newton's method: the core has no square root without `std`, and this one is the same everywhere. 0 for
/// what has none.
fn square_root(of: f64) -> f64 {
    if of.is_nan() || of <= 0.0 {
        return 0.0;
    }
    let mut root = f64::from_bits((of.to_bits() >> 1) + (1023 << 51));
    for _ in 0..5 {
        root = 0.5 * (root + of / root);
    }
    root
}

/// A distribution, read from a [`Histogram`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Distribution {
    /// Values.
    pub count: u64,
    /// Their mean, rounded down.
    pub mean_ns: u64,
    /// Half of them are not larger, within [`Histogram::RELATIVE_ERROR`].
    pub p50_ns: u64,
    /// 95 of 100 are not larger, within [`Histogram::RELATIVE_ERROR`].
    pub p95_ns: u64,
    /// The largest, exactly.
    pub max_ns: u64,
}

impl From<&Histogram> for Distribution {
    fn from(histogram: &Histogram) -> Self {
        Self {
            count: histogram.count(),
            mean_ns: histogram.mean().as_nanos(),
            p50_ns: histogram.quantile(500).as_nanos(),
            p95_ns: histogram.quantile(950).as_nanos(),
            max_ns: histogram.max().as_nanos(),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [mean, half, most, max] = [self.mean_ns, self.p50_ns, self.p95_ns, self.max_ns].map(Duration::from_nanos);
        write!(f, "{} times: mean {mean}, p50 {half}, p95 {most}, max {max}", self.count)
    }
}

impl fmt::Display for ResourceFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let busy = self.utilisation() * 100.0;
        write!(f, "{}: {busy:.1} % busy of {}", self.name, self.limit)?;
        for CauseShare { cause, resource, slot_ns } in &self.why_idle {
            let share = *slot_ns as f64 / (self.busy_slot_ns + self.idle_slot_ns) as f64 * 100.0;
            write!(f, "; {share:.1} % idle: {cause}")?;
            resource.as_ref().map_or(Ok(()), |resource| write!(f, " ({resource})"))?;
        }
        Ok(())
    }
}
