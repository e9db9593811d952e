//! The output of earlier runs in a directory: a new run either resumes from it or removes it.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::error::{OutputError, io_error, unreadable};
use super::files::{
    BATCHES, IMAGES, MANIFEST, ROWS, RowFile, SPENT, dropped_name, is_capacity_name, is_own_name, is_row_file_name,
    is_temporary_name, read_lines, remove_temporary, rows_name, sync_directory, visit_names,
};
use super::images::{foreign_image, remove_images, remove_incomplete_images};
use super::parts::{adopt_parts, count_parts};
use super::processes::{foreign_process, process_totals, remove_processes, used_at};
use super::scan::ScanResult;
use super::stored_output::read_manifest;
use super::{DroppedLine, EarlierOutput, JobTotals, Manifest, OutputSpec, SURPLUS, write_dropped};
use crate::app::provider::cost::Money;

/// What a run that resumes a job has to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemainingWork {
    /// The output that it keeps.
    pub kept: EarlierOutput,
    /// The rows to make, or the candidates that are left if there is a number of rows to accept.
    pub rows: u64,
    /// The row groups with such rows.
    pub row_groups: u64,
    /// The cost of earlier runs.
    pub spent: Money,
}

/// Returns what a run that resumes the job in the directory `root` has to make; `None` if it holds no job.
/// Changes nothing. O(row groups), plus the rows of those with dropped rows.
///
/// # Errors
///
/// If the directory holds another job, or a file cannot be read.
pub fn remaining_work(root: &Path, spec: &OutputSpec) -> Result<Option<RemainingWork>, OutputError> {
    let mut is_unused = true;
    visit_names(root, |name| {
        is_unused &= is_temporary_name(name);
        Ok(())
    })
    .map_err(io_error(root))?;
    if is_unused {
        return Ok(None);
    }
    let (before, now) = (same_job(root, spec)?, &spec.manifest);
    let spent = used_at(root)?.plus(&process_totals(root, None)?).spent;
    let found = with_surplus_if_enough(|keeps_surplus| {
        ScanResult::read_extended(&root.join(ROWS), spec, &before, keeps_surplus)
    })?;
    let mut kept = found.earlier.plus(count_parts(root, spec)?);
    if found.acceptance.end().is_some() {
        kept.rows_out = now.wanted.map_or(kept.rows_out, |wanted| kept.rows_out.min(wanted));
        return Ok(Some(RemainingWork { kept, rows: 0, row_groups: 0, spent }));
    }
    let rows = now.rows_in.saturating_sub(kept.rows_out + kept.rows_dropped + kept.rows_rejected);
    Ok(Some(RemainingWork { kept, rows, row_groups: now.row_group_count().saturating_sub(kept.row_groups), spent }))
}

/// Returns the manifest in `root` if it is of the same job.
fn same_job(root: &Path, spec: &OutputSpec) -> Result<Manifest, OutputError> {
    let not_resumable = |why: String| OutputError::NothingToResume { path: root.to_path_buf(), why };
    let before = read_manifest(root).map_err(not_resumable)?;
    match spec.manifest.first_difference(&before, spec.dataset.as_deref()).map_err(io_error(root))? {
        Some(what) => Err(OutputError::DifferentJob { path: root.to_path_buf(), what }),
        None => Ok(before),
    }
}

/// Scans the rows. Rows that were one too many are kept if there are enough without them, and else unmade.
fn with_surplus_if_enough(scan: impl Fn(bool) -> Result<ScanResult, OutputError>) -> Result<ScanResult, OutputError> {
    let found = scan(true)?;
    // More rows are wanted than before.
    let lacks_rows = found.acceptance.end().is_none() && found.dropped.keys().any(|(_, reason)| reason == SURPLUS);
    if lacks_rows { scan(false) } else { Ok(found) }
}

/// Checks that `root` holds the same job, and returns what its earlier runs have left and used.
pub(super) fn resume(root: &Path, rows: &Path, spec: &OutputSpec) -> Result<(ScanResult, JobTotals), OutputError> {
    let before = same_job(root, spec)?;
    adopt_parts(root, spec)?;
    extend_last_row_group(rows, spec, &before)?;
    remove_temporary(root).map_err(io_error(root))?;
    remove_incomplete_images(root).map_err(io_error(&root.join(IMAGES)))?;
    let totals = used_at(root)?.plus(&process_totals(root, None)?);
    Ok((with_surplus_if_enough(|keeps_surplus| ScanResult::scan(rows, spec, keeps_surplus))?, totals))
}

