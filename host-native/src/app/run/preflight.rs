//! Checks everything that a run depends on before it makes a call: the pipeline file, the dataset, the
//! environment and the output directory.
//!
//! All errors are reported, not only the first. `run`, `run --dry-run` and `check` start here.
//!
//! Templates are checked in two ways. Static analysis
//! ([`Templates::static_errors`](crate::app::template::Templates::static_errors)) finds filters, tests and
//! fields that cannot exist, whatever the values are. Then each template is rendered for the first rows: one
//! that reads only the dataset and fails for all of these rows would drop every row. Nothing is reported that
//! depends on the answer of a model.

use std::io;
use std::path::{Path, PathBuf};

use crate::app::config::pipeline::{ColumnSpec, DatasetLocation, Domain, Endpoint, FileError, PipelineFile};
use crate::app::data::Dataset;
use crate::app::data::row_file::RowFormat;
use crate::app::error::Error;
use crate::app::example;
use crate::app::output::{ExistingOutput, ExportFile, OutputError, dataset_digest};
use crate::app::render::table::format_bytes;
use crate::app::run::download::Download;
use crate::app::run::estimate::{ColumnEstimate, SampleFailure, estimate};
use crate::app::run::models;
use crate::app::run::request::RunRequest;
use crate::app::run::resolve::ResolvedPipeline;
use crate::app::run::resolve::location::template_error;

/// The result of the checks.
#[derive(Debug)]
pub struct Preflight {
    /// The pipeline's name in messages.
    pub name: String,
    /// The pipeline file.
    pub file: PipelineFile,
    /// The file resolved against its dataset, for the selected rows; `None` if that failed.
    pub resolved: Option<ResolvedPipeline>,
    /// The estimates of its columns, in file order.
    pub estimates: Vec<ColumnEstimate>,
    /// All errors.
    pub problems: Vec<Error>,
    /// For each model of the file, whether it can be called as far as this machine can tell.
    pub is_callable: Vec<bool>,
    /// Free bytes on the file system of the output directory; `None` if unknown.
    pub free_bytes: Option<u64>,
}

/// The input of a run, without errors.
#[derive(Debug)]
pub struct Ready {
    /// The pipeline's name in messages.
    pub name: String,
    /// The pipeline file.
    pub file: PipelineFile,
    /// The file resolved against its dataset, for the selected rows.
    pub resolved: ResolvedPipeline,
    /// The estimates of its columns, in file order.
    pub estimates: Vec<ColumnEstimate>,
}

impl Preflight {
    /// Checks everything that `request` names, after downloading the dataset if it is at an address. `report`
    /// shows a line of progress.
    ///
    /// # Errors
    /// If the pipeline file cannot be parsed. All other errors are in [`problems`](Self::problems).
    pub async fn run(request: &RunRequest, report: &mut dyn FnMut(&str)) -> Result<Self, Error> {
        let (name, mut file) = match &request.pipeline {
            None => (example::NAME.to_string(), example::pipeline()?),
            Some(path) => (path.display().to_string(), PipelineFile::load(path)?),
        };
        if request.all_columns {
            // What was listed has other names.
            let unique = file.output.unique.take().filter(|_| file.output.columns.is_none());
            (file.output.columns, file.output.record, file.output.unique) = (None, None, unique);
            file.columns.iter_mut().for_each(|column| column.is_written = true);
        }
        let is_callable = vec![true; file.models.len()];
        let mut found = Self {
            name,
            file,
            resolved: None,
            estimates: Vec::new(),
            problems: Vec::new(),
            is_callable,
            free_bytes: None,
        };
        found.check_models(request);
        match found.load_dataset(request, report).await {
            Ok(dataset) => found.check_rows(request, dataset).unwrap_or_else(|error| found.problems.push(error)),
            Err(error) => found.problems.push(error),
        }
        found.check_output(request);
        if let Some(export) = &request.export {
            found.problems.extend(check_export(export, found.file.output.format).err());
        }
        Ok(found)
    }

