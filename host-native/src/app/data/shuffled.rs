//! A dataset whose rows are in a random order, which depends on a seed and the number of rows alone.

#[cfg(feature = "parquet")]
use std::io::{self, BufWriter, Write as _};
use std::ops::Range;

use tempfile::TempPath;
use tidegate_core::sim::rng::Rng;

#[cfg(feature = "parquet")]
use super::indexed_text::{Bytes, IndexedText};
use super::{Dataset, DatasetError, Row, Source};

/// The stream of random numbers for the order of rows. It is a number that no other part of the program uses.
const ORDER_STREAM: u64 = 0x5348_5546_464c_4544;

/// The rows of a dataset in another order.
#[derive(Debug)]
pub(super) struct Shuffled {
    dataset: Box<Dataset>,
    /// For each row, its number in `dataset`. Four bytes for each row are small beside reading it.
    order: Vec<u32>,
    /// The file that `dataset` is read from, if it is a temporary copy. It is removed at the end.
    _copy: Option<TempPath>,
}

impl Shuffled {
    pub(super) fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Reads rows one by one, since neighbours are far apart in the dataset.
    pub(super) fn read(&self, rows: Range<u64>) -> Result<Vec<Row>, DatasetError> {
        let order = self.order.get(rows.start as usize..rows.end as usize).unwrap_or_default();
        let mut read = Vec::with_capacity(order.len());
        for row in order {
            read.extend(self.dataset.read(u64::from(*row)..u64::from(*row) + 1)?);
        }
        Ok(read)
    }
}

impl Dataset {
    /// Puts the rows into a random order: each is equally likely, equal seeds and numbers of rows give the
    /// same one on every machine. Takes four bytes of memory for each row.
    ///
    /// Rows of a Parquet file cannot be read out of order, so they are copied to a temporary file first, as
    /// JSONL.
    ///
    /// # Errors
    /// If there are 2^32 rows or more, or the copy cannot be made.
    pub fn shuffled(self, seed: u64) -> Result<Self, DatasetError> {
        let Ok(rows) = u32::try_from(self.rows) else {
            let message = format!("it has {} rows; at most {} can be shuffled", self.rows, u32::MAX);
            return Err(DatasetError::new(self.path(), None, message));
        };
        let Self { columns, column_types, rows: count, digest, .. } = &self;
        let (columns, column_types, count, digest) = (columns.clone(), column_types.clone(), *count, digest.clone());
        let (dataset, copy) = self.with_random_access()?;
        let order = random_order(rows, seed);
        let source = Source::Shuffled(Shuffled { dataset: Box::new(dataset), order, _copy: copy });
        Ok(Self { columns, column_types, rows: count, digest, source })
    }

    #[cfg(not(feature = "parquet"))]
    #[expect(clippy::unnecessary_wraps, reason = "a Parquet dataset may fail")]
    fn with_random_access(self) -> Result<(Self, Option<TempPath>), DatasetError> {
        Ok((self, None))
    }

    /// Returns the dataset, or a temporary copy of it that can be read in any order.
    #[cfg(feature = "parquet")]
    fn with_random_access(self) -> Result<(Self, Option<TempPath>), DatasetError> {
        if !self.is_read_in_order() {
            return Ok((self, None));
        }
        let path = self.path().to_path_buf();
        let failed = |error: &io::Error| {
            let message = format!("cannot be copied for shuffling: {error}; TMPDIR names another directory for it");
            DatasetError::new(&path, None, message)
        };
        let copy = tempfile::Builder::new().prefix("tidegate-").suffix(".jsonl").tempfile();
        let copy = copy.map_err(|error| failed(&error))?;
        let mut writer = BufWriter::new(copy.as_file());
        for first in (0..self.rows).step_by(COPIED_AT_ONCE) {
            for row in self.read(first..self.rows.min(first + COPIED_AT_ONCE as u64))? {
                let fields = self.columns.iter().cloned().zip(row).collect::<serde_json::Map<_, _>>();
                let written = serde_json::to_writer(&mut writer, &fields).map_err(io::Error::from);
                written.and_then(|()| writer.write_all(b"\n")).map_err(|error| failed(&error))?;
            }
        }
        writer.flush().map_err(|error| failed(&error))?;
        drop(writer);
        let copy = copy.into_temp_path();
        let bytes = Bytes::open(&copy).map_err(|error| failed(&error))?;
        let mut dataset = super::jsonl::scan(&path, IndexedText::new(&path, bytes, None)?)?;
        // The keys of an object are written in alphabetical order.
        dataset.reorder_columns(&self.columns);
        Ok((dataset, Some(copy)))
    }

