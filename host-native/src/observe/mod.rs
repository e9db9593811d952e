//! Sinks for the events of runs and gates.
//!
//! | sink | feature | output |
//! | --- | --- | --- |
//! | [`jsonl::JsonLinesSink`] | | JSON lines in a file |
//! | [`perfetto::PerfettoSink`] | | a trace file for the Perfetto UI |
//! | `tracing::TracingSink` | `tracing` | spans and events of `tracing` |
//! | `metrics::MetricsSink` | `metrics` | counters, gauges and histograms of `metrics` |
//!
//! The last two use the subscriber or recorder that the application installs; they install nothing. Give
//! sinks to a run with [`PipelineRun::with_sinks`](tidegate_core::driver::PipelineRun::with_sinks). A gate
//! without a run delivers its events with [`Gate::feed`](tidegate_core::gate::Gate::feed). A sink that fails
//! does not disturb the run: see [`Sinks`](tidegate_core::observe::Sinks).

pub mod jsonl;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(any(feature = "cli", feature = "metrics", feature = "tracing"))]
pub(crate) mod names;
pub mod perfetto;
#[cfg(feature = "tracing")]
pub mod tracing;
