//! What is found out before a run, without a call: whatever is wrong with the pipeline file, the dataset, the environment or the place
//! of the output. All of it is listed, not only the first. `run`, `run --dry-run` and `check` begin with it.
//!
//! A template is looked at in two ways. Its text says which filters, tests and fields cannot be, whatever the values are
//! ([`faults`](crate::app::template::Templates::faults)). And it is rendered for the first rows: one that reads nothing but the dataset, and
//! fails for all of them, would drop every row. Where it reads an answer, nothing is said that the answer could prove wrong.

use std::io;
use std::path::{Path, PathBuf};

use crate::app::config::pipeline::{ColumnSpec, Endpoint, FileError, PipelineFile};
use crate::app::data::Dataset;
use crate::app::data::row_file::RowFormat;
use crate::app::error::Error;
use crate::app::example;
use crate::app::output::{Existing, OutputError};
use crate::app::run::estimate::{ColumnEstimate, Failure, estimate};
use crate::app::run::models;
use crate::app::run::request::RunRequest;
use crate::app::run::resolve::Job;
use crate::app::run::resolve::place::template_error;

/// What was found out.
#[derive(Debug)]
pub struct Preflight {
    /// The pipeline's name in messages.
    pub name: String,
    /// The pipeline file.
    pub file: PipelineFile,
    /// What it means for the rows that are asked for, if it means anything.
    pub job: Option<Job>,
    /// What its columns would take.
    pub estimates: Vec<ColumnEstimate>,
    /// What is wrong.
    pub problems: Vec<Error>,
    /// By model of the file whether it can be called, as far as this machine can say.
    pub is_callable: Vec<bool>,
    /// Bytes that are free where the output goes, where that can be told.
    pub free: Option<u64>,
}

/// Everything that a run begins with, with nothing wrong with it.
#[derive(Debug)]
pub struct Ready {
    /// The pipeline's name in messages.
    pub name: String,
    /// The pipeline file.
    pub file: PipelineFile,
    /// What it means for the rows that are asked for.
    pub job: Job,
    /// What its columns would take.
    pub estimates: Vec<ColumnEstimate>,
}

impl Preflight {
    /// Looks at all that `request` names. The error is a pipeline file that cannot be read at all.
    pub fn of(request: &RunRequest) -> Result<Self, Error> {
        let (name, file) = match &request.pipeline {
            None => (example::NAME.to_string(), example::pipeline()?),
            Some(path) => (path.display().to_string(), PipelineFile::load(path)?),
        };
        let is_callable = vec![true; file.models.len()];
        let mut found =
            Self { name, file, job: None, estimates: Vec::new(), problems: Vec::new(), is_callable, free: None };
        found.look_at_models(request);
        found.look_at_rows(request).unwrap_or_else(|error| found.problems.push(error));
        found.look_at_output(request);
        Ok(found)
    }

    /// What a run begins with; the error is all that is wrong.
    pub fn ready(self) -> Result<Ready, Error> {
        match (Error::all(self.problems), self.job) {
            (Some(error), _) => Err(error),
            (None, Some(job)) => Ok(Ready { name: self.name, file: self.file, job, estimates: self.estimates }),
            (None, None) => Err(Error::Internal("a pipeline without a fault has no job".to_string())),
        }
    }

    /// Keys, commands and prices of the models that columns call.
    fn look_at_models(&mut self, request: &RunRequest) {
        let file = &self.file;
        let mut variables: Vec<&str> = Vec::new();
        for place in models::called(file) {
            let Err(error) = models::check(file, place) else { continue };
            self.is_callable[place] = false;
            // One variable that is not set is one thing to mend, however many models use it.
            if let Some(name) = file.models[place].endpoint.key_variable() {
                if variables.contains(&name) {
                    continue;
                }
                variables.push(name);
            }
            self.problems.push(error.into());
        }
        if request.max_cost.is_some() {
            self.problems.extend(without_price(file).map(Error::from));
        }
    }

    /// The dataset, and what the columns make of it.
    fn look_at_rows(&mut self, request: &RunRequest) -> Result<(), Error> {
        let file = &self.file;
        let dataset = match request.pipeline {
            None => example::dataset()?,
            Some(_) => Dataset::load(&file.seed.path, file.seed.format)?,
        };
        let mut job = match Job::resolve(file, dataset) {
            Ok(job) => job,
            Err(errors) => {
                self.problems.extend(errors.into_iter().map(Error::from));
                return Ok(());
            }
        };
        job.select(request.rows.clone(), request.limit).map_err(Error::Setting)?;
        let estimates = estimate(&job, file.run.row_group_size.get())?;
        for (at, (spec, estimate)) in file.columns.iter().zip(&estimates).enumerate() {
            let faults = faults(file, &job, at);
            let failure = estimate.failure.as_ref().filter(|_| estimate.fails_always && faults.is_empty());
            self.problems.extend(faults.into_iter().map(Error::from));
            self.problems.extend(failure.map(|failure| fails_always(file, &job, spec, failure).into()));
        }
        (self.job, self.estimates) = (Some(job), estimates);
        Ok(())
    }