    /// Returns whether rows that are read out of order cost reading the file again.
    #[cfg(feature = "parquet")]
    fn is_read_in_order(&self) -> bool {
        match &self.source {
            Source::Parquet(_) => true,
            Source::Files(files) => files.datasets().any(Self::is_read_in_order),
            _ => false,
        }
    }
}

/// The rows of a Parquet file that are in memory while it is copied.
#[cfg(feature = "parquet")]
const COPIED_AT_ONCE: usize = 1024;

/// Returns the numbers below `count` in random order.
///
/// Source: R. Durstenfeld, "Algorithm 235: Random permutation", CACM 7(7), 1964.
fn random_order(count: u32, seed: u64) -> Vec<u32> {
    let mut draws = Rng::new(seed).fork(ORDER_STREAM);
    let mut order: Vec<u32> = (0..count).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, draws.below(last as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::app::data::DatasetFormat;

    fn dataset(rows: u32) -> Dataset {
        let rows: Vec<String> = (0..rows).map(|row| format!("{row}\n")).collect();
        Dataset::parse(Path::new("d.csv"), format!("id\n{}", rows.concat()).as_bytes(), DatasetFormat::Csv).unwrap()
    }

    fn ids(dataset: &Dataset, rows: Range<u64>) -> Vec<u64> {
        let id = |row: &Row| row[0].as_str().map_or_else(|| row[0].as_u64().unwrap(), |id| id.parse().unwrap());
        dataset.read(rows).unwrap().iter().map(id).collect()
    }

    #[test]
    fn the_order_is_the_same_on_every_machine_and_has_each_row_once() {
        assert_eq!(random_order(8, 0), [4, 3, 6, 2, 1, 0, 7, 5]);
        let shuffled = dataset(500).shuffled(3).unwrap();
        let mut all = ids(&shuffled, 0..500);
        assert_ne!(all, (0..500).collect::<Vec<_>>());
        assert_eq!(ids(&shuffled, 120..130), all[120..130]);
        assert_ne!(ids(&dataset(500).shuffled(4).unwrap(), 0..500), all, "another seed gives another order");
        all.sort_unstable();
        assert_eq!(all, (0..500).collect::<Vec<_>>());
    }

    #[test]
    fn a_shuffled_dataset_has_the_columns_the_digest_and_the_file_of_the_dataset() {
        let (plain, shuffled) = (dataset(3), dataset(3).shuffled(0).unwrap());
        assert_eq!((plain.columns(), plain.column_types()), (shuffled.columns(), shuffled.column_types()));
        assert_eq!(
            (plain.digest(), plain.paths(), plain.rows()),
            (shuffled.digest(), shuffled.paths(), shuffled.rows())
        );
        let error = shuffled.read(2..4).unwrap_err().to_string();
        assert_eq!(error, "d.csv: there are no rows 2..4: the dataset has 3");
    }

    #[test]
    fn the_last_row_is_as_likely_at_each_place_as_at_any_other() {
        let mut counts = [0_u32; 4];
        for seed in 0..4_000 {
            counts[random_order(4, seed).iter().position(|row| *row == 3).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (900..1_100).contains(count)), "{counts:?}");
    }
}
