//! The figures of an account: integers that serialise, and the ratios that are computed from them.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::cause::CauseShare;
use crate::observe::Histogram;
use crate::pipeline::ColumnId;
use crate::pipeline::event::StopKind;
use crate::time::Duration;

/// The figures of a run. Equal streams of events give equal figures, byte for byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct RunFigures {
    /// From the start of the run to its end, or to the latest event if it has not ended.
    pub span_ns: u64,
    /// How the run ended, or `None` if it has not ended.
    pub stop: Option<StopKind>,
    /// The resources of task admission: `submission`, then the configured ones in their order.
    pub tasks: Vec<ResourceFigures>,
    /// The request resources, in the order in which they were added to the account.
    pub requests: Vec<ResourceFigures>,
    /// The time from the queue to a lease. Each attempt of a task counts separately.
    pub queue_age: Distribution,
    /// The time from the end of a task's last upstream to the task's own first start.
    pub downstream_ready_gap: Distribution,
    /// The time that calls waited, for all calls that had to wait, granted or not.
    pub request_wait: Distribution,
    /// The part of all waiting for calls during which the waiting worker held its task resources. Every
    /// waiter counts except those of yielded workers. Waiters from outside the run count too.
    pub request_wait_while_leased_ns: u128,
    /// The time from the start of the run to the first worker of a model's or custom model's group.
    pub first_model_dispatch_ns: Option<u64>,
    /// The column of that worker.
    pub first_model_column: Option<ColumnId>,
    /// The number of task leases that were granted.
    pub dispatched: u64,
    /// How often a task was passed over because its call would have had to wait.
    pub advisory_skips: u64,
    /// How often a task was started against the policy because nothing was running.
    pub liveness_overrides: u64,
    /// How often a worker gave back its task resources while it waited for a call.
    pub yields: u64,
    /// The number of workers that were started without their task resources. Always 0.
    pub hidden_waiters: u64,
    /// The maximum of each layer.
    pub maxima: Maxima,
    /// The number of events that are missing from the two streams. If it is above 0, the other figures are
    /// not exact.
    pub missing_events: u64,
}

/// The maxima of each layer of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Maxima {
    /// Row groups in progress.
    pub row_groups: u32,
    /// Queued tasks.
    pub queued: u32,
    /// Workers, including yielded ones.
    pub workers: u32,
    /// Workers that had yielded.
    pub yielded: u32,
    /// Calls in flight, over all request resources.
    pub in_flight: u32,
    /// Calls waiting for admission, over all request resources.
    pub waiters: u32,
}

/// The figures of one resource. Integrals are in slot-nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct ResourceFigures {
    /// The name of the resource.
    pub name: String,
    /// The limit at the end. For a request resource, the effective maximum.
    pub limit: u32,
    /// Slots in use.
    pub busy_slot_ns: u128,
    /// Free slots: exactly `starved + frontier`.
    pub idle_slot_ns: u128,
    /// Slots in use above the limit.
    pub overhang_slot_ns: u128,
    /// Slots that were free while something waited for the resource.
    pub starved_slot_ns: u128,
    /// Slots that were free while nothing waited for it.
    pub frontier_slot_ns: u128,
    /// The second moment: the integral of (slots in use)².
    pub busy_squared_slot_ns: u128,
    /// The integral of the adaptive limit. For a task resource, whose limit does not adapt, of `limit`.
    pub adaptive_limit_slot_ns: u128,
    /// The length of the accounted time in nanoseconds.
    pub span_ns: u64,
    /// The most slots in use.
    pub max_leased: u32,
    /// The most that waited for the resource.
    pub max_demand: u64,
    /// The idle time by cause, the largest first. The sum is exactly `idle_slot_ns`.
    pub why_idle: Vec<CauseShare>,
}

impl ResourceFigures {
    /// Returns `busy / (busy + idle)`, from 0 to 1, or 0 if the resource never had a slot.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        ratio(self.busy_slot_ns, self.busy_slot_ns + self.idle_slot_ns)
    }

    /// Returns `busy / adaptive limit`: the part of the slots that the adaptive limit allowed which was in
    /// use. It is above 1 if the limit fell below the slots in use for long.
    #[must_use]
    pub fn utilisation_of_limit(&self) -> f64 {
        ratio(self.busy_slot_ns, self.adaptive_limit_slot_ns)
    }

    /// Returns the mean number of slots in use.
    #[must_use]
    pub fn mean_busy(&self) -> f64 {
        ratio(self.busy_slot_ns, self.span_ns.into())
    }

    /// Returns the mean adaptive limit.
    #[must_use]
    pub fn mean_adaptive_limit(&self) -> f64 {
        ratio(self.adaptive_limit_slot_ns, self.span_ns.into())
    }

    /// Returns the coefficient of variation of the slots in use: the time-weighted standard deviation
    /// divided by the mean. It is 0 for steady use, and if nothing was used.
    #[must_use]
    pub fn burstiness(&self) -> f64 {
        if self.busy_slot_ns == 0 {
            return 0.0;
        }
        let busy = self.busy_slot_ns as f64;
        square_root(self.busy_squared_slot_ns as f64 / busy * (self.span_ns as f64 / busy) - 1.0)
    }
}

/// Returns `part / whole`, or 0 if `whole` is 0.
fn ratio(part: u128, whole: u128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Computes a square root with Newton's method, because the core has none without `std`. The result is the
/// same on every platform. Returns 0 for NaN and for values that are not above 0.
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
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Distribution {
    /// The number of values.
    pub count: u64,
    /// The mean, rounded down.
    pub mean_ns: u64,
    /// The median, within [`Histogram::RELATIVE_ERROR`].
    pub p50_ns: u64,
    /// The 95th percentile, within [`Histogram::RELATIVE_ERROR`].
    pub p95_ns: u64,
    /// The largest value, exact.
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