    /// Returns the input of the run.
    ///
    /// # Errors
    /// All errors that were found, as one.
    pub fn ready(self) -> Result<Ready, Error> {
        match (Error::combine(self.problems), self.resolved) {
            (Some(error), _) => Err(error),
            (None, Some(resolved)) => {
                Ok(Ready { name: self.name, file: self.file, resolved, estimates: self.estimates })
            }
            (None, None) => Err(Error::Internal("a pipeline without errors was not resolved".to_string())),
        }
    }

    /// Checks the keys, commands and prices of the models that columns call, and the commands of tools.
    fn check_models(&mut self, request: &RunRequest) {
        let file = &self.file;
        let mut variables: Vec<&str> = Vec::new();
        for index in models::called_models(file) {
            let Err(error) = models::check_model(file, index) else { continue };
            self.is_callable[index] = false;
            // An unset variable is one error, however many models use it.
            let names: Vec<&str> = file.models[index].secret_variables().collect();
            if !names.is_empty() && names.iter().all(|name| variables.contains(name)) {
                continue;
            }
            variables.extend(names);
            self.problems.push(error.into());
        }
        self.problems.extend(models::check_tools(file).map(Error::from));
        if request.max_cost.is_some() {
            self.problems.extend(unpriced_model(file).map(Error::from));
        }
    }

    /// Opens and checks the dataset.
    async fn load_dataset(&self, request: &RunRequest, report: &mut dyn FnMut(&str)) -> Result<Dataset, Error> {
        let file = &self.file;
        let seed = match &file.rows.dataset {
            _ if request.pipeline.is_none() => return Ok(example::dataset()?),
            Some(seed) => seed,
            None => return Ok(Dataset::without_columns(file.rows.most)),
        };
        let dataset = match &seed.location {
            DatasetLocation::Local(path) => Dataset::load(path, seed.format, seed.encoding)?,
            DatasetLocation::Remote(remote) => {
                let is_resumed = request.existing == ExistingOutput::Resume;
                let known = is_resumed.then(|| dataset_digest(&request.out)).flatten();
                let download = Download(remote);
                let path = download.fetch(seed.format, known.as_deref(), report).await?;
                Dataset::load(&path, seed.format, seed.encoding).map_err(|error| download.with_address(error))?
            }
        };
        Ok(if seed.shuffle { dataset.shuffled(file.run.seed)? } else { dataset })
    }

    /// Checks the columns for the rows of the dataset.
    fn check_rows(&mut self, request: &RunRequest, dataset: Dataset) -> Result<(), Error> {
        let file = &self.file;
        let mut resolved = match ResolvedPipeline::resolve(file, dataset) {
            Ok(resolved) => resolved,
            Err(errors) => {
                self.problems.extend(errors.into_iter().map(Error::from));
                return Ok(());
            }
        };
        if let (Some(partition), Some(_)) = (request.partition, file.rows.wanted) {
            let message =
                format!("--partition {partition} has no effect on rows that are made until enough are accepted");
            return Err(Error::Setting(format!(
                "{message}; expected a pipeline without `accept_if`, or no --partition"
            )));
        }
        let most = request.limit.map_or(file.rows.most, |limit| limit.min(file.rows.most));
        resolved.select_rows(request.rows.clone(), request.partition, most).map_err(Error::Setting)?;
        let estimates = estimate(&resolved, file.run.row_group_size.get())?;
        for (at, (spec, estimate)) in file.columns.iter().zip(&estimates).enumerate() {
            let static_errors = static_errors(file, &resolved, at);
            let failure = estimate.failure.as_ref().filter(|_| estimate.fails_always && static_errors.is_empty());
            self.problems.extend(static_errors.into_iter().map(Error::from));
            self.problems.extend(failure.map(|failure| sample_error(file, &resolved, spec, failure).into()));
        }
        self.problems.extend(resolved.output_errors(file).into_iter().map(Error::from));
        (self.resolved, self.estimates) = (Some(resolved), estimates);
        Ok(())
    }

