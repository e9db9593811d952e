//! The control suite: how well limit algorithms find the capacity of a provider, compared with an oracle.
//!
//! It runs named cases and providers drawn from seeds, prints tables of their scores, and writes a page with
//! charts.

mod page;
mod peers;
#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use tidegate_core::error::ConfigError;
use tidegate_core::sim::suite::control::{
    Contender, ControlTrace, Example, Oracle, ProviderScores, Score, Spread, Survey, score, trace,
};

use crate::app::error::Error;
use crate::app::render::table::write_table;
use crate::app::report::progress::ProgressReporter;
use crate::app::report::progress_view::{ColumnView, ProgressView};

pub use page::page;
pub use peers::PeerRecord;

/// The contenders that are charted, besides the peers.
const CHARTED: [fn() -> Contender; 3] = [Contender::tide, Contender::aimd, Contender::fixed];

/// The result of a run of the control suite.
#[derive(Clone, Debug)]
pub struct ControlOutcome {
    /// The name of each named case, with a score for each contender of the survey.
    pub named: Vec<(String, Vec<Score>)>,
    /// The scores on drawn providers.
    pub survey: Survey,
    /// The runs over time on each named case and on a drawn provider of each kind; empty if [`run`] was
    /// called without traces.
    pub traces: Vec<CaseTraces>,
}

/// The runs of all contenders on one case over time: the data of its two charts.
#[derive(Clone, Debug)]
pub struct CaseTraces {
    /// The name of the case.
    pub name: String,
    /// A description of the provider's behaviour.
    pub description: String,
    /// Whether the provider is drawn from a seed.
    pub is_drawn: bool,
    /// The run of the oracle.
    pub oracle: ControlTrace,
    /// The runs of tidegate's algorithms, then those of the peers.
    pub traces: Vec<ControlTrace>,
}

/// Runs the named cases, and `count` providers drawn from the seeds `from` and up.
///
/// Uses all processors. `with_traces` also records the runs that the page charts.
pub fn run(from: u64, count: u64, with_traces: bool, mut screen: ProgressReporter) -> Result<ControlOutcome, Error> {
    let named = Example::named();
    let drawn = if with_traces { Example::drawn() } else { Vec::new() };
    let recorded = if with_traces { PeerRecord::load_all()? } else { Vec::new() };
    let mut show = |name: &str, done: usize, total: u64| {
        let column = ColumnView { name: name.to_string(), total, done: done as u64, ..ColumnView::default() };
        screen.show(&ProgressView {
            rows_done: done as u64,
            rows_total: total,
            columns: vec![column],
            ..ProgressView::default()
        });
    };
    let scores =
        parallel_map(named.len() as u64, |nth| scores(&named[nth as usize]), |done, of| show("named", done, of));
    let surveyed = |nth| ProviderScores::measure(from + nth, &Contender::all());
    let providers = parallel_map(count, surveyed, |done, of| show("drawn", done, of));
    let examples: Vec<(&Example, bool)> =
        named.iter().map(|it| (it, false)).chain(drawn.iter().map(|it| (it, true))).collect();
    let trace_count = if with_traces { examples.len() as u64 } else { 0 };
    let trace_case = |nth: u64| {
        let (example, is_drawn) = examples[nth as usize];
        CaseTraces::of(example, is_drawn, &recorded)
    };
    let traces = parallel_map(trace_count, trace_case, |done, of| show("charts", done, of));
    screen.close();
    Ok(ControlOutcome {
        named: named.iter().map(|example| example.case.name.clone()).zip(scores?).collect(),
        survey: Survey::new(&Contender::all(), providers?),
        traces: traces?,
    })
}

fn scores(example: &Example) -> Result<Vec<Score>, ConfigError> {
    let oracle = Oracle::of(&example.case, example.seed)?;
    Contender::all().iter().map(|contender| score(&example.case, contender, &oracle)).collect()
}

impl CaseTraces {
    fn of(Example { case, seed, .. }: &Example, is_drawn: bool, recorded: &[PeerRecord]) -> Result<Self, ConfigError> {
        let oracle = Oracle::of(case, *seed)?;
        let ours = CHARTED.iter().map(|contender| trace(case, &contender(), &oracle));
        let mut traces: Vec<ControlTrace> = ours.collect::<Result<_, _>>()?;
        traces.extend(recorded.iter().filter(|it| it.matches_case(case, &oracle)).map(|it| it.trace.clone()));
        let (name, description) = (case.name.clone(), case.description());
        Ok(Self { name, description, is_drawn, oracle: oracle.trace(case), traces })
    }
}

/// Calls `work` with each number below `count` on all processors, and returns the results in order.
///
/// Calls `show` on the current thread after each result, with how many are done and `count`.
fn parallel_map<T: Send>(
    count: u64,
    work: impl Fn(u64) -> Result<T, ConfigError> + Sync,
    mut show: impl FnMut(usize, u64),
) -> Result<Vec<T>, Error> {
    let next = AtomicU64::new(0);
    let mut done = thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
                // Sending fails only after the receiver is dropped.
                let _ = numbers.take_while(|nth| *nth < count).try_for_each(|nth| sender.send((nth, work(nth))));
            });
        }
        drop(sender);
        let mut done = Vec::new();
        for result in results {
            done.push(result);
            show(done.len(), count);
        }
        done
    });
    done.sort_by_key(|(nth, _)| *nth);
    let results = done.into_iter().map(|(_, result)| result);
    results.collect::<Result<_, _>>().map_err(|error| Error::Internal(error.to_string()))
}

impl fmt::Display for ControlOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles = |first: &str| -> Vec<String> {
            std::iter::once(first)
                .chain(self.survey.contenders.iter().map(String::as_str))
                .map(str::to_string)
                .collect()
        };
        let mut named = vec![titles("case")];
        named.extend(self.named.iter().map(|(name, scores)| {
            let cells = scores.iter().map(|it| {
                format!("{} / {}", format_permille(it.goodput_permille), format_permille(it.refused_permille))
            });
            std::iter::once(name.clone()).chain(cells).collect()
        }));
        write_table(f, &named, 1)?;
        writeln!(f, "  goodput in % of the oracle's / refusals in % of the calls sent")?;
        if self.survey.providers.is_empty() {
            return Ok(());
        }
        let mut spreads = vec![SPREAD_TITLES.map(str::to_string).to_vec()];
        spreads.extend(self.survey.spreads().iter().map(spread_cells));
        writeln!(f)?;
        write_table(f, &spreads, 1)?;
        let providers = self.survey.providers.len();
        writeln!(
            f,
            "  goodput on {providers} providers drawn from seeds, in % of the oracle's; in time: on how many it reached nine tenths"
        )?;
        writeln!(
            f,
            "  of the oracle's soon enough after the start or after each step, of those with a constant capacity or with steps"
        )
    }
}

const SPREAD_TITLES: [&str; 7] = ["contender", "least", "p5", "p25", "median", "mean", "in time"];

/// Returns the cells of a row under [`SPREAD_TITLES`].
fn spread_cells(spread: &Spread) -> Vec<String> {
    let Spread { contender, least, p5, p25, median, mean, in_time, .. } = spread;
    let figures = [least, p5, p25, median, mean].map(|permille| format_permille(*permille));
    std::iter::once(contender.clone()).chain(figures).chain([in_time.to_string()]).collect()
}

/// Formats permille as a percentage with one decimal.
fn format_permille(permille: u64) -> String {
    format!("{}.{}", permille / 10, permille % 10)
}
