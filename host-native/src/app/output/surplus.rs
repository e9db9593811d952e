//! Removes the rows after the last one to keep, in a job that makes rows until a number of them are accepted.

use super::acceptance::{AcceptedRows, End};
use super::dropped_file::{DroppedCounts, DroppedLine};
use super::error::{OutputError, io_error, unreadable};
use super::files::{RowFile, calls_name, dropped_name, read_lines, remove_if_exists, rows_name, visit_names};
use super::scan::ScanResult;
use super::{EarlierOutput, OutputDirectory, OutputSpec, write_dropped};
use crate::app::data::row_file::FileRow;

/// What a job has kept.
#[derive(Clone, Debug)]
pub struct KeptRows {
    /// Its counts.
    pub counts: EarlierOutput,
    /// The rows that are not written, by column and reason.
    pub dropped: DroppedCounts,
}

impl OutputDirectory {
    /// Returns whether the job has all rows that it has to accept.
    #[must_use]
    pub fn has_enough(&self) -> bool {
        self.acceptance.lock().end().is_some()
    }

    /// Returns how many rows are accepted, if the job has to accept a number of them.
    #[must_use]
    pub fn accepted_rows(&self) -> Option<AcceptedRows> {
        self.acceptance.lock().progress()
    }

    /// Removes the rows after the last one to keep, if the job has enough, and returns what is left.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or written.
    pub fn remove_surplus(&self, spec: &OutputSpec) -> Result<Option<KeptRows>, OutputError> {
        let Some(end) = self.acceptance.lock().end() else { return Ok(None) };
        let extension = self.layout.format.extension();
        let mut surplus = Vec::new();
        visit_names(&self.rows, |name| {
            if let Some(RowFile::Rows(row_group)) = RowFile::of(name, extension)
                && row_group > end.row_group
            {
                surplus.push(row_group);
            }
            Ok(())
        })
        .map_err(io_error(&self.rows))?;
        for row_group in surplus {
            // Without its rows, a row group is unmade, whatever its list has.
            for name in [rows_name(row_group, extension), dropped_name(row_group), calls_name(row_group)] {
                let path = self.rows.join(name);
                remove_if_exists(&path).map_err(io_error(&path))?;
            }
        }
        self.cut_row_group(end)?;
        let spec = OutputSpec { retry_dropped: None, ..spec.clone() };
        let found = ScanResult::scan(&self.rows, &spec, true)?;
        self.manifest.lock().manifest.done = found.done;
        let kept = KeptRows { counts: found.earlier, dropped: found.dropped };
        *self.kept.lock() = Some(kept.clone());
        Ok(Some(kept))
    }

    /// Removes the rows of the last row group that are not kept.
    fn cut_row_group(&self, end: End) -> Result<(), OutputError> {
        let rows_path = self.rows.join(rows_name(end.row_group, self.layout.format.extension()));
        let stored = self.layout.read(&rows_path).map_err(unreadable(&rows_path))?;
        let kept = usize::try_from(end.rows).unwrap_or(usize::MAX).min(stored.len());
        if kept == stored.len() {
            return Ok(());
        }
        let dropped_path = self.rows.join(dropped_name(end.row_group));
        let mut lines: Vec<DroppedLine> =
            read_lines(&dropped_path).map_err(unreadable(&dropped_path))?.unwrap_or_default();
        lines.extend(stored[kept..].iter().map(|(number, _)| DroppedLine::surplus(*number)));
        lines.sort_unstable_by_key(|line| line.row);
        // A row in both files is complete, so that a crash in between is repaired by the next run.
        write_dropped(&dropped_path, &lines)?;
        let kept = stored.into_iter().take(kept).map(|(_, row)| FileRow::<()>::Stored(row));
        self.write_rows(&rows_path, kept)
    }
}
