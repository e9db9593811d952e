//! Events as a trace file in the Chrome trace format, for the [Perfetto UI](https://ui.perfetto.dev) and
//! other viewers.
//!
//! The trace shows a row for each worker and each call slot, with the tasks, calls and pauses over time.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use tidegate_core::observe::trace::{Trace, TracedResource, request_interest, scheduler_interest};
use tidegate_core::observe::{Sink, SinkError};
use tidegate_core::pipeline::Plan;
use tidegate_core::pipeline::event::{SchedulerEvent, SchedulerInterest};
use tidegate_core::request::event::{RequestEvent, RequestInterest};
use tidegate_core::time::Instant;

/// A sink that writes a trace while the run continues.
///
/// The file is complete once the sink is [closed](Self::close), which a run does at its end. After a write
/// error the file is incomplete.
///
/// ```
/// use tidegate_core::pipeline::{Column, PlanBuilder, Strategy};
/// use tidegate_native::observe::perfetto::PerfettoSink;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let plan = PlanBuilder::new().column(Column::new("title", Strategy::Cell)).build()?;
/// let mut trace = Vec::new();
/// PerfettoSink::from_writer(&mut trace, &plan, &[])?.close()?;
/// assert!(trace.starts_with(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":["));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PerfettoSink<W: Write = BufWriter<File>> {
    trace: Trace,
    writer: W,
    /// The latest instant of any event so far.
    latest: Instant,
    is_first: bool,
}

impl PerfettoSink {
    /// Creates a sink that writes to a file. An existing file is truncated. `plan` and `resources` give the
    /// names of columns and calls.
    ///
    /// # Errors
    ///
    /// The file cannot be created or written.
    pub fn create(path: &Path, plan: &Plan, resources: &[TracedResource<'_>]) -> io::Result<Self> {
        Self::from_writer(BufWriter::new(File::create(path)?), plan, resources)
    }
}

impl<W: Write> PerfettoSink<W> {
    /// Creates a sink that writes to any writer.
    ///
    /// # Errors
    ///
    /// The writer fails.
    pub fn from_writer(mut writer: W, plan: &Plan, resources: &[TracedResource<'_>]) -> io::Result<Self> {
        writer.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        Ok(Self { trace: Trace::new(plan, resources), writer, latest: Instant::ZERO, is_first: true })
    }

    /// Ends all open slices at the latest instant, writes the end of the file and flushes the writer. No
    /// event may follow.
    ///
    /// # Errors
    ///
    /// The writer fails.
    pub fn close(&mut self) -> io::Result<()> {
        self.trace.finish(self.latest);
        self.write_pending()?;
        self.writer.write_all(b"\n]}\n")?;
        self.writer.flush()
    }

    fn write_pending(&mut self) -> io::Result<()> {
        for event in self.trace.take() {
            self.writer.write_all(if self.is_first { b"\n" } else { b",\n" })?;
            self.is_first = false;
            serde_json::to_writer(&mut self.writer, &event)?;
        }
        Ok(())
    }
}

impl<W: Write + Send> Sink for PerfettoSink<W> {
    fn scheduler_interest(&self) -> SchedulerInterest {
        scheduler_interest()
    }

    fn request_interest(&self) -> RequestInterest {
        request_interest()
    }

    fn on_scheduler(&mut self, event: &SchedulerEvent) -> Result<(), SinkError> {
        self.latest = self.latest.max(event.at);
        self.trace.on_scheduler(event);
        self.write_pending().map_err(sink_error)
    }

    fn on_request(&mut self, event: &RequestEvent) -> Result<(), SinkError> {
        self.latest = self.latest.max(event.at);
        self.trace.on_request(event);
        self.write_pending().map_err(sink_error)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.close().map_err(sink_error)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes the error by value")]
fn sink_error(error: io::Error) -> SinkError {
    SinkError(error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tidegate_core::sim::scenario::builtin;
    use tidegate_core::sim::world::World;

    use super::*;

    #[test]
    fn the_file_is_a_json_object_of_events_with_known_phases_and_named_rows() {
        let scenario = &builtin()[5];
        let mut world = World::with_events(scenario, 2, |_| ()).unwrap();
        let resources: Vec<_> = world.resources().collect();
        let mut written = Vec::new();
        let mut file = PerfettoSink::from_writer(&mut written, &scenario.plan().unwrap(), &resources).unwrap();
        world.run_feeding(&mut file).unwrap();
        file.close().unwrap();
        let trace: Value = serde_json::from_slice(&written).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let phases: std::collections::BTreeSet<&str> =
            events.iter().map(|event| event["ph"].as_str().unwrap()).collect();
        assert_eq!(Vec::from_iter(phases), ["C", "M", "X", "b", "e"]);
        for event in events {
            assert!(event["ts"].is_number() && event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
            assert_eq!(event["ph"] == "X", event["dur"].is_number(), "{event}");
        }
        let named = |name: &str| events.iter().any(|event| event["ph"] == "M" && event["args"]["name"] == name);
        assert!(["workers", "row groups", "narrow", "wide", "worker 1", "call 1", "cooldown"].into_iter().all(named));
    }

    #[test]
    fn a_full_disk_is_an_io_error() {
        #[derive(Debug)]
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let plan = builtin()[0].plan().unwrap();
        assert_eq!(PerfettoSink::from_writer(Full, &plan, &[]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
