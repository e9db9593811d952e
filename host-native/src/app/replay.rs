//! Decision logs: writes the commands that the state machines of a run receive to a file, and replays them.
//!
//! A log is a file of JSON lines: a header with the configuration of the machines, one line per command, and
//! an end line with the digests of the decisions. It contains no prompts, responses, row values or keys,
//! since the machines never receive them. Commands are numbered. They may be slightly out of order, because
//! the commands of the two machines are written in turns.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use tidegate_core::replay::{
    Command, Header, LineError, LogError as CoreLogError, LogLine, LogReader, ReplayError, Replayed, Stamped,
    UnreadableLine,
};

use crate::app::error::{Error, Exit};
use crate::app::output::OutputFile;

/// Writes the decision log of one run. After an error it writes nothing more.
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    entries: u64,
}

impl LogWriter {
    /// Creates the log and writes its header.
    pub fn create(file: OutputFile, header: &Header) -> io::Result<Self> {
        let path = file.into_path();
        let file = File::create(&path)?;
        let mut writer = Self { path, file: Some(BufWriter::new(file)), entries: 0 };
        writer.write_line(&LogLine::header(header.clone()))?;
        Ok(writer)
    }

    /// Writes commands. After the first error, later calls do nothing and return `Ok`.
    pub fn write(&mut self, commands: Vec<Stamped<Command>>) -> Result<(), String> {
        commands.into_iter().try_for_each(|entry| {
            self.entries += 1;
            self.write_line(&LogLine::command(entry)).map_err(|error| self.fail(&error))
        })
    }

    /// Writes the end line with the digests of the pipeline and of the request admission, and flushes the
    /// file.
    pub fn finish(mut self, digests: (u64, u64)) -> Result<(), String> {
        self.write_line(&LogLine::end(self.entries, digests))
            .and_then(|()| self.file.take().map_or(Ok(()), |mut file| file.flush()))
            .map_err(|error| self.fail(&error))
    }

    fn write_line(&mut self, line: &LogLine) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        serde_json::to_writer(&mut *file, line)?;
        file.write_all(b"\n")
    }

    /// Stops writing, and returns the message for `error`.
    fn fail(&mut self, error: &io::Error) -> String {
        self.file = None;
        format!("the decision log {} is incomplete: {error}", self.path.display())
    }
}

/// Why a log cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A line is not part of a decision log.
    #[error("{path}:{line}: this is not a line of a decision log: {why}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The reason.
        why: LineError,
    },
    /// The machines cannot replay the log.
    #[error("{path}: {source}")]
    Replay {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: ReplayError,
    },
}

/// Runs `tidegate replay`. Returns the text to print and the exit code, which is [`Exit::ChecksFailed`] if a
/// decision differs.
pub fn replay_log(path: &Path) -> Result<(String, Exit), Error> {
    let replayed = replay(path)?;
    let exit = if replayed.is_equal() == Some(false) { Exit::ChecksFailed } else { Exit::Done };
    Ok((describe(&replayed), exit))
}

/// Replays the log at `path` with new machines.
pub fn replay(path: &Path) -> Result<Replayed, LogError> {
    let read = |source| LogError::Read { path: path.to_owned(), source };
    let invalid = |error| match error {
        CoreLogError::Line { line, why } => LogError::Line { path: path.to_owned(), line, why },
        CoreLogError::Replay(source) => LogError::Replay { path: path.to_owned(), source },
    };
    let mut reader = LogReader::default();
    for line in BufReader::new(File::open(path).map_err(read)?).split(b'\n') {
        reader.feed(parse(&line.map_err(read)?)).map_err(invalid)?;
    }
    let log = reader.finish().map_err(invalid)?;
    log.replay().map_err(|source| invalid(CoreLogError::Replay(source)))
}

pub(super) fn parse(line: &[u8]) -> Result<LogLine, UnreadableLine> {
    serde_json::from_slice(line).map_err(|error| {
        if error.is_data() {
            UnreadableLine::OtherShape(error.to_string())
        } else {
            UnreadableLine::NotJson(error.to_string())
        }
    })
}

/// Formats the result of a replay.
fn describe(replayed: &Replayed) -> String {
    let mut lines = vec![format!("{} commands replayed", replayed.entries)];
    if let Some(report) = &replayed.report {
        let (rows, out, dropped) = (report.rows, report.rows_out, report.rows_dropped);
        let elapsed = report.elapsed();
        lines.push(format!("the run: {}; {out} of {rows} rows out, {dropped} dropped, in {elapsed}", report.stop));
    }
    let (run, requests) = replayed.digests;
    lines.push(format!("decision digest {run:016x} {requests:016x}"));
    if replayed.left_out > 0 {
        lines.push(format!("{} commands after the first gap were ignored", replayed.left_out));
    }
    lines.push(match replayed.recorded {
        None => "the log has no end line: the run was killed, and there is nothing to compare".to_owned(),
        Some(recorded) if recorded == replayed.digests => "every decision is the same".to_owned(),
        Some((run, requests)) => format!("THE DECISIONS DIFFER: the recorded digest is {run:016x} {requests:016x}"),
    });
    lines.join("\n") + "\n"
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        Self::new(Exit::Pipeline, error)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tidegate_core::pipeline::{Column, PipelineConfig, PlanBuilder, Strategy};
    use tidegate_core::replay::{Recorded, Sequence, merge};
    use tidegate_core::request::{RequestAdmission, RequestConfig};

    use super::*;

    #[test]
    fn a_log_that_cannot_be_written_takes_and_drops_later_commands_and_reports_one_error() {
        let plan = PlanBuilder::new().column(Column::new("a", Strategy::Cell)).build().unwrap();
        let header = Header::new(&plan, &PipelineConfig::default(), &RequestConfig::default());
        let mut admission = Recorded::new(RequestAdmission::new(RequestConfig::default()).unwrap());
        admission.start_recording(&Sequence::default());
        let mut log = LogWriter::create(OutputFile::open(Path::new("/dev/full")).unwrap(), &header).unwrap();
        let mut errors = Vec::new();
        for group in 0..1_000 {
            admission.group(&format!("group {group}"), 1.0).unwrap();
            errors.extend(log.write(merge(Vec::new(), admission.take_commands())).err());
        }
        assert!(matches!(&errors[..], [error] if error.starts_with("the decision log /dev/full is incomplete: ")));
        assert_eq!(log.entries, 1_000, "each is taken");
        assert_eq!(log.finish((0, 0)), Ok(()));
    }
}
