//! A trace file for the Perfetto UI (`ui.perfetto.dev`, or any viewer of Chrome traces).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use tidegate_core::observe::trace::{Trace, TracedResource, request_interest, scheduler_interest};
use tidegate_core::observe::{Sink, SinkError};
use tidegate_core::pipeline::Plan;
use tidegate_core::pipeline::event::{SchedulerEvent, SchedulerInterest};
use tidegate_core::request::event::{RequestEvent, RequestInterest};
use tidegate_core::time::Instant;

/// Writes a trace as the run goes on. After an error it writes nothing more.
#[derive(Debug)]
pub struct PerfettoSink<W: Write = BufWriter<File>> {
    trace: Trace,
    to: W,
    /// The latest instant that was told.
    latest: Instant,
    is_first: bool,
}

impl PerfettoSink {
    /// Creates the file, or empties it.
    pub fn create(path: &Path, plan: &Plan, resources: &[TracedResource<'_>]) -> io::Result<Self> {
        Self::from_writer(BufWriter::new(File::create(path)?), plan, resources)
    }
}

impl<W: Write> PerfettoSink<W> {
    /// The same for any writer.
    pub fn from_writer(mut to: W, plan: &Plan, resources: &[TracedResource<'_>]) -> io::Result<Self> {
        to.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        Ok(Self { trace: Trace::new(plan, resources), to, latest: Instant::ZERO, is_first: true })
    }

    /// Shows an event of the pipeline.
    pub fn scheduler(&mut self, event: &SchedulerEvent) -> io::Result<()> {
        self.latest = self.latest.max(event.at);
        self.trace.on_scheduler(event);
        self.write()
    }

    /// Shows an event of request admission.
    pub fn request(&mut self, event: &RequestEvent) -> io::Result<()> {
        self.latest = self.latest.max(event.at);
        self.trace.on_request(event);
        self.write()
    }

    /// Closes what is open, and the file.
    pub fn close(&mut self) -> io::Result<()> {
        self.trace.finish(self.latest);
        self.write()?;
        self.to.write_all(b"\n]}\n")?;
        self.to.flush()
    }

    fn write(&mut self) -> io::Result<()> {
        for event in self.trace.take() {
            self.to.write_all(if self.is_first { b"\n" } else { b",\n" })?;
            self.is_first = false;
            serde_json::to_writer(&mut self.to, &event)?;
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
        self.scheduler(event).map_err(|error| SinkError(error.to_string()))
    }

    fn on_request(&mut self, event: &RequestEvent) -> Result<(), SinkError> {
        self.request(event).map_err(|error| SinkError(error.to_string()))
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.close().map_err(|error| SinkError(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tidegate_core::sim::scenario::builtin;
    use tidegate_core::sim::world::World;

    use super::*;

    #[test]
    fn the_file_is_one_json_object_with_events_of_known_phases_and_named_processes() {
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
    fn a_disk_that_is_full_is_an_error_of_the_sink_and_not_of_the_run() {
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
