//! The parameters of `tidegate run`, `run --dry-run` and `check`.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use tidegate_core::pipeline::DropReason;

use crate::app::config::share::StoreUrl;
use crate::app::output::{ExistingOutput, ExportFile};
use crate::app::provider::cost::Money;

/// One of several parts of a dataset that are about equally long, for runs on several machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The number of the part, from 1 to `count`.
    index: u64,
    /// The number of parts.
    count: u64,
}

impl Partition {
    /// Returns the part of `rows` rows. The parts of one number of rows do not overlap, and have all rows
    /// together.
    #[must_use]
    pub fn of(self, rows: u64) -> Range<u64> {
        let Self { index, count } = self;
        // At most `rows`.
        let start = |index: u64| (u128::from(rows) * u128::from(index) / u128::from(count)) as u64;
        start(index - 1)..start(index)
    }
}

impl FromStr for Partition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        let (index, count) = parts.ok_or("expected INDEX/COUNT such as 1/4, the first of four parts")?;
        if count == 0 || !(1..=count).contains(&index) {
            return Err(format!("expected a part from 1/{0} to {0}/{0}", count.max(1)));
        }
        Ok(Self { index, count })
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// What to run and where to write.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The pipeline file; `None` for the bundled example.
    pub pipeline: Option<PathBuf>,
    /// The output directory.
    pub out: PathBuf,
    /// What to do about existing output.
    pub existing: ExistingOutput,
    /// Retries rows that were dropped for these reasons; an empty list means any reason.
    pub retry_dropped: Option<Vec<DropReason>>,
    /// The file for the decision log.
    pub record: Option<PathBuf>,
    /// The file for the events of the run.
    pub events: Option<PathBuf>,
    /// The file for the trace of the run.
    pub trace: Option<PathBuf>,
    /// The file for the HTML report of the run.
    pub report: Option<PathBuf>,
    /// The address at which the metrics of the run are served.
    pub metrics: Option<SocketAddr>,
    /// The address of the store over which limits are shared, instead of that in the file.
    pub share: Option<StoreUrl>,
    /// Whether other processes fill the output directory, too.
    pub together: bool,
    /// The file to export all rows to.
    pub export: Option<ExportFile>,
    /// Whether to print the capacity plan to the standard output before the run.
    pub plan: bool,
    /// The rows to run for; `None` for all.
    pub rows: Option<Range<u64>>,
    /// The part of the dataset to run for; `None` for all of it.
    pub partition: Option<Partition>,
    /// The maximum number of rows.
    pub limit: Option<u64>,
    /// Whether all columns are written, whatever the file says.
    pub all_columns: bool,
    /// The cost limit.
    pub max_cost: Option<Money>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_dataset_do_not_overlap_and_have_all_rows() {
        for (rows, count) in [(10, 4), (3, 5), (0, 2), (u64::MAX, 3), (7, 1)] {
            let parts: Vec<_> = (1..=count).map(|index| Partition { index, count }.of(rows)).collect();
            assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, rows));
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "{parts:?}");
            let length = |part: &Range<u64>| part.end - part.start;
            let (least, most) = (parts.iter().map(length).min(), parts.iter().map(length).max());
            assert!(most.unwrap() - least.unwrap() <= 1, "{parts:?}");
        }
    }

    #[test]
    fn a_part_is_read_from_its_number_and_the_number_of_parts() {
        assert_eq!("2/4".parse::<Partition>().map(|part| part.to_string()), Ok("2/4".to_string()));
        for (text, error) in [
            ("0/4", "expected a part from 1/4 to 4/4"),
            ("5/4", "expected a part from 1/4 to 4/4"),
            ("1/0", "expected a part from 1/1 to 1/1"),
            ("4", "expected INDEX/COUNT such as 1/4, the first of four parts"),
            ("-1/4", "expected INDEX/COUNT such as 1/4, the first of four parts"),
        ] {
            assert_eq!(text.parse::<Partition>(), Err(error.to_string()));
        }
    }
}
