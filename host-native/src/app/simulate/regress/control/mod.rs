//! The control suite for people: the named cases, providers drawn from seeds, and a page with a picture of each kind.

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
    Contender, Example, Oracle, Score, Spread, Survey, Surveyed, Trace, score, trace,
};

use crate::app::error::Error;
use crate::app::render::table::write_table;
use crate::app::report::progress::{ColumnView, Screen, View};

pub use page::page;
pub use peers::Recorded;

/// The contenders whose runs are in the pictures, beside the peers'.
const DRAWN: [fn() -> Contender; 3] = [Contender::tide, Contender::aimd, Contender::fixed];

/// What a run of the suite came to.
#[derive(Clone, Debug)]
pub struct ControlOutcome {
    /// The named cases, with a score for each contender of the survey.
    pub named: Vec<(String, Vec<Score>)>,
    /// The drawn providers.
    pub survey: Survey,
    /// A picture of each named case and of a drawn provider of each kind; none unless they were asked for.
    pub pictures: Vec<Picture>,
}

/// What happened on one case over time.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The case's name.
    pub name: String,
    /// What the provider does.
    pub description: String,
    /// Whether it is drawn from a seed.
    pub is_drawn: bool,
    /// What could be had.
    pub oracle: Trace,
    /// What was had: by our contenders and then by the peers.
    pub traces: Vec<Trace>,
}

/// Runs the named cases and `count` providers drawn from the seeds from `from` on, and makes the pictures if they are wanted.
pub fn run(from: u64, count: u64, with_pictures: bool, mut screen: Screen) -> Result<ControlOutcome, Error> {
    let named = Example::named();
    let drawn = if with_pictures { Example::drawn() } else { Vec::new() };
    let recorded = if with_pictures { Recorded::all()? } else { Vec::new() };
    let mut show = |name: &str, done: usize, total: u64| {
        let column = ColumnView { name: name.to_string(), total, done: done as u64, ..ColumnView::default() };
        screen.show(&View { rows_done: done as u64, rows_total: total, columns: vec![column], ..View::default() });
    };
    let scores =
        in_parallel(named.len() as u64, |nth| scores(&named[nth as usize]), |done, of| show("named", done, of));
    let surveyed = |nth| Surveyed::measure(from + nth, &Contender::all());
    let providers = in_parallel(count, surveyed, |done, of| show("drawn", done, of));
    let examples: Vec<(&Example, bool)> =
        named.iter().map(|it| (it, false)).chain(drawn.iter().map(|it| (it, true))).collect();
    let wanted = if with_pictures { examples.len() as u64 } else { 0 };
    let picture = |nth: u64| {
        let (example, is_drawn) = examples[nth as usize];
        Picture::of(example, is_drawn, &recorded)
    };
    let pictures = in_parallel(wanted, picture, |done, of| show("pictures", done, of));
    screen.close();
    Ok(ControlOutcome {
        named: named.iter().map(|example| example.case.name.clone()).zip(scores?).collect(),
        survey: Survey::new(&Contender::all(), providers?),
        pictures: pictures?,
    })
}

fn scores(example: &Example) -> Result<Vec<Score>, ConfigError> {
    let oracle = Oracle::of(&example.case, example.seed)?;
    Contender::all().iter().map(|contender| score(&example.case, contender, &oracle)).collect()
}

impl Picture {
    fn of(Example { case, seed, .. }: &Example, is_drawn: bool, recorded: &[Recorded]) -> Result<Self, ConfigError> {
        let oracle = Oracle::of(case, *seed)?;
        let ours = DRAWN.iter().map(|contender| trace(case, &contender(), &oracle));
        let mut traces: Vec<Trace> = ours.collect::<Result<_, _>>()?;
        traces.extend(recorded.iter().filter(|it| it.is_of(case, &oracle)).map(|it| it.trace.clone()));
        let (name, description) = (case.name.clone(), case.description());
        Ok(Self { name, description, is_drawn, oracle: oracle.trace(case), traces })
    }
}

/// Computes `work` of each number below `count` on all processors, and returns the results in order. Calls `show` with how many are done.
fn in_parallel<T: Send>(
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
                // Sending fails only if the results are no longer collected.
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
            let cells =
                scores.iter().map(|it| format!("{} / {}", tenths(it.goodput_permille), tenths(it.refused_permille)));
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
        writeln!(
            f,
            "  goodput on {} providers drawn from seeds, in % of the oracle's; on how many nine tenths of it came",
            self.survey.providers.len()
        )?;
        writeln!(f, "  in time, of those that nothing changes or that make lasting steps")
    }
}

const SPREAD_TITLES: [&str; 7] = ["contender", "least", "p5", "p25", "median", "mean", "in time"];

/// The cells of a line under [`SPREAD_TITLES`].
fn spread_cells(spread: &Spread) -> Vec<String> {
    let Spread { contender, least, p5, p25, median, mean, in_time, .. } = spread;
    let figures = [least, p5, p25, median, mean].map(|permille| tenths(*permille));
    std::iter::once(contender.clone()).chain(figures).chain([in_time.to_string()]).collect()
}

/// Permille as percent with one place.
fn tenths(permille: u64) -> String {
    format!("{}.{}", permille / 10, permille % 10)
}