    /// Checks that the output can be written, without writing anything.
    fn check_output(&mut self, request: &RunRequest) {
        let out = &request.out;
        match writable_ancestor(out) {
            Ok(directory) => self.free_bytes = free_bytes(&directory),
            Err(source) => self.problems.push(OutputError::Io { path: out.clone(), source }.into()),
        }
        // Rows that exist already may be kept or replaced, so the space that they need is unknown.
        let is_new = request.existing == ExistingOutput::Refuse;
        let (Some(free), Some(needed), true) = (self.free_bytes, self.bytes_needed(), is_new) else { return };
        if let Err(source) = check_space(free, needed) {
            self.problems.push(OutputError::Io { path: out.clone(), source }.into());
        }
    }

    /// Returns the bytes that the seed values take in the output, assuming that they are written as they were
    /// read and that the rows are about equally long.
    fn bytes_needed(&self) -> Option<u64> {
        let resolved =
            self.resolved.as_ref().filter(|_| matches!(self.file.output.format, RowFormat::Jsonl | RowFormat::Csv))?;
        self.file.rows.dataset.as_ref().filter(|seed| seed.format.is_text())?;
        let size = resolved.dataset.digest().bytes;
        let candidates = resolved.rows.end - resolved.rows.start;
        let rows = self.file.rows.wanted.map_or(candidates, |wanted| candidates.min(wanted));
        u64::try_from(u128::from(size) * u128::from(rows) / u128::from(resolved.dataset.rows().max(1))).ok()
    }
}

/// Returns an error for the first called model that may cost money and has no price. A cost limit has no
/// effect on it.
fn unpriced_model(file: &PipelineFile) -> Option<FileError> {
    let mut called = models::called_models(file).into_iter().map(|index| &file.models[index]);
    let model = called.find(|model| model.price.is_none() && matches!(model.endpoint, Endpoint::Remote { .. }))?;
    let message = format!("--max-cost needs a price, and the model `{}` has none", model.name);
    let expected = match model.domain {
        Domain::Image => "a table such as `price = { per_image = 0.04 }`",
        _ => "a table such as `price = { input_per_million = 0.15, output_per_million = 0.6 }`",
    };
    Some(file.source.error(model.span.clone(), message).expected(expected))
}

/// Returns the static errors in the templates of the column at `at`.
fn static_errors(file: &PipelineFile, resolved: &ResolvedPipeline, at: usize) -> Vec<FileError> {
    let shape = |name: &str| resolved.variable_shape(at, name);
    let sources = resolved.template_sources.iter().filter(|source| source.column == at);
    sources.flat_map(|source| source.static_errors(&file.source, &resolved.templates, shape)).collect()
}

/// Returns the error for a column that has no value for any of the first rows.
fn sample_error(
    file: &PipelineFile,
    resolved: &ResolvedPipeline,
    spec: &ColumnSpec,
    failure: &SampleFailure,
) -> FileError {
    let column = spec.name.get_ref();
    let expected = "a value for at least one of the first rows";
    match failure.source.and_then(|index| resolved.template_sources.get(index)) {
        Some(source) => {
            let message = format!("`{column}` fails for every one of the first rows: {}", failure.error.message);
            template_error(&file.source, &source.text, &failure.error, message)
        }
        None => file.source.error(
            spec.span(),
            format!("`{column}` has no value for any of the first rows: {}", failure.error.message),
        ),
    }
    .expected(expected)
}

/// Checks that rows of `format` can be exported to a file of `export`, without writing anything.
fn check_export(export: &ExportFile, format: RowFormat) -> Result<(), Error> {
    if format == RowFormat::Csv && export.format != format {
        return Err(Error::Setting(format!(
            "rows in CSV have no types, so they cannot be exported to {}; expected a name that ends in .csv, or another \
             `format` in [output]",
            export.path.display(),
        )));
    }
    let directory = export.directory();
    let found = std::fs::metadata(directory);
    let writable = found.and_then(|found| {
        if found.is_dir() { check_writable(directory, &found) } else { Err(io::ErrorKind::NotADirectory.into()) }
    });
    writable.map_err(|source| OutputError::Io { path: export.path.clone(), source }.into())
}

