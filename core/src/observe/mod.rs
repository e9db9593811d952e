//! Observability: where the capacity of a run goes, and why it is idle.
//!
//! [`IdleAccount`] integrates the busy and idle time of one resource, exactly and in constant memory.
//! [`RunAccount`] does so for a whole run, with the cause of all idle time. A [`Sink`] receives the events
//! of both streams: those of [request admission](crate::request::event) and those of [a
//! run](crate::pipeline::event). An [`Interest`](crate::event::Interest) selects the kinds of events that a
//! stream produces.

pub mod account;
pub mod capacity;
mod histogram;
mod idle;
pub mod sink;
pub mod trace;

pub use account::{CauseShare, Distribution, IdleCause, Maxima, ResourceFigures, RunAccount, RunFigures};
pub use account::{GroupService, ServiceFigures};
pub use capacity::{
    CallCapacity, CapacityEnd, CapacityPlan, CapacityValue, MergeRule, ResourceMaximum, RowGroupMode, Source,
};
pub use histogram::Histogram;
pub use idle::{IdleAccount, IdleFigures};
pub use sink::{Envelope, SCHEMA, Sink, SinkError, SinkFailure, SinkStep, Sinks, Stream};
