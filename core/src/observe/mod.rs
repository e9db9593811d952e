//! Observability: why is capacity idle?
//!
//! [`IdleAccount`] integrates what a resource was doing over time, exactly, in constant memory. An [`Interest`] says which
//! events of a stream somebody wants: of [request admission](crate::request::event) or of [a run](crate::pipeline::event).

pub mod account;
pub mod capacity;
mod event_log;
mod histogram;
mod idle;
pub mod sink;

pub use account::{CallStanding, CauseShare, Distribution, IdleCause, Maxima, ResourceFigures, RunAccount, RunFigures};
pub use capacity::{CallCapacity, CapacityEnd, CapacityPlan, CapacityValue, MergeRule, ResourceMaximum, Source};
pub use event_log::{EventKind, Interest, MAX_PENDING};
pub(crate) use event_log::{EventLog, event_kinds};
pub use histogram::Histogram;
pub use idle::{IdleAccount, IdleFigures};
pub use sink::{Envelope, SCHEMA, Sink, SinkError, SinkFailure, SinkStep, Sinks, Stream};
