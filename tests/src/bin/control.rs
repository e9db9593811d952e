//! How well each limit algorithm finds the capacity of a provider, beside an oracle that knows.
//!
//! ```text
//! control [--markdown]               the table: JSON, or the page's tables
//! control --drawn COUNT [--from N] [--only NAME]
//!                                    the goodput over so many providers drawn from seeds, counted from N (0); of one contender
//! control --storms COUNT [--from N] [--only NAME]
//!                                    those of them on which most calls were refused in ten seconds, of one contender (tide)
//! control --chance COUNT [--from N]  on how many of them a client storms that knows all but what chance decides
//! control --climb COUNT [--from N]   on how many of them a client that knows all, but has to climb, is in time
//! ```

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail};
use tidegate_core::sim::suite::control::{
    Contender, ControlCase, Oracle, ProviderScores, Survey, Table, call_times, score,
};
use tidegate_tests::check::informed::informed;
use tidegate_tests::check::storm::{ALLOWED, Worst, worst};

/// The seed of the table.
const SEED: u64 = 1;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "{error:#}\nusage: control [--markdown]  or  control --drawn|--storms COUNT [--from N] [--only NAME]  \
                 or  control --chance|--climb COUNT [--from N]"
            );
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    let number = |text: &str| text.parse::<u64>().with_context(|| format!("`{text}` is not a number"));
    match *arguments {
        [] => print!("{}", serde_json::to_string_pretty(&table()?)?),
        ["--markdown"] => print!("{}", table()?.markdown()),
        ["--drawn", count] => drawn(0, number(count)?, None)?,
        ["--drawn", count, "--only", name] => drawn(0, number(count)?, Some(name))?,
        ["--drawn", count, "--from", from] => drawn(number(from)?, number(count)?, None)?,
        ["--drawn", count, "--from", from, "--only", name] => drawn(number(from)?, number(count)?, Some(name))?,
        ["--storms", count] => storms(0, number(count)?, "tide")?,
        ["--storms", count, "--only", name] => storms(0, number(count)?, name)?,
        ["--storms", count, "--from", from] => storms(number(from)?, number(count)?, "tide")?,
        ["--storms", count, "--from", from, "--only", name] => storms(number(from)?, number(count)?, name)?,
        ["--chance", count] => chance(0, number(count)?)?,
        ["--chance", count, "--from", from] => chance(number(from)?, number(count)?)?,
        ["--climb", count] => climb(0, number(count)?)?,
        ["--climb", count, "--from", from] => climb(number(from)?, number(count)?)?,
        _ => bail!("these arguments make no sense"),
    }
    Ok(())
}

fn table() -> Result<Table> {
    Ok(Table::of(&ControlCase::all(), &Contender::all(), SEED)?)
}

/// Prints every drawn case with each contender's goodput and refusals, and the distribution over all of them and by kind.
fn drawn(from: u64, count: u64, only: Option<&str>) -> Result<()> {
    // Half of the cases beside the other half.
    let every_other = |first: u64| {
        let contenders = contenders(only);
        let seeds = (from + first..from + count).step_by(2);
        seeds.map(|seed| Ok(ProviderScores::measure(seed, &contenders)?)).collect::<Result<Vec<ProviderScores>>>()
    };
    let (even, odd) = thread::scope(|scope| {
        let odd = scope.spawn(|| every_other(1));
        (every_other(0), odd.join())
    });
    let (mut all, odd) = (even?, odd.map_err(|_| anyhow!("a case broke"))??);
    all.extend(odd);
    let survey = Survey::new(&contenders(only), all);
    if survey.contenders.is_empty() {
        bail!("there is no such contender");
    }
    for ProviderScores { name, scores, .. } in &survey.providers {
        print!("{name}:");
        for (contender, score) in survey.contenders.iter().zip(scores) {
            let late = if score.is_in_time == Some(false) { " late" } else { "" };
            print!(" {contender} {}/{}{late}", score.goodput_permille, score.refused_permille);
        }
        println!();
    }
    if let [provider] = &survey.providers[..] {
        println!("{:#?}", ControlCase::drawn(provider.seed).provider);
    }
    println!("\n{}", survey.markdown());
    println!(
        "By kind: goodput of the worst tenth, and the median; the median share of refusals, all in permille; on how many in time."
    );
    Ok(())
}

