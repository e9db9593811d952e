//! How well each limit algorithm finds what a provider bears, beside an oracle that knows.
//!
//! ```text
//! control [--markdown]               the table: JSON, or the page's tables
//! control --drawn COUNT [--from N]   the goodput over so many providers drawn from seeds, counted from N (0)
//! ```

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use tidegate_core::sim::suite::control::{Case, Contender, Oracle, Table, goodput};

/// The seed of the table.
const SEED: u64 = 1;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}\nusage: control [--markdown]  or  control --drawn COUNT [--from N]");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    let number = |text: &str| text.parse::<u64>().with_context(|| format!("`{text}` is not a number"));
    match *arguments {
        [] => print!("{}", serde_json::to_string_pretty(&table()?)?),
        ["--markdown"] => print!("{}", table()?.markdown()),
        ["--drawn", count] => drawn(0, number(count)?)?,
        ["--drawn", count, "--from", from] => drawn(number(from)?, number(count)?)?,
        _ => bail!("these arguments make no sense"),
    }
    Ok(())
}

fn table() -> Result<Table> {
    Ok(Table::of(&Case::all(), &Contender::all(), SEED)?)
}

/// Prints every drawn case with each contender's goodput and refusals, and the distribution over all of them.
fn drawn(from: u64, count: u64) -> Result<()> {
    let contenders = Contender::all();
    let mut all: Vec<Vec<(u64, u64)>> = vec![Vec::new(); contenders.len()];
    for seed in from..from + count {
        let case = Case::drawn(seed);
        let oracle = Oracle::of(&case, seed)?;
        print!("{}:", case.name);
        for (figures, contender) in all.iter_mut().zip(&contenders) {
            let (goodput, refused) = goodput(&case, contender, &oracle)?;
            print!(" {} {goodput}/{refused}", contender.name);
            figures.push((goodput, refused));
        }
        println!();
    }
    for (figures, contender) in all.iter_mut().zip(&contenders) {
        figures.sort_unstable();
        let rank = |percent: usize| figures[(figures.len() - 1) * percent / 100].0;
        let mean = figures.iter().map(|figure| figure.0).sum::<u64>() / count.max(1);
        println!(
            "{}: least {}, p5 {}, p25 {}, median {}, mean {mean}",
            contender.name,
            rank(0),
            rank(5),
            rank(25),
            rank(50),
        );
    }
    Ok(())
}
