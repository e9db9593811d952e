//! Observability: why is capacity idle?
//!
//! [`IdleAccount`] integrates what a resource was doing over time, exactly, in constant memory. An
//! [`Interest`](crate::event::Interest) says which events of a stream somebody wants: of
//! [request admission](crate::request::event) or of [a run](crate::pipeline::event).

pub mod account;
pub mod capacity;
mod histogram;
mod idle;
pub mod sink;
pub mod trace;

pub use account::{CauseShare, Distribution, IdleCause, Maxima, ResourceFigures, RunAccount, RunFigures};
pub use account::{GroupService, ServiceFigures};
pub use capacity::{CallCapacity, CapacityEnd, CapacityPlan, CapacityValue, MergeRule, ResourceMaximum, Source};
pub use histogram::Histogram;
pub use idle::{IdleAccount, IdleFigures};
pub use sink::{Envelope, SCHEMA, Sink, SinkError, SinkFailure, SinkStep, Sinks, Stream};
