//! Two sides measured in turns, and the line that is printed about them.

use std::time::{Duration, Instant as WallInstant};

/// Operations in the smallest batch. 8, 64 and 1000 divide it, so that threads and tasks share a batch evenly.
const SMALLEST_BATCH: u64 = 8_000;
/// A batch lasts at least this long: starting threads or tasks and reading the clock are then lost in it.
const BATCH_TIME: Duration = Duration::from_millis(8);
/// Batches of each side.
const BATCHES: usize = 41;

pub(crate) struct Bench {
    filter: String,
    /// Whether to measure, or only to show that the rows work.
    pub(crate) is_real: bool,
}

/// One line of the table: what is measured, beside what, and the ratio it should not exceed.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) peer: &'static str,
    pub(crate) target: Option<f64>,
}

impl Bench {
    pub(crate) fn from_args() -> Self {
        let (flags, words): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
        Self { filter: words.join(" "), is_real: flags.iter().any(|flag| flag == "--bench") }
    }

    #[expect(clippy::unused_self, reason = "the header belongs to the rows it stands over")]
    pub(crate) fn header(&self) {
        println!("{:<46} {:<34} {:>9} {:>9} {:>6} {:>7}", "row", "beside", "ours ns", "peer ns", "ratio", "target");
    }

    /// Whether the row of this name is to run.
    pub(crate) fn picks(&self, name: &str) -> bool {
        name.contains(&self.filter)
    }

    /// Measures and prints one row. Each side is told how many operations to run.
    pub(crate) fn compare(&self, row: &Row, mut ours: impl FnMut(u64), mut peer: impl FnMut(u64)) {
        if !self.picks(row.name) {
            return;
        }
        let mut ops = SMALLEST_BATCH;
        if self.is_real {
            while time(&mut ours, ops).min(time(&mut peer, ops)) < BATCH_TIME {
                ops *= 2;
            }
        }
        self.compare_batches(row, BATCHES, ops, ours, peer);
    }

    /// The same with so many batches of so many operations; one batch if nothing is to be measured.
    pub(crate) fn compare_batches(
        &self,
        row: &Row,
        batches: usize,
        ops: u64,
        mut ours: impl FnMut(u64),
        mut peer: impl FnMut(u64),
    ) {
        if !self.picks(row.name) {
            return;
        }
        let batches = if self.is_real { batches } else { 1 };
        let mut taken = (Vec::with_capacity(batches), Vec::with_capacity(batches));
        for _ in 0..batches {
            taken.0.push(time(&mut ours, ops));
            taken.1.push(time(&mut peer, ops));
        }
        let [ours, peer] = [taken.0, taken.1].map(|batches| median(batches).as_nanos() as f64 / ops as f64);
        let ratio = ours / peer;
        let target = row.target.map_or("-".to_owned(), |target| format!("{target}x"));
        let mark = if row.target.is_some_and(|target| ratio > target) { "  over" } else { "" };
        let Row { name, peer: beside, .. } = row;
        println!("{name:<46} {beside:<34} {ours:>9.1} {peer:>9.1} {ratio:>6.3} {target:>7}{mark}");
    }
}

pub(crate) fn time(run: &mut impl FnMut(u64), ops: u64) -> Duration {
    let start = WallInstant::now();
    run(ops);
    start.elapsed()
}

pub(crate) fn median(mut batches: Vec<Duration>) -> Duration {
    batches.sort_unstable();
    batches[batches.len() / 2]
}