/// Checks that `needed` bytes fit into `free` bytes.
fn check_space(free: u64, needed: u64) -> io::Result<()> {
    if free >= needed {
        return Ok(());
    }
    let why = format!(
        "{} are free there, and the rows of the dataset alone take {}",
        format_bytes(free),
        format_bytes(needed)
    );
    Err(io::Error::new(io::ErrorKind::StorageFull, why))
}

/// Returns the nearest existing ancestor of `out`, or `out` itself, if files can be created in it.
fn writable_ancestor(out: &Path) -> io::Result<PathBuf> {
    for directory in out.ancestors() {
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        match std::fs::metadata(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(found) if !found.is_dir() => return Err(io::ErrorKind::NotADirectory.into()),
            Ok(found) => return check_writable(directory, &found).map(|()| directory.to_path_buf()),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

#[cfg(unix)]
fn check_writable(directory: &Path, _: &std::fs::Metadata) -> io::Result<()> {
    use rustix::fs::{Access, access};
    Ok(access(directory, Access::WRITE_OK | Access::EXEC_OK)?)
}

#[cfg(not(unix))]
fn check_writable(_: &Path, found: &std::fs::Metadata) -> io::Result<()> {
    if found.permissions().readonly() { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
}

/// Returns the bytes that are free for this user on the file system of `directory`.
#[cfg(unix)]
fn free_bytes(directory: &Path) -> Option<u64> {
    let filesystem = rustix::fs::statvfs(directory).ok()?;
    filesystem.f_bavail.checked_mul(filesystem.f_frsize)
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::config::pipeline::SourceText;
    use crate::app::data::DatasetFormat;

    #[test]
    fn a_missing_directory_is_writable_if_its_nearest_existing_ancestor_is() {
        let scratch = tempfile::tempdir().unwrap();
        assert_eq!(writable_ancestor(&scratch.path().join("a/b/c")).unwrap(), scratch.path());
        std::fs::write(scratch.path().join("file"), "").unwrap();
        assert_eq!(writable_ancestor(&scratch.path().join("file")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(
            writable_ancestor(&scratch.path().join("file/out")).unwrap_err().kind(),
            io::ErrorKind::NotADirectory
        );
        assert_eq!(writable_ancestor(Path::new("no-such-directory/out")).unwrap(), Path::new("."));
    }

    #[test]
    fn a_disk_too_small_for_the_dataset_is_an_error() {
        assert!(check_space(100, 100).is_ok());
        let error = check_space(1_500_000, 2_000_000_000).unwrap_err().to_string();
        assert_eq!(error, "1.5 MB are free there, and the rows of the dataset alone take 2.0 GB");
    }

    #[test]
    fn the_dataset_needs_space_for_the_rows_that_are_written_and_not_for_all_candidates() {
        for (rows, expected) in [("", 1_010), ("rows = 4\n", 40), ("rows = 4\nmax_candidates = 9\n", 40)] {
            let text = format!(
                "[seed]\npath = \"d.csv\"\n[run]\n{rows}[[models]]\nname = \"m\"\nprovider = \"mock\"\nmock = {{}}\n\
                 max_parallel = 2\n[[columns]]\nname = \"a\"\nmodel = \"m\"\nprompt = \"{{{{ note }}}}\"\n\
                 accept_if = \"a != ''\"\n"
            );
            let file = PipelineFile::parse(SourceText::new("p.toml", text), Path::new("")).unwrap();
            let data = format!("note,more\n{}", "abc,defgh\n".repeat(100));
            let dataset = Dataset::parse(Path::new("d.csv"), data.as_bytes(), DatasetFormat::Csv).unwrap();
            let mut resolved = ResolvedPipeline::resolve(&file, dataset).unwrap();
            resolved.select_rows(None, None, file.rows.most).unwrap();
            let found = Preflight {
                name: String::new(),
                file,
                resolved: Some(resolved),
                estimates: Vec::new(),
                problems: Vec::new(),
                is_callable: Vec::new(),
                free_bytes: None,
            };
            assert_eq!(found.bytes_needed(), Some(expected), "{rows}");
        }
    }
}
