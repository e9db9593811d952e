//! The survey: the scores of contenders on many providers drawn from seeds. `drawn` lists their kinds.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Write as _};

use serde::Serialize;

use super::figures::Score;
use super::{Contender, ControlCase, Oracle, score};
use crate::error::ConfigError;

/// The scores of contenders on providers drawn from seeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Survey {
    /// The contenders' names, in the order of the scores.
    pub contenders: Vec<String>,
    /// The providers, by kind and then by seed.
    pub providers: Vec<ProviderScores>,
}

/// The scores of all contenders on one drawn provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProviderScores {
    /// The seed of the provider.
    pub seed: u64,
    /// The kind of the provider.
    pub kind: String,
    /// The name of the provider, which starts with the kind.
    pub name: String,
    /// The score of each contender, in the order of [`Survey::contenders`].
    pub scores: Vec<Score>,
}

/// The distribution of a contender's goodput over all providers, in permille of the oracle's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Spread {
    /// The contender's name.
    pub contender: String,
    /// The lowest goodput.
    pub least: u64,
    /// The 5th percentile of the goodput.
    pub p5: u64,
    /// The 25th percentile of the goodput.
    pub p25: u64,
    /// The median goodput.
    pub median: u64,
    /// The mean goodput.
    pub mean: u64,
    /// The number of providers on which the contender was in time.
    pub in_time: GoalCount,
}

/// The scores on the providers of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KindSummary {
    /// The kind.
    pub kind: String,
    /// The number of providers of this kind.
    pub providers: usize,
    /// The figures of each contender, in the order of [`Survey::contenders`].
    pub figures: Vec<KindFigures>,
}

/// The figures of one contender on the providers of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KindFigures {
    /// The 10th percentile of the goodput, in permille of the oracle's.
    pub goodput_p10_permille: u64,
    /// The median goodput, in permille of the oracle's.
    pub goodput_median_permille: u64,
    /// The median of the refusals, in permille of the calls sent.
    pub refused_median_permille: u64,
    /// The number of providers on which the contender was in time.
    pub in_time: GoalCount,
}

/// The number of providers on which a goal was met, of all providers that have the goal. See
/// [`Score::is_in_time`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GoalCount {
    /// The number of providers on which the goal was met.
    pub met: usize,
    /// The number of providers that have the goal.
    pub of: usize,
}

impl fmt::Display for GoalCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.of == 0 { f.write_str("-") } else { write!(f, "{}/{}", self.met, self.of) }
    }
}

impl ProviderScores {
    /// Draws the provider of `seed`, and runs the oracle and each contender on it, once with one tenant.
    ///
    /// Returns an error if the settings of a contender are invalid.
    pub fn measure(seed: u64, contenders: &[Contender]) -> Result<Self, ConfigError> {
        let case = ControlCase::drawn(seed);
        let oracle = Oracle::of(&case, seed)?;
        let scores = contenders.iter().map(|contender| score(&case, contender, &oracle)).collect::<Result<_, _>>()?;
        Ok(Self { seed, kind: case.kind().to_string(), name: case.name, scores })
    }
}

impl Survey {
    /// Creates a survey of these providers, in any order, each [measured](ProviderScores::measure) with these
    /// contenders. The other methods expect one score of each contender at every provider.
    #[must_use]
    pub fn new(contenders: &[Contender], mut providers: Vec<ProviderScores>) -> Self {
        providers.sort_by(|one, other| (&one.kind, one.seed).cmp(&(&other.kind, other.seed)));
        Self { contenders: contenders.iter().map(|contender| contender.name.clone()).collect(), providers }
    }

    /// Returns the distribution of each contender's goodput over all providers.
    #[must_use]
    pub fn spreads(&self) -> Vec<Spread> {
        let spread = |(index, name): (usize, &String)| {
            let goodput = sorted(&self.providers, index, |score| score.goodput_permille);
            let [least, p5, p25, median] = [0, 5, 25, 50].map(|percent| rank(&goodput, percent));
            let mean = goodput.iter().sum::<u64>().checked_div(goodput.len() as u64).unwrap_or(0);
            let in_time = in_time(&self.providers, index);
            Spread { contender: name.clone(), least, p5, p25, median, mean, in_time }
        };
        self.contenders.iter().enumerate().map(spread).collect()
    }

    /// Returns the figures of each kind, sorted by the kind's name.
    #[must_use]
    pub fn kinds(&self) -> Vec<KindSummary> {
        let of_kind = |providers: &[ProviderScores]| KindSummary {
            kind: providers[0].kind.clone(),
            providers: providers.len(),
            figures: (0..self.contenders.len()).map(|index| KindFigures::of(providers, index)).collect(),
        };
        self.providers.chunk_by(|one, other| one.kind == other.kind).map(of_kind).collect()
    }

    /// Returns [`Survey::spreads`] and [`Survey::kinds`] as Markdown tables.
    ///
    /// A cell of the second table is `10th percentile, median; refused; in time`: the two goodputs, the
    /// median of the refusals, and the [`GoalCount`].
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut page = String::from(
            "| contender | least | 5 in 100 below | a quarter below | half below | mean | in time |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        );
        for Spread { contender, least, p5, p25, median, mean, in_time } in self.spreads() {
            let _ = writeln!(page, "| {contender} | {least} | {p5} | {p25} | {median} | {mean} | {in_time} |");
        }
        let (names, columns) = (self.contenders.join(" | "), " ---: |".repeat(self.contenders.len()));
        let _ = write!(page, "\n| kind | providers | {names} |\n| --- | ---: |{columns}\n");
        for KindSummary { kind, providers, figures } in self.kinds() {
            let _ = write!(page, "| {kind} | {providers} |");
            for figures in figures {
                let KindFigures { goodput_p10_permille: p10, goodput_median_permille: median, .. } = figures;
                let _ = write!(page, " {p10}, {median}; {}; {} |", figures.refused_median_permille, figures.in_time);
            }
            page.push('\n');
        }
        page
    }
}

impl KindFigures {
    fn of(providers: &[ProviderScores], index: usize) -> Self {
        let goodput = sorted(providers, index, |score| score.goodput_permille);
        let refused = sorted(providers, index, |score| score.refused_permille);
        Self {
            goodput_p10_permille: rank(&goodput, 10),
            goodput_median_permille: rank(&goodput, 50),
            refused_median_permille: rank(&refused, 50),
            in_time: in_time(providers, index),
        }
    }
}

/// Returns a figure of the contender at `index` on each provider, in ascending order.
fn sorted(providers: &[ProviderScores], index: usize, figure: impl Fn(&Score) -> u64) -> Vec<u64> {
    let mut sorted: Vec<u64> = providers.iter().map(|provider| figure(&provider.scores[index])).collect();
    sorted.sort_unstable();
    sorted
}

/// Returns the value at a percentile of values in ascending order, by the nearest rank below, or 0 if there
/// are none.
fn rank(sorted: &[u64], percent: usize) -> u64 {
    sorted.get(sorted.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0)
}

fn in_time(providers: &[ProviderScores], index: usize) -> GoalCount {
    let judged = providers.iter().filter_map(|provider| provider.scores[index].is_in_time);
    judged.fold(GoalCount::default(), |GoalCount { met, of }, is_met| GoalCount {
        met: met + usize::from(is_met),
        of: of + 1,
    })
}
