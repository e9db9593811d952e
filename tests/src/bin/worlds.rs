//! Runs worlds drawn from seeds, each under its laws, until one breaks them.
//!
//! ```text
//! worlds --count N [--from SEED]     N worlds on every processor, the seeds counted from SEED (0)
//! worlds --seed SEED                 one world: its scenario, its end, and what led to it if it is a bad one
//! ```
//!
//! Exit code 0: every world keeps the laws. 1: one does not. 2: the arguments make no sense.

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use tidegate_tests::worlds::{Ended, draw, pretty, replay, run};

/// Observations that are shown of a bad world.
const SHOWN: usize = 40;
/// Worlds between two signs of progress.
const STEP: u64 = 2_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match wanted(&arguments) {
        Ok(Wanted::One(seed)) => one(seed),
        Ok(Wanted::Many { from, count }) => many(from, count),
        Err(error) => {
            eprintln!("{error:#}\nusage: worlds --count N [--from SEED]  or  worlds --seed SEED");
            ExitCode::from(2)
        }
    }
}

/// What the arguments ask for.
enum Wanted {
    One(u64),
    Many { from: u64, count: u64 },
}

fn wanted(arguments: &[String]) -> Result<Wanted> {
    let (mut seed, mut count, mut from) = (None, None, 0);
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { bail!("`{}` has no value", pair[0]) };
        let number = value.parse().with_context(|| format!("{name} {value}: not a whole number"))?;
        match name.as_str() {
            "--seed" => seed = Some(number),
            "--count" => count = Some(number),
            "--from" => from = number,
            _ => bail!("`{name}` is not known"),
        }
    }
    match (seed, count) {
        (Some(seed), None) => Ok(Wanted::One(seed)),
        (None, Some(count)) => Ok(Wanted::Many { from, count }),
        _ => bail!("either --seed or --count is needed"),
    }
}

fn one(seed: u64) -> ExitCode {
    println!("{}", pretty(&draw(seed)));
    let outcome = run(seed, |world| {
        let latest: Vec<_> = world.observations().collect();
        for observation in &latest[latest.len().saturating_sub(SHOWN)..] {
            println!("{observation}");
        }
    });
    match outcome {
        Ok(Ended { stop, steps, digest, .. }) => {
            println!("world {seed}: {stop} after {steps} steps, digest {digest:016x}");
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            println!("world {seed}: {wrong}");
            ExitCode::FAILURE
        }
    }
}

fn many(from: u64, count: u64) -> ExitCode {
    let started = Instant::now();
    let (next, has_failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = || {
        let (mut endings, mut kinds, mut longest) = (BTreeMap::new(), BTreeMap::new(), 0);
        while !has_failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            if number > 0 && number.is_multiple_of(STEP) {
                println!("{number} worlds, {:.1} s", started.elapsed().as_secs_f64());
            }
            let seed = from + number;
            match catch_unwind(|| run(seed, |_| ())) {
                Ok(Ok(ended)) => {
                    *endings.entry(ended.stop).or_insert(0) += 1;
                    longest = longest.max(ended.steps);
                    add(&mut kinds, ended.seen);
                }
                failure => {
                    has_failed.store(true, Ordering::Relaxed);
                    let wrong = failure.map_or("it panics".to_owned(), |ended| match ended {
                        Ok(_) => String::new(),
                        Err(wrong) => wrong.to_string(),
                    });
                    println!("world {seed}: {wrong}\nreplay with\n    {}", replay(seed));
                }
            }
        }
        (endings, kinds, longest)
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (mut endings, mut kinds, mut longest) = (BTreeMap::new(), BTreeMap::new(), 0);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for (own, more, steps) in workers.into_iter().filter_map(|worker| worker.join().ok()) {
            longest = longest.max(steps);
            add(&mut endings, own);
            add(&mut kinds, more);
        }
    });
    if has_failed.into_inner() {
        return ExitCode::FAILURE;
    }
    println!("what they came across: {kinds:?}");
    println!("{count} worlds in {:.1} s, at most {longest} steps: {endings:?}", started.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}

fn add<K: Ord>(to: &mut BTreeMap<K, u64>, more: BTreeMap<K, u64>) {
    for (key, count) in more {
        *to.entry(key).or_insert(0) += count;
    }
}