/// Lists the new rows in the last row group of a job that was extended as unmade.
///
/// This must happen before the manifest with the new number of rows is written: without the list, the row
/// group would be taken for complete.
pub(super) fn extend_last_row_group(rows: &Path, spec: &OutputSpec, before: &Manifest) -> Result<(), OutputError> {
    let (old, new) = (before, &spec.manifest);
    let Some(last) = old.last_row_group() else { return Ok(()) };
    let (old_rows, new_rows) = (old.rows_in_group(last), new.rows_in_group(last));
    if new_rows <= old_rows || !rows.join(rows_name(last, new.format.extension())).exists() {
        return Ok(());
    }
    let path = rows.join(dropped_name(last));
    let mut lines: Vec<DroppedLine> = read_lines(&path).map_err(unreadable(&path))?.unwrap_or_default();
    let first = new.first_row + u64::from(last) * u64::from(new.row_group_size);
    lines.retain(|line| line.row < first + old_rows);
    lines.extend((first + old_rows..first + new_rows).map(DroppedLine::unmade));
    write_dropped(&path, &lines)
}

/// The part of the manifest that is the same in every version.
#[derive(Deserialize)]
struct Author {
    program: String,
}

/// Removes the output of an earlier run. Fails before it removes anything if there are other files.
pub(super) fn remove(root: &Path, names: &[String]) -> Result<(), OutputError> {
    let foreign = |found: &str| OutputError::ForeignFiles { path: root.to_path_buf(), found: found.to_string() };
    if names.is_empty() {
        return Ok(());
    }
    if let Some(name) = names.iter().find(|name| !is_own_name(name)) {
        return Err(foreign(name));
    }
    let author = fs::read(root.join(MANIFEST)).ok().and_then(|text| serde_json::from_slice::<Author>(&text).ok());
    if !author.is_some_and(|author| author.program.starts_with("tidegate ")) {
        return Err(foreign(&names[0]));
    }
    for directory in [ROWS, IMAGES].map(|name| root.join(name)) {
        // What a link leads to is not this program's, even if its names look so.
        if fs::symlink_metadata(&directory).is_ok_and(|found| !found.is_dir()) {
            return Err(OutputError::NoDirectory(directory));
        }
    }
    let rows = root.join(ROWS);
    let mut foreign_name = None;
    visit_names(&rows, |name| {
        if !is_row_file_name(name) {
            foreign_name = Some(format!("{ROWS}/{name}"));
        }
        Ok(())
    })
    .map_err(io_error(&rows))?;
    if let Some(name) = foreign_name {
        return Err(foreign(&name));
    }
    if let Some(found) = foreign_process(root).map_err(io_error(root))? {
        return Err(foreign(&found));
    }
    let images = root.join(IMAGES);
    if let Some(found) = foreign_image(root).map_err(io_error(&images))? {
        return Err(foreign(&found));
    }
    // The manifest stays until it is replaced, so after an interruption the directory still counts as written
    // by this program. The dropped lists are removed last: without its list, a row group would be taken for
    // complete.
    let is_list = |name: &str| matches!(RowFile::of(name, ""), Some(RowFile::Dropped(_)));
    let remove = |name: &str| fs::remove_file(rows.join(name));
    visit_names(&rows, |name| if is_list(name) { Ok(()) } else { remove(name) }).map_err(io_error(&rows))?;
    if rows.exists() {
        sync_directory(&rows).map_err(io_error(&rows))?;
    }
    visit_names(&rows, remove).map_err(io_error(&rows))?;
    remove_images(root).map_err(io_error(&images))?;
    remove_processes(root).map_err(io_error(root))?;
    let is_removed =
        |name: &&String| is_temporary_name(name) || is_capacity_name(name) || [SPENT, BATCHES].contains(&name.as_str());
    for name in names.iter().filter(is_removed) {
        fs::remove_file(root.join(name)).map_err(io_error(root))?;
    }
    Ok(())
}