    /// Whether files can be written where the output goes. Nothing is written.
    fn look_at_output(&mut self, request: &RunRequest) {
        let out = &request.out;
        match writable(out) {
            Ok(directory) => self.free = free_bytes(&directory),
            Err(source) => self.problems.push(OutputError::Io { path: out.clone(), source }.into()),
        }
        // Of rows that are there already some take no more room, and others give theirs back.
        let is_new = request.existing == Existing::Refuse;
        let (Some(free), Some(needed), true) = (self.free, self.bytes_needed(), is_new) else { return };
        if let Err(source) = has_room(free, needed) {
            self.problems.push(OutputError::Io { path: out.clone(), source }.into());
        }
    }

    /// Bytes that the rows of the dataset take in the output, where every value is written out as it was read.
    fn bytes_needed(&self) -> Option<u64> {
        let job = self.job.as_ref().filter(|_| matches!(self.file.output.format, RowFormat::Jsonl | RowFormat::Csv))?;
        let seed = &self.file.seed;
        let size = std::fs::metadata(&seed.path).ok().filter(|_| seed.format.is_text())?.len();
        let rows = u128::from(job.rows.end - job.rows.start);
        u64::try_from(u128::from(size) * rows / u128::from(job.dataset.rows().max(1))).ok()
    }
}

/// The first model that costs and has no price: a cost limit is worth nothing then.
fn without_price(file: &PipelineFile) -> Option<FileError> {
    let mut called = models::called(file).into_iter().map(|place| &file.models[place]);
    let model = called.find(|model| model.price.is_none() && matches!(model.endpoint, Endpoint::Remote { .. }))?;
    let message = format!("--max-cost needs a price, and the model `{}` has none", model.name);
    let expected = "a table such as `price = { input_per_million = 0.15, output_per_million = 0.6 }`";
    Some(file.source.error(model.span.clone(), message).expected(expected))
}

/// What is wrong with the templates of the column at `at`, whatever its rows hold.
fn faults(file: &PipelineFile, job: &Job, at: usize) -> Vec<FileError> {
    let texts = job.texts.iter().filter(|text| text.column == at);
    texts.flat_map(|text| text.faults(&file.source, &job.templates, |name| job.shape(at, name))).collect()
}

/// A column that would drop all of the first rows.
fn fails_always(file: &PipelineFile, job: &Job, spec: &ColumnSpec, failure: &Failure) -> FileError {
    let column = spec.name.get_ref();
    let expected = "a value for at least one of the first rows";
    match failure.text.and_then(|place| job.texts.get(place)) {
        Some(text) => {
            let message = format!("`{column}` fails for every one of the first rows: {}", failure.error.message);
            template_error(&file.source, &text.text, &failure.error, message)
        }
        None => file.source.error(
            spec.span(),
            format!("`{column}` has no value for any of the first rows: {}", failure.error.message),
        ),
    }
    .expected(expected)
}

/// Whether rows that take so many bytes find room where so many are free.
fn has_room(free: u64, needed: u64) -> io::Result<()> {
    if free >= needed {
        return Ok(());
    }
    let why = format!("{} are free there, and the rows of the dataset alone take {}", bytes(free), bytes(needed));
    Err(io::Error::new(io::ErrorKind::StorageFull, why))
}

/// The nearest directory above or at `out` that is there, if files can be made in it.
fn writable(out: &Path) -> io::Result<PathBuf> {
    for directory in out.ancestors() {
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        match std::fs::metadata(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(found) if !found.is_dir() => return Err(io::ErrorKind::NotADirectory.into()),
            Ok(found) => return may_write(directory, &found).map(|()| directory.to_path_buf()),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

#[cfg(unix)]
fn may_write(directory: &Path, _: &std::fs::Metadata) -> io::Result<()> {
    use rustix::fs::{Access, access};
    Ok(access(directory, Access::WRITE_OK | Access::EXEC_OK)?)
}

#[cfg(not(unix))]
fn may_write(_: &Path, found: &std::fs::Metadata) -> io::Result<()> {
    if found.permissions().readonly() { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
}

/// Bytes that are free for this user where `directory` is.
#[cfg(unix)]
fn free_bytes(directory: &Path) -> Option<u64> {
    let filesystem = rustix::fs::statvfs(directory).ok()?;
    filesystem.f_bavail.checked_mul(filesystem.f_frsize)
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}

/// So many bytes as a person reads them.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "kB", "MB", "GB", "TB"];
    let mut unit = 0;
    let mut value = count as f64;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} bytes") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_yet_can_be_written_if_one_above_it_can() {
        let scratch = tempfile::tempdir().unwrap();
        assert_eq!(writable(&scratch.path().join("a/b/c")).unwrap(), scratch.path());
        std::fs::write(scratch.path().join("file"), "").unwrap();
        assert_eq!(writable(&scratch.path().join("file")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(writable(&scratch.path().join("file/out")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(writable(Path::new("no-such-directory/out")).unwrap(), Path::new("."));
    }

    #[test]
    fn a_disk_that_cannot_hold_the_rows_of_the_dataset_has_no_room() {
        assert!(has_room(100, 100).is_ok());
        let error = has_room(1_500_000, 2_000_000_000).unwrap_err().to_string();
        assert_eq!(error, "1.5 MB are free there, and the rows of the dataset alone take 2.0 GB");
    }

    #[test]
    fn bytes_are_written_in_the_largest_unit_that_leaves_a_whole() {
        let written = [0, 999, 1_000, 1_234_567, 5_000_000_000_000_000].map(bytes);
        assert_eq!(written, ["0 bytes", "999 bytes", "1.0 kB", "1.2 MB", "5000.0 TB"]);
    }
}