/// Prints, for every drawn case on which a contender storms the provider, how much was refused beyond a cascade and the share that is
/// refused at any load, the worst first.
fn storms(from: u64, count: u64, name: &str) -> Result<()> {
    let contender = contenders(Some(name)).pop().context("there is no such contender")?;
    let mut found = Vec::new();
    for seed in from..from + count {
        let case = ControlCase::drawn(seed);
        let worst = worst_of(&case, &contender, seed)?;
        found.extend(worst.filter(|worst| worst.excess() > ALLOWED).map(|worst| (case.name, worst)));
    }
    found.sort_by(|(_, one), (_, other)| other.excess().total_cmp(&one.excess()));
    for (case, worst) in &found {
        let Worst { from, refused, cascade, share, attempts } = worst;
        println!(
            "{:.0} at {from}: {refused} refused in {attempts} attempts, cascade {cascade}, share {share:.0}: {case}",
            worst.excess()
        );
    }
    println!("{} of {count} have more than {ALLOWED} refused in ten seconds", found.len());
    Ok(())
}

/// Returns the ten seconds in which a contender was refused most, beyond a cascade and the share.
fn worst_of(case: &ControlCase, contender: &Contender, seed: u64) -> Result<Option<Worst>> {
    let share = case.provider.faults.map_or(0.0, |faults| faults.refused_share);
    Ok(worst(&call_times(case, contender, seed)?, share))
}

/// Prints what chance alone makes unavoidable, by kind: the refusals of a client that knows the provider but not
/// what chance decides. See [`informed`].
fn chance(from: u64, count: u64) -> Result<()> {
    let mut kinds: BTreeMap<String, Vec<(u64, f64)>> = BTreeMap::new();
    for seed in from..from + count {
        let case = ControlCase::drawn(seed);
        let Some(contender) = informed(&case) else { continue };
        let goodput = score(&case, &contender, &Oracle::of(&case, seed)?)?.goodput_permille;
        let excess = worst_of(&case, &contender, seed)?.map_or(0.0, |worst| worst.excess());
        kinds.entry(case.kind().to_owned()).or_default().push((goodput, excess));
    }
    println!(
        "| kind | providers | law broken | greatest excess | median goodput |\n| --- | ---: | ---: | ---: | ---: |"
    );
    for (kind, mut found) in kinds {
        found.sort_unstable_by_key(|(goodput, _)| *goodput);
        let broken = found.iter().filter(|(_, excess)| *excess > ALLOWED).count();
        let greatest = found.iter().map(|(_, excess)| *excess).fold(0.0, f64::max);
        println!("| {kind} | {} | {broken} | {greatest:.0} | {} |", found.len(), found[found.len() / 2].0);
    }
    Ok(())
}

/// Prints on how many of the drawn cases the bound of the start is in time, by kind: a client that knows the
/// provider, but starts with ten calls in flight and doubles them each 250 ms. See [`Oracle::climbing`].
fn climb(from: u64, count: u64) -> Result<()> {
    let mut kinds: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for seed in from..from + count {
        let case = ControlCase::drawn(seed);
        let oracle = Oracle::of(&case, seed)?;
        let Some(is_met) = Oracle::climbing(&case, seed)?.score(&case, &oracle).is_in_time else { continue };
        let (met, of) = kinds.entry(case.kind().to_owned()).or_default();
        (*met, *of) = (*met + usize::from(is_met), *of + 1);
    }
    for (kind, (met, of)) in &kinds {
        println!("{kind}: {met}/{of}");
    }
    let (met, of) = kinds.values().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    println!("all: {met}/{of}");
    Ok(())
}

fn contenders(only: Option<&str>) -> Vec<Contender> {
    Contender::all().into_iter().filter(|contender| only.is_none_or(|name| contender.name == name)).collect()
}
