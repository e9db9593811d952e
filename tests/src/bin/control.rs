//! How well each limit algorithm finds what a provider bears, beside an oracle that knows.
//!
//! ```text
//! control [--markdown]               the table: JSON, or the page's tables
//! control --drawn COUNT [--from N] [--only NAME]
//!                                    the goodput over so many providers drawn from seeds, counted from N (0); of one contender
//! control --storms COUNT [--from N] [--only NAME]
//!                                    those of them on which most calls were refused in ten seconds, of one contender (tide)
//! ```

use std::process::ExitCode;
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail};
use tidegate_core::sim::suite::control::{Case, Contender, Oracle, Table, call_times, goodput};
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
                "{error:#}\nusage: control [--markdown]  or  control --drawn|--storms COUNT [--from N] [--only NAME]"
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
        _ => bail!("these arguments make no sense"),
    }
    Ok(())
}

fn table() -> Result<Table> {
    Ok(Table::of(&Case::all(), &Contender::all(), SEED)?)
}

/// The figures of one drawn case: goodput and refusals of each contender.
type Row = (Case, Vec<(u64, u64)>);

/// Prints every drawn case with each contender's goodput and refusals, and the distribution over all of them and by kind.
fn drawn(from: u64, count: u64, only: Option<&str>) -> Result<()> {
    // Half of the cases beside the other half.
    let every_other = |first: u64| {
        (from + first..from + count).step_by(2).map(|seed| measured(seed, only)).collect::<Result<Vec<Row>>>()
    };
    let (even, odd) = thread::scope(|scope| {
        let odd = scope.spawn(|| every_other(1));
        (every_other(0), odd.join())
    });
    let (mut even, odd) = (even?, odd.map_err(|_| anyhow!("a case broke"))??);
    even.extend(odd);
    let mut rows = even;
    rows.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    let contenders: Vec<String> = contenders(only).map(|contender| contender.name).collect();
    if contenders.is_empty() {
        bail!("there is no such contender");
    }
    for (case, figures) in &rows {
        print!("{}:", case.name);
        for (name, (goodput, refused)) in contenders.iter().zip(figures) {
            print!(" {name} {goodput}/{refused}");
        }
        println!();
    }
    if let [(case, _)] = &rows[..] {
        println!("{:#?}", case.provider);
    }
    let all: Vec<&Row> = rows.iter().collect();
    println!(
        "\n| contender | least | 5 in 100 below | a quarter below | half below | mean |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    );
    for (place, name) in contenders.iter().enumerate() {
        let sorted = sorted(&all, |figures| figures[place].0);
        let mean = sorted.iter().sum::<u64>() / count.max(1);
        let [least, p5, p25, median] = [0, 5, 25, 50].map(|percent| rank(&sorted, percent));
        println!("| {name} | {least} | {p5} | {p25} | {median} | {mean} |");
    }
    println!(
        "\n| kind | providers | {} |\n| --- | ---: |{}",
        contenders.join(" | "),
        " ---: |".repeat(contenders.len())
    );
    let kind_of = |case: &Case| case.name.split(',').next().unwrap_or_default().to_string();
    for rows in rows.chunk_by(|(one, _), (other, _)| kind_of(one) == kind_of(other)) {
        let of_kind: Vec<&Row> = rows.iter().collect();
        print!("| {} | {} |", kind_of(&rows[0].0), rows.len());
        for place in 0..contenders.len() {
            let goodput = sorted(&of_kind, |figures| figures[place].0);
            let refused = sorted(&of_kind, |figures| figures[place].1);
            print!(" {}, {}; {} |", rank(&goodput, 10), rank(&goodput, 50), rank(&refused, 50));
        }
        println!();
    }
    println!("\nBy kind: goodput of the worst tenth, and the median; the median share of refusals. All in permille.");
    Ok(())
}

/// Prints, for every drawn case on which a contender storms the provider, how much was refused beyond a cascade and the share that is
/// refused at any load, the worst first.
fn storms(from: u64, count: u64, name: &str) -> Result<()> {
    let contender = contenders(Some(name)).next().context("there is no such contender")?;
    let mut found = Vec::new();
    for seed in from..from + count {
        let case = Case::drawn(seed);
        let share = case.provider.faults.map_or(0.0, |faults| faults.refused_share);
        let worst = worst(&call_times(&case, &contender, seed)?, share);
        found.extend(worst.filter(|worst| worst.excess() > ALLOWED).map(|worst| (case.name, worst)));
    }
    found.sort_by(|(_, one), (_, other)| other.excess().total_cmp(&one.excess()));
    for (case, worst) in &found {
        let Worst { from, refused, cascade, share } = worst;
        println!("{:.0} at {from}: {refused} refused, cascade {cascade}, share {share:.0}: {case}", worst.excess());
    }
    println!("{} of {count} have more than {ALLOWED} refused in ten seconds", found.len());
    Ok(())
}

fn contenders(only: Option<&str>) -> impl Iterator<Item = Contender> {
    Contender::all().into_iter().filter(move |contender| only.is_none_or(|name| contender.name == name))
}

fn measured(seed: u64, only: Option<&str>) -> Result<Row> {
    let case = Case::drawn(seed);
    let oracle = Oracle::of(&case, seed)?;
    let figures = contenders(only).map(|contender| Ok(goodput(&case, &contender, &oracle)?)).collect::<Result<_>>()?;
    Ok((case, figures))
}

fn sorted(rows: &[&Row], figure: impl Fn(&[(u64, u64)]) -> u64) -> Vec<u64> {
    let mut sorted: Vec<u64> = rows.iter().map(|(_, figures)| figure(figures)).collect();
    sorted.sort_unstable();
    sorted
}

fn rank(sorted: &[u64], percent: usize) -> u64 {
    sorted.get(sorted.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0)
}
