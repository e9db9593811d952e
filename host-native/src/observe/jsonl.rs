//! Events as JSON lines in a file.
//!
//! Each line is an [`Envelope`]: `{"schema":1,"stream":"request","event":{..}}`. Events identify columns and
//! resources by number. The file of a run therefore begins with their names, as a line with [`EventNames`]:
//! `{"schema":1,"stream":"names","names":{..}}`.
//!
//! A separate thread writes the lines, behind a bounded queue. If the disk is too slow, lines are lost and
//! the run is not delayed. Lost lines are counted, and show as gaps in the sequence numbers of the events.

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

/// The maximum number of lines that wait to be written.
const QUEUE_CAPACITY: usize = 1 << 16;

/// The names behind the numbers in the events of a run: the first line of its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventNames {
    /// The names of the columns, by column number.
    pub columns: Vec<String>,
    /// The names of the request resources.
    pub resources: Vec<ResourceName>,
    /// The number of the run's first row in the output, counted from 0.
    pub first_row: u64,
    /// The number of rows of each row group. The last one may have fewer.
    pub row_group_size: u32,
}

/// The name of a request resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceName {
    /// The resource.
    pub resource: ResourceId,
    /// Its provider and model, which may have resources of other domains.
    pub model: ProviderModelId,
    /// Its name: `provider/model/domain`.
    pub name: String,
}

impl ResourceName {
    /// Returns the resource in the form that a trace needs.
    #[must_use]
    pub fn traced(&self) -> TracedResource<'_> {
        TracedResource { resource: self.resource, model: self.model, name: &self.name }
    }
}

/// The line that contains the names.
#[derive(Serialize)]
struct NamesLine<'a> {
    schema: u32,
    stream: &'static str,
    names: &'a EventNames,
}

/// A sink that writes events as JSON lines. See the [module documentation](self).
///
/// Dropping it writes the lines that are queued.
///
/// ```
/// use tidegate_core::observe::Sinks;
/// use tidegate_native::observe::jsonl::JsonLinesSink;
///
/// # fn main() -> std::io::Result<()> {
/// let sink = JsonLinesSink::from_writer(std::io::sink(), 1_024)?;
/// let lost = sink.lost_lines();
/// let mut sinks = Sinks::default();
/// sinks.add("events", sink);
/// // ... pass `sinks` to `PipelineRun::with_sinks`, and run ...
/// # drop(sinks);
/// assert_eq!(lost.load(std::sync::atomic::Ordering::Relaxed), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct JsonLinesSink {
    /// `None` once the sink is finished.
    lines: Option<SyncSender<String>>,
    writer: Option<JoinHandle<io::Result<()>>>,
    lost: Arc<AtomicU64>,
}

impl JsonLinesSink {
    /// Creates a sink that writes to a file, and writes the line of names. An existing file is truncated.
    ///
    /// # Errors
    ///
    /// The file cannot be created or written, or the writer thread cannot be started.
    pub fn create(path: &Path, names: &EventNames) -> io::Result<Self> {
        let mut file = File::create(path)?;
        serde_json::to_writer(&mut file, &NamesLine { schema: SCHEMA, stream: "names", names })?;
        file.write_all(b"\n")?;
        Self::from_writer(file, QUEUE_CAPACITY)
    }

    /// Creates a sink that writes to any writer, without a line of names. At most `queue_capacity` lines wait
    /// to be written.
    ///
    /// # Errors
    ///
    /// The writer thread cannot be started.
    pub fn from_writer(to: impl Write + Send + 'static, queue_capacity: usize) -> io::Result<Self> {
        let (lines, queued) = sync_channel(queue_capacity);
        let writer =
            std::thread::Builder::new().name("tidegate-events".into()).spawn(move || write_lines(to, &queued))?;
        Ok(Self { lines: Some(lines), writer: Some(writer), lost: Arc::default() })
    }

    /// Returns the counter of lines that were lost because the queue was full. It can be read while the run
    /// continues.
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
            Some(Err(TrySendError::Disconnected(_))) | None => Err("the writer has ended".into()),
        }
    }
}

fn write_lines(to: impl Write, lines: &Receiver<String>) -> io::Result<()> {
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

    /// Waits until all queued lines are written.
    fn finish(&mut self) -> Result<(), SinkError> {
        self.lines = None;
        let Some(writer) = self.writer.take() else { return Ok(()) };
        match writer.join() {
            Ok(written) => written.map_err(|error| SinkError(error.to_string())),
            Err(_) => Err("the writer panicked".into()),
        }
    }
}

/// Writes the queued lines also if the run ends early.
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

    /// A file on a disk that may be full or blocked.
    #[derive(Clone, Default)]
    struct Disk {
        written: Arc<Mutex<Vec<u8>>>,
        /// Writes wait while this is locked.
        gate: Arc<Mutex<()>>,
        is_full: bool,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _unblocked = self.gate.lock();
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
    fn written_events_read_back_equal() {
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
        assert!(sink.on_scheduler(&events[0]).is_err(), "a finished sink accepts no event");
    }

    #[test]
    fn a_slow_disk_loses_lines_and_delays_nothing() {
        let disk = Disk::default();
        let mut sink = JsonLinesSink::from_writer(disk.clone(), 4).unwrap();
        let lost = sink.lost_lines();
        let events = events();
        let blocked = disk.gate.lock();
        // Enough events to fill the buffer of the writer, which then waits for the disk, and the queue.
        for _ in 0..20 {
            for event in &events {
                sink.on_scheduler(event).unwrap();
            }
        }
        drop(blocked);
        sink.finish().unwrap();
        let lines = disk.written.lock().split(|byte| *byte == b'\n').count() as u64 - 1;
        assert!(lost.load(Ordering::Relaxed) > 0);
        assert_eq!(lines + lost.load(Ordering::Relaxed), 20 * events.len() as u64);
    }

    #[test]
    fn a_full_disk_is_an_error_when_the_sink_finishes() {
        let mut sink = JsonLinesSink::from_writer(Disk { is_full: true, ..Disk::default() }, QUEUE_CAPACITY).unwrap();
        for event in events().iter().cycle().take(5_000) {
            let _ = sink.on_scheduler(event);
        }
        assert_eq!(sink.finish(), Err(SinkError("no space left".into())));
    }
}
