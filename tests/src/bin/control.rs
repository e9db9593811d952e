//! How well each limit algorithm finds what a provider bears, beside an oracle that knows.
//!
//! ```text
//! control [--markdown]               the table: JSON, or the page's tables
//! control --drawn COUNT [--from N] [--only NAME]
//!                                    the goodput over so many providers drawn from seeds, counted from N (0); of one contender
//! ```

use std::process::ExitCode;
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail};
use tidegate_core::sim::suite::control::{Case, Contender, Survey, Surveyed, Table};

/// The seed of the table.
const SEED: u64 = 1;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}\nusage: control [--markdown]  or  control --drawn COUNT [--from N] [--only NAME]");
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
        _ => bail!("these arguments make no sense"),
    }
    Ok(())
}

fn table() -> Result<Table> {
    Ok(Table::of(&Case::all(), &Contender::all(), SEED)?)
}

/// Prints every drawn case with each contender's goodput and refusals, and the distribution over all of them and by kind.
fn drawn(from: u64, count: u64, only: Option<&str>) -> Result<()> {
    // Half of the cases beside the other half.
    let every_other = |first: u64| {
        let contenders = contenders(only);
        let seeds = (from + first..from + count).step_by(2);
        seeds.map(|seed| Ok(Surveyed::measure(seed, &contenders)?)).collect::<Result<Vec<Surveyed>>>()
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
    for Surveyed { name, scores, .. } in &survey.providers {
        print!("{name}:");
        for (contender, score) in survey.contenders.iter().zip(scores) {
            let late = if score.is_in_time == Some(false) { " late" } else { "" };
            print!(" {contender} {}/{}{late}", score.goodput_permille, score.refused_permille);
        }
        println!();
    }
    if let [provider] = &survey.providers[..] {
        println!("{:#?}", Case::drawn(provider.seed).provider);
    }
    println!("\n{}", survey.markdown());
    println!(
        "By kind: goodput of the worst tenth, and the median; the median share of refusals, all in permille; on how many in time."
    );
    Ok(())
}

fn contenders(only: Option<&str>) -> Vec<Contender> {
    Contender::all().into_iter().filter(|contender| only.is_none_or(|name| contender.name == name)).collect()
}
