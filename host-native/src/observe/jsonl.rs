//! Events as JSON lines in a file.
//!
//! Each line is an [`Envelope`]: `{"schema":1,"stream":"request","event":{..}}`. Events hold numbers and no
//! names, so the file of a run begins with a line that has them:
//! `{"schema":1,"stream":"names","names":{..}}`, an [`EventNames`]. The run hands lines to a thread that
//! writes them, through a queue of bounded length: a disk that is too slow costs lines, never time. Lines
//! that were lost are counted, and show as gaps in the events' numbers.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};
use tidegate_core::observe::trace::TracedResource;
use tidegate_core::observe::{Envelope, SCHEMA, Sink, SinkError};
use tidegate_core::pipeline::event::SchedulerEvent;
use tidegate_core::request::event::RequestEvent;
use tidegate_core::request::{ProviderModelId, ResourceId};

/// Lines that wait to be written at most.
const QUEUE_CAPACITY: usize = 1 << 16;

/// What the numbers in the events of a run stand for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventNames {
    /// The columns, by their number.
    pub columns: Vec<String>,
    /// What is called.
    pub resources: Vec<ResourceName>,
    /// The number of the run's first row in the output.
    pub first_row: u64,
    /// Rows of each row group but the last.
    pub row_group_size: u32,
}

/// The name of a request resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceName {
    /// The resource.
    pub resource: ResourceId,
    /// Its provider and model, which has other resources too.
    pub model: ProviderModelId,
    /// Provider, model and domain.
    pub name: String,
}

impl ResourceName {
    /// The resource as a trace shows it.
    #[must_use]
    pub fn traced(&self) -> TracedResource<'_> {
        TracedResource { resource: self.resource, model: self.model, name: &self.name }
    }
}

/// The line of the names.
#[derive(Serialize)]
struct NamesLine<'a> {
    schema: u32,
    stream: &'static str,
    names: &'a EventNames,
}

/// Writes events to a file. See the [module documentation](self).
#[derive(Debug)]
pub struct JsonLinesSink {
    lines: Option<SyncSender<String>>,
    writer: Option<JoinHandle<io::Result<()>>>,
    lost: Arc<AtomicU64>,
}

impl JsonLinesSink {
    /// Creates the file, or empties it, and begins it with the names.
    pub fn create(path: &Path, names: &EventNames) -> io::Result<Self> {
        let mut file = File::create(path)?;
        serde_json::to_writer(&mut file, &NamesLine { schema: SCHEMA, stream: "names", names })?;
        file.write_all(b"\n")?;
        Self::from_writer(file, QUEUE_CAPACITY)
    }

    /// Writes the events alone to any writer, with room for `queue` lines that wait.
    pub fn from_writer(to: impl Write + Send + 'static, queue: usize) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(queue);
        let writer = std::thread::Builder::new().name("tidegate-events".into()).spawn(move || write(to, &waiting))?;
        Ok(Self { lines: Some(lines), writer: Some(writer), lost: Arc::default() })
    }

    /// Counts the lines that were lost because too many waited.
    #[must_use]
    pub fn lost_lines(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost)
    }

    fn send(&self, event: &impl Serialize) -> Result<(), SinkError> {
        let line = serde_json::to_string(event).map_err(|error| SinkError(error.to_string()))?;
        match self.lines.as_ref().map(|lines| lines.try_send(line)) {
            Some(Ok(())) => Ok(()),
            Some(Err(TrySendError::Full(_))) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Some(Err(TrySendError::Disconnected(_))) | None => Err("nothing is written any more".into()),
        }
    }
}

fn write(to: impl Write, lines: &Receiver<String>) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    for line in lines {
        to.write_all(line.as_bytes())?;
        to.write_all(b"\n")?;
    }
    to.flush()
}

impl Sink for JsonLinesSink {
    fn on_scheduler(&mut self, event: &SchedulerEvent) -> Result<(), SinkError> {
        self.send(&Envelope::from(event))
    }

    fn on_request(&mut self, event: &RequestEvent) -> Result<(), SinkError> {
        self.send(&Envelope::from(event))
    }

    /// Waits until everything is written.
    fn finish(&mut self) -> Result<(), SinkError> {
        self.lines = None;
        let Some(writer) = self.writer.take() else { return Ok(()) };
        match writer.join() {
            Ok(written) => written.map_err(|error| SinkError(error.to_string())),
            Err(_) => Err("the writer panicked".into()),
        }
    }
}

/// What was handed over is written even if the run ended early.
impl Drop for JsonLinesSink {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use tidegate_core::pipeline::event::SchedulerInterest;
    use tidegate_core::pipeline::{Column, Pipeline, PipelineConfig, PlanBuilder, Strategy};
    use tidegate_core::time::Instant;

    /// A file whose disk may be full, or slow.
    #[derive(Clone, Default)]
    struct Disk {
        written: Arc<Mutex<Vec<u8>>>,
        gate: Arc<Mutex<()>>,
        is_full: bool,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _open = self.gate.lock();
            if self.is_full {
                return Err(io::Error::other("no space left"));
            }
            self.written.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn events() -> Vec<SchedulerEvent> {
        let plan = PlanBuilder::new().column(Column::new("answer", Strategy::Cell)).build().unwrap();
        let mut pipeline = Pipeline::new(plan, PipelineConfig { rows: 200, ..PipelineConfig::default() }).unwrap();
        pipeline.set_interest(SchedulerInterest::ALL);
        pipeline.start(Instant::ZERO);
        std::iter::from_fn(|| pipeline.poll_event()).collect()
    }

    #[test]
    fn what_is_written_reads_back_as_the_same_events() {
        let disk = Disk::default();
        let mut sink = JsonLinesSink::from_writer(disk.clone(), QUEUE_CAPACITY).unwrap();
        let events = events();
        for event in &events {
            sink.on_scheduler(event).unwrap();
        }
        sink.finish().unwrap();
        let text = String::from_utf8(disk.written.lock().clone()).unwrap();
        let read = text.lines().map(|line| serde_json::from_str::<Envelope<SchedulerEvent>>(line).unwrap().event);
        assert!(read.eq(events.iter().copied()));
        assert!(text.starts_with("{\"schema\":1,\"stream\":\"scheduler\",\"event\":{\"sequence\":0,"), "{text}");
        assert!(sink.on_scheduler(&events[0]).is_err(), "nothing comes after the end");
    }

    #[test]
    fn a_slow_disk_costs_lines_and_no_time() {
        let disk = Disk::default();
        let mut sink = JsonLinesSink::from_writer(disk.clone(), 4).unwrap();
        let lost = sink.lost_lines();
        let events = events();
        let shut = disk.gate.lock();
        // Enough to fill the writer's buffer, at which it waits for the disk, and then the queue.
        for _ in 0..20 {
            for event in &events {
                sink.on_scheduler(event).unwrap();
            }
        }
        drop(shut);
        sink.finish().unwrap();
        let lines = disk.written.lock().split(|byte| *byte == b'\n').count() as u64 - 1;
        assert!(lost.load(Ordering::Relaxed) > 0);
        assert_eq!(lines + lost.load(Ordering::Relaxed), 20 * events.len() as u64);
    }

    #[test]
    fn a_full_disk_is_an_error_at_the_end_and_no_panic() {
        let mut sink = JsonLinesSink::from_writer(Disk { is_full: true, ..Disk::default() }, QUEUE_CAPACITY).unwrap();
        for event in events().iter().cycle().take(5_000) {
            let _ = sink.on_scheduler(event);
        }
        assert_eq!(sink.finish(), Err(SinkError("no space left".into())));
    }
}
